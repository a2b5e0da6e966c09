"""A round with a tree of guesses, for your own test: copy this file and change verify_paths.

    python -m exact.judge docs/tree_step.py

docs/exercises.md explains the judge. The tree has two guesses for the next position, and one
guess after each of them.
"""

import numpy as np

from sampling import sample
from variants.shared.best_tree import uniform_shape
from variants.tree import guess_shape


def verify_paths(tree, p_target, rng):
    """Return the accepted tokens of one path, and one more token.

    `tree.guesses_at(node)` returns the guesses below a node, where -1 is the root. Each guess
    is a pair: its own node, and the row it was drawn from. Its token is `tree.tokens[node]`.
    p_target[0] is the target's row after the text, p_target[1 + node] its row after that node.
    """
    return [sample(p_target[0], rng)]  # accepts nothing


def row_by_row(model):
    """Return a model that reads the paths of a tree one by one."""
    def rows(ids, n_last):
        # ids.texts() has the text, then one text per node: the text and the path to the node.
        texts = ids.texts()[-n_last:]
        return np.array([model(text, 1)[-1] for text in texts])

    return rows


def step(x, n_left, rng, draft, target, K):
    """Test one tree of guesses, then draw the other tokens from the target."""
    # The judge's prompt has one token, so only the first round of a text has a tree. Trees in
    # every round would take the judge too long.
    if len(x) > 1:
        return [sample(target(x, 1)[-1], rng)]
    # Two guesses at the root, one below each of them; the round returns n_left tokens at most.
    k = min(K, n_left - 1)
    tree, _ = guess_shape(x, k, rng, row_by_row(draft), uniform_shape((2, 1)))
    p_target = row_by_row(target)(x + tree, 1 + len(tree))
    return verify_paths(tree, p_target, rng)
