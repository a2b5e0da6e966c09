"""Wang et al. (2024), "OPT-Tree"; Li et al. (2024b), "EAGLE-2": a tree per round. Lossless.

Adds to best_tree.py: a path's value is the product of the draft's probabilities, so a confident
draft makes a long tree and a hesitant draft a wide tree.

    here     Li et al. (2024b)   Wang et al. (2024)
    total    m                   n                    guesses in the tree
    value    V                   P^                   of a path: the product of the draft's
                                                      probabilities of its tokens

(a) Expand: level by level, the draft reads the guesses that are among the best `total` so far.
(b) Select: after the last level, the best `total` guesses of all levels are the tree.

The children of a node are the draft's best tokens. They are not drawn, so their rows are
one-hot, and the test is exact for any tree. That the values estimate acceptance is an
assumption (Li et al. (2024b) Sec. 3.2), which affects the speed, not the text.
"""

from variants.shared.best_tree import best_nodes
from variants.shared.branches import Tree, best_ids, tree_of_paths

DEPTH = 6  # levels: Li et al. (2024b) Sec. 5
TOTAL_GUESSES = 16


def guess_dynamic(x, k, rng, draft, total):
    """Return the tree of the `total` guesses with the largest values, in at most k levels."""
    if k == 0:
        return Tree(), []
    read_tree = Tree()  # the guesses that the draft reads
    level: list[tuple] = [()]  # the paths of the last level of read_tree; at first the root's
    values = {(): 1.0}  # path of tokens: its value
    for depth in range(1, k + 1):  # (a)
        rows = draft(x + read_tree, len(level))  # the level's nodes are the last nodes
        for path, row in zip(level, rows):
            for token in best_ids(row, total):  # more children than `total` are never needed
                if row[token] > 0:
                    values[*path, token] = values[path] * row[token]
        values = best_nodes(values, total)  # the root is kept too
        level = [path for path in values if len(path) == depth]
        if not level:  # no guess of this level is among the best, so deeper ones are not either
            break
        for path in level:
            read_tree.add_path(path)
    # (b) After the last level `values` has the best guesses of all levels.
    paths = list(values)[1:]  # without the root, which is the first
    n_vocab = rows.shape[-1]
    tree = tree_of_paths(paths, n_vocab)
    return tree, tree.rows()
