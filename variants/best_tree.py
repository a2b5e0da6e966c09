"""Chen et al. (2024), "Sequoia: ... Speculative Decoding": the best tree. Lossless.

What it adds to tree.py: nobody has to know the widths. Where further guesses do most good depends
on how often each is accepted, and how many pay depends on what a further row costs.

    shape         a tree without tokens: what stands below a node, one shape a child; () is a leaf
    path          a node by the ranks on the way to it: (0, 2) the third child of the root's first
    acceptances   p_1, p_2, .. of Chen et al. (2024): p_b is the chance that the b-th child is the
                  one accepted at a node that is reached, wherever that node stands
    F             tokens per round: the sum over nodes, the root too, of the product of the
                  acceptances on the path
    l, c          levels of a tree; time of one draft step / time of one target row
    t             t(n) = pass_cost[n]: time of n + 1 target rows in one pass / time of one row

[1] The best tree of n guesses is found by Sequoia's dynamic program; a heap finds the same tree
    wherever no later child is accepted more often than an earlier one.
[2] The best n and l have the largest F / (t(n) + l c). A chain is a tree too, and so is no guess.

Lossless, for a shape depends on the past alone: on finished rounds and on a clock.
"""

from functools import cache
from heapq import heappop, heappush

import numpy as np

from variants.auto import DECAY, START_COUNTS

START_ACCEPTANCES = np.array([0.75, 0.15, 0.05, 0.02])  # before any is seen; worth one round


# ---- shapes

def uniform(widths):
    """The shape with so many children for each node, level by level."""
    return (uniform(widths[1:]),) * widths[0] if widths else ()


def truncate(shape, k):
    """The first k levels of a shape."""
    return tuple(truncate(child, k - 1) for child in shape) if k else ()


def n_levels(shape):
    """How many levels a shape has below its root."""
    return 1 + max(map(n_levels, shape)) if shape else 0


def n_nodes(shape):
    """How many nodes a shape has below its root."""
    return sum(1 + n_nodes(child) for child in shape)


def shape_of(paths, node=()):
    """The shape below a node, from paths in which the earlier of two siblings comes first."""
    return tuple(shape_of(paths, path) for path in paths if path and path[:-1] == node)


def mean_tokens(shape, acceptances):
    """F: tokens per round, the resampled or bonus token (that is the root) included."""
    return 1 + sum(p * mean_tokens(child, acceptances) for child, p in zip(shape, acceptances))


# ---- [1] the best tree of n guesses

def best_first(chances, total):
    """{path: product of the chances on it}: the root, and the `total` nodes of the largest.

    `chances(path)` are those of the children below a node, falling with their rank. The best first,
    and no child before its parent: a product of chances only falls.
    """
    products, heap = {(): 1.0}, []

    def offer(parent, rank):
        below = chances(parent)
        if rank < len(below):
            heappush(heap, (-products[parent] * below[rank], (*parent, rank)))

    offer((), 0)
    while heap and len(products) <= total:
        minus, path = heappop(heap)
        products[path] = -minus
        offer(path[:-1], path[-1] + 1)  # its next sibling
        offer(path, 0)  # its first child
    return products


# ---- [2] how many guesses, in how many levels

def best_shape(acceptances, c, pass_cost):
    """(speed-up, shape) of the largest F / (t(n) + l c); (1, ()) where no tree pays.

    Chen et al. (2024) Sec. 3.3; for chains it is theory.speedup.best_K. The acceptances fall.

    >>> best_shape([0.8, 0.1], 0.1, [1, 1.1, 1.3, 2.5])[1], best_shape([0.1], 0.1, [1, 1.1])
    ((((),),), (1.0, ()))
    """
    n, best, paths = len(pass_cost) - 1, 1.0, []
    for depth in range(1, n + 1):
        products = best_first(lambda path, depth=depth: acceptances if len(path) < depth else (),
                              n)
        for size, tokens in enumerate(np.cumsum(list(products.values()))):
            gain = float(tokens / (pass_cost[size] + depth * c))
            if gain > best:
                best, paths = gain, list(products)[: size + 1]
    return best, shape_of(paths)


def outcomes(tree, ids):
    """(number of guesses, rank of the accepted one or None) for each node that a round reached."""
    node = -1
    for token in ids:
        guesses = [tree.tokens[child] for child, _ in tree.guesses_at(node)]
        yield len(guesses), guesses.index(token) if token in guesses else None
        node = tree.child(node, token)


def auto_tree(step_of, costs):
    """Return the step of one text, which chooses a tree for every round, as `auto` chooses K.

    `step_of(shape)` is a step with this shape. Ranks that are not tried decay back to the start,
    so they are tried again.
    """
    accepted, tried = np.zeros((2, len(START_ACCEPTANCES)))
    accepted[0], tried[0] = START_COUNTS
    best = cache(lambda *acceptances: best_shape(acceptances, costs.c, costs.pass_cost)[1])

    def step(x, n_left, rng):
        acceptances = (accepted + START_ACCEPTANCES) / (tried + 1)
        acceptances = np.minimum.accumulate(acceptances)  # the heap needs them to fall
        shape = best(*acceptances.round(2).tolist())  # finer, every round would have to search
        round = step_of(shape)(x, n_left, rng)
        accepted[:], tried[:] = DECAY * accepted, DECAY * tried
        for n_guesses, rank in outcomes(round.guesses, round.ids):
            tried[:n_guesses] += 1
            if rank is not None:
                accepted[rank] += 1
        return round

    return step
