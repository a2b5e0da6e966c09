"""Wang et al. (2024), "OPT-Tree"; Li et al. (2024b), "EAGLE-2": a tree for this round. Lossless.

Adds to best_tree.py: the same heap over the draft's own probabilities, so that a sure draft makes a
chain and an unsure one a bush. Level by level, the draft reads the guesses that are among the best
so far; the tree consists of the best of all that it found.

    here     Li et al. (2024b)
    total    m    guesses in the tree                                      Wang et al. (2024): n
    width    k    most guesses of a level that the draft reads
    value    V    the product of the draft's probabilities on a path       Wang et al. (2024): P^

The children of a node are the draft's best tokens. They are not drawn, so their rows are one-hot,
and the test is exact for any tree, at every temperature. That the values estimate acceptance is an
assumption (Li et al. (2024b) Sec. 3.2): it decides how good the tree is, not the text.
"""

from variants.best_tree import best_first
from variants.shared.branches import Tree, best_ids, plant

DEPTH = 6  # levels: Li et al. (2024b) Sec. 5
TOTAL_GUESSES = 16


def dynamic_tree(rows_after, total, depth, width=None):
    """Return the Tree of the `total` guesses with the largest values, in at most `depth` levels.

    `rows_after(tree, nodes)` gives the draft's rows [len(nodes), n_vocab] after these nodes of this
    tree. It is called once per level: first with an empty tree and [-1], then with the same tree,
    grown by these nodes. Without `width`, no tree of this size has a larger sum of values.

    >>> import numpy as np
    >>> sure = lambda tree, nodes: np.array([[0.9, 0.1]] * len(nodes))
    >>> dynamic_tree(sure, total=4, depth=3).paths()
    [[0], [0, 0], [0, 0, 0], [1]]
    """
    read, nodes, tokens, probabilities, row = Tree(), {(): -1}, {}, {}, ()  # row: of any node
    best, paths = {(): 1.0}, [()]  # by their ranks, as in best_tree.py
    token_of = lambda path: tokens[path[:-1]][path[-1]]
    for level in range(1, depth + 1):
        for path, row in zip(paths, rows_after(read, [nodes[path] for path in paths])):
            tokens[path] = [token for token in best_ids(row, total) if row[token] > 0]
            probabilities[path] = row[tokens[path]].tolist()
        best = best_first(lambda path: probabilities.get(path, ()), total)
        paths = [path for path in best if len(path) == level][:width]
        if not paths:
            break
        nodes |= {path: read.add(nodes[path[:-1]], token_of(path), None) for path in paths}
    return plant([(path, token_of(path)) for path in list(best)[1:]], len(row))


def guess_dynamic(x, k, rng, draft, total):
    """Return the best `total` guesses of a draft that reads trees, in at most k levels."""
    rows_after = lambda tree, nodes: draft(x + tree, 1 + len(tree))[[1 + node for node in nodes]]
    tree = dynamic_tree(rows_after, total, k)
    return tree, tree.rows()
