"""Thomas and Pal (2026), "Greedy Multi-Path Block Verification ...". Lossless.

Adds to block.py: the draft guesses several paths, independently of each other, and only the
best path is tested, as one block. At each node the best path continues with the drawn token
that has the largest ratio p_target / p_draft. The lowest id among tied tokens is the best.

Choosing changes the distribution of the path that is tested, so the test needs the distribution
of the best path instead of the draft's.

    N          number of paths
    prefix     the first tokens of a path
    mass       the draft's probability of a path with the prefix
    below      the draft's probability of a path that is worse than every path with the prefix

1. The better one of two paths has the better token at the first position where they differ. So
   a path has the prefix, is worse than all paths with the prefix, or is better than all of
   them.
2. With probability (below + mass)^N none of the N paths is better than the paths with the
   prefix. Then the best path has the prefix, unless all N paths are worse. This exception has
   probability below^N, so

    P(best path has the prefix) = (below + mass)^N - below^N

3. A row of the best path is a quotient of two such probabilities: of the prefix with one more
   token, and of the prefix alone.

Subtle: more paths can give fewer tokens per round, because the best path's distribution can be
further from the target's than the draft's distribution is. If the draft equals the target, it
always is. At temperature 0 all paths are the same path.
"""

from functools import partial
from typing import Annotated

import numpy as np

from sampling import sample
from speculative import Step, make_step
from variants.block import block_verify
from variants.registry import GUESSES, Decoder, Flag, Models, needing, whole
from variants.shared.branches import Tree, row_after, with_tree_sampling


def guess_paths(x, k, rng, draft, paths):
    """Return the tree of `paths` independent paths of k tokens, drawn level by level."""
    tree = Tree()
    ends = [-1] * paths  # the last node of each path; all begin at the root
    for _ in range(k):
        nodes = sorted(set(ends))  # paths with the same tokens so far share a node
        # These nodes are the last ones of the tree. So the draft's last rows are their rows.
        row_of = dict(zip(nodes, draft(x + tree, len(nodes))))
        for i, end in enumerate(ends):
            row = row_of[end]
            ends[i] = tree.add(end, sample(row, rng), row)
    return tree, tree.rows()


def worst_first(p_draft, p_target):
    """Return all tokens, sorted by p_target / p_draft; the lowest id among ties is last."""
    can_be_drawn = p_draft > 0
    ratios = np.zeros(len(p_draft))
    with np.errstate(over="ignore"):  # a ratio too large for a float is inf, the largest
        ratios[can_be_drawn] = p_target[can_be_drawn] / p_draft[can_be_drawn]
    # A stable sort leaves equal ratios in ascending order of their ids.
    best_first = np.argsort(-ratios, kind="stable")
    return best_first[::-1]


def difference_of_powers(a, b, n):
    """Return (a^n - b^n) / (a - b), as the sum a^(n-1) + a^(n-2) b + .. + b^(n-1)."""
    # The sum loses no digits if a is near b, and needs no division by 0 if a = b.
    return sum(a**i * b ** (n - 1 - i) for i in range(n))


def best_row(p_draft, order, mass, below, n_paths):
    """Return the best path's distribution of the token after a prefix, and a second array.

    The second array has an entry for each token: `below` of the prefix continued by the token.
    `mass` and `below` are the prefix's; `order` has the tokens, the worst first.

    (a) A token with draft probability p continues the prefix to a longer prefix of the mass
        `mass * p`. The best path has the longer prefix with the probability
        (below + mass * p)^N - below^N by 2., where `below` is the longer prefix's. This is
        mass * p * difference_of_powers(below + mass * p, below, N).
    (b) The best path has the prefix with the probability
        mass * difference_of_powers(below + mass, below, N).
    (c) In the quotient of (a) and (b) `mass` cancels.
    """
    p_sorted = p_draft[order]  # the worst token first
    p_worse = np.cumsum(p_sorted) - p_sorted  # p_worse[i]: the sum over the tokens before i
    # The paths worse than the longer prefix are worse than the prefix, or have a worse token.
    below_sorted = below + mass * p_worse
    above_sorted = below_sorted + mass * p_sorted
    with_token = p_sorted * difference_of_powers(above_sorted, below_sorted, n_paths)
    prefix_alone = difference_of_powers(below + mass, below, n_paths)

    place = np.argsort(order)  # place[token] is the token's index in the order
    return (with_token / prefix_alone)[place], below_sorted[place]


def best_path(tree, p_target):
    """Return the best path's tokens, its own row for each of them, and the target's rows."""
    n_paths = len(tree.guesses_at(-1))  # each path has one guess at the root
    tokens = []
    rows = []
    target_rows = [row_after(p_target, -1)]
    node = -1  # the root
    mass = 1  # every path has the empty prefix
    below = 0
    while guesses := tree.guesses_at(node):
        _, p_draft = guesses[0]  # all guesses at a node were drawn from this row
        order = worst_first(p_draft, target_rows[-1])
        rank = np.argsort(order)  # rank[token] is the token's position in the order
        # The best path continues at the child with the best token.
        children = [child for child, _ in guesses]
        node = max(children, key=lambda child: rank[tree.tokens[child]])
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
    guesses, rows, target_rows = best_path(tree, p_target)
    return block_verify(guesses, rows, target_rows, rng)


def build(models: Models,
          K: GUESSES = 4,
          paths: Annotated[int, Flag(whole, "number of independent paths of K guesses")] = 2
          ) -> Step:
    """Return the step: paths drawn by the draft, one pass of the target over their tree."""
    draft = with_tree_sampling(models.draft, **models.sampling)
    target = with_tree_sampling(models.target, **models.sampling)
    make_guesses = partial(guess_paths, draft=draft, paths=paths)
    return make_step(target, K, make_guesses, verify_best_path)


DECODER = Decoder(
    "multipath", "Thomas and Pal (2026)", "https://arxiv.org/abs/2602.16961",
    idea="draws several paths, and judges the best path as a block",
    family="several guesses per position",
    guess=guess_paths, test=verify_best_path, build=build, needs=needing("draft", "tree"))
