"""Compare our loop with transformers' assisted generation, over the same two models.

    python -m benchmarks loops --N 48 --json benchmarks/results/loops.json
    python -m benchmarks loops --size 124M --N 48 --json benchmarks/results/loops-124M.json

    here           speculative.py over wrappers/transformers_model.py
    transformers   its generate, with the draft as the assistant
    ratio          tokens per second here / tokens per second of transformers

Both loops call the same two PyTorch models with K = 4. They take turns on every text, so that a
busy machine slows both, and the ratio is computed for each repeat. Each text starts with empty
caches. At temperature 1 the loops draw different texts, so tokens per pass differ a little too;
the ratio of milliseconds per round does not depend on this luck. A round is K draft passes, a
target pass, and all that the loop does in between.
"""

import time

import numpy as np

from benchmarks.engines import (
    PER_ROUND,
    generate_of,
    n_threads,
    our_engine,
    texts_and_pairs,
    to_transformers,
)
from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import machine
from measure.command import ranged
from measure.models import SIZES, named, size_in_words

TEMPERATURES = (0.0, 1.0)
LOOPS = ("here", "transformers")


def loops_over(draft, target):
    """Return {name: write} of both loops, which call the same two models of transformers."""
    import torch

    from wrappers.transformers_model import TransformersModel

    # Both loops have as many threads as our products would have.
    torch.set_num_threads(n_threads(target))
    small = to_transformers(draft)
    large = to_transformers(target)
    # The wrapper copies no model, so both loops have these two.
    here = our_engine(None, TransformersModel(small), TransformersModel(large))
    theirs = generate_of(small, large)
    return dict(zip(LOOPS, (here, theirs)))


def totals_of_race(loops, xs, temperature, speculative, args):
    """Return {name: an array of (seconds, rounds) per repeat}; the loops take turns."""
    totals = {name: np.zeros((args.repeats, 2)) for name in loops}
    # A short text of each loop is not timed, because first passes are slow.
    for write in loops.values():
        write(xs[0], min(args.N, 8), temperature, 0, speculative)
    for repeat in range(args.repeats):
        for i, x in enumerate(xs):
            # Each repeat of a prompt has its own seed, so it writes a different text.
            seed = repeat * len(xs) + i
            # The loops write this text one after the other, so a slow minute slows both.
            for name, write in loops.items():
                start = time.perf_counter()
                _, n_rounds = write(x, args.N, temperature, seed, speculative)
                seconds = time.perf_counter() - start
                # Adds to both columns of this repeat's row.
                totals[name][repeat] += [seconds, n_rounds]
    return totals


def loop_row(totals, n_tokens):
    """Return one row of the table from the totals; `n_tokens` is the tokens of one repeat."""
    rates = {}  # {name: tokens per second of each repeat}
    per_round = {}  # {name: seconds per round of each repeat}
    row = {"rates": {}, "tokens/pass": {}}
    for name, total in totals.items():
        seconds, n_rounds = total.T  # the columns of [repeats, 2]
        rates[name] = n_tokens / seconds
        per_round[name] = seconds / n_rounds
        row["rates"][name] = median_and_range(rates[name])
        n_repeats = len(total)
        row["tokens/pass"][name] = n_repeats * n_tokens / n_rounds.sum()
    here, theirs = LOOPS
    # The second ratio is of seconds, so it is turned over: both ratios are above 1 if our loop
    # is faster.
    row["ratio"] = median_and_range(rates[here] / rates[theirs])
    row["ratio of a round"] = median_and_range(per_round[theirs] / per_round[here])
    return row


def median_and_range(values):
    """Return the median, the smallest and the largest of the repeats."""
    return {"median": float(np.median(values)), "low": min(values), "high": max(values)}


def all_figures(args):
    """Return the figures of one size."""
    import transformers

    from wrappers.transformers_model import pytorch_name

    _, xs, pairs = texts_and_pairs(args.size)
    rows = {}
    # `end` is the end of a row's name: ", all accepted", or nothing.
    for end, pair in pairs.items():
        loops = loops_over(*pair)
        for temperature in TEMPERATURES:
            for kind in ("plain", "speculative"):
                totals = totals_of_race(loops, xs, temperature, kind == "speculative", args)
                name = f"{kind}, temperature {temperature:g}{end}"
                rows[name] = loop_row(totals, args.N * len(xs))
    library = pytorch_name()  # it computes the passes of both loops
    versions = f"{library}, transformers {transformers.__version__}"
    return machine(library) | {
        "size": args.size, "K": PER_ROUND, "texts": named(len(xs), args.N),
        "repeats": args.repeats, "versions": versions, "rows": rows}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    models = size_in_words(figures["size"])
    yield (f"{models}, K = {figures['K']}, {figures['texts']}, {figures['versions']}; "
           f"median and range of {figures['repeats']} repeats. {figures['measured']}")
    table = []
    for name, row in figures["rows"].items():
        # Each list has a cell for our loop, and then one for transformers'.
        rates = [ranged(row["rates"][loop], "{:.1f}") for loop in LOOPS]
        per_pass = [shown(row["tokens/pass"][loop]) for loop in LOOPS]
        ratios = [ranged(row[key]) for key in ("ratio", "ratio of a round")]
        table.append([name, *rates, *per_pass, *ratios])
    yield markdown_table(["texts", *(f"{loop}, tokens/s" for loop in LOOPS),
                          *(f"{loop}, tokens/pass" for loop in LOOPS), "ratio of tokens/s",
                          "ratio of time per round (range)"], table)


def add_flags(parser):
    """Add the flags of this table."""
    parser.add_argument("--size", choices=SIZES, default="pair",
                        help="size of the models, or the bundled pair")


BENCHMARK = command.Benchmark(
    __doc__, all_figures, paragraphs, repeats=5, add_flags=add_flags,
    requirements="requirements/peers.txt")
