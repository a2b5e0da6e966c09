"""Decide from intervals whether speculation pays, does not pay, or is not known to pay.

    speed-up    tokens per second of a decoder / tokens per second of plain decoding, on the
                same prompts; the median of the repeats
    error       standard error of log(speed-up), by the bootstrap over prompts and repeats
    candidates  the number of decoders that could have become the fastest one of the race: every
                K that the prediction chose from, and the race's other decoders
    interval    of a decoder's speed-up, from `low` to `high`:
                    low  = speed-up / exp(t_low * error)
                    high = speed-up * exp(t_high * error)
    t_low       the number that Student's distribution with n_prompts - 1 degrees of freedom
                exceeds with a probability of 5 % / candidates
    t_high      the number that this distribution exceeds with a probability of 5 %

The rule for one temperature

    (a) It is not known if a text has fewer than FEWEST_TOKENS tokens, if there are fewer than
        FEWEST_RUNS repeats, if there is only one prompt, or if the costs contradict each other.
    (b) It pays if at least one decoder has low > 1.
    (c) It does not pay if all decoders have high < 1.
    (d) Otherwise it is not known from these prompts.

Why (b) is wrong with a probability of at most 5 %

    1. Suppose that no decoder pays: all true speed-ups are at most 1.
    2. Then each single decoder has low > 1 with a probability of at most 5 % / candidates.
    3. The race shows only candidates that were fast, and these are partly the lucky ones. So
       all candidates count, although not all of them are raced.
    4. Some candidate has low > 1 with a probability of at most candidates * (5 % / candidates),
       which is 5 % (Bonferroni).

Why (c) is wrong with a probability of at most 5 %

    1. Suppose that a decoder pays: its true speed-up is above 1.
    2. Then (c) is wrong only if this one decoder has high < 1, whatever the others have.
    3. That has a probability of at most 5 %. It is not divided by `candidates`, because step 2
       is about one decoder.

tests/test_answer.py counts wrong answers in simulated races.

The prediction decides which K are raced, and nothing else, because the formula leaves out
sampling and Python's own time. The words only say whether the prediction agrees with the race.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import combinations
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

from lib.statistics import resamples, student_quantile
from theory.speedup import expected_tokens, needed_alpha
from variants.registry import Costs

PAYS = "pays"
DOES_NOT_PAY = "does not pay"
NOT_KNOWN = "not known"
WRONG_AT_MOST = 0.05  # probability of a wrong "it pays", and of a wrong "it does not pay"
FEWEST_TOKENS = 16  # new tokens per prompt
FEWEST_RUNS = 3  # repeats of every decoder
MOST_PROMPTS = 500  # a larger number of needed prompts is not estimated
# Costs are disturbed if a pass took less than this share of the time of a pass over fewer rows.
# On idle machines the smallest share of the time of one row was 0.95.
LEAST_OF_ONE_ROW = 0.95
# The smallest share of the time of two or more rows was 0.74: NumPy's products of eight rows
# take 0.74 of the time of seven rows.
LEAST_OF_FEWER_ROWS = 0.7


class Answer(NamedTuple):
    """Hold the answer for one temperature."""

    answer: str  # PAYS, DOES_NOT_PAY or NOT_KNOWN
    decoder: str  # the decoder that the words speak of; "" if the race decides nothing
    words: str  # one or more sentences; the first one continues "Temperature 0: "
    n_needed: int | None = None  # prompts that would roughly be enough, if it is not known


# ---- intervals

def raced_speedup(texts: Mapping, plain: Mapping, n_candidates: int) -> dict[str, Any]:
    """Return the speed-up over plain decoding, its error, and the ends of its interval.

    `texts` and `plain` hold the tokens and the seconds of each text, [repeats, prompts]. A
    resample draws prompts and, apart from them, repeats, so the error covers the choice of
    prompts and the machine's slow minutes. One prompt has no interval: both ends are None.
    """
    n_repeats, n_prompts = np.shape(texts["seconds"])
    each_once = np.ones((1, n_prompts))  # weights: every prompt counts once
    point = float(np.median(ratio_of_rates(texts, plain, each_once)))
    if n_prompts == 1:
        return {"speedup": point, "error": None, "low": None, "high": None}

    # Each resample of the prompts has a ratio per repeat.
    ratios = ratio_of_rates(texts, plain, resamples(n_prompts))  # [N_RESAMPLES, n_repeats]
    # Each resample also draws n_repeats of its repeats. The seed differs from the prompts'
    # seed, so that the two draws are independent.
    drawn = np.random.default_rng(1).integers(n_repeats, size=ratios.shape)
    ratios_of_drawn = np.take_along_axis(ratios, drawn, axis=1)  # [N_RESAMPLES, n_repeats]
    medians = np.median(ratios_of_drawn, axis=1)

    # The spread of resamples of n values is too small by the factor sqrt((n - 1) / n).
    error = float(np.log(medians).std() * sqrt(n_prompts / (n_prompts - 1)))
    t_low = student_quantile(WRONG_AT_MOST / n_candidates, n_prompts - 1)
    t_high = student_quantile(WRONG_AT_MOST, n_prompts - 1)
    return {"speedup": point, "error": error, "low": point / exp(t_low * error),
            "high": point * exp(t_high * error)}


def ratio_of_rates(texts: Mapping, plain: Mapping, weights: np.ndarray) -> np.ndarray:
    """Return the ratio of tokens per second with each prompt counted `weights` times.

    weights [n, prompts] -> [n, repeats]
    """
    def weighted_rate(each):  # -> [n, repeats]
        """Return tokens per second; the products sum over prompts."""
        tokens = weights @ np.transpose(each["tokens"])  # transposed: [prompts, repeats]
        seconds = weights @ np.transpose(each["seconds"])
        return tokens / seconds

    return weighted_rate(texts) / weighted_rate(plain)


def needed_prompts(rows: Iterable[Mapping], n_prompts: int, n_candidates: int) -> int | None:
    """Return with how many prompts the answer would be known if speed-ups and spreads stay.

    Returns None if more than MOST_PROMPTS are needed.
    """
    rows = list(rows)
    faster = [row for row in rows if row["speedup"] > 1]
    if faster:  # one interval above 1 is enough
        tail = WRONG_AT_MOST / n_candidates
        needed = min(prompts_for(row, n_prompts, tail) for row in faster)
    else:  # all intervals must be below 1
        needed = max(prompts_for(row, n_prompts, WRONG_AT_MOST) for row in rows)
    return None if needed == inf else int(needed)


def prompts_for(row: Mapping, n_prompts: int, tail: float) -> float:
    """Return with how many prompts one interval would exclude 1; inf if above MOST_PROMPTS."""
    gap = abs(log(row["speedup"]))
    # The error of n prompts is spread / sqrt(n).
    spread = row["error"] * sqrt(n_prompts)

    def excludes_1(n):
        """Return whether the interval of n prompts would exclude 1."""
        error = spread / sqrt(n)
        return student_quantile(tail, n - 1) * error < gap

    numbers = range(n_prompts, MOST_PROMPTS + 1)
    # Intervals get narrower as n grows, so `excludes_1` is False up to some n and True after
    # it. False sorts before True, so bisection finds the first True.
    first = bisect_left(numbers, True, key=excludes_1)
    return numbers[first] if first < len(numbers) else inf


# ---- costs

def disturbance(costs: Costs) -> str:
    """Return how two measured passes contradict each other, or "" if no two do.

    >>> disturbance(Costs(0.1, [1.0, 1.2, 0.9])), disturbance(Costs(0.1, [1.0, 1.1, 1.05]))
    ('a pass over 3 rows took 0.90 of the time of 1 row', '')
    """
    times = enumerate(costs.passes, start=1)  # (number of rows, time of a pass over them)
    # Every two passes are compared; the pass over fewer rows comes first.
    for (fewer, time_of_fewer), (more, time_of_more) in combinations(times, 2):
        share = time_of_more / time_of_fewer
        least = LEAST_OF_ONE_ROW if fewer == 1 else LEAST_OF_FEWER_ROWS
        if share < least:
            rows = "1 row" if fewer == 1 else f"{fewer} rows"
            return f"a pass over {more} rows took {share:.2f} of the time of {rows}"
    return ""


def allowed_c(costs: Costs, alpha: float) -> float | None:
    """Return the c below which some K gains at this alpha; None if not even c = 0 gains."""
    # K guesses gain if tokens / (K c + cost) > 1, that is if c < (tokens - cost) / K. The pass
    # over the K + 1 rows of a round costs pass_cost[K].
    limits = []
    for K in range(1, len(costs.pass_cost)):
        tokens = expected_tokens(alpha, K)
        limits.append((tokens - costs.pass_cost[K]) / K)
    largest = max(limits)
    return largest if largest > 0 else None


# ---- the answer

def answer_of(case: Mapping, costs: Costs) -> Answer:
    """Return the answer for the figures of one temperature."""
    # The letters are the steps of the rule at the head of this file.
    # (a)
    if obstacle := reason_for_no_answer(case, costs):
        return Answer(NOT_KNOWN, "", f"it is not known, because {obstacle}")
    rows = case["rows"]  # {decoder: its figures}

    # (b) Of the decoders that pay, the words name the fastest one.
    paying = [name for name in rows if rows[name]["low"] > 1]
    if paying:
        best = max(paying, key=lambda name: rows[name]["speedup"])
        return Answer(PAYS, best, f"it pays. {speed_in_words(best, rows[best])}")

    # (c)
    fastest = max(rows, key=lambda name: rows[name]["speedup"])
    if all(row["high"] < 1 for row in rows.values()):
        speed = speed_in_words(f"The fastest decoder, {fastest},", rows[fastest])
        words = f"it does not pay. {speed} {prediction_in_words(case)}"
        return Answer(DOES_NOT_PAY, fastest, words)

    # (d)
    n = needed_prompts(rows.values(), case["n_prompts"], case["candidates"])
    words = (f"it is not known from these {case['n_prompts']} prompts. "
             f"{speed_in_words(fastest, rows[fastest])} {advice_on_prompts(n)}")
    return Answer(NOT_KNOWN, fastest, words, n)


def reason_for_no_answer(case: Mapping, costs: Costs) -> str:
    """Return why a race decides nothing, with what to do about it, or ""."""
    # Only the first obstacle is named.
    if case["N"] < FEWEST_TOKENS:
        return (f"texts of fewer than {FEWEST_TOKENS} tokens are too short (--N {case['N']}): "
                "choose a larger --N.")
    if case["repeats"] < FEWEST_RUNS:
        return (f"fewer than {FEWEST_RUNS} runs are too few (--repeats {case['repeats']}): "
                "choose more --repeats.")
    if disturbance(costs):
        return "the costs are disturbed: run this again when the machine is idle."
    # Files of older versions have no intervals.
    if not all("low" in row for row in case["rows"].values()):
        return "these figures were stored before intervals were measured: measure again."
    if case["n_prompts"] == 1:
        return "one prompt does not show how much prompts differ: give more with --prompts."
    return ""


def speed_in_words(name: str, row: Mapping) -> str:
    """Return a sentence with a decoder's speed-up and its interval."""
    return (f"{name} ran at {row['speedup']:.2f} times the speed of plain decoding "
            f"({row['low']:.2f} - {row['high']:.2f}).")


def advice_on_prompts(n: int | None) -> str:
    """Return a sentence that says how many prompts would roughly be needed."""
    if n is None:
        return (f"That is so near 1 that more than {MOST_PROMPTS} prompts would be needed to "
                "know.")
    return (f"If the speed-ups stay as they are, about {n} prompts would be enough (--prompts "
            "FILE).")


def prediction_in_words(case: Mapping) -> str:
    """Return a sentence that says whether the prediction agrees that nothing pays."""
    # The entry of position K holds the prediction for rounds of K guesses.
    predicted = {K: place["predicted"] for K, place in enumerate(case["positions"], start=1)}
    best_K = max(predicted, key=lambda K: predicted[K]["speedup"])
    best = predicted[best_K]
    interval = f"({best['low']:.2f} - {best['high']:.2f})"
    figures = f"{best['speedup']:.2f} {interval} with K = {best_K}"
    # The race has shown that nothing pays. The formula may agree, contradict, or be undecided.
    if best["low"] > 1:
        return (f"By the formula it pays, {figures}; sampling and Python's own time, which the "
                "formula leaves out, took the rest.")
    if best["high"] < 1:
        return f"The formula agrees: its best speed-up is {figures}."
    return f"The formula leaves it open: its best speed-up is {figures}."


def acceptance_in_words(case: Mapping) -> str:
    """Return the sentence about the acceptance in the report and on the page."""
    return f"{case['acceptance']:.2f} of the guesses were accepted."


def answer_in_words(case: Mapping, costs: Costs) -> str:
    """Return the answer for one temperature, and what must hold for a gain by the formula."""
    words = answer_of(case, costs).words
    # Short texts have no reliable acceptance, and from disturbed costs nothing follows.
    if case["N"] < FEWEST_TOKENS or disturbance(costs):
        return words
    return f"{words} {conditions(costs, case['acceptance'])}"


def conditions(costs: Costs, alpha: float) -> str:
    """Return what must hold for speculation to gain by the formula."""
    # Two ways to gain: a better draft at these costs, or a cheaper draft at this acceptance.
    needed = needed_alpha(costs.c, costs.pass_cost)
    allowed = allowed_c(costs, alpha)
    if needed is None:
        enough = "at these costs no acceptance is enough"
    else:
        enough = f"to gain at these costs, you need acceptance above {needed:.2f}"
    if allowed is None:
        cheap = "At this acceptance no draft is cheap enough"
    else:
        cheap = ("To gain at this acceptance, you need a draft step cheaper than "
                 f"{allowed:.2f} target passes")
    return f"By the formula, {enough} (yours: {alpha:.2f}). {cheap} (yours: {costs.c:.2f})."
