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
from speculative import speculative_step
from variants.auto import Measuring, auto_measuring
from variants.best_tree import auto_tree, cut, full, levels
from variants.shared.branches import Tree, best_ids, with_tree_sampling
from variants.dynamic_tree import DEPTH, guess_dynamic
from variants.registry import Decoder, Flag, Rounds, numbers_or_word

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


def guess_shape(x, k, rng, drafts, shape, siblings="distinct"):
    """A tree of at most k levels, to which each draft adds, and the row of each node."""
    tree = Tree()
    for draft in drafts:
        expand(tree, x, draft, cut(shape, k), rng, siblings)
    return tree, tree.rows()


def guess_tree(x, k, rng, drafts, widths, siblings="distinct"):
    """The same for a tree whose nodes have as many children as all of their level."""
    if siblings not in SIBLINGS:
        raise ValueError(f"need siblings {', '.join(SIBLINGS)}, got {siblings!r}")
    return guess_shape(x, k, rng, drafts, full(widths), siblings)


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

def parts(models, siblings, are_best=False):
    """(draft, target, siblings), the models for trees.

    At temperature 0 a draft's row is one-hot and names one child; at temperature 1 it ranks all.
    """
    greedy = models.is_greedy
    draft = with_tree_sampling(models.draft,
                               **(models.at_temperature_1 if greedy else models.sampling))
    return (draft, with_tree_sampling(models.target, **models.sampling),
            choose_siblings(siblings, are_best or greedy))


def choose_siblings(siblings, are_best):
    """How siblings are drawn: where they are to be the best ones, no chance makes them."""
    if are_best and siblings not in ("auto", "top"):
        raise ValueError(f"need --siblings top at --temperature 0 and with --widths dynamic, got "
                         f"{siblings}")
    return siblings if siblings != "auto" else "top" if are_best else "distinct"


def best_trees(models, siblings):
    """The builder `(costs, on_choice, seen) -> step` of --widths auto, once the costs are known."""
    draft, target, siblings = parts(models, siblings)

    def step_of(shape):
        guess = partial(guess_shape, drafts=[draft], shape=shape, siblings=siblings)
        return partial(speculative_step, target=target, K=levels(shape), make_guesses=guess,
                       test=verify_tree)

    return partial(auto_tree, step_of)


def build(models, widths, siblings, total=None, verify=verify_tree):
    """A tree of these widths, or the best one: of many rounds, or of this round."""
    if widths == "auto":
        measuring = Measuring(models.probabilities("draft"), models.probabilities("target"))
        return auto_measuring(measuring, choosing=best_trees(models, siblings))
    draft, target, siblings = parts(models, siblings, are_best=widths == "dynamic")
    guess, K = ((partial(guess_dynamic, draft=draft, total=total), DEPTH) if widths == "dynamic"
                else (partial(guess_tree, drafts=[draft], widths=widths, siblings=siblings),
                      len(widths)))
    return partial(speculative_step, target=target, K=K, make_guesses=guess, test=verify)


DECODER = Decoder(
    "tree", build, source="Miao et al. (2023)", url="https://arxiv.org/abs/2305.09781",
    flags={"widths": Flag((2, 2, 1), numbers_or_word, "children for each node, level by level: "
                          "3,2,1; tree also auto: by what is measured, and dynamic: anew in each "
                          "round; eagle also dynamic, and chain: K guesses in a row"),
           "siblings": Flag("auto", str, "how children of one node are drawn; auto: top at "
                            "temperature 0, else distinct", ("auto", *SIBLINGS)),
           "total": Flag(16, int, "guesses in a dynamic tree")},
    is_tree=lambda settings: True, rounds=Rounds())
