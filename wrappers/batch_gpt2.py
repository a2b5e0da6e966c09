"""Yu et al. (2022), "Orca", Sec. 3.2, selective batching: one pass over many texts.

Adds to cache.py: the new tokens of all texts are the rows of one pass. Whatever is computed for
each row alone, such as a product with weights, is computed for all rows at once. Attention is
computed text by text, each with its own keys and values. Nothing is padded.

    calls     a list of (text, ids, n_last), as in batch.py
    part      what one text adds to a pass: tokens n_past : n_seq of its ids

Subtle: a text's logits must have the same last bits, whichever texts share its pass.
(1) BLAS sums in a different order for a different number of rows, so the last bits would
    change.
(2) The compiled product (lib/backend/products.py) sums in one order for 1 to MAX_ROWS rows.
(3) So a pass with the compiled product has at most MAX_ROWS rows, and a text with more new
    tokens, such as a prompt, gets its own passes. No other text can then change the bits.
(4) The compiled product reads whole vectors of 32 bytes. A model with a matrix of a different
    width uses BLAS, so each of its texts gets its own pass.
(5) Without Numba or on a GPU, all texts share a pass, although (1) applies: separate passes
    would be as slow as no batch.
"""

import math
from operator import attrgetter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from cache import CachedModel, cached, causal_mask, part_ends, to_host, unembed, widened
from gpt2 import GPT2
from lib.backend.products import MAX_ROWS, has_whole_vectors, one_blas_thread, product_compiler
from llama import Llama


class Part(NamedTuple):
    """Hold what one text adds to a pass."""

    model: CachedModel  # the text's own, whose cache has the text's keys and values
    ids: list
    n_past: int
    n_last: int

    @property
    def n_new(self):
        """Return the number of rows that the text adds."""
        return len(self.ids) - self.n_past


class BatchReader(CachedModel):
    """Read many texts in one pass, `model(calls)`, with a cache for each text.

    The logits of each text are those of a model that reads the text alone. A text is any object
    that can be weakly referenced, such as a greenlet; with it the text's cache is dropped.
    """

    alone: type[CachedModel]  # the class that reads one text

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        # {text: a model that reads it alone}; an entry disappears together with its text
        self.texts = WeakKeyDictionary()

    def __call__(self, calls):  # -> a list of [n_last, n_vocab]
        """Return the logits of every call, each of a different text."""
        if len({text for text, *_ in calls}) < len(calls):
            raise ValueError("need calls of different texts, got one text twice")
        logits = {}  # {a text's model: its rows}, because `groups` sorts the parts by size
        with one_blas_thread():
            parts = [self.part(*call) for call in calls]
            for group in groups(parts, most_rows(self.params, self.dtype)):
                for part, rows in zip(group, self.read_parts(group)):
                    logits[part.model] = rows
        return [logits[part.model] for part in parts]

    def with_params(self, params):
        """Return a model of other weights that reads one text: a draft that one text has."""
        return self.alone(params, self.n_head)

    def part(self, text, ids, n_last):
        """Return the Part of one call: a pass reads the ids that the text's cache lacks."""
        ids = list(ids)
        if text not in self.texts:
            self.texts[text] = self.alone(self.params, self.n_head)
        model = self.texts[text]
        n_past = model.n_reusable(model.ids, ids, n_last)
        model.cache = widened(model.cache, len(ids))
        *ends, _ = part_ends(n_past, len(ids), n_last)
        for end in ends:  # of a long prompt, whose parts CachedModel.read reads one by one too
            self.read_parts([Part(model, ids[:end], n_past, n_last=1)])
            n_past = end
        return Part(model, ids, n_past, n_last)

    def read_parts(self, parts):  # -> [n_last, n_vocab] of each part
        """Run one pass over the new tokens of all parts."""
        # So that Ctrl-C in `forward` leaves ids and caches consistent.
        for part in parts:
            part.model.ids = part.ids[: part.n_past]
        new = [token for part in parts for token in part.ids[part.n_past :]]
        positions = [i for part in parts for i in range(part.n_past, len(part.ids))]
        masks = [causal_mask(part.n_new, like=self.cache) for part in parts]
        attends = [self.attend(layer, parts, masks) for layer in range(len(self.cache))]
        x = self.forward(np.asarray(new, like=self.cache),
                         np.asarray(positions, like=self.cache), attends)
        for part in parts:
            part.model.ids = part.ids
        # Logits are wanted for the last n_last rows of each part; only these are unembedded.
        ends = np.cumsum([part.n_new for part in parts])  # of each part's rows in x
        last_rows = [x[end - part.n_last : end] for part, end in zip(parts, ends)]
        logits = to_host(unembed(np.concatenate(last_rows), self.params))
        # Parts with n_last = 1, 3, 2 end at rows 1, 4, 6 of `logits`, which is cut at 1 and 4.
        cuts = np.cumsum([part.n_last for part in parts])[:-1]
        return np.split(logits, cuts)

    def attend(self, layer, parts, masks):
        """Return one layer's `attend`, in which the rows of each text see only this text."""
        def attend_by_text(q, k, v):  # [n_head, n_rows, d_head], 2 x [n_kv, ..] -> as q
            out = []
            first = 0  # the first row of the part
            for part, mask in zip(parts, masks):
                rows = slice(first, first + part.n_new)
                first += part.n_new
                attend_part = cached(part.model.cache[layer], part.n_past, mask, self.apply)
                out.append(attend_part(q[:, rows], k[:, rows], v[:, rows]))
            return np.concatenate(out, axis=1)

        return attend_by_text


class BatchGPT2(BatchReader, GPT2):
    """A GPT2 that reads many texts in one pass."""

    alone = GPT2


class BatchLlama(BatchReader, Llama):
    """A Llama that reads many texts in one pass."""

    alone = Llama


def most_rows(params, dtype):
    """Return how many rows a pass may have so that a text's bits depend on no other text."""
    if not isinstance(params["ln_f"]["g"], np.ndarray) or product_compiler() is None:
        return math.inf  # (5)
    block = params["blocks"][0]
    attn, mlp = block["attn"], block["mlp"]
    linear_maps = attn["c_attn"], attn["c_proj"], mlp["c_fc"], mlp["c_proj"]
    widths = [each["w"].mT.shape[1] for each in linear_maps]
    return MAX_ROWS if all(has_whole_vectors(n, dtype) for n in widths) else 0  # (3), (4)


def groups(parts, most):
    """Split the parts into passes of at most `most` rows; a larger part is a pass by itself."""
    passes = []
    n_rows = 0  # of the last pass
    # Small parts come first: a part above `most` could separate two that can share a pass.
    for part in sorted(parts, key=attrgetter("n_new")):
        if not passes or n_rows + part.n_new > most:
            passes.append([])
            n_rows = 0
        passes[-1].append(part)
        n_rows += part.n_new
    return passes
