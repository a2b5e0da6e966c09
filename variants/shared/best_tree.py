"""Chen et al. (2024), "Sequoia: ... Speculative Decoding": the best tree. Lossless.

Adds to tree.py: the tree is computed instead of given by widths. Which tree is best depends on
how often each child is accepted, and the best size depends on the cost of one more row. The tree
depends on finished rounds and costs alone, so the text stays exact.

    rank          of a child: 0 for the first child of a node, 1 for the second ..
    path          the ranks from the root to a node: (0, 2) is the third child of the root's
                  first child, () the root
    shape         a tree without tokens: the paths of all nodes but the root
    acceptances   p_1, p_2, .. of Chen et al. (2024): p_b is the probability that the b-th child
                  is accepted at a node that is reached, wherever that node is in the tree
    product       of a path: the product of its ranks' acceptances; 1 for the root
    F             tokens per round: the sum of the products of all paths, the root's included
    l, c          levels of a tree; time of one draft step / time of one target row
    t             t(n) = pass_cost[n]: time of n + 1 target rows in one pass / time of one row

(a) Sequoia's dynamic program finds the best tree of n guesses. If no child is accepted more often
    than an earlier child, the best tree consists of the n paths with the largest products.
(b) The best n and l have the largest F / (t(n) + l c). A chain can be best, or no guess.
"""

from functools import cache
from itertools import accumulate, product
from operator import mul

import numpy as np

from variants.shared.acceptance import START_COUNTS, Acceptance

# The acceptance of each rank before any round, with the weight of one reached node.
START_ACCEPTANCES = np.array([0.75, 0.15, 0.05, 0.02])
MOST_GUESSES = 2**12  # in a tree: a pass over more takes seconds


def uniform_shape(widths):
    """Return the shape with widths[l] children for each node of level l; the root is level 0."""
    n_guesses = sum(accumulate(widths, mul))  # level l + 1 has widths[0] * .. * widths[l] nodes
    if n_guesses > MOST_GUESSES:
        raise ValueError(f"need --widths of at most {MOST_GUESSES} guesses in all, got "
                         f"{n_guesses}")
    shape: list[tuple] = []
    for depth in range(1, len(widths) + 1):
        ranks = [range(width) for width in widths[:depth]]
        shape += product(*ranks)  # all paths of this length
    return shape


def n_levels(shape):
    """Return the number of levels below the root."""
    return max(map(len, shape), default=0)


def best_nodes(products, n):
    """Return the root and the n other largest entries of {path: product}, parents first. (a)

    They are a tree, because a product never grows along a path.
    """
    # Of equal products the smaller path comes first, so a parent comes before its children.
    best = sorted(products, key=lambda path: (-products[path], path))
    return {path: products[path] for path in best[: 1 + n]}


def best_shape(acceptances, c, pass_cost):
    """Return (speed-up, shape) of the largest F / (t(n) + l c), or (1, []) if no tree pays. (b)

    Chen et al. (2024) Sec. 3.3; for chains it is theory.speedup.best_K. No acceptance may be
    larger than the one before it.

    >>> best_shape([0.8, 0.1], 0.1, [1, 1.1, 1.3, 2.5])[1]
    [(0,), (0, 0)]
    >>> best_shape([0.1], 0.1, [1, 1.1])  # no tree pays
    (1.0, [])
    """
    n = len(pass_cost) - 1  # guesses of the largest pass with a known cost
    best_speedup = 1.0
    shape: list[tuple] = []
    products = {(): 1.0}  # the best nodes of at most `depth` levels, the root first
    for depth in range(1, n + 1):
        children: dict[tuple, float] = {}
        for path in products:
            for rank, p in enumerate(acceptances):
                children[*path, rank] = products[path] * p
        products = best_nodes(products | children, n)
        # tokens[size] is F of the root and the first `size` guesses: they are a tree, too.
        tokens = np.cumsum(list(products.values()))
        for size, F in enumerate(tokens):
            speedup = float(F / (pass_cost[size] + depth * c))
            if speedup > best_speedup:
                best_speedup = speedup
                shape = list(products)[1 : 1 + size]
    return best_speedup, shape


def reached_nodes(tree, ids):
    """Yield (number of guesses, rank of the accepted guess or None) for each node reached."""
    node = -1  # the root
    for token in ids:
        guesses = [tree.tokens[child] for child, _ in tree.guesses_at(node)]
        rank = guesses.index(token) if token in guesses else None
        yield len(guesses), rank
        node = tree.child(node, token)  # None if it is not a child; no guesses are at None


def auto_tree(step_of, costs):
    """Return the step of one text, which chooses a tree for every round, as --K auto chooses K.

    `step_of(shape)` is the step with one shape. The acceptance of a rank without guesses
    approaches START_ACCEPTANCES, so the rank is retried.
    """
    n_ranks = len(START_ACCEPTANCES)
    counts = Acceptance(accepted=np.zeros(n_ranks), tested=np.zeros(n_ranks))
    counts.accepted[0], counts.tested[0] = START_COUNTS

    @cache
    def shape_for(acceptances):
        _, shape = best_shape(acceptances, costs.c, costs.pass_cost)
        return shape

    def step(x, n_left, rng):
        # START_ACCEPTANCES count as one more reached node.
        acceptances = (counts.accepted + START_ACCEPTANCES) / (counts.tested + 1)
        acceptances = np.minimum.accumulate(acceptances)  # none above the one before it
        # Rounded, so that `shape_for` has seen the acceptances of most rounds before.
        shape = shape_for(tuple(acceptances.round(2).tolist()))
        result = step_of(shape)(x, n_left, rng)
        counts.fade()
        for n_guesses, rank in reached_nodes(result.guesses, result.ids):
            counts.tested[:n_guesses] += 1  # later siblings of the accepted guess too
            if rank is not None:
                counts.accepted[rank] += 1
        return result

    return step
