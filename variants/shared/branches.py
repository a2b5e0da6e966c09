"""Hold token trees, for the decoders with several guesses for one position.

Adds to speculative.py: guesses that branch, and a text that continues along all of them.

    tree        the guesses of a round: a Tree instead of a list
    node        a token in it, at the end of one path; -1 is the root, the end of x
    proposal    a node and the row it was drawn from, in the order drawn; a guess may come twice
    x + tree    the text x continued along every path: Branches, which a tree model reads

A tree model is `model(x + tree, n_last) -> [n_last, n_vocab]` of probabilities. It has 1 +
n_nodes rows and returns the last n_last of these rows: row 0 follows the text x, row 1 + i follows
the path to node i (`row_after`). Miao et al. (2023) Sec. 3 and 4.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpt2 import mask_of
from sampling import one_hot_rows, warp


@dataclass
class Tree:
    """Distinct paths of guesses, parents first, and the rows they were drawn from."""

    tokens: list = field(default_factory=list)  # tokens[i] is the token at node i
    parents: list = field(default_factory=list)  # the node before node i, -1 for the root
    proposals: list = field(default_factory=list)  # (node, row) in the order drawn

    __array_ufunc__ = None  # NumPy leaves `array + tree` to __radd__

    def __len__(self):
        return len(self.tokens)

    def __radd__(self, x):
        return Branches(list(x), self)  # a copy of x, because the caller's list will grow

    def add(self, parent, token, row):
        """Add one guess; return its node."""
        node = self.add_node(parent, token)  # an old node if the token was drawn here before
        self.proposals.append((node, row))
        return node

    def add_node(self, parent, token):
        """Return the node of a token below a node, added if missing, without a proposal."""
        node = self.child(parent, token)
        if node is None:
            node = len(self)  # nodes are numbered in the order added
            self.tokens.append(token)
            self.parents.append(parent)
        return node

    def add_path(self, path):
        """Add the missing nodes of a path of tokens; return its last node."""
        node = -1  # the root
        for token in path:
            node = self.add_node(node, token)
        return node

    def child(self, parent, token):
        """Return the node of a token below a node, or None."""
        nodes = list(zip(self.parents, self.tokens))
        return nodes.index((parent, token)) if (parent, token) in nodes else None

    def find(self, ids):
        """Return the node at the end of a path of tokens, -1 for an empty path, or None."""
        node = -1
        for token in ids:
            node = self.child(node, token)  # None has no children, so None stays None
        return node

    def guesses_at(self, node):
        """Return the proposals below a node, in the order drawn."""
        return [(child, row) for child, row in self.proposals if self.parents[child] == node]

    def rows(self):
        """Return the row that each node was first drawn from."""
        first = dict(reversed(self.proposals))  # reversed: of equal keys a dict keeps the last
        return [first[node] for node in range(len(self))]

    def ancestors(self):  # -> [n_nodes, n_nodes]
        """Return [i, j]: whether node j is on the path to node i, which includes node i.

        The sum of row i is the depth of node i.
        """
        sees = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:  # parents come first, so the parent's row is complete
                sees[i] |= sees[parent]
        return sees

    def paths(self):
        """Return the path to each node: its tokens, from the root down."""
        # Parents come first, so the ancestors in ascending order are the path.
        return [[self.tokens[j] for j in np.flatnonzero(row)] for row in self.ancestors()]


class Branches(NamedTuple):
    """A text that continues along every path of a tree."""

    x: list
    tree: Tree

    def texts(self):
        """Return x, and x with the path to each node."""
        return [self.x, *(self.x + path for path in self.tree.paths())]


def row_after(rows, node):  # [1 + n_nodes, n_vocab] -> [n_vocab]
    """Return a tree model's row for the token after a node: row 0 is the root's, node -1."""
    return rows[1 + node]


def tree_mask(sees, n_past, like):  # [n_new, n_nodes] of bool -> [n_new, n_past + n_nodes]
    """Return the mask of nodes that see all n_past tokens, and the nodes that `sees` allows."""
    text = np.ones((len(sees), n_past), dtype=bool)
    return mask_of(np.concatenate([text, sees], axis=1), like)


def tree_of_paths(paths, n_vocab):
    """Return the Tree of paths of tokens that are not drawn, so that their rows are one-hot."""
    tree = Tree()
    for path in paths:
        tree.add_path(path)
    # Every node is a guess, once, and in the order of the paths.
    tree.proposals = list(enumerate(one_hot_rows(tree.tokens, n_vocab)))
    return tree


def with_tree_sampling(model, **settings):
    """Return `sampling.with_sampling` of a tree model: each node is penalised for its own path.
    """
    def probabilities(ids, n_last):
        # texts() has an entry for each row of a tree model, in the order of the rows.
        rows_and_texts = zip(model(ids, n_last), ids.texts()[-n_last:])
        return np.array([warp(row, ids=text, **settings) for row, text in rows_and_texts])

    return probabilities


def best_ids(row, n):
    """Return the n best tokens of a row, the best first; of equally good tokens the lowest."""
    n = min(n, len(row))
    nth_best = np.partition(row, -n)[-n]
    # Only these few are sorted: sorting the whole row is ten times slower.
    candidates = np.flatnonzero(row >= nth_best)
    return candidates[np.argsort(-row[candidates], kind="stable")][:n].tolist()
