"""One paper per file: a way to guess, a way to test, or both, for the step in speculative.py.

FILES is the reading order. docs/decoders.md has a paragraph and measurements for each decoder.
variants/shared/ holds what several decoders use. The first use of DECODERS imports all files.
`import variants.match` imports this decoder only, so exact/ can enumerate a decoder's test without
the packages that other decoders need.
"""

from functools import cache, partial
from importlib import import_module

from speculative import autoregressive_step
from variants.registry import Costs, Decoder, Models, check_costs

FILES = ("speculative", "lookup", "suffix", "jacobi", "skip", "quantized", "assisted",
         "stopping", "match", "coupled", "block", "lenient", "big_little", "cascade", "tree",
         "traversal", "multipath", "kseq", "lookahead", "staged", "medusa", "markov", "eagle",
         "blockwise")
DECODERS: dict[str, Decoder]  # {name: entry}; not assigned here: see __getattr__


@cache
def decoders() -> dict[str, Decoder]:
    """Import all files; return DECODERS, the same dict in every call."""
    return {name: import_module(f"variants.{name}").DECODER for name in FILES}


def __getattr__(name):
    """Return DECODERS. Python calls this for names that the package lacks (PEP 562)."""
    if name == "DECODERS":
        return decoders()
    raise AttributeError(f"module 'variants' has no attribute {name!r}")


def entry_of(name):
    """Return the entry of a decoder's name, or an entry as it is; ValueError for other names."""
    if isinstance(name, Decoder):
        return name
    if name not in decoders():
        raise ValueError(f"need one of the decoders {', '.join(decoders())}, got {name!r}")
    return decoders()[name]


def build(name, models, given=()):
    """Return the step of one text: a decoder with the flags given, defaults for the others.

    `name` may be an entry that is not registered. ValueError if there is no such decoder, a flag
    or the temperature does not fit, or costs are missing or impossible.
    """
    entry = entry_of(name)
    flags = entry.settings(dict(given))
    if entry.greedy and not models.is_greedy:
        raise ValueError(f"--decoder {entry.name} needs --temperature 0, because it is greedy; got "
                         f"{models.sampling['temperature']}")
    entry.check_needs(flags, models.offered, "the models given do not offer it")
    if entry.needs_costs(flags):
        if models.costs is None:
            raise ValueError(f"--decoder {entry.name} needs Models.costs with these flags")
        check_costs(models.costs)
    return entry.build(models, **flags)


def build_plain(name, models, given=()):
    """Return the step of plain decoding; with the decoder's random numbers if it has `plain`."""
    entry = entry_of(name)
    if entry.plain:
        return entry.plain(models, **entry.settings(dict(given)))
    return partial(autoregressive_step, model=models.target_rows)
