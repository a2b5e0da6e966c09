"""Tree attention, Miao et al. (2023): a GPT2 that scores all paths of a tree in one pass. Lossless.

Adds to gpt2.py: a node sees the text and its own ancestors, and its position is that of its depth,
not of its column in the cache. Afterwards the keys and values of an accepted path are moved into
order, so nothing is read twice.
"""

import numpy as np

from gpt2 import GPT2, cached, check_ids, common_prefix, forward
from lib.backend.arrays import widened
from variants.shared.branches import Branches


class TreeGPT2(GPT2):
    """A GPT2 that reads sequences and trees; every node has the logits of its path run alone."""

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        self.paths = {}  # of the tree after self.ids: the tokens and the nodes of each

    def read(self, ids, n_last):  # -> [n_last, n_embd]
        """Run one pass over a sequence, or over x and every node of a tree."""
        if isinstance(ids, Branches):
            return self.read_tree(ids.x, ids.tree)[-n_last:]
        self.keep_path(list(ids))
        return super().read(ids, n_last)

    def read_tree(self, ids, tree):  # -> [1 + n_nodes, n_embd]
        """Return the states after `ids` and after every node, from one pass over what is unread."""
        n, n_nodes, sees = len(ids), len(tree), tree.ancestors()  # [n_nodes, n_nodes]
        depths = sees.sum(axis=1)
        deepest = max(depths, default=0)
        if not 1 <= n <= n + deepest <= self.n_ctx:
            raise ValueError(f"need 1 <= len(ids) and len(ids) + depth <= n_ctx = {self.n_ctx}, "
                             f"got {n} and {deepest}")
        self.keep_path(ids)
        n_past = min(common_prefix(self.ids, ids), n - 1)
        new, n_unread = check_ids(ids[n_past:] + tree.tokens, self.n_vocab), n - n_past
        visible = np.block([[np.tri(n_unread, n, n_past) > 0, np.zeros((n_unread, n_nodes), bool)],
                            [np.ones((n_nodes, n), bool), sees]])  # [n_new, n + n_nodes]
        positions = np.concatenate([np.arange(n_past, n), n - 1 + depths])
        on_device = {"like": self.cache}
        mask = np.asarray(np.where(visible, 0, -np.inf), self.cache.dtype, **on_device)
        if self.cache.shape[-2] < n + n_nodes:  # a tree near the end of the context
            self.cache = widened(self.cache, n + n_nodes)
        self.ids = ids[:n_past]
        x = forward(np.asarray(new, **on_device), np.asarray(positions, **on_device),
                    [cached(layer, n_past, mask) for layer in self.cache], self.params, self.n_head)
        self.ids, self.paths = ids, dict(zip(map(tuple, tree.paths()), map(np.flatnonzero, sees)))
        return x[-1 - n_nodes :]

    def keep_path(self, ids):
        """Move the columns of the last tree's path along which `ids` continues into order."""
        paths, self.paths, n = self.paths, {}, len(self.ids)
        fits = (path for path in paths if [*self.ids, *path] == ids[: n + len(path)])
        path = max(fits, key=len, default=())
        if path:
            kept = self.cache[:, :, :, np.asarray(n + paths[path], like=self.cache)]
            self.cache[:, :, :, n : n + len(path)] = kept
            self.ids = ids[: n + len(path)]
