"""Measure how near rounded copies of the bundled target are to it, as drafts.

    python -m benchmarks quantized --json benchmarks/results/quantized-rounding.json

    1 - TV           the probability that a guess of the copy is accepted, on the target's texts
    same best token  positions at which both models have the same most probable token

`python -m benchmarks speed --copy` races the int8 copy as the draft.
"""

from functools import partial

import numpy as np

from gpt2 import GPT2
from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import machine
from measure.models import LENGTH, OPENINGS, load_benchmark_pair
from sampling import with_sampling
from speculative import autoregressive_sampling
from theory.speedup import acceptance_rate
from variants.quantized import int8_copy, with_matrices

# size: weights that share a scale; None: all weights of an output
ROUNDINGS = [(bits, size) for bits in (8, 6, 4) for size in (None, 32)]


def rounded_parts(w, bits, size):  # [n_out, n_in] -> as w
    """Return weights rounded to multiples of a scale, as w.

    `size` weights of an output share a scale; with None, all weights of an output do.
    """
    n_out, n_in = w.shape
    parts = w.reshape(n_out, -1, size or n_in)  # [n_out, n_parts, size]
    largest = 2 ** (bits - 1) - 1  # 127 for 8 bits
    # The largest weight of a part becomes the integer `largest`.
    scale = abs(parts).max(axis=-1, keepdims=True) / largest
    integers = np.rint(parts / scale)
    return (integers * scale).reshape(w.shape)


def all_figures(args):
    """Return {draft: (mean 1 - TV, share of positions with the same most probable token)}."""
    encoder, draft, target = load_benchmark_pair("pair")
    drafts = {"the int8 copy": int8_copy(target), "tales-small": draft}
    for bits, size in ROUNDINGS:
        params = with_matrices(target.params, partial(rounded_parts, bits=bits, size=size))
        drafts[f"{bits} bits, a scale per {size or 'output'}"] = GPT2(params, target.n_head)
    # {draft: a pair (1 - TV, whether the most probable tokens are equal) for each position}
    pairs_of = {name: [] for name in drafts}
    for i, opening in enumerate(OPENINGS):
        ids = encoder.encode(opening)
        rng = np.random.default_rng(i)
        text = autoregressive_sampling(ids, with_sampling(target), LENGTH, rng)
        # One row after the prompt, and one after each new token.
        n_last = LENGTH + 1
        p_target = with_sampling(target)(text, n_last)
        for name, model in drafts.items():
            p_draft = with_sampling(model)(text, n_last)
            overlaps = acceptance_rate(p_target, p_draft)  # 1 - TV
            same = p_target.argmax(axis=-1) == p_draft.argmax(axis=-1)
            pairs_of[name].extend(zip(overlaps, same))
    return machine() | {"rounding": {name: np.mean(pairs, axis=0).tolist()
                                     for name, pairs in pairs_of.items()}}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield f"The bundled pair. {figures['measured']}"
    yield markdown_table(["draft", "mean 1 - TV", "same best token"],
                         [[name, shown(overlap, "{:.3f}"), shown(same, "{:.3f}")]
                          for name, (overlap, same) in figures["rounding"].items()])


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs)
