"""Sun et al. (2023), "SpecTr: Fast Speculative Decoding via Optimal Transport", K-SEQ. Lossless.

What it adds to tree.py: another test for several guesses of one place, all drawn independently from
one law. Multi-step sampling spends the target's law greedily on the first guess; here every guess
has the same, smaller chance p_target / (rho p_draft), and together they are kept more often.

    m         guesses for this place (k in the paper), all from p_draft
    rho       in [1, m]: by how much the ratio is divided
    beta      the chance that one guess passes: sum of min(p_draft, p_target / rho)
    passed    the chance that one of the m does: 1 - (1 - beta)^m; at most rho beta, or the law of
              the token that comes if none does would be negative somewhere
    chains    drafts of K ids each, drawn independently; in a tree their common beginnings are one
"""

import numpy as np

from sampling import accept, sample
from speculative import guess
from variants.tree import Tree, children, propose, tree_round


def shared(p_draft, p_target, rho):  # -> [n_vocab]
    """The mass with which one guess is drawn and passes."""
    return np.minimum(p_draft, p_target / rho)


def find_rho(p_draft, p_target, m):
    """The smallest rho in [1, m] with passed <= rho beta, by bisection; m itself always has it."""
    def large_enough(rho):
        beta = shared(p_draft, p_target, rho).sum()
        return 1 - (1 - beta) ** m <= rho * beta + 1e-15  # equal laws: beta is 1 but for rounding

    low, high = 1.0, float(m)
    if large_enough(low):
        return low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if large_enough(middle) else (middle, high)
    return high


def left_over(p_draft, p_target, rho, m):  # -> [n_vocab]
    """The law of the token that comes if none of the m guesses passes (its sum is not 1)."""
    once = shared(p_draft, p_target, rho)
    beta = once.sum()
    if not beta > 0:
        return p_target
    rest = np.maximum(p_target - once * ((1 - (1 - beta) ** m) / beta), 0)
    return rest if rest.sum() > 0 else p_target  # by rounding alone


def verify_kseq(tree, p_target, rng):
    """Walk down as `verify_tree` does, with the K-SEQ test at every node."""
    ids, node = [], -1
    while True:
        guesses, law = children(tree, node), p_target[1 + node]
        if not guesses:
            return ids + [sample(law, rng)]
        p_draft, m = guesses[0][1], len(guesses)
        rho = find_rho(p_draft, law, m)
        for child, _ in guesses:
            token = tree.tokens[child]
            if accept(min(law[token] / (rho * p_draft[token]), 1), rng):
                ids, node = ids + [token], child
                break
        else:
            return ids + [sample(left_over(p_draft, law, rho, m), rng)]


def kseq_step(x, room, rng, draft, target, K, chains):
    """One round with several chains of K guesses from one draft.

    `draft` is a callable `(ids, n_last) -> probabilities`, `target` one for trees (tree.py).
    """
    tree = Tree([], [], [])
    for _ in range(chains):
        node = -1
        for token, law in zip(*guess(x, draft, min(K, room - 1), rng)):
            node = propose(tree, node, token, law)
    return tree_round(tree, x, target, verify_kseq, rng)
