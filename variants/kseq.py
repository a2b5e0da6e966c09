"""Sun et al. (2023), "SpecTr: Fast Speculative Decoding via Optimal Transport", K-SEQ. Lossless.

What it adds to tree.py: another test for several guesses of one position, drawn independently from
one row. Multi-step sampling spends the target's mass greedily on the first guess; here every guess
has the same, smaller chance p_target / (rho p_draft), and together they are kept more often.

    m         guesses for this position (k in the paper), all from p_draft
    rho       in [1, m]: by how much the ratio is divided
    beta      the chance that one guess passes: sum of min(p_draft, p_target / rho)
    passed    the chance that one of the m does: 1 - (1 - beta)^m; at most rho beta, or the mass of
              the token that comes if none does would be negative somewhere
    chains    drafts of K tokens each, drawn independently; a tree has their common starts once
"""

from functools import partial

import numpy as np

from sampling import accept, sample
from speculative import guess, make_step
from variants.registry import GUESSES, Decoder, Flag, whole
from variants.tree import Tree, with_tree_sampling


def shared(p_draft, p_target, rho):  # -> [n_vocab]
    """The mass with which one guess is drawn and passes."""
    return np.minimum(p_draft, p_target / rho)


def find_rho(p_draft, p_target, m):
    """The smallest rho in [1, m] with passed <= rho beta, by bisection; m itself always has it."""
    def large_enough(rho):
        beta = shared(p_draft, p_target, rho).sum()
        return 1 - (1 - beta) ** m <= rho * beta + 1e-15  # equal rows: beta is 1, rounded

    low, high = 1.0, float(m)
    if large_enough(low):
        return low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if large_enough(middle) else (middle, high)
    return high


def left_over(p_draft, p_target, rho, m):  # -> [n_vocab]
    """What the token is drawn from if none of the m guesses passes (its sum is not 1)."""
    once = shared(p_draft, p_target, rho)
    beta = once.sum()
    if not beta > 0:
        return p_target
    rest = np.maximum(p_target - once * ((1 - (1 - beta) ** m) / beta), 0)
    return rest if rest.sum() > 0 else p_target  # by rounding alone


def guess_chains(x, k, rng, draft, chains):
    """A tree of several chains of k guesses, each drawn by itself from one draft."""
    tree = Tree()
    for _ in range(chains):
        node = -1
        for token, row in zip(*guess(x, k, rng, draft)):
            node = tree.add(node, token, row)
    return tree, tree.rows()


def verify_kseq(tree, p_draft, p_target, rng):
    """Walk down as `verify_tree` does, with the K-SEQ test at every node."""
    ids, node = [], -1
    while True:
        guesses, p = tree.guesses_at(node), p_target[1 + node]
        if not guesses:
            return ids + [sample(p, rng)]
        row, m = guesses[0][1], len(guesses)
        rho = find_rho(row, p, m)
        for child, _ in guesses:
            token = tree.tokens[child]
            if accept(min(p[token] / (rho * row[token]), 1), rng):
                ids, node = ids + [token], child
                break
        else:
            return ids + [sample(left_over(row, p, rho, m), rng)]


def build(models, K: GUESSES = 4, chains: Flag(whole, "independent drafts") = 3):
    """Return the step: chains are drawn one by one and scored as a tree."""
    guess = partial(guess_chains, draft=models.probabilities("draft"), chains=chains)
    return make_step(with_tree_sampling(models.target, **models.sampling), K, guess, verify_kseq)


DECODER = Decoder(
    "kseq", "Sun et al. (2023)", "https://arxiv.org/abs/2310.15141",
    idea="tests several independent drafts, all with the same chance",
    guess=guess_chains, test=verify_kseq, build=build, branches=True)
