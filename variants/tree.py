"""Miao et al. (2023), "SpecInfer: ... Tree-based ... Inference and Verification". Lossless.

Adds to speculative.py: several guesses for one position. Each of these guesses has its own
guesses for the next position, so the guesses of a round form a tree. The target scores the tree
in one pass. The test goes from the root to the first child that is accepted, then to its first
accepted child, and so on.

    widths      <k_1, .., k_m>, the expansion configuration: the number of children of each
                node, level by level; "auto": the best tree at the measured costs
                (best_tree.py); "dynamic": a tree for each round, from the draft's probabilities
                (dynamic_tree.py)
    shape       a tree without tokens, with any numbers of children (best_tree.py)
    siblings    how children of one node are drawn: "distinct" (without replacement: Jeon et al.
                (2024), "Recursive Speculative Decoding"), "independent" (with replacement) or
                "top" (the most probable ones, not drawn)
"""

from collections import Counter
from functools import partial
from typing import Annotated

from sampling import accept, one_hot_rows, residual, sample
from speculative import Step, make_step
from variants.registry import Decoder, Flag, Models, either, needing, whole, wholes
from variants.shared.best_tree import auto_tree, n_levels, uniform_shape
from variants.shared.branches import Tree, best_ids, row_after, with_tree_sampling
from variants.shared.dynamic_tree import DEPTH, TOTAL_GUESSES, guess_dynamic


def without(row, token):
    """Return a copy of a row in which a token has no mass."""
    row = row.copy()
    row[token] = 0
    return row


def draw_siblings(row, width, siblings, rng):
    """Return up to `width` guesses for one position, each with the row it was drawn from."""
    if siblings == "top":  # not drawn, so the rows are one-hot
        best = [token for token in best_ids(row, width) if row[token] > 0]
        return list(zip(best, one_hot_rows(best, len(row))))
    drawn = []
    while len(drawn) < width and row.sum() > 0:  # no mass: all tokens have been drawn
        row = row / row.sum()
        token = sample(row, rng)
        drawn.append((token, row))
        if siblings == "distinct":  # the next sibling is drawn from the other tokens
            row = without(row, token)
    return drawn


def guess_shape(x, k, rng, draft, shape, siblings="distinct"):
    """Return a tree of at most k levels, drawn level by level, and the row of each node."""
    # The shape's path (0, 2) is one child of the shape's path (0,).
    n_children: Counter[tuple] = Counter()
    for path in shape:
        if len(path) <= k:
            n_children[path[:-1]] += 1
    tree = Tree()
    paths_of_level: dict[int, tuple] = {-1: ()}  # node: its path in the shape
    # The loop ends at a level whose nodes have no children in the shape.
    while any(n_children[path] for path in paths_of_level.values()):
        rows = draft(x + tree, len(paths_of_level))  # this level's nodes are the last nodes
        paths_below: dict[int, tuple] = {}
        for node, row in zip(paths_of_level, rows):
            path = paths_of_level[node]
            guesses = draw_siblings(row, n_children[path], siblings, rng)
            for rank, (token, its_row) in enumerate(guesses):
                child = tree.add(node, token, its_row)
                # A token drawn twice is one node; its first rank decides its children.
                paths_below.setdefault(child, (*path, rank))
        paths_of_level = paths_below
    return tree, tree.rows()


def verify_tree(tree, p_draft, p_target, rng):
    """Walk down while a child is accepted; add a token: multi-step speculative sampling.

    At each node the guesses are tested in the order drawn. The test compares the row that the
    guess was drawn from with what the rejected siblings have left of the target's distribution.
    `p_draft` is not used, because the tree has the rows. With one-hot rows the test is
    SpecInfer's greedy verification. Miao et al. (2023), VerifyStochastic.
    """
    ids: list[int] = []
    node = -1  # the root
    while True:
        remaining = row_after(p_target, node)
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            # The quotient comes first: `accept` refuses min(NaN, 1), but min(1, NaN) is 1.
            if accept(min(remaining[token] / row[token], 1), rng):
                ids.append(token)
                node = child
                break  # the walk continues at the child
            remaining = residual(remaining, row)
        else:  # no child is accepted, or there is none
            return ids + [sample(remaining, rng)]


def tree_step(models, widths, siblings=None, total=None, depth=DEPTH, test=verify_tree):
    """Return the step of a tree of these widths, of the best tree, or of a tree per round."""
    if total is not None and widths != "dynamic":
        raise ValueError("--total needs --widths dynamic")
    # Siblings can be the most probable tokens, best first, instead of drawn tokens.
    are_best = models.is_greedy or widths == "dynamic"
    if are_best and siblings not in (None, "top"):
        raise ValueError(f"--siblings {siblings} does not apply at --temperature 0 or with "
                         "--widths dynamic (only top)")
    if siblings is None:
        siblings = "top" if are_best else "distinct"
    # In a greedy run the draft's rows, at temperature 1, still rank all tokens.
    draft = with_tree_sampling(models.draft, **models.warm.sampling)
    target = with_tree_sampling(models.target, **models.sampling)

    def step_of(shape):
        guess = partial(guess_shape, draft=draft, shape=shape, siblings=siblings)
        return make_step(target, n_levels(shape), guess, test)

    if widths == "auto":
        return auto_tree(step_of, models.costs)
    if widths == "dynamic":
        guess = partial(guess_dynamic, draft=draft, total=total or TOTAL_GUESSES)
        return make_step(target, depth, guess, test)
    return step_of(uniform_shape(widths))


WIDTHS = Annotated[tuple, Flag(wholes, "children per node, level by level")]
SIBLINGS = Annotated[str | None, Flag(
    str, "how children of one node are drawn (default: top at temperature 0, otherwise "
    "distinct)",
    ("distinct", "independent", "top"))]
TOTAL = Annotated[int | None, Flag(
    whole, f"guesses in a dynamic tree (default: {TOTAL_GUESSES})")]


def build(models: Models,
          widths: Annotated[tuple | str, Flag(
              either(wholes, "auto", "dynamic"), "children per node, level by level; auto: "
              "the best tree at the measured costs; dynamic: a new tree in each round, from "
              "the draft's probabilities")] = (2, 2, 1),
          siblings: SIBLINGS = None,
          total: TOTAL = None) -> Step:
    """Return the step with guesses from the draft."""
    return tree_step(models, widths, siblings, total)


DECODER = Decoder(
    "tree", "Miao et al. (2023)", "https://arxiv.org/abs/2305.09781",
    idea="guesses several tokens per position; one pass scores the whole tree",
    family="several guesses per position",
    guess=guess_shape, test=verify_tree, build=build, needs=needing("draft", "tree"))
