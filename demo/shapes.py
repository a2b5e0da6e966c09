"""Name the shape of acceptance by position, if it is one that faults in a draft have.

    share      accepted guesses / tested guesses of some positions, at one temperature
    contrast   a constant and weighted shares, added: above 0 if the acceptance has a shape
    first      guess 1 of a round          later   guesses 2 .. K

shape          its contrast, at each temperature                   measured with
near zero      NEAR_ZERO - first, at every one                     input shifted, other tokenizer
cliff          DROP (guess t - 1) - (guess t), mean                slots not filled
low when warm  WARM (all guesses, coldest) - (all, warmest)        draft too cold
low when cold  WARM (all guesses, warmest) - (all, coldest)        draft too warm
second half    HALF (first half of each text) - (second), mean     positions beyond training
rising         RISE later - first, mean                            cache cut at the wrong place
low            LOW - (all guesses), mean                           several

A contrast is above 0 if its value exceeds t standard errors. Prompts are independent, guesses of
a text are not, so the error is computed from prompts, and Student's t has n_prompts - 1 degrees
of freedom. It exceeds t with probability ERROR / (number of contrasts). So if no contrast is
above 0 in truth, a shape is named with a probability of about ERROR at most. Student's t is an
approximation, because a share is a ratio of two counts. Simulated texts of
tests/test_low_acceptance.py raise fewer false alarms than ERROR, even if prompts differ much and
a contrast is 0 in truth. The first shape in the table's order is named.

A shape is no proof of a fault: docs/low_acceptance.md says what else has it, and which faults
have none.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from demo.hazards import PositionCounts, accepted_share
from lib.statistics import student_quantile

ERROR = 0.05  # the largest probability that a shape is named if there is none
NEAR_ZERO = 0.2
DROP = 0.5
WARM = 2 / 3
HALF = 0.85
RISE = 0.9
LOW = 0.5
PAGE = "docs/low_acceptance.md"

CountsOf = Mapping[float, PositionCounts]  # by temperature


class Shape(NamedTuple):
    """Hold a shape and the sentence that names it."""

    name: str
    words: str


class Share(NamedTuple):
    """Hold a weight, and the guesses of each prompt that a share counts, [n_prompts]."""

    weight: float
    accepted: np.ndarray
    tested: np.ndarray


# ---- contrasts

def weighted_share(counts: PositionCounts, weight: float, first: int = 1,
                   last: int | None = None, parts: slice = slice(None)) -> Share:
    """Return the share of the positions first .. last; all parts of a text unless given."""
    tested, accepted = (every[:, parts, first - 1 : last].sum(axis=(1, 2)) for every in counts)
    return Share(weight, accepted, tested)


def contrast(constant: float, shares: Sequence[Share]) -> tuple[float, float]:
    """Return the value of a contrast and its standard error.

    The error is the larger one of two: the spread of the prompts, and the spread of independent
    coins, without which a few equal prompts would have no error.
    """
    n_prompts = len(shares[0].tested)
    value = constant
    residuals = np.zeros(n_prompts)  # what each prompt adds to the value beyond the mean
    coin_variance = 0.0
    for weight, accepted, tested in shares:
        rate = accepted.sum() / tested.sum()
        value += weight * rate
        residuals += weight * (accepted - rate * tested) / tested.sum()
        # one more accepted and one more rejected guess, so that no rate is 0 or 1
        coin = (accepted.sum() + 1) / (tested.sum() + 2)
        coin_variance += weight**2 * coin * (1 - coin) / tested.sum()
    prompt_variance = n_prompts / (n_prompts - 1) * float((residuals**2).sum())
    return value, sqrt(max(prompt_variance, coin_variance))


def is_above_zero(constant: float, shares: Sequence[Share], tail: float) -> bool:
    """Return whether a contrast is above 0; wrong with probability `tail` if it is not."""
    n_prompts = len(shares[0].tested)
    if n_prompts < 2 or any(share.tested.sum() == 0 for share in shares):
        return False  # nothing is known
    value, error = contrast(constant, shares)
    return value > student_quantile(tail, n_prompts - 1) * error


# ---- shapes

def nearest_shape(counts_of: CountsOf) -> Shape | None:
    """Return the shape of a pair's acceptance, None if it has none of those above.

    `counts_of` has the counts of the same prompts at each temperature.
    """
    Ts = sorted(counts_of)
    K = next(iter(counts_of.values())).tested.shape[-1]
    n_contrasts = 6 + (K - 1)  # K - 1 places for a cliff, and the six other shapes
    tail = ERROR / n_contrasts
    every = [counts_of[T] for T in Ts]
    if all(is_above_zero(NEAR_ZERO, [weighted_share(counts, -1.0, 1, 1)], tail)
           for counts in every):
        return Shape("near zero", near_zero_words(counts_of))
    for t in range(2, K + 1):
        if is_above_zero(0.0, mean_shares(every, (DROP, t - 1, t - 1), (-1.0, t, t)), tail):
            return Shape("cliff", cliff_words(counts_of, t))
    if len(Ts) > 1:
        if is_above_zero(0.0, two_temperatures(every[0], every[-1]), tail):
            return Shape("low when warm", one_temperature_words(counts_of, Ts[-1], Ts[0]))
        if is_above_zero(0.0, two_temperatures(every[-1], every[0]), tail):
            return Shape("low when cold", one_temperature_words(counts_of, Ts[0], Ts[-1]))
    if is_above_zero(0.0, halves(every), tail):
        return Shape("second half", second_half_words(counts_of))
    if is_above_zero(0.0, mean_shares(every, (RISE, 2, K), (-1.0, 1, 1)), tail):
        return Shape("rising", rising_words(counts_of, K))
    if is_above_zero(LOW, mean_shares(every, (-1.0, 1, K)), tail):
        return Shape("low", low_words(counts_of))
    return None


def mean_shares(every: Sequence[PositionCounts],
                *terms: tuple[float, int, int]) -> list[Share]:
    """Return the shares of terms (weight, first, last), as means over the temperatures."""
    return [weighted_share(counts, weight / len(every), first, last)
            for counts in every for weight, first, last in terms]


def two_temperatures(high: PositionCounts, low: PositionCounts) -> list[Share]:
    """Return the shares that tell whether acceptance at one temperature is low."""
    return [weighted_share(high, WARM), weighted_share(low, -1.0)]


def halves(every: Sequence[PositionCounts]) -> list[Share]:
    """Return the shares that tell whether acceptance in the second halves of texts is low."""
    shares = []
    for counts in every:
        shares.append(weighted_share(counts, HALF / len(every), parts=slice(0, 1)))
        shares.append(weighted_share(counts, -1 / len(every), parts=slice(1, 2)))
    return shares


# ---- in words

def rates_in_words(counts_of: CountsOf, first: int = 1, last: int | None = None,
                   parts: slice = slice(None)) -> str:
    """Return the acceptance at each temperature, such as "0.72 at temperature 0"."""
    words = []
    for T in sorted(counts_of):
        share = weighted_share(counts_of[T], 1.0, first, last, parts)
        rate = accepted_share(share.accepted.sum(), share.tested.sum())
        words.append(f"{rate:.2f} at temperature {T:g}")
    return ", ".join(words)


def near_zero_words(counts_of: CountsOf) -> str:
    """Return the sentence of a draft whose guesses are nearly all rejected."""
    return (f"Almost no first guess of a round is accepted ({rates_in_words(counts_of, 1, 1)}), "
            "as with a draft whose input is shifted by one token, or whose tokenizer is a "
            f"different one ({PAGE}).")


def cliff_words(counts_of: CountsOf, t: int) -> str:
    """Return the sentence of acceptance that falls at one position."""
    return (f"Guess {t} is accepted far less often ({rates_in_words(counts_of, t, t)}) than guess "
            f"{t - 1} ({rates_in_words(counts_of, t - 1, t - 1)}), as with slots of a round that "
            f"the draft does not fill ({PAGE}).")


def one_temperature_words(counts_of: CountsOf, low: float, high: float) -> str:
    """Return the sentence of acceptance that is low at one temperature."""
    cause = "lower" if low > high else "higher"
    return (f"Acceptance at temperature {low:g} is less than two thirds of acceptance at "
            f"temperature {high:g} ({rates_in_words(counts_of)}), as with a draft that draws its "
            f"guesses at a {cause} temperature than the target's ({PAGE}).")


def second_half_words(counts_of: CountsOf) -> str:
    """Return the sentence of acceptance that falls with the length of the text."""
    return ("Acceptance in the second half of a text "
            f"({rates_in_words(counts_of, parts=slice(1, 2))}) is lower than in the first half "
            f"({rates_in_words(counts_of, parts=slice(0, 1))}), as with positions that the draft "
            f"was not trained on ({PAGE}).")


def rising_words(counts_of: CountsOf, K: int) -> str:
    """Return the sentence of a first guess that is worse than later ones."""
    return (f"The first guess of a round is accepted less often ({rates_in_words(counts_of, 1, 1)}"
            f") than later guesses ({rates_in_words(counts_of, 2, K)}), as with a draft whose "
            "cache is cut at the wrong place after a rejection; texts of easy and hard passages "
            f"have this shape too ({PAGE}).")


def low_words(counts_of: CountsOf) -> str:
    """Return the sentence of acceptance that is low at all positions."""
    return (f"Fewer than half of the guesses are accepted ({rates_in_words(counts_of)}), at all "
            "positions alike; a weak draft, a short window and a wrong temperature have this "
            f"shape, and acceptance alone cannot tell them apart ({PAGE}).")
