"""Enumerate a function of uniform numbers that can only be called with numbers.

exact/law.py gives a function intervals instead of numbers; a compiled kernel needs numbers. But
a test of guesses compares each uniform with thresholds, so its outcome is constant on boxes, and
a sum over boxes is its distribution. exact/oracle.py finds the boxes. It tries few points here,
because one call of a kernel may take 10 ms.
"""

import copy
from collections import defaultdict
from functools import cache

import numpy as np

from exact.oracle import find_boxes

GRID = 1 << 21  # uniforms are odd multiples of 1 / (2 GRID), which float32 can hold
SAMPLES = 3  # points at which a box is tested
RNG = np.random.default_rng(0)  # its copies draw them; exact/law.py forbids making a generator


def boxes(outcome, n):
    """Yield (volume, outcome, middle) of the boxes of [0, 1)^n with a constant outcome.

    ValueError if there are too many, because uniforms are not compared with thresholds.

    >>> [(round(volume, 3), here) for volume, here, _ in boxes(lambda u: u[0] < 0.3, 1)]
    [(0.3, True), (0.7, False)]
    """
    outcome = cache(outcome)
    numbers = defaultdict(lambda: len(numbers))  # {outcome: its number}

    def point(integers):
        return tuple(((integers + 0.5) / GRID).tolist())

    def answer(case, points):
        return np.array([[numbers[outcome(point(integers))]] for integers in points])

    rng = copy.deepcopy(RNG)  # so that every call tries the same points
    found = find_boxes(answer, 1, n, GRID - 1, rng, SAMPLES)
    if found is None:
        raise ValueError("need an outcome that is constant on boxes of uniforms")
    for _, low, high in zip(*found):
        middle = point((low + high) // 2)
        yield float(np.prod((high - low + 1) / GRID)), outcome(middle), middle


def widths(outcome):
    """Return {outcome: how much of [0, 1) has it}: the distribution of outcome(uniform).

    >>> {side: round(width, 3) for side, width in widths(lambda u: "ab"[u < 0.25]).items()}
    {'b': 0.25, 'a': 0.75}
    """
    found = defaultdict(float)
    for width, value, _ in boxes(lambda point: outcome(*point), 1):
        found[value] += width
    return dict(found)


def race(winner, n):
    """Return the distribution of argmax(weights / E) for independent standard exponentials E.

    It is weights / sum. `winner(1 / E)` is the argmax: with equal E, the largest weight. Slowed
    down by u, that token loses to token x, all others standing still, if u is below the
    quotient of their weights. So the width on which x wins is that quotient.

    >>> weights = np.array([0.1, 0.4, 0.0])
    >>> race(lambda speeds: int(np.argmax(weights * speeds)), 3).round(6).tolist()
    [0.2, 0.8, 0.0]
    """
    first = winner((1.0,) * n)
    weights = np.eye(n)[first]
    for token in {*range(n)} - {first}:
        def faster(u, token=token):
            speeds = np.zeros(n)
            speeds[token] = 1
            speeds[first] = u
            return winner(tuple(speeds.tolist()))

        weights[token] = widths(faster).get(token, 0)
    return weights / weights.sum()
