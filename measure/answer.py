"""Decide from intervals whether speculation pays, does not pay, or is not known to pay.

    speed-up    tokens per second of a decoder / tokens per second of plain decoding, on the
                same prompts; the median of the repeats
    error       standard error of log(speed-up), by the bootstrap over prompts and repeats
    candidates  the number of decoders among which the fastest was sought: every K that the
                prediction chose from, raced or not, and the race's other decoders
    interval    of a decoder's speed-up, from `low` to `high`:
                    low  = speed-up / exp(t_low * error)
                    high = speed-up * exp(t_high * error)
    t_low       the number that Student's distribution with n_prompts - 1 degrees of freedom
                exceeds with a probability of 5 % / candidates
    t_high      the number that this distribution exceeds with a probability of 5 %

The rule for one temperature

    (a) It is not known if a text has fewer than FEWEST_TOKENS tokens, if there are fewer than
        FEWEST_RUNS repeats, or if there is only one prompt.
    (b) It pays if at least one decoder has low > 1.
    (c) It does not pay if all decoders have high < 1, and the costs are not disturbed
        (measure/costs.py). Disturbed costs may have chosen the wrong K for the race.
    (d) Otherwise it is not known.

Why (b) is wrong with a probability of at most 5 %

    1. Suppose that no decoder pays: all true speed-ups are at most 1.
    2. Then each single decoder has low > 1 with a probability of at most 5 % / candidates.
    3. The race shows only candidates that were fast, and these are partly the lucky ones. So
       all candidates count, although not all of them are raced.
    4. Some candidate has low > 1 with a probability of at most candidates * (5 % / candidates),
       which is 5 % (Bonferroni).

Why (c) is wrong with a probability of at most 5 %

    1. Suppose that a raced decoder pays: its true speed-up is above 1.
    2. Then (c) is wrong only if this one decoder has high < 1, whatever the others have.
    3. That has a probability of at most 5 %. It is not divided by `candidates`, because step 2
       is about one decoder.

tests/test_answer.py counts wrong answers in simulated races. The prediction decides which K are
raced, and nothing else, because the formula leaves out sampling and Python's own time.
"""

from collections.abc import Mapping
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np

from lib.statistics import resamples, student_quantile
from theory.speedup import needed_alpha
from variants.registry import Costs

PAYS = "pays"
DOES_NOT_PAY = "does not pay"
NOT_KNOWN = "not known"
WRONG_AT_MOST = 0.05  # probability of a wrong "it pays", and of a wrong "it does not pay"
FEWEST_TOKENS = 16  # new tokens per prompt
FEWEST_RUNS = 3  # repeats of every decoder


class Answer(NamedTuple):
    """Hold the answer for one temperature."""

    answer: str  # PAYS, DOES_NOT_PAY or NOT_KNOWN
    decoder: str  # the decoder that the words speak of; "" if the race decides nothing
    words: str  # one or more sentences; the first one continues "Temperature 0: "


# ---- intervals

def raced_speedup(texts: Mapping, plain: Mapping, n_candidates: int) -> dict[str, Any]:
    """Return the speed-up over plain decoding, its error, and the ends of its interval.

    `texts` and `plain` hold the tokens and the seconds of each text, [repeats, prompts]. A
    resample draws prompts and, independently, repeats, so the error covers the choice of
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
        with np.errstate(invalid="ignore"):  # NaN: no text had a second round
            return tokens / seconds

    return weighted_rate(texts) / weighted_rate(plain)


# ---- the answer

def answer_of(case: Mapping) -> Answer:
    """Return the answer for the figures of one temperature."""
    # The letters are the steps of the rule at the head of this file.
    # (a)
    if obstacle := reason_for_no_answer(case):
        return Answer(NOT_KNOWN, "", f"it is not known, because {obstacle}")
    rows = case["rows"]  # {decoder: its figures}

    # (b) Of the decoders that pay, the words name the fastest one.
    paying = [name for name in rows if rows[name]["low"] > 1]
    if paying:
        best = max(paying, key=lambda name: rows[name]["speedup"])
        return Answer(PAYS, best, f"it pays. {speed_in_words(best, rows[best])}")

    # (c) Disturbed costs matter only if they chose K, and so only with a draft.
    fastest = max(rows, key=lambda name: rows[name]["speedup"])
    disturbed = case["disturbed"] and "positions" in case
    if all(row["high"] < 1 for row in rows.values()) and not disturbed:
        speed = speed_in_words(f"The fastest decoder, {fastest},", rows[fastest])
        return Answer(DOES_NOT_PAY, fastest, f"it does not pay. {speed}")

    # (d)
    words = f"it is not known from these {case['n_prompts']} prompts."
    advice = "More prompts give narrower intervals (--prompts FILE)."
    if disturbed:
        words = "it is not known, because the costs are disturbed."
        advice = "Run this again when the machine is idle."
    speed = speed_in_words(fastest, rows[fastest])
    return Answer(NOT_KNOWN, fastest, f"{words} {speed} {advice}")


def reason_for_no_answer(case: Mapping) -> str:
    """Return why a race decides nothing, with what to do about it, or ""."""
    if case["N"] < FEWEST_TOKENS:
        return (f"texts of fewer than {FEWEST_TOKENS} tokens are too short (--N {case['N']}): "
                "choose a larger --N.")
    if case["repeats"] < FEWEST_RUNS:
        return (f"fewer than {FEWEST_RUNS} runs are too few (--repeats {case['repeats']}): "
                "choose more --repeats.")
    if case["n_prompts"] == 1:
        return "one prompt does not show how much prompts differ: give more with --prompts."
    return ""


def speed_in_words(name: str, row: Mapping) -> str:
    """Return a sentence with a decoder's speed-up and its interval."""
    return (f"{name} ran at {row['speedup']:.2f} times the speed of plain decoding "
            f"({row['low']:.2f} - {row['high']:.2f}).")


def conditions(costs: Costs, alpha: float) -> str:
    """Return which acceptance rate speculation needs to gain by the formula."""
    needed = needed_alpha(costs.c, costs.pass_cost)
    if needed is None:
        return ("By the formula, no acceptance rate is enough at these costs "
                f"(yours: {alpha:.2f}).")
    return ("By the formula, speculation pays at these costs if the acceptance rate is above "
            f"{needed:.2f} (yours: {alpha:.2f}).")
