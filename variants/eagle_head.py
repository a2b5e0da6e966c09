"""The head of EAGLE, Li et al. (2024a): one block that continues the target's states. Lossless.

Adds to gpt2.py: a transformer that reads pairs, and so knows what was drawn from a state.

    f_i        the target's state at token i: the last hidden one, after ln_f
    e_i        the embedding of token i, which in GPT-2 includes its position: wte[x_i] + wpe[i]
    pair i     (f_i, e_(i + 1)): a state and the token that came NEXT
    node       a guess in a tree (variants/tree.py); -1 is the root, the end of x
    predicted  the states that the head gives, at the root and at every node

    z_i = fc [ln_token(e_(i + 1)); ln_state(f_i)]    predicted f_(i + 1) = ln_f(block(z_0 .. z_i))

Two norms, because the two differ in scale; no table of positions, because e has them.
The target's unembedding makes the predicted state at token i + 1 a distribution of token i + 2. The
states before the end of x are true. Below the root there are none, and the head continues the
states it predicted; their keys and values come after the text's, and are never taken for them.
"""

import hashlib

import numpy as np

from gpt2 import (cached, causal_mask, common_prefix, layer_norm, linear, to_host,
                  transformer_block, unembed)
from lib.backend.arrays import widened
from lib.checkpoints import tensors
from lib.checkpoints.weights import build_params


class Head:
    """The head as a draft for trees. As GPT2's, its cache is a memo: no answer depends on it.

    `params` are those of a GPT-2 of one block, with the target's wte and wpe, and of ln_token,
    ln_state and fc. `states_of(ids, n_last)` gives the target's states at a text's last tokens.
    """

    def __init__(self, params, n_head, states_of):
        self.params, self.n_head, self.states_of = params, n_head, states_of
        (n_ctx, n_embd), wte = params["wpe"].shape, params["wte"]
        self.cache = np.zeros((2, n_head, n_ctx, n_embd // n_head), wte.dtype, like=wte)
        self.mask = causal_mask(n_ctx, like=wte)
        self.ids = []  # pair i of this text is in column i of the cache
        self.predicted = None  # [1 + n_nodes, n_embd]

    def __call__(self, x, tree, nodes):  # -> [len(nodes), n_vocab]
        """Return the logits after these nodes: the root first, then the new nodes of each level."""
        if nodes == [-1]:
            self.predicted = self.read(list(x))  # a copy, because the text will grow
        else:
            self.predicted = np.concatenate([self.predicted, self.read_nodes(tree, nodes)])
        return to_host(unembed(self.predicted[-len(nodes) :], self.params))

    def read(self, x):  # -> [1, n_embd]
        """Return the state predicted at the end of x, from the true states before it."""
        n = len(x) - 1  # pairs
        n_past = max(0, min(common_prefix(self.ids, x) - 1, n - 1))
        states = self.states_of(x[:-1], n - n_past)
        self.ids = x[: n_past + 1]  # as in GPT2: true even if Ctrl-C comes below
        new = np.arange(n_past, n)
        states = self.feed(states, x[n_past + 1 :], new + 1, n_past, self.mask[n_past:n, :n])
        self.ids = x
        return states[-1:]

    def read_nodes(self, tree, nodes):  # -> [len(nodes), n_embd]
        """Return the states predicted at new nodes, each from the state predicted at its parent.

        As in tree_gpt2.py a node sees the text and its ancestors. It is in column n + node.
        """
        n, sees = len(self.ids) - 1, tree.ancestors()[nodes]  # [n_new, n_nodes]
        visible = np.concatenate([np.ones((len(nodes), n), bool), sees], axis=1)
        mask = np.asarray(np.where(visible, 0, -np.inf), self.mask.dtype, like=self.mask)
        states = np.stack([self.predicted[1 + tree.parents[node]] for node in nodes])
        tokens, depths = [tree.tokens[node] for node in nodes], sees.sum(axis=1)
        return self.feed(states, tokens, n + depths, n + nodes[0], mask)

    def feed(self, states, tokens, positions, n_past, mask):  # [n_new, n_embd] -> [n_new, n_embd]
        """Return the states predicted at tokens, from those before; columns n_past .. are written.

        `positions` are those of the tokens; `mask` is [n_new, n_seq].
        """
        params, on_device, n_ctx = self.params, {"like": self.cache}, len(self.params["wpe"])
        if max(positions) >= n_ctx:
            raise ValueError(f"need positions below n_ctx = {n_ctx}, got {max(positions)}")
        if self.cache.shape[-2] < n_past + len(tokens):  # a tree near the end of the context
            self.cache = widened(self.cache, n_past + len(tokens))
        e = (params["wte"][np.asarray(tokens, **on_device)]
             + params["wpe"][np.asarray(positions, **on_device)])
        pairs = [layer_norm(e, **params["ln_token"]), layer_norm(states, **params["ln_state"])]
        x, (block,) = linear(np.concatenate(pairs, axis=1), **params["fc"]), params["blocks"]
        x = transformer_block(x, **block, n_head=self.n_head,
                              attend=cached(self.cache, n_past, mask))
        return layer_norm(x, **params["ln_f"])


def build_head(n_embd, take):
    """Return the tree of the head's weights, as lib/checkpoints/weights.py's build_params does."""
    norm = lambda name: {"g": take(f"{name}/g", n_embd), "b": take(f"{name}/b", n_embd)}
    return {**build_params(dict(n_vocab=0, n_ctx=0, n_embd=n_embd, n_layer=1), take),
            "ln_token": norm("ln_token"), "ln_state": norm("ln_state"),
            "fc": {"w": take("fc/w", 2 * n_embd, n_embd), "b": take("fc/b", n_embd)}}


def fingerprint(wte):
    """Return a hash that identifies the target: of its token embeddings in float16."""
    return hashlib.sha256(to_host(wte).astype(np.float16).tobytes()).hexdigest()


def load_head(path, target):
    """Return the head's weights from a file of heads, with the tables of the target's `params`.

    ValueError if the file is broken, or names a different target in its metadata.
    """
    (stored, metadata), own = tensors.open_file(path), fingerprint(target["wte"])
    made_for = metadata.get("target", own)
    if made_for != own:
        raise ValueError(f"need a head that was trained for this target, {own[:8]}, in {path}, got "
                         f"one for {made_for[:8]!r}")

    def take(name, *shape):
        if name in ("wte", "wpe"):
            return target[name]
        weight = np.array(tensors.read(stored, f"eagle/{name}", path, shape))
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {path}, got NaN or inf in eagle/{name}")
        # In the order of memory that lib/backend/products.py is fast with.
        return np.asarray(weight, target["wte"].dtype, order="F", like=target["wte"])

    return build_head(target["wpe"].shape[1], take)
