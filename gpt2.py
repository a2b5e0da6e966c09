"""Run GPT-2: its forward pass as formulas, and a model that caches what it has read.

    n_vocab n_ctx n_embd n_head n_layer    the sizes in hparams.json
    n_past     tokens already read: their keys and values are in the cache
    n_new      tokens read in this pass        n_seq = n_past + n_new
    n_last     rows of logits wanted           d_head = n_embd / n_head
    wte wpe    token and position embeddings   blocks  the n_layer transformer blocks
    ln_1 attn ln_2 mlp ln_f c_attn c_proj c_fc    OpenAI's names of the weights, and here also
               of the arguments that take them
    attend     one layer's attention over its cache: a function of the new tokens' q, k and v

Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", Sec. 2.3: learned
positions, layer normalisation before each sub-block and once at the end, tied unembedding.

The same lines run on NumPy's arrays and on CuPy's, because NumPy's functions call CuPy's for
CuPy's arrays. The caller's tokens and logits are NumPy's in both cases. lib/ need not be read:
`matmul(x, w)` is x @ w.
"""

import functools
import math
import threading
from collections.abc import Sequence

import numpy as np

from lib.backend.products import matmul, one_blas_thread  # matmul: x @ w, faster for few rows
from lib.prefix import common_prefix  # how many tokens two texts share from the start

# A long prompt is read in passes of PART tokens, so that its attention scores fit in memory.
PART = 128


def gelu(x):  # [n_new, n] -> [n_new, n]
    """Return x times the normal distribution function of x, approximated by tanh.

    Hendrycks and Gimpel (2016).
    """
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax(x):  # [..., n] -> [..., n]
    """Return the softmax over the last axis; the largest entry is subtracted first."""
    x = x - x.max(axis=-1, keepdims=True)  # a copy
    exps = np.exp(x, out=x)  # overwrites the copy: a long prompt's scores fill much memory
    exps /= exps.sum(axis=-1, keepdims=True)
    return exps


def layer_norm(x, g, b, eps=1e-5):  # [n_new, n_embd] -> [n_new, n_embd]
    """Scale each row to mean 0 and variance 1, then apply gain and bias. Ba et al. (2016)."""
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x / np.sqrt(variance + eps) * g + b


def linear(x, w, b):  # [n_new, n_in], [n_in, n_out], [n_out] -> [n_new, n_out]
    """Apply an affine map to each row."""
    return matmul(x, w) + b


def ffn(x, c_fc, c_proj):  # [n_new, n_embd] -> [n_new, n_embd]
    """Apply the feed-forward network, which is four times as wide inside."""
    return linear(gelu(linear(x, **c_fc)), **c_proj)


def attention(q, k, v, mask):  # -> [n_head, n_new, d_head]
    """Apply scaled dot-product attention. Vaswani et al. (2017) Eq. 1.

    q is [n_head, n_new, d_head]; k and v are [n_head, n_seq, d_head]; mask is [n_new, n_seq].
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # [n_head, n_new, n_seq]
    scores += mask
    return softmax(scores) @ v


def mha(x, c_attn, c_proj, n_head, attend):  # [n_new, n_embd] -> [n_new, n_embd]
    """Apply multi-head attention; `attend` knows the keys and values of earlier tokens."""
    n_new, n_embd = x.shape
    qkv = linear(x, **c_attn)  # [n_new, 3 n_embd]
    qkv = qkv.reshape(n_new, 3, n_head, n_embd // n_head)  # [n_new, 3, n_head, d_head]
    q, k, v = qkv.transpose(1, 2, 0, 3)  # each [n_head, n_new, d_head]
    heads = attend(q, k, v)  # [n_head, n_new, d_head]
    x = heads.transpose(1, 0, 2).reshape(n_new, n_embd)  # the heads side by side
    return linear(x, **c_proj)


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, attend):  # x -> [n_new, n_embd]
    """Add the output of attention to its input; then do the same with the feed-forward part."""
    x = x + mha(layer_norm(x, **ln_1), **attn, n_head=n_head, attend=attend)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def forward(ids, positions, attends, params, n_head):  # [n_new] -> [n_new, n_embd]
    """Return the last hidden states of the new tokens, after ln_f.

    `positions` picks rows of wpe: a slice, or an array for a tree. `attends` has one function
    per layer, which applies attention to that layer's cache.
    """
    x = params["wte"][ids] + params["wpe"][positions]
    for block, attend in zip(params["blocks"], attends):
        x = transformer_block(x, **block, n_head=n_head, attend=attend)
    return layer_norm(x, **params["ln_f"])


def cached(cache, n_past, mask):
    """Return one layer's `attend`, which appends the new keys and values to the cache.

    `cache` is [2, n_head, n_ctx, d_head]: keys and values with a column per token. `attend`
    writes the columns n_past : n_seq and reads all columns before n_seq. `mask` is
    [n_new, n_seq], as `mask_of` returns it.
    """
    def attend(q, k, v):  # each [n_head, n_new, d_head] -> [n_head, n_new, d_head]
        n_seq = n_past + q.shape[1]
        keys, values = cache[:, :, :n_seq]  # views, so the next two lines write to the cache
        keys[:, n_past:] = k
        values[:, n_past:] = v
        return attention(q, keys, values, mask)

    return attend


def widened(cache, n_columns):  # [.., n, d_head] -> [.., at least n_columns, d_head]
    """Return the cache itself if it is wide enough, else a copy with n_columns columns."""
    # Only trees of guesses near the end of the context need this (variants/shared/).
    *shape, n, d_head = cache.shape
    if n >= n_columns:
        return cache
    more = np.zeros((*shape, n_columns - n, d_head), cache.dtype, like=cache)
    return np.concatenate([cache, more], axis=-2)


def unembed(x, params):  # [n_last, n_embd] -> [n_last, n_vocab]
    """Return logits: the product of each row with the embedding of every token."""
    return matmul(x, params["wte"].mT)


def mask_of(visible, like):  # [n_new, n_seq] of bool -> [n_new, n_seq]
    """Return the mask that attention adds to its scores: 0 where a row may look, else -inf.

    The mask gets the dtype and the device of the array `like`.
    """
    mask = np.where(visible, 0, -np.inf)
    return np.asarray(mask, like.dtype, like=like)


@functools.cache
def causal_mask(n_ctx, dtype):  # -> [n_ctx, n_ctx]
    """Return the mask in which row i sees the columns 0 .. i."""
    mask = mask_of(np.tri(n_ctx, dtype=bool), like=np.empty(0, dtype))
    mask.flags.writeable = False  # all models share this mask
    return mask


def part_ends(n_past, n_seq, n_last):
    """Return the end of each pass over the tokens n_past : n_seq of a prompt.

    A pass reads PART tokens. The last pass reads the rest: n_last to PART + n_last tokens.

    >>> part_ends(0, 300, 1), part_ends(299, 300, 1)
    ([128, 256, 300], [300])
    """
    latest_start = n_seq - n_last  # the last pass starts here or earlier: n_last rows are left
    return [*range(n_past + PART, latest_start, PART), n_seq]


def to_host(array):
    """Return a NumPy array of the same numbers: the array itself, or a copy from the GPU."""
    return array.get() if hasattr(array, "get") else array


class GPT2:
    """GPT-2 as a function of the whole sequence that computes only what it has not read yet.

    `params` is the tree of weights that `utils.load_encoder_hparams_and_params` returns; its
    arrays decide backend (NumPy or CuPy) and precision.

    The key/value cache is a memo: a call with a different sequence goes back to the longest
    common prefix and reads on from there. A copied or pickled model has an empty cache. Threads
    may share a model and then take turns, but a thread whose text was replaced in the cache
    reads it again. One model per thread is faster: `model.fresh()` shares the weights.

    No result depends on earlier calls:

    >>> from lib.checkpoints.weights import random_params
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> used = GPT2(params, n_head=2)
    >>> for ids in ([3], [3, 1, 4], [3, 1, 5, 9, 2], [3, 1, 4]):
    ...     logits = used(ids)
    >>> np.allclose(logits, used.fresh()([3, 1, 4]))
    True
    """

    reads_trees = False  # True in the subclass of variants/shared/tree_gpt2.py

    def __init__(self, params: dict, n_head: int):
        wpe = params["wpe"]
        n_ctx, n_embd = wpe.shape
        if n_head < 1 or n_embd % n_head:
            raise ValueError(f"need n_head to divide n_embd = {n_embd}, got {n_head}")
        if wpe.dtype not in (np.float32, np.float64):
            raise ValueError(f"need weights in float32 or float64, got {wpe.dtype}")
        self.params = params
        self.n_head = n_head
        self.n_ctx = n_ctx
        self.n_vocab = params["wte"].shape[0]
        shape = (len(params["blocks"]), 2, n_head, n_ctx, n_embd // n_head)
        self.cache = np.zeros(shape, wpe.dtype, like=wpe)  # `like=`: on the device of wpe
        self.mask = np.asarray(causal_mask(n_ctx, wpe.dtype), like=wpe)
        self.ids: list[int] = []  # the tokens whose keys and values are in the cache
        self.lock = threading.Lock()

    def __reduce__(self):  # how to copy and pickle a model: its lock cannot be copied
        return type(self), (self.params, self.n_head)

    def fresh(self):
        """Return a model over the same weights that has read nothing."""
        return type(self)(self.params, self.n_head)

    def __call__(self, ids: Sequence[int], n_last: int = 1) -> np.ndarray:
        """Return logits [n_last, n_vocab]; the last row is for the token after `ids`.

        The row before it is for the token after `ids[:-1]`, and so on. ValueError if not 1 <=
        n_last <= len(ids) <= n_ctx, or an id is outside the vocabulary.
        """
        return self.logits(self.hidden(ids, n_last))

    def logits(self, states):  # [n_last, n_embd] -> [n_last, n_vocab]
        """Return the logits of hidden states, on the host."""
        return to_host(unembed(states, self.params))

    def hidden(self, ids, n_last=1):  # -> [n_last, n_embd]
        """Return the last n_last hidden states after ln_f, which `__call__` unembeds."""
        with self.lock, one_blas_thread():
            return self.read(ids, n_last)

    def read(self, ids, n_last):  # -> [n_last, n_embd]
        """Read the tokens that are not in the cache: a long prompt in parts, one per pass."""
        ids = list(ids)
        n_past = self.n_reusable(self.ids, ids, n_last)
        # The cache holds self.ids, which grow after a whole pass: Ctrl-C may end one halfway.
        self.ids = ids[:n_past]
        for end in part_ends(n_past, len(ids), n_last):
            mask = self.mask[n_past:end, :end]  # a row per new token, a column per token so far
            attends = [cached(layer, n_past, mask) for layer in self.cache]
            tokens = np.asarray(ids[n_past:end], like=self.cache)
            x = forward(tokens, slice(n_past, end), attends, self.params, self.n_head)
            self.ids = ids[:end]
            n_past = end
        return x[-n_last:]

    def n_reusable(self, cached_ids, ids, n_last):
        """Return how many tokens of `ids` need not be read if a cache holds `cached_ids`.

        This is the length of the common prefix, but at most len(ids) - n_last, because the rows
        of the last n_last tokens are wanted. ValueError as in `__call__`.
        """
        if not 1 <= n_last <= len(ids) <= self.n_ctx:
            raise ValueError(f"need 1 <= n_last <= len(ids) <= n_ctx = {self.n_ctx}, "
                             f"got n_last = {n_last}, len(ids) = {len(ids)}")
        n_past = min(common_prefix(cached_ids, ids), len(ids) - n_last)
        # The ids before n_past equal cached ids, which were checked. But 1.0 and True equal a
        # cached 1 as well, so all ids are checked unless all are Python's integers.
        are_ints = set(map(type, ids)) == {int}
        unchecked = ids[n_past:] if are_ints else ids
        check_ids(unchecked, self.n_vocab)
        return n_past


def check_ids(ids, n_vocab):
    """Raise ValueError with the first id that is not a whole number in 0 .. n_vocab - 1."""
    for i, token in enumerate(ids):
        is_whole = isinstance(token, int | np.integer) and not isinstance(token, bool)
        if not (is_whole and 0 <= token < n_vocab):
            # `ids` may be only the end of a text, so the position is told from the end: -1 is
            # the last id.
            from_end = i - len(ids)
            raise ValueError(f"need ids in 0 .. n_vocab - 1 = {n_vocab - 1}, got {token!r:.80} "
                             f"at position {from_end} from the end")
