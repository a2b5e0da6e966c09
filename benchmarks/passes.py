"""What one pass costs: over M rows, and after contexts of some lengths.

    rows      new ids in one pass; a target pass of a round with K guesses has K + 1
    context   ids that a pass finds read
"""

from functools import partial

import numpy as np

from lib.backend import products
from lib.backend.arrays import limit_blas_threads
from benchmarks.clock import interleaved, medians, reader
from lib.checkpoints.weights import random_params
from gpt2 import GPT2
from theory.hardware import GPT2_SIZES
from utils import MODELS_DIR, load_encoder_hparams_and_params

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16)
CONTEXTS = (64, 512, 1000)
GUESSES = 4  # draft steps in a row


def load(size, models_dir=MODELS_DIR):
    """(encoder or None, draft, target); random weights where models_dir has none."""
    if size == "pair":
        _, h, p = load_encoder_hparams_and_params("tales-small", models_dir)
        encoder, hparams, params = load_encoder_hparams_and_params("tales-large", models_dir)
        draft = GPT2(p, h["n_head"])
    else:  # a draft of the same width with an eighth of the layers
        encoder, hparams, params = None, GPT2_SIZES[size], weights(size, models_dir)
        small = hparams | {"n_layer": max(1, hparams["n_layer"] // 8)}
        draft = GPT2(random_params(small, np.random.default_rng(1)), small["n_head"])
    limit_blas_threads()
    return encoder, draft, GPT2(params, hparams["n_head"])


def weights(size, models_dir):
    """A released size's weights, or random ones: time does not depend on what a weight is."""
    if (models_dir / size).exists():
        return load_encoder_hparams_and_params(size, models_dir)[2]
    return random_params(GPT2_SIZES[size], np.random.default_rng(0))


def rows_actions(model, context=64, backend=None):
    """{rows: a function that does such a pass} of a model that finds `context` tokens read."""
    def read(n):  # the tokens differ from what is remembered, so all n are computed
        if backend:
            products.choose(backend)
        return model(prompt + rng.integers(0, model.n_vocab, n).tolist(), n)

    rng = np.random.default_rng(0)
    prompt = [1] * min(context, model.n_ctx - max(ROWS))
    return {n: partial(read, n) for n in ROWS}


def guess_action(draft, context=64):
    """A function that does GUESSES steps of the draft, one after the other, as a round does."""
    def steps():
        ids = [1] * min(context, draft.n_ctx - GUESSES)
        for token in rng.integers(0, draft.n_vocab, GUESSES).tolist():
            ids.append(token)
            draft(ids)

    rng = np.random.default_rng(0)
    return steps


def rows_table(model, repeats):
    """{rows: median seconds}."""
    return medians(rows_actions(model), repeats)


def passes_times(draft, target, repeats):
    """Seconds of every repeat, by turns: ({rows: ..} of each backend, those of a draft step)."""
    actions = {(backend, n): action for backend in ("numba", "numpy")
               for n, action in rows_actions(target, backend=backend).items()}
    choose = {"numba": lambda: products.choose("numba")}
    times = interleaved(actions | choose | {"guess": guess_action(draft)}, repeats)
    rows = {backend: {n: times[backend, n] for n in ROWS} for backend in ("numba", "numpy")}
    return rows, [seconds / GUESSES for seconds in times["guess"]]


def floor_times(target, repeats, n_bytes, n_reads):
    """Seconds of one row, and of reading `n_bytes` of memory `n_reads` times, by turns.

    By turns, for the bandwidth of a shared machine changes from second to second; apart from the
    other passes, for the reading empties the caches in which a small model lies.
    """
    read = reader(n_bytes)
    actions = {"row": rows_actions(target)[1], "read": lambda: [read() for _ in range(n_reads)]}
    return interleaved(actions, repeats)


def context_times(model, repeats):
    """{ids in the context: seconds of every repeat} of one token, each by a model of its own."""
    actions = {}
    for n in (n for n in CONTEXTS if n < model.n_ctx):
        own, text = GPT2(model.params, model.n_head), [1] * n
        own(text)
        actions[n] = partial(own, text + [2])
    return interleaved(actions, repeats)
