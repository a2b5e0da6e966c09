"""Yu et al. (2022), "Orca", Sec. 3.2, selective batching: one pass over many texts. Lossless.

What it adds to gpt2.py: the new tokens of all texts stand below each other for every product with a
weight, and for all that looks at one row alone. Attention goes text by text, each with its own keys
and values. There is no padding, so no mask and no position that could be another text's.

    calls     a list of (text, ids, n_last), as in batch.py
    Memory    what the model has read of one text
    part      what one text adds to a pass: tokens n_past : n_seq of its ids
    rows      where a part's tokens are among those of the pass

Subtle: BLAS sums in another order for another number of rows, so a text would depend, in its last
bits, on how many others there are. The compiled product does not (lib/backend/products.py), for up to
MAX_ROWS rows. With it passes are held to so many, and a text with more of them, as a prompt has,
gets a pass of its own: every product is the very one of the text alone.
"""

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

import gpt2  # its layer_norm by the module: on a GPU it is another (lib/backend/fused.py)
from gpt2 import GPT2, attention, check_ids, common_prefix, ffn, linear, to_host, unembed
from lib.backend.arrays import widened
from lib.backend.products import MAX_ROWS, by_heads, compiler


class Memory:
    """The tokens of one text that the model has read, and their keys and values."""

    def __init__(self, cache):  # as gpt2.forward's, without columns: they come as they are needed
        self.ids, self.cache = [], cache

    def make_room(self, n_seq, n_ctx):
        """Room for n_seq tokens, twice what there was if that is more: seldom copied."""
        n_columns = self.cache.shape[-2]
        if n_columns < n_seq:
            self.cache = widened(self.cache, min(max(n_seq, 2 * n_columns), n_ctx))


class Part(NamedTuple):
    """What one text adds to a pass."""

    memory: Memory
    ids: list
    n_past: int
    n_last: int

    @property
    def n_new(self):
        return len(self.ids) - self.n_past


class BatchGPT2(GPT2):
    """A GPT2 that many texts ask at once, `model(calls)`, and that remembers each of them.

    A text can be any object; what is remembered of it goes when the object does. `forward` and
    `mha` are gpt2.py's with the rows of several texts below each other. GPT2's own cache is left
    without columns, as what every Memory starts from: the inherited `hidden` has no use here.

    Examples
    --------
    Every text has the logits that it has alone.

    >>> from lib.checkpoints.weights import random_params
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> class Name: pass
    >>> a, b = Name(), Name()
    >>> model, alone = BatchGPT2(params, n_head=2), GPT2(params, n_head=2)
    >>> for calls in [(a, [3, 1, 4], 1), (b, [1], 1)], [(b, [1, 5, 9], 2), (a, [3, 1, 2], 1)]:
    ...     rows = model(calls)
    >>> np.allclose(rows[0], alone([1, 5, 9], 2)), np.allclose(rows[1], alone([3, 1, 2]))
    (True, True)
    """

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        self.cache = self.cache[:, :, :, :0].copy()
        self.memories = WeakKeyDictionary()  # text -> Memory, for as long as there is the text

    def __call__(self, calls):  # -> a list of [n_last, n_vocab]
        """The logits of every call, as `GPT2` has them."""
        if len({text for text, *_ in calls}) < len(calls):
            raise ValueError(f"need each text once in a pass, got {len(calls)} calls for fewer")
        parts, rows = [self.part(*call) for call in calls], {}
        for group in groups(parts, most_rows(self.params["wte"])):
            ends = np.cumsum([part.n_new for part in group])
            x = self.forward(group, [slice(end - part.n_new, end)
                                     for part, end in zip(group, ends)])
            last = [x[end - part.n_last : end] for part, end in zip(group, ends)]
            logits = to_host(unembed(np.concatenate(last), self.params))
            bounds = np.cumsum([part.n_last for part in group])[:-1]
            rows |= zip(map(id, group), np.split(logits, bounds))
        return [rows[id(part)] for part in parts]

    def part(self, text, ids, n_last):
        """What is new in `ids`; checked as in GPT2.hidden, before anything is computed."""
        ids, n_seq = list(ids), len(ids)
        if not 1 <= n_last <= n_seq <= self.n_ctx:
            raise ValueError(f"need 1 <= n_last <= len(ids) <= n_ctx = {self.n_ctx}, "
                             f"got n_last = {n_last}, len(ids) = {n_seq}")
        if text not in self.memories:
            self.memories[text] = Memory(self.cache)
        memory = self.memories[text]
        n_past = min(common_prefix(memory.ids, ids), n_seq - n_last)
        check_ids(ids[n_past:], self.n_vocab)
        return Part(memory, ids, n_past, n_last)

    def forward(self, group, rows):  # -> [n_rows, n_embd]
        """The last hidden states of the new tokens of all parts, after ln_f: `gpt2.forward`."""
        new = [token for part in group for token in part.ids[part.n_past :]]
        positions = [i for part in group for i in range(part.n_past, len(part.ids))]
        for part in group:
            part.memory.ids = part.ids[: part.n_past]  # true even if this pass is interrupted
            part.memory.make_room(len(part.ids), self.n_ctx)
        x = (self.params["wte"][np.asarray(new, like=self.cache)]
             + self.params["wpe"][np.asarray(positions, like=self.cache)])
        for i, block in enumerate(self.params["blocks"]):
            x = x + self.mha(i, group, rows, gpt2.layer_norm(x, **block["ln_1"]), **block["attn"])
            x = x + ffn(gpt2.layer_norm(x, **block["ln_2"]), **block["mlp"])
        for part in group:
            part.memory.ids = part.ids
        return gpt2.layer_norm(x, **self.params["ln_f"])

    def mha(self, i, group, rows, x, c_attn, c_proj):  # [n_rows, n_embd] -> [n_rows, n_embd]
        """`gpt2.mha` in layer i: the products for all rows at once, attention text by text."""
        n_rows, n_embd = x.shape
        qkv = linear(x, **c_attn).reshape(n_rows, 3, self.n_head, n_embd // self.n_head)
        qkv = qkv.transpose(1, 2, 0, 3)  # [3, n_head, n_rows, d_head]
        out = []
        for part, own in zip(group, rows):
            cache, n_past, n_seq = part.memory.cache[i], part.n_past, len(part.ids)
            cache[:, :, n_past:n_seq] = qkv[1:, :, own]
            k, v = cache[:, :, :n_seq]  # [n_head, n_seq, d_head]
            out.append(by_heads(attention, qkv[0, :, own], k, v, self.mask[n_past:n_seq, :n_seq]))
        x = np.concatenate(out, axis=1)  # [n_head, n_rows, d_head]
        return linear(x.transpose(1, 0, 2).reshape(n_rows, n_embd), **c_proj)


def most_rows(weights):
    """How many rows a pass may have for each to be summed as it is alone; inf: no such number."""
    return MAX_ROWS if isinstance(weights, np.ndarray) and compiler() else math.inf


def groups(parts, most):
    """The parts in passes of at most `most` rows; a part that has more is a pass of its own."""
    passes = []
    for part in parts:
        fits = (group for group in passes if sum(p.n_new for p in [*group, part]) <= most)
        group = next(fits, None)
        if group is None:
            passes.append(group := [])
        group.append(part)
    return passes
