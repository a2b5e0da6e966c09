"""Compute the best acceptance of any lossless test of several guesses for one position.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under the row p

A lossless test moves probability from the tuples of guesses to the tokens of p_target. A tuple
is accepted if it is moved to one of its own tokens. The best test follows from sets of tokens:

 1. Let A be any set of tokens, and let E be the event that all guesses are in A.
 2. If E happens and a guess is accepted, the written token is in A. A lossless test writes a
    token of A with probability p_target(A). So P(E and accepted) <= p_target(A).
 3. In the rest of E no guess is accepted. So P(not accepted) >= P(E) - p_target(A).
 4. This holds for every set A, and the set with the largest difference gives the best bound.
    A test reaches this bound, because a maximal flow equals a minimal cut:

        accepted = 1 - max over A of (P(all guesses in A) - p_target(A))

For one guess this is 1 - TV, which the ratio test reaches (docs/proof.md).

For a chain of drawn guesses block verification is the optimum. tests/test_optimum.py finds it
on toys by a linear programme over all lossless tests.
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
    """Return the largest probability with which a lossless test can accept one of its guesses.

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

    # all sets of tokens, by their size
    n_vocab = len(p_target)
    largest: Any = 0  # the excess of the empty set
    for size in range(1, n_vocab + 1):
        for A in combinations(range(n_vocab), size):
            largest = max(largest, excess(A))
    return 1 - largest


# ---- for any vocabulary, n independent guesses

def best_independent(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the optimum for n independent guesses, whose P(all in A) is p_draft(A) ** n.

    Only n_vocab + 1 sets are tried: the first i tokens in the order of p_target / p_draft, for
    each i. No other set has a larger difference p_draft(A) ** n - p_target(A), as these steps
    show:

     1. Let A be any set, a = p_draft(A), and s the slope of the curve x ** n at x = a. The
        curve is convex, so it is nowhere below its tangent: x ** n >= a ** n + s (x - a).
     2. For a set S, s p_draft(S) - p_target(S) is a sum over the tokens of S. It is largest for
        the set B of all tokens whose own s p_draft - p_target is above 0.
     3. So the difference of B is at least the difference of A. With b = p_draft(B):

          b ** n - p_target(B) >= a ** n + s (b - a) - p_target(B)      by 1, for x = b
                                = a ** n - s a + (s b - p_target(B))
                               >= a ** n - s a + (s a - p_target(A))    by 2
                                = a ** n - p_target(A)

     4. The tokens of B are those with p_target / p_draft < s, so B is one of the sets tried.

    >>> p_draft, p_target = np.array([0.1, 0.5, 0.4]), np.array([0.2, 0.6, 0.2])
    >>> round(float(best_independent(p_draft, p_target, 2)), 4)
    0.99
    """
    infinite = np.full(len(p_draft), np.inf)  # the ratio of tokens that are never guessed
    ratios = np.divide(p_target, p_draft, out=infinite, where=p_draft > 0)
    order = np.argsort(ratios)
    # entry i: the set of the first i + 1 tokens; the empty set has the difference 0
    differences = np.cumsum(p_draft[order]) ** n - np.cumsum(p_target[order])
    return 1 - max(0, differences.max())
