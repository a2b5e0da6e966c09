"""Run a transformer as a function of the whole text that computes only what it has not read.

    n_past     tokens already read: their keys and values are in the cache
    n_new      tokens read in this pass        n_seq = n_past + n_new
    n_last     rows of logits wanted
    n_head     heads of queries                n_kv    heads of keys and values
    attend     one layer's attention over its cache: a function of the new tokens' q, k and v

gpt2.py and llama.py have the formulas. This file has what they share: attention, and the class
that keeps keys and values.

The same lines run on NumPy's arrays and on CuPy's, because NumPy's functions call CuPy's for
CuPy's arrays. The caller's tokens and logits are NumPy's in both cases. lib/ need not be read:
`matmul(x, w)` is x @ w, and `by_rows(attention, ..)` is attention(..), both faster;
`each_row_alone(attention, ..)` is attention(..), too, with bits that a target in int8 needs.
"""

import math
import threading
from collections.abc import Sequence

import numpy as np

from lib.backend.products import by_rows, each_row_alone, matmul, one_blas_thread
from lib.prefix import common_prefix  # how many tokens two texts share from the start

# A long prompt is read in passes of PART tokens, so that its attention scores fit in memory.
PART = 128
N_COLUMNS = 256  # of a new cache; a full cache doubles


def softmax(x):  # [..., n] -> [..., n]
    """Return the softmax over the last axis; the largest entry is subtracted first."""
    x = x - x.max(axis=-1, keepdims=True)  # a copy
    exps = np.exp(x, out=x)  # overwrites the copy: a long prompt's scores fill much memory
    exps /= exps.sum(axis=-1, keepdims=True)
    return exps


def linear(x, w, b=None):  # [n_new, n_in], [n_in, n_out], [n_out] -> [n_new, n_out]
    """Apply a linear map to each row, and add a bias if there is one."""
    y = matmul(x, w)
    return y if b is None else y + b


def attention(q, k, v, mask):  # -> [n_head, n_new, d_head]
    """Apply scaled dot-product attention. Vaswani et al. (2017) Eq. 1.

    q is [n_head, n_new, d_head]; k and v are [n_kv, n_seq, d_head]. The mask is [n_new, n], for
    the last n columns: every row sees all columns before them. With None it sees all columns.
    """
    n_head, n_new, d_head = q.shape
    # A group of n_head / n_kv heads of q shares one head of k, which multiplies the rows of the
    # whole group at once.
    rows = q.reshape(len(k), -1, d_head)  # [n_kv, group * n_new, d_head]
    if n_new == 1:  # BLAS multiplies single vectors faster than a few rows
        rows, k, v = rows[:, :, None], k[:, None], v[:, None]
    scores = rows @ k.mT  # [n_kv, group * n_new, n_seq]; of one token [n_kv, group, 1, n_seq]
    scores /= math.sqrt(d_head)
    if mask is not None:
        scores_of_heads = scores.reshape(n_head, n_new, -1)  # a view of the same numbers
        scores_of_heads[:, :, -mask.shape[1] :] += mask
    return (softmax(scores) @ v).reshape(q.shape)


def cached(cache, n_past, mask, apply=by_rows):
    """Return one layer's `attend`, which appends the new keys and values to the cache.

    `cache` is [2, n_kv, n_columns, d_head]: keys and values with a column per token. `attend`
    writes the columns n_past : n_seq and reads all columns before n_seq. `mask` is as
    `attention` takes it; `apply` calls `attention`.
    """
    def attend(q, k, v):  # [n_head, n_new, d_head], 2 x [n_kv, n_new, d_head] -> as q
        n_seq = n_past + q.shape[1]
        keys, values = cache[:, :, :n_seq]  # views, so the next two lines write to the cache
        keys[:, n_past:] = k
        values[:, n_past:] = v
        return apply(attention, q, keys, values, mask)

    return attend


def widened(cache, n_columns):  # [.., n, d_head] -> [.., at least n_columns, d_head]
    """Return the cache itself if it is wide enough, else a copy with twice the columns or more.
    """
    *shape, n, d_head = cache.shape
    if n >= n_columns:
        return cache
    more = np.zeros((*shape, max(n, n_columns - n), d_head), cache.dtype, like=cache)
    return np.concatenate([cache, more], axis=-2)


def unembed(x, params):  # [n_last, n_embd] -> [n_last, n_vocab]
    """Return logits: each row times lm_head, or without it the token embeddings."""
    return matmul(x, params.get("lm_head", params["wte"]).mT)


def mask_of(sees, like):  # [n_new, n] of bool -> [n_new, n]
    """Return the mask that attention adds to its scores: 0 where a row may look, else -inf.

    The mask gets the dtype and the device of the array `like`.
    """
    mask = np.where(sees, 0, -np.inf)
    return np.asarray(mask, like.dtype, like=like)


def causal_mask(n_new, like):  # -> [n_new, n_new] or None
    """Return the mask in which a new token sees itself and all tokens before it."""
    # A single token sees all tokens.
    return mask_of(np.tri(n_new, dtype=bool, like=like), like) if n_new > 1 else None


def part_ends(n_past, n_seq, n_last):
    """Return the end of each pass over the tokens n_past : n_seq of a prompt.

    Every pass but the last reads PART tokens. The last one reads the rest: the n_last tokens
    whose rows are wanted, and up to PART before them.

    >>> part_ends(0, 300, 1), part_ends(299, 300, 1)
    ([128, 256, 300], [300])
    """
    latest_start = n_seq - n_last  # the last pass starts here or before, so it has n_last rows
    return [*range(n_past + PART, latest_start, PART), n_seq]


def to_host(array):
    """Return a NumPy array of the same numbers: the array itself, or a copy from the GPU."""
    return array.get() if hasattr(array, "get") else array


class CachedModel:
    """A transformer as a function of the whole sequence; it computes only what is not read yet.

    The key/value cache is a memo: a call with a different sequence goes back to the longest
    common prefix and reads on from there. A copied or pickled model has an empty cache. Threads
    may share a model and then take turns, but a thread whose text was replaced in the cache
    reads it again. One model per thread is faster: `model.fresh()` shares the weights.

    A subclass has a constructor of (params, n_head), and
    `forward(tokens, positions, attends) -> [n_new, n_embd]`, the last hidden states of the new
    tokens. `attends` has one function per layer, which applies attention to that layer's cache.
    """

    reads_trees = False  # True in the subclasses of variants/shared/tree_gpt2.py

    def __init__(self, params: dict, n_head: int, n_ctx: int, n_kv: int, d_head: int):
        gains = params["ln_f"]["g"]  # an array that has the dtype and the device of all weights
        if gains.dtype not in (np.float32, np.float64):
            raise ValueError(f"need weights in float32 or float64, got {gains.dtype}")
        self.params = params
        self.n_head = n_head
        self.n_ctx = n_ctx
        self.n_vocab = params["wte"].shape[0]
        self.dtype = gains.dtype
        shape = (len(params["blocks"]), 2, n_kv, N_COLUMNS, d_head)
        self.cache = np.zeros(shape, self.dtype, like=gains)
        self.apply = each_row_alone if params.get("rows_alone") else by_rows
        self.ids: list[int] = []  # the tokens whose keys and values are in the cache
        self.lock = threading.Lock()

    def __reduce__(self):  # how to copy and pickle a model: its lock cannot be copied
        return type(self), (self.params, self.n_head)

    def fresh(self):
        """Return a model over the same weights that has read nothing."""
        return type(self)(self.params, self.n_head)

    def with_params(self, params):
        """Return a model of the same kind over other weights."""
        return type(self)(params, self.n_head)

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
        # self.ids names only tokens of finished passes, because Ctrl-C may interrupt a pass.
        self.ids = ids[:n_past]
        self.cache = widened(self.cache, len(ids))
        for end in part_ends(n_past, len(ids), n_last):
            mask = causal_mask(end - n_past, like=self.cache)
            attends = [cached(layer, n_past, mask, self.apply) for layer in self.cache]
            tokens = np.asarray(ids[n_past:end], like=self.cache)
            x = self.forward(tokens, np.arange(n_past, end, like=self.cache), attends)
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
        # The ids before n_past equal cached ids, which were checked. But 1.0 and True are equal
        # to 1 too, so this is enough only if all ids are Python's integers.
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
