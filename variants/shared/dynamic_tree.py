"""Wang et al. (2024), "OPT-Tree"; Li et al. (2024b), "EAGLE-2": a tree per round. Lossless.

Adds to best_tree.py: the products are the draft's own probabilities, so a confident draft makes
a long tree and a hesitant draft a wide one. Level by level, the draft reads the guesses that
are among the best so far; the tree consists of the best of all guesses found.

    here     Li et al. (2024b)
    total    m    guesses in the tree                                    Wang et al. (2024): n
    value    V    the product of the draft's probabilities on a path     Wang et al. (2024): P^

The children of a node are the draft's best tokens. They are not drawn, so their rows are
one-hot, and the test is exact for any tree, at every temperature. That the values estimate
acceptance is an assumption (Li et al. (2024b) Sec. 3.2); it affects the speed, not the text.
"""

from collections.abc import Sequence

from variants.shared.best_tree import largest
from variants.shared.branches import Tree, best_ids, plant

DEPTH = 6  # levels: Li et al. (2024b) Sec. 5
TOTAL_GUESSES = 16


def guess_dynamic(x, k, rng, draft, total):
    """Return the tree of the `total` guesses with the largest values, in at most k levels."""
    read = Tree()
    level: list[tuple] = [()]  # paths of tokens
    values = {(): 1.0}  # path: its value
    row: Sequence[float] = ()  # any row, for its length
    for depth in range(1, k + 1):
        for path, row in zip(level, draft(x + read, len(level))):
            values |= {(*path, token): values[path] * row[token]
                       for token in best_ids(row, total) if row[token] > 0}
        values = largest(values, total)
        level = [path for path in values if len(path) == depth]
        if not level:
            break
        for path in level:
            read.add_path(path)
    tree = plant(list(values)[1:], len(row))
    return tree, tree.rows()
