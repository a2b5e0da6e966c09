"""Compute standard errors, bootstrap intervals, and how surprising a frequency is.

The bootstrap (Efron 1979) draws as many prompts as there are, with replacement, many times. A
figure is computed from each resample, and its interval holds the middle 90 % of the results.
Guesses of one text depend on each other, so whole prompts are drawn, not guesses.

Student's distribution (1908) with n - 1 degrees of freedom says how far a mean of n values is
from the truth, in units of a standard error that is estimated from the same n values.

Let p be the probability of an event. Its frequency in n independent draws reaches a value f above
p with a probability of at most exp(-n KL(f, p)), and likewise a value f below p. Hoeffding (1963)
Theorem 1. So among `n_events` frequencies, each too high or too low, none has n KL(f, p) >
log(2 n_events / false_alarm), except with the probability `false_alarm`.
"""

from collections.abc import Callable
from functools import cache
from math import log
from typing import Any

import numpy as np

LEVEL = 90  # percent of the resamples that an interval holds
N_RESAMPLES = 1000

# ---- means

def standard_error(values: Any, texts: Any) -> float:
    """Return the standard error of a mean over rounds; only different texts are independent.

    >>> standard_error([1, 3, 1, 3], [0, 1, 2, 3])
    0.5
    >>> standard_error([1, 1, 3, 3], [0, 0, 1, 1])  # two texts of two equal rounds
    0.7071067811865476
    """
    differences = np.asarray(values) - np.mean(values)
    sums = np.bincount(texts, differences)  # of each text
    return float(np.sqrt((sums**2).sum()) / len(values))


def means(rows: list[dict], texts: Any) -> dict[str, dict[str, float]]:
    """Return {name: mean and standard error, also of the difference to the first name}."""
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0]}
    first = next(iter(columns.values()))
    return {name: {"mean": float(column.mean()), "error": standard_error(column, texts),
                   "more": float((column - first).mean()),
                   "more_error": standard_error(column - first, texts)}
            for name, column in columns.items()}


# ---- intervals

def resamples(n_prompts: int, seed: int = 0) -> np.ndarray:  # -> [N_RESAMPLES, n_prompts]
    """Return how often each prompt is in each resample.

    >>> bool((resamples(6).sum(axis=1) == 6).all())
    True
    """
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


@cache  # asked for the same few arguments by every decoder of a race
def student_quantile(tail: float, n_degrees: int, n_steps: int = 4000) -> float:
    """Return the t that Student's t exceeds with probability `tail`, 0 < tail <= 1/2.

    >>> [round(student_quantile(tail, 5), 3) for tail in (0.05, 0.025)]  # as in printed tables
    [2.015, 2.571]
    """
    # With t = sqrt(n_degrees) tan(angle), the density of the angle is proportional to
    # cos(angle) ** (n_degrees - 1), from -pi / 2 to pi / 2. One half of it is summed here.
    ends = np.linspace(0, np.pi / 2, n_steps + 1)
    middles = (ends[:-1] + ends[1:]) / 2
    sums = np.append(0.0, np.cumsum(np.cos(middles) ** (n_degrees - 1)))
    angle = np.interp(1 - 2 * tail, sums / sums[-1], ends)
    return float(np.sqrt(n_degrees) * np.tan(angle))


# ---- frequencies

def coin_divergence(f: Any, p: Any) -> Any:
    """Return KL(f, p) of coins: infinite if p excludes an outcome that f has.

    >>> [float(coin_divergence(f, 0.5).round(4)) for f in (0.5, 0.6, 1.0)]
    [0.0, 0.0201, 0.6931]
    """
    f = np.asarray(f, dtype=float)
    p = np.asarray(p, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 log 0 is 0
        heads = np.where(f > 1e-12, f * np.log(f / p), 0)
        tails = np.where(f < 1 - 1e-12, (1 - f) * np.log((1 - f) / (1 - p)), 0)
    return heads + tails


def surprise_limit(n_events: int, false_alarm: float) -> float:
    """Return a limit: any event has a larger n KL(f, p) with probability `false_alarm` at most."""
    return log(2 * n_events / false_alarm)


def bisected(near: Any, far: Any, is_near: Callable, n_steps: int = 60) -> tuple[Any, Any]:
    """Return the two ends of the step, from near to far, at which `is_near(point)` turns false.

    >>> bisected(1.0, 2.0, lambda x: x * x < 2) == (2**0.5 - 2**-52, 2**0.5)
    True
    """
    for _ in range(n_steps):
        middle = (near + far) / 2
        still_near = is_near(middle)
        # [()]: a number for numbers, an array for arrays
        near = np.where(still_near, middle, near)[()]
        far = np.where(still_near, far, middle)[()]
    return near, far
