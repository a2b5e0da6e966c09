# SPDX-License-Identifier: MIT. Copyright (c) 2026 The authors of this repository.
# exact/oracle.py of speculative-decoding-numpy 1.0
"""Check whether a verifier of speculative decoding is lossless. One file, NumPy only: copy it.

    report = check(verify)      verify(guesses, p_draft, p_target, uniforms) -> tokens
    assert report.exact, report

    guesses    [B, K]            tokens, drawn from p_draft
    p_draft    [B, K, V]         row t: the distribution that guess t was drawn from
    p_target   [B, K + 1, V]     row t: the target's distribution at that position
    uniforms   [B, K + 1]        independent uniform numbers in [0, 1)
    tokens     [B, K + 1]        the accepted guesses and one more token, then -1

Instead of tokens a verifier may return one list of tokens for each row, without -1. Or it returns
(tokens, n_accepted), where n_accepted is [B]; only the first n_accepted + 1 tokens of a row are
read. The arrays are NumPy's, or what `asarray=` makes of them (torch.as_tensor, cupy.asarray, ..).
With `padding=True` some rows have fewer guesses, then -1 and rows of zeros. If your verifier has
different arguments, write a lambda. These verifiers have a second array of uniforms, no p_draft
(one-hot rows), and a bonus token that is already drawn:

    check(lambda g, q, p, u: verify(g, q, p, u[:, :-1], u[:, -1]))
    check(lambda g, q, p, u: verify(g, p, u))
    check(lambda g, q, p, u: verify(g, q, p[:, :-1], u, draw(p[:, -1], u[:, -1])))

How it works. The verifier is called with every path of guesses of two small models, the toys of
TOYS. Its answer changes only where a uniform crosses a threshold. Bisection finds the thresholds
and cuts the cube of uniforms into boxes. One call per box gives the distribution of what is
written, and the target's rows complete a round that ends early. Uniforms are multiples of 2^-24
(float32) or 2^-52 (float64), so the sum is exact. The toys were found by a search
(exact/rules/oracle_rows.py) for toys that reveal each rule in KNOWN, and the faults of verifiers
with one wrong line (exact/rules/faults.py).

report.exact    True     the target's distribution on all toys, up to rounding
                False    a different distribution
                None     not known: no fault in a sample, or "not checked" with a reason

    check_by_sampling(verify, n)                for verifiers that draw their own random numbers
    python -m exact.oracle FILE.py              a copy of this file: python oracle.py FILE.py
    python oracle.py --command ./verifier ..    for a program in any language
    check(Program(["./verifier"]))              likewise, in Python

A program is started once. It reads lines of numbers (as 0.25 or 1e-05), and answers each:

    line      K V guesses p_draft p_target uniforms: arrays as above, row after row, not rounded
    answer    K + 1 whole numbers: the accepted guesses and one more token, then -1

A program must flush its output after each line. If an answer stays in a buffer, the program is
refused after --seconds. With --sampling the lines have no uniforms. docs/oracle/ has programs in
C, Rust and Go. In pytest, after `from oracle import Program, check`:

    def test_our_verifier_is_exact():
        report = check(Program(["./verifier"]))
        assert report.exact, report
"""

import argparse
import contextlib
import inspect
import operator
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
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

ORIGIN = "exact/oracle.py of speculative-decoding-numpy 1.0"
DTYPES = {"float32": (24, 1e-6), "float64": (52, 1e-12)}  # bits of a uniform, rounding
CHUNK = 1 << 16  # rows per call
MOST_BOXES = 12  # boxes per case that are cut in one step; rules with thresholds need 4
MOST_CUTS = 64  # steps; rules that compare uniforms with thresholds need 13
SAMPLES = 1 << 6  # points at which a box is tested
REPEATED = 1 << 13  # rows that are called again, in a different order
ALONE = 16  # rows that are called again, each in a batch of one row
WITH_ONE_START = 3  # guesses: with fewer, every row of a toy is also a first row (toys_for)
LINES = 1 << 10  # given to a program at a time
SECONDS = 10.0  # that a program has for LINES lines, its start included
LONGEST = 1 << 12  # characters of an answer that are read at a time

# {V: two toys}, a toy is (draft, target): in thousandths the row after no token, after token 0,
# after token 1, .. No half-precision number is a thousandth.
TOYS = {
    3: (([[440, 200, 360], [0, 0, 1000], [700, 300, 0], [250, 311, 439]],
         [[250, 330, 420], [63, 437, 500], [310, 250, 440], [250, 311, 439]]),
        ([[230, 500, 270], [950, 6, 44], [300, 500, 200], [600, 370, 30]],
         [[410, 300, 290], [931, 25, 44], [370, 0, 630], [975, 24, 1]])),
    4: (([[420, 130, 260, 190], [0, 0, 1000, 0], [500, 170, 0, 330], [250, 311, 170, 269],
          [120, 430, 260, 190]],
         [[190, 290, 230, 290], [63, 290, 437, 210], [210, 250, 330, 210], [250, 311, 170, 269],
          [340, 90, 330, 240]]),
        ([[150, 370, 230, 250], [950, 6, 31, 13], [270, 410, 120, 200], [530, 340, 30, 100],
          [90, 260, 210, 440]],
         [[330, 210, 310, 150], [931, 21, 31, 17], [330, 0, 450, 220], [11, 975, 3, 11],
          [300, 170, 390, 140]])),
}

# Wrong rules for V = K = 3: total variation from the target on either toy, mean tokens per round,
# and the rounds after which check_by_sampling sees the rule with a probability above 1 - 1e-6.
KNOWN = {
    "match with the target's best token, at any temperature": (0.58, 0.59, 1.621747, 66),
    '"q = 1"; argmax guesses, accepted from p_target = .5 on':
        (0.229218, 0.070673, 2.476723, 2282),
    "match or the ratio test, then the residual": (0.164274, 0.063483, 3.096067, 4570),
    "accept if p_target >= p_draft, then a draw from the target": (0.14, 0.150925, 1.883201, 2326),
    "accept with p_target / its maximum, then a draw from the target":
        (0.298586, 0.129805, 2.826788, 1806),
    "accept if p_target >= half its maximum, then a draw from the target":
        (0.496588, 0.200759, 3.597238, 572),
    "products of ratios and of uniforms, then the residual of one row":
        (0.413364, 0.127474, 3.489992, 824),
    "block verification, the last product of ratios not capped":
        (0.053675, 0.013948, 2.954381, 44170),
    "the same, the others capped only at a new maximum": (0.395289, 0.390542, 3.536113, 572),
    "the first guess is not tested": (0.19, 0.2, 3.235087, 1852),
    "accept with p_target / its maximum, then the residual": (0.251219, 0.111819, 2.826788, 2506),
    "accept if p_target >= p_draft": (0.35029, 0.423306, 1.883201, 426),
    '"q = 1"; argmax guesses, always rejected': (0.068428, 0.068966, 1.0, 12996),
    "ratio test, .01 added to p_draft and to the residual": (0.00832, 0.01425, 2.816582, 58030),
    "traversal, divided by what the draft has left": (0.248174, 0.044478, 3.015177, 678),
    "ratio test with the target's next row": (0.245879, 0.3, 1.914579, 1100),
    "ratio test, then a draw from the target": (0.184879, 0.100388, 2.853157, 4716),
    "ratio test, then the target without the guess": (0.075614, 0.098063, 2.853157, 11866),
    "ratio test, then a draw from the next row": (0.192633, 0.158446, 2.853157, 1154),
    "match, then a fresh draw": (0.060032, 0.05322, 1.565483, 22542),
    "ratio test; the bonus token is the target's best token": (0.244795, 0.035234, 2.853157, 8240),
    "bonus token from the last guess's row": (0.045215, 0.007833, 2.853157, 24690),
    "one uniform for a test and its replacement": (0.099124, 0.03, 2.853157, 10474),
    "one uniform for all tests of a round": (0.1316, 0.00688, 2.969897, 2662),
    "drop a low-confidence guess; drawn, ratio test": (0.14, 0.15, 1.364937, 3244),
    "the number of guesses that pays best; ratio test": (0.18495, 0.0, 2.472789, 2878),
}
TOLERANCE = 3e-6  # of the first three figures

DEPENDS = ("a row's tokens depend on more than its arguments: on other rows, on earlier calls, or "
           "on random numbers drawn inside (then use check_by_sampling, or --sampling)")


# {form of a verifier's result: what the report says of it}
READ_FORMS = {"array": "",
         "tuple": "; read as (tokens, n_accepted), padding not judged",
         "lists": "; read as lists of tokens"}


class Refused(Exception):
    """State in one sentence why a verifier cannot be checked, and for which row of a call."""

    def __init__(self, reason, row=None):
        super().__init__(reason)
        self.row = row  # None: not one row


class Report(NamedTuple):
    """Hold the verdict; print it to read it."""

    exact: bool | None  # None: not known
    distance: float  # total variation, on the toy where it is largest
    text: str
    first_wrong_token: tuple | None = None  # its position, the tokens before it, the token
    rule: str | None = None  # of KNOWN, with the same figures
    tokens_per_round: float | None = None  # mean over the toys
    texts: np.ndarray | None = None  # [n_toys, V ** (K + 1)], distributions of K + 1 tokens

    def __str__(self):
        return self.text


# ---- what a verifier is called with

def whole_number(name, value, least):
    """Return the value as an integer; raise ValueError unless it is one, and large enough."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1  # refused below, with the same message
    if number < least:
        raise ValueError(f"need a whole number {name} >= {least}, got {value!r}")
    return number


def toys_for(K, V):
    """Return the rows of all toys, of draft and target, [n_toys, V + 1, V] each.

    One or two guesses reach few rows, so each toy is repeated with each of its rows as the first.
    """
    if V not in TOYS:
        raise ValueError(f"need V in {[*TOYS]}, or your own rows=, got {V}")
    toys = np.array(TOYS[V]) / 1000  # [2, 2, V + 1, V]
    if K < WITH_ONE_START:
        # row 0 is replaced by row `first`, and the others stay
        starts = [toys[:, :, [first, *range(1, V + 1)]] for first in range(V + 1)]
        toys = np.concatenate(starts)
    return toys[:, 0], toys[:, 1]


def toy_of_rows(rows):
    """Return the one toy of `rows`, (draft, target), in the form of toys_for."""
    try:
        both = np.array([np.asarray(part, dtype=float) for part in rows])
    except (TypeError, ValueError):
        raise ValueError("need rows=(draft, target), [V + 1, V] each, of numbers") from None
    if both.ndim != 3 or len(both) != 2 or both.shape[1] != both.shape[2] + 1:
        raise ValueError("need rows=(draft, target), [V + 1, V] each, "
                         f"got an array of shape {[*both.shape]}")
    if not ((both >= 0).all() and np.allclose(both.sum(axis=-1), 1, rtol=0, atol=1e-9)):
        raise ValueError("need rows= of probabilities that sum to 1, "
                         f"got a row with sum {both.sum(axis=-1).ravel().tolist()}")
    return both[:1], both[1:]


class Cases:
    """Hold all inputs but the uniforms: each toy with every path of guesses.

    A case has its toy and its `weight`, the probability of its guesses in the toy.
    """

    def __init__(self, K, V, dtype, asarray, padding, rows):
        if dtype not in DTYPES:
            raise ValueError(f"need dtype of {[*DTYPES]}, got {dtype!r}")
        if not callable(asarray):
            raise ValueError(f"need a function asarray, got {asarray!r}")
        self.K = whole_number("K", K, 1)
        is_default = rows is None
        toys = toys_for(K, whole_number("V", V, 2)) if is_default else toy_of_rows(rows)
        draft, self.target = toys
        self.V = self.target.shape[-1]
        self.n_toys = len(self.target)
        self.dtype = dtype
        self.asarray = asarray
        self.padding = padding
        self.has_known_figures = is_default and (K, V) == (3, 3) and not padding
        self.n_calls = 0  # of the verifier
        self.n_rows = 0  # of all calls before the last one
        self.n_last = 0  # of the last call
        self.form = None  # of the verifier's results: a key of READ_FORMS

        numbers = range(0 if padding else self.K, self.K + 1)  # of guesses
        padded = []
        for k in numbers:
            padding_of_k = (-1,) * (self.K - k)
            padded += [(*path, *padding_of_k) for path in product(range(self.V), repeat=k)]
        paths = np.array(padded)  # [n, K]
        is_guess = paths >= 0
        # row 0 of a toy follows no token, row 1 + t token t
        row = np.pad(paths + 1, ((0, 0), (1, 0)))  # [n, K + 1]
        p_draft = draft[:, row[:, :-1]]  # [n_toys, n, K, V]
        p_target = self.target[:, row]  # [n_toys, n, K + 1, V]
        # the probability of each guess in its row; padding takes token 0 and counts as 1
        column = np.maximum(paths, 0)[None, ..., None]  # [1, n, K, 1]
        drawn = np.take_along_axis(p_draft, column, -1)[..., 0]  # [n_toys, n, K]
        # every number of guesses has the same part of a toy's weight
        weight = np.where(is_guess, drawn, 1).prod(axis=-1) / len(numbers)  # [n_toys, n]
        p_draft[:, ~is_guess] = 0
        after_guesses = p_target[:, :, 1:]  # a view: p_target is written
        after_guesses[:, ~is_guess] = 0

        possible = weight > 0  # a case is a toy and a path that its draft can write
        self.toy, path = np.nonzero(possible)
        self.guesses = paths[path]
        self.weight = weight[possible]
        self.p_draft = p_draft[possible].astype(dtype)
        self.p_target = p_target[possible].astype(dtype)

    def call(self, verify, case, uniforms):
        """Return the tokens that the verifier writes for these cases. [B, K + 1]"""
        if len(case) > CHUNK:
            parts = np.split(np.arange(len(case)), range(CHUNK, len(case), CHUNK))  # of indices
            return np.concatenate([self.call(verify, case[i], uniforms[i]) for i in parts])
        guesses = self.guesses[case]
        uniforms = uniforms.astype(self.dtype)
        arrays = guesses, self.p_draft[case], self.p_target[case], uniforms
        self.n_calls += 1
        self.n_rows += self.n_last
        self.n_last = len(case)
        tokens = self.read(verify(*map(self.asarray, arrays)))
        self.check_tokens(tokens, guesses, uniforms)
        return tokens

    def read(self, result):
        """Return the tokens of a result in any form, then -1. [B, K + 1]"""
        form = "tuple" if isinstance(result, tuple) else form_of_tokens(result)
        if self.form not in (None, form):
            raise Refused(f"need results of one form, got {form} after {self.form}")
        self.form = form
        B = self.n_last
        if form != "tuple":
            return array_of(result, B, self.K)
        if len(result) != 2:
            raise Refused(f"need tokens or (tokens, n_accepted), got a tuple of {len(result)}")
        tokens = array_of(result[0], B, self.K)
        n_accepted = on_host(result[1])
        if n_accepted.shape != (B,) or n_accepted.dtype.kind not in "iu":
            raise Refused(f"need n_accepted of shape [B] = {[B]}, whole numbers, "
                          f"got {n_accepted.dtype} of shape {[*n_accepted.shape]}")
        return tokens_before_padding(tokens, n_accepted)

    def where(self, row):
        """Return the place of a refusal, for a reader who counts calls and lines from 1."""
        if row is None:
            return f"call {self.n_calls}"
        return f"call {self.n_calls}, line {1 + row} of it, line {1 + self.n_rows + row} of all"

    def check_tokens(self, tokens, guesses, uniforms):
        """Raise Refused unless each row has 1 .. k + 1 tokens for k guesses, then -1."""
        k = (guesses >= 0).sum(axis=1)
        n = (tokens >= 0).sum(axis=1)
        is_end = np.arange(self.K + 1) >= n[:, None]
        is_misplaced = (tokens < 0) != is_end  # a -1 before a token, or a token after a -1
        is_wrong = (tokens < -1) | (tokens >= self.V) | is_misplaced
        wrong_rows = np.flatnonzero(is_wrong.any(axis=1) | (n < 1) | (n > k + 1))
        if len(wrong_rows) == 0:
            return
        row = wrong_rows[0]
        reason = (f"need 1 to {k[row] + 1} tokens of 0 .. {self.V - 1} for {k[row]} guesses, then "
                  f"-1, got {tokens[row].tolist()} for guesses {guesses[row].tolist()} and "
                  f"uniforms {uniforms[row].tolist()}")
        # the likeliest reason: a float32 verifier, for which such a uniform is 1
        if self.dtype == "float64" and (uniforms[row].astype(np.float32) == 1).any():
            reason += ' (so large that it is 1 in float32: such a verifier needs dtype="float32")'
        raise Refused(reason, row)


# ---- the forms of what a verifier returns

def on_host(numbers):
    """Return numbers of any library as an array of NumPy."""
    for method in ("detach", "cpu", "get"):  # PyTorch's, then CuPy's
        if hasattr(numbers, method):
            numbers = getattr(numbers, method)()
    try:
        return np.asarray(numbers)
    except ValueError:
        raise Refused("need whole numbers as tokens, got lists") from None


def form_of_tokens(tokens):
    """Return "lists" for a list, and "array" for anything else."""
    return "lists" if isinstance(tokens, list) else "array"


def array_of(tokens, B, K):
    """Return an array or lists of tokens as an array; raise Refused unless it is [B, K + 1]."""
    if form_of_tokens(tokens) == "lists":
        return array_of_lists(tokens, B, K)
    tokens = on_host(tokens)
    if tokens.shape != (B, K + 1) or tokens.dtype.kind != "i":
        raise Refused(f"need signed integers of shape [B, K + 1] = {[B, K + 1]}, "
                      f"got {tokens.dtype} of shape {[*tokens.shape]}")
    return tokens.astype(np.int64)


def array_of_lists(lists, B, K):
    """Return one list of tokens per row as an array, each filled up with -1. [B, K + 1]"""
    if len(lists) != B:
        raise Refused(f"need {B} lists of tokens, one for each row, got {len(lists)}")
    tokens = np.full((B, K + 1), -1)
    for row, of_row in enumerate(map(on_host, lists)):
        # an empty list has no type; check_tokens refuses it
        is_whole = of_row.dtype.kind == "i" or of_row.size == 0
        if of_row.ndim != 1 or of_row.size > K + 1 or not is_whole:
            raise Refused(f"need a list of 1 to {K + 1} whole numbers for each row, "
                          f"got {of_row.tolist()}", row)
        tokens[row, : len(of_row)] = of_row
    return tokens


def tokens_before_padding(tokens, n_accepted):
    """Return the n_accepted guesses and the token after them, then -1. [B, K + 1]"""
    K = tokens.shape[1] - 1
    is_read = np.arange(K + 1) <= n_accepted[:, None]
    is_wrong = (n_accepted < 0) | (n_accepted > K) | (is_read & (tokens < 0)).any(axis=1)
    if is_wrong.any():
        row = int(is_wrong.argmax())  # the first
        raise Refused(f"need n_accepted of 0 .. {K}, the number of accepted guesses, and one token "
                      f"more than that, got {n_accepted[row]} with {tokens[row].tolist()}", row)
    return np.where(is_read, tokens, -1)


# ---- boxes of uniforms with a constant answer

def first_changes(answer, case, low, high, rng, n_samples):
    """Return for each box an axis (-1: none) and the coordinate at which the answer changes.

    Walk from the low corner to n_samples points. A walk changes one axis after another. The first
    walk goes to the high corner, the others to random points. Bisect the first step with a change
    of the first walk that has one.
    """
    n_boxes, n_axes = low.shape
    box = np.tile(np.arange(n_boxes), n_samples)  # of each walk: all boxes, then all again
    goal = rng.integers(low[box], high[box], endpoint=True)
    goal[:n_boxes] = high
    # after step a of a walk the first a coordinates are the goal's, [n_axes + 1, n_walks, n_axes]
    axes = np.arange(n_axes)
    steps = np.stack([np.where(axes < a, goal, low[box]) for a in range(n_axes + 1)])
    tokens = np.stack([answer(case[box], points) for points in steps])
    is_change = (tokens[1:] != tokens[:-1]).any(axis=-1)  # [n_axes, n_samples * n_boxes]
    # the first walk of each box with a change (walk 0 if there is none), and its first change
    has_change = is_change.any(axis=0).reshape(n_samples, n_boxes)
    sample = has_change.argmax(axis=0)  # argmax of booleans: the first True
    walk = sample * n_boxes + np.arange(n_boxes)
    is_change = is_change[:, walk]
    axis = np.where(is_change.any(axis=0), is_change.argmax(axis=0), -1)
    first = np.zeros(n_boxes, dtype=np.int64)
    cut = np.flatnonzero(axis >= 0)
    if len(cut):
        # the points and answers before the step; [cut] leaves out the boxes with axis -1
        start = steps[axis, walk][cut]
        old = tokens[axis, walk][cut]
        first[cut] = coordinate_of_change(answer, case[cut], start, old, axis[cut], goal[walk[cut]])
    return axis, first


def coordinate_of_change(answer, case, start, old, axis, goal):
    """Return the first coordinate on the way from start to goal at which the answer is not old.

    The way is along one axis. The answer is old at the start, and not at the goal.
    """
    each = np.arange(len(case))
    point = start.copy()

    def is_old(coordinate):
        point[each, axis] = coordinate
        return (answer(case, point) == old).all(axis=1)

    below = start[each, axis]
    above = goal[each, axis]
    while (above - below > 1).any():  # the answer is old at `below`, and not at `above`
        middle = (below + above) // 2
        is_below = is_old(middle)
        below = np.where(is_below, middle, below)
        above = np.where(is_below, above, middle)
    # ask once more on both sides: the answers were given in batches with other rows
    if (below >= above).any() or not is_old(above - 1).all() or is_old(above).any():
        raise Refused(DEPENDS)
    return above


def find_boxes(answer, n_cases, n_axes, top, rng, n_samples=SAMPLES):
    """Return case [n], low and high corners [n, n_axes] of all boxes, or None if too many.

    A case starts as one box, all its uniforms. A box is cut in two where the answer changes.
    """
    done = []
    case = np.arange(n_cases)
    low = np.zeros((n_cases, n_axes), dtype=np.int64)
    high = np.full((n_cases, n_axes), top)
    while len(case):  # some boxes are not known to be constant
        axis, first = first_changes(answer, case, low, high, rng, n_samples)
        is_cut = axis >= 0
        done.append((case[~is_cut], low[~is_cut], high[~is_cut]))
        if is_cut.sum() > MOST_BOXES * n_cases or len(done) > MOST_CUTS:
            return None
        axis = axis[is_cut]
        first = first[is_cut]
        # the lower halves end before the change, the upper halves begin at it
        n = len(axis)  # rows 0 .. n - 1 and n .. 2 n - 1
        case = np.tile(case[is_cut], 2)
        low = np.tile(low[is_cut], (2, 1))
        high = np.tile(high[is_cut], (2, 1))
        high[np.arange(n), axis] = first - 1
        low[n + np.arange(n), axis] = first
    return [np.concatenate(part) for part in zip(*done)]


def repeated(answer, case, points, rng):
    """Return the answers; raise Refused if a row's answer differs in a different batch."""
    tokens = answer(case, points)
    order = rng.permutation(len(case))  # row i of the shuffled batch is row order[i]
    shuffled = answer(case[order], points[order])
    alone = [answer(case[[i]], points[[i]]) for i in order[:ALONE]]
    is_same = (shuffled == tokens[order]).all()
    is_same_alone = (np.concatenate(alone) == tokens[order[:ALONE]]).all()
    if not (is_same and is_same_alone):
        raise Refused(DEPENDS)
    return tokens


# ---- the verdict

class Written(NamedTuple):
    """Hold rounds: the case of each, its tokens, its weight within its toy, its uniforms."""

    case: np.ndarray  # [n]
    tokens: np.ndarray  # [n, K + 1]
    weight: np.ndarray  # [n]
    uniforms: np.ndarray | None  # [n, K + 1]; None if the verifier drew its own


def distributions(cases, written):
    """Return the distributions of K + 1 tokens that came, and those that should have come.

    [n_toys, V ** (K + 1)] each. The target's rows complete a round that ends early.
    """
    V = cases.V
    n_toys = cases.n_toys
    toy = cases.toy[written.case]
    n_tokens = (written.tokens >= 0).sum(axis=1)
    # the only text without tokens: no round writes it, and every text starts with it
    came = np.zeros((n_toys, 1))
    should = np.ones((n_toys, 1))
    row_after = cases.target[:, :1]  # [n_toys, n_texts, V]
    for m in range(1, cases.K + 2):
        ends = n_tokens == m
        digits = V ** np.arange(m - 1, -1, -1)
        text = written.tokens[ends, :m] @ digits  # the text as a number in base V
        # the weight of each text on each toy; toy i has the bins from i V^m on
        new = np.bincount(toy[ends] * V**m + text, written.weight[ends], n_toys * V**m)
        # a text of m tokens was written by a round, or is the completion of a shorter text
        came = (came[..., None] * row_after).reshape(n_toys, -1) + new.reshape(n_toys, -1)
        should = (should[..., None] * row_after).reshape(n_toys, -1)
        last_token = np.arange(V**m) % V
        row_after = cases.target[:, 1 + last_token]
    return came, should


def starts_of(texts, V, m):
    """Return the distribution of the first m tokens of texts. [.., V ** m]"""
    return texts.reshape(*texts.shape[:-1], V**m, -1).sum(axis=-1)


def most_tokens(cases):
    """Return the most tokens per round of any lossless test of one chain, on each toy.

    Block verification (Sun et al., 2024) is the best test: it accepts t guesses or more with
    probability share[t]. A guess multiplies the share by its ratio, and a share above 1 becomes 1.
    """
    share = np.ones(len(cases.weight))
    tokens = share.copy()  # one token without a guess
    each = np.arange(len(share))
    for t in range(cases.K):
        is_guess = cases.guesses[:, t] >= 0
        p_target = np.float64(cases.p_target[each, t, cases.guesses[:, t]])
        p_draft = np.where(is_guess, cases.p_draft[each, t, cases.guesses[:, t]], 1)
        share = np.minimum(share * p_target / p_draft, 1) * is_guess
        tokens += share
    return np.bincount(cases.toy, tokens * cases.weight)


def too_many_tokens(cases, written, margin):
    """Return a line if, on a toy, a round has more tokens than any lossless test of one chain."""
    n_tokens = (written.tokens >= 0).sum(axis=1)
    per_round = np.bincount(cases.toy[written.case], n_tokens * written.weight)
    most = most_tokens(cases)
    toy = int((per_round - most).argmax())
    if per_round[toy] <= most[toy] + margin:
        return []
    return [f"more tokens per round than any lossless test of one chain: {per_round[toy]:.4g} on a "
            f"toy where the most is {most[toy]:.4g}"]


def first_fault(cases, came, should, m, toy, written):
    """Return a token that comes too often at position m - 1, and lines with an example."""
    shape = [cases.V] * m  # one axis per token of the text's start
    came = starts_of(came[toy], cases.V, m).reshape(shape)
    should = starts_of(should[toy], cases.V, m).reshape(shape)
    text = [int(token) for token in np.unravel_index(np.argmax(came - should), shape)]
    before = tuple(text[:-1])
    lines = [f"first wrong token: {text[-1]} at position {m - 1}, after {text[:-1]}"]

    # the likeliest round that wrote this text, or a round of weight 0 if none did
    wrote_it = (written.tokens[:, :m] == text).all(axis=1) & (cases.toy[written.case] == toy)
    i = np.argmax(written.weight * wrote_it)  # the other rounds count 0
    case = written.case[i]
    # P(the tokens before, then each token): divided by their sums below
    rows = {"came": came[before], "should": should[before]}
    if wrote_it[i] and (cases.guesses[case] >= 0).sum() >= m:
        rows["p_draft"] = cases.p_draft[case, m - 1]
    # each row divided by its sum: a distribution of the token at this position
    for name, row in rows.items():
        lines.append(f"  {name:10}{np.round(np.float64(row) / row.sum(), 6).tolist()}")
    if wrote_it[i]:
        numbers = ""
        if written.uniforms is not None:
            numbers = f" and uniforms {np.round(written.uniforms[i], 4).tolist()}"
        lines.append(f"example: guesses {cases.guesses[case].tolist()}{numbers} "
                     f"gave {written.tokens[i].tolist()}")
    return (m - 1, text[:-1], text[-1]), lines


def known_rule(distances, per_round):
    """Return the name of the rule with these figures, or None."""
    for name, figures in KNOWN.items():
        if np.allclose(figures[:3], (*distances, per_round), rtol=0, atol=TOLERANCE):
            return name
    return None


def report_on(cases, differ, margin, method, written, is_enumerated):
    """Return the Report on the rounds.

    `differ(came, should)` compares starts of all toys; `margin` is that of tokens per round.
    """
    came, should = distributions(cases, written)
    distances = abs(came - should).sum(axis=-1) / 2
    toy = int(distances.argmax())
    distance = float(distances[toy])
    n_tokens = (written.tokens >= 0).sum(axis=1)
    per_round = float(n_tokens @ written.weight / cases.n_toys)
    padding = "" if cases.padding else "no padding, "
    summary = (f"total variation {distance:.2g} from the target's distribution, {per_round:.4g} "
               f"tokens per round (K = {cases.K}, V = {cases.V}, {padding}{method}"
               f"{READ_FORMS[cases.form]})")

    for m in range(1, cases.K + 2):
        is_wrong = differ(starts_of(came, cases.V, m), starts_of(should, cases.V, m))
        if is_wrong.any():
            break
    else:  # no start of any length differs
        exact = True if is_enumerated else None
        verdict = "exact" if exact else "no fault seen"
        return Report(exact, distance, f"{verdict}: {summary}", None, None, per_round, came)

    # m is the first length that differs on any toy: on the toy with the largest distance it may not
    if not is_wrong[toy]:
        toy = int(is_wrong.argmax())
    first_wrong_token, lines = first_fault(cases, came, should, m, toy, written)
    lines += too_many_tokens(cases, written, margin)
    rule = None
    # a sample's figures are not exact enough to name a rule
    if is_enumerated and cases.has_known_figures:
        rule = known_rule(distances, per_round)
    if rule:
        lines.append(f"the same figures as: {rule}")
    if is_enumerated and cases.dtype == "float64" and distance < DTYPES["float32"][1]:
        lines.append('within float32 rounding: for a verifier in float32 say dtype="float32"')
    text = "\n".join([f"NOT exact: {summary}", *lines, f"({ORIGIN})"])
    return Report(False, distance, text, first_wrong_token, rule, per_round, came)


def not_checked(refused, cases):
    """Return the Report on what cannot be judged."""
    place = cases.where(refused.row)
    return Report(None, np.nan, f"not checked: {refused} ({place}; {ORIGIN})")


def check(verify, K=3, V=3, dtype="float64", asarray=np.asarray, padding=False, rows=None):
    """Return the Report on a verifier whose uniforms are arguments.

    dtype     in which the verifier computes
    asarray   converts NumPy's arrays to the verifier's arguments
    padding   whether some rows have fewer guesses
    rows      your toy instead of TOYS: (draft, target), [V + 1, V] each; a row sums to 1
    """
    cases = Cases(K, V, dtype, asarray, padding, rows)
    rng = np.random.default_rng(0)
    bits, rounding = DTYPES[dtype]
    n_cases = len(cases.weight)

    def answer(case, points):
        return cases.call(verify, case, points / 2.0**bits)

    try:
        # a first look: if answers depend on the batch, no threshold can be found
        case = rng.integers(n_cases, size=REPEATED)
        repeated(answer, case, rng.integers(2**bits, size=(REPEATED, K + 1)), rng)
        boxes = find_boxes(answer, n_cases, K + 1, 2**bits - 1, rng)
        if boxes is None:  # uniforms are not compared with thresholds
            return check_by_sampling(verify, 100_000, K, V, dtype, asarray, padding, rows,
                                     pass_uniforms=True)
        case, low, high = boxes
        tokens = repeated(answer, case, (low + high) // 2, rng)
    except Refused as error:
        return not_checked(error, cases)
    # a case's weight is divided among its boxes by their volumes
    weight = cases.weight[case] * ((high - low + 1) / 2.0**bits).prod(axis=1)
    method = "the same for all uniforms" if len(case) == n_cases else f"{len(case):,} boxes"
    middle = (low + high) / 2 / 2.0**bits
    written = Written(case, tokens, weight, middle)

    def differ(came, should):
        return abs(came - should).sum(axis=-1) / 2 > rounding

    margin = 10 * rounding
    return report_on(cases, differ, margin, method, written, is_enumerated=True)


def check_by_sampling(verify, n=100_000, K=3, V=3, dtype="float64", asarray=np.asarray,
                      padding=False, rows=None, false_alarm=1e-9, seed=0, pass_uniforms=False):
    """Return the Report on verify(guesses, p_draft, p_target), which draws its own numbers.

    Each toy gets an equal part of the n rounds. Let p be the probability of a text's start if the
    verifier is right. Its frequency in n rounds reaches a value f with a probability of at most
    exp(-n KL(f, p)), above p and below p alike (Hoeffding (1963) Theorem 1). So a right verifier
    is called wrong with a probability of at most `false_alarm`.
    """
    cases = Cases(K, V, dtype, asarray, padding, rows)
    n_each = whole_number("n", n, cases.n_toys) // cases.n_toys  # rounds per toy
    rng = np.random.default_rng(seed)
    # two events for each toy and each start of a text: a frequency too high, or too low
    n_events = 2 * cases.n_toys * sum(cases.V**m for m in range(1, cases.K + 2))
    limit = np.log(n_events / false_alarm) / n_each

    def differ(f, p):
        return (kl(f, p) > limit).any(axis=-1)

    drawn = []
    for toy in range(cases.n_toys):
        cases_of_toy = np.flatnonzero(cases.toy == toy)
        drawn.append(rng.choice(cases_of_toy, n_each, p=cases.weight[cases_of_toy]))
    case = np.concatenate(drawn)
    uniforms = rng.integers(2**24, size=(len(case), K + 1)) / 2.0**24  # exact in float32
    call = verify if pass_uniforms else lambda *arrays: verify(*arrays[:3])
    try:
        tokens = cases.call(call, case, uniforms)
    except Refused as error:
        return not_checked(error, cases)
    # the last figure of a rule: the rounds that show it
    n_seen = sum(figures[-1] <= len(case) for figures in KNOWN.values())
    method = (f"{len(case):,} sampled rounds; for K = V = 3 they show {n_seen} of {len(KNOWN)} "
              "wrong rules")
    written = Written(case, tokens, np.full(len(case), 1 / n_each),
                      uniforms if pass_uniforms else None)
    # the mean of n_each numbers between 1 and K + 1 (Hoeffding (1963) Theorem 2)
    margin = cases.K * np.sqrt(np.log(cases.n_toys / false_alarm) / (2 * n_each))
    return report_on(cases, differ, margin, method, written, is_enumerated=False)


def kl(f, p):
    """Return the divergence of coins with the probabilities f from coins with p."""
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 log 0 is 0
        heads = np.where(f > 1e-12, f * np.log(f / p), 0)
        tails = np.where(f < 1 - 1e-12, (1 - f) * np.log((1 - f) / (1 - p)), 0)
    return heads + tails


# ---- programs

def write_texts(pipe, texts):
    """Write the texts of a queue, up to None or until nobody reads the pipe."""
    with contextlib.suppress(OSError), pipe:
        for text in iter(texts.get, None):
            pipe.write(text)
            pipe.flush()


def read_answers(pipe, answers):
    """Put each line of a pipe into a queue, then None."""
    with pipe:
        # in pieces, because a program may print without ever ending its line
        for answer in iter(partial(pipe.readline, LONGEST), ""):
            answers.put(answer)
    answers.put(None)


def end(process, texts, threads):
    """End a program's input; kill a program that still runs a second later; close its pipes."""
    texts.put(None)
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)  # its children too: `go run` has one
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
    only, and never longer than `seconds`: neither a program that does not read nor a program
    that does not print can block the caller.
    """

    def __init__(self, words, seconds=SECONDS):
        if not 0 < seconds < 1e6:
            raise ValueError(f"need 0 < seconds < 1e6, got {seconds!r}")
        self.seconds = seconds
        self.printed = {}  # {bytes of rows: their numbers as text}
        self.row = 0  # of the call: its line is given, and is not answered yet
        try:
            # a session of its own: end() kills the program's children too
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                errors="backslashreplace", start_new_session=True)
        except OSError as error:
            raise ValueError(f"cannot run {words[0]}: {error.strerror}") from None
        self.texts = queue.SimpleQueue()
        self.answers = queue.SimpleQueue()
        threads = [
            threading.Thread(target=write_texts, args=(self.process.stdin, self.texts)),
            threading.Thread(target=read_answers, args=(self.process.stdout, self.answers))]
        for thread in threads:
            thread.daemon = True  # Python's end does not wait for it
            thread.start()
        # runs once: if the program is refused, if nobody holds this object, or when Python ends
        self.end = weakref.finalize(self, end, self.process, self.texts, threads)

    def __call__(self, guesses, p_draft, p_target, uniforms=None):
        """Return the program's tokens. [B, K + 1]"""
        K = guesses.shape[1]
        lines = [self.text_of(*rows) for rows in zip(guesses, p_draft, p_target)]
        if uniforms is not None:
            lines = [f"{line} {spaced(row)}" for line, row in zip(lines, uniforms.tolist())]
        tokens = []
        self.row = 0
        # in pieces, so that a slow program is not refused for the number of its lines
        for start in range(0, len(lines), LINES):
            tokens += self.tokens_for(lines[start:start + LINES], K)
        return np.array(tokens)

    def text_of(self, guesses, p_draft, p_target):
        """Return a line without its uniforms; the toys have few, so each is printed once."""
        rows = guesses, p_draft, p_target
        # the bytes of all three arrays tell a case from all others
        key = b"".join(row.tobytes() for row in rows)
        if key not in self.printed:
            numbers = [*p_draft.shape]  # K, V
            for row in rows:
                numbers += row.ravel().tolist()
            self.printed[key] = spaced(numbers)
        return self.printed[key]

    def tokens_for(self, lines, K):
        """Return the program's K + 1 tokens for each of these lines."""
        # all lines before were answered, so what came since is too much
        if not self.answers.empty():
            early = self.next_answer(lines[0], 0)
            raise self.refused(f"printed {quoted(early)} before it was given", lines[0])
        self.texts.put("\n".join(lines) + "\n")
        # K + 1 whole numbers of at most nine digits
        is_answer = re.compile(rf"\s*-?[0-9]{{1,9}}(\s+-?[0-9]{{1,9}}){{{K}}}\s*").fullmatch
        last_moment = time.monotonic() + self.seconds
        tokens = []
        for line in lines:
            answer = self.next_answer(line, last_moment - time.monotonic())
            if not is_answer(answer):
                raise self.refused(f"printed {quoted(answer)} instead of K + 1 = {K + 1} whole "
                                   "numbers for", line)
            tokens.append([int(word) for word in answer.split()])
            self.row += 1
        return tokens

    def next_answer(self, line, seconds):
        """Return the next line that the program prints; raise Refused if none comes."""
        try:
            answer = self.answers.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise self.refused(f"has not printed a line within {self.seconds:g} seconds (does it "
                               "flush its output after each line?) for", line) from None
        if answer is None:
            self.end()  # which waits for the status
            raise self.refused(f"ended with status {self.process.returncode} instead of an "
                               "answer to", line)
        return answer

    def refused(self, deed, line):
        """End the program; return what to raise."""
        self.end()
        return Refused(f'the program {deed} the line "{line}"', self.row)


# ---- the command

STATUS = {True: 0, False: 1, None: 2}  # exit status
IN_PROJECT = Path(__file__).parent.name == "exact"
PROGRAM = "python -m exact.oracle" if IN_PROJECT else f"python {Path(__file__).name}"


class OneLineParser(argparse.ArgumentParser):
    """Parse as argparse does, with errors in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def verifier_of_file(path):
    """Return the `verify` of a Python file and its OPTIONS; ValueError if that cannot be."""
    if not Path(path).is_file():
        raise ValueError(f"cannot read {path}: no such file")
    try:
        names = runpy.run_path(path)
    except SyntaxError as error:
        raise ValueError(f"need a Python file, got {path}: line {error.lineno}: "
                         f"{error.msg}") from None
    verify = names.get("verify")
    options = names.get("OPTIONS", {})  # keyword arguments of `check`
    if not callable(verify):
        raise ValueError(f"need a function verify in {path}")
    parameters = inspect.signature(verify).parameters
    if [*parameters][-1:] == ["rng"]:
        raise ValueError(f"for a verify with an rng: python -m exact.judge {path}")
    try:
        inspect.signature(verify).bind("guesses", "p_draft", "p_target", "uniforms")
    except TypeError:
        raise ValueError("need verify(guesses, p_draft, p_target, uniforms), got "
                         f"verify({', '.join(parameters)})") from None
    known = [*inspect.signature(check).parameters][1:]  # all but `verify`
    if not isinstance(options, dict) or not set(options) <= set(known):
        raise ValueError(f"need a dict OPTIONS with keys of {known}, got {options!r}")
    return verify, options


def place_of(error, path):
    """Return "FILE.py, line 9: IndexError: .." if the file raised it, or the message alone."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == str(path)]
    if lines:
        return f"{path}, line {lines[-1]}: {type(error).__name__}: {error}"
    return str(error)


def report_on_program(words, sampling=False, seconds=SECONDS, **options):
    """Return the Report on a program, its name and its arguments."""
    verify = Program(words, seconds)
    return check_by_sampling(verify, **options) if sampling else check(verify, **options)


def parser_of_words():
    """Return the parser of the command line."""
    parser = OneLineParser(PROGRAM, description=__doc__.split("\n")[0], allow_abbrev=False,
                    epilog="Exit status: 0 exact (with --sampling: no fault found), 1 not exact, "
                           "2 not known or not checked.")
    parser.add_argument("file", nargs="?", metavar="FILE.py",
                        help="a file with a function verify, and perhaps a dict OPTIONS")
    program = parser.add_argument_group("a program", "--command comes last")
    program.add_argument("--K", type=int, help="guesses (default 3)")
    program.add_argument("--V", type=int, help="tokens of the vocabulary (default 3)")
    program.add_argument("--dtype", help="the program computes in float64 (default) or float32")
    program.add_argument("--padding", action="store_true", default=None,
                         help="some lines have fewer guesses, then -1 and rows of zeros")
    program.add_argument("--sampling", action="store_true", default=None,
                         help="the program draws its own random numbers, so lines have no uniforms")
    program.add_argument("--seconds", type=float,
                         help=f"time limit for the start and {LINES} lines (default {SECONDS:g})")
    program.add_argument("--command", nargs=argparse.REMAINDER,
                         help="the program, and all its arguments")
    return parser


def split_words(argv):
    """Return the oracle's words, and the program's words or None."""
    # not by argparse, which reads a "--" among the program's words
    if "--command" not in argv:
        return argv, None
    place = argv.index("--command")
    return argv[:place], argv[place + 1:]


def main(argv=None):
    parser = parser_of_words()
    ours, words = split_words(sys.argv[1:] if argv is None else argv)
    settings = vars(parser.parse_args(ours))
    path = settings.pop("file")
    settings.pop("command")  # `words` has the program
    settings = {name: value for name, value in settings.items() if value is not None}
    # `words` is an empty list after --command without a program
    is_file = path and words is None
    is_program = words and not path
    if not is_file and not is_program:
        parser.error("need FILE.py or --command PROGRAM")
    if path and settings:
        parser.error(f"--{[*settings][0]} is for --command; a file has a dict OPTIONS")
    # a verifier's error is reported as a wrong argument is: in one line, with status 2
    try:
        if words:
            report = report_on_program(words, **settings)
        else:
            verify, options = verifier_of_file(path)
            report = check(verify, **options)
    except KeyboardInterrupt:
        parser.exit(130, f"{PROGRAM}: interrupted\n")
    except (Exception, SystemExit) as error:
        parser.error(" ".join(place_of(error, path).split()))
    try:
        print(report, flush=True)
    except BrokenPipeError:  # as in `| head -1`: nobody reads the rest
        # Python flushes stdout when it ends, and the closed pipe would raise once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # tokens per round: the verifier was sampled, and not refused
    if settings.get("sampling") and report.exact is None and report.tokens_per_round:
        return 0  # no fault seen: a sample cannot show more
    return STATUS[report.exact]


if __name__ == "__main__":
    sys.exit(main())
