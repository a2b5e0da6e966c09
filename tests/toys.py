"""Define toy models and draft-target pairs, small enough that exact/law.py enumerates all.

A model here is speculative.py's: `model(ids, n_last=1) -> [n_last, n_vocab]` of probabilities.
"""

import hashlib
from fractions import Fraction
from functools import cache, partial

import numpy as np
from hypothesis import strategies as st

from exact.rules.verifiers import best_of as one_hot
from exact.toys import mapped
from variants.shared.branches import Tree


def toy(n_vocab, seed, zeros=0.3, exact=False):
    """Return a model whose row depends on the whole text: weights 1 .. 9 by a hash, some zero.

    Rows are normalised float64, or Fractions if `exact`.
    """
    @cache
    def row(ids):
        # bytes: a size for every token, whether it is zero, and which token certainly is not
        digest = hashlib.shake_128(repr((seed, ids)).encode()).digest(2 * n_vocab + 1)
        sizes = digest[:n_vocab]
        is_positive = [byte >= 256 * zeros for byte in digest[n_vocab : 2 * n_vocab]]
        weights = [(1 + size % 9) * positive for size, positive in zip(sizes, is_positive)]
        weights[digest[-1] % n_vocab] += 1
        if exact:
            return np.array([Fraction(w, sum(weights)) for w in weights], dtype=object)
        return np.array(weights) / sum(weights)

    def model(ids, n_last=1):
        ids = tuple(ids)
        return np.array([row(ids[: len(ids) - i]) for i in reversed(range(n_last))])

    return model


def ulp_away(row):
    """Return the row with two entries moved by one unit in the last place, in opposite ways."""
    a, b = np.argsort(row)[-2:]
    row = row.copy()
    row[a] = np.nextafter(row[a], 2)
    row[b] = np.nextafter(row[b], 0)
    return row


def context_free(row):
    """Return a model with this row after every text."""
    return lambda ids, n_last=1: np.array([row] * n_last)


def count_up(n_vocab):
    """Return a model that counts: 0 1 2 .. n_vocab - 1 0 1 .."""
    return lambda ids, n_last=1: np.eye(n_vocab)[(np.array(ids[-n_last:]) + 1) % n_vocab]


def counted(model):
    """Return the model with an attribute `calls`: n_last of every call so far."""
    def wrapper(ids, n_last=1):
        wrapper.calls.append(n_last)
        return model(ids, n_last)

    wrapper.calls = []
    return wrapper


def tree_of(tokens, parents):
    """Return a tree of these guesses, each below an earlier one, or -1; they have no rows."""
    tree = Tree()
    nodes = []  # two guesses of one path are one node
    for token, parent in zip(tokens, parents):
        nodes.append(tree.add(nodes[parent] if parent >= 0 else -1, token, None))
    return tree


def remembered(model):
    """Return the model with a table of its answers, for models that are slow."""
    @cache
    def answer(ids, n_last):
        return model(list(ids), n_last)

    return lambda ids, n_last=1: answer(tuple(ids), n_last)


def possible_part(row, is_possible):
    """Return the row with no mass on the other tokens."""
    row = (row + 1e-3) * is_possible  # also if all possible tokens had probability 0
    return row / row.sum()


rows_of_four = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any).map(
    lambda weights: np.array(weights) / sum(weights))

PAIRS = {  # name: (draft, target)
    "dense": (toy(3, 41, zeros=0), toy(3, 42, zeros=0)),
    "sparse": (toy(3, 3, zeros=0.5), toy(3, 4, zeros=0.5)),
    "four tokens": (toy(4, 5), toy(4, 6)),
    "five tokens": (toy(5, 5, zeros=0.5), toy(5, 6, zeros=0.5)),
    "disjoint": (mapped(toy(4, 1), partial(possible_part, is_possible=[1, 0, 1, 0])),
                 mapped(toy(4, 2), partial(possible_part, is_possible=[0, 1, 0, 1]))),
    "equal": (toy(3, 7), toy(3, 7)),
    "one ulp away": (toy(3, 8, zeros=0), mapped(toy(3, 8, zeros=0), ulp_away)),
    "greedy draft": (mapped(toy(3, 9), one_hot), toy(3, 10)),
    "greedy target": (toy(3, 11), mapped(toy(3, 12), one_hot)),
    "both greedy": (mapped(toy(3, 13), one_hot), mapped(toy(3, 14), one_hot)),
}


class Automaton:
    """Allow tokens as a small pattern over the tokens 0, 1 and 2 does.

    Its rules are a run of at most two 0, a forced 0 after 1 1, an ending (only 2 follows a 2),
    and a dead end: no text that fits continues 0 1 2, so 2 is not allowed after 0 1.
    """

    def __repr__(self):
        return "Automaton"

    def __call__(self, ids):
        ids = list(ids)
        if any(ids[i : i + 3] == [0, 1, 2] for i in range(len(ids))):
            return np.ones(3, dtype=bool)  # as a Pattern does after a text that does not fit
        if ids[-1] == 2:
            return np.array([False, False, True])
        if ids[-2:] == [1, 1]:
            return np.array([True, False, False])
        return np.array([ids[-2:] != [0, 0], True, ids[-2:] != [0, 1]])
