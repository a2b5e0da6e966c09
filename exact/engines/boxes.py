"""Enumerate a function of uniform numbers that can only be called with numbers.

exact/law.py calls a function with intervals instead of numbers, but a compiled kernel needs
numbers. A test of guesses compares each uniform with thresholds. So its outcome is constant on
boxes, for example on u_0 < 0.3 and 0.5 <= u_1 < 1, and the probability of an outcome is the
volume of its boxes. `Search` of exact/oracle.py finds the boxes. It tries few points here,
because one call of a kernel may take 10 ms.

    cell       an integer i below GRID for each uniform: from i / GRID to (i + 1) / GRID
    point      the middle of a cell: the uniforms (i + 0.5) / GRID
    outcome    point -> what the function returns for these uniforms
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Any

import numpy as np

from exact.oracle import Search

GRID = 1 << 21  # float32 holds (i + 0.5) / GRID exactly: it has 24 bits, and 22 are needed
SAMPLES = 12  # points of a box at which the outcome must be equal
# each call of `boxes` copies this generator: exact/law.py forbids new generators
RNG = np.random.default_rng(0)

Point = tuple[float, ...]
Outcome = Callable[[Point], Hashable]


def middle_of(cell: np.ndarray) -> Point:
    """Return the point in the middle of a cell."""
    return tuple(((cell + 0.5) / GRID).tolist())


def boxes(outcome: Outcome, n: int) -> Iterator[tuple[float, Any, Point]]:
    """Yield (volume, outcome, middle) of boxes that fill [0, 1)^n, each with one outcome.

    ValueError if there are too many boxes, because the function does more than compare uniforms
    with thresholds.

    >>> [(round(volume, 3), here) for volume, here, _ in boxes(lambda u: u[0] < 0.3, 1)]
    [(0.3, True), (0.7, False)]
    """
    outcome_at = cache(outcome)
    numbers: dict[Hashable, int] = {}  # {outcome: its number}

    # Search compares integers, so every outcome gets a number: 0, 1, .. in the order found.
    def numbers_at(case, cells):  # [B, n] -> [B, 1]
        outcomes = [outcome_at(middle_of(cell)) for cell in cells]
        return np.array([[numbers.setdefault(each, len(numbers))] for each in outcomes])

    rng = copy.deepcopy(RNG)  # so that every call tries the same points
    search = Search(numbers_at, rng, SAMPLES)
    # there is 1 case, and the cells of a uniform are 0 .. GRID - 1
    found = search.find(search.cubes(1, n, GRID - 1))
    if found is None:
        raise ValueError("need an outcome that is constant on boxes of uniforms")
    for low, high in zip(found.low, found.high):
        # `low` and `high` are the first and the last cell of the box, [n]
        sides = (high - low + 1) / GRID
        middle = middle_of((low + high) // 2)
        yield float(np.prod(sides)), outcome_at(middle), middle


def widths(outcome: Callable[[float], Hashable]) -> dict[Any, float]:
    """Return the distribution of outcome(u) for one uniform u: {outcome: length of its part}.

    >>> {side: round(width, 3) for side, width in widths(lambda u: "ab"[u < 0.25]).items()}
    {'b': 0.25, 'a': 0.75}
    """
    total: dict[Any, float] = defaultdict(float)
    # a point of one uniform is a tuple of one number
    for width, value, _ in boxes(lambda point: outcome(*point), 1):
        total[value] += width
    return dict(total)


def race_distribution(winner: Callable[[Point], int], n: int) -> np.ndarray:
    """Return the distribution of argmax(weights / E) for independent standard exponentials E.

    This distribution is weights / sum(weights). The weights are inside a kernel, which can only
    be asked for the winner at given speeds 1 / E: `winner(speeds)` is argmax(weights * speeds).

    1. At equal speeds the winner is the token with the largest weight, `first`.
    2. Give `first` the speed u, one other token the speed 1, and all other tokens the speed 0.
       The other token wins if u weights[first] < weights[other].
    3. So the other token wins for u from 0 to weights[other] / weights[first]. The length of
       this interval is the weight of the other token, relative to the weight of `first`.

    >>> weights = np.array([0.1, 0.4, 0.0])
    >>> race_distribution(lambda speeds: int(np.argmax(weights * speeds)), 3).round(6).tolist()
    [0.2, 0.8, 0.0]
    """
    first = winner((1.0,) * n)
    weights = np.ones(n)  # relative to weights[first], which is 1
    for other in {*range(n)} - {first}:
        def winner_of_two(u, other=other):
            speeds = np.zeros(n)
            speeds[other] = 1
            speeds[first] = u
            return winner(tuple(speeds.tolist()))

        # 0 if the other token never wins, because its weight is 0
        weights[other] = widths(winner_of_two).get(other, 0)
    return weights / weights.sum()
