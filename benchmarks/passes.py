"""Time single passes: over M rows, and after contexts of several lengths.

    rows      new ids in one pass; a target pass of a round with K guesses has K + 1
    context   ids the model has read before the pass
"""

from functools import partial

import numpy as np

from benchmarks.clock import interleaved, reader
from gpt2 import GPT2
from lib.backend import products

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16)
CONTEXTS = (64, 512, 1000)
GUESSES = 4  # draft steps in a row


def rows_actions(model, context=64, backend=None, rows=ROWS):
    """Return {M: a function that runs a pass over M rows} of a model, after `context` ids."""
    def read(n):  # the tokens differ from those in the cache, so all n are computed
        if backend:
            products.set_backend(backend)
        return model(prompt + rng.integers(0, model.n_vocab, n).tolist(), n)

    rng = np.random.default_rng(0)
    prompt = [1] * min(context, model.n_ctx - max(rows))
    return {n: partial(read, n) for n in rows}


def guess_action(draft, context=64):
    """Return a function that runs GUESSES steps of the draft, one after another."""
    def steps():
        ids = [1] * min(context, draft.n_ctx - GUESSES)
        for token in rng.integers(0, draft.n_vocab, GUESSES).tolist():
            ids.append(token)
            draft(ids)

    rng = np.random.default_rng(0)
    return steps


def passes_times(draft, target, repeats):
    """Return the seconds of every repeat: ({M: ..} of each backend, those of a draft step)."""
    actions = {(backend, n): action for backend in ("numba", "numpy")
               for n, action in rows_actions(target, backend=backend).items()}
    choose = {"numba": lambda: products.set_backend("numba")}
    times = interleaved(actions | choose | {"guess": guess_action(draft)}, repeats)
    rows = {backend: {n: times[backend, n] for n in ROWS} for backend in ("numba", "numpy")}
    return rows, [seconds / GUESSES for seconds in times["guess"]]


def floor_times(target, repeats, n_bytes, n_reads):
    """Return the seconds of one row, and of reading `n_bytes` of memory `n_reads` times.

    They take turns, because the bandwidth of a shared machine changes from second to second. The
    reading empties the caches a small model lies in, so the other passes are timed apart from it.
    """
    read = reader(n_bytes)
    actions = {"row": rows_actions(target)[1], "read": lambda: [read() for _ in range(n_reads)]}
    return interleaved(actions, repeats)


def context_times(model, repeats):
    """Return {ids in the context: seconds of every repeat} of one token, each by its own model."""
    actions = {}
    for n in (n for n in CONTEXTS if n < model.n_ctx):
        own, text = GPT2(model.params, model.n_head), [1] * n
        own(text)
        actions[n] = partial(own, text + [2])
    return interleaved(actions, repeats)
