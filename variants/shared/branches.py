"""Hold token trees, for the decoders with several guesses for one position.

Adds to speculative.py: guesses that form a tree, and a model that reads all of its paths.

    tree        the guesses of a round: a Tree instead of a list
    node        a token in the tree, at the end of one path; -1 is the root, the end of x
    path        the tokens from the root down to a node, without the root
    proposal    a node and the row that its token was drawn from. Proposals are in the order
                drawn; a token that is drawn twice at a node is two proposals of one node
    x + tree    the text x and the tree that follows it: Branches, which a tree model reads

A tree model is `model(x + tree, n_last) -> [n_last, n_vocab]` of probabilities. There are
1 + n_nodes rows, of which the model returns the last n_last: row 0 is for the token after x,
and row 1 + i for the token after node i (`row_after`). Miao et al. (2023) Sec. 3 and 4.

Example: x = [7], and a tree of three nodes. Tokens 5 and 8 are children of the root, and token
6 is a child of token 5.

    node              -1    0      1        2
    token                   5      6        8
    parent                  -1     0        -1
    text up to node   [7]   [7 5]  [7 5 6]  [7 8]
    row               0     1      2        3
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sampling import one_hot_rows, warp


@dataclass
class Tree:
    """Hold the guesses of a round, parents first, and the rows they were drawn from."""

    tokens: list = field(default_factory=list)  # tokens[i] is the token at node i
    parents: list = field(default_factory=list)  # parents[i] is the node before node i, or -1
    proposals: list = field(default_factory=list)  # (node, row) in the order drawn

    __array_ufunc__ = None  # NumPy leaves `array + tree` to __radd__

    def __len__(self):
        return len(self.tokens)

    def __radd__(self, x):
        return Branches(list(x), self)  # a copy of x, because the caller's list will grow

    def add(self, parent, token, row):
        """Add one guess, which was drawn from `row`; return its node."""
        node = self.add_node(parent, token)
        self.proposals.append((node, row))
        return node

    def add_node(self, parent, token):
        """Return the node of a token below a node; add it, without a proposal, if missing."""
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
        if (parent, token) not in nodes:
            return None
        return nodes.index((parent, token))

    def find(self, ids):
        """Return the node at the end of a path of tokens, -1 for an empty path, or None."""
        node = -1
        for token in ids:
            node = self.child(node, token)  # None has no children, so None stays None
        return node

    def guesses_at(self, node):
        """Return the proposals whose parent is this node, in the order drawn."""
        return [(child, row) for child, row in self.proposals if self.parents[child] == node]

    def rows(self):
        """Return the row that each node was first drawn from."""
        first: dict[int, np.ndarray] = {}
        for node, row in self.proposals:
            first.setdefault(node, row)
        return [first[node] for node in range(len(self))]

    def ancestors(self):  # -> [n_nodes, n_nodes] of bool
        """Return in row i the nodes of node i's path: entry [i, j] is True if node j is on it.

        A path includes its last node. So the sum of row i is node i's depth, 1 below the root.

        >>> Tree(tokens=[5, 6, 8], parents=[-1, 0, -1]).ancestors().astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 0, 1]])
        """
        on_path = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                # Parents come first, so the parent's row is complete.
                on_path[i] |= on_path[parent]
        return on_path

    def paths(self):
        """Return the path to each node: its tokens, from the root down."""
        # Parents come first, so the ancestors in ascending order are the path.
        return [[self.tokens[j] for j in np.flatnonzero(row)] for row in self.ancestors()]


class Branches(NamedTuple):
    """Hold a text and the tree that follows it."""

    x: list
    tree: Tree

    def texts(self):
        """Return x, and then for each node x with the path to this node."""
        return [self.x, *(self.x + path for path in self.tree.paths())]


def texts_of_rows(ids, n_last):
    """Return the text before each of a model's last n_last rows; `ids` may have a tree.

    >>> texts_of_rows([3, 1, 4], 2)
    [[3, 1], [3, 1, 4]]
    >>> texts_of_rows([7] + Tree(tokens=[5, 6, 8], parents=[-1, 0, -1]), 4)
    [[7], [7, 5], [7, 5, 6], [7, 8]]
    """
    if isinstance(ids, Branches):
        return ids.texts()[-n_last:]
    shortest = len(ids) - n_last + 1
    return [ids[:n] for n in range(shortest, len(ids) + 1)]


def row_after(rows, node):  # [1 + n_nodes, n_vocab] -> [n_vocab]
    """Return a tree model's row for the token after a node: row 0 is the root's, node -1."""
    return rows[1 + node]


def tree_of_paths(paths, n_vocab):
    """Return the Tree of these paths. Their tokens are not drawn, so the rows are one-hot."""
    tree = Tree()
    for path in paths:
        tree.add_path(path)
    # Each node is one proposal, in the order of the nodes.
    tree.proposals = list(enumerate(one_hot_rows(tree.tokens, n_vocab)))
    return tree


def with_tree_sampling(model, **settings):
    """Return a tree model of probabilities from a tree model of logits, like `with_sampling`.

    Each row is warped with its own text: a repetition penalty counts no other branch.
    """
    def probabilities(ids, n_last):
        rows_and_texts = zip(model(ids, n_last), texts_of_rows(ids, n_last))
        return np.array([warp(row, ids=text, **settings) for row, text in rows_and_texts])

    def few_probabilities(ids, n_last):
        rows = np.zeros((n_last, model.n_vocab))
        rows[:, model.keep] = warp(model.kept_logits(ids, n_last), **settings)
        return rows

    depends_on_text = settings.get("repetition_penalty", 1) != 1 or settings.get("allowed")
    # EAGLE's head may guess few tokens. The softmax of all logits would take long.
    if getattr(model, "keep", None) is not None and not depends_on_text:
        return few_probabilities
    return probabilities


def best_ids(row, n):
    """Return the n tokens with the largest entries of a row, the largest first; ties by id."""
    row = np.array(row, float)  # a copy
    best: list[int] = []
    # A sort of the whole row would take longer than these few searches.
    for _ in range(min(n, len(row))):
        best.append(int(row.argmax()))  # the lowest id among ties
        row[best[-1]] = -np.inf
    return best
