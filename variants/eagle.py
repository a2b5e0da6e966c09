"""Li et al. (2024a), "EAGLE: ... Requires Rethinking Feature Uncertainty". Lossless.

Adds to medusa.py: one head that also reads its own guesses. The target's state at a token does not
determine which token was drawn there. The head (eagle_head.py) reads pairs of a state and the token
that came next, predicts the state at that token, and continues from its own prediction.

    state       the target's last hidden state at a token, after ln_f: true, or predicted
    rows_after  callable `(tree, nodes) -> [len(nodes), n_vocab]`: the head's distributions
    grow        callable `(rows_after, k, rng) -> Tree`: how guesses are arranged
    widths      "chain": K guesses in a row; numbers: a tree as in tree.py, drawn like the chain;
                "dynamic": the `total` best guesses in at most K levels, Li et al. (2024b)

Drawn guesses are tested with the distributions they were sampled from; guesses that are the head's
best ones, with one-hot rows. The true states of accepted tokens come from the test's own pass.

The head has EAGLE-3's norms on both inputs (Li et al. (2025)), and learned EAGLE-1's aim, the
target's states, and then EAGLE-3's, the target's distributions.
"""

from functools import partial

import numpy as np

from sampling import warp, with_sampling
from speculative import guess, make_step, verify
from variants.dynamic_tree import TOTAL_GUESSES, dynamic_tree
from variants.eagle_head import Head, load_head
from variants.medusa import heads_file
from variants.registry import Decoder, Flag, either, whole, wholes
from variants.shared.states import States
from variants.tree import (SIBLINGS_FLAG, TOTAL, Tree, draw_siblings, siblings_for, verify_tree,
                           with_tree_sampling)


def head_tree(rows_after, k, rng, widths, siblings):
    """Return tree.py's tree of these widths; the head reads each level once."""
    tree, level = Tree(), [-1]
    for width in widths[:k]:
        drawn = [(node, *guess) for node, row in zip(level, rows_after(tree, level))
                 for guess in draw_siblings(row, width, siblings, rng)]
        level = sorted({tree.add(*guess) for guess in drawn})
    return tree


def guess_by_head(x, k, rng, head, grow, settings):
    """Return a tree for the next k positions; an empty one after a single token."""
    def rows_after(tree, nodes):
        logits, paths = head(x, tree, nodes), [*tree.paths(), []]
        return np.concatenate([warp(logits[i : i + 1], ids=x + paths[node], **settings)
                               for i, node in enumerate(nodes)])

    tree = grow(rows_after, k, rng) if len(x) > 1 else Tree()
    return tree, tree.rows()


def guess_chain(x, k, rng, head, settings):
    """Return k guesses in a row, by the papers' own loop with the head as the draft."""
    tree = Tree()

    def draft(ids, n_last):
        if len(ids) > len(x):
            tree.add(len(tree) - 1, ids[-1], None)
        return warp(head(x, tree, [len(tree) - 1]), ids=ids, **settings)

    return guess(x, k, rng, draft) if len(x) > 1 else ([], [])


def load_head_of(models):
    """Return the weights of the target's own head."""
    return load_head(heads_file(models), models.target.params)


def build(models,
          K: Flag(whole, "guesses in a chain, or levels of a dynamic tree (default: 4)") = None,
          widths: Flag(either(wholes, "chain", "dynamic"), "chain: K guesses in a row; or children "
                       "for each node, level by level; dynamic: a new tree in each round"
                       ) = "chain",
          siblings: SIBLINGS_FLAG = None, total: TOTAL = None):
    """Return the step of a chain, of a tree of these widths, or of the best tree of each round."""
    check_flags(K, widths, siblings, total)
    target, greedy = States(models.target), models.is_greedy
    head = Head(load_head_of(models), models.target.n_head, target.states_of)
    if widths == "chain":
        guess = partial(guess_chain, head=head, settings=models.sampling)
        return make_step(with_sampling(target, **models.sampling), K or 4, guess)
    siblings = siblings_for(siblings, greedy or widths == "dynamic")

    def grow(rows_after, k, rng):
        if widths == "dynamic":
            return dynamic_tree(rows_after, total or TOTAL_GUESSES, k)
        return head_tree(rows_after, k, rng, widths, siblings)

    # At temperature 0 the head's row is one-hot and names one child; at temperature 1 it ranks all.
    guess = partial(guess_by_head, head=head, grow=grow,
                    settings=models.warm.sampling)
    depth = K or 4 if widths == "dynamic" else len(widths)
    return make_step(with_tree_sampling(target, **models.sampling), depth, guess, verify_tree)


def check_flags(K, widths, siblings, total):
    """Raise ValueError for a flag that has no effect with these widths."""
    if K is not None and widths not in ("chain", "dynamic"):
        raise ValueError(f"need --widths chain or dynamic for --K, got {widths}")
    if siblings is not None and widths == "chain":
        raise ValueError(f"need a tree in --widths for --siblings, got chain and {siblings}")
    if total is not None and widths != "dynamic":
        raise ValueError(f"need --widths dynamic for --total, got {widths}")


DECODER = Decoder(
    "eagle", "Li et al. (2024a)", "https://arxiv.org/abs/2401.15077",
    idea="guesses with one block that reads the target's states and its own guesses",
    guess=guess_chain, test=verify, build=build, needs=("heads",),
    tree=(guess_by_head, verify_tree))
