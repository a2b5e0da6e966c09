"""Weng et al. (2025), "Traversal Verification for Speculative Tree Decoding", Alg. 1. Lossless.

Adds to tree.py and block.py: a tree is tested from its leaves to its root, a whole path at a
time. A guess to which the target assigns more probability than the draft makes up for a guess
to which it assigns less. If a path is rejected, the next path is tested with the probability
that the target has left. On a chain the test is block.py's; with one-hot rows it is tree.py's.

    node, child   a node that is visited; a guess below it, whose token is `token`
    row           the row from which the child was drawn                         the paper's M_s
    remaining     the target's row at the node, then its residual after each     the paper's M_b
                  rejected child
    share         the probability of accepting the path to the node, so far
    surplus       the sum of (share * remaining - row)_+, which a rejected child does not use

(a) The share is 1 at the root. At a child it is min(1, share of the node * remaining[token] /
    row[token]).
(b) All paths through the child are tested before the path that ends at the node.
(c) If they are rejected, the child is rejected. The share of the node falls to surplus /
    (surplus + 1 - share), and the residual of share * remaining replaces remaining.
(d) If all children are rejected, the path that ends at the node is accepted with probability
    share, and one more token is drawn from remaining.

Subtle: the divisor is surplus + 1 - share. It is not 1 - row[token], the mass of the tokens
that the draft could draw instead. And if a token is drawn twice at one node, both draws are
guesses. The second guess is never accepted, because no mass of a rejected token remains, but
the draft's row is subtracted for it too.
"""

import numpy as np

from sampling import accept, residual, sample
from speculative import Step
from variants.registry import Decoder, Models, needing
from variants.shared.branches import row_after
from variants.tree import SIBLINGS, WIDTHS, guess_shape, tree_step


def verify_traversal(tree, p_draft, p_target, rng):
    """Return the tokens of the first path that is accepted, leaves first, and one more token.

    All guesses must be drawn by one draft. If two drafts drew one token at one node, and each
    went on from its own draw, both draws would be one node here, with the children of both. So
    the test of the first draw would also test the children of the second draw.
    """
    def visit(node, share):
        """Return the tokens after this node, or None if no path through it is accepted."""
        remaining = row_after(p_target, node)
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            share_of_child = min(share * remaining[token] / row[token], 1)  # (a)
            ids = visit(child, share_of_child)  # (b)
            if ids:  # a path through the child is accepted
                return [token] + ids
            surplus = np.maximum(share * remaining - row, 0).sum()  # (c)
            remaining = residual(share * remaining, row)
            mass = surplus + (1 - share)
            # The mass is 0 only if share is 1 and both rows are equal. Such a child is accepted
            # with probability 1, so only rounding can have rejected it.
            share = surplus / mass if mass > 0 else 1
        # (d): the path of the root, -1, has no guess, and is always accepted.
        if node == -1 or accept(share, rng):
            return [sample(remaining, rng)]
        return None

    return visit(-1, 1)


def build(models: Models,
          widths: WIDTHS = (2, 2, 1),
          siblings: SIBLINGS = None) -> Step:
    """Return the step: guesses and rows as in tree.py, then the test from the leaves."""
    return tree_step(models, widths, siblings, test=verify_traversal)


DECODER = Decoder(
    "traversal", "Weng et al. (2025)", "https://arxiv.org/abs/2505.12398",
    idea="judges whole paths of a tree, from the leaves to the root",
    family="several guesses per position",
    guess=guess_shape, test=verify_traversal, build=build, needs=needing("draft", "tree"))
