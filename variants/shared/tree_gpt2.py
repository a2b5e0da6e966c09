"""Tree attention, Miao et al. (2023): a GPT2 that scores all paths of a tree in one pass. Lossless.

Adds to gpt2.py: a node sees the text and its own ancestors, and its position is that of its depth,
not of its column in the cache. Afterwards the keys and values of an accepted path are moved into
order, so nothing is read twice.
"""

import numpy as np

from gpt2 import GPT2, cached, check_ids, common_prefix, forward, widened
from variants.shared.branches import Branches, Tree


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

    def read_tree(self, x, tree):  # -> [n_new, n_embd]
        """Run one pass over what is unread of x, as a path, and over the tree below it."""
        paths = tree.paths()
        longest = self.n_ctx - max(map(len, paths), default=0)
        if not 1 <= len(x) <= longest:
            raise ValueError(f"need 1 <= len(x) <= n_ctx - depth = {longest}, got {len(x)}")
        self.keep_path(x)
        n_past = min(common_prefix(self.ids, x), len(x) - 1)
        tokens, n_unread = check_ids(x[n_past:] + tree.tokens, self.n_vocab), len(x) - n_past
        parents = [*range(-1, n_unread - 1), *(n_unread + parent for parent in tree.parents)]
        sees = Tree(tokens, parents).ancestors()
        visible = np.concatenate([np.ones((len(sees), n_past), bool), sees], axis=1)
        mask = np.asarray(np.where(visible, 0, -np.inf), self.cache.dtype, like=self.cache)
        if self.cache.shape[-2] < n_past + len(sees):  # a tree near the end of the context
            self.cache = widened(self.cache, n_past + len(sees))
        attends = [cached(layer, n_past, mask) for layer in self.cache]
        positions = np.asarray(n_past - 1 + sees.sum(axis=1), like=self.cache)
        self.ids = x[:n_past]
        states = forward(np.asarray(tokens, like=self.cache), positions, attends, self.params,
                         self.n_head)
        self.ids, columns = x, map(np.flatnonzero, tree.ancestors())
        self.paths = dict(zip(map(tuple, paths), columns))
        return states

    def keep_path(self, ids):
        """Move the columns of the last tree's path along which `ids` continues into order."""
        paths, self.paths, n = self.paths, {}, len(self.ids)
        fits = (path for path in paths if [*self.ids, *path] == ids[: n + len(path)])
        path = max(fits, key=len, default=())
        if path:
            kept = self.cache[:, :, :, np.asarray(n + paths[path], like=self.cache)]
            self.cache[:, :, :, n : n + len(path)] = kept
            self.ids = ids[: n + len(path)]
