"""One paper per file: a way to guess, a way to test, or both, for the step in speculative.py.

FILES is the reading order. docs/methods.md and docs/methods.md have a paragraph for each
decoder. variants/shared/ holds what several decoders use. `DECODERS["match"]` imports no
decoder but match.py. So a run imports only the decoder that it uses, and exact/ can enumerate a
decoder's test without the packages that other decoders need.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module

from speculative import autoregressive_step
from variants.registry import Costs, Decoder, Models, check_costs

FILES = ("speculative", "lookup", "suffix", "jacobi", "skip", "quantized", "assisted",
         "stopping", "match", "coupled", "block", "lenient", "big_little", "cascade", "tree",
         "traversal", "multipath", "kseq", "lookahead", "staged", "medusa", "markov", "eagle",
         "blockwise")


class Registry(Mapping):
    """Map the name of a decoder to its entry; import the decoder's file at the first look."""

    def __getitem__(self, name: str) -> Decoder:
        if name not in FILES:
            raise KeyError(name)
        return import_module(f"variants.{name}").DECODER

    # Mapping's own __contains__ would look the decoder up, and so import its file.
    def __contains__(self, name):
        return name in FILES

    def __iter__(self):
        return iter(FILES)

    def __len__(self):
        return len(FILES)


DECODERS: Mapping[str, Decoder] = Registry()


def entry_of(name):
    """Return the entry of a decoder's name, or an entry as it is; ValueError if unknown."""
    if isinstance(name, Decoder):
        return name
    if name not in DECODERS:
        raise ValueError(f"need one of the decoders {', '.join(DECODERS)}, got {name!r}")
    return DECODERS[name]


def build(name, models, given=()):
    """Return a decoder's step for one text. Flags that are not in `given` have their defaults.

    `name` may be an entry that is not registered. `given` is a dict {flag: value}, or its
    pairs. ValueError if there is no such decoder, a flag or the temperature does not fit, the
    models lack something that the decoder needs, or costs are missing or impossible.
    """
    entry = entry_of(name)
    flags = entry.settings(dict(given))
    if entry.greedy and not models.is_greedy:
        raise ValueError(f"--decoder {entry.name} needs --temperature 0, because it is greedy; "
                         f"got {models.sampling.get('temperature', 1.0)}")
    entry.check_needs(flags, models.offered, "the models given do not offer it")
    if entry.needs_costs(flags):
        if models.costs is None:
            raise ValueError(f"--decoder {entry.name} needs Models.costs with these flags")
        check_costs(models.costs)
    return entry.build(models, **flags)


def build_plain(name, models, given=()):
    """Return the step of plain decoding, for comparison with a decoder.

    If the entry has `plain`, the step draws with the same random numbers as the decoder.
    """
    entry = entry_of(name)
    if entry.plain:
        return entry.plain(models, **entry.settings(dict(given)))
    return partial(autoregressive_step, model=models.target_rows)
