# SPDX-License-Identifier: MIT. Copyright (c) 2026 The authors of this repository.
# exact/oracle.py of speculative-decoding-numpy 1.0
"""Check whether an acceptance rule of speculative decoding is exact.

This file needs only NumPy and can be copied.

    report = check(verify)      verify(guesses, p_draft, p_target, uniforms) -> tokens
    assert report.exact, report

A call has B rounds, one per row of its arrays, with K guesses each. Tokens are 0 .. V - 1.

    guesses    [B, K]            tokens, drawn from p_draft
    p_draft    [B, K, V]         row t: the distribution that guess t was drawn from
    p_target   [B, K + 1, V]     row t: the target's distribution at that position
    uniforms   [B, K + 1]        independent uniform numbers in [0, 1)
    tokens     [B, K + 1]        the accepted guesses and one more token, then -1

The arrays are NumPy's, or what `asarray=` makes of them (torch.as_tensor, cupy.asarray, ..).
With `padding=True` some rounds have fewer guesses. The missing guesses are then -1. The rows of
p_draft that belong to them, and all but the first of p_target, are other distributions, because
an engine that reuses its buffers leaves old rows there.

If your verifier has different arguments, write a lambda. In these lambdas g is guesses, q is
p_draft, p is p_target and u is uniforms:

    # the verifier has a second array of uniforms, for the last token
    check(lambda g, q, p, u: verify(g, q, p, u[:, :-1], u[:, -1]))
    # the verifier has no p_draft, because it assumes one-hot rows
    check(lambda g, q, p, u: verify(g, p, u))
    # the verifier is given a bonus token, which your function `draw` makes from the last row
    # and u[:, -1]. u[:, -1] may decide a residual token too: a round has only one of both
    check(lambda g, q, p, u: verify(g, q, p[:, :-1], u, draw(p[:, -1], u[:, -1])))
    # the verifier returns (tokens, n_accepted), of which your function `cut` makes tokens
    check(lambda g, q, p, u: cut(*verify(g, q, p, u)))
    # the verifier relies on rows of zeros in p_draft for missing guesses
    check(lambda g, q, p, u: verify(g, q * (g >= 0)[..., None], p, u))

How it works
 1. A toy is a small draft and a small target. The verifier is called with every path of K
    guesses that the draft of a toy in TOYS can write.
 2. The answer to one path changes only where a uniform crosses a threshold. Bisection finds the
    thresholds. They cut the cube of all uniforms into boxes on which the answer is constant.
    Random points are tried in all boxes. A point with a different answer cuts its box.
 3. The volume of a box is the probability that a round with this path is in the box.
 4. A round may write fewer than K + 1 tokens. Draws from the target's rows complete such a
    text. Then the distribution of K + 1 tokens is compared with the target's.
 5. A verdict needs new random points, which all agree with their boxes.

Uniforms are multiples of 2^-24 (float32) or 2^-52 (float64), so the sides of boxes are exact.

report.exact    True     the target's distribution on all toys, up to rounding
                False    a different distribution
                None     not known: no fault in a sample, a distance that is too small to be
                         confirmed, or "not checked" with a reason

    check_by_sampling(verify)                   for verifiers that draw their own random numbers
    python -m exact.oracle FILE.py              a copy of this file: python oracle.py FILE.py
    python oracle.py --command ./verifier ..    for a program in any language
    check(Program(["./verifier"]))              likewise, in Python

A program is started once. It reads lines of numbers (as 0.25 or 1e-05), and answers each line:

    line      K V guesses p_draft p_target uniforms: the arrays of one round, row after row,
              not rounded
    answer    K + 1 whole numbers: the accepted guesses and one more token, then -1

A program must flush its output after each line. If an answer stays in a buffer, the program is
refused after --seconds. With --sampling the lines have no uniforms. docs/oracle/ has programs
in C, Rust and Go.
"""

import argparse
import contextlib
import inspect
import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from functools import partial
from itertools import product
from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np

ORIGIN = "exact/oracle.py of speculative-decoding-numpy 1.0"
# {dtype: (bits of a uniform, largest distance from the target that is rounding for few tokens)}
DTYPES = {"float32": (24, 1e-6), "float64": (52, 1e-12)}
CHUNK = 1 << 16  # rows per call of the verifier
MOST_PATHS = 1000  # paths of guesses per toy

# Limits of the search for boxes. If more are needed, the verifier is sampled instead.
MOST_BOXES = 1 << 17  # boxes of all cases; rules with thresholds need 50,971 for K = 6
PER_CASE = 64  # boxes of a case in the mean for V = 3; rules with thresholds need 13
MOST_TRIES = 10  # times that random points are tried in all boxes

SAMPLES = 1 << 5  # points that are tried in a box when it is cut out
POINTS = CHUNK  # points that must agree with all boxes of an exact verifier
MOST_POINTS = 1 << 19  # points that may be tried to confirm that a verifier is not exact
FALSE_ALARM = 1e-9  # the largest probability that they confirm it although it is exact
ROUNDS = 2_000_000  # sampled rounds
ROUNDS_IF_SLOW = 200_000  # sampled rounds of a program, or for more than LARGE tokens
LARGE = 32

# Rows are called a second time, because an answer must not depend on the rest of the batch.
REPEATED = 1 << 10  # rows before the search; the random points are called again after it
ALONE = 16  # rows in batches of one row; also in batches of two rows, of four and of eight

# Limits of a program
LINES = 1 << 10  # lines that are given at a time
SECONDS = 10.0  # time for the start and LINES lines
LONGEST = 1 << 12  # characters of an answer that are read at a time

# {V: toys}. A toy is (draft, target). Each model has V + 1 rows of whole numbers, which are
# divided by their sum: row 0 follows no token, row 1 follows token 0, and so on. Each row of a
# target has a probability that no half-precision number equals, unless the row is one-hot.
#  - Toy 0 has a token that only the target can write, and an equal row of both models.
#  - Toy 1 has a token that only the draft can write.
#  - Toy 2 has the sum 9973, so no decimal number of few digits equals a probability. It has
#    probabilities above .99 and below .001, ratios above .99 and below .001, nearly equal rows,
#    a residual with little mass, and a residual with a small entry.
#  - Toy 3 has a ratio above 20, and a greedy target after each token. Toys 0, 1 and 3 have
#    one-hot rows of the draft.
TOYS = {
    3: (([[440, 200, 360], [0, 0, 1], [700, 300, 0], [250, 311, 439]],
         [[250, 330, 420], [63, 437, 500], [310, 250, 440], [250, 311, 439]]),
        ([[230, 500, 270], [0, 1, 0], [300, 500, 200], [600, 370, 30]],
         [[410, 300, 290], [954, 2, 44], [370, 0, 630], [1, 0, 0]]),
        ([[6993, 1971, 1009], [9932, 34, 7], [8, 5995, 3970], [2118, 4334, 3521]],
         [[3113, 5829, 1031], [9925, 41, 7], [3, 3, 9967], [1453, 5005, 3515]]),
        ([[10, 690, 300], [190, 380, 430], [0, 1, 0], [1, 0, 0]],
         [[390, 300, 310], [0, 0, 1], [0, 1, 0], [0, 1, 0]])),
    4: (([[420, 130, 260, 190], [0, 0, 1, 0], [500, 170, 0, 330], [250, 311, 170, 269],
          [120, 430, 260, 190]],
         [[190, 290, 230, 290], [63, 290, 437, 210], [210, 250, 330, 210], [250, 311, 170, 269],
          [340, 90, 330, 240]]),
        ([[150, 370, 230, 250], [0, 1, 0, 0], [270, 410, 120, 200], [530, 340, 30, 100],
          [0, 0, 0, 1]],
         [[330, 210, 310, 150], [951, 1, 31, 17], [330, 0, 450, 220], [1, 0, 0, 0],
          [300, 170, 390, 140]]),
        ([[6993, 1471, 1009, 500], [9932, 24, 10, 7], [8, 5995, 3470, 500],
          [2118, 4334, 2521, 1000], [3001, 2999, 1987, 1986]],
         [[3113, 5329, 1031, 500], [9925, 31, 9, 8], [3, 3, 9467, 500],
          [1453, 5005, 2515, 1000], [1999, 3989, 1990, 1995]]),
        ([[10, 490, 200, 300], [190, 280, 430, 100], [0, 1, 0, 0], [1, 0, 0, 0],
          [160, 240, 470, 130]],
         [[390, 200, 210, 200], [0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])),
}

# {wrong rule: its figures for V = K = 3}: the total variation from the target on each toy of
# TOYS, and their mean tokens per round
KNOWN = {
    "greedy-match: match with the target's best token, at any temperature":
        (0.58, 0.59, 0.415522, 0.61, 1.285554),
    "half-threshold: one-hot rule; argmax guesses, accepted from p_target = .5 on":
        (0.229218, 0.069394, 0.156232, 0.164647, 2.393225),
    "match-or-ratio: match or the ratio rule, then the residual":
        (0.164274, 0.060662, 0.122651, 0.117, 2.733398),
    "hard-ratio-draw: accept if p_target >= p_draft, then a draw from the target":
        (0.14, 0.15, 0.098867, 0.2039, 1.63187),
    "over-best-draw: accept with p_target / its maximum, then a draw from the target":
        (0.298586, 0.130266, 0.192045, 0.297, 2.597793),
    "half-best-draw: accept if p_target >= half its maximum, then a draw from the target":
        (0.496588, 0.2, 0.423284, 0.39, 3.322379),
    "first-untested: the first guess is not tested": (0.19, 0.2, 0.38905, 0.39, 3.201483),
    "last-uncapped: block verification, the last product of ratios not capped":
        (0.053675, 0.000616, 0.005912, 0.0, 2.483272),
    "capped-at-maxima: block verification, the products of ratios capped only at a new maximum":
        (0.395289, 0.62618, 0.514999, 0.6957, 3.330473),
    "over-best: accept with p_target / its maximum, then the residual":
        (0.251219, 0.092331, 0.08809, 0.230769, 2.597793),
    "hard-ratio: accept if p_target >= p_draft": (0.35029, 0.300264, 0.36166, 0.3, 1.63187),
    "always-rejected: one-hot rule; argmax guesses, always rejected":
        (0.068428, 0.068966, 0.128457, 0.164647, 1.0),
    "epsilon: ratio rule, .01 added to p_draft and to the residual":
        (0.00832, 0.018366, 0.011243, 0.014151, 2.410365),
    "drafts-rest: traversal, divided by what the draft has left":
        (0.248174, 0.051694, 0.008143, 2.2e-05, 2.529182),
    "next-rows: ratio rule with the target's next row":
        (0.245879, 0.3, 0.585344, 0.69, 2.444635),
    "target-draw: ratio rule, then a draw from the target":
        (0.184879, 0.098263, 0.159453, 0.2279, 2.441574),
    "without-guess: ratio rule, then the target without the guess":
        (0.075614, 0.097364, 0.056348, 0.162714, 2.441574),
    "softmax-residual: ratio rule, then the softmax of max(p_target - p_draft, 0)":
        (0.17357, 0.313154, 0.284019, 0.244329, 2.441574),
    "next-row-draw: ratio rule, then a draw from the next row":
        (0.192633, 0.357672, 0.395945, 0.6981, 2.441574),
    "argmax-bonus: ratio rule; the bonus token is the target's best token":
        (0.244795, 0.001849, 0.030837, 0.0, 2.441574),
    "match-redraw: match, then a fresh draw": (0.060032, 0.053396, 0.112231, 0.11583, 1.620961),
    "last-row-bonus: bonus token from the last guess's row":
        (0.045215, 0.00209, 0.059311, 0.0, 2.441574),
    "one-uniform-twice: one uniform to judge a guess and to replace it":
        (0.099124, 0.030008, 0.00177, 0.007692, 2.441574),
    "one-uniform: one uniform for all guesses of a round":
        (0.1316, 0.00012, 0.000528, 0.0, 2.498441),
    "drop-ratio: drop a low-confidence guess; drawn, ratio rule":
        (0.14, 0.15, 0.094917, 0.2039, 1.640451),
    "plan-ratio: the number of guesses that pays best; ratio rule":
        (0.18495, 0.0, 0.0, 0.0, 2.251389),
}
# figures that differ by less are called equal
TOLERANCE = 3e-6

NOT_KNOWN = ("not known: the distance is so small that it may come from intervals of uniforms "
             "that no point has met")
ROUNDS_ALONE = ("rounds are judged one by one: random numbers that repeat in later rounds or "
                "requests are not seen")


class Refused(Exception):
    """State in one sentence why a verifier cannot be checked."""


class Report(NamedTuple):
    """Hold the verdict; print it to read it."""

    exact: bool | None  # None: not known
    distance: float  # total variation, on the toy where it is largest
    text: str
    first_wrong_token: tuple | None = None  # (its position, the tokens before it, the token)
    rule: str | None = None  # the wrong rule in KNOWN with the same figures
    tokens_per_round: float | None = None  # mean over the toys
    is_checked: bool = True  # False if the verifier was refused

    def __str__(self):
        return self.text


# ---- what a verifier is called with

def rounding_of(dtype, V):
    """Return the largest distance from the target that is rounding."""
    bits, of_few_tokens = DTYPES[dtype]
    # each of a draw's V thresholds is rounded to a uniform, and is a rounded sum
    return max(of_few_tokens, V / 2**bits)


def whole_number(name, value, least):
    """Return the value as an integer; raise ValueError unless it is one, and large enough."""
    # Python's integers and NumPy's are Integral
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"need a whole number {name} >= {least}, got {value!r}")
    return int(value)


def toys_for(V):
    """Return the drafts and the targets of toys as arrays. [n_toys, V + 1, V] each

    A verifier may treat the first row of a round unlike later rows. So each toy is used V + 1
    times, and each time a different one of its rows is row 0. The first toys are those of TOYS.
    """
    if V not in TOYS:
        raise ValueError(f"need V in {[*TOYS]} (or, in Python, your own rows=), got {V}")
    toys = np.array(TOYS[V])  # [n_toys, 2, V + 1, V]; the axis of 2 is draft, target
    toys = toys / toys.sum(axis=-1, keepdims=True)
    # row 0 is replaced by row `first`, and the rows after tokens stay
    toys = np.concatenate([toys[:, :, [first, *range(1, V + 1)]] for first in range(V + 1)])
    return toys[:, 0], toys[:, 1]


def toy_of_rows(rows):
    """Return the one toy of `rows`, (draft, target), in the form of toys_for."""
    try:
        models = np.array([np.asarray(model, dtype=float) for model in rows])  # [2, V + 1, V]
    except (TypeError, ValueError):
        raise ValueError("need rows=(draft, target), [V + 1, V] each, of numbers") from None
    if (models.ndim != 3 or len(models) != 2 or models.shape[1] != models.shape[2] + 1
            or models.shape[2] < 2):
        raise ValueError("need rows=(draft, target) for V >= 2 tokens, [V + 1, V] each, "
                         f"got an array of shape {[*models.shape]}")
    sums = models.sum(axis=-1)
    if (models < 0).any() or not np.allclose(sums, 1, rtol=0, atol=1e-9):
        raise ValueError("need rows= of probabilities that sum to 1, "
                         f"got a row with sum {sums.ravel().tolist()}")
    # sums are accepted to within 1e-9, but a verdict in float64 needs 1e-12
    models /= sums[..., None]
    return models[:1], models[1:]  # slices keep an axis for their one toy: [1, V + 1, V]


def paths_of_guesses(K, V, padding):
    """Return all paths of K guesses; with padding, of 0 .. K guesses, filled up with -1. [n, K]

    For K = 2 and V = 2 the paths with padding are [-1, -1], [0, -1], [0, 0], [0, 1], [1, -1],
    [1, 0] and [1, 1].
    """
    least = -1 if padding else 0
    paths = np.array([*product(range(least, V), repeat=K)])
    is_guess = paths >= 0
    # no guess follows a missing one
    return paths[(is_guess[:, 1:] <= is_guess[:, :-1]).all(axis=1)]


class Cases:
    """Hold all inputs but the uniforms. A case is a toy and a path of guesses.

    toy         [n_cases], the number of the case's toy
    guesses     [n_cases, K]
    weight      [n_cases], the probability of the guesses in the toy
    p_draft     [n_cases, K, V]
    p_target    [n_cases, K + 1, V]
    """

    def __init__(self, K, V, dtype, asarray, padding, rows, tolerance):
        """Hold the cases of TOYS, or of own `rows`."""
        if dtype not in DTYPES:
            raise ValueError(f"need dtype of {[*DTYPES]}, got {dtype!r}")
        if not callable(asarray):
            raise ValueError(f"need a function asarray, got {asarray!r}")
        if tolerance is not None and not 0 < tolerance < 1:
            raise ValueError(f"need 0 < tolerance < 1, got {tolerance!r}")
        self.K = whole_number("K", K, 1)
        if rows is None:
            draft, target = toys_for(whole_number("V", V, 2))
        else:
            draft, target = toy_of_rows(rows)
        self.target = target  # [n_toys, V + 1, V]
        self.n_toys, _, self.V = target.shape
        # 2^10 is too many already, so no larger power is computed
        if self.V ** min(self.K, 10) > MOST_PATHS:
            raise ValueError(f"need V ** K <= {MOST_PATHS:,}, because every path of guesses is "
                             f"tried, got {self.V} ** {self.K}")
        self.dtype = dtype
        self.grid = 2 ** DTYPES[dtype][0]  # the uniforms are multiples of 1 / grid
        self.tolerance = rounding_of(dtype, self.V) if tolerance is None else tolerance
        self.within = "" if tolerance is None else f" to within {tolerance:g}"
        self.asarray = asarray
        self.padding = padding
        self.has_known_figures = rows is None and (K, V) == (3, 3) and not padding
        self.make_cases(draft)

    def make_cases(self, draft):
        """Set the arrays of all cases, given the drafts of the toys. [n_toys, V + 1, V]"""
        paths = paths_of_guesses(self.K, self.V, self.padding)  # [n, K]
        is_guess = paths >= 0
        # the token before each position: no token (-1) before position 0, then the guesses
        before = np.pad(paths, ((0, 0), (1, 0)), constant_values=-1)  # [n, K + 1]
        row = 1 + before  # row 0 of a toy follows no token, row 1 + i follows token i
        row_of_guess = row[:, :-1]  # [n, K]: position K has no guess
        p_draft = draft[:, row_of_guess]  # [n_toys, n, K, V]
        p_target = self.target[:, row]  # [n_toys, n, K + 1, V]

        # a path's weight is the product of its guesses' probabilities; padding, which reads
        # token 0 for -1, has the factor 1
        tokens = np.maximum(paths, 0)[None, :, :, None]  # [1, n, K, 1]: for every toy
        factors = np.take_along_axis(p_draft, tokens, axis=-1)[..., 0]  # [n_toys, n, K]
        weight = np.where(is_guess, factors, 1).prod(axis=2)
        # with padding a path has one of K + 1 lengths, which share a toy's weight equally
        weight /= self.K + 1 if self.padding else 1

        # a case is a toy and a path that the toy's draft can write
        is_possible = weight > 0
        self.toy, path = np.nonzero(is_possible)
        self.guesses = paths[path]
        self.weight = weight[is_possible]
        self.p_draft = p_draft[is_possible].astype(self.dtype)
        self.p_target = p_target[is_possible].astype(self.dtype)

    def call(self, verify, case, uniforms):
        """Return the tokens that the verifier writes for these cases. [B, K + 1]"""
        if len(case) > CHUNK:
            parts = [slice(start, start + CHUNK) for start in range(0, len(case), CHUNK)]
            tokens = [self.call(verify, case[rows], uniforms[rows]) for rows in parts]
            return np.concatenate(tokens)
        guesses = self.guesses[case]
        uniforms = uniforms.astype(self.dtype)
        arrays = guesses, self.p_draft[case], self.p_target[case], uniforms.copy()
        result = verify(*map(self.asarray, arrays))
        tokens = array_of(result, len(case), self.K)
        # the verifier may have changed its arguments
        self.check_tokens(tokens, self.guesses[case], uniforms)
        return tokens

    def check_tokens(self, tokens, guesses, uniforms):
        """Raise Refused unless each row has 1 .. k + 1 tokens for k guesses, then -1."""
        k = (guesses >= 0).sum(axis=1)
        n_tokens = (tokens >= 0).sum(axis=1)
        is_wrong_number = (n_tokens < 1) | (n_tokens > k + 1)
        # right rows have their n_tokens tokens first: a position t is negative if t >= n_tokens
        must_be_negative = np.arange(self.K + 1) >= n_tokens[:, None]
        is_misplaced = (tokens < 0) != must_be_negative
        is_wrong = (tokens < -1) | (tokens >= self.V) | is_misplaced
        wrong_rows = np.flatnonzero(is_wrong.any(axis=1) | is_wrong_number)
        if len(wrong_rows) == 0:
            return
        row = wrong_rows[0]
        reason = (f"need 1 to {k[row] + 1} tokens of 0 .. {self.V - 1} for {k[row]} guesses, "
                  f"then -1, got {tokens[row].tolist()} for guesses {guesses[row].tolist()} "
                  f"and uniforms {uniforms[row].tolist()}")
        # the likeliest reason: a float32 verifier, for which such a uniform is 1
        has_one = (uniforms[row].astype(np.float32) == 1).any()
        if self.dtype == "float64" and has_one:
            reason += (" (so large that it is 1 in float32: such a verifier needs "
                       'dtype="float32", or --dtype float32)')
        raise Refused(reason)


def array_of(tokens, B, K):
    """Return tokens of any library as NumPy's; raise Refused unless they are [B, K + 1]."""
    for method in ("detach", "cpu", "get"):  # PyTorch has the first two, CuPy has `get`
        if hasattr(tokens, method) and not isinstance(tokens, dict):
            tokens = getattr(tokens, method)()
    try:
        tokens = np.asarray(tokens)
    except ValueError:
        raise Refused(f"need one array of tokens, got a {type(tokens).__name__}") from None
    if tokens.shape != (B, K + 1) or tokens.dtype.kind != "i":
        raise Refused(f"need signed integers of shape [B, K + 1] = {[B, K + 1]}, "
                      f"got {tokens.dtype} of shape {[*tokens.shape]}")
    return tokens.astype(np.int64)


# ---- boxes of uniforms with a constant answer
#
# A box is all points between its low corner and its high corner, which both belong to the box.
# Its axes are the uniforms of a round. A coordinate is a uniform as a whole number, from 0 to
# `top`.

class Boxes(NamedTuple):
    """Hold n boxes, each with the answer at its low corner."""

    case: np.ndarray  # [n]
    low: np.ndarray  # [n, n_axes]
    high: np.ndarray  # [n, n_axes]
    tokens: np.ndarray  # [n, ..]

    def only(self, index):
        """Return the boxes with these numbers."""
        return Boxes(*(array[index] for array in self))

    def without(self, index):
        """Return all other boxes."""
        return Boxes(*(np.delete(array, index, axis=0) for array in self))


def joined(*parts):
    """Return all boxes of several Boxes as one."""
    return Boxes(*map(np.concatenate, zip(*parts)))


def points_at_thresholds(boxes, box, rng):
    """Return a random point in each of the boxes with these numbers. [len(box), n_axes]

    An interval of uniforms may be too short to be met by chance. Its ends are often thresholds
    in other boxes too, so half of the coordinates are those of the corners of other boxes, if
    these are inside.
    """
    points = rng.integers(boxes.low[box], boxes.high[box], endpoint=True)
    for a in range(points.shape[1]):
        low = boxes.low[:, a]
        high = boxes.high[:, a]
        ends = np.concatenate([low[low > low.min()], high[high < high.max()]])
        if len(ends) == 0:
            continue
        other = rng.choice(ends, len(box))
        is_inside = (low[box] <= other) & (other <= high[box])
        is_chosen = rng.integers(2, size=len(box)) == 1
        points[:, a] = np.where(is_inside & is_chosen, other, points[:, a])
    return points


def contradictions(boxes, box, points, tokens):
    """Return the numbers of boxes with different answers, and the first point with one in each.

    box       [n], the number of each point's box
    tokens    [n, ..], the answers at the points
    """
    different = np.flatnonzero((tokens != boxes.tokens[box]).any(axis=1))
    wrong_boxes, first = np.unique(box[different], return_index=True)
    return wrong_boxes, points[different[first]]


class Search(NamedTuple):
    """Find the boxes on which answers are constant."""

    answer: Callable  # (case [n], points [n, n_axes]) -> tokens [n, ..]
    rng: np.random.Generator
    n_samples: int  # points that are tried in each box
    per_case: int = PER_CASE  # boxes of a case in the mean, at most

    def cubes(self, n_cases, n_axes, top):
        """Return one box for each case, with all its uniforms."""
        case = np.arange(n_cases)
        low = np.zeros((n_cases, n_axes), dtype=np.int64)
        return Boxes(case, low, np.full_like(low, top), self.answer(case, low))

    def find(self, boxes):
        """Return boxes, cut until their answers seem constant; None if there are too many.

        If a box is cut, all boxes are tried again, because points are tried at its corners.
        """
        most = min(MOST_BOXES, self.per_case * (1 + boxes.case.max()))
        n_before = 0
        while n_before < len(boxes.case):  # until no box is cut
            n_before = len(boxes.case)
            constant = []
            while len(boxes.case):  # those that are not known to be constant
                box = np.tile(np.arange(len(boxes.case)), self.n_samples)
                points = points_at_thresholds(boxes, box, self.rng)
                points[:len(boxes.case)] = boxes.high  # the first point of each box
                tokens = self.answer(boxes.case[box], points)
                cut, goals = contradictions(boxes, box, points, tokens)
                constant.append(boxes.without(cut))
                boxes = self.halves(boxes.only(cut), goals)
                if sum(len(each.case) for each in [*constant, boxes]) > most:
                    return None
            boxes = joined(*constant)
        return boxes

    def halves(self, boxes, goals):
        """Return each box cut in two, where the answer changes before the goal."""
        if len(goals) == 0:
            return boxes
        axis, coordinate = change_on_the_way(self.answer, boxes, goals)
        each = np.arange(len(axis))
        # the lower half ends just before the change, and the upper half begins at the change
        high = boxes.high.copy()
        high[each, axis] = coordinate - 1
        low = boxes.low.copy()
        low[each, axis] = coordinate
        tokens = self.answer(boxes.case, low)
        return joined(boxes._replace(high=high), boxes._replace(low=low, tokens=tokens))

    def tried(self, boxes, weight, n):
        """Return these boxes if n random points agree with them; otherwise cut them, or None.

        A point is in a box with a probability in proportion to the box's weight.
        """
        box = self.rng.choice(len(weight), n, p=weight / weight.sum())
        points = self.rng.integers(boxes.low[box], boxes.high[box], endpoint=True)
        case = boxes.case[box]
        tokens = self.answer(case, points)
        cut, goals = contradictions(boxes, box, points, tokens)
        if len(cut) == 0:
            call_again(self.answer, case, points, tokens, self.rng)
            return boxes
        return self.find(joined(boxes.without(cut), self.halves(boxes.only(cut), goals)))


def change_on_the_way(answer, boxes, goals):
    """Return for each box the axis on which its answer changes, and the coordinate there.

    goals    [n, n_axes], a point with a different answer in each box

    A walk leads from the low corner to the goal in steps of 1: first along axis 0, then along
    axis 1, and so on. From (0, 0) to (5, 7) it has 12 steps and comes by (5, 0).
    """
    ways = goals - boxes.low  # [n, n_axes], the steps along each axis
    earlier = ways.cumsum(axis=1) - ways  # the steps along all axes before it

    def point_after(n_steps):  # [n] -> [n, n_axes]
        return boxes.low + np.clip(n_steps[:, None] - earlier, 0, ways)

    def is_old(n_steps):
        """Return for each walk whether the answer after these steps is that of the corner."""
        return (answer(boxes.case, point_after(n_steps)) == boxes.tokens).all(axis=1)

    # bisection, in all walks at once: the answer is old after `below`, and not after `above`
    below = np.zeros(len(goals), dtype=np.int64)
    above = ways.sum(axis=1)
    while (above - below > 1).any():
        middle = (below + above) // 2
        is_old_there = is_old(middle)
        below = np.where(is_old_there, middle, below)
        above = np.where(is_old_there, above, middle)

    # both sides are called again, because the answers so far came in batches with other rows; a
    # walk without a step cannot change an answer that depends on its arguments alone
    wrong = np.flatnonzero((below >= above) | ~is_old(above - 1) | is_old(above))
    if len(wrong):
        raise depends(wrong[0], len(goals))
    axis = (point_after(above) != point_after(above - 1)).argmax(axis=1)
    return axis, point_after(above)[np.arange(len(axis)), axis]


def call_again(answer, case, points, tokens, rng):
    """Raise Refused unless the answers are the same in other batches.

    The rows are called in a random order and in batches of 1, 2, 4, 8, .. rows, because a fault
    may begin at a row of the batch or depend on its size. Small batches are repeated.
    """
    order = rng.permutation(len(case))
    sizes = [2**i for i in range(16) for _ in range(max(1, ALONE >> i))]
    for rows in filter(len, np.split(order, np.cumsum(sizes))):  # without empty batches
        again = answer(case[rows], points[rows])
        different = np.flatnonzero((again != tokens[rows]).any(axis=1))
        if len(different):
            row = different[0]
            # a verifier that draws inside does not repeat its answers to an equal call
            is_random = any((answer(case[rows], points[rows]) != again).any()
                            for _ in range(ALONE))
            place = place_in_call(rows[row], len(case))
            raise depends(row, len(rows), f"as {place}", is_random)


def place_in_call(row, n):
    """Return a row's place in words; n rows are called in parts of CHUNK rows."""
    start = row - row % CHUNK
    return f"row {row - start} of a call with B = {min(CHUNK, n - start):,}"


def depends(row, n, earlier="in an earlier call", is_random=False):
    """Return what to raise if one of n rows gets other tokens than earlier."""
    others = "other rows, on their number,"
    if is_random:
        others = "random numbers drawn inside (then use check_by_sampling, or --sampling),"
    return Refused(f"a row's tokens depend on more than its arguments: on {others} or on "
                   f"earlier calls; {place_in_call(row, n)} got other tokens than {earlier}")


# ---- the verdict

class Written(NamedTuple):
    """Hold n rounds of all cases: what the verifier wrote."""

    case: np.ndarray  # [n], the number of the round's case
    tokens: np.ndarray  # [n, K + 1]
    weight: np.ndarray  # [n], the probability of the round on its toy
    uniforms: np.ndarray | None  # [n, K + 1]; None if the verifier drew its own


def distributions(cases, written):
    """Return the distributions of K + 1 tokens that came, and those that should have come.

    [n_toys, V, .., V] each, with one axis for each token of a text. The target's rows complete
    a round that ends early.

    The texts grow from 0 to K + 1 tokens. Step m makes the texts of m tokens, from two sources:
    texts of m - 1 tokens, which the target's row extends, and rounds that wrote m tokens.
    """
    V = cases.V
    n_toys = cases.n_toys
    toy = cases.toy[written.case]
    n_tokens = (written.tokens >= 0).sum(axis=1)
    # m = 0: the only text is empty. No round writes it, and every text of the target begins
    # with it.
    came = np.zeros(n_toys)
    should = np.ones(n_toys)
    row_after = cases.target[:, 0]  # [n_toys, V]: the target's row after the empty text
    for m in range(1, cases.K + 2):
        # rounds that wrote fewer than m tokens: the target's row gives token number m
        came = came[..., None] * row_after
        should = should[..., None] * row_after
        is_whole = n_tokens == m
        texts = written.tokens[is_whole, :m]
        whole = np.zeros_like(came)
        np.add.at(whole, (toy[is_whole], *texts.T), written.weight[is_whole])
        came += whole
        # row 1 + token of a model follows this token; tokens before it do not matter
        any_tokens = [1] * (m - 1)
        row_after = cases.target[:, 1:].reshape(n_toys, *any_tokens, V, V)
    return came, should


def distances_of(came, should):
    """Return the total variation between the distributions of each toy. [n_toys]"""
    return abs(came - should).reshape(len(came), -1).sum(axis=1) / 2


def likeliest_round(cases, written, toy, start):
    """Return the number of this toy's likeliest round that begins with `start`, or None."""
    has_start = (written.tokens[:, : len(start)] == start).all(axis=1)
    weight = written.weight * has_start * (cases.toy[written.case] == toy)  # 0 of all others
    return weight.argmax() if weight.any() else None


def first_fault(cases, came, is_wrong, excess, toy, written):
    """Return (position, tokens before, token) of a token at fault, and lines on it.

    A start is the first tokens of a text. The token is the last token of the wrong start whose
    probability exceeds the target's by the most, if one exceeds it.
    """
    # one axis per token of a start, so an index is a start
    index = np.unravel_index(np.where(is_wrong, excess, -1).argmax(), came.shape)
    start = [int(token) for token in index]
    *before, token = start
    position = len(before)
    often = "often" if excess[index] > 0 else "rarely"
    lines = [f"position {position}, after {before}: token {token} occurs too {often}"]

    # came[before] has an entry for each next token: the probability of `before` and this token.
    # row 1 + i of a target follows token i
    rows = {"returned": came[tuple(before)],
            "p_target": cases.target[toy, 1 + before[-1] if before else 0]}
    i = likeliest_round(cases, written, toy, start)
    if i is not None:
        case = written.case[i]
        guesses = cases.guesses[case]
        if (guesses >= 0).sum() > position:
            rows["p_draft"] = cases.p_draft[case, position]
    # a row divided by its sum is the distribution of the token after `before`
    for name, row in rows.items():
        lines.append(f"  {name:10}{np.round(np.float64(row) / row.sum(), 6).tolist()}")

    if i is not None:
        numbers = ""
        if written.uniforms is not None:
            numbers = f" and uniforms {np.round(written.uniforms[i], 4).tolist()}"
        lines.append(f"example: guesses {guesses.tolist()}{numbers} "
                     f"gave {written.tokens[i].tolist()}")
    return (position, before, token), lines


def first_different_starts(cases, came, should, differ):
    """Return how the shortest starts that differ came, which differ, and their excess; or None.

    [n_toys, V, .., V] each
    """
    for m in range(1, cases.K + 2):
        later_axes = tuple(range(1 + m, came.ndim))  # of the tokens after the first m
        starts = came.sum(axis=later_axes)
        wanted = should.sum(axis=later_axes)
        is_wrong = differ(starts, wanted)
        if is_wrong.any():
            return starts, is_wrong, starts - wanted
    return None


def report_on(cases, differ, method, written, seen=None):
    """Return the Report on the rounds.

    differ    (came, should) -> for each start, whether it has a wrong probability
    method    in words, how the rounds were chosen
    seen      in words, which faults sampled rounds show; None if the rounds are enumerated
    """
    is_enumerated = seen is None
    came, should = distributions(cases, written)
    distances = distances_of(came, should)
    toy = int(distances.argmax())
    distance = float(distances[toy])
    n_tokens = (written.tokens >= 0).sum(axis=1)
    per_round = np.bincount(cases.toy[written.case], n_tokens * written.weight)  # [n_toys]
    mean_tokens = float(per_round.mean())
    padding = "" if cases.padding else "no padding, "
    noise = "" if is_enumerated else ", noise included,"
    summary = (f"total variation {distance:.2g}{noise} from the target's distribution, "
               f"{mean_tokens:.4g} tokens per round (K = {cases.K}, V = {cases.V}, "
               f"{padding}{method})")

    different = first_different_starts(cases, came, should, differ)
    if different is None:
        # a sample without a fault does not prove that there is none
        exact = True if is_enumerated else None
        text = f"{'exact' if exact else 'no fault seen'}{cases.within}: {summary}"
        if not exact:
            text += f"\n{seen}"
        if written.uniforms is None:
            text += f"\n{ROUNDS_ALONE}"
        return Report(exact, distance, text, None, None, mean_tokens)

    starts, is_wrong, excess = different
    # they may agree on the toy with the largest distance
    if not is_wrong[toy].any():
        toy = int(np.argwhere(is_wrong)[0, 0])  # the first toy on which they differ
    first_wrong_token, lines = first_fault(
        cases, starts[toy], is_wrong[toy], excess[toy], toy, written)
    rule = None
    # a sample's figures are not exact enough to name a rule
    if is_enumerated and cases.has_known_figures:
        n = len(TOYS[cases.V])  # KNOWN has no figures of toys that start at a later row
        ours = *distances[:n], per_round[:n].mean()
        for name, figures in KNOWN.items():
            if np.allclose(figures, ours, rtol=0, atol=TOLERANCE):
                rule = name
                lines.append(f"likely fault: {rule}")
    is_rounding = distance < rounding_of("float32", cases.V)
    if is_enumerated and cases.dtype == "float64" and is_rounding:
        lines.append('within float32 rounding: for a verifier in float32 say dtype="float32", '
                     "or --dtype float32")
    text = "\n".join([f"NOT exact: {summary}", *lines, f"({ORIGIN})"])
    return Report(False, distance, text, first_wrong_token, rule, mean_tokens)


def not_checked(refused):
    """Return the Report on what cannot be judged."""
    return Report(None, np.nan, f"not checked: {refused} ({ORIGIN})", is_checked=False)


def check(verify, K=3, V=3, dtype="float64", asarray=np.asarray, padding=False, rows=None,
          tolerance=None):
    """Return the Report on a verifier whose uniforms are arguments.

    dtype       in which the verifier computes
    asarray     converts NumPy's arrays to the verifier's arguments
    padding     whether some rows have fewer guesses
    rows        your toy instead of TOYS: (draft, target), [V + 1, V] each; a row sums to 1
    tolerance   the largest total variation of a right verifier; None: rounding_of(dtype, V)
    """
    arguments = K, V, dtype, asarray, padding, rows, tolerance
    report = report_of_boxes(verify, Cases(*arguments))
    if report is None:  # too many boxes: it does more than compare uniforms with thresholds
        return check_by_sampling(verify, None, *arguments, pass_uniforms=True)
    return report


def rounds_in(boxes, cases):
    """Return one round for each box."""
    # a case's weight is divided among its boxes by their volumes
    volume = ((boxes.high - boxes.low + 1) / cases.grid).prod(axis=1)
    middle = (boxes.low + boxes.high) / 2 / cases.grid
    return Written(boxes.case, boxes.tokens, cases.weight[boxes.case] * volume, middle)


def trusted_boxes(answer, cases, rng):
    """Return boxes that random points agree with, and whether a distance from them is certain.

    None instead of boxes if there are too many, or if points contradict them again and again.

    Suppose that the boxes of a right verifier have a distance from the target on a toy that
    exceeds the tolerance by d. Then its answers differ from the boxes on at least a part d of
    the toy's points. So n random points all agree with the boxes with a probability of at most
    (1 - d)^n <= exp(-n d). For n_needed points this is FALSE_ALARM / MOST_TRIES, because there
    are MOST_TRIES tries.
    """
    per_case = PER_CASE * cases.V // 3  # a draw from V tokens has V - 1 thresholds
    search = Search(answer, rng, SAMPLES, per_case)
    boxes = search.find(search.cubes(len(cases.weight), cases.K + 1, cases.grid - 1))
    for _ in range(MOST_TRIES):
        if boxes is None:
            break
        rounds = rounds_in(boxes, cases)
        distances = distances_of(*distributions(cases, rounds))
        toy = distances.argmax()
        if distances[toy] <= cases.tolerance:
            after = search.tried(boxes, rounds.weight, POINTS)
            is_certain = True
        else:
            excess = distances[toy] - cases.tolerance
            n_needed = int(np.log(MOST_TRIES / FALSE_ALARM) / excess) + 1
            is_certain = n_needed <= MOST_POINTS
            weight = rounds.weight * (cases.toy[boxes.case] == toy)
            after = search.tried(boxes, weight, min(n_needed, MOST_POINTS))
        if after is boxes:
            return boxes, is_certain
        boxes = after
    return None, False


def report_of_boxes(verify, cases):
    """Return the Report on a verifier with these cases; None if boxes cannot be found."""
    rng = np.random.default_rng(0)
    n_cases = len(cases.weight)

    def answer(case, points):
        # coordinate i of a point is the uniform i / grid
        return cases.call(verify, case, points / cases.grid)

    try:
        # the first calls: if answers depend on the batch, no threshold can be found
        case = rng.integers(n_cases, size=REPEATED)
        points = rng.integers(cases.grid, size=(REPEATED, cases.K + 1))
        call_again(answer, case, points, answer(case, points), rng)
        boxes, is_certain = trusted_boxes(answer, cases, rng)
    except Refused as error:
        return not_checked(error)
    if boxes is None:
        return None
    method = f"{len(boxes.case):,} boxes"
    if len(boxes.case) == n_cases:  # no case was cut
        method = "the same for all uniforms"

    def differ(came, should):
        is_wrong = distances_of(came, should) > cases.tolerance  # [n_toys]
        return np.broadcast_to(is_wrong, came.T.shape).T  # of a wrong toy, all starts

    report = report_on(cases, differ, method, rounds_in(boxes, cases))
    if report.exact is False and not is_certain:
        text = report.text.replace("NOT exact", NOT_KNOWN, 1)
        return report._replace(exact=None, text=text)
    return report


def draw_cases(cases, n_each, rng):
    """Return n_each random cases of every toy, drawn with their weights. [n_toys n_each]"""
    drawn = []
    for toy in range(cases.n_toys):
        cases_of_toy = np.flatnonzero(cases.toy == toy)
        drawn.append(rng.choice(cases_of_toy, n_each, p=cases.weight[cases_of_toy]))
    return np.concatenate(drawn)


def check_by_sampling(verify, n=None, K=3, V=3, dtype="float64", asarray=np.asarray,
                      padding=False, rows=None, tolerance=None, false_alarm=FALSE_ALARM, seed=0,
                      pass_uniforms=False):
    """Return the Report on verify(guesses, p_draft, p_target), which draws its own numbers.

    Each toy gets an equal part of the n rounds, n_each (None: ROUNDS, or ROUNDS_IF_SLOW). A
    right verifier is called wrong with a probability of at most `false_alarm`:

     1. Let p be the target's probability of a start of a text, and f its frequency in the
        rounds of a toy. A shorter round counts with the probability that the target completes
        it to this start. An event is that f is too high for this start on this toy, or too low.
     2. By Hoeffding (1963) Theorem 1, f reaches a value a above p with a probability of at most
        exp(-n_each KL(a, p)), and likewise a value a below p.
     3. We call f too high if f > p and KL(f, p) > limit, and too low if f < p and KL(f, p) >
        limit. So each event has a probability of at most exp(-n_each limit).
     4. The limit is log(n_events / false_alarm) / n_each. Each event then has a probability of
        at most false_alarm / n_events, and all events together of at most false_alarm.
     5. KL(a, p) >= 2 (a - p)^2 by Pinsker's inequality. So without an event, f is within
        sqrt(limit / 2) of p. If the verifier's probability is 2 sqrt(limit / 2) or more from p,
        f must then be sqrt(limit / 2) or more from the verifier's probability. By 2. and 4.,
        this has a probability of at most false_alarm / n_events.

    With a tolerance, p in KL(f, p) is replaced by the number that is nearest to f in
    [p - tolerance, p + tolerance].
    """
    cases = Cases(K, V, dtype, asarray, padding, rows, tolerance)
    if n is None:
        n = ROUNDS_IF_SLOW if isinstance(verify, Program) or cases.V > LARGE else ROUNDS
    n_each = whole_number("n", n, cases.n_toys) // cases.n_toys
    rng = np.random.default_rng(seed)
    # two events, too high and too low, for each toy and each start of 1 .. K + 1 tokens
    n_starts = sum(cases.V**m for m in range(1, cases.K + 2))
    n_events = 2 * cases.n_toys * n_starts
    limit = np.log(n_events / false_alarm) / n_each
    smallest = cases.tolerance + 2 * np.sqrt(limit / 2)
    seen = ("a fault that changes the probability of a text's first tokens by "
            f"{smallest:.2g} or more would be seen (missed with a probability of at most "
            f"{false_alarm:g})")

    def differ(f, p):
        nearest = np.clip(f, p - cases.tolerance, p + cases.tolerance)
        return kl(f, nearest) > limit  # [n_toys, V, .., V]

    case = draw_cases(cases, n_each, rng)
    uniforms = rng.integers(cases.grid, size=(len(case), K + 1)) / cases.grid
    called = verify if pass_uniforms else lambda *arrays: verify(*arrays[:3])
    try:
        tokens = cases.call(called, case, uniforms)
    except Refused as error:
        return not_checked(error)
    method = f"{len(case):,} sampled rounds"
    if pass_uniforms:
        method += ", because few boxes of uniforms do not describe the answers"
    weight = np.full(len(case), 1 / n_each)  # the weights of a toy's rounds sum to 1
    written = Written(case, tokens, weight, uniforms if pass_uniforms else None)
    return report_on(cases, differ, method, written, seen)


def kl(f, p):
    """Return KL(f, p), the divergence of a coin with probability f from a coin with p."""
    # a term is 0 where its first factor is 0 (up to rounding), whatever its logarithm is
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(f > 1e-12, f * np.log(f / p), 0)
        tails = np.where(f < 1 - 1e-12, (1 - f) * np.log((1 - f) / (1 - p)), 0)
    return heads + tails


# ---- programs

def write_lines(pipe, texts):
    """Write the texts of a queue, up to None or until nobody reads the pipe."""
    # the pipe is closed at the end; an OSError says that nobody reads it
    with contextlib.suppress(OSError), pipe:
        for text in iter(texts.get, None):  # texts.get() again and again, until it returns None
            pipe.write(text)
            pipe.flush()


def read_answers(pipe, answers):
    """Put each line of a pipe into a queue, then None."""
    # in pieces, because a program may print without ever ending its line
    next_piece = partial(pipe.readline, LONGEST)
    with pipe:
        for answer in iter(next_piece, ""):  # "" is the end of the pipe
            answers.put(answer)
    answers.put(None)


def end(process, texts, threads):
    """End a program's input; a second later kill it and its children; close its pipes."""
    texts.put(None)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    if hasattr(os, "killpg"):
        # its children may run longer than the program itself; `go run` has one
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    # nobody holds the other ends of the pipes now, so the threads end
    for thread in threads:
        thread.join(1)


def spaced(numbers):
    """Return numbers as text that reads as the same numbers."""
    return " ".join(map(repr, numbers))


def quoted(answer):
    """Return the start of a line that a program printed, in quotation marks."""
    return repr(answer.strip()[:80])


class Program:
    """Start a program once; call it as a verifier, with or without uniforms.

    One thread writes to the program and one reads from it. The caller waits for their queues
    only, and never longer than `seconds` for LINES lines. So neither a program that does not
    read nor a program that does not print can block the caller.
    """

    def __init__(self, words, seconds=SECONDS):
        if not 0 < seconds < 1e6:
            raise ValueError(f"need 0 < seconds < 1e6, got {seconds!r}")
        if isinstance(words, str) or not words:
            raise ValueError('need a program and its arguments as a list, ["./verifier"], got '
                             f"{words!r}")
        self.seconds = seconds
        self.printed = {}  # {bytes of rows: their numbers as text}
        try:
            # a session of its own, so that end() kills the program's children too
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                errors="backslashreplace", start_new_session=True)
        except OSError as error:
            raise ValueError(f"cannot run {words[0]}: {error.strerror}") from None
        self.texts = queue.SimpleQueue()
        self.answers = queue.SimpleQueue()
        threads = [
            threading.Thread(target=write_lines, args=(self.process.stdin, self.texts)),
            threading.Thread(target=read_answers, args=(self.process.stdout, self.answers))]
        for thread in threads:
            thread.daemon = True  # Python does not wait for a daemon when it ends
            thread.start()
        # self.end() runs end() once: when the program is refused, when this object is freed, or
        # when Python ends
        self.end = weakref.finalize(self, end, self.process, self.texts, threads)

    def __call__(self, guesses, p_draft, p_target, uniforms=None):
        """Return the program's tokens. [B, K + 1]"""
        K = guesses.shape[1]
        lines = [self.text_of(*rows) for rows in zip(guesses, p_draft, p_target)]
        if uniforms is not None:
            lines = [f"{line} {spaced(row)}" for line, row in zip(lines, uniforms.tolist())]
        tokens = []
        # in parts, so that the time limit does not depend on the number of lines
        for start in range(0, len(lines), LINES):
            tokens += self.tokens_for(lines[start:start + LINES], K)
        return np.array(tokens)

    def text_of(self, guesses, p_draft, p_target):
        """Return a line without its uniforms, from a dict if the case was printed before."""
        rows = guesses, p_draft, p_target
        # two cases differ in the bytes of at least one array
        key = b"".join(row.tobytes() for row in rows)
        if key not in self.printed:
            numbers = [*p_draft.shape]  # K, V
            for row in rows:
                numbers += row.ravel().tolist()
            self.printed[key] = spaced(numbers)
        return self.printed[key]

    def tokens_for(self, lines, K):
        """Return the program's K + 1 tokens for each of these lines."""
        if not self.end.alive:
            raise Refused("need a running program, got one that has ended: make a new Program")
        # all earlier lines were answered, so the program must not have printed anything since
        if not self.answers.empty():
            early = self.next_answer(lines[0], 0)
            raise self.refused(f"printed {quoted(early)} before it was given", lines[0])
        self.texts.put("\n".join(lines) + "\n")
        number = "-?[0-9]{1,9}"  # a whole number of at most nine digits
        numbers = r"\s+".join([number] * (K + 1))
        answer_form = re.compile(rf"\s*{numbers}\s*")
        last_moment = time.monotonic() + self.seconds
        tokens = []
        for line in lines:
            answer = self.next_answer(line, last_moment - time.monotonic())
            if not answer_form.fullmatch(answer):
                raise self.refused(f"printed {quoted(answer)} instead of K + 1 = {K + 1} whole "
                                   "numbers for", line)
            tokens.append([int(word) for word in answer.split()])
        return tokens

    def next_answer(self, line, seconds):
        """Return the next line that the program prints; raise Refused if none comes."""
        try:
            answer = self.answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise self.refused(f"has not printed a line within {self.seconds:g} seconds (does "
                               "it flush its output after each line?) for", line) from None
        if answer is None:
            self.end()  # end() waits for the process, so its exit status is known below
            raise self.refused(f"ended with status {self.process.returncode} instead of an "
                               "answer to", line)
        return answer

    def refused(self, deed, line):
        """End the program; return what to raise."""
        self.end()
        return Refused(f'the program {deed} the line "{line}"')


# ---- the command

# the package's name is empty if the file was run by its path
PROGRAM = "python -m exact.oracle" if __package__ else f"python {sys.argv[0]}"


class OneLineParser(argparse.ArgumentParser):
    """Parse as argparse does, with errors in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def in_its_folder(path):
    """Let a file import the modules next to it first, and the modules next to us last."""
    ours = Path(__file__).resolve().parents[1 if __package__ else 0]
    # sort() keeps the order of all other folders, because their keys are equal
    sys.path.sort(key=lambda folder: Path(folder).resolve() == ours)
    sys.path.insert(0, str(Path(path).resolve().parent))


def verifier_of_file(path, sampling):
    """Return the `verify` of a Python file, and its `asarray` as a keyword argument of `check`.

    ValueError unless it can be called with uniforms or, for sampling, without them.
    """
    if not Path(path).is_file():
        raise ValueError(f"cannot read {path}: no such file")
    in_its_folder(path)
    try:
        names = runpy.run_path(path)
    except SyntaxError as error:  # it names the file, or a module which the file imports
        raise ValueError(f"need a Python file: {error}") from None
    verify = names.get("verify")
    if not callable(verify):
        raise ValueError(f"need a function verify in {path}")
    asarray = {"asarray": names["asarray"]} if "asarray" in names else {}
    try:
        parameters = [*inspect.signature(verify).parameters]  # their names
    except (TypeError, ValueError):  # a function that is not written in Python
        return verify, asarray
    needed = ["guesses", "p_draft", "p_target", *([] if sampling else ["uniforms"])]
    is_callable = can_be_called(verify, needed)
    # without an rng of its own, which it makes for --sampling only
    if parameters[3:4] == ["rng"] and not (sampling and is_callable):
        raise ValueError("this verify takes an rng; check it with: python -m exact.judge "
                         f"{path}")
    if not is_callable:
        advice = ""
        if can_be_called(verify, needed[:3]):
            advice = ("; if it draws its own numbers, say --sampling (in Python: "
                      "check_by_sampling)")
        raise ValueError(f"need verify({', '.join(needed)}), got "
                         f"verify({', '.join(parameters)}){advice}")
    return verify, asarray


def can_be_called(function, arguments):
    """Return whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def place_of(error, path):
    """Return "FILE.py, line 9: IndexError: .." if the file raised it, or the message alone."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    if not lines:
        return str(error)
    return f"{path}, line {lines[-1]}: {type(error).__name__}: {error}"  # the innermost call


def parser_of_words():
    """Return the parser of the command line."""
    description = " ".join(__doc__.split("\n\n")[:2])  # the first two lines of the file's text
    parser = OneLineParser(
        PROGRAM, description=description, allow_abbrev=False,
        epilog="Exit status: 0 exact (with --sampling: no fault seen), 1 not exact, "
               "2 not known, not checked, or no fault seen without --sampling.")
    parser.add_argument("file", nargs="?", metavar="FILE.py",
                        help="a Python file with a function verify; a function asarray in it "
                        "converts NumPy's arrays to the arguments")
    parser.add_argument("--K", type=int, default=3, help="guesses per round (default 3)")
    parser.add_argument("--V", type=int, default=3, help="size of the vocabulary (default 3)")
    parser.add_argument("--dtype", default="float64",
                        help="precision: float64 (default) or float32")
    parser.add_argument("--padding", action="store_true",
                        help="give some rounds fewer guesses, then -1 and arbitrary rows")
    parser.add_argument("--sampling", action="store_true",
                        help="give no uniforms: the rule draws its own numbers")
    parser.add_argument("--n", type=int,
                        help=f"rounds with --sampling (default {ROUNDS:,}; "
                        f"{ROUNDS_IF_SLOW:,} of a program)")
    rounding = ", ".join(f"{size:g} in {dtype}" for dtype, (_, size) in DTYPES.items())
    parser.add_argument("--tolerance", type=float,
                        help="call a rule exact up to this total variation (default "
                        f"{rounding})")
    program = parser.add_argument_group("for a program", "--command must be the last flag; "
                                        "`--command -- PROGRAM` allows the program any flags")
    program.add_argument("--seconds", type=float,
                         help=f"time limit for the start and {LINES} lines "
                         f"(default {SECONDS:g})")
    program.add_argument("--command", nargs=argparse.REMAINDER,
                         help="the program with all its arguments")
    return parser


def split_words(argv):
    """Return the words before --command, and those after it; None without --command.

    argparse cannot do it, because it would read a "--" among the program's words.
    """
    for place, word in enumerate(argv):
        flag, _, program = word.partition("=")
        if flag == "--command":  # or --command=PROGRAM
            return argv[:place], [program] * bool(program) + argv[place + 1:]
    return argv, None


def main(argv=None):
    """Check a file or a program, print the report, and return the exit status."""
    parser = parser_of_words()
    ours, words = split_words(sys.argv[1:] if argv is None else argv)
    args = parser.parse_args(ours)
    our_flags = {f"--{name}" for name in vars(args)} - {"--file"}
    its_flags = {word.partition("=")[0] for word in words or []}
    if words and words[0] == "--":
        words = words[1:]
    elif our_flags & its_flags:
        parser.error(f"{min(our_flags & its_flags)} must come before --command (if it is a "
                     "flag of the program, write `--command -- PROGRAM ..`)")
    # `words` is None without --command, and an empty list after --command without a program
    if (args.file is None) == (words is None) or words == []:
        parser.error("need FILE.py or --command PROGRAM")
    if args.file and args.seconds is not None:
        parser.error("--seconds applies only to --command")
    if args.n is not None and not args.sampling:
        parser.error("--n applies only to --sampling")
    names = ("K", "V", "dtype", "padding", "tolerance", *["n"][:args.sampling])
    options = {name: getattr(args, name) for name in names}
    # an error of the verifier is printed like an error of the flags: in one line, with status 2
    try:
        if words:
            verify = Program(words, SECONDS if args.seconds is None else args.seconds)
        else:
            verify, asarray = verifier_of_file(args.file, args.sampling)
            options |= asarray
        judge = check_by_sampling if args.sampling else check
        report = judge(verify, **options)
    except KeyboardInterrupt:
        parser.exit(130, f"{PROGRAM}: interrupted\n")
    except (Exception, SystemExit) as error:
        words_of_error = place_of(error, args.file).split()  # without line ends
        parser.error(" ".join(words_of_error))
    try:
        print(report, flush=True)
    except BrokenPipeError:  # as in `| head -1`: nobody reads the rest
        # Python flushes stdout when it ends, and the closed pipe would raise once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if args.sampling and report.is_checked and report.exact is None:
        return 0  # a sample cannot show more
    return {True: 0, False: 1, None: 2}[report.exact]


if __name__ == "__main__":
    sys.exit(main())
