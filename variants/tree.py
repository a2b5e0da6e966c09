"""Miao et al. (2023), "SpecInfer: ... Tree-based Speculative Inference and Verification". Lossless.

What it adds to speculative.py: several guesses for one position. All, and what follows each, form a
tree that the target scores in one pass; the first guess that passes the test leads on.

    tree        the guesses of a round, as data: branches.py
    widths      <k_1, .., k_m>, the expansion configuration: children for each node of each level;
                "auto": the best tree for what was measured (best_tree.py); "dynamic": a tree for
                each round, from the draft's probabilities (dynamic_tree.py)
    shape       the same for trees whose nodes have different numbers of children (best_tree.py)
    siblings    how children of one node are drawn: "distinct" (without replacement), "independent"
                (with replacement) or "top" (the most probable ones, no chance involved)

The step is speculative.py's own, with another guess and another test; K is the depth of the tree.
"""

from functools import partial

import numpy as np

from sampling import accept, one_hot_rows, residual, sample
from speculative import make_step
from variants.best_tree import auto_tree, n_levels, truncate, uniform
from variants.dynamic_tree import DEPTH, TOTAL_GUESSES, guess_dynamic
from variants.registry import Decoder, Flag, whole, widths_or
from variants.shared.branches import Tree, best_ids, with_tree_sampling

SIBLINGS = ("distinct", "independent", "top")


# ---- guess

def draw_siblings(row, width, siblings, rng):
    """Up to `width` guesses for one position, each with the very row that it was drawn from."""
    if siblings == "top":
        best = [token for token in best_ids(row, width) if row[token] > 0]
        return list(zip(best, one_hot_rows(best, len(row))))
    drawn = []
    while len(drawn) < width and row.sum() > 0:
        row = row / row.sum()
        drawn.append((sample(row, rng), row))
        if siblings == "distinct":
            row = row * (np.arange(len(row)) != drawn[-1][0])
    return drawn


def expand(tree, x, draft, shape, rng, siblings="distinct"):
    """Let a draft add its guesses level by level, one pass per level."""
    level = {-1: shape}
    while any(level.values()):
        rows, below = draft(x + tree, 1 + len(tree)), {}
        for node, shapes in level.items():
            guesses = draw_siblings(rows[1 + node], len(shapes), siblings, rng)
            for (token, row), shape in zip(guesses, shapes):
                below.setdefault(tree.add(node, token, row), shape)  # a guess may come twice
        level = below


def guess_shape(x, k, rng, draft, shape, siblings="distinct"):
    """Return a tree of at most k levels, and the row that each node was drawn from."""
    if siblings not in SIBLINGS:
        raise ValueError(f"need siblings {', '.join(SIBLINGS)}, got {siblings!r}")
    tree = Tree()
    expand(tree, x, draft, truncate(shape, k), rng, siblings)
    return tree, tree.rows()


# ---- verify

def verify_tree(tree, p_draft, p_target, rng):
    """Multi-step speculative sampling: walk down while a child passes, then one token more.

    At each node the proposals are tested in the order drawn, each with its own row (not p_draft's),
    against what the earlier ones, all rejected, have left of the target's distribution. With
    one-hot rows this is SpecInfer's greedy verification. Miao et al. (2023), VerifyStochastic.
    """
    ids, node = [], -1
    while True:
        left = p_target[1 + node]
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            if accept(min(left[token] / row[token], 1), rng):  # a NaN stays one, and is refused
                ids, node = ids + [token], child
                break
            left = residual(left, row)
        else:
            return ids + [sample(left, rng)]


# ---- the entry

def siblings_for(siblings, are_best):
    """Return how siblings are drawn: the draft's best tokens need no chance."""
    if are_best and siblings not in (None, "top"):
        raise ValueError(f"need --siblings top at --temperature 0 and with --widths dynamic, got "
                         f"{siblings}")
    return siblings or ("top" if are_best else "distinct")


def draft_for_trees(models):
    """Return the draft. At temperature 0 its row is one-hot and names one child: so at 1."""
    return with_tree_sampling(models.draft, **(models.at_temperature_1 if models.is_greedy
                                               else models.sampling))


def tree_step(models, widths, siblings, test=verify_tree):
    """Return the step whose guesses are a tree of these widths."""
    return shape_step(models, uniform(widths), siblings_for(siblings, models.is_greedy), test)


def shape_step(models, shape, siblings, test=verify_tree):
    """Return the step whose guesses are a tree of this shape."""
    guess = partial(guess_shape, draft=draft_for_trees(models), shape=shape, siblings=siblings)
    return make_step(with_tree_sampling(models.target, **models.sampling), n_levels(shape), guess,
                     test)


WIDTHS = Flag(widths_or(), "children for each node, level by level")
SIBLINGS_FLAG = Flag(str, "how children of one node are drawn (default: top at temperature 0, else "
                     "distinct)", SIBLINGS)
TOTAL = Flag(whole, f"guesses in a dynamic tree (default: {TOTAL_GUESSES})")


def build(models,
          widths: Flag(widths_or("auto", "dynamic"), "children for each node, level by level; "
                       "auto: the best tree at the measured costs; dynamic: a new tree in each "
                       "round, from the draft's probabilities") = (2, 2, 1),
          siblings: SIBLINGS_FLAG = None, total: TOTAL = None):
    """Return the step of a tree of these widths, or of the best one: on average, or this round."""
    if total is not None and widths != "dynamic":
        raise ValueError(f"need --widths dynamic for --total, got {widths}")
    if widths == "dynamic":
        siblings_for(siblings, are_best=True)
        guess = partial(guess_dynamic, draft=draft_for_trees(models), total=total or TOTAL_GUESSES)
        target = with_tree_sampling(models.target, **models.sampling)
        return make_step(target, DEPTH, guess, verify_tree)
    if widths == "auto":
        siblings = siblings_for(siblings, models.is_greedy)
        return auto_tree(partial(shape_step, models, siblings=siblings), models.costs)
    return tree_step(models, widths, siblings)


DECODER = Decoder(
    "tree", "Miao et al. (2023)", "https://arxiv.org/abs/2305.09781",
    idea="guesses several tokens per position; one pass scores the whole tree",
    guess=guess_shape, test=verify_tree, build=build, branches=True)
