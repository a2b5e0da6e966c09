"""Guess, rightly or wrongly: the ways to guess of exact/rules/register.py, each a few lines.

    guess(x, k, rng, draft) -> guesses, p_draft     as speculative.guess
    p_draft      the rows that the test receives; None if the test needs none

Such a function returns its guesses and the rows they were drawn from. It may return fewer than k
guesses, because it may also choose how many guesses are tested.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from exact.toys import N_VOCAB, mapped
from sampling import keep_largest, sample
from speculative import guess
from variants.multipath import best_row, worst_first
from variants.shared.branches import best_ids, tree_of_paths

DraftGuess = Callable[..., tuple[Any, Any]]  # (x, k, rng, draft) -> guesses, p_draft
COSTS = (10, *range(16, 32))  # of a pass with 0, 1, 2, .. guesses
COSTS_WITH_A_BEND = (10, 14, *range(17, 32))  # the steps are 4, 3, 1, 1, ..
COMMON = 2  # tokens 0 and 1 are in both vocabularies, where that matters


# ---- what the guesses are drawn from, and the rows that the test receives

def drawn_from(change: Callable) -> DraftGuess:
    """Return a way to guess: draw from the draft's changed rows, and return the changed rows."""
    return lambda x, k, rng, draft: guess(x, k, rng, mapped(draft, change))


def bfloat16(numbers):
    """Return float32 numbers rounded to the 8 bits of a bfloat16 (half away from zero)."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    # a bfloat16 is the upper 16 bits; half of its last bit is added, then the rest is cut off
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


def in_bfloat16(row):
    """Return a row of fractions, each rounded to a bfloat16."""
    rounded = bfloat16(np.asarray(row, dtype=np.float32))
    return np.array([Fraction(float(p)) for p in rounded], dtype=object)


colder = drawn_from(lambda row: row**2 / (row**2).sum())  # temperature 1/2
drawn_in_bfloat16 = drawn_from(in_bfloat16)
best_two = drawn_from(partial(keep_largest, n=2))
common_tokens = drawn_from(lambda row: row * (np.arange(3) < COMMON))  # sums below 1


def as_drawn(x, k, rng, draft, guess: DraftGuess):
    """Return the tokens of `guess` with the draft's own rows, as if drawn from these rows."""
    guesses, _ = guess(x, k, rng, draft)
    return guesses, [draft(x + guesses[:t], 1)[-1] for t in range(len(guesses))]


def beam(x, k, rng, draft, width=2):
    """Return the best of `width` beams, without rows."""
    beams = [(Fraction(1), [])]  # (probability, ids), the best first
    for _ in range(k):
        longer = [(p * p_next, ids + [token]) for p, ids in beams
                  for token, p_next in enumerate(draft(x + ids, 1)[-1])]
        beams = sorted(longer, key=lambda beam: -beam[0])[:width]
    _, best_ids = beams[0]
    return best_ids, None


# ---- several paths

def best_of_two(x, k, rng, draft, target):
    """Return the better of two paths drawn from the draft, as variants/multipath.py chooses it.

    The token is drawn from the best path's distribution. The rows are the draft's.
    """
    guesses, p_draft = [], []
    mass = 1
    below = 0
    for _ in range(k):
        text = x + guesses
        row = draft(text, 1)[-1]
        best, below_token = best_row(row, worst_first(row, target(text, 1)[-1]), mass, below, 2)
        guesses.append(sample(best, rng))
        p_draft.append(row)
        mass = mass * row[guesses[-1]]
        below = below_token[guesses[-1]]
    return guesses, p_draft


def two_best_paths(x, k, rng, draft):
    """Return the tree of two paths without chance, which differ from the second token on.

    The first path has the draft's best tokens. The second path has the second best token where
    it leaves the first path, and the best tokens after it. Paths of one token differ in it.
    """
    def extended(path):
        while len(path) < k:
            path = path + best_ids(draft(x + path, 1)[-1], 1)
        return path

    first = extended([])
    shared = first[: min(k - 1, 1)]
    second = extended(shared + best_ids(draft(x + shared, 1)[-1], 2)[1:]) if k else []
    tree = tree_of_paths([first, second], N_VOCAB)
    return tree, tree.rows()


# ---- how many guesses are tested

def count_leading(flags) -> int:
    """Return how many flags are true before the first false one.

    >>> [count_leading(flags) for flags in ([True, True, False, True], [True], [])]
    [2, 1, 0]
    """
    return [*flags, False].index(False)  # a false flag at the end: an index exists


def is_confident(p):
    """Return whether a draft is confident of a token: from the probability 2/5 on."""
    return 5 * p >= 2  # exact for a Fraction, and 5 * 0.4 is exactly 2.0 for a float


def stop_before(x, k, rng, draft):
    """Stop before drawing from a row without a confident token."""
    if k == 0 or not is_confident(draft(x, 1)[-1].max()):
        return [], []
    first, first_row = guess(x, 1, rng, draft)  # lists of one
    guesses, p_draft = stop_before(x + first, k - 1, rng, draft)
    return first + guesses, first_row + p_draft


def drop_improbable(x, k, rng, draft, guess: DraftGuess = guess, extra=0):
    """Drop the first guess with a low draft probability and all later ones, except `extra`."""
    guesses, p_draft = guess(x, k, rng, draft)
    own_rows = [draft(x + guesses[:t], 1)[-1] for t in range(len(guesses))]
    confident = [is_confident(row[token]) for row, token in zip(own_rows, guesses)]
    n = count_leading(confident) + extra
    return guesses[:n], p_draft[:n]


def rates(confidences, costs):  # [.., k] -> [.., k + 1]
    """Return the expected tokens per cost of 0 .. k guesses.

    The draft's confidence in guess t is the largest probability of its row. The product of the
    first n estimates P(n guesses are accepted).
    """
    # entry n of `passed` estimates P(the first n guesses are accepted); entry 0 is 1
    shape_of_ones = (*np.shape(confidences)[:-1], 1)  # [.., 1]
    ones = np.ones_like(confidences, shape=shape_of_ones)
    passed = np.concatenate([ones, confidences], axis=-1).cumprod(axis=-1)
    # a round with n guesses writes 1 + passed[1] + .. + passed[n] tokens
    return passed.cumsum(axis=-1) / np.array(costs)[: passed.shape[-1]]


def first_descent(rates, axis=-1):
    """Return the first n after which the rate does not rise."""
    rises = np.diff(rates, axis=axis) > 0
    return rises.cumprod(axis=axis).sum(axis=axis)  # the number of rises before the first descent


def planned(x, k, rng, draft, choose=np.argmax, costs=COSTS):
    """Draw k guesses; keep as many as `choose` finds best by their rates."""
    guesses, p_draft = guess(x, k, rng, draft)
    n = choose(rates([row.max() for row in p_draft], costs), axis=-1)
    return guesses[:n], p_draft[:n]
