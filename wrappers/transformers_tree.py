"""Read a text and a tree of guesses with one pass of a model of transformers.

Adds to wrappers/transformers_model.py: a mask in which each node sees the text and its own
path. Without such a mask a tree of n nodes costs 1 + n passes, one for x and one for each node.

    mask        [1, 1, row, column], added to the scores before the softmax: 0 where a row sees
                a column, and the dtype's least number elsewhere
    position    of a token: the number of tokens before it on its path, whatever its column

Models with a window in a layer, or with positions derived from the mask (BLOOM) or from
columns (MPT), cannot use such a mask. `takes_mask` tries it on a small tree; if it fails, each
path is read by itself.
"""

import numpy as np

from variants.shared.branches import Tree
from variants.shared.tree_gpt2 import check_tree, with_unread


def tree_rows(model, x, tree, n_last, **others):  # -> [n_last, n_vocab]
    """Return the last rows of x + tree from one pass of a TransformersModel.

    Afterwards the cache holds x alone: accepted guesses are read again in the next pass, which
    costs a few rows and moves no columns of the cache. `others` replace settings of the pass.
    """
    check_tree(model, x, tree, n_last)
    try:
        # The last token of x is always read again, because its row is wanted.
        model.go_back(model.n_reusable(model.ids, x, 1))
        n_past = len(model.ids)  # 0 if the cache cannot go back so far
        larger = with_unread(x[n_past:], tree)  # one tree of all tokens of the pass
        sees = larger.ancestors()  # [n_new, n_new] of bool
        settings = mask_settings(model.model, sees, n_past) | others
        rows = model.forward(larger.tokens, n_last, **settings)
        if tree.tokens:  # crop(0) would drop the past that some layers keep to go back
            model.cache.crop(-len(tree))  # drops the nodes of the tree
    except BaseException:
        # After Ctrl-C in a pass, only some layers have the keys and values of new tokens.
        model.forget()
        raise
    model.ids = x[:]  # a copy, because the caller's list may grow
    return rows


def mask_settings(peer, sees, n_past):
    """Return the mask and the positions of a pass, as the settings of transformers' forward."""
    import torch

    # All rows see the past, and each row sees the new tokens on its own path.
    past = np.ones((len(sees), n_past), bool)
    allowed = torch.from_numpy(np.hstack([past, sees]))
    mask = torch.zeros(1, 1, *allowed.shape, dtype=peer.dtype)
    mask.masked_fill_(~allowed, torch.finfo(peer.dtype).min)
    depths = sees.sum(axis=1)  # 1 for the first unread token, whose position is n_past
    positions = torch.from_numpy(n_past + depths - 1)[None]
    return {"attention_mask": mask.to(peer.device), "position_ids": positions.to(peer.device)}


def takes_mask(model, tolerance):
    """Return whether the rows of a small tree equal the rows of its paths, read one by one."""
    import torch

    # The texts below have up to 5 tokens.
    if not model.has_cache or any(model.cache.is_sliding) or model.n_ctx < 6:
        return False
    # After x = [0] the tree has the siblings 0 and a, and a path of three nodes below a. So the
    # longest text is [0, a, 0, a, 0].
    a = model.n_vocab // 2
    tree = Tree([0, a, 0, a, 0], [-1, -1, 1, 2, 3])
    texts = ([0, *path] for path in tree.paths())
    alone = np.concatenate([model.fresh()(text) for text in texts])
    try:
        rows = tree_rows(model.fresh(), [0], tree, len(tree))
        # Here the positions are the columns, which is wrong from node 1 on.
        columns = torch.arange(1 + len(tree), device=model.model.device)[None]
        shifted = tree_rows(model.fresh(), [0], tree, len(tree), position_ids=columns)
    except Exception:  # each family refuses such a mask with an error of its own
        return False
    # A family that derives positions from columns (ALiBi) computes the same bits from any
    # positions. In bfloat16 its wrong rows can be within the tolerance.
    if np.array_equal(rows, shifted):
        return False
    return bool(np.abs(rows - alone).max() <= tolerance * np.abs(alone).max())
