"""Chen et al. (2024), "Sequoia: ... Speculative Decoding": the best tree. Lossless.

Adds to tree.py: it chooses the widths. The best tree depends on how often each child is
accepted, and its size on the cost of one more row. A shape depends on finished rounds and costs
alone, so the text stays exact.

    shape         a tree without tokens: its nodes' paths of ranks; (0, 2) is the third child of
                  the root's first
    acceptances   p_1, p_2, .. of Chen et al. (2024): p_b is the probability that the b-th child
                  is accepted at a node that is reached, wherever that node is in the tree
    F             tokens per round: the sum over all paths, with (), of their products of p_b
    l, c          levels of a tree; time of one draft step / time of one target row
    t             t(n) = pass_cost[n]: time of n + 1 target rows in one pass / time of one row

(a) Sequoia's dynamic program finds the best tree of n guesses. The n largest products are the
    same tree if no later child is accepted more often than an earlier one.
(b) The best n and l have the largest F / (t(n) + l c). A chain, or no guess, can be best.
"""

from functools import cache
from itertools import accumulate, product
from operator import mul

import numpy as np

from variants.speculative import DECAY, START_COUNTS

START_ACCEPTANCES = np.array([0.75, 0.15, 0.05, 0.02])  # before any round; they count as one
MOST_GUESSES = 2**12  # in a tree: a pass over more takes seconds


def uniform(widths):
    """Return the shape with widths[l] children for each node of level l."""
    n_guesses = sum(accumulate(widths, mul))
    if n_guesses > MOST_GUESSES:
        raise ValueError(f"need --widths of at most {MOST_GUESSES} guesses in all, got "
                         f"{n_guesses}")
    levels = [product(*map(range, widths[: n + 1])) for n in range(len(widths))]
    return [path for level in levels for path in level]


def n_levels(shape):
    """Return the number of levels below the root."""
    return max(map(len, shape), default=0)


def largest(products, n):
    """Return the root and the n largest entries of {path: product}, parents first. (a)

    They are a tree, because a product only falls along a path.
    """
    best = sorted(products, key=lambda path: (-products[path], path))
    return {path: products[path] for path in best[: 1 + n]}


def best_shape(acceptances, c, pass_cost):
    """Return (speed-up, shape) of the largest F / (t(n) + l c), or (1, []) if no tree pays. (b)

    Chen et al. (2024) Sec. 3.3; for chains it is theory.speedup.best_K. The acceptances fall.

    >>> best_shape([0.8, 0.1], 0.1, [1, 1.1, 1.3, 2.5])[1], best_shape([0.1], 0.1, [1, 1.1])
    ([(0,), (0, 0)], (1.0, []))
    """
    n = len(pass_cost) - 1
    best = 1.0
    shape: list[tuple] = []
    products = {(): 1.0}  # path: the product of its acceptances
    for depth in range(1, n + 1):
        children = {(*path, rank): products[path] * p
                    for path in products for rank, p in enumerate(acceptances)}
        products = largest(products | children, n)
        for size, tokens in enumerate(np.cumsum(list(products.values()))):
            gain = float(tokens / (pass_cost[size] + depth * c))
            if gain > best:
                best = gain
                shape = list(products)[1 : 1 + size]
    return best, shape


def outcomes(tree, ids):
    """Yield (number of guesses, rank of the accepted guess or None) for each node reached."""
    node = -1
    for token in ids:
        guesses = [tree.tokens[child] for child, _ in tree.guesses_at(node)]
        yield len(guesses), guesses.index(token) if token in guesses else None
        node = tree.child(node, token)


def auto_tree(step_of, costs):
    """Return the step of one text, which chooses a tree for every round, as --K auto chooses K.

    Untried ranks decay back to START_ACCEPTANCES, so they are retried.
    """
    accepted = np.zeros(len(START_ACCEPTANCES))  # counts of each rank
    tried = accepted.copy()
    accepted[0], tried[0] = START_COUNTS
    best = cache(lambda *acceptances: best_shape(acceptances, costs.c, costs.pass_cost)[1])

    def step(x, n_left, rng):
        nonlocal accepted, tried
        acceptances = (accepted + START_ACCEPTANCES) / (tried + 1)
        acceptances = np.minimum.accumulate(acceptances)  # as (a) needs them
        shape = best(*acceptances.round(2).tolist())  # rounded, so that most rounds are cached
        result = step_of(shape)(x, n_left, rng)
        accepted = DECAY * accepted
        tried = DECAY * tried
        for n_guesses, rank in outcomes(result.guesses, result.ids):
            tried[:n_guesses] += 1
            if rank is not None:
                accepted[rank] += 1
        return result

    return step
