"""Run the head of EAGLE, Li et al. (2024a): one block that continues the target's states.

Adds to gpt2.py: a transformer that reads pairs, each a state and the token drawn from it.

    f_i        the target's state at token i: the last hidden one, after ln_f
    e_i        the embedding of token i, which in GPT-2 includes its position: wte[x_i] + wpe[i]
    pair i     (f_i, e_(i + 1)): a state and the token that came NEXT
    predicted  the head's states, at the end of x and at every node of a tree

    z_i = fc [ln_token(e_(i + 1)); ln_state(f_i)]  predicted f_(i + 1) = ln_f(block(z_0 .. z_i))

There are two norms, because states and embeddings differ in scale. The target's unembedding
makes the predicted state at token i + 1 a distribution of token i + 2. The states before the
end of x are the target's own. For the tree there are none, so the head continues the states it
predicted; their keys and values come after the text's, and are not reused as the text's.
"""

import numpy as np

from gpt2 import (
    cached,
    common_prefix,
    layer_norm,
    linear,
    to_host,
    transformer_block,
    unembed,
    widened,
)
from lib.checkpoints.weights import build_params, linear_weights, norm_weights
from variants.shared.branches import tree_mask
from variants.shared.heads import open_heads


class Head:
    """The head as a tree model of logits; as in GPT2, no answer depends on its cache.

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
        self.tree = None  # the one that follows the text
        self.predicted = np.empty((0, n_embd))  # [1 + n_nodes read, n_embd], of text and tree

    def __call__(self, branches, n_last):  # -> [n_last, n_vocab]
        """Return the logits after the last nodes; the tree may have grown since last time."""
        x, tree = branches
        if tree is not self.tree or x != self.ids:
            self.predicted = self.read(x)
            self.tree = tree
        while len(self.predicted) <= len(tree):
            self.predicted = np.concatenate([self.predicted, self.read_nodes(tree)])
        return to_host(unembed(self.predicted[-n_last:], self.params))

    def read(self, x):  # -> [1, n_embd]
        """Return the state predicted at the end of x, from the true states before it."""
        n = len(x) - 1  # pairs; the last one is read again, because its state is wanted
        n_past = max(0, min(common_prefix(self.ids, x) - 1, n - 1))
        states = self.states_of(x[:-1], n - n_past)
        self.ids = x[: n_past + 1]  # as in GPT2: true even if Ctrl-C comes below
        path = np.tri(n - n_past, dtype=bool)  # each pair sees those before it
        states = self.feed(states, x[n_past + 1 :], n_past, path)
        self.ids = x[:]  # a copy, because the caller's list may grow
        return states[-1:]

    def read_nodes(self, tree):  # -> [n_new, n_embd]
        """Return the states predicted at the next nodes, each from the one at its parent."""
        first = len(self.predicted) - 1
        children = (node for node, parent in enumerate(tree.parents) if parent >= first)
        end = next(children, len(tree))  # the nodes before it have predicted states above them
        states = np.stack([self.predicted[1 + parent] for parent in tree.parents[first:end]])
        return self.feed(states, tree.tokens[first:end], len(self.ids) - 1,
                         tree.ancestors()[first:end, :end])

    def feed(self, states, tokens, n_past, sees):  # [n_new, n_embd] -> [n_new, n_embd]
        """Return the states predicted at tokens, the last of a tree or path after n_past pairs.

        As in tree_gpt2.py each sees all pairs before the tree, and in it its ancestors: `sees`.
        """
        n_new, n_nodes = sees.shape
        params = self.params
        self.cache = widened(self.cache, n_past + n_nodes)  # for a tree near the context's end
        mask = tree_mask(sees, n_past, like=self.cache)
        tokens = np.asarray(tokens, like=self.cache)
        positions = np.asarray(n_past + sees.sum(axis=1), like=self.cache)
        e = params["wte"][tokens] + params["wpe"][positions]
        pairs = [layer_norm(e, **params["ln_token"]), layer_norm(states, **params["ln_state"])]
        x = linear(np.concatenate(pairs, axis=1), **params["fc"])
        attend = cached(self.cache, n_past + n_nodes - n_new, mask)
        [block] = params["blocks"]
        x = transformer_block(x, **block, n_head=self.n_head, attend=attend)
        return layer_norm(x, **params["ln_f"])


def build_head(n_embd, take):
    """Return the head's weights: the tree of a GPT-2 of one block, two norms and fc."""
    return {**build_params(dict(n_vocab=0, n_ctx=0, n_embd=n_embd, n_layer=1), take),
            "ln_token": norm_weights(take, "ln_token", n_embd),
            "ln_state": norm_weights(take, "ln_state", n_embd),
            "fc": linear_weights(take, "fc", 2 * n_embd, n_embd)}


def load_head(models):
    """Return the weights of the target's own head, and the target's tables."""
    params = models.target.params
    stored = open_heads(models)

    def take(name, *shape):
        if name in ("wte", "wpe"):
            return params[name]
        weight = stored(f"eagle/{name}", *shape)
        return np.asarray(weight, order="F", like=weight)  # as lib/backend/products.py needs it

    return build_head(params["wpe"].shape[1], take)
