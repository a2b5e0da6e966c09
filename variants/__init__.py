"""One paper a file: each a way to guess, a way to test, or both, for the step in speculative.py.

Reading order: MODULES, below. docs/variants.md has a paragraph on each, and what they measured.
Several use auto.py (`--K auto`), long_context.py (`--window`), batch.py and batch_gpt2.py
(`--prompts`), branches.py and tree_gpt2.py (trees, and attention to them), best_tree.py and
dynamic_tree.py (which tree), states.py and eagle_head.py (hidden states), and memory.py.
"""

from variants import (assisted, big_little, block, blockwise, cascade, coupled, eagle, jacobi,
                      kseq, lenient, lookahead, lookup, markov, match, medusa, skip, speculative,
                      staged, stopping, suffix, traversal, tree)
from variants.registry import Flag, Models, build_autoregressive, known_flags, settings_of

# markov's entry is medusa's with a flag more
MODULES = (speculative, lookup, suffix, jacobi, skip, assisted, stopping, match, coupled, block,
           lenient, big_little, cascade, tree, traversal, kseq, lookahead, staged, medusa, markov,
           eagle, blockwise)
DECODERS = {module.DECODER.name: module.DECODER for module in MODULES}
ALIASES = {"bild": "big_little"}  # a former name
FLAGS = known_flags(DECODERS)


def settings(name, given):
    """All flags of a decoder: those given (not None), and its defaults for the others."""
    return settings_of(DECODERS, name, given)


def build(name, models, given=()):
    """The step of one text: a decoder with the flags given, and the defaults of the others."""
    return DECODERS[name].build(models, **settings(name, dict(given)))


def build_plain(name, models, given=()):
    """Plain decoding to compare a decoder with: by the same random numbers, if it says how."""
    plain = DECODERS[name].plain
    return plain(models, **settings(name, dict(given))) if plain else build_autoregressive(models)
