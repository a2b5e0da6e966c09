"""Compute the best acceptance of any exact rule of several guesses for one position.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under the row p

An exact rule moves probability from the tuples of guesses to the tokens of p_target. A tuple
is accepted if it is moved to one of its own tokens. The best test follows from sets of tokens:

 1. Let A be any set of tokens, and let E be the event that all guesses are in A.
 2. If E happens and a guess is accepted, the written token is in A. An exact rule writes a
    token of A with probability p_target(A). So P(E and accepted) <= p_target(A).
 3. In the rest of E no guess is accepted. So P(not accepted) >= P(E) - p_target(A).
 4. This holds for every set A, and the set with the largest difference gives the best bound.
    A test reaches this bound, because a maximal flow equals a minimal cut:

        accepted = 1 - max over A of (P(all guesses in A) - p_target(A))

For one guess this is 1 - TV, which the ratio rule reaches (docs/proof.md).

For a chain of drawn guesses block verification is the optimum. tests/test_optimum.py finds it
on toys by a linear programme over all exact rules.
"""

from itertools import combinations
from typing import Any

import numpy as np

from exact.law import law
from variants.tree import draw_siblings

ProbabilityOf = dict[tuple[int, ...], Any]  # {tuple of n tokens: probability}


def guesses_law(p_draft: np.ndarray, n: int, siblings: str = "distinct") -> ProbabilityOf:
    """Return {tuple of n tokens: probability} of the siblings that variants/tree.py draws."""
    return law(lambda rng: [token for token, _ in draw_siblings(p_draft, n, siblings, rng)])


def best_accepted(guesses: ProbabilityOf, p_target: np.ndarray) -> Any:
    """Return the largest probability with which an exact rule can accept one of its guesses.

    Every set of tokens is tried, which is possible for toys only, and exact on Fractions. The
    optimum for one guess is 1 - TV:

    >>> p_draft, p_target = np.array([0.25, 0.75, 0.0]), np.array([0.5, 0.25, 0.25])
    >>> float(best_accepted({(0,): 0.25, (1,): 0.75}, p_target))
    0.5
    >>> float(np.minimum(p_draft, p_target).sum())
    0.5
    """
    def excess(A):
        """Return P(all guesses in A) - p_target(A)."""
        all_in_A = sum(p for tokens, p in guesses.items() if set(tokens) <= set(A))
        return all_in_A - sum(p_target[token] for token in A)

    n_vocab = len(p_target)
    sets = (A for size in range(n_vocab + 1) for A in combinations(range(n_vocab), size))
    return 1 - max(map(excess, sets))
