"""Run GPT-2: its forward pass as formulas. cache.py keeps what a model has read.

    n_vocab n_ctx n_embd n_head n_layer    the sizes in hparams.json
    n_new      tokens read in this pass        d_head = n_embd / n_head
    wte wpe    token and position embeddings   blocks  the n_layer transformer blocks
    ln_1 attn ln_2 mlp ln_f c_attn c_proj c_fc    OpenAI's names of the weights, and here also
               of the arguments that take them
    attend     one layer's attention over its cache: a function of the new tokens' q, k and v,
               the queries, keys and values (cache.py)

Radford et al. (2019), "Language Models are Unsupervised Multitask Learners", Sec. 2.3: layer
normalisation before each sub-block and once at the end. Learned positions and an unembedding
that is wte are from Radford et al. (2018), "Improving Language Understanding by Generative
Pre-Training", Eq. 2.
"""

import math

import numpy as np

from cache import CachedModel, linear


def gelu(x):  # [n_new, n] -> [n_new, n]
    """Return x times the normal distribution function of x, approximated by tanh.

    Hendrycks and Gimpel (2016).
    """
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def layer_norm(x, g, b, eps=1e-5):  # [n_new, n_embd] -> [n_new, n_embd]
    """Scale each row to mean 0 and variance 1, then apply gain and bias. Ba et al. (2016)."""
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x / np.sqrt(variance + eps) * g + b


def ffn(x, c_fc, c_proj):  # [n_new, n_embd] -> [n_new, n_embd]
    """Apply the feed-forward network, which is four times as wide inside."""
    return linear(gelu(linear(x, **c_fc)), **c_proj)


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

    `attends` has one function per layer, which applies attention to that layer's cache.
    """
    x = params["wte"][ids] + params["wpe"][positions]
    for block, attend in zip(params["blocks"], attends):
        x = transformer_block(x, **block, n_head=n_head, attend=attend)
    return layer_norm(x, **params["ln_f"])


class GPT2(CachedModel):
    """GPT-2 as a function of the whole sequence that computes only what it has not read yet.

    `params` is the tree of weights that `utils.load_encoder_hparams_and_params` returns; its
    arrays decide backend (NumPy or CuPy) and precision. But for rounding, no result depends on
    earlier calls:

    >>> from lib.checkpoints.weights import random_params
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> used = GPT2(params, n_head=2)
    >>> for ids in ([3], [3, 1, 4], [3, 1, 5, 9, 2], [3, 1, 4]):
    ...     logits = used(ids)
    >>> np.allclose(logits, used.fresh()([3, 1, 4]))
    True
    """

    def __init__(self, params: dict, n_head: int):
        n_ctx, n_embd = params["wpe"].shape
        if n_head < 1 or n_embd % n_head:
            raise ValueError(f"need n_head to divide n_embd = {n_embd}, got {n_head}")
        super().__init__(params, n_head, n_ctx, n_kv=n_head, d_head=n_embd // n_head)

    def forward(self, tokens, positions, attends):  # [n_new] -> [n_new, n_embd]
        """Return the last hidden states of the new tokens."""
        return forward(tokens, positions, attends, self.params, self.n_head)
