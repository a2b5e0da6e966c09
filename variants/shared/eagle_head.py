"""Run the head of EAGLE, Li et al. (2024a): one block that continues the target's states.

Adds to gpt2.py and llama.py: a transformer that reads pairs, each a state and the token drawn
from it.

    f_i        the target's state at token i: the last hidden state, after ln_f
    e_i        the embedding of token i: wte[x_i], in GPT-2 with its position, + wpe[i]
    pair i     (f_i, e_(i + 1)): a state and the token that came NEXT
    z_i        fc [ln_token(e_(i + 1)); ln_state(f_i)]: pair i as the input of the block
    f_(i + 1)  is predicted from the pairs so far, as ln_f(block(z_0 .. z_i)). The target's
               unembedding turns f_(i + 1) into the distribution of token i + 2
    predicted  the head's states, at the end of x and at every node of a tree
    keep       the tokens that the head can guess, if not all: the most frequent ones, because
               fewer rows of the unembedding take less time. Zhao et al. (2025), "FR-Spec"

The text x_0 x_1 x_2 x_3 gives three pairs. A guess is a further pair: the state at its parent,
and the guessed token.

    pair       (f_0, x_1)   (f_1, x_2)   (f_2, x_3)   (f_3, guess)
    predicts   f_1          f_2          f_3          f_4

There are two norms, because states and embeddings differ in scale. The pairs of the text have
the target's own states, here f_0, f_1 and f_2. The pairs of guesses have predicted states, here
f_3, because the target has not read the guesses. In the cache, the pairs of a tree's nodes
follow those of the text. When a guess has become text, its pair is read again, with the
target's own state. (The head of quantized.py reads states of the copy, too.)
"""

import numpy as np

import gpt2
import llama
from cache import cached, check_ids, linear, mask_of, widened
from lib.backend.int8 import Int8, with_int8
from lib.checkpoints.weights import flatten
from lib.prefix import common_prefix
from variants.shared.branches import row_after
from variants.shared.heads import open_heads, read_keep

# The logit of a token that the head cannot guess. It is finite, because the mask of a pattern
# may leave no other token; otherwise the token's probability is 0.
NEVER = np.finfo(np.float32).min


class Head:
    """Hold the head, a tree model of logits; as in GPT2, no answer depends on its cache.

    `weights` is what load_head returns for the model `target`. `states_of(ids, n_last)` returns
    the target's states at the last tokens.
    """

    def __init__(self, weights, target, states_of):
        self.weights = weights
        self.target = target
        # The head's block is a model of one block, whose cache gets the pairs.
        self.model = target.with_params(weights)
        self.states_of = states_of
        self.keep = weights["keep"]
        self.n_vocab = target.n_vocab
        self.cache = self.model.cache[0]
        self.ids = []  # the text whose pairs are in the cache, pair i in column i
        self.tree = None  # the tree that follows the text
        # Row 0 is the state at the end of the text, row 1 + i the state at node i.
        self.predicted = np.empty((0, weights["wte"].shape[1]))

    def __call__(self, branches, n_last):  # -> [n_last, n_vocab]
        """Return the logits after the last nodes, NEVER outside `keep`."""
        logits = self.kept_logits(branches, n_last)
        if self.keep is None:
            return logits
        of_all = np.full((n_last, self.n_vocab), NEVER, logits.dtype)
        of_all[:, self.keep] = logits
        return of_all

    def kept_logits(self, branches, n_last):  # -> [n_last, number of tokens in `keep`]
        """Return the logits of the kept tokens. The tree may grow between calls."""
        x, tree = branches
        if tree is not self.tree or x != self.ids:
            self.predicted = self.read(x)
            self.tree = tree
        while len(self.predicted) < 1 + len(tree):  # some nodes are unread
            self.predicted = np.concatenate([self.predicted, self.read_nodes(tree)])
        return self.model.logits(self.predicted[-n_last:])

    def share(self):
        """Return about the time of a draft pass, in target rows: the ratio of bytes read."""
        return n_read(self.weights) / n_read(self.target.params)

    def read(self, x):  # -> [1, n_embd]
        """Return the state predicted at the end of x, from the target's states before it."""
        n_pairs = len(x) - 1
        # Pair i depends on tokens 0 .. i + 1, so texts that share n tokens share n - 1 pairs.
        n_shared = common_prefix(self.ids, x) - 1
        # The last pair is always read again, because its predicted state is wanted.
        n_past = max(0, min(n_shared, n_pairs - 1))  # pairs whose keys and values are reused
        n_new = n_pairs - n_past
        states = self.states_of(x[:-1], n_new)
        tokens = x[-n_new:]  # the tokens that came next
        self.ids = x[: n_past + 1]  # so that Ctrl-C below leaves ids and cache consistent
        # The new pairs are a path: each sees itself and the pairs before it.
        sees = np.tri(n_new, dtype=bool)
        predicted = self.predict_states(states, tokens, n_past, sees)
        self.ids = x[:]  # a copy, because the caller's list may grow
        return predicted[-1:]

    def read_nodes(self, tree):  # -> [n_new, n_embd]
        """Return the states predicted at the next nodes, as far as their parents are read."""
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

        In the cache, n_nodes pairs of a tree or a path follow n_past pairs of the text; the
        last n_new of the nodes are read now. `sees` [n_new, n_nodes] of bool has a row for each
        new pair: the nodes that it sees, itself included. It sees all pairs of the text.
        """
        n_new, n_nodes = sees.shape
        n_columns = n_past + n_nodes
        check_ids(tokens, self.n_vocab)  # the target, which checks too, reads them later
        self.cache = widened(self.cache, n_columns)  # for a tree near the context's end
        # A node of depth d sees d nodes, its ancestors and itself. So it is pair n_past + d - 1
        # of its branch, and the token of pair i has position i + 1.
        depths = sees.sum(axis=1)
        n_ids = n_past + int(depths.max()) + 1  # the text and the guesses of the longest branch
        if n_ids > self.model.n_ctx:
            raise ValueError(f"need len(ids) <= n_ctx = {self.model.n_ctx}, got {n_ids}")
        positions = np.asarray(n_past + depths, like=self.cache)
        mask = mask_of(sees, like=self.cache)
        attend = cached(self.cache, n_columns - n_new, mask)  # the new pairs come last
        return self.run(states, np.asarray(tokens, like=self.cache), positions, attend)

    def run(self, states, tokens, positions, attend):  # -> [n_new, n_embd]
        """Return ln_f(block(z)) of each pair, with z = fc [ln_token(e); ln_state(f)]."""
        weights = self.weights
        [block] = weights["blocks"]
        context = {"n_head": self.model.n_head, "attend": attend}
        e = weights["wte"][tokens]
        if isinstance(self.model, llama.Llama):
            norm = llama.rms_norm
            transformer_block = llama.transformer_block
            w = self.model.frequencies
            context["rotations"] = llama.rotations_of(positions, w, e.dtype)
        else:
            norm = gpt2.layer_norm
            transformer_block = gpt2.transformer_block
            e = e + weights["wpe"][positions]
        pairs = [norm(e, **weights["ln_token"]), norm(states, **weights["ln_state"])]
        z = linear(np.concatenate(pairs, axis=1), **weights["fc"])
        return norm(transformer_block(z, **block, **context), **weights["ln_f"])


def n_read(params):
    """Return how many bytes of weights a pass reads; of the tables only the unembedding."""
    unembedding = params.get("lm_head", params["wte"])
    linear_maps = {name: params[name] for name in ("blocks", "fc") if name in params}
    # A block has plain numbers too, such as a norm's eps, which are no weights.
    return unembedding.nbytes + sum(getattr(weight, "nbytes", 0)
                                    for _, weight in flatten(linear_maps))


def build_head(params, weight):
    """Return the head's weights without `keep`: the target's tree, with one block and fc.

    `weight(name, *shape)` returns an array of the block or a norm, in the shape of the
    target's. Other numbers, such as a norm's eps, are the target's own.
    """
    def alike(tree, name):
        if isinstance(tree, dict):
            return {key: alike(value, f"{name}/{key}") for key, value in tree.items()}
        return weight(name, *tree.shape) if hasattr(tree, "shape") else tree

    first_block = params["blocks"][0]
    norms = {name: alike(params["ln_f"], name) for name in ("ln_token", "ln_state", "ln_f")}
    n_embd = params["wte"].shape[1]
    fc = {"w": weight("fc/w", 2 * n_embd, n_embd)}
    if "b" in first_block["mlp"]["c_proj"]:  # a Llama's linear maps have no biases
        fc["b"] = weight("fc/b", n_embd)
    return {**params, **norms, "blocks": [alike(first_block, "h0")], "fc": fc}


def load_head(models):
    """Return the weights of the target's own head, with the target's tables.

    The head of a target whose matrices are Int8 is rounded too, which makes it faster.
    """
    params = models.target.params
    stored = open_heads(models)

    def weight(name, *shape):
        # Each output's weights lie side by side, as lib/backend/products.py needs them.
        array = stored(f"eagle/{name}", *shape)
        return np.asarray(array, order="F", like=array)

    head = build_head(params, weight)
    own = {name: head[name] for name in ("blocks", "fc")}
    keep = read_keep(stored.where, models.target.n_vocab)
    if keep is not None:
        unembedding = params.get("lm_head", params["wte"])
        own["lm_head"] = unembedding[np.asarray(keep, like=params["ln_f"]["g"])]
    if isinstance(params["wte"], Int8):
        own = with_int8(own)
    return {**head, **own, "keep": keep}
