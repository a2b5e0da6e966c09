"""Thomas and Pal (2026), "Greedy Multi-Path Block Verification ...". Lossless.

Adds to block.py: the draft guesses several paths, independently of each other, and only the best
path is tested, as one block. The best path has the token with the largest ratio p_target / p_draft
at each position. If ratios are equal, it has the token with the lowest id.

Choosing changes the distribution of the path that is tested, so the test needs the distribution
of the best path instead of the draft's.

    prefix     the first tokens of a path
    mass       the draft's probability of a path with the prefix
    below      the draft's probability of a path that is worse than every path with the prefix
    N          number of paths

The best of N paths has the prefix if and only if no path is better than all paths with the
prefix, and at least one path has the prefix:

    P(best path has the prefix) = (below + mass)^N - below^N

A probability in a row of the best path is a quotient. The numerator is the probability of the
prefix with one more token, and the denominator is the probability of the prefix alone.

Subtle: more paths can give fewer tokens per round, because the best path's distribution may be
further from the target's than the draft's is. This is always so if the draft equals the target.
At temperature 0 all paths are the same path.
"""

from functools import partial
from typing import Annotated

import numpy as np

from sampling import sample
from speculative import Step, make_step
from variants.block import block_verify
from variants.registry import GUESSES, Decoder, Flag, Models, whole
from variants.shared.branches import Tree, row_after, with_tree_sampling


def guess_paths(x, k, rng, draft, paths):
    """Return the tree of `paths` independent paths of k tokens, drawn level by level."""
    tree = Tree()
    ends = [-1] * paths  # the last node of each path
    for _ in range(k):
        nodes = sorted(set(ends))  # paths that agree so far share a node
        # The level's nodes are the last nodes of the tree, in ascending order, as the rows are.
        rows = dict(zip(nodes, draft(x + tree, len(nodes))))
        ends = [tree.add(end, sample(rows[end], rng), rows[end]) for end in ends]
    return tree, tree.rows()


def worst_first(p_draft, p_target):
    """Return all tokens, sorted by p_target / p_draft: the best token is last.

    Of equal ratios the lowest id is the best.
    """
    can_be_drawn = p_draft > 0
    ratios = np.zeros(len(p_draft))
    with np.errstate(over="ignore"):  # a ratio too large for a float is inf, which is the largest
        ratios[can_be_drawn] = p_target[can_be_drawn] / p_draft[can_be_drawn]
    falling_ids = -np.arange(len(ratios))  # so that the lowest id comes last
    # lexsort sorts by its last key, the ratios; equal ratios by the key before it.
    return np.lexsort((falling_ids, ratios))


def difference_of_powers(a, b, n):
    """Return (a^n - b^n) / (a - b), which is exact for a near b and for a = b."""
    return sum(a**i * b ** (n - 1 - i) for i in range(n))


def best_row(p_draft, order, mass, below, n_paths):
    """Return the best path's distribution of the token after a prefix, and a second array.

    The second array has an entry for each token: `below` of the prefix continued by the token.
    `mass` and `below` are the prefix's; `order` has the tokens, the worst first.
    """
    sorted_row = p_draft[order]
    worse_tokens = np.cumsum(sorted_row) - sorted_row  # of each token: the mass before it
    below_sorted = below + mass * worse_tokens
    # P(the prefix and the token) / P(the prefix). Each P is (below + mass)^N - below^N, which
    # is a mass times `difference_of_powers`. The mass of the prefix and the token is mass *
    # sorted_row, so mass cancels.
    above_sorted = below_sorted + mass * sorted_row
    with_token = sorted_row * difference_of_powers(above_sorted, below_sorted, n_paths)
    row = np.zeros_like(p_draft)
    row[order] = with_token / difference_of_powers(below + mass, below, n_paths)
    below_token = np.zeros_like(p_draft)
    below_token[order] = below_sorted
    return row, below_token


def best_path(tree, p_target):
    """Return the best path's tokens, the row of the best path for each, and the target's rows."""
    n_paths = len(tree.guesses_at(-1))  # each path has one guess at the root
    tokens, rows = [], []
    target_rows = [row_after(p_target, -1)]
    node = -1  # the root
    mass = 1
    below = 0
    while guesses := tree.guesses_at(node):
        _, p_draft = guesses[0]  # all guesses at a node were drawn from this row
        order = worst_first(p_draft, target_rows[-1])
        rank = np.argsort(order)  # rank[token] is the token's position in the order
        children = [child for child, _ in guesses]
        node = max(children, key=lambda child: rank[tree.tokens[child]])  # with the best token
        token = tree.tokens[node]
        row, below_token = best_row(p_draft, order, mass, below, n_paths)
        tokens.append(token)
        rows.append(row)
        target_rows.append(row_after(p_target, node))
        mass = mass * p_draft[token]
        below = below_token[token]
    return tokens, rows, target_rows


def verify_best_path(tree, p_draft, p_target, rng):
    """Test the best path as one block, with the rows of the best path."""
    return block_verify(*best_path(tree, p_target), rng)


def build(models: Models,
          K: GUESSES = 4,
          paths: Annotated[int, Flag(whole, "independent paths of K guesses")] = 2) -> Step:
    """Return the step: paths drawn by the draft, one pass of the target over their tree."""
    draft = with_tree_sampling(models.draft, **models.sampling)
    target = with_tree_sampling(models.target, **models.sampling)
    return make_step(target, K, partial(guess_paths, draft=draft, paths=paths), verify_best_path)


DECODER = Decoder(
    "multipath", "Thomas and Pal (2026)", "https://arxiv.org/abs/2602.16961",
    idea="draws several paths, and tests the best path as a block",
    family="several guesses per position",
    guess=guess_paths, test=verify_best_path, build=build, needs=("draft", "tree"))
