"""Make verifiers with one wrong line.

    tests/data/faults.txt    the lines of the right verifier, and what is written instead, by hand
    ROUNDED    ways to round; each is tried on every line of NUMBERS
    SAMPLED    ways to sample; each is tried on every row of ROWS
    SWAPS      {piece of a line: other pieces}, tried at each occurrence in each line
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exact.rules.guesses import bfloat16  # noqa: F401  the lines use it
from exact.rules.verifiers import at, best_of  # noqa: F401
from tests.pages import file_text

MARKS = "-*!1="  # of a fault; the head of the file explains them


def read_faults(text):
    """Return {line of the right verifier: {what is written instead: its mark}}."""
    by_line: dict[str, dict] = {}
    right = ""
    for line in text.splitlines():
        mark, _, fault = line.partition(" ")
        if mark in [*MARKS]:
            by_line[right][fault] = mark
        elif line and mark != "#":
            right = line
            by_line[right] = {}
    return by_line


FAULTS = read_faults(file_text("tests/data/faults.txt").split("\n\n", 2)[2])  # without its head
RIGHT = [*FAULTS]

# names of the lines whose numbers are rounded
NUMBERS = ("rows", "p", "q", "ratio", "tests", "target_row", "draft_row", "weights", "cumulative",
           "bounds", "u")
ROUNDED = ("({}).astype(np.float16)", "bfloat16({})", "(({}) * 255).round() / 255",
           "({}).round(2)", "({}).round(3)")
# {name of a line: its rows, which are sampled}
ROWS = {"rows": "p_target[:, :K]", "target_row": "p_target[each, n]", "q": "p_draft",
        "drafts": "p_draft"}
SAMPLED = ("top_p({}, 0.95)", "top_p({}, 0.99)", "top_k({}, 2)", "min_p({}, 0.05)",
           "min_p({}, 0.1)", "greedy_above({}, 0.7)", "greedy_above({}, 0.9)",
           "normalised({}**1.001)")

SWAPS = {
    " < ": (" <= ", " > ", " >= "),
    " >= ": (" > ", " < ", " <= "),
    " > ": (" >= ", " < "),
    " / ": (" * ", " - "),
    " - ": (" + ",),
    " + 1": (" - 1", "", " + 2"),
    "np.maximum(": ("np.minimum(", "np.fmax("),
    "cumprod": ("cumsum",),
    "cumsum": ("cumprod",),
    ".sum(": (".max(", ".prod("),
    "axis=1": ("axis=0",),
    "axis=-1": ("axis=0",),
    ":K": (":1", "1:"),
    ", K]": (", 0]", ", 1]", ", K - 1]"),
    "[each, n]": ("[each, 0]", "[each, K - 1]", "[each, n - 1]", "[0, n]"),
    "-1:": (":1", "-2:-1"),
    "= -1": ("= 0", "= -2"),
    ":1]": ("-1:]",),
    "target_row": ("draft_row",),
    "draft_row": ("target_row",),
    "p / q": ("q / p",),
    "p_target": ("p_draft",),
    "p_draft": ("p_target[:, :K]",),
}


# ---- what faults use

def normalised(weights):
    """Return the weights divided by the sum of their row."""
    return weights / weights.sum(axis=-1, keepdims=True)


def top_p(rows, mass):
    """Return rows of the most probable tokens with at least this mass."""
    largest = np.sort(rows, axis=-1)[..., ::-1]  # the most probable token first
    # a token is kept if the more probable tokens have less than the mass
    is_kept = largest.cumsum(axis=-1) - largest < mass
    least = np.where(is_kept, largest, 1).min(axis=-1, keepdims=True)
    return normalised(rows * (rows >= least))


def top_k(rows, k):
    """Return rows of the k most probable tokens."""
    kth_largest = np.sort(rows, axis=-1)[..., [-k]]  # [.., 1]
    return normalised(rows * (rows >= kth_largest))


def min_p(rows, share):
    """Return rows of the tokens with at least this share of the largest probability."""
    return normalised(rows * (rows >= share * rows.max(axis=-1, keepdims=True)))


def greedy_above(rows, probability):
    """Return the rows, but each row with a token above this probability as a one-hot row."""
    has_likely_token = rows.max(axis=-1, keepdims=True) > probability
    return np.where(has_likely_token, best_of(rows), rows)


# ---- mutants

def swapped(line):
    """Yield the line with one piece of SWAPS changed, for each occurrence of each piece."""
    for piece, others in SWAPS.items():
        start = line.find(piece)
        while start >= 0:
            for other in others:
                yield line[:start] + other + line[start + len(piece) :]
            start = line.find(piece, start + 1)  # -1 if the piece does not occur again


def rounded_or_sampled(line):
    """Yield the line with its numbers rounded, or with its rows sampled."""
    name, _, numbers = line.partition(" = ")
    if name in NUMBERS:
        for template in ROUNDED:
            yield f"{name} = {template.format(numbers)}"
    if name in ROWS:
        rows = ROWS[name]
        for template in SAMPLED:
            yield line.replace(rows, template.format(rows), 1)


def verifier(lines):
    """Return the verifier with these lines."""
    # compiled once, because the verifier is called many times
    code = compile("\n".join(lines), "<mutant>", "exec")

    def verify(guesses, p_draft, p_target, uniforms):
        scope = dict(globals(), guesses=guesses, p_draft=p_draft, p_target=p_target,
                     uniforms=uniforms)
        with np.errstate(all="ignore"):  # a fault may divide by 0
            exec(code, scope)
        return scope["tokens"]

    return verify


class Mutant(NamedTuple):
    """Hold a verifier with a wrong line, and the mark of this line."""

    verify: Callable
    mark: str


def mutants():
    """Return {line that replaces one of RIGHT: Mutant}."""
    verifiers = {}
    for i, line in enumerate(RIGHT):
        made = dict.fromkeys([*rounded_or_sampled(line), *swapped(line)], "-")
        for other, mark in (made | FAULTS[line]).items():
            verify = verifier([*RIGHT[:i], other, *RIGHT[i + 1 :]])
            verifiers[other] = Mutant(verify, mark)
    return verifiers
