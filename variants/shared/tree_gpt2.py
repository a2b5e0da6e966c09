"""Tree attention, Miao et al. (2023): a GPT2 that scores all paths of a tree in one pass. Lossless.

Adds to gpt2.py: a node sees the text and its own ancestors, and its position is that of its depth,
not of its column in the cache. Afterwards the keys and values of an accepted path are moved into
order, so nothing is read twice.

    tree     the paths after the text: tokens and parents (variants/shared/branches.py)
    sees     [n_nodes, n_nodes]: True for a node's ancestors and the node itself
"""

import numpy as np

from gpt2 import GPT2, cached, check_ids, common_prefix, forward
from lib.backend.arrays import widened
from variants.shared.branches import Branches


class TreeGPT2(GPT2):
    """A GPT2 that reads sequences and trees, `model(x + tree, n)`.

    Every node has the logits of its own path run alone:

    >>> from lib.checkpoints.weights import random_params
    >>> from variants.shared.branches import Tree
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> tree = Tree()
    >>> nodes = [tree.add(-1, 5, None), tree.add(-1, 7, None), tree.add(1, 2, None)]
    >>> rows = TreeGPT2(params, n_head=2)([3, 1] + tree, 4)
    >>> np.allclose(rows[3], GPT2(params, n_head=2)([3, 1, 7, 2]))
    True
    """

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        self.nodes = [], ()  # the tree after self.ids: its tokens, and the path of each node

    def read(self, ids, n_last):  # -> [n_last, n_embd]
        """Run one pass over a sequence, or over x and every node of a tree."""
        if isinstance(ids, Branches):
            return self.read_tree(list(ids.x), list(ids.tree.tokens), ids.tree.ancestors())
        self.keep_path(list(ids))
        return super().read(ids, n_last)

    def read_tree(self, ids, tokens, sees):  # -> [1 + n_nodes, n_embd]
        """Return the states after `ids` and after every node, from one pass over what is unread."""
        n, n_nodes, depths = len(ids), len(tokens), sees.sum(axis=1)
        deepest = max(depths, default=0)
        if not 1 <= n <= n + deepest <= self.n_ctx:
            raise ValueError(f"need 1 <= len(ids) and len(ids) + depth <= n_ctx = {self.n_ctx}, "
                             f"got {n} and {deepest}")
        self.keep_path(ids)
        n_past = min(common_prefix(self.ids, ids), n - 1)
        new, n_unread = check_ids(ids[n_past:] + tokens, self.n_vocab), n - n_past
        visible = np.block([[np.tri(n_unread, n, n_past) > 0, np.zeros((n_unread, n_nodes), bool)],
                            [np.ones((n_nodes, n), bool), sees]])  # [n_new, n + n_nodes]
        positions = np.concatenate([np.arange(n_past, n), n - 1 + depths])
        on_device = {"like": self.cache}
        mask = np.asarray(np.where(visible, 0, -np.inf), self.cache.dtype, **on_device)
        self.make_room(n + n_nodes)
        self.ids = ids[:n_past]
        x = forward(np.asarray(new, **on_device), np.asarray(positions, **on_device),
                    [cached(layer, n_past, mask) for layer in self.cache], self.params, self.n_head)
        self.ids, self.nodes = ids, (tokens, [np.flatnonzero(row) for row in sees])
        return x[-1 - n_nodes :]

    def keep_path(self, ids):
        """Move the columns of the last tree's path along which `ids` continues into order."""
        (tokens, paths), n, self.nodes = self.nodes, len(self.ids), ([], ())
        if not tokens or ids[:n] != self.ids:
            return
        fits = (path for path in paths if [tokens[j] for j in path] == ids[n : n + len(path)])
        path = max(fits, key=len, default=())
        if len(path):
            kept = self.cache[:, :, :, np.asarray(n + path, like=self.cache)]
            self.cache[:, :, :, n : n + len(path)] = kept
            self.ids = ids[: n + len(path)]

    def make_room(self, n_seq):
        """Widen the cache for a tree near the end of the context."""
        if self.cache.shape[-2] < n_seq:
            self.cache = widened(self.cache, n_seq)
