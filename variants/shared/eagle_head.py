"""Run the head of EAGLE, Li et al. (2024a): one block that continues the target's states.

Adds to gpt2.py: a transformer that reads pairs, each a state and the token drawn from it.

    f_i        the target's state at token i: the last hidden state, after ln_f
    e_i        the embedding of token i, which in GPT-2 includes its position: wte[x_i] + wpe[i]
    pair i     (f_i, e_(i + 1)): a state and the token that came NEXT
    predicted  the head's states, at the end of x and at every node of a tree

    z_i        fc [ln_token(e_(i + 1)); ln_state(f_i)]: pair i as the input of the block
    f_(i + 1)  predicted as ln_f(block(z_0 .. z_i)), which the target's unembedding turns into the
               distribution of token i + 2

There are two norms, because states and embeddings differ in scale. The pairs of the text have the
target's own states. The pairs of a tree's nodes have predicted states, because the target has not
read the nodes. In the cache, the keys and values of the nodes follow those of the text. They are
computed again, from true states, when the tokens of the nodes have become text.
"""

import numpy as np

from gpt2 import cached, layer_norm, linear, to_host, transformer_block, unembed, widened
from lib.checkpoints.weights import build_params, linear_weights, norm_weights
from lib.prefix import common_prefix
from variants.shared.branches import row_after, tree_mask
from variants.shared.heads import open_heads


class Head:
    """Hold the head, a tree model of logits; as in GPT2, no answer depends on its cache.

    `params` is the tree of a GPT-2 of one block, with the target's wte and wpe, and ln_token,
    ln_state and fc. `states_of(ids, n_last)` returns the target's states at the last tokens.
    """

    def __init__(self, params, n_head, states_of):
        self.params = params
        self.n_head = n_head
        self.states_of = states_of
        wte = params["wte"]
        n_ctx, n_embd = params["wpe"].shape
        self.cache = np.zeros((2, n_head, n_ctx, n_embd // n_head), wte.dtype, like=wte)
        self.ids = []  # pair i of this text is in column i of the cache
        self.tree = None  # the tree that follows the text
        self.predicted = np.empty((0, n_embd))  # row 0: the end of the text; row 1 + i: node i

    def __call__(self, branches, n_last):  # -> [n_last, n_vocab]
        """Return the logits after the last nodes; the tree may have grown since the last call."""
        x, tree = branches
        if tree is not self.tree or x != self.ids:
            self.predicted = self.read(x)
            self.tree = tree
        while len(self.predicted) < 1 + len(tree):  # some nodes are unread
            self.predicted = np.concatenate([self.predicted, self.read_nodes(tree)])
        return to_host(unembed(self.predicted[-n_last:], self.params))

    def read(self, x):  # -> [1, n_embd]
        """Return the state predicted at the end of x, from the true states before it."""
        n = len(x) - 1  # pairs: n tokens have a next token
        # Two texts with the same first c tokens have the same first c - 1 pairs. The last pair is
        # always read again, because its predicted state is wanted.
        n_common = common_prefix(self.ids, x) - 1
        n_past = max(0, min(n_common, n - 1))  # pairs whose keys and values are reused
        states = self.states_of(x[:-1], n - n_past)
        self.ids = x[: n_past + 1]  # the tokens of n_past pairs: true even if Ctrl-C comes below
        path = np.tri(n - n_past, dtype=bool)  # each pair sees itself and the pairs before it
        states = self.predict_states(states, x[n_past + 1 :], n_past, path)
        self.ids = x[:]  # a copy, because the caller's list may grow
        return states[-1:]

    def read_nodes(self, tree):  # -> [n_new, n_embd]
        """Return the states predicted at the next nodes, from the states at their parents."""
        first = len(self.predicted) - 1  # the first unread node
        # A node needs the state at its parent, so the first node with an unread parent ends this
        # part; the next call reads it.
        below_unread = (node for node, parent in enumerate(tree.parents) if parent >= first)
        end = next(below_unread, len(tree))  # parents of nodes first .. end - 1 have states
        parents = tree.parents[first:end]
        states = np.stack([row_after(self.predicted, parent) for parent in parents])
        n_past = len(self.ids) - 1  # pairs of the text
        return self.predict_states(states, tree.tokens[first:end], n_past,
                                   tree.ancestors()[first:end, :end])

    def predict_states(self, states, tokens, n_past, sees):  # [n_new, n_embd] -> [n_new, n_embd]
        """Return the state predicted at each token.

        n_nodes nodes, of a tree or of a path, follow n_past pairs. The tokens are the last n_new of
        these nodes. As in tree_gpt2.py, a node sees all n_past pairs, its ancestors and itself;
        `sees` has the nodes, [n_new, n_nodes] of bool.
        """
        n_new, n_nodes = sees.shape
        params = self.params
        self.cache = widened(self.cache, n_past + n_nodes)  # for a tree near the context's end
        mask = tree_mask(sees, n_past, like=self.cache)
        tokens = np.asarray(tokens, like=self.cache)
        depths = sees.sum(axis=1)  # from 1 on
        # Pair i has token i + 1, so the token of pair n_past, which is at depth 1, is n_past + 1.
        positions = np.asarray(n_past + depths, like=self.cache)
        e = params["wte"][tokens] + params["wpe"][positions]
        pairs = [layer_norm(e, **params["ln_token"]), layer_norm(states, **params["ln_state"])]
        x = linear(np.concatenate(pairs, axis=1), **params["fc"])
        n_old = n_past + n_nodes - n_new  # pairs that are in the cache already
        attend = cached(self.cache, n_old, mask)
        [block] = params["blocks"]
        x = transformer_block(x, **block, n_head=self.n_head, attend=attend)
        return layer_norm(x, **params["ln_f"])


def build_head(n_embd, weight):
    """Return the head's weights: those of a GPT-2 of one block, two norms and fc.

    `weight(name, *shape)` returns one array.
    """
    return {**build_params(dict(n_vocab=0, n_ctx=0, n_embd=n_embd, n_layer=1), weight),
            "ln_token": norm_weights(weight, "ln_token", n_embd),
            "ln_state": norm_weights(weight, "ln_state", n_embd),
            "fc": linear_weights(weight, "fc", 2 * n_embd, n_embd)}


def load_head(models):
    """Return the weights of the target's own head, and the target's tables."""
    params = models.target.params
    stored_weight = open_heads(models)

    def weight(name, *shape):
        if name in ("wte", "wpe"):  # the head has no tables: it uses the target's
            return params[name]
        array = stored_weight(f"eagle/{name}", *shape)
        return np.asarray(array, order="F", like=array)  # as lib/backend/products.py needs it

    n_embd = params["wpe"].shape[1]
    return build_head(n_embd, weight)
