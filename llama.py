"""Run a Llama: GPT-2 with what its successors changed (Llama, Mistral, Qwen, SmolLM).

    norms      RMSNorm has no mean and no bias. Zhang and Sennrich (2019)
    positions  turn queries and keys, instead of being added to x, so a score depends on the
               distance of two tokens: rotary embedding. Su et al. (2021)
    heads      several heads of queries share one head of keys and values, which makes the cache
               smaller: grouped queries. Ainslie et al. (2023)
    ffn        a gate multiplies the inner numbers: SwiGLU. Shazeer (2020)
    biases     linear maps have none, but for Qwen2's queries, keys and values

Touvron et al. (2023), "Llama: Open and Efficient Foundation Language Models", Sec. 2.2, has the
first, second and fourth of these. The names are gpt2.py's, and further

    n_kv       heads of keys and values       lm_head  the unembedding, if it is not wte
    rotations  [n_new, d_head / 2] of complex numbers of length 1: how a position turns each
               pair of neighbouring numbers of a query or key
"""

import math

import numpy as np

from cache import CachedModel, linear


def silu(x):  # [n_new, n] -> [n_new, n]
    """Return x times the logistic function of x."""
    with np.errstate(over="ignore"):  # exp(-x) may be infinite, and x / inf is 0
        return x / (1 + np.exp(-x))


def rms_norm(x, g, eps):  # [.., n] -> [.., n]
    """Scale each row to mean square 1, then apply gain."""
    mean_square = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x / np.sqrt(mean_square + eps) * g


def swiglu(x, c_fc, c_proj):  # [n_new, n_embd] -> [n_new, n_embd]
    """Apply the feed-forward network; c_fc returns the gate and what the gate multiplies."""
    x = linear(x, **c_fc)
    n = x.shape[-1] // 2
    return linear(silu(x[:, :n]) * x[:, n:], **c_proj)


def frequencies(d_head, theta, scaling=None, divisors=1):  # -> [d_head / 2]
    """Return the angle by which one position turns pair j: theta ** (-2 j / d_head).

    Some GGUF files have `divisors`, one for each angle.
    """
    w = theta ** (-np.arange(0, d_head, 2) / d_head) / divisors
    if scaling is None:
        return w
    # Llama 3.1 reads longer texts than in the first part of its training. A pair that turns
    # fewer than `low` times in a text of the original length turns slower, by `factor`; a pair
    # that turns more than `high` times turns as before.
    n_turns = scaling["original_max_position_embeddings"] * w / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    share = np.clip((n_turns - low) / (high - low), 0, 1)  # of the old angle, from low to high
    return w * (share + (1 - share) / scaling["factor"])


def rotations_of(positions, w, dtype):  # [n_new], [d_head / 2] -> [n_new, d_head / 2]
    """Return the rotations of these positions; `w` are the `frequencies`."""
    angles = positions[:, None] * w
    return np.exp(1j * angles).astype(np.result_type(dtype, np.complex64))


def rotate(x, rotations):  # [n_new, n, d_head], [n_new, d_head / 2]
    """Turn each pair of neighbouring numbers, as one complex number, by its angle: in place."""
    pairs = x.view(rotations.dtype)  # [n_new, n, d_head / 2]
    pairs *= rotations[:, None]


def grouped_attention(x, c_attn, c_proj, n_head, rotations, attend, q_norm=None, k_norm=None,
                      turns=True):
    """Apply attention in which n_head / n_kv heads of queries share one of keys and values."""
    n_new, d_head = len(x), 2 * rotations.shape[-1]
    qkv = linear(x, **c_attn).reshape(n_new, -1, d_head)  # [n_new, n_head + 2 n_kv, d_head]
    n_kv = (qkv.shape[1] - n_head) // 2
    # Views: what changes q and k changes qkv, and the other way round.
    q, k, v = qkv[:, :n_head], qkv[:, n_head:-n_kv], qkv[:, -n_kv:]
    if q_norm:  # Qwen3
        q[:] = rms_norm(q, **q_norm)
        k[:] = rms_norm(k, **k_norm)
    if turns:  # all blocks, but for some of SmolLM3
        rotate(qkv[:, :-n_kv], rotations)  # q and k at once
    x = attend(q.swapaxes(0, 1), k.swapaxes(0, 1), v.swapaxes(0, 1))  # [n_head, n_new, d_head]
    x = x.swapaxes(0, 1).reshape(n_new, -1)  # the heads side by side
    return linear(x, **c_proj)


def transformer_block(x, ln_1, attn, ln_2, mlp, **context):  # x -> [n_new, n_embd]
    """Add the output of attention to its input; then do the same with the feed-forward part."""
    x = x + grouped_attention(rms_norm(x, **ln_1), **attn, **context)
    return x + swiglu(rms_norm(x, **ln_2), **mlp)


class Llama(CachedModel):
    """A Llama as a function of the whole sequence, used as gpt2.GPT2 is.

    `params` is the tree of weights that lib/checkpoints/llama.py returns. Besides arrays it has
    n_ctx, n_kv, the eps of norms, and the arguments of `frequencies`.
    """

    def __init__(self, params: dict, n_head: int):
        rope = params["rope"]
        super().__init__(params, n_head, params["n_ctx"], params["n_kv"], rope["d_head"])
        self.frequencies = np.asarray(frequencies(**rope), like=self.cache)

    def forward(self, tokens, positions, attends):  # [n_new] -> [n_new, n_embd]
        """Return the last hidden states of the new tokens, after ln_f."""
        x = self.params["wte"][tokens]
        rotations = rotations_of(positions, self.frequencies, x.dtype)
        for block, attend in zip(self.params["blocks"], attends):
            x = transformer_block(x, **block, n_head=self.n_head, rotations=rotations,
                                  attend=attend)
        return rms_norm(x, **self.params["ln_f"])
