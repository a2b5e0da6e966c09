"""Enumerate a function of uniform numbers that can only be called with numbers.

exact/law.py gives a function intervals instead of numbers; a compiled kernel needs numbers. But
a test of guesses compares each uniform with thresholds, so its outcome is constant on boxes.
Each axis is cut where the outcome changes, and one point of every box is tried: the sum over
boxes is the distribution. (exact/oracle.py does this in large batches. Here a call may take
10 ms, so a further uniform is looked at only where the outcome so far depends on it.)
"""

from collections import defaultdict
from functools import cache
from itertools import count, pairwise
from math import ceil

import numpy as np

CUT = 2.0**-21  # how exactly a cut is found; kernels compute in float32
PROBES = np.linspace(1e-6, 1 - 1e-6, 5).tolist()  # points of an axis that are compared first


def cuts(outcome, low, high, width=1 / 256):
    """Yield the numbers between low and high at which the outcome changes.

    Halve to `width`, then try the simplest fraction, because most cuts are one; then halve to
    CUT.
    """
    ends = outcome(low), outcome(high)
    if ends[0] == ends[1]:
        return
    if high - low < width:
        cut = simplest_fraction(low, high)
        if high - low < CUT or (outcome(cut - CUT), outcome(cut + CUT)) == ends:
            yield cut
            return
        width = CUT
    middle = (low + high) / 2
    yield from cuts(outcome, low, middle, width)
    yield from cuts(outcome, middle, high, width)


def simplest_fraction(low, high):
    """Return the fraction with the smallest denominator between low and high.

    >>> simplest_fraction(0.32, 0.34)
    0.3333333333333333
    """
    return next(n / d for d in count(1) if low * d < (n := ceil(low * d)) < high * d)


def pieces(outcome):
    """Return the (low, high) of the pieces of [0, 1) on which the outcome is constant.

    >>> list(pieces(lambda u: u < 0.3))
    [(0, 0.3), (0.3, 1)]
    """
    outcome = cache(outcome)
    edges = [cut for pair in pairwise(PROBES) for cut in cuts(outcome, *pair)]
    return pairwise([0, *edges, 1])


def widths(outcome):
    """Return {outcome: how much of [0, 1) has it}: the distribution of outcome(uniform).

    >>> widths(lambda u: "ab"[u < 0.25])
    {'b': 0.25, 'a': 0.75}
    """
    found = defaultdict(float)
    for low, high in pieces(outcome):
        found[outcome((low + high) / 2)] += high - low
    return dict(found)


def boxes(outcome, n, middle=(), other=()):
    """Yield (volume, middle) of the boxes of [0, 1)^n on which the outcome is constant.

    Two settings of the later uniforms, all small and all large, show where one uniform matters.
    If it never does, it is one piece: little is run after a rejection. ValueError if a second
    point of a box has a different outcome.
    """
    if len(middle) == n:
        if outcome(middle) != outcome(other):
            raise ValueError("need an outcome that is constant on boxes of uniforms, got "
                             f"{outcome(middle)} at {middle} and {outcome(other)} at {other}")
        yield 1.0, middle
        return
    n_later = n - len(middle) - 1
    later = {(PROBES[0],) * n_later, (PROBES[-1],) * n_later}
    for low, high in pieces(lambda u: [outcome((*middle, u, *rest)) for rest in later]):
        u, v = (low + high) / 2, low + 0.9 * (high - low)
        for volume, point in boxes(outcome, n, (*middle, u), (*other, v)):
            yield (high - low) * volume, point


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
            speeds[[token, first]] = 1, u
            return winner(tuple(speeds.tolist()))

        weights[token] = widths(faster).get(token, 0)
    return weights / weights.sum()
