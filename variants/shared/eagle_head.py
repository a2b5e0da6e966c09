"""Run the head of EAGLE, Li et al. (2024a): one block that continues the target's states.

Adds to gpt2.py: a transformer that reads pairs, each a state and the token drawn from it.

    f_i        the target's state at token i: the last hidden state, after ln_f
    e_i        the embedding of token i, which in GPT-2 includes its position: wte[x_i] + wpe[i]
    pair i     (f_i, e_(i + 1)): a state and the token that came NEXT
    z_i        fc [ln_token(e_(i + 1)); ln_state(f_i)]: pair i as the input of the block
    f_(i + 1)  is predicted from the pairs so far, as ln_f(block(z_0 .. z_i)). The target's
               unembedding turns f_(i + 1) into the distribution of token i + 2
    predicted  the head's states, at the end of x and at every node of a tree

The text x_0 x_1 x_2 x_3 gives three pairs. A guess is a further pair: the state at its parent,
and the guessed token.

    pair       (f_0, x_1)   (f_1, x_2)   (f_2, x_3)   (f_3, guess)
    predicts   f_1          f_2          f_3          f_4

There are two norms, because states and embeddings differ in scale. The pairs of the text have
the target's own states, here f_0, f_1 and f_2. The pairs of guesses have predicted states, here
f_3, because the target has not read the guesses. In the cache, the keys and values of the
tree's nodes follow those of the text. When a guess has become text, its keys and values are
computed again, from the target's own state.
"""

import numpy as np

from cache import cached, linear, to_host, unembed, widened
from gpt2 import layer_norm, transformer_block
from lib.checkpoints.weights import build_params, linear_weights, norm_weights
from lib.prefix import common_prefix
from variants.shared.branches import row_after, tree_mask
from variants.shared.heads import open_heads


class Head:
    """Hold the head, a tree model of logits; as in GPT2, no answer depends on its cache.

    `params` is the tree of weights of a GPT-2 of one block, with the target's wte and wpe, and
    with ln_token, ln_state and fc. `states_of(ids, n_last)` returns the target's states at the
    last tokens.
    """

    def __init__(self, params, n_head, states_of):
        self.params = params
        self.n_head = n_head
        self.states_of = states_of
        wte = params["wte"]
        n_ctx, n_embd = params["wpe"].shape
        self.cache = np.zeros((2, n_head, n_ctx, n_embd // n_head), wte.dtype, like=wte)
        self.ids = []  # the text whose pairs are in the cache, pair i in column i
        self.tree = None  # the tree that follows the text
        # Row 0 is the state at the end of the text, row 1 + i the state at node i.
        self.predicted = np.empty((0, n_embd))

    def __call__(self, branches, n_last):  # -> [n_last, n_vocab]
        """Return the logits after the last nodes. The tree may grow between calls."""
        x, tree = branches
        if tree is not self.tree or x != self.ids:
            self.predicted = self.read(x)
            self.tree = tree
        while len(self.predicted) < 1 + len(tree):  # some nodes are unread
            self.predicted = np.concatenate([self.predicted, self.read_nodes(tree)])
        return to_host(unembed(self.predicted[-n_last:], self.params))

    def read(self, x):  # -> [1, n_embd]
        """Return the state predicted at the end of x, from the target's states before it."""
        n_pairs = len(x) - 1
        # Pair i has the state at token i, which depends on tokens 0 .. i, and token i + 1. So
        # texts with the same first n tokens have the same first n - 1 pairs.
        n_common = common_prefix(self.ids, x) - 1
        # The last pair is always read again, because its predicted state is wanted.
        n_past = max(0, min(n_common, n_pairs - 1))  # pairs whose keys and values are reused
        n_new = n_pairs - n_past
        states = self.states_of(x[:-1], n_new)
        tokens = x[n_past + 1 :]  # the tokens that came next, n_new of them
        self.ids = x[: n_past + 1]  # so that Ctrl-C below leaves ids and cache consistent
        # The new pairs are a path: each sees itself and the pairs before it.
        sees = np.tri(n_new, dtype=bool)
        predicted = self.predict_states(states, tokens, n_past, sees)
        self.ids = x[:]  # a copy, because the caller's list may grow
        return predicted[-1:]

    def read_nodes(self, tree):  # -> [n_new, n_embd]
        """Return the states predicted at the next nodes whose parents have been read.

        Of a chain of three unread nodes this is one node per call; of three children of the
        root it is all three in one call.
        """
        first = len(self.predicted) - 1  # the first unread node: row 0 is the end of the text
        end = first
        while end < len(tree) and tree.parents[end] < first:
            end += 1
        # The pair of a node has the state at its parent.
        states = np.stack([row_after(self.predicted, parent)
                           for parent in tree.parents[first:end]])
        n_past = len(self.ids) - 1  # pairs of the text
        # Rows: the nodes that are read now. Columns: all nodes read so far, and these.
        sees = tree.ancestors()[first:end, :end]
        return self.predict_states(states, tree.tokens[first:end], n_past, sees)

    def predict_states(self, states, tokens, n_past, sees):  # -> [n_new, n_embd]
        """Return the states predicted from n_new pairs, each a row of `states` and a token.

        The pairs of the text are columns 0 .. n_past - 1 of the cache. The n_nodes pairs of a
        tree or of a path follow; the last n_new of them are read now. `sees` [n_new, n_nodes]
        of bool has a row for each new pair: the pairs of the tree that it sees, its own
        included. Every new pair sees all pairs of the text.
        """
        n_new, n_nodes = sees.shape
        n_columns = n_past + n_nodes
        self.cache = widened(self.cache, n_columns)  # for a tree near the context's end
        # (a) A pair sees its ancestors and itself, so at depth d it sees d pairs of the tree.
        # (b) The text has the pairs 0 .. n_past - 1. So in the text that ends with a pair at
        #     depth d, this is pair n_past + d - 1.
        # (c) The token of pair i is token i + 1, so this pair's token has position n_past + d.
        depths = sees.sum(axis=1)
        x = self.block_input(states, tokens, n_past + depths)
        mask = tree_mask(sees, n_past, like=self.cache)
        first_new = n_columns - n_new  # the new pairs are the last columns
        attend = cached(self.cache, first_new, mask)
        [block] = self.params["blocks"]
        x = transformer_block(x, **block, n_head=self.n_head, attend=attend)
        return layer_norm(x, **self.params["ln_f"])

    def block_input(self, states, tokens, positions):  # -> [n_new, n_embd]
        """Return z = fc [ln_token(e); ln_state(f)] of each pair."""
        params = self.params
        tokens = np.asarray(tokens, like=self.cache)
        positions = np.asarray(positions, like=self.cache)
        e = params["wte"][tokens] + params["wpe"][positions]
        pairs = [layer_norm(e, **params["ln_token"]), layer_norm(states, **params["ln_state"])]
        return linear(np.concatenate(pairs, axis=1), **params["fc"])


def build_head(n_embd, weight):
    """Return the head's weights: a GPT-2 of one block, the two norms of the input, and fc.

    `weight(name, *shape)` returns one array.
    """
    # wte and wpe are the target's: the head adds no rows to them, so n_vocab and n_ctx are 0.
    one_block = build_params(dict(n_vocab=0, n_ctx=0, n_embd=n_embd, n_layer=1), weight)
    return {**one_block,
            "ln_token": norm_weights(weight, "ln_token", n_embd),
            "ln_state": norm_weights(weight, "ln_state", n_embd),
            "fc": linear_weights(weight, "fc", 2 * n_embd, n_embd)}


def load_head(models):
    """Return the weights of the target's own head, and the target's tables."""
    params = models.target.params
    stored_weight = open_heads(models)

    def weight(name, *shape):
        if name in ("wte", "wpe"):  # the file has no tables: the head uses the target's
            return params[name]
        array = stored_weight(f"eagle/{name}", *shape)
        # In memory each output's weights lie side by side, as lib/backend/products.py needs
        # them.
        return np.asarray(array, order="F", like=array)

    n_embd = params["wpe"].shape[1]
    return build_head(n_embd, weight)
