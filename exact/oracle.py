# SPDX-License-Identifier: MIT. Copyright (c) 2026 The authors of this repository.
"""Check whether a verifier of speculative decoding is lossless. One file, NumPy only: copy it.

    report = check(verify)      verify(guesses, p_draft, p_target, uniforms) -> tokens
    assert report.exact, report

    guesses    [B, K]            tokens, drawn from p_draft
    p_draft    [B, K, V]         row t: the distribution that guess t was drawn from
    p_target   [B, K + 1, V]     row t: the target's distribution at that position
    uniforms   [B, K + 1]        independent uniform numbers in [0, 1)
    tokens     [B, K + 1]        the accepted guesses and one more token, then -1

The arrays are NumPy's, or what `asarray=` makes of them (torch.as_tensor, cupy.asarray, ..).
With `padding=True` some rows have fewer guesses, then -1 and rows of zeros. Other arguments need
a lambda: final uniforms of their own, no p_draft (one-hot rows), a bonus token that was drawn:

    check(lambda g, q, p, u: verify(g, q, p, u[:, :-1], u[:, -1]))
    check(lambda g, q, p, u: verify(g, p, u))
    check(lambda g, q, p, u: verify(g, q, p[:, :-1], u, draw(p[:, -1], u[:, -1])))

How it works. The verifier is called with every path of guesses of a small model, ROWS. Its
answer changes only where a uniform crosses a threshold. Bisection finds the thresholds and cuts
the cube of uniforms into boxes; one call per box gives the distribution of what is written. A
round that ends early is completed with the target's rows. Uniforms are multiples of 2^-24
(float32) or 2^-52 (float64), so the sum is exact. A search found ROWS (exact/rows.py): there
each rule in KNOWN is visible.

    check_by_sampling(verify, n)       for verifiers that draw their own random numbers
    python -m exact.oracle FILE.py     a copy of this file: python oracle.py FILE.py
"""

import runpy
import sys
from itertools import product
from typing import NamedTuple

import numpy as np

DTYPES = {"float32": (24, 1e-6), "float64": (52, 1e-12)}  # bits of a uniform, rounding
CHUNK = 1 << 16  # rows per call
MOST_BOXES = 1 << 5  # per path of guesses, at a time; half the most cuts one after another
SAMPLES = 1 << 6  # points at which a box is tested

# V: the rows after no token, after token 0, after token 1, .. in 16ths, of draft and target
ROWS = {
    3: ([[6, 7, 3], [0, 0, 16], [14, 2, 0], [4, 5, 7]],
        [[6, 2, 8], [1, 7, 8], [8, 4, 4], [4, 5, 7]]),
    4: ([[2, 1, 8, 5], [2, 7, 4, 3], [0, 0, 16, 0], [9, 1, 4, 2], [0, 6, 4, 6]],
        [[4, 4, 4, 4], [3, 8, 2, 3], [2, 1, 6, 7], [9, 1, 4, 2], [5, 3, 3, 5]]),
}

# Wrong rules for V = K = 3: total variation from the target, tokens per round, and the rounds
# that check_by_sampling needs to see the rule with a probability above 1 - 1e-6.
KNOWN = {
    '"q = 1"; argmax guesses, accepted from p_target = .5 on': (0.2444, 2.501854, 1099),
    '"q = 1"; argmax guesses, always rejected': (0.05, 1.0, 15561),
    "match with the target's best token, at any temperature": (0.5, 1.30542, 325),
    "match, then a fresh draw": (0.071972, 1.468982, 9876),
    "match or the ratio test, then the residual": (0.162415, 2.875916, 2464),
    "accept if p_target >= p_draft": (0.330078, 1.839355, 1028),
    "accept if p_target >= p_draft, then a draw from the target": (0.164062, 1.839355, 1418),
    "ratio test, then a draw from the target": (0.202148, 2.51123, 1261),
    "ratio test, then the target without the guess": (0.141741, 2.51123, 2122),
    "ratio test, then a draw from the next row": (0.271484, 2.51123, 654),
    "ratio test with the target's next row": (0.249268, 1.823486, 878),
    "ratio test, .01 added to p_draft and to the residual": (0.010825, 2.463799, 388997),
    "bonus token from the last guess's row": (0.060181, 2.51123, 9255),
    "one uniform for all tests of a round": (0.078125, 2.64209, 1472),
    "one uniform for a test and its replacement": (0.053223, 2.51123, 14431),
    "products of ratios and of uniforms, then the residual of one row": (0.375461, 3.45235, 403),
    "traversal, divided by what the draft has left": (0.34375, 3.195801, 197),
    "drop a low-confidence guess; drawn, ratio test": (0.164062, 1.21875, 1184),
    "the number of guesses that pays best; ratio test": (0.087891, 2.111328, 7842),
}


class Refused(Exception):
    """State in one sentence why a verifier cannot be checked."""


class Report(NamedTuple):
    """Hold the verdict; print it to read it."""

    exact: bool | None  # None: not known
    distance: float  # total variation
    text: str
    first_wrong_token: tuple | None = None  # its position, the tokens before it, the token
    rule: str | None = None  # of KNOWN, with the same distribution
    tokens_per_round: float | None = None
    texts: np.ndarray | None = None  # [V ** (K + 1)], the distribution of K + 1 tokens

    def __str__(self):
        return self.text


class Cases:
    """Hold all inputs but the uniforms: every path of guesses, and its probability `weight`."""

    def __init__(self, K, V, dtype="float64", asarray=np.asarray, padding=False, rows=None):
        if dtype not in DTYPES or K < 1 or (rows is None and V not in ROWS):
            raise ValueError(f"need K >= 1, V of {[*ROWS]} (or rows=), dtype of {[*DTYPES]}, "
                             f"got K = {K}, V = {V}, {dtype!r}")
        self.K, self.V, self.dtype, self.asarray = K, V, dtype, asarray
        draft, self.target = (np.array(part) / 16 for part in ROWS[V]) if rows is None else rows
        numbers = range(0 if padding else K, K + 1)
        guesses = np.array([(*path, *[-1] * (K - k)) for k in numbers
                            for path in product(range(V), repeat=k)])
        is_guess = guesses >= 0
        last = np.pad(guesses + 1, ((0, 0), (1, 0)))  # [n, K + 1], which row of the model
        p_draft, p_target = draft[last[:, :-1]], self.target[last]
        drawn = np.take_along_axis(p_draft, np.maximum(guesses, 0)[..., None], axis=-1)[..., 0]
        weight = np.where(is_guess, drawn, 1).prod(axis=1) / len(numbers)
        p_draft[~is_guess] = 0
        p_target[:, 1:][~is_guess] = 0
        some = weight > 0
        self.weight, self.guesses = weight[some], guesses[some]
        self.p_draft, self.p_target = p_draft[some].astype(dtype), p_target[some].astype(dtype)

    def call(self, verify, case, uniforms):
        """Return the tokens that the verifier writes for these cases. [B, K + 1]"""
        if len(case) > CHUNK:
            parts = np.split(np.arange(len(case)), range(CHUNK, len(case), CHUNK))
            return np.concatenate([self.call(verify, case[i], uniforms[i]) for i in parts])
        guesses = self.guesses[case]
        arrays = guesses, self.p_draft[case], self.p_target[case], uniforms.astype(self.dtype)
        tokens = verify(*map(self.asarray, arrays))
        for method in ("detach", "cpu", "get"):  # to the host: PyTorch's, then CuPy's
            tokens = getattr(tokens, method)() if hasattr(tokens, method) else tokens
        return self.checked(np.asarray(tokens), (guesses >= 0).sum(axis=1))

    def checked(self, tokens, k):
        """Return the tokens; raise Refused unless each row has 1 .. k + 1 of them, then -1."""
        if tokens.shape != (len(k), self.K + 1) or tokens.dtype.kind not in "iu":
            raise Refused(f"need integers of shape [B, K + 1] = {[len(k), self.K + 1]}, "
                          f"got {tokens.dtype} of shape {[*tokens.shape]}")
        n = (tokens >= 0).sum(axis=1)
        is_end = np.arange(self.K + 1) >= n[:, None]
        is_wrong = (tokens < -1) | (tokens >= self.V) | ((tokens < 0) != is_end)
        for row in np.flatnonzero(is_wrong.any(axis=1) | (n < 1) | (n > k + 1)):
            raise Refused(f"need 1 to {k[row] + 1} tokens of 0 .. {self.V - 1} for {k[row]} "
                          f"guesses, then -1, got {tokens[row].tolist()}")
        return tokens.astype(np.int64)


def first_changes(answer, case, low, high, rng, n_samples):
    """Return for each box an axis (-1: none) and a coordinate at which the answer changes.

    Walk from the low corner to the high one and to random points, axis after axis, and bisect
    the first step with a change.
    """
    each, n_axes = np.arange(len(case)), low.shape[1]
    box = np.tile(each, n_samples)
    to = rng.integers(low[box], high[box], endpoint=True)
    to[: len(case)] = high
    walk = np.stack([np.where(np.arange(n_axes) < a, to, low[box]) for a in range(n_axes + 1)])
    tokens = np.stack([answer(case[box], points) for points in walk])
    is_change = (tokens[1:] != tokens[:-1]).any(axis=-1)  # [n_axes, n_samples * n_boxes]
    way = is_change.any(axis=0).reshape(n_samples, -1).argmax(axis=0) * len(case) + each
    axis = np.where(is_change[:, way].any(axis=0), is_change[:, way].argmax(axis=0), -1)
    point, old = walk[axis, way], tokens[axis, way]
    below, above = point[each, axis], np.where(axis < 0, point[each, axis], to[way, axis])
    while (above - below > 1).any():
        point[each, axis] = middle = (below + above) // 2
        is_old = (answer(case, point) == old).all(axis=1)
        below, above = np.where(is_old, middle, below), np.where(is_old, above, middle)
    return axis, above


def find_boxes(answer, n_cases, n_axes, top, rng, n_samples=SAMPLES):
    """Return case [n], low and high corners [n, n_axes] of all boxes, or None if too many.

    A case starts as one box, all its uniforms. A box is cut in two where the answer changes.
    """
    case, boxes = np.arange(n_cases), []
    low, high = np.zeros((n_cases, n_axes), dtype=np.int64), np.full((n_cases, n_axes), top)
    while len(case):
        axis, first = first_changes(answer, case, low, high, rng, n_samples)
        some = axis >= 0  # boxes with a change
        boxes.append([part[~some] for part in (case, low, high)])
        case, low, high, axis, first = (part[some] for part in (case, low, high, axis, first))
        if len(case) > MOST_BOXES * n_cases or len(boxes) > 2 * MOST_BOXES:
            return None
        case, low, high = np.tile(case, 2), np.tile(low, (2, 1)), np.tile(high, (2, 1))
        high[range(len(axis)), axis] = first - 1
        low[range(len(axis), len(low)), axis] = first
    return [np.concatenate(part) for part in zip(*boxes)]


def compare(cases, written, weight):  # -> [2, V ** (K + 1)]
    """Return the distribution of K + 1 tokens that came, and the one that should have come."""
    V, code = cases.V, np.zeros(len(written), dtype=np.int64)
    for column in written.T:  # a row of tokens as a number in base V, with the digits 1 .. V
        code = np.where(column < 0, code, code * V + column + 1)
    # the target's rows complete what was written; nothing, completed, is what should have come
    n_codes = (V ** (cases.K + 2) - 1) // (V - 1)
    mass = np.stack([np.bincount(code, weight, n_codes), np.eye(n_codes)[0]])
    texts, rows, first = mass[:, :1], cases.target[:1], 1
    for m in range(1, cases.K + 2):
        texts = (texts[..., None] * rows).reshape(2, -1) + mass[:, first : first + V**m]
        rows = cases.target[1 + np.arange(V**m) % V]
        first += V**m
    return texts


def explain(cases, came, should, case, written, weight, uniforms):
    """Return the text whose last token comes too often, and lines on it and on such a call."""
    text = [int(i) for i in np.unravel_index(np.argmax(came - should), came.shape)]
    m, before = len(text), tuple(text[:-1])
    rows = {"came": came[before], "should": should[before]}
    i = np.argmax(weight * (written[:, :m] == text).all(axis=1))
    if (cases.guesses[case[i]] >= 0).sum() >= m:
        rows["p_draft"] = cases.p_draft[case[i], m - 1]
    numbers = "" if uniforms is None else f" and uniforms {np.round(uniforms[i], 4).tolist()}"
    return text, [
        f"first wrong token: {text[-1]} at position {m - 1}, after {text[:-1]}",
        *(f"  {name:10}{np.round(row / row.sum(), 6).tolist()}" for name, row in rows.items()),
        f"example: guesses {cases.guesses[case[i]].tolist()}{numbers} gave {written[i].tolist()}"]


def judge(cases, differ, method, case, written, weight, uniforms=None, exact=None):
    """Return the Report on what was written, in which cases and with which weights."""
    came, should = compare(cases, written, weight)
    distance = float(abs(came - should).sum() / 2)
    per_round = float((written >= 0).sum(axis=1) @ weight)
    summary = (f"total variation {distance:.2g} from the target's distribution, "
               f"{per_round:.4g} tokens per round (K = {cases.K}, V = {cases.V}, {method})")
    starts = [[part.reshape(*[cases.V] * m, -1).sum(axis=-1) for part in (came, should)]
              for m in range(1, cases.K + 2)]  # of 1, 2, .. K + 1 tokens
    wrong = [pair for pair in starts if differ(*pair)]
    if not wrong:
        word = "exact" if exact else "no fault seen"
        return Report(exact, distance, f"{word}: {summary}", None, None, per_round, came)
    text, lines = explain(cases, *wrong[0], case, written, weight, uniforms)
    rule = next((name for name, known in KNOWN.items()
                 if np.allclose(known[:2], (distance, per_round), rtol=0, atol=3e-6)), None)
    lines = [f"NOT exact: {summary}", *lines, *[f"the same distribution: {rule}"] * bool(rule)]
    first_wrong = len(text) - 1, text[:-1], text[-1]
    return Report(False, distance, "\n".join(lines), first_wrong, rule, per_round, came)


def check(verify, K=3, V=3, **options):
    """Return the Report on a verifier whose uniforms are arguments. `options`: as for Cases."""
    cases, rng = Cases(K, V, **options), np.random.default_rng(0)
    bits, rounding = DTYPES[cases.dtype]
    answer = lambda case, points: cases.call(verify, case, points / 2.0**bits)
    case = rng.integers(len(cases.weight), size=512)
    points, some = rng.integers(2**bits, size=(512, K + 1)), rng.permutation(512)[:300]
    try:
        if (answer(case, points)[some] != answer(case[some], points[some])).any():
            raise Refused("a row's tokens depend on more than its arguments: on other rows, or "
                          "on random numbers drawn inside (then use check_by_sampling)")
        boxes = find_boxes(answer, len(cases.weight), K + 1, 2**bits - 1, rng)
        if boxes is None:  # uniforms are not compared with thresholds
            return check_by_sampling(verify, K=K, V=V, pass_uniforms=True, **options)
        case, low, high = boxes
        written = answer(case, (low + high) // 2)
    except Refused as error:
        return Report(False, np.nan, f"not checked: {error}")
    weight = cases.weight[case] * ((high - low + 1) / 2.0**bits).prod(axis=1)
    is_constant = len(case) == len(cases.weight)
    method = "the same for all uniforms" if is_constant else f"{len(case):,} boxes"
    return judge(cases, lambda came, should: abs(came - should).sum() / 2 > rounding, method,
                 case, written, weight, (low + high) / 2.0 ** (bits + 1), exact=True)


def check_by_sampling(verify, n=100_000, K=3, V=3, false_alarm=1e-9, seed=0,
                      pass_uniforms=False, **options):
    """Return the Report on verify(guesses, p_draft, p_target), which draws its own numbers.

    If it is right, the frequency of a text's start is f, or farther from its probability p,
    with a probability of at most exp(-n KL(f, p)) on either side (Hoeffding (1963) Theorem 1).
    So it is called wrong with a probability of at most `false_alarm`.
    """
    cases, rng = Cases(K, V, **options), np.random.default_rng(seed)
    limit = np.log(2 * sum(V**m for m in range(1, K + 2)) / false_alarm) / n

    def differ(f, p):
        with np.errstate(divide="ignore", invalid="ignore"):
            kl = sum(np.where(a > 1e-12, a * np.log(a / b), 0) for a, b in ((f, p), (1-f, 1-p)))
        return kl.max() > limit

    case = rng.choice(len(cases.weight), n, p=cases.weight)
    uniforms = rng.integers(2**24, size=(n, K + 1)) / 2.0**24
    call = verify if pass_uniforms else lambda *arrays: verify(*arrays[:3])
    try:
        written = cases.call(call, case, uniforms)
    except Refused as error:
        return Report(False, np.nan, f"not checked: {error}")
    n_seen = sum(needed <= n for *_, needed in KNOWN.values())
    method = f"{n:,} rounds; for K = V = 3 they show {n_seen} of {len(KNOWN)} wrong rules"
    return judge(cases, differ, method, case, written, np.full(n, 1 / n),
                 uniforms if pass_uniforms else None)


if __name__ == "__main__":  # FILE.py defines verify, and perhaps a dict OPTIONS for check
    names = runpy.run_path(sys.argv[1]) if len(sys.argv) == 2 else {}
    if "verify" not in names:
        sys.exit("need one argument: a Python file that defines verify")
    print(verdict := check(names["verify"], **names.get("OPTIONS", {})))
    sys.exit(not verdict.exact)
