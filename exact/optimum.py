"""The best acceptance that any lossless test can reach, and what the tests in variants/ reach.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under p

A lossless test is a transport of the guesses' distribution to p_target, and an accepted token
arrives at one of its own guesses. Where all guesses lie in a set A the token must be in A to be
accepted, and is with probability p_target(A) at most. The worst set decides (max-flow, min-cut):

    accepted = 1 - max over A of (P(all guesses in A) - p_target(A))

For one guess this is 1 - TV, which the ratio test reaches (docs/proof.md).

    python -m exact.optimum     the optimum and the tests on the toys of docs/wild.md
"""

from itertools import combinations

import numpy as np

from exact.law import law
from exact.rules import TOYS, X, table
from lib.terminal import Parser
from sampling import residual
from variants.kseq import find_rho, shared
from variants.tree import draw_siblings


def guesses_law(p_draft, n, siblings="distinct"):
    """Return {tuple of n tokens: probability} of the siblings that variants/tree.py draws."""
    return law(lambda rng: [token for token, _ in draw_siblings(p_draft, n, siblings, rng)])


def best_accepted(guesses, p_target):
    """Return the largest probability with which a lossless test can accept one of its guesses.

    Exact on Fractions; it tries every set of tokens, so only for toys. For one guess it is 1 - TV:

    >>> p_draft, p_target = np.array([0.25, 0.75, 0.0]), np.array([0.5, 0.25, 0.25])
    >>> float(best_accepted({(0,): 0.25, (1,): 0.75}, p_target))
    0.5
    >>> float(np.minimum(p_draft, p_target).sum())
    0.5
    """
    sets = (A for size in range(len(p_target) + 1)
            for A in combinations(range(len(p_target)), size))
    return 1 - max(sum(chance for tokens, chance in guesses.items() if {*tokens} <= {*A})
                   - sum(p_target[token] for token in A) for A in sets)


# ---- for any vocabulary, n independent guesses

def best_independent(p_draft, p_target, n):
    """Return the optimum for n independent guesses: P(all in A) is p_draft(A) ** n.

    A convex function of p_draft(A) is the maximum of its tangents. Along a tangent of slope s the
    worst set has all tokens with s p_draft > p_target, so only the starts of the rows count, sorted
    by p_target / p_draft.

    >>> p_draft, p_target = np.array([0.1, 0.5, 0.4]), np.array([0.2, 0.6, 0.2])
    >>> round(float(best_independent(p_draft, p_target, 2)), 4)
    0.99
    """
    infinite = np.full(len(p_draft), np.inf)
    order = np.argsort(np.divide(p_target, p_draft, out=infinite, where=p_draft > 0))
    return 1 - max(0, (np.cumsum(p_draft[order]) ** n - np.cumsum(p_target[order])).max())


def multi_step(p_draft, p_target, n):
    """Return what multi-step sampling accepts. Miao et al. (2023)."""
    none, left = 1, p_target
    for _ in range(n):
        none, left = none * (1 - np.minimum(left, p_draft).sum()), residual(left, p_draft)
    return 1 - none


def kseq(p_draft, p_target, n):
    """Return what K-SEQ accepts: 1 - (1 - beta)^n. Sun et al. (2023)."""
    return 1 - (1 - shared(p_draft, p_target, find_rho(p_draft, p_target, n)).sum()) ** n


def match(p_draft, p_target, n):
    """Return how often the target's own draw is one of the guesses."""
    return (p_target * (1 - (1 - p_draft) ** n)).sum()


FORMS = {"optimum": best_independent, "multi-step": multi_step, "K-SEQ": kseq, "match": match}


def toys_table():
    """Return the optimum and the tests, for one, two and three guesses on every toy."""
    rows = []
    for toy, pair in TOYS.items():
        first_rows = [np.asarray(model(X)[-1], float) for model in pair]
        rows += [[toy, n, *(f"{form(*first_rows, n):.4f}" for form in FORMS.values())]
                 for n in (1, 2, 3)]
    return table(["toy", "guesses", *FORMS], rows)


def main(argv=None):
    parser = Parser("python -m exact.optimum", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print(toys_table())


if __name__ == "__main__":
    main()
