"""Measure what wrappers/transformers_model.py adds to a forward pass of transformers.

    python -m benchmarks door --repeats 40

Both passes read the same tokens after the same cached text. The bare pass is transformers' own
forward and crop; the wrapper finds the tokens to read, checks them, and returns the rows as a
NumPy array. The weights are random, of 124M's shape. The two passes take turns, so that a busy
machine slows both; the ratio is computed for each turn, then the quartiles of all ratios.
"""

from functools import partial

import numpy as np

from lib.markdown import markdown_table
from measure import command
from measure.clock import interleaved, machine, spread
from measure.command import ranged

N_CONTEXT = 200  # tokens in the cache
ROWS = (1, 5)  # a draft step, and a target pass over K = 4 guesses


def random_124m():
    """Return a random GPT-2 of transformers, of the smallest released shape."""
    from transformers import AutoConfig, AutoModelForCausalLM  # here: they take seconds

    return AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2")).eval()


def bare_pass(model, cache, tokens):
    """Run transformers' forward pass over the tokens; leave the cache as it was."""
    import torch

    with torch.inference_mode():
        n = len(tokens)
        # The second argument of GPT-2 is the cache, whose name depends on the version.
        model(torch.tensor([tokens]), cache, use_cache=True, logits_to_keep=n)
        # A negative number removes so many tokens from the end.
        cache.crop(-n)


def all_figures(args):
    """Return {number of rows: milliseconds of both passes, and their ratio}."""
    import torch
    import transformers

    from wrappers.transformers_model import TransformersModel

    theirs = random_124m()
    ids = np.random.default_rng(0).integers(50_257, size=N_CONTEXT + max(ROWS)).tolist()
    rows = {}
    for n in ROWS:
        # The context is in the cache, and the n tokens after it are read in every timed pass.
        text = ids[: N_CONTEXT + n]
        cache = transformers.DynamicCache(config=theirs.config)
        with torch.inference_mode():
            theirs(torch.tensor([text[:N_CONTEXT]]), cache, use_cache=True)
        # The wrapper takes the whole text each time, and computes the rows of the last n tokens
        # again. The first call, which reads the context too, is not timed.
        wrapped_model = TransformersModel(theirs)
        times = interleaved({
            "bare": partial(bare_pass, theirs, cache, text[N_CONTEXT:]),
            "wrapped": partial(wrapped_model, text, n)}, args.repeats)
        bare, wrapped = (1e3 * np.array(times[name]) for name in ("bare", "wrapped"))
        # The ratio is computed for each turn, so a slow turn slows both of its parts.
        rows[n] = {"bare": spread(bare), "wrapped": spread(wrapped),
                   "ratio": spread(wrapped / bare)}
    # PyTorch computes both passes, and every wrapped model names its version.
    library = wrapped_model.library
    versions = f"{library}, transformers {transformers.__version__}"
    return machine(library) | {"versions": versions, "repeats": args.repeats, "rows": rows}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield (f"124M's shape, {N_CONTEXT} tokens in the cache, {figures['versions']}, "
           f"{figures['repeats']} turns. {figures['measured']}")
    rows = [[n, *(ranged(times[name]) for name in ("bare", "wrapped", "ratio"))]
            for n, times in figures["rows"].items()]
    yield markdown_table(["rows", "bare pass, ms (quartiles)", "through the wrapper, ms",
                          "ratio (quartiles)"], rows)


BENCHMARK = command.Benchmark(
    __doc__, all_figures, paragraphs, repeats=40, requirements="requirements/peers.txt")
