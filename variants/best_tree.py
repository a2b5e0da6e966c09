"""Chen et al. (2024), "Sequoia: ... Speculative Decoding": the best tree. Lossless.

Adds to tree.py: it chooses the widths. The best tree depends on how often each child is
accepted, and its size on the cost of one more row. A shape depends on finished rounds and costs
alone, so it is lossless.

    shape         a tree without tokens: a tuple of its children's shapes; () is a leaf
    path          a node by the ranks that lead to it: (0, 2) is the third child of the root's first
    acceptances   p_1, p_2, .. of Chen et al. (2024): p_b is the probability that the b-th child is
                  accepted at a node that is reached, wherever that node is in the tree
    F             tokens per round: the sum over nodes, the root included, of the product of the
                  acceptances on the path
    l, c          levels of a tree; time of one draft step / time of one target row
    t             t(n) = pass_cost[n]: time of n + 1 target rows in one pass / time of one row

[1] The best tree of n guesses: Sequoia's dynamic program finds it. A heap finds the same tree if no
    later child is accepted more often than an earlier one.
[2] The best n and l have the largest F / (t(n) + l c); a chain, or no guess, can be the best tree.
"""

from functools import cache
from heapq import heappop, heappush

import numpy as np

from variants.auto import DECAY, START_COUNTS

START_ACCEPTANCES = np.array([0.75, 0.15, 0.05, 0.02])  # before any round; they count as one


# ---- shapes

def uniform(widths):
    """Return the shape with widths[l] children for each node of level l."""
    return (uniform(widths[1:]),) * widths[0] if widths else ()


def truncate(shape, k):
    """Return the first k levels of a shape."""
    return tuple(truncate(child, k - 1) for child in shape) if k else ()


def n_levels(shape):
    """Return the number of levels below the root."""
    return 1 + max(map(n_levels, shape)) if shape else 0


def n_nodes(shape):
    """Return the number of nodes below the root."""
    return sum(1 + n_nodes(child) for child in shape)


def shape_of(paths, node=()):
    """Return the shape below a node, from paths in which siblings come in order of rank."""
    return tuple(shape_of(paths, path) for path in paths if path and path[:-1] == node)


# ---- [1] the best tree of n guesses

def best_first(probabilities, total):
    """Return {path: product of the probabilities on it}: the root, and the `total` largest nodes.

    `probabilities(path)` are those of the node's children, falling with their rank. The best come
    first, and no child before its parent, because a product of probabilities only falls.
    """
    products, heap = {(): 1.0}, []

    def offer(parent, rank):
        below = probabilities(parent)
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
    """Return (speed-up, shape) of the largest F / (t(n) + l c), or (1, ()) if no tree pays.

    Chen et al. (2024) Sec. 3.3; for chains it is theory.speedup.best_K. The acceptances fall.

    >>> best_shape([0.8, 0.1], 0.1, [1, 1.1, 1.3, 2.5])[1], best_shape([0.1], 0.1, [1, 1.1])
    ((((),),), (1.0, ()))
    """
    n, best, paths = len(pass_cost) - 1, 1.0, []
    for depth in range(1, n + 1):
        def below(path, depth=depth):
            return acceptances if len(path) < depth else ()

        products = best_first(below, n)
        for size, tokens in enumerate(np.cumsum(list(products.values()))):
            gain = float(tokens / (pass_cost[size] + depth * c))
            if gain > best:
                best, paths = gain, list(products)[: size + 1]
    return best, shape_of(paths)


def outcomes(tree, ids):
    """Yield (number of guesses, rank of the accepted one or None) for each node reached."""
    node = -1
    for token in ids:
        guesses = [tree.tokens[child] for child, _ in tree.guesses_at(node)]
        yield len(guesses), guesses.index(token) if token in guesses else None
        node = tree.child(node, token)


def auto_tree(step_of, costs):
    """Return the step of one text, which chooses a tree for every round, as `auto` chooses K.

    `step_of(shape)` is a step with this shape. Untried ranks decay back to START_ACCEPTANCES, so
    they are retried.
    """
    accepted, tried = np.zeros((2, len(START_ACCEPTANCES)))
    accepted[0], tried[0] = START_COUNTS
    best = cache(lambda *acceptances: best_shape(acceptances, costs.c, costs.pass_cost)[1])

    def step(x, n_left, rng):
        acceptances = (accepted + START_ACCEPTANCES) / (tried + 1)
        acceptances = np.minimum.accumulate(acceptances)  # the heap needs them to fall
        shape = best(*acceptances.round(2).tolist())  # rounded, so that most rounds find it cached
        round = step_of(shape)(x, n_left, rng)
        accepted[:], tried[:] = DECAY * accepted, DECAY * tried
        for n_guesses, rank in outcomes(round.guesses, round.ids):
            tried[:n_guesses] += 1
            if rank is not None:
                accepted[rank] += 1
        return round

    return step
