"""Yu et al. (2022), "Orca", Sec. 3.2, selective batching: one pass over many texts.

Adds to gpt2.py: the new tokens of all texts are the rows of one pass. Products with weights and
everything else that depends on one row alone take all rows at once. Attention goes text by
text, each with its own keys and values; nothing is padded.

    calls     a list of (text, ids, n_last), as in batch.py
    part      what one text adds to a pass: tokens n_past : n_seq of its ids

Subtle: BLAS sums in a different order for a different number of rows, so the last bits of a
text would depend on the other texts. The compiled product (lib/backend/products.py) sums
in the same order for 1 to MAX_ROWS rows. So a pass with this product has at most MAX_ROWS rows. A
text with more rows, such as a prompt, gets its own pass. Every product then has the same bits as
for the text alone.
"""

import math
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from gpt2 import GPT2, cached, forward, to_host, unembed
from lib.backend.products import MAX_ROWS, one_blas_thread, product_compiler


class Part(NamedTuple):
    """Hold what one text adds to a pass."""

    text: Any
    cache: np.ndarray  # its own keys and values
    ids: list
    n_past: int
    n_last: int

    @property
    def n_new(self):
        """Return how many rows it adds."""
        return len(self.ids) - self.n_past


class BatchGPT2(GPT2):
    """A GPT2 that reads many texts in one pass, `model(calls)`, with a cache for each text.

    A text is any object that can be weakly referenced: a greenlet, or an instance of a class,
    but not a string or a tuple. Its cache is dropped with it. Every text has a GPT2's logits:

    >>> from lib.checkpoints.weights import random_params
    >>> hparams = dict(n_vocab=11, n_ctx=8, n_embd=6, n_head=2, n_layer=2)
    >>> params = random_params(hparams, np.random.default_rng(0), np.float64)
    >>> class Name: pass
    >>> a, b = Name(), Name()
    >>> model, alone = BatchGPT2(params, n_head=2), GPT2(params, n_head=2)
    >>> first = model([(a, [3, 1, 4], 1), (b, [1], 1)])
    >>> rows = model([(b, [1, 5, 9], 2), (a, [3, 1, 2], 1)])
    >>> np.allclose(rows[0], alone([1, 5, 9], 2)), np.allclose(rows[1], alone([3, 1, 2]))
    (True, True)
    """

    def __init__(self, params, n_head):
        super().__init__(params, n_head)
        self.texts = WeakKeyDictionary()  # text -> its ids and cache, while the text exists

    def __call__(self, calls):  # -> a list of [n_last, n_vocab]
        """Return the logits of every call, each of a different text.

        ValueError if a text comes twice, or as in GPT2.
        """
        if len({text for text, *_ in calls}) < len(calls):
            raise ValueError("need calls of different texts, got one text twice")
        parts = [self.part(*call) for call in calls]
        logits = {}  # by text, because the passes are in the order of their sizes
        with one_blas_thread():
            for group in groups(parts, most_rows(self.cache)):
                for part, rows in zip(group, self.read_parts(group)):
                    logits[part.text] = rows
        return [logits[part.text] for part in parts]

    def part(self, text, ids, n_last):
        """Return what a pass must read of `ids`, as in GPT2.read."""
        ids = list(ids)
        if text not in self.texts:
            self.texts[text] = [], np.zeros(self.cache.shape, self.cache.dtype, like=self.cache)
        known, cache = self.texts[text]
        return Part(text, cache, ids, self.n_reusable(known, ids, n_last), n_last)

    def read_parts(self, parts):  # -> [n_last, n_vocab] of each part
        """Run one pass over the new tokens of all parts."""
        for part in parts:  # as in GPT2.read: true if Ctrl-C comes in forward
            self.texts[part.text] = part.ids[: part.n_past], part.cache
        # The new tokens of all texts are the rows of one array, text after text.
        new = [token for part in parts for token in part.ids[part.n_past :]]
        positions = [i for part in parts for i in range(part.n_past, len(part.ids))]
        attends = [self.attend(layer, parts) for layer in range(len(self.cache))]
        x = forward(np.asarray(new, like=self.cache), np.asarray(positions, like=self.cache),
                    attends, self.params, self.n_head)
        for part in parts:
            self.texts[part.text] = part.ids, part.cache
        # Only the rows that were asked for are multiplied by the unembedding.
        ends = np.cumsum([part.n_new for part in parts])
        last_rows = [x[end - part.n_last : end] for part, end in zip(parts, ends)]
        last = np.concatenate(last_rows)
        bounds = np.cumsum([part.n_last for part in parts])[:-1]
        return np.split(to_host(unembed(last, self.params)), bounds)

    def attend(self, layer, parts):
        """Return one layer's `attend`, in which each part's rows see their own text."""
        def attend(q, k, v):  # 3 x [n_head, n_rows, d_head] -> [n_head, n_rows, d_head]
            out = []
            first = 0  # the first row of the part
            for part in parts:
                rows = slice(first, first + part.n_new)
                first += part.n_new
                # Row i of a text sees the columns up to its own position.
                mask = self.mask[part.n_past : len(part.ids), : len(part.ids)]
                own = cached(part.cache[layer], part.n_past, mask)
                out.append(own(q[:, rows], k[:, rows], v[:, rows]))
            return np.concatenate(out, axis=1)

        return attend


def most_rows(cache):
    """Return the most rows of a pass: MAX_ROWS if this keeps a text's bits as alone, else inf."""
    return MAX_ROWS if isinstance(cache, np.ndarray) and product_compiler() else math.inf


def groups(parts, most):
    """Split the parts into passes of at most `most` rows; a larger part is a pass by itself."""
    passes = []
    n_rows = 0  # of the last pass
    for part in sorted(parts, key=attrgetter("n_new")):
        if not passes or n_rows + part.n_new > most:
            passes.append([])
            n_rows = 0
        passes[-1].append(part)
        n_rows += part.n_new
    return passes
