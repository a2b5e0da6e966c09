"""Name the shape of acceptance by position, if it is one that faults in a draft have.

    share      accepted guesses / tested guesses, of some positions, at one temperature
    contrast   constant + sum of weight * share: a number above 0 if the acceptance has a shape
    value      of a contrast: the number that the counted guesses give
    truth      of a contrast: the value that endless texts would give

Seven shapes have a contrast. The capital letters are weights and constants, defined below. The
last column names the planted faults whose acceptance had the shape.

    shape          contrast                                             fault
    near zero      NEAR_ZERO - share of guess 1                         input shifted, tokenizer
    cliff          DROP * share of guess t - 1 - share of guess t       slots not filled
    low when warm  WARM * share at the coldest - share at the warmest   draft too cold
    low when cold  WARM * share at the warmest - share at the coldest   draft too warm
    second half    HALF * share of first half - share of second half    positions untrained
    rising         RISE * share of guesses 2 .. K - share of guess 1    cache cut wrongly
    low            LOW - share of all guesses                           several

"near zero" needs its contrast above 0 at every temperature. "Coldest" and "warmest" are the
lowest and the highest temperature. The other contrasts are means over the temperatures.

Example: guess 2 is accepted with 0.70 and guess 3 with 0.10. The contrast of a cliff at t = 3
is 0.5 * 0.70 - 0.10 = 0.25. With a standard error of 0.04 its value is 6.25 standard errors.

When a shape is named

    (a) A shape is named if the value of its contrast exceeds t standard errors. If several
        contrasts do, the first shape in the table's order is named.
    (b) Prompts are independent, and guesses of one text are not. So the standard error is
        computed from the prompts, and t belongs to Student's distribution with n_prompts - 1
        degrees of freedom. This distribution exceeds t with probability ERROR / (number of
        contrasts).

How often a shape is named although there is none

    1. Suppose that no contrast is above 0 in truth.
    2. Then each single value exceeds t standard errors with a probability of at most
       ERROR / (number of contrasts).
    3. So at least one of the values does with a probability of at most ERROR (Bonferroni).
    4. Step 2 is an approximation, because a share is a ratio of two counts.
       tests/test_low_acceptance.py simulates texts: fewer false alarms than ERROR came, even if
       prompts differ much and the truth of a contrast is 0.

A shape does not prove a fault. docs/low_acceptance.md shows what else has such a shape, and
which faults have none.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from demo.hazards import PositionCounts, accepted_share, counts_from_lists
from lib.statistics import student_quantile

ERROR = 0.05  # the largest probability that a shape is named if there is none
# Weights and constants of the contrasts.
NEAR_ZERO = 0.2
DROP = 0.5
WARM = 2 / 3
HALF = 0.85
RISE = 0.9
LOW = 0.5
# The halves of a text are its parts 0 and 1 (demo/hazards.py).
FIRST_HALF = slice(0, 1)
SECOND_HALF = slice(1, 2)
PAGE = "docs/low_acceptance.md"

CountsOf = Mapping[float, PositionCounts]  # by temperature


class Shape(NamedTuple):
    """Hold a shape and the sentence that names it."""

    name: str
    words: str


class Share(NamedTuple):
    """Hold a weight, and the counts of guesses that a share is computed from."""

    weight: float
    accepted: np.ndarray  # [n_prompts]
    tested: np.ndarray  # [n_prompts]


# ---- contrasts

def weighted_share(counts: PositionCounts, weight: float, first: int = 1,
                   last: int | None = None, parts: slice = slice(None)) -> Share:
    """Return the share of the positions first .. last, which count from 1.

    `parts` selects a half of each text; without it both halves count.
    """
    # The arrays are [n_prompts, N_PARTS, K], and position 1 has index 0.
    positions = slice(first - 1, last)
    tested = counts.tested[:, parts, positions].sum(axis=(1, 2))
    accepted = counts.accepted[:, parts, positions].sum(axis=(1, 2))
    return Share(weight, accepted, tested)


def contrast(constant: float, shares: Sequence[Share]) -> tuple[float, float]:
    """Return the value of a contrast and its standard error.

    There are two estimates of the error, and the larger one is returned. The first is the
    spread of the prompts. The second is the spread that independent coins would have; a few
    prompts with equal counts would have no error without it.
    """
    n_prompts = len(shares[0].tested)
    value = constant
    residuals = np.zeros(n_prompts)  # [n_prompts]; they add up to 0
    coin_variance = 0.0
    for weight, accepted, tested in shares:
        n_tested = tested.sum()
        rate = accepted.sum() / n_tested
        value += weight * rate
        # rate * tested guesses of a prompt would be accepted if it were like all prompts. A
        # prompt's residual is what the difference adds to the value.
        residuals += weight * (accepted - rate * tested) / n_tested
        # The variance of a mean of n coins is p (1 - p) / n. One more accepted and one more
        # rejected guess keep p away from 0 and 1, where the variance would be 0.
        p = (accepted.sum() + 1) / (n_tested + 2)
        coin_variance += weight**2 * p * (1 - p) / n_tested
    # The value's variance is the sum of the squared residuals. The factor n / (n - 1) is needed
    # because the rates come from the same prompts.
    prompt_variance = n_prompts / (n_prompts - 1) * float((residuals**2).sum())
    return value, sqrt(max(prompt_variance, coin_variance))


def is_above_zero(constant: float, shares: Sequence[Share], tail: float) -> bool:
    """Return whether the value of a contrast is so far above 0 that its truth is above 0 too.

    If the truth is not above 0, True is returned with a probability of at most `tail`.
    """
    n_prompts = len(shares[0].tested)
    # One prompt has no spread, and a share without tested guesses has no value.
    if n_prompts < 2 or any(share.tested.sum() == 0 for share in shares):
        return False
    value, error = contrast(constant, shares)
    return value > student_quantile(tail, n_prompts - 1) * error


# ---- shapes

def nearest_shape(counts_of: CountsOf) -> Shape | None:
    """Return the shape of a pair's acceptance, None if it has none of the table's shapes.

    `counts_of` has the counts of the same prompts at each temperature.
    """
    Ts = sorted(counts_of)
    every = [counts_of[T] for T in Ts]  # the coldest temperature first
    K = every[0].tested.shape[-1]
    # A cliff can be at t = 2 .. K, which is K - 1 contrasts. The other six shapes have one
    # each.
    n_contrasts = (K - 1) + 6
    tail = ERROR / n_contrasts

    # The shapes are tried in the order of the table. A term is (weight, first position, last
    # position).
    first_guesses = [weighted_share(counts, -1.0, 1, 1) for counts in every]
    if all(is_above_zero(NEAR_ZERO, [share], tail) for share in first_guesses):
        return Shape("near zero", near_zero_words(counts_of))
    for t in range(2, K + 1):
        fall = mean_shares(every, (DROP, t - 1, t - 1), (-1.0, t, t))
        if is_above_zero(0.0, fall, tail):
            return Shape("cliff", cliff_words(counts_of, t))
    if len(Ts) > 1:
        coldest = every[0]
        warmest = every[-1]
        # Acceptance is high at the first argument of `two_temperatures`, and low at the second.
        if is_above_zero(0.0, two_temperatures(coldest, warmest), tail):
            return Shape("low when warm", one_temperature_words(counts_of, Ts[-1], Ts[0]))
        if is_above_zero(0.0, two_temperatures(warmest, coldest), tail):
            return Shape("low when cold", one_temperature_words(counts_of, Ts[0], Ts[-1]))
    if is_above_zero(0.0, halves(every), tail):
        return Shape("second half", second_half_words(counts_of))
    rise = mean_shares(every, (RISE, 2, K), (-1.0, 1, 1))
    if is_above_zero(0.0, rise, tail):
        return Shape("rising", rising_words(counts_of, K))
    if is_above_zero(LOW, mean_shares(every, (-1.0, 1, K)), tail):
        return Shape("low", low_words(counts_of))
    return None


def mean_shares(every: Sequence[PositionCounts],
                *terms: tuple[float, int, int]) -> list[Share]:
    """Return the shares of terms (weight, first, last) at all temperatures.

    Each weight is divided by the number of temperatures, so that the contrast is a mean.
    """
    return [weighted_share(counts, weight / len(every), first, last)
            for counts in every for weight, first, last in terms]


def two_temperatures(high: PositionCounts, low: PositionCounts) -> list[Share]:
    """Return the shares that show whether acceptance in `low` is much lower than in `high`."""
    return [weighted_share(high, WARM), weighted_share(low, -1.0)]


def halves(every: Sequence[PositionCounts]) -> list[Share]:
    """Return the shares that show whether acceptance in the second halves of texts is low."""
    shares = []
    for counts in every:
        shares.append(weighted_share(counts, HALF / len(every), parts=FIRST_HALF))
        shares.append(weighted_share(counts, -1 / len(every), parts=SECOND_HALF))
    return shares


# ---- in words

def shape_in_words(cases: Iterable[Mapping]) -> str:
    """Return the sentence that names the shape of a pair's acceptance, "" if it has none.

    A case holds the figures of one temperature (tools/will_it_pay.py).
    """
    # Files of older versions have no counts.
    counts_of = {case["temperature"]: counts_from_lists(case["counts"])
                 for case in cases if "counts" in case}
    shape = nearest_shape(counts_of) if counts_of else None
    return shape.words if shape else ""


def rates_in_words(counts_of: CountsOf, first: int = 1, last: int | None = None,
                   parts: slice = slice(None)) -> str:
    """Return the acceptance at each temperature, such as "0.72 at temperature 0"."""
    words = []
    for T in sorted(counts_of):
        # The counts of all prompts are added up, so a prompt with more guesses counts more.
        share = weighted_share(counts_of[T], 1.0, first, last, parts)
        rate = accepted_share(share.accepted.sum(), share.tested.sum())
        words.append(f"{rate:.2f} at temperature {T:g}")
    return ", ".join(words)


def near_zero_words(counts_of: CountsOf) -> str:
    """Return the sentence of a draft whose guesses are nearly all rejected."""
    rates = rates_in_words(counts_of, 1, 1)
    return (f"Almost no first guess of a round is accepted ({rates}), as with a draft whose "
            "input is shifted by one token, or whose tokenizer is a different one "
            f"({PAGE}).")


def cliff_words(counts_of: CountsOf, t: int) -> str:
    """Return the sentence of acceptance that falls at one position."""
    rates = rates_in_words(counts_of, t, t)
    rates_before = rates_in_words(counts_of, t - 1, t - 1)
    return (f"Guess {t} is accepted far less often ({rates}) than guess {t - 1} "
            f"({rates_before}), as with slots of a round that the draft does not fill "
            f"({PAGE}).")


def one_temperature_words(counts_of: CountsOf, low: float, high: float) -> str:
    """Return the sentence of acceptance that is low at one of two temperatures.

    `low` is the temperature at which acceptance is low, `high` the other one.
    """
    # Acceptance that is low at the warm temperature shows a draft that is too cold, and the
    # other way round.
    is_low_when_warm = low > high
    cause = "lower" if is_low_when_warm else "higher"
    rates = rates_in_words(counts_of)
    return (f"Acceptance at temperature {low:g} is less than two thirds of acceptance at "
            f"temperature {high:g} ({rates}), as with a draft that draws its guesses at a "
            f"{cause} temperature than the target's ({PAGE}).")


def second_half_words(counts_of: CountsOf) -> str:
    """Return the sentence of acceptance that falls with the length of the text."""
    first_rates = rates_in_words(counts_of, parts=FIRST_HALF)
    second_rates = rates_in_words(counts_of, parts=SECOND_HALF)
    return (f"Acceptance in the second half of a text ({second_rates}) is lower than in the "
            f"first half ({first_rates}), as with positions that the draft was not trained on "
            f"({PAGE}).")


def rising_words(counts_of: CountsOf, K: int) -> str:
    """Return the sentence of a first guess that is worse than later ones."""
    first_rates = rates_in_words(counts_of, 1, 1)
    later_rates = rates_in_words(counts_of, 2, K)
    return (f"The first guess of a round is accepted less often ({first_rates}) than later "
            f"guesses ({later_rates}), as with a draft whose cache is cut at the wrong place "
            "after a rejection; texts of easy and hard passages have this shape too "
            f"({PAGE}).")


def low_words(counts_of: CountsOf) -> str:
    """Return the sentence of acceptance that is low at all positions."""
    rates = rates_in_words(counts_of)
    return (f"Fewer than half of the guesses are accepted ({rates}), at all positions alike; a "
            "weak draft, a short window and a wrong temperature have this shape, and "
            f"acceptance alone cannot tell them apart ({PAGE}).")
