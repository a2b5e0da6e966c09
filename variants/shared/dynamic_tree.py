"""Wang et al. (2024), "OPT-Tree"; Li et al. (2024b), "EAGLE-2": a tree per round. Lossless.

Adds to best_tree.py: a path's value is the product of the draft's probabilities, so a confident
draft makes a long tree and a hesitant draft a wide tree. Level by level, the draft reads the
guesses that are among the best so far. The tree consists of the best guesses of all levels.

    here     Li et al. (2024b)   Wang et al. (2024)
    total    m                   n                    guesses in the tree
    value    V                   P^                   of a path: the product of the draft's
                                                      probabilities of its tokens

The children of a node are the draft's best tokens. They are not drawn, so their rows are
one-hot, and the test is exact for any tree, at every temperature. That the values estimate
acceptance is an assumption (Li et al. (2024b) Sec. 3.2); it affects the speed, not the text.
"""

from variants.shared.best_tree import best_nodes
from variants.shared.branches import Tree, best_ids, tree_of_paths

DEPTH = 6  # levels: Li et al. (2024b) Sec. 5
TOTAL_GUESSES = 16


def guess_dynamic(x, k, rng, draft, total):
    """Return the tree of the `total` guesses with the largest values, in at most k levels."""
    if k == 0:
        return Tree(), []
    read_tree = Tree()  # what the draft has read
    level: list[tuple] = [()]  # the paths of tokens that the draft reads next
    values = {(): 1.0}  # path: its value
    for depth in range(1, k + 1):
        rows = draft(x + read_tree, len(level))  # the level's nodes are the last nodes
        for path, row in zip(level, rows):
            for token in best_ids(row, total):  # more children than `total` are never needed
                if row[token] > 0:
                    values[*path, token] = values[path] * row[token]
        values = best_nodes(values, total)
        level = [path for path in values if len(path) == depth]
        if not level:  # all of the best guesses are higher up
            break
        for path in level:
            read_tree.add_path(path)
    _, *paths = values  # all paths but the first, the root
    tree = tree_of_paths(paths, n_vocab=rows.shape[-1])
    return tree, tree.rows()
