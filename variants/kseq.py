"""Sun et al. (2023), "SpecTr: ... Decoding via Optimal Transport", K-SEQ. Lossless.

Adds to tree.py: a different test for several guesses of one position, which are drawn
independently from one row. tree.py's test accepts the first guess as often as it can, and later
guesses less often. Here every guess passes with the same probability, min(1, p_target / (rho
p_draft)).

    m         guesses for this position (k in the paper), all drawn from p_draft
    rho       in [1, m]: the divisor of the ratio
    beta      the probability that one guess passes: sum of min(p_draft, p_target / rho)

1. For each token, a guess is this token and passes with probability min(p_draft, p_target /
   rho) (`shared`).
2. The guesses are tested one after another until one passes. Guess i, counted from 0, is tested
   if the i guesses before it have failed, with probability (1 - beta)^i. So on average
   (1 - (1 - beta)^m) / beta guesses are tested.
3. The product of 1. and 2. is the probability that the token is accepted. It must not exceed
   the token's p_target. This holds for every token if the mean in 2. is at most rho, that is,
   if 1 - (1 - beta)^m <= rho beta (`find_rho`).
4. If all m guesses fail, the token is drawn from the residual of p_target and the product in 3.
   (`left_over`).
"""

from functools import partial
from typing import Annotated

import numpy as np

from sampling import accept, residual, sample
from speculative import Step, guess, make_step
from variants.registry import GUESSES, Decoder, Flag, Models, needing, whole
from variants.shared.branches import Tree, row_after, with_tree_sampling


def shared(p_draft, p_target, rho):  # -> [n_vocab]
    """Return for each token the probability that one guess is this token and passes."""
    return np.minimum(p_draft, p_target / rho)


def find_rho(p_draft, p_target, m):
    """Return the smallest rho in [1, m] that is large enough, by bisection."""
    def large_enough(rho):
        beta = shared(p_draft, p_target, rho).sum()
        # 1e-15: if the rows are equal, both sides are 1 up to rounding.
        return 1 - (1 - beta) ** m <= rho * beta + 1e-15

    if large_enough(1.0):
        return 1.0
    low = 1.0  # not large enough
    high = float(m)  # always large enough, because at most m guesses are tested
    for _ in range(30):  # halves the distance of low and high
        middle = (low + high) / 2
        if large_enough(middle):
            high = middle
        else:
            low = middle
    return high


def left_over(p_draft, p_target, rho, m):  # -> [n_vocab]
    """Return the distribution of the token that follows if none of the m guesses passes."""
    once = shared(p_draft, p_target, rho)
    beta = once.sum()
    # (1 - (1 - beta)^m) / beta, without a division by 0
    mean_tested = sum((1 - beta) ** i for i in range(m))
    accepted = once * mean_tested  # for each token the probability that it is accepted
    return residual(p_target, accepted)


def guess_chains(x, k, rng, draft, chains):
    """Return a tree of independently drawn chains of k guesses; equal starts share nodes."""
    tree = Tree()
    for _ in range(chains):
        guesses, rows = guess(x, k, rng, draft)
        node = -1  # the root, where each chain starts
        for token, row in zip(guesses, rows):
            node = tree.add(node, token, row)
    return tree, tree.rows()


def verify_kseq(tree, p_draft, p_target, rng):
    """Walk from the root down as `verify_tree` does, with the K-SEQ test at every node."""
    ids: list[int] = []
    node = -1  # the root
    while True:
        guesses = tree.guesses_at(node)
        target_row = row_after(p_target, node)
        if not guesses:  # a leaf, reached with all guesses of its chain accepted
            return ids + [sample(target_row, rng)]
        m = len(guesses)  # a token drawn twice counts twice
        _, draft_row = guesses[0]  # all guesses at this node were drawn from this row
        rho = find_rho(draft_row, target_row, m)
        for child, _ in guesses:
            token = tree.tokens[child]
            if accept(min(target_row[token] / (rho * draft_row[token]), 1), rng):
                ids.append(token)
                node = child
                break  # the walk continues at the child
        else:  # no guess passed
            return ids + [sample(left_over(draft_row, target_row, rho, m), rng)]


def build(models: Models,
          K: GUESSES = 4,
          chains: Annotated[int, Flag(whole, "number of independent chains of guesses")] = 3
          ) -> Step:
    """Return the step: chains are drawn one by one and scored as a tree."""
    make_guesses = partial(guess_chains, draft=models.draft_rows, chains=chains)
    target = with_tree_sampling(models.target, **models.sampling)
    return make_step(target, K, make_guesses, verify_kseq)


DECODER = Decoder(
    "kseq", "Sun et al. (2023)", "https://arxiv.org/abs/2310.15141",
    idea="draws several independent chains; all guesses for a position get the same rule",
    family="several guesses per position",
    guess=guess_chains, test=verify_kseq, build=build, needs=needing("draft", "tree"))
