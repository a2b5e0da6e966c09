"""One paper per file: a way to guess, a way to test, or both, for the step in speculative.py.

FILES is the reading order. docs/methods.md has a paragraph for each decoder. variants/shared/
holds what several decoders use. `DECODERS["match"]` imports no decoder but match.py. So a run
imports only the decoder that it uses, and exact/ can enumerate a decoder's test without the
packages that other decoders need.
"""

from variants.registry import DECODERS, Costs, Decoder, Models, build, build_plain, entry_of

FILES = ("speculative", "lookup", "suffix", "jacobi", "skip", "quantized", "assisted",
         "stopping", "match", "coupled", "block", "lenient", "big_little", "cascade", "tree",
         "traversal", "multipath", "kseq", "lookahead", "staged", "medusa", "markov", "eagle",
         "blockwise")
