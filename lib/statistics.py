"""Compute standard errors and bootstrap intervals.

The bootstrap (Efron 1979) draws as many prompts as there are, with replacement, many times. A
figure is computed from each resample, and its interval holds the middle 90 % of the results.
Guesses of one text depend on each other, so whole prompts are drawn, not guesses.

Student's distribution (1908) with n - 1 degrees of freedom says how far a mean of n values is
from the truth, in units of a standard error that is estimated from the same n values.
"""

from functools import cache
from typing import Any

import numpy as np

LEVEL = 90  # percent of the resamples that an interval holds
N_RESAMPLES = 1000

# ---- means

def standard_error(values: Any, texts: Any) -> float:
    """Return the standard error of the mean of `values`, one value per round.

    Round i is of text texts[i]. Only rounds of different texts are independent, so the
    differences from the mean are summed over each text first.

    >>> standard_error([1, 3, 1, 3], [0, 1, 2, 3])
    0.5
    >>> standard_error([1, 1, 3, 3], [0, 0, 1, 1])  # two texts of two equal rounds
    0.7071067811865476
    """
    differences = np.asarray(values) - np.mean(values)
    sums = np.bincount(texts, differences)  # sums[j]: over the rounds of text j
    return float(np.sqrt((sums**2).sum()) / len(values))


def means(rows: list[dict], texts: Any) -> dict[str, dict[str, float]]:
    """Return {name: mean and standard error}, also of the difference from the first name.

    The difference is taken round by round; "more" is its mean.
    """
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    first = next(iter(columns.values()))
    return {name: {"mean": float(column.mean()), "error": standard_error(column, texts),
                   "more": float((column - first).mean()),
                   "more_error": standard_error(column - first, texts)}
            for name, column in columns.items()}


# ---- intervals

def resamples(n_prompts: int, seed: int = 0) -> np.ndarray:  # -> [N_RESAMPLES, n_prompts]
    """Return how often each prompt is in each resample."""
    # Drawing n prompts with replacement is one draw of a multinomial distribution.
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_prompts, np.full(n_prompts, 1 / n_prompts), size=N_RESAMPLES)


def interval(values: Any) -> tuple[Any, Any]:  # [N_RESAMPLES, ..] -> two of [..]
    """Return the two ends of the values' middle 90 %, along the first axis.

    >>> [float(end) for end in interval(np.arange(101))]
    [5.0, 95.0]
    """
    tail = (100 - LEVEL) / 2  # percent of the values below the interval, and above it
    low, high = np.percentile(values, [tail, 100 - tail], axis=0)
    return low, high


# Every decoder of a race asks for the same few arguments.
@cache
def student_quantile(tail: float, n_degrees: int, n_steps: int = 4000) -> float:
    """Return the t that Student's t exceeds with probability `tail`, 0 < tail <= 1/2.

    >>> [round(student_quantile(tail, 5), 3) for tail in (0.05, 0.025)]  # as in printed tables
    [2.015, 2.571]
    """
    # (a) With t = sqrt(n_degrees) tan(angle), the density of the angle is proportional to
    # cos(angle) ** (n_degrees - 1), from -pi / 2 to pi / 2.
    # (b) The density is symmetric, so its half from 0 to pi / 2 is summed, in n_steps steps.
    ends = np.linspace(0, np.pi / 2, n_steps + 1)
    middles = (ends[:-1] + ends[1:]) / 2
    sums = np.append(0.0, np.cumsum(np.cos(middles) ** (n_degrees - 1)))
    # (c) Above the wanted angle lies `tail` of the whole, which is 2 tail of this half.
    angle = np.interp(1 - 2 * tail, sums / sums[-1], ends)
    return float(np.sqrt(n_degrees) * np.tan(angle))
