"""Enumerate a function of uniform numbers that can only be called with numbers.

exact/law.py gives a function intervals instead of numbers; a compiled kernel needs numbers. But
a test of guesses compares each uniform with thresholds, so its outcome is constant on boxes, and
a sum over boxes is its distribution. exact/oracle.py finds the boxes. It tries few points here,
because one call of a kernel may take 10 ms.

    cell     integers below GRID, one for each uniform
    point    the uniforms in the middle of a cell
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Any

import numpy as np

from exact.oracle import find_boxes

GRID = 1 << 21  # (i + 0.5) / GRID is an odd multiple of 1 / (2 GRID), which float32 can hold
SAMPLES = 3  # points at which a box is tested
RNG = np.random.default_rng(0)  # copies draw the points: exact/law.py forbids new generators

Point = tuple[float, ...]
Outcome = Callable[[Point], Hashable]


def middle_of(cell: np.ndarray) -> Point:
    """Return the point in the middle of a cell."""
    return tuple(((cell + 0.5) / GRID).tolist())


def boxes(outcome: Outcome, n: int) -> Iterator[tuple[float, Any, Point]]:
    """Yield (volume, outcome, middle) of the boxes of [0, 1)^n with a constant outcome.

    ValueError if there are too many, because uniforms are not compared with thresholds.

    >>> [(round(volume, 3), here) for volume, here, _ in boxes(lambda u: u[0] < 0.3, 1)]
    [(0.3, True), (0.7, False)]
    """
    outcome = cache(outcome)
    numbers: dict[Hashable, int] = {}  # {outcome: its number}

    def numbers_at(case, cells):  # [B, n] -> [B, 1]
        """Return the numbers of the outcomes in these cells: find_boxes compares numbers."""
        found = [outcome(middle_of(cell)) for cell in cells]
        # a new outcome gets the next number
        return np.array([[numbers.setdefault(each, len(numbers))] for each in found])

    rng = copy.deepcopy(RNG)  # so that every call tries the same points
    found = find_boxes(numbers_at, 1, n, GRID - 1, rng, SAMPLES)
    if found is None:
        raise ValueError("need an outcome that is constant on boxes of uniforms")
    _, lows, highs = found
    for low, high in zip(lows, highs):
        middle = middle_of((low + high) // 2)
        # low and high are the first and the last cell: high - low + 1 cells on each axis
        yield float(np.prod((high - low + 1) / GRID)), outcome(middle), middle


def widths(outcome: Callable[[float], Hashable]) -> dict[Any, float]:
    """Return {outcome: how much of [0, 1) has it}: the distribution of outcome(uniform).

    >>> {side: round(width, 3) for side, width in widths(lambda u: "ab"[u < 0.25]).items()}
    {'b': 0.25, 'a': 0.75}
    """
    total: dict[Any, float] = defaultdict(float)
    for width, value, _ in boxes(lambda point: outcome(*point), 1):
        total[value] += width
    return dict(total)


def race_distribution(winner: Callable[[Point], int], n: int) -> np.ndarray:
    """Return the distribution of argmax(weights / E) for independent standard exponentials E.

    The distribution is weights / sum. `winner(speeds)` is argmax(weights * speeds), the speeds are
    1 / E, and with equal speeds the token with the largest weight is first. Give this first token
    speed u, one other token speed 1, and all others speed 0: the other token wins if u is below
    its weight / the first token's weight. So the width on which it wins is this quotient.

    >>> weights = np.array([0.1, 0.4, 0.0])
    >>> race_distribution(lambda speeds: int(np.argmax(weights * speeds)), 3).round(6).tolist()
    [0.2, 0.8, 0.0]
    """
    first = winner((1.0,) * n)
    weights = np.eye(n)[first]  # relative to the first token's weight
    for token in {*range(n)} - {first}:
        def winner_of_two(u, token=token):
            speeds = np.zeros(n)
            speeds[token] = 1
            speeds[first] = u
            return winner(tuple(speeds.tolist()))

        weights[token] = widths(winner_of_two).get(token, 0)
    return weights / weights.sum()
