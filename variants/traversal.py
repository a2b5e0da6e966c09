"""Weng et al. (2025), "Traversal Verification for Speculative Tree Decoding", Alg. 1. Lossless.

Adds to tree.py and block.py: a tree is tested from its leaves to its root, each whole path at
once. A guess with more probability under the target than under the draft makes up for one with
less, and what a rejected path leaves over goes to the next path. On a chain it is block.py's
test; with one-hot rows it is tree.py's.

    share     of a node: the probability of accepting the path to it. The root's is 1; a child's
              starts as min(1, its parent's share * left[token] / row[token]), and falls with
              each rejected child of its own
    left      the target's row at a node, after what its rejected children took  the paper's M_b
    row       the row of a guess; of distinct siblings each has its own          the paper's M_s
    S         the sum of (share * left - row)_+, left over when that child is rejected

Subtle: a share falls to S / (S + 1 - share), not to S / (what the draft has left). And a token
drawn twice at one node is two guesses. The second is never accepted, because nothing is left of
a rejected token, but its row is subtracted once more.
"""

import numpy as np

from sampling import accept, residual, sample
from speculative import Step
from variants.registry import Decoder, Models
from variants.tree import SIBLINGS, WIDTHS, guess_shape, tree_step


def verify_traversal(tree, p_draft, p_target, rng):
    """Return the tokens of the first path that passes, leaves first, and one more.

    The root always passes: then no guess is accepted. All guesses must be drawn by one draft. A
    second draft could draw a token again and add guesses below its first node: what is tested
    there would depend on a sibling that is tested later.
    """
    def visit(node, share):
        """Return the tokens after this node, or None if no path through it passes."""
        left = p_target[1 + node]
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            ids = visit(child, min(share * left[token] / row[token], 1))
            if ids:
                return [token] + ids
            S = np.maximum(share * left - row, 0).sum()
            left = residual(share * left, row)
            share = S / (S + (1 - share)) if S + (1 - share) > 0 else 1  # 0 / 0: rounding alone
        return [sample(left, rng)] if node == -1 or accept(share, rng) else None

    return visit(-1, 1)


def build(models: Models,
          widths: WIDTHS = (2, 2, 1),
          siblings: SIBLINGS = None) -> Step:
    """Return the step: guesses and rows as in tree.py, then the test from the leaves."""
    return tree_step(models, widths, siblings, test=verify_traversal)


DECODER = Decoder(
    "traversal", "Weng et al. (2025)", "https://arxiv.org/abs/2505.12398",
    idea="tests a tree's paths as wholes, from the leaves to the root",
    family="several guesses per position",
    guess=guess_shape, test=verify_traversal, build=build)
