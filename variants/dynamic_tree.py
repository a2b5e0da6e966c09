"""Wang et al. (2024), "OPT-Tree"; Li et al. (2024b), "EAGLE-2": a tree for this round. Lossless.

What it adds to best_tree.py: the same heap over the draft's own probabilities, so that a sure draft
makes a chain and an unsure one a bush. Level by level, the draft reads on at the guesses that are
among the best so far; of all that it has found, the best are kept.

    here     Li et al. (2024b)
    total    m    guesses in the tree                                      Wang et al. (2024): n
    width    k    at how many guesses of a level the draft reads on
    chance   V    the product of the draft's probabilities on a path       Wang et al. (2024): P^

The children of a node are the draft's best tokens. No chance made them, so their rows are one-hot,
and whatever the tree is, its test is exact at every temperature. That the chances are those of
acceptance is a hope (Li et al. (2024b) Sec. 3.2): it decides how good the tree is, not the text.
"""

from sampling import one_hot_rows
from variants.best_tree import best_first
from variants.shared.branches import Tree, best_ids

DEPTH = 6  # levels: Li et al. (2024b) Sec. 5
TOTAL_GUESSES = 16


def dynamic_tree(rows_after, total, depth, width=None):
    """The tree of the `total` guesses that the draft finds most probable, each with its path.

    Parameters
    ----------
    rows_after : callable `(tree, nodes) -> [len(nodes), n_vocab]` of probabilities
        The draft's, after these nodes of this tree. Called once a level: at first with an empty
        tree and [-1], then with the same tree, which has grown by these very nodes.
    total, depth : int
        At most so many guesses, in at most so many levels.
    width : int, optional
        Read on at so many guesses of a level at most. By default at all that are among the best so
        far: then no tree of this size has a larger sum of chances.

    Returns a Tree of its own, parents first, with one-hot rows.

    >>> import numpy as np
    >>> sure = lambda tree, nodes: np.array([[0.9, 0.1]] * len(nodes))
    >>> dynamic_tree(sure, total=4, depth=3).paths()
    [[0], [0, 0], [0, 0, 0], [1]]
    """
    read, nodes, tokens, chances = Tree(), {(): -1}, {}, {}
    best, paths = {(): 1.0}, [()]  # by their ranks, as in best_tree.py
    token_of = lambda path: tokens[path[:-1]][path[-1]]
    for level in range(1, depth + 1):
        for path, row in zip(paths, rows_after(read, [nodes[path] for path in paths])):
            tokens[path] = [token for token in best_ids(row, total) if row[token] > 0]
            chances[path] = row[tokens[path]].tolist()
        best = best_first(lambda path: chances.get(path, ()), total)
        paths = [path for path in best if len(path) == level][:width]
        if not paths:
            break
        nodes |= {path: read.add(nodes[path[:-1]], token_of(path), None) for path in paths}
    paths = list(best)[1:]
    rows = one_hot_rows([token_of(path) for path in paths], len(row)) if paths else []
    tree, nodes = Tree(), {(): -1}
    for path, row in zip(paths, rows):
        nodes[path] = tree.add(nodes[path[:-1]], token_of(path), row)
    return tree


def guess_dynamic(x, k, rng, draft, total):
    """The best `total` guesses of a draft that reads trees, at most k levels of them."""
    rows_after = lambda tree, nodes: draft(x + tree, 1 + len(tree))[[1 + node for node in nodes]]
    tree = dynamic_tree(rows_after, total, k)
    return tree, tree.rows()
