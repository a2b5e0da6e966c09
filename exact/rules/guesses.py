"""Guess, rightly or wrongly: the ways to guess of exact/rules/register.py, each a few lines.

    guess(x, k, rng, draft) -> guesses, p_draft     as speculative.guess
    p_draft      the rows that the test receives; None if the test needs none

A right way to guess returns its guesses and the rows they were drawn from. Any way may return
fewer than k guesses: it then also chooses how many guesses are tested.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from exact.rules.verifiers import at
from exact.toys import N_VOCAB, mapped
from sampling import keep_largest
from speculative import guess
from variants.shared.branches import best_ids, tree_of_paths

DraftGuess = Callable[..., tuple[Any, Any]]  # (x, k, rng, draft) -> guesses, p_draft
# entry n is the cost of a pass with n guesses: 10 is the cost without a guess
COSTS = (10, *range(16, 32))  # the first guess costs 6, each later guess 1
COSTS_WITH_A_BEND = (10, 14, *range(17, 32))  # the guesses cost 4, 3, and then 1 each
COMMON = 2  # tokens 0 and 1 are the only common tokens in `common_tokens`


# ---- what the guesses are drawn from, and the rows that the test receives

def drawn_from(change: Callable) -> DraftGuess:
    """Return a way to guess: draw from the draft's changed rows, and return these rows."""
    return lambda x, k, rng, draft: guess(x, k, rng, mapped(draft, change))


def bfloat16(numbers):
    """Return float32 numbers rounded to the 8 bits of a bfloat16 (half away from zero)."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    # a bfloat16 is the upper 16 bits; half of its last bit is added, then the rest is cut off
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


def in_bfloat16(row):
    """Return a row of fractions, each rounded to a bfloat16."""
    return np.array([Fraction(float(p)) for p in bfloat16(row)], dtype=object)


colder = drawn_from(lambda row: row**2 / (row**2).sum())  # temperature 1/2
drawn_in_bfloat16 = drawn_from(in_bfloat16)
best_two = drawn_from(partial(keep_largest, n=2))
# the other tokens get 0, so a row sums to less than 1
common_tokens = drawn_from(lambda row: row * (np.arange(3) < COMMON))


def as_drawn(x, k, rng, draft, guess: DraftGuess):
    """Return the guesses of `guess` with the draft's rows, as if they were drawn from these."""
    guesses, _ = guess(x, k, rng, draft)
    return guesses, unchanged_rows(x, guesses, draft)


def unchanged_rows(x, guesses, draft):
    """Return the draft's row for the position of each guess."""
    return [draft(x + guesses[:t], 1)[-1] for t in range(len(guesses))]


def beam(x, k, rng, draft, width=2):
    """Return the k tokens that beam search finds most probable, and None instead of rows."""
    beams = [(Fraction(1), [])]  # (probability, tokens), the most probable first
    for _ in range(k):
        longer = []
        for p, tokens in beams:
            for token, p_next in enumerate(draft(x + tokens, 1)[-1]):
                longer.append((p * p_next, tokens + [token]))
        # in descending order; a stable sort keeps the order of equal probabilities
        beams = sorted(longer, key=lambda pair: -pair[0])[:width]
    _, most_probable = beams[0]
    return most_probable, None


# ---- several paths

def two_best_paths(x, k, rng, draft):
    """Return the tree of two paths of k probable tokens, which branch at the second token.

    The first path has the draft's best token everywhere. The second path has the first path's
    first token, then the draft's second best token, then best tokens again. If k is 1, the
    second path is the second best token alone.
    """
    def extended(path):
        """Return the path with the draft's best tokens up to k tokens."""
        while len(path) < k:
            path = path + best_ids(draft(x + path, 1)[-1], 1)
        return path

    first = extended([])
    shared = first[: min(k - 1, 1)]  # the first token, or no token if k is 1
    _, second_best = best_ids(draft(x + shared, 1)[-1], 2)
    second = extended(shared + [second_best])[:k]  # no token if k is 0
    tree = tree_of_paths([first, second], N_VOCAB)
    return tree, tree.rows()


# ---- how many guesses are tested: (guesses, p_draft) -> [..], for one round or for a batch

def n_leading(flags):  # [.., k] -> [..]
    """Return how many flags are true before the first false one."""
    # a product of flags is 1 up to the first false flag, and 0 from there on
    return np.cumprod(flags, axis=-1).sum(axis=-1)


def is_confident(p):
    """Return whether a draft is confident of a token, which means a probability >= 2/5."""
    # written so that the float 0.4 is confident: 5 * 0.4 is exactly 2.0
    return 5 * p >= 2


def before_unsure_row(guesses, p_draft):
    """Test the guesses before the first row without a confident token."""
    return n_leading(is_confident(p_draft.max(axis=-1)))


def before_unsure_guess(guesses, p_draft, extra=0):
    """Test the guesses before the first one with a low probability, and `extra` more."""
    n = n_leading(is_confident(at(p_draft, guesses)))
    return np.minimum(n + extra, guesses.shape[-1])


def rates(confidences, costs):  # [.., k] -> [.., k + 1]
    """Return the expected tokens of a round divided by its cost, for n = 0 .. k guesses.

    The draft's confidence in guess t is the largest probability of its row. The product of the
    first n confidences is the estimate of the probability that n guesses are accepted.
    """
    # passed[.., n] is the product of the first n confidences; passed[.., 0] is 1
    passed = np.insert(confidences, 0, 1, axis=-1).cumprod(axis=-1)
    # a round with n guesses writes 1 + passed[1] + .. + passed[n] tokens
    tokens = passed.cumsum(axis=-1)
    n_costs = passed.shape[-1]  # k + 1
    return tokens / np.array(costs)[:n_costs]


def first_descent(rate, axis=-1):  # [.., k + 1] -> [..]
    """Return the first n for which rate[n + 1] is not above rate[n]; k if all rates rise."""
    return n_leading(np.diff(rate, axis=axis) > 0)  # flag n: from rate[n] to rate[n + 1]


def n_planned(guesses, p_draft, choose=np.argmax, costs=COSTS):
    """Test the number of guesses that `choose` picks from the rates of 0 .. k guesses."""
    return choose(rates(p_draft.max(axis=-1), costs), axis=-1)


def first_tested(x, k, rng, draft, n_tested, guess: DraftGuess = guess, **settings):
    """Make k guesses; return the first ones, as many as `n_tested` says with these settings."""
    guesses, p_draft = guess(x, k, rng, draft)
    # the confidence is read from unchanged rows, because p_draft may be one-hot
    rows = np.reshape(unchanged_rows(x, guesses, draft), (-1, N_VOCAB))  # [k, n_vocab]
    n = n_tested(np.array(guesses, int), rows, **settings)
    return guesses[:n], p_draft[:n]


stop_before = partial(first_tested, n_tested=before_unsure_row)
drop_improbable = partial(first_tested, n_tested=before_unsure_guess)
planned = partial(first_tested, n_tested=n_planned)
