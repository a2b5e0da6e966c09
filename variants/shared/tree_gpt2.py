"""Score all paths of a tree in one pass, by tree attention: Miao et al. (2023).

Adds to cache.py: a node sees the text and its own ancestors, and its position follows from its
depth, not from its column in the cache. After the round, the keys and values of the accepted
path are moved into order, so no token is read twice.

Here the text [7 9] has been read, and a tree of three nodes follows. Tokens 5 and 8 are
children of the root, and token 6 is below token 5. If the path 8 is accepted, column 4 moves to
column 2.

    token       7    9    5    6    8
    column      0    1    2    3    4
    position    0    1    2    3    2
"""

import numpy as np

from cache import PART, CachedModel, cached, check_ids, mask_of, widened
from gpt2 import GPT2
from llama import Llama
from variants.shared.branches import Branches, Tree


class TreeReader(CachedModel):
    """Read sequences and trees; every node has the logits of its path alone."""

    reads_trees = True

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        # The last tree follows the text self.ids in the cache: the keys and values of node i
        # are in column len(self.ids) + i. self.paths has for each path of tokens its nodes.
        self.paths: dict[tuple, np.ndarray] = {}

    def read(self, ids, n_last):  # -> [n_last, n_embd]
        """Run one pass over a sequence, or over x and every node of a tree."""
        if isinstance(ids, Branches):
            check_tree(self, ids.x, ids.tree, n_last)
            return self.read_tree(ids.x, ids.tree)[-n_last:]
        self.keep_path(list(ids))
        return super().read(ids, n_last)

    def read_tree(self, x, tree):  # -> [n_new, n_embd]
        """Run one pass over the unread end of x and the tree: the root's row is x's last."""
        self.keep_path(x)
        n_past = self.n_reusable(self.ids, x, 1)
        if len(x) - n_past > PART:  # a long prompt is read in parts, all but its last token
            super().read(x[:-1], 1)
            n_past = len(x) - 1

        self.ids = x[:n_past]  # so that Ctrl-C in forward leaves ids and cache consistent
        states = self.read_new(with_unread(x[n_past:], tree), n_past)
        self.ids = x[:]  # a copy, because the caller's list may grow

        nodes_of_path = [np.flatnonzero(row) for row in tree.ancestors()]
        self.paths = {tuple(path): nodes for path, nodes in zip(tree.paths(), nodes_of_path)}
        return states

    def read_new(self, tree, n_past):  # -> [n_nodes, n_embd]
        """Return the states of a tree's nodes, below the first n_past tokens in the cache."""
        sees = tree.ancestors()  # [n_nodes, n_nodes] of bool
        self.cache = widened(self.cache, n_past + len(sees))
        mask = mask_of(sees, like=self.cache)
        attends = [cached(layer, n_past, mask, self.apply) for layer in self.cache]
        depths = sees.sum(axis=1)  # 1 for the first unread token, whose position is n_past
        positions = np.asarray(n_past + depths - 1, like=self.cache)
        tokens = np.asarray(tree.tokens, like=self.cache)
        return self.forward(tokens, positions, attends)

    def keep_path(self, ids):
        """Append to self.ids the longest path of the last tree along which `ids` continues."""
        n = len(self.ids)
        paths = self.paths
        self.paths = {}  # from now on the columns after self.ids may be overwritten
        followed = [path for path in paths if ids[: n + len(path)] == [*self.ids, *path]]
        if accepted := max(followed, key=len, default=()):
            # The path's keys and values move to the columns after the text.
            columns = np.asarray(n + paths[accepted], like=self.cache)
            self.cache[:, :, :, n : n + len(accepted)] = self.cache[:, :, :, columns]
            self.ids = ids[: n + len(accepted)]


class TreeGPT2(TreeReader, GPT2):
    """A GPT2 that reads trees too."""


class TreeLlama(TreeReader, Llama):
    """A Llama that reads trees too."""


def check_tree(model, x, tree, n_last):
    """Raise ValueError for a wrong n_last or token, or a path beyond the model's context."""
    n_rows = 1 + len(tree)
    if not 1 <= n_last <= n_rows:
        raise ValueError(f"need 1 <= n_last <= 1 + n_nodes = {n_rows} for a tree, got "
                         f"n_last = {n_last}")
    depth = max(map(len, tree.paths()), default=0)
    longest = model.n_ctx - depth  # for a longer x, x and the longest path would not fit
    if not 1 <= len(x) <= longest:
        raise ValueError(f"need 1 <= len(x) <= n_ctx - depth = {longest}, got {len(x)}")
    check_ids(tree.tokens, model.n_vocab)


def with_unread(unread, tree):
    """Return one tree: the unread tokens of a text as a path, and `tree` below the path's end.

    >>> with_unread([7, 9], Tree(tokens=[5, 6, 8], parents=[-1, 0, -1])).parents
    [-1, 0, 1, 2, 1]
    """
    n = len(unread)
    path = range(-1, n - 1)  # the parent of each token is the token before it
    below = [n + parent for parent in tree.parents]  # the root, -1, is the path's last node
    return Tree(unread + tree.tokens, [*path, *below])


def tree_model(model):
    """Return a model of the same weights that reads trees too, and has read nothing."""
    for kind, tree_kind in ((GPT2, TreeGPT2), (Llama, TreeLlama)):
        if isinstance(model, kind):
            return tree_kind(model.params, model.n_head)
    return model.fresh()  # the models of wrappers/ read trees already
