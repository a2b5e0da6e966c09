"""GPT-2's forward pass as formulas, and GPT2: a model that remembers what it has read.

    n_vocab n_ctx n_embd n_head n_layer    the sizes in hparams.json
    n_past     ids already read: their keys and values are in the cache
    n_new      ids read in this pass           n_seq = n_past + n_new
    n_last     rows of logits wanted           d_head = n_embd / n_head
    wte wpe    token and position embeddings   blocks  the n_layer transformer blocks
    ln_1 attn ln_2 mlp ln_f c_attn c_proj c_fc    the weights, named as in OpenAI's checkpoint;
                                                  their keys are the functions' argument names

Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", Sec. 2.3: learned
positions, layer normalisation before each sub-block and once at the end, tied unembedding.

The functions keep to the Python array API standard (`xp` is the arrays' own namespace), so the same
lines run on NumPy and on CuPy. Token ids and logits live on the host.
"""

import math

import numpy as np

from utils import has_small_kernels, to_host


def gelu(x):  # [n_new, n] -> [n_new, n]
    """x times the normal distribution function, its tanh form. Hendrycks and Gimpel (2016)."""
    xp = x.__array_namespace__()
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax(x):  # [..., n] -> [..., n]
    """The softmax over the last axis, largest entry subtracted first."""
    xp = x.__array_namespace__()
    exps = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return exps / xp.sum(exps, axis=-1, keepdims=True)


def layer_norm(x, g, b, eps=1e-5):  # [n_new, n_embd] -> [n_new, n_embd]
    """Each row to mean 0 and variance 1, then gain and bias. Ba et al. (2016)."""
    xp = x.__array_namespace__()
    x = x - xp.sum(x, axis=-1, keepdims=True) / x.shape[-1]
    variance = xp.sum(x * x, axis=-1, keepdims=True) / x.shape[-1]
    return x / xp.sqrt(variance + eps) * g + b


def matmul(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """x @ w, and the one place where speed depends on how many rows there are.

    One row costs one reading of w. For more, BLAS first repacks w, so that the few rows of a target
    pass cost two to four times as much. With w transposed in memory (utils.cut_params) there are
    three ways around that. What 5 rows cost, in units of one row, on two cores:

    * A w that fits the cache, where BLAS has kernels for small products that pack nothing: cut into
      blocks small enough for them. The bundled target 1.5, with plain products 3.5.
    * A matrix-vector product for each row and block of w, the block read from memory once and then
      from the caches: half a core's own, or, for a large w, 2**19 numbers, for OpenBLAS gives fewer
      to one thread only. The bundled target 1.8; products of 124M's size 2.0, plain ones 3.4.
    * Zero rows up to the 8 that BLAS's inner loop is wide. Products of 124M's size 2.3.
    """
    n_rows, (n_in, n_out) = x.shape[0], w.shape
    if n_rows == 1 or not isinstance(w, np.ndarray) or not w.T.flags.c_contiguous:
        return x @ w
    fits, small = w.size < 2**20, has_small_kernels()
    if n_rows <= 16 and fits and small:
        n_most = min(1200 // n_rows, 10**6 // (n_rows * n_in))  # outputs, by OpenBLAS's own limits
        return in_blocks(lambda block: x @ block.mT, w.T, math.ceil(n_out / max(1, n_most)))
    if n_rows <= (8 if small else 5):
        n_blocks = max(1, w.size // (2**17 if fits else 2**19))
        return in_blocks(lambda block: np.matvec(block[..., None, :, :], x), w.T, n_blocks)
    if n_rows >= 8:
        return x @ w
    padded = np.zeros((8, n_in), x.dtype)
    padded[:n_rows] = x
    return (padded @ w)[:n_rows]


def in_blocks(product, w, n_blocks):  # w [n_out, n_in] -> [n_rows, n_out]
    """A product with w, taken n_out // n_blocks of its rows at a time; what is left over, last.

    `product` maps a block [.., n_block, n_in] to its outputs [.., n_rows, n_block].
    """
    if n_blocks == 1:
        return product(w)
    n_out, n_in = w.shape
    n_block = n_out // n_blocks
    end = n_blocks * n_block
    y = product(w[:end].reshape(n_blocks, n_block, n_in)).transpose(1, 0, 2)
    y = y.reshape(len(y), end)
    return y if end == n_out else np.concatenate([y, product(w[end:])], axis=1)


def linear(x, w, b):  # [n_new, n_in], [n_in, n_out], [n_out] -> [n_new, n_out]
    """An affine map of each row."""
    return matmul(x, w) + b


def ffn(x, c_fc, c_proj):  # [n_new, n_embd] -> [n_new, n_embd]
    """The feed-forward network: four times as wide inside."""
    return linear(gelu(linear(x, **c_fc)), **c_proj)


def attention(q, k, v, mask):  # [n_head, n_new, d_head], 2 x [n_head, n_seq, d_head] -> as q
    """Scaled dot-product attention. Vaswani et al. (2017) Eq. 1."""
    return softmax(q @ k.mT / math.sqrt(q.shape[-1]) + mask) @ v


def mha(x, c_attn, c_proj, n_head, cache, mask):  # [n_new, n_embd] -> [n_new, n_embd]
    """Multi-head attention of the new rows to all rows; their keys and values join the cache."""
    xp = x.__array_namespace__()
    (n_new, n_seq), n_embd = mask.shape, x.shape[-1]
    qkv = xp.reshape(linear(x, **c_attn), (n_new, 3, n_head, n_embd // n_head))
    qkv = xp.permute_dims(qkv, (1, 2, 0, 3))  # [3, n_head, n_new, d_head]
    cache[:, :, n_seq - n_new : n_seq, :] = qkv[1:, ...]
    k, v = cache[0, :, :n_seq, :], cache[1, :, :n_seq, :]  # [n_head, n_seq, d_head]
    x = attention(qkv[0, ...], k, v, mask)  # [n_head, n_new, d_head]
    x = xp.reshape(xp.permute_dims(x, (1, 0, 2)), (n_new, n_embd))
    return linear(x, **c_proj)


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, cache, mask):  # as mha
    """Attention, then the feed-forward network, each added to its input."""
    x = x + mha(layer_norm(x, **ln_1), **attn, n_head=n_head, cache=cache, mask=mask)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def forward(ids, positions, mask, cache, params, n_head):  # [n_new], [n_new] -> [n_new, n_embd]
    """The last hidden states of the new ids, after ln_f.

    mask is [n_new, n_seq]: 0 where a new id may look, -inf where not; its shape alone tells n_past.
    cache is [n_layer, 2, n_head, n_ctx, d_head] (2: keys and values); columns n_past : n_seq are
    written, those before them read.
    """
    xp = mask.__array_namespace__()
    x = xp.take(params["wte"], ids, axis=0) + xp.take(params["wpe"], positions, axis=0)
    for i, block in enumerate(params["blocks"]):
        x = transformer_block(x, **block, n_head=n_head, cache=cache[i, ...], mask=mask)
    return layer_norm(x, **params["ln_f"])


def unembed(x, params):  # [n_last, n_embd] -> [n_last, n_vocab]
    """Logits: each row against every token's embedding (the unembedding is wte again)."""
    return matmul(x, params["wte"].mT)


def causal_mask(n_ctx, xp, dtype):  # -> [n_ctx, n_ctx]
    """0 where row i may look, at columns j <= i, and -inf elsewhere."""
    return xp.triu(xp.full((n_ctx, n_ctx), -xp.inf, dtype=dtype), k=1)


def common_prefix(a, b):
    """How many ids two sequences share from the start."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:  # the usual case, and much faster than the search below
        return n
    return next(i for i in range(n) if a[i] != b[i])


class GPT2:
    """GPT-2 as a function of the whole sequence that computes only what it has not read yet.

    Parameters
    ----------
    params : dict
        The tree of weights that `utils.load_encoder_hparams_and_params` returns: wte, wpe, blocks,
        ln_f. Its arrays decide backend (NumPy or CuPy) and precision.
    n_head : int

    Notes
    -----
    The key/value cache is a memo. The model keeps the ids that it has read; called with another
    sequence, it goes back to the longest common prefix and reads on from there. No answer depends
    on earlier calls, and no caller ever sees the cache.

    Examples
    --------
    Reading the whole sequence at once or id by id, with a detour, gives the same logits.

    >>> from utils import random_params
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> fresh, used = GPT2(params, n_head=2), GPT2(params, n_head=2)
    >>> for ids in ([3], [3, 1, 4], [3, 1, 5, 9, 2], [3, 1, 4]):
    ...     logits = used(ids)
    >>> np.allclose(logits, fresh([3, 1, 4]))
    True
    """

    def __init__(self, params, n_head):
        wte, (n_ctx, n_embd) = params["wte"], params["wpe"].shape
        if n_head < 1 or n_embd % n_head:
            raise ValueError(f"need n_head to divide n_embd = {n_embd}, got {n_head}")
        self.params, self.n_head, self.n_ctx, self.n_vocab = params, n_head, n_ctx, wte.shape[0]
        self.xp = wte.__array_namespace__()
        shape = (len(params["blocks"]), 2, n_head, n_ctx, n_embd // n_head)
        self.cache = self.xp.zeros(shape, dtype=wte.dtype)
        self.mask = causal_mask(n_ctx, self.xp, wte.dtype)
        self.ids = []  # what the cache holds
        self.nodes = [], ()  # the tree behind it: tokens, and the path of each node

    def __call__(self, ids, n_last=1):
        """Logits after the last n_last ids of the sequence.

        Parameters
        ----------
        ids : sequence of int
            The whole sequence.
        n_last : int
            Rows wanted, from the end.

        Returns
        -------
        ndarray, [n_last, n_vocab]
            The last row follows `ids`, the row before it `ids[:-1]`, and so on.

        Raises
        ------
        ValueError
            If not 1 <= n_last <= len(ids) <= n_ctx, or an id is outside the vocabulary.
        """
        return to_host(unembed(self.hidden(ids, n_last), self.params))

    def hidden(self, ids, n_last=1):  # -> [n_last, n_embd]
        """The hidden states after ln_f of the last n_last ids, which `__call__` unembeds."""
        ids = list(ids)
        n_seq = len(ids)
        if not 1 <= n_last <= n_seq <= self.n_ctx:
            raise ValueError(f"need 1 <= n_last <= len(ids) <= n_ctx = {self.n_ctx}, "
                             f"got n_last = {n_last}, len(ids) = {n_seq}")
        self.keep_path(ids)
        n_past = min(common_prefix(self.ids, ids), n_seq - n_last)  # reuse, rollback, repetition
        new = self.xp.asarray(check_ids(ids[n_past:], self.n_vocab))
        positions = self.xp.arange(n_past, n_seq)
        self.ids = ids[:n_past]  # an interrupt in the next line leaves this true
        x = forward(new, positions, self.mask[n_past:n_seq, :n_seq], self.cache, self.params,
                    self.n_head)
        self.ids = ids
        return x[-n_last:, ...]

    def tree(self, ids, tokens, sees):  # -> [1 + n_nodes, n_vocab]
        """Logits after `ids` and after every node of a token tree: `tree_hidden`, unembedded."""
        return to_host(unembed(self.tree_hidden(ids, tokens, sees), self.params))

    def tree_hidden(self, ids, tokens, sees):  # -> [1 + n_nodes, n_embd]
        """The last hidden states after `ids` and after every node of a token tree, from one pass.

        Node i holds tokens[i]. It sees `ids` and the nodes j where sees[i][j]: those on its path
        from the root, itself included, each before its children. Its position is that of its depth,
        not of its column. Miao et al. (2023), tree attention.
        """
        ids, tokens, n, n_nodes = list(ids), list(tokens), len(ids), len(tokens)
        sees = np.reshape(np.asarray(sees, dtype=bool), (n_nodes, n_nodes))
        depths = sees.sum(axis=1)  # 1 for a child of the root
        if not 1 <= n <= n + max(depths, default=0) <= self.n_ctx:
            raise ValueError(f"need 1 <= len(ids) and len(ids) + depth <= n_ctx = {self.n_ctx}, "
                             f"got {n} and {max(depths, default=0)}")
        self.keep_path(ids)
        n_past = min(common_prefix(self.ids, ids), n - 1)
        xp, new = self.xp, check_ids(ids[n_past:] + tokens, self.n_vocab)
        n_unread = n - n_past
        visible = np.block([[np.tri(n_unread, n, n_past) > 0, np.zeros((n_unread, n_nodes), bool)],
                            [np.ones((n_nodes, n), bool), sees]])  # [n_new, n + n_nodes]
        mask = xp.asarray(np.where(visible, 0, -np.inf), dtype=self.mask.dtype)
        positions = xp.asarray(np.concatenate([np.arange(n_past, n), n - 1 + depths]))
        self.make_room(n + n_nodes)
        self.ids = ids[:n_past]
        x = forward(xp.asarray(new), positions, mask, self.cache, self.params, self.n_head)
        self.ids, self.nodes = ids, (tokens, [np.flatnonzero(row) for row in sees])
        return x[-1 - n_nodes :, ...]

    def keep_path(self, ids):
        """If `ids` goes on along a path of the last tree, keep that path's columns, in order."""
        (tokens, paths), n, self.nodes = self.nodes, len(self.ids), ([], ())
        if not tokens or ids[:n] != self.ids:
            return
        fits = (path for path in paths if [tokens[j] for j in path] == ids[n : n + len(path)])
        path = max(fits, key=len, default=())
        if len(path):
            kept = self.xp.take(self.cache, self.xp.asarray(n + path), axis=3)
            self.cache[..., n : n + len(path), :] = kept
            self.ids = ids[: n + len(path)]

    def make_room(self, n_seq):
        """More columns, if a tree near the end of the context has more nodes than places left."""
        *shape, n_columns, d_head = self.cache.shape
        if n_columns < n_seq:
            more = self.xp.zeros((*shape, n_seq - n_columns, d_head), dtype=self.cache.dtype)
            self.cache = self.xp.concat([self.cache, more], axis=3)


def check_ids(ids, n_vocab):
    """The ids, or a ValueError that names the first one outside the vocabulary."""
    for i, token in enumerate(ids):
        if not 0 <= token < n_vocab:
            raise ValueError(f"need ids in 0 .. n_vocab - 1 = {n_vocab - 1}, got {token} at place "
                             f"{i - len(ids)} from the end")
    return ids
