"""Score all paths of a tree in one pass, by tree attention: Miao et al. (2023).

Adds to gpt2.py: a node sees the text and its own ancestors, and its position follows from its
depth, not from its column in the cache. After the round, the keys and values of the accepted
path are moved into order, so no token is read twice.
"""

import numpy as np

from gpt2 import GPT2, cached, check_ids, forward, widened
from variants.shared.branches import Branches, Tree, tree_mask


class TreeGPT2(GPT2):
    """A GPT2 that reads sequences and trees; every node has the logits of its path alone."""

    reads_trees = True

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        # The paths of the last tree: tokens of a path -> its nodes. The tree follows self.ids in
        # the cache: the keys and values of node i are in column len(self.ids) + i.
        self.paths: dict[tuple, np.ndarray] = {}

    def read(self, ids, n_last):  # -> [n_last, n_embd]
        """Run one pass over a sequence, or over x and every node of a tree."""
        if isinstance(ids, Branches):
            n_rows = 1 + len(ids.tree)
            if not 1 <= n_last <= n_rows:
                raise ValueError(f"need 1 <= n_last <= 1 + n_nodes = {n_rows} for a tree, got "
                                 f"n_last = {n_last}")
            return self.read_tree(ids.x, ids.tree)[-n_last:]
        self.keep_path(list(ids))
        return super().read(ids, n_last)

    def read_tree(self, x, tree):  # -> [n_new, n_embd]
        """Run one pass over the unread end of x, as a path, and over the tree below it."""
        paths = tree.paths()
        longest = self.n_ctx - max(map(len, paths), default=0)  # so that every path fits
        if not 1 <= len(x) <= longest:
            raise ValueError(f"need 1 <= len(x) <= n_ctx - depth = {longest}, got {len(x)}")
        check_ids(tree.tokens, self.n_vocab)
        self.keep_path(x)
        n_past = self.n_reusable(self.ids, x, 1)
        n_unread = len(x) - n_past
        # One pass reads one tree: the unread end of x is a path of n_unread nodes, and the tree's
        # nodes follow it. Its root, -1, is the last node of the path, n_unread - 1.
        path = range(-1, n_unread - 1)  # the parent of each node is the node before it
        parents = [*path, *(n_unread + parent for parent in tree.parents)]
        tokens = x[n_past:] + tree.tokens
        sees = Tree(tokens, parents).ancestors()  # [n_new, n_new] of bool
        self.cache = widened(self.cache, n_past + len(sees))  # for trees near the context's end
        mask = tree_mask(sees, n_past, like=self.cache)
        attends = [cached(layer, n_past, mask) for layer in self.cache]
        depths = sees.sum(axis=1)  # from 1 on: the first unread token has position n_past
        positions = np.asarray(n_past + depths - 1, like=self.cache)
        self.ids = x[:n_past]  # as in GPT2.read: true if Ctrl-C comes in forward
        states = forward(np.asarray(tokens, like=self.cache), positions, attends, self.params,
                         self.n_head)
        self.ids = x[:]  # a copy, because the caller's list may grow
        columns = [np.flatnonzero(row) for row in tree.ancestors()]
        self.paths = {tuple(path): nodes for path, nodes in zip(paths, columns)}
        return states

    def keep_path(self, ids):
        """Append the last tree's path that `ids` contains to self.ids; move its columns."""
        n = len(self.ids)
        paths = self.paths
        self.paths = {}  # after this call the columns beyond self.ids may be overwritten
        accepted = (path for path in paths if [*self.ids, *path] == ids[: n + len(path)])
        path = max(accepted, key=len, default=())
        if path:
            # The path's columns are scattered among those of rejected nodes.
            columns = np.asarray(n + paths[path], like=self.cache)
            self.cache[:, :, :, n : n + len(path)] = self.cache[:, :, :, columns]
            self.ids = ids[: n + len(path)]


def tree_model(model):
    """Return a model of the same weights that reads trees too, and has read nothing.

    A model that is not a GPT2 reads the path to each node by itself (wrappers/).
    """
    if isinstance(model, GPT2):
        return TreeGPT2(model.params, model.n_head)
    return model.fresh()
