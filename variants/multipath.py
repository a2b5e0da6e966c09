"""Thomas and Pal (2026), "Greedy Multi-Path Block Verification ...". Lossless.

Adds to block.py: the draft guesses several paths, independently of each other, and only the best
path is tested, as one block. At each position the best token is the one with the largest ratio
p_target / p_draft (of equal ratios the lowest id), so the best path is chosen token by token.

Choosing changes the distribution of the path that is tested, and the test has to know the new
one. Let `mass` be the draft's probability of a prefix, and `below` that of all paths that are
worse than every path with this prefix. Then the best of N paths begins with the prefix exactly
if no path is better and at least one has it:

    P(best path has the prefix) = (below + mass)^N - below^N

A row of the best path is the quotient of two such numbers: of a prefix with one more token, and
of the prefix.

Subtle: more paths can give fewer tokens per round, because the best path's distribution may be
further from the target's than the draft's is: it always is if the draft equals the target. At
temperature 0 all paths are the same path.
"""

from functools import partial
from typing import Annotated

import numpy as np

from sampling import sample
from speculative import Step, make_step
from variants.block import block_verify
from variants.registry import GUESSES, Decoder, Flag, Models, whole
from variants.shared.branches import Tree, with_tree_sampling


def guess_paths(x, k, rng, draft, paths):
    """Return the tree of some independent paths of k tokens, drawn level by level."""
    tree = Tree()
    ends = [-1] * paths  # the last node of each path
    for _ in range(k):
        nodes = sorted(set(ends))  # paths that agree so far share a node
        rows = dict(zip(nodes, draft(x + tree, len(nodes))))
        ends = [tree.add(end, sample(rows[end], rng), rows[end]) for end in ends]
    return tree, tree.rows()


def worst_first(p_draft, p_target):
    """Return the tokens by p_target / p_draft, the largest last; of equal ones the lowest id."""
    can_be_drawn = p_draft > 0
    ratios = np.zeros(len(p_draft))
    with np.errstate(over="ignore"):  # a ratio too large for a float is inf, which is the largest
        ratios[can_be_drawn] = p_target[can_be_drawn] / p_draft[can_be_drawn]
    return np.lexsort((-np.arange(len(ratios)), ratios))


def difference_of_powers(a, b, n):
    """Return (a^n - b^n) / (a - b), which is exact for a near b and for a = b."""
    return sum(a**i * b ** (n - 1 - i) for i in range(n))


def best_row(p_draft, order, mass, below, n_paths):
    """Return the best path's distribution of the next token, and what is below each token."""
    drawn = p_draft[order]
    worse = below + mass * (np.cumsum(drawn) - drawn)  # in the order, then by token
    chosen = drawn * difference_of_powers(worse + mass * drawn, worse, n_paths)
    row, below_token = np.zeros_like(p_draft), np.zeros_like(p_draft)
    row[order] = chosen / difference_of_powers(below + mass, below, n_paths)
    below_token[order] = worse
    return row, below_token


def best_path(tree, p_target):
    """Return the tokens of the best path, the row each was chosen from, and the target's rows."""
    n_paths = len(tree.guesses_at(-1))
    tokens, rows, targets = [], [], [p_target[0]]
    node, mass, below = -1, 1, 0
    while guesses := tree.guesses_at(node):
        p_draft = guesses[0][1]  # the same for all guesses at a node
        order = worst_first(p_draft, targets[-1])
        rank = np.argsort(order)  # rank[token] is its place in the order
        node = max((child for child, _ in guesses), key=lambda i: rank[tree.tokens[i]])
        token = tree.tokens[node]
        row, below_token = best_row(p_draft, order, mass, below, n_paths)
        tokens.append(token)
        rows.append(row)
        targets.append(p_target[1 + node])
        mass, below = mass * p_draft[token], below_token[token]
    return tokens, rows, targets


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
    idea="draws several paths and tests the best one as a block",
    family="several guesses per position",
    guess=guess_paths, test=verify_best_path, build=build)
