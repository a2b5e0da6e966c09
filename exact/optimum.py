"""The best acceptance that any lossless test can reach, and what the tests in variants/ reach.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under p

One guess. A lossless test writes token x with probability p_target(x), and can accept it only where
it was guessed, so with probability at most min(p_draft(x), p_target(x)). The sum over x is 1 - TV,
the maximal coupling. min(1, p_target / p_draft) accepts x with probability p_draft(x) times this
ratio, which is min(p_draft(x), p_target(x)): that is why no other test of one guess is better.

n guesses. A lossless test is a transport of the guesses' distribution to p_target, and an accepted
token arrives at one of its own guesses. Where all guesses lie in a set A the token must be in A to
be accepted, and is with probability p_target(A) at most. The worst set decides (max-flow, min-cut):

    accepted = 1 - max over A of (P(all guesses in A) - p_target(A))

    python -m exact.optimum     the optimum and the tests on the toys of docs/wild.md
"""

import argparse
from functools import partial
from itertools import combinations

import numpy as np

from exact.law import expectation, law
from exact.rules import TOYS, X, table
from exact.toys import path_by_path
from sampling import residual, sample
from speculative import speculative_step
from variants.best_tree import uniform
from variants.kseq import find_rho, guess_chains, shared, verify_kseq
from variants.traversal import verify_traversal
from variants.tree import draw_siblings, guess_shape, verify_tree


# ---- the optimum

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


# ---- any vocabulary: the worst set A holds the tokens of the largest p_draft / p_target

def falling(p_draft, p_target):
    """Return both rows, sorted by p_draft / p_target, the largest first."""
    ratios = np.divide(p_draft, p_target, out=np.full(len(p_draft), np.inf), where=p_target > 0)
    order = np.argsort(-ratios, kind="stable")
    return p_draft[order], p_target[order]


def best_independent(p_draft, p_target, n):
    """Return the optimum for n independent guesses: P(all in A) is p_draft(A) ** n.

    A convex function of p_draft(A) is the maximum of its tangents. Along a tangent of slope s the
    worst set has all tokens with s p_draft > p_target, so only the starts of the sorted row count.

    >>> p_draft, p_target = np.array([0.1, 0.5, 0.4]), np.array([0.2, 0.6, 0.2])
    >>> round(float(best_independent(p_draft, p_target, 2)), 4)
    0.99
    """
    d, p = falling(p_draft, p_target)
    return 1 - max(0, (np.cumsum(d) ** n - np.cumsum(p)).max())


def bound_distinct(p_draft, p_target):
    """Return an upper bound of the optimum for two distinct guesses: the starts alone are tried.

    P(both in A) is the sum over a in A of p_draft(a) (p_draft(A) - p_draft(a)) / (1 - p_draft(a)).
    Any set of tokens gives an upper bound; on the toys this one is the optimum.
    """
    d, p = falling(p_draft, p_target)
    once = np.divide(d, 1 - d, out=np.zeros(len(d)), where=d < 1)
    both = np.cumsum(d) * np.cumsum(once) - np.cumsum(once * d)
    both += np.cumsum(d == 1)  # a row of one token gives one guess
    return 1 - max(0, (both - np.cumsum(p)).max())


# ---- the tests in closed form, for any vocabulary

def multi_step_independent(p_draft, p_target, n):
    """Return what multi-step sampling accepts of n independent guesses. Miao et al. (2023)."""
    none, left = 1, p_target
    for _ in range(n):
        none, left = none * (1 - np.minimum(left, p_draft).sum()), residual(left, p_draft)
    return 1 - none


def multi_step_distinct(p_draft, p_target):
    """Return the same for two distinct guesses.

    The first guess g is rejected with probability (p_draft - p_target)_+ at g. The second one is
    drawn from c p_draft without g, c = 1 / (1 - p_draft(g)), and tested against the residual, which
    is 0 at g: sum(min(residual, c p_draft)), by the order of residual / p_draft.
    """
    left, rejected = residual(p_target, p_draft), np.maximum(p_draft - p_target, 0)
    where = (rejected > 0) & (p_draft < 1)  # a row of one token gives one guess
    c = 1 / (1 - p_draft[where])
    d, r = (row[::-1] for row in falling(p_draft, left))  # left / p_draft falls
    ratios = np.divide(r, d, out=np.full(len(d), np.inf), where=d > 0)
    n_above = np.searchsorted(-ratios, -c)  # of these tokens c p_draft is the smaller number
    drafts, rests = np.append(0, np.cumsum(d)), np.append(0, np.cumsum(r))
    second = c * drafts[n_above] + rests[-1] - rests[n_above]
    return np.minimum(p_draft, p_target).sum() + (rejected[where] * second).sum()


def kseq_independent(p_draft, p_target, n):
    """Return what K-SEQ accepts of n independent guesses: 1 - (1 - beta)^n. Sun et al. (2023)."""
    return 1 - (1 - shared(p_draft, p_target, find_rho(p_draft, p_target, n)).sum()) ** n


def match_independent(p_draft, p_target, n):
    """Return how often the target's own draw is one of n independent guesses."""
    return (p_target * (1 - (1 - p_draft) ** n)).sum()


# ---- the tests, enumerated

def match_tree(tree, p_draft, p_target, rng):
    """Walk down while the target's own draw is a child: variants/match.py for a tree."""
    ids, node = [], -1
    while node is not None:
        ids.append(sample(p_target[1 + node], rng))
        node = tree.child(node, ids[-1])
    return ids


TESTS = {"multi-step": verify_tree, "K-SEQ": verify_kseq, "traversal": verify_traversal,
         "match": match_tree}
CASES = [(1, "independent"), (2, "independent"), (3, "independent"), (2, "distinct")]


def reached(test, toy, n, siblings):
    """Return the probability that the test itself accepts one of n siblings after X, or None."""
    draft, target = TOYS[toy]
    if test == "K-SEQ" and siblings == "distinct":
        return None
    if test == "K-SEQ":
        make_guesses = partial(guess_chains, draft=draft, chains=n)
    else:
        make_guesses = partial(guess_shape, draft=path_by_path(draft), shape=uniform((n,)),
                               siblings=siblings)
    return expectation(lambda rng: speculative_step(list(X), 2, rng, path_by_path(target), 1,
                                                    make_guesses, TESTS[test]),
                       lambda round: len(round.ids) - 1)


def toys_table():
    """Return the optimum and the tests, for one, two and three siblings on every toy."""
    rows = []
    for toy, (draft, target) in TOYS.items():
        p_draft, p_target = draft(X)[-1], target(X)[-1]
        for n, siblings in CASES:
            found = [best_accepted(guesses_law(p_draft, n, siblings), p_target),
                     *(reached(test, toy, n, siblings) for test in TESTS)]
            rows.append([toy, "1" if n == 1 else f"{n} {siblings}",
                         *("-" if one is None else f"{float(one):.4f}" for one in found)])
    return table(["toy", "guesses", "best possible", *TESTS], rows)


def main(argv=None):
    parser = argparse.ArgumentParser("python -m exact.optimum", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print(toys_table())


if __name__ == "__main__":
    main()
