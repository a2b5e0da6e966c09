"""Hold token trees, for the decoders with several guesses for one position.

Adds to speculative.py: the guesses of a round may branch, and so may a text.

    tree        the guesses of a round: a Tree instead of a list
    node        a token in it, at the end of one path; -1 is the root, the end of x
    proposal    a node and the row it was drawn from, in the order drawn; a guess may come twice
    x + tree    the text x continued along every path: Branches, which a tree model reads

A tree model is `model(x + tree, n_last) -> [n_last, n_vocab]` of probabilities, the last rows
of 1 + n_nodes: row 0 follows x, row 1 + i the path to node i. Miao et al. (2023) Sec. 3 and 4.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpt2 import GPT2, mask_of
from sampling import one_hot_rows, warp


@dataclass
class Tree:
    """Distinct paths of guesses, parents first, and the rows they were drawn from."""

    tokens: list = field(default_factory=list)  # tokens[i] is the token at node i
    parents: list = field(default_factory=list)  # the node before node i, -1 for the root
    proposals: list = field(default_factory=list)  # (node, row) in the order drawn

    __array_ufunc__ = None  # so that NumPy leaves `array + tree` to __radd__

    def __len__(self):
        return len(self.tokens)

    def __radd__(self, x):
        return Branches(list(x), self)  # a copy, because the text will grow

    def add(self, parent, token, row):
        """Add one guess; return its node, which is new unless the tree has this path."""
        node = self.add_node(parent, token)
        self.proposals.append((node, row))
        return node

    def add_node(self, parent, token):
        """Return the node of a token below a node, and add it if missing; it is not a guess."""
        node = self.child(parent, token)
        if node is None:
            node = len(self)
            self.tokens.append(token)
            self.parents.append(parent)
        return node

    def add_path(self, path):
        """Add the missing nodes of a path; return its last node."""
        node = -1
        for token in path:
            node = self.add_node(node, token)
        return node

    def child(self, parent, token):
        """Return the node of a token below a node, or None."""
        nodes = list(zip(self.parents, self.tokens))
        return nodes.index((parent, token)) if (parent, token) in nodes else None

    def find(self, ids):
        """Return the node at the end of a path of tokens (-1 for an empty one), or None."""
        node = -1
        for token in ids:
            node = self.child(node, token)
        return node

    def guesses_at(self, node):
        """Return the proposals below a node, in the order drawn."""
        return [(child, row) for child, row in self.proposals if self.parents[child] == node]

    def rows(self):
        """Return the row that each node was first drawn from."""
        first = dict(reversed(self.proposals))
        return [first[node] for node in range(len(self))]

    def ancestors(self):  # -> [n_nodes, n_nodes]
        """Return True where j is on the path to i, i included; row i sums to the depth of i."""
        sees = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                sees[i] |= sees[parent]
        return sees

    def paths(self):
        """Return the tokens from the root to each node."""
        return [[self.tokens[j] for j in np.flatnonzero(row)] for row in self.ancestors()]


class Branches(NamedTuple):
    """A text that continues along every path of a tree."""

    x: list
    tree: Tree

    def texts(self):
        """Return x, and x with the path to each node."""
        return [self.x, *(self.x + path for path in self.tree.paths())]


def tree_mask(sees, n_past, like):  # [n_new, n_nodes] of bool -> [n_new, n_past + n_nodes]
    """Return the mask of nodes that see n_past tokens, and in the tree what `sees` says."""
    text = np.ones((len(sees), n_past), dtype=bool)
    return mask_of(np.concatenate([text, sees], axis=1), like)


def plant(paths, n_vocab):
    """Return the Tree of paths of tokens that are not drawn, so that their rows are one-hot."""
    tree = Tree()
    for path in paths:
        tree.add_path(path)
    tree.proposals = list(enumerate(one_hot_rows(tree.tokens, n_vocab)))
    return tree


def with_tree_sampling(model, **settings):
    """Return `sampling.with_sampling` of a tree model: each node is penalised for its own path.

    ValueError for a GPT2, which reads sequences only.
    """
    if type(model) is GPT2:
        raise ValueError("need a TreeGPT2 for guesses that form a tree, got a GPT2")

    def probabilities(ids, n_last):
        rows_and_texts = zip(model(ids, n_last), ids.texts()[-n_last:])
        return np.array([warp(row, ids=text, **settings) for row, text in rows_and_texts])

    return probabilities


def best_ids(row, n):
    """Return the n best tokens of a row, the best first, of equal ones the lowest first."""
    n = min(n, len(row))
    near = np.flatnonzero(row >= np.partition(row, -n)[-n])  # sorting all is ten times slower
    return near[np.argsort(-row[near], kind="stable")][:n].tolist()
