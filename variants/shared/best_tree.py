"""Chen et al. (2024), "Sequoia: ... Speculative Decoding": the best tree. Lossless.

Adds to tree.py: the tree is computed instead of given by widths. Which tree is best depends on
how often each child is accepted, and the best size depends on the cost of one more row. The
tree depends on finished rounds and costs alone, so the text stays exact.

    rank          of a child: 0 for the first child of a node, 1 for the second ..
    path          the ranks from the root to a node. The root's path is (). The path (0, 2)
                  leads to the root's first child, and then to the third child of this node
    shape         a tree without tokens: the paths of all nodes but the root
    acceptances   p_1, p_2, .. of Chen et al. (2024): p_b is the probability that the b-th child
                  of a node is accepted, if the test reaches the node; it is the same at all
                  nodes
    product       of a path: the product of the acceptances of its ranks; 1 for the root. It is
                  the probability that the test reaches the node
    F             tokens per round: the sum of the products of all paths, the root's included
    t(n)          pass_cost[n]: the time of a target pass over n guesses and the root, divided
                  by the time of a pass over the root alone
    l             the number of levels of a tree, which is its number of draft passes
    c             the time of a draft pass, divided by the time of a pass over the root alone

(a) The best tree of n guesses is the tree with the largest F. Sequoia finds it by a dynamic
    program. A shorter way is possible if no child is accepted more often than the child before
    it: the best tree consists of the n paths with the largest products.
    1. No product exceeds the product of the parent, because acceptances are at most 1.
    2. So the parents of these n paths are among them, and the n paths are a tree.
    3. F is 1 plus the sum of n products, so no other tree of n guesses has a larger F.
(b) The best n and l have the largest F / (t(n) + l c). A chain can be best, or no guess.
"""

import itertools
from functools import cache

import numpy as np

from variants.shared.acceptance import START_COUNTS, Acceptance

# The acceptance of each rank before any round, with the weight of one reached node.
START_ACCEPTANCES = np.array([0.75, 0.15, 0.05, 0.02])


def uniform_shape(widths):
    """Return the shape with widths[l] children for each node of level l; the root is level 0.

    >>> uniform_shape((2, 1))
    [(0,), (1,), (0, 0), (1, 0)]
    """
    shape: list[tuple] = []
    for depth in range(1, len(widths) + 1):
        ranks = [range(width) for width in widths[:depth]]
        shape += itertools.product(*ranks)  # all paths of length `depth`
    return shape


def n_levels(shape):
    """Return the number of levels below the root."""
    return max(map(len, shape), default=0)


def best_nodes(products, n):
    """Return the root and the n other largest entries of {path: product}, parents first. (a)"""
    # Of equal products the smaller path comes first: (0,) < (0, 2), so parents come first.
    best = sorted(products, key=lambda path: (-products[path], path))
    return {path: products[path] for path in best[: 1 + n]}


def best_shape(acceptances, c, pass_cost):
    """Return (speed-up, shape) of the largest F / (t(n) + l c), or (1, []) if no tree pays. (b)

    Chen et al. (2024) Sec. 3.3; for chains it is theory.speedup.best_K. No acceptance may be
    larger than the acceptance before it.

    >>> best_shape([0.8, 0.1], 0.1, [1, 1.1, 1.3, 2.5])[1]
    [(0,), (0, 0)]
    >>> best_shape([0.1], 0.1, [1, 1.1])  # no tree pays
    (1.0, [])
    """
    most = len(pass_cost) - 1  # guesses of the largest pass with a known cost
    best_speedup = 1.0
    shape: list[tuple] = []
    products = {(): 1.0}  # the best nodes of at most `depth` levels, the root first
    for depth in range(1, most + 1):
        # A child that is in `products` already gets the same product again.
        children: dict[tuple, float] = {}
        for path in products:
            for rank, p in enumerate(acceptances):
                children[*path, rank] = products[path] * p
        # `most` paths are enough: no path below a dropped one has a larger product than these.
        products = best_nodes(products | children, most)

        # F[n] is the F of the root and the first n guesses, a tree because parents come first.
        # If it has fewer than `depth` levels, it was tried before, at a lower cost.
        F = np.cumsum(list(products.values()))
        for n in range(len(F)):
            speedup = float(F[n] / (pass_cost[n] + depth * c))
            if speedup > best_speedup:
                best_speedup = speedup
                shape = list(products)[1 : 1 + n]  # without the root
    return best_speedup, shape


def reached_nodes(tree, ids):
    """Yield (number of guesses, rank of the accepted guess or None) for each node reached."""
    node = -1  # the root
    for token in ids:  # the tokens of the round: the accepted path and one more token
        guesses = [tree.tokens[child] for child, _ in tree.guesses_at(node)]
        rank = guesses.index(token) if token in guesses else None
        yield len(guesses), rank
        node = tree.child(node, token)  # None at most after the last token, which ends the loop


def auto_tree(step_of, costs):
    """Return the step of one text, which chooses a tree per round, as --K auto chooses K."""
    n_ranks = len(START_ACCEPTANCES)
    counts = Acceptance(accepted=np.zeros(n_ranks), tested=np.zeros(n_ranks))
    counts.accepted[0], counts.tested[0] = START_COUNTS

    @cache
    def shape_for(acceptances):
        _, shape = best_shape(acceptances, costs.c, costs.pass_cost)
        return shape

    def step(x, n_left, rng):
        # START_ACCEPTANCES count as one more reached node, so a rank without guesses is tried
        # again.
        acceptances = (counts.accepted + START_ACCEPTANCES) / (counts.tested + 1)
        # best_shape needs acceptances that do not grow from rank to rank.
        acceptances = np.minimum.accumulate(acceptances)
        # Rounded, they often equal those of an earlier round, whose shape is cached.
        shape = shape_for(tuple(acceptances.round(2).tolist()))
        result = step_of(shape)(x, n_left, rng)

        counts.fade()
        for n_guesses, rank in reached_nodes(result.guesses, result.ids):
            # p_b is the share of reached nodes that accept child b, so all guesses count.
            counts.tested[:n_guesses] += 1
            if rank is not None:
                counts.accepted[rank] += 1
        return result

    return step
