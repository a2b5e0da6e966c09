"""Make verifiers with one wrong line.

    RIGHT      the lines of the verifier, a ratio test over arrays as exact/oracle.py calls it
    FAULTS     {line: what is written instead}, by hand
    ROUNDED    ways to round; each is tried on every line of NUMBERS
    SAMPLED    ways to sample; each is tried on every row of ROWS
    SWAPS      {piece of a line: other pieces}, tried at each occurrence in each line

`mutants()` returns {"line -> other line": verifier}. Most of these verifiers are wrong. Some
are right (for example `<=` instead of `<`), and some are right with one guess only.
tests/test_faults.py lists the right ones, and checks the list on random rows.
"""

from types import CodeType

import numpy as np

from exact.rules.batched import entry_per_round
from exact.rules.guesses import bfloat16
from exact.rules.verifiers import at, best_of

RIGHT = """\
B, K = guesses.shape
each = np.arange(B)
rows = p_target[:, :K]
p = at(rows, guesses)
q = at(p_draft, guesses)
ratio = p / q
tests = uniforms[:, :K]
accepted = tests < ratio
n = accepted.cumprod(axis=1).sum(axis=1)
drafts = np.concatenate([p_draft, np.zeros_like(p_target[:, :1])], axis=1)
target_row = p_target[each, n]
draft_row = drafts[each, n]
weights = np.maximum(target_row - draft_row, 0)
cumulative = weights.cumsum(axis=-1)
bounds = cumulative / cumulative[:, -1:]
u = uniforms[:, K]
token = (u[:, None] >= bounds).sum(axis=-1)
tokens = np.concatenate([guesses, guesses[:, :1]], axis=1)
tokens[np.arange(K + 1) > n[:, None]] = -1
tokens[each, n] = token
""".splitlines()

# a fault may use np, the names that the lines define, and the functions of `names` below
FAULTS = {
    "rows = p_target[:, :K]": [
        "rows = np.roll(p_target[:, :K], 1, axis=1)",
        "rows = p_target[:, [0] * K]",
        "rows = p_target[:, [K - 1] * K]",
        "rows = p_target[:, ::-1][:, :K]",
        "rows = p_target[:, np.minimum(np.arange(K) + 1, K - 1)]",
        "rows = p_target[:, np.maximum(np.arange(K) - 1, 0)]",
    ],
    "p = at(rows, guesses)": [
        "p = at(rows, np.roll(guesses, 1, axis=1))",
        "p = at(rows, np.roll(guesses, -1, axis=1))",
        "p = at(rows, guesses[:, :1].repeat(K, axis=1))",
        "p = at(rows, (guesses + 1) % rows.shape[-1])",
        "p = rows.max(axis=-1)",
        "p = at(rows, guesses) + 1e-3",
        "p = np.maximum(at(rows, guesses), 1e-3)",
        "p = np.where(at(rows, guesses) > 0, at(rows, guesses), 1)",
        "p = np.where(at(rows, guesses) < 0.05, 0, at(rows, guesses))",
        "p = at(rows, guesses) ** 1.01",
    ],
    "q = at(p_draft, guesses)": [
        "q = at(np.roll(p_draft, 1, axis=1), guesses)",
        "q = at(np.roll(p_draft, -1, axis=1), guesses)",
        "q = at(p_draft[:, :1].repeat(K, axis=1), guesses)",
        "q = at(p_draft[:, -1:].repeat(K, axis=1), guesses)",
        "q = at(p_draft, np.roll(guesses, 1, axis=1))",
        "q = p_draft.max(axis=-1)",
        "q = at(rows, guesses)",
        "q = np.ones_like(p)",
        "q = at(p_draft, guesses) + 1e-3",
        "q = at(p_draft, guesses) + 1e-5",
        "q = np.maximum(at(p_draft, guesses), 0.1)",
        "q = np.maximum(at(p_draft, guesses), 0.05)",
    ],
    "ratio = p / q": [
        "ratio = (p / q).clip(0.01)",
        "ratio = (p / q).clip(0.05)",
        "ratio = (p / q).clip(max=0.99)",
        # log p is minus infinity for p = 0. The first line then makes the ratio 1, and the
        # second line replaces p by 0.001
        "ratio = np.exp(np.nan_to_num(np.log(p) - np.log(q), neginf=0))",
        "ratio = np.exp(np.nan_to_num(np.log(p), neginf=np.log(1e-3)) - np.log(q))",
        "ratio = np.where(p == 0, 1, p / q)",
        "ratio = np.where(p == q, 0, p / q)",
        "ratio = np.where(p == q, 0.5, p / q)",
        "ratio = np.where(p > 0.9, 1, p / q)",
        "ratio = np.where(q == 1, 1, p / q)",
        "ratio = np.where(q > 0.65, p, p / q)",
        "ratio = np.where(p / q > 0.9, 1, p / q)",
        "ratio = np.where(p / q < 0.1, 0, p / q)",
        "ratio = (p / q) ** 2",
        "ratio = np.sqrt(p / q)",
        "ratio = p / (p + q)",
        "ratio = 1 - np.abs(p - q)",
        "ratio = p / q.max(axis=1, keepdims=True)",
        "ratio = (p / q).cumprod(axis=1)",
        "ratio = np.minimum.accumulate(p / q, axis=1)",
        "ratio = np.where(np.arange(K) == K - 1, p, p / q)",
        "ratio = np.where(np.arange(K) == 0, 1, p / q)",
        "ratio = np.minimum(p / q, 1)",
        "ratio = np.where(p >= q, 1, p / q)",
    ],
    "tests = uniforms[:, :K]": [
        "tests = uniforms[:, :1].repeat(K, axis=1)",
        "tests = uniforms[:, [K, *range(1, K)]]",
        "tests = uniforms[:, [*range(K - 1), 0]]",
        "tests = uniforms[:, [0, *range(K - 1)]]",
        "tests = uniforms[:, :K][:, ::-1]",
        "tests = 1 - uniforms[:, :K]",
        "tests = uniforms[:, :K].cumprod(axis=1)",
        "tests = np.maximum(uniforms[:, :K], 1e-3)",
        "tests = uniforms[:1, :K].repeat(B, axis=0)",
    ],
    "accepted = tests < ratio": [
        "accepted = tests * q < p",
        "accepted = ratio >= 0.5",
        "accepted = ratio >= 1",
        "accepted = (tests < ratio) | (p > 0.9)",
        "accepted = (tests < ratio) & (p > 0.05)",
        "accepted = (tests < ratio) & (p > 0)",
        "accepted = (tests < ratio) | (guesses == rows.argmax(axis=-1))",
        # a rare fault: a guess unlike the first guess is also rejected by a uniform up to 0.001
        "accepted = (tests < ratio) & ((guesses == guesses[:, :1]) | (tests > 0.001))",
    ],
    "n = accepted.cumprod(axis=1).sum(axis=1)": [
        "n = accepted.sum(axis=1)",
        "n = np.where(accepted.all(axis=1), K, 0)",
        "n = accepted.argmin(axis=1)",
        "n = (accepted.cumprod(axis=1).sum(axis=1) // K) * K",
        "n = np.minimum(accepted.cumprod(axis=1).sum(axis=1), K - 1)",
        "n = accepted.cumprod(axis=1).sum(axis=1) * (B > 1)",
        "n = accepted.cumprod(axis=1).squeeze().sum(axis=-1)",
        # `or` from right to left marks the guesses up to the last accepted guess. They are m
        # guesses: the first line has n = K - m, and the second line n = m
        "n = K - np.logical_or.accumulate(accepted[:, ::-1], axis=1)[:, ::-1].sum(axis=1)",
        "n = np.logical_or.accumulate(accepted[:, ::-1], axis=1).sum(axis=1)",
    ],
    "drafts = np.concatenate([p_draft, np.zeros_like(p_target[:, :1])], axis=1)": [
        "drafts = np.concatenate([p_draft, p_draft[:, -1:]], axis=1)",
        "drafts = np.concatenate([p_draft[:, 1:], np.zeros_like(p_target[:, :2])], axis=1)",
        "drafts = np.concatenate([np.zeros_like(p_target[:, :1]), p_draft], axis=1)",
        "drafts = np.concatenate([p_draft, p_target[:, K:]], axis=1)",
    ],
    "target_row = p_target[each, n]": [
        "target_row = p_target[each, np.minimum(n + 1, K)]",
        "target_row = p_target[each, np.minimum(n, K - 1)]",
        "target_row = p_target[each, np.maximum(n - 1, 0)]",
        "target_row = p_target[:, 0]",
        "target_row = p_target[:, K]",
        "target_row = p_target[each, n][::-1]",
    ],
    "draft_row = drafts[each, n]": [
        "draft_row = drafts[each, np.minimum(n + 1, K)]",
        "draft_row = drafts[each, np.maximum(n - 1, 0)]",
        "draft_row = drafts[each, np.minimum(n, K - 1)]",
        "draft_row = drafts[:, 0]",
        "draft_row = drafts[:, K - 1]",
        "draft_row = drafts[:, K - 1] * (n < K)[:, None]",
        "draft_row = drafts[:, 0] * (n < K)[:, None]",
        "draft_row = 0 * drafts[each, n]",
        "draft_row = drafts[each, n] * (n > 0)[:, None]",
        "draft_row = drafts[each, n] * (n == 0)[:, None]",
    ],
    "weights = np.maximum(target_row - draft_row, 0)": [
        "weights = target_row - draft_row",
        "weights = abs(target_row - draft_row)",
        "weights = np.maximum(target_row - draft_row, 0.01)",
        "weights = np.maximum(target_row - draft_row, 0) + 1e-4",
        "weights = np.maximum(target_row - draft_row, 0) ** 2",
        "weights = np.maximum(target_row - draft_row, 0) / np.maximum(target_row, 1e-9)",
        "weights = np.maximum(target_row - draft_row, 0) / np.maximum(draft_row, 1e-9)",
        "weights = 1.0 * (target_row > draft_row)",
        "weights = 1.0 * (target_row >= draft_row)",
        "weights = target_row * (target_row > draft_row)",
        "weights = target_row * (target_row >= draft_row)",
        "weights = np.maximum(target_row - draft_row, 0) * (target_row > 0.05)",
        "weights = np.maximum(target_row / np.maximum(draft_row, 1e-9) - 1, 0)",
        "weights = np.maximum(target_row - one_hot_of(tokens_at(guesses, n), target_row), 0)",
        "weights = target_row * (1 - one_hot_of(tokens_at(guesses, n), target_row))",
        "weights = best_of(np.maximum(target_row - draft_row, 0))",
        # a string in two pieces: one fault
        "weights = np.where((n == 0)[:, None], best_of(np.maximum(target_row - draft_row, 0)), "
        "np.maximum(target_row - draft_row, 0))",
        "weights = target_row * ((target_row > draft_row) | (n == K)[:, None])",
        "weights = unless_small(np.maximum(target_row - draft_row, 0), target_row, 0.1)",
        "weights = unless_small(np.maximum(target_row - draft_row, 0), target_row, 0.02)",
    ],
    "cumulative = weights.cumsum(axis=-1)": [
        "cumulative = weights[:, ::-1].cumsum(axis=-1)",
        "cumulative = np.maximum.accumulate(weights, axis=-1)",
    ],
    "bounds = cumulative / cumulative[:, -1:]": [
        "bounds = cumulative",
        "bounds = cumulative / np.maximum(cumulative[:, -1:], 0.2)",
        "bounds = cumulative / (cumulative[:, -1:] + 1e-3)",
    ],
    "u = uniforms[:, K]": [
        "u = uniforms[each, n]",
        "u = uniforms[each, np.maximum(n - 1, 0)]",
        "u = np.where(n == 0, uniforms[:, 0], uniforms[:, K])",
        "u = np.where(n == K, uniforms[:, 0], uniforms[:, K])",
        "u = np.where(n == K, uniforms[:, K - 1], uniforms[:, K])",
        "u = 1 - uniforms[:, K]",
        "u = uniforms[:, K] * 0.999",
        "u = uniforms[:, K] ** 2",
        "u = uniforms[::-1, K]",
        "u = (uniforms[:, K] + uniforms[:, 0]) % 1",
    ],
    "token = (u[:, None] >= bounds).sum(axis=-1)": [
        "token = weights.argmax(axis=-1)",
        "token = np.where(n == K, target_row.argmax(-1), (u[:, None] >= bounds).sum(-1))",
        "token = np.minimum((u[:, None] >= bounds).sum(axis=-1), 1)",
        "token = (bounds > u[:, None]).argmax(axis=-1)",
    ],
    "tokens = np.concatenate([guesses, guesses[:, :1]], axis=1)": [
        "tokens = np.concatenate([guesses[:, :1], guesses], axis=1)",
        "tokens = np.concatenate([np.roll(guesses, 1, axis=1), guesses[:, :1]], axis=1)",
    ],
    "tokens[np.arange(K + 1) > n[:, None]] = -1": [
        "tokens[:, 1:] = -1",
    ],
    "tokens[each, n] = token": [
        "tokens[each, n] = np.where((token == tokens_at(guesses, n)) & (n < K), 0, token)",
        "tokens[each, np.maximum(n - 1, 0)] = token",
    ],
}

# names of the lines whose numbers are rounded
NUMBERS = ("rows", "p", "q", "ratio", "tests", "target_row", "draft_row", "weights", "cumulative",
           "bounds", "u")
ROUNDED = ("({}).astype(np.float16)", "bfloat16({})", "in_8_bits({})", "({}).round(2)",
           "({}).round(3)")
# {name of a line: its rows, which are sampled}
ROWS = {"rows": "p_target[:, :K]", "target_row": "p_target[each, n]", "q": "p_draft",
        "drafts": "p_draft"}
SAMPLED = ("top_p({}, 0.95)", "top_p({}, 0.99)", "top_k({}, 2)", "min_p({}, 0.05)",
           "min_p({}, 0.1)", "greedy_above({}, 0.7)", "greedy_above({}, 0.9)",
           "sharper({}, 1.001)")

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
    order = np.argsort(-rows, axis=-1)  # the most probable token first
    largest = np.take_along_axis(rows, order, axis=-1)
    # a token is kept if the more probable tokens have less than the mass
    mass_before = largest.cumsum(axis=-1) - largest
    is_kept = mass_before < mass
    kept = np.zeros_like(rows)
    np.put_along_axis(kept, order, largest * is_kept, axis=-1)
    return normalised(kept)


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


def sharper(rows, power):
    """Return the rows raised to a power above 1, as a temperature below 1 does."""
    return normalised(rows**power)


def in_8_bits(rows):
    """Return rows rounded to multiples of 1 / 255."""
    return np.round(rows * 255) / 255


def tokens_at(guesses, n):
    """Return guess n of each round, which was rejected; the last guess if n is K."""
    last = guesses.shape[1] - 1
    return entry_per_round(guesses, np.minimum(n, last))


def one_hot_of(tokens, rows):
    """Return one-hot rows of the tokens, as long as `rows`."""
    return np.eye(rows.shape[-1])[tokens]


def unless_small(weights, rows, mass):
    """Return the weights, replaced by `rows` where the sum of the weights is below `mass`."""
    is_small = weights.sum(axis=-1, keepdims=True) < mass
    return np.where(is_small, rows, weights)


FUNCTIONS = (at, top_p, top_k, min_p, best_of, greedy_above, sharper, bfloat16, in_8_bits,
             tokens_at, one_hot_of, unless_small)
# the names that a line may use
names = {"np": np, **{function.__name__: function for function in FUNCTIONS}}


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


def compiled(lines) -> CodeType:
    """Return the lines as code that `exec` runs."""
    return compile("\n".join(lines), "<mutant>", "exec")


def verifier(lines):
    """Return the verifier with these lines."""
    code = compiled(lines)  # once, because the verifier is called many times

    def verify(guesses, p_draft, p_target, uniforms):
        scope = dict(names, guesses=guesses, p_draft=p_draft, p_target=p_target,
                     uniforms=uniforms)
        with np.errstate(all="ignore"):  # a fault may divide by 0
            exec(code, scope)
        return scope["tokens"]

    return verify


def mutants():
    """Return {"line -> other line": verifier}, one line changed in each."""
    verifiers = {}
    for i, line in enumerate(RIGHT):
        others = [*FAULTS.get(line, []), *rounded_or_sampled(line), *swapped(line)]
        # some swaps give equal lines: dict.fromkeys keeps one of each, in order
        for other in dict.fromkeys(others):
            verifiers[f"{line} -> {other}"] = verifier([*RIGHT[:i], other, *RIGHT[i + 1 :]])
    return verifiers
