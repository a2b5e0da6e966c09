"""One paper per file: a way to guess, a way to test, or both, for the step in speculative.py.

Reading order: MODULES, below. docs/decoders.md has a paragraph and measurements for each.
variants/shared/ holds what several of them use.
"""

from functools import partial

from speculative import autoregressive_step
from variants import (
    assisted,
    big_little,
    block,
    blockwise,
    cascade,
    coupled,
    eagle,
    jacobi,
    kseq,
    lenient,
    lookahead,
    lookup,
    markov,
    match,
    medusa,
    quantized,
    skip,
    speculative,
    staged,
    stopping,
    suffix,
    traversal,
    tree,
)
from variants.registry import Costs, Models

MODULES = (speculative, lookup, suffix, jacobi, skip, quantized, assisted, stopping, match, coupled,
           block, lenient, big_little, cascade, tree, traversal, kseq, lookahead, staged, medusa,
           markov, eagle, blockwise)
DECODERS = {module.DECODER.name: module.DECODER for module in MODULES}


def build(name, models, given=()):
    """Return the step of one text: a decoder with the flags given, defaults for the others.

    ValueError if there is no such decoder, a flag or the temperature does not fit it, or costs
    are needed.
    """
    if name not in DECODERS:
        raise ValueError(f"need one of the decoders {', '.join(DECODERS)}, got {name!r}")
    entry = DECODERS[name]
    flags = entry.settings(dict(given))
    if entry.greedy and not models.is_greedy:
        raise ValueError(f"need --temperature 0 for the decoder {name}, a greedy method, "
                         f"got {models.sampling['temperature']}")
    if entry.needs_costs(flags) and models.costs is None:
        raise ValueError(f"need costs for the decoder {name} with these flags, got none")
    return entry.build(models, **flags)


def build_plain(name, models, given=()):
    """Return plain decoding to compare with; with the decoder's own random numbers if it can."""
    entry = DECODERS[name]
    if entry.plain:
        return entry.plain(models, **entry.settings(dict(given)))
    return partial(autoregressive_step, model=models.target_rows)
