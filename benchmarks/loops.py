"""Compare our loop with transformers' assisted generation, over the same models of transformers.

    python -m benchmarks.loops --N 48 --json benchmarks/results/loops.json
    python -m benchmarks.loops --size 124M --N 48 --json benchmarks/results/loops-124M.json

    here           speculative.py over wrappers/transformers_model.py
    transformers   its generate, with the draft as the assistant
    ratio          tokens per second here / tokens per second of transformers

Both loops call the same two PyTorch models with K = 4. They take turns on every text, so that a
busy machine slows both, and the ratio is computed for each repeat. Each text starts with empty
caches. At temperature 1 the loops draw different texts, so tokens per pass differ a little too;
the ratio of milliseconds per round does not depend on this luck. A round is K draft passes, a
target pass, and all that the loop does in between.
"""

import sys
import time

import numpy as np

from benchmarks import command
from benchmarks.command import number, ranged
from benchmarks.engines import (
    PER_ROUND,
    generate_of,
    n_threads,
    ours,
    texts_and_pairs,
    to_transformers,
)
from benchmarks.models import SIZES, named
from demo.clock import machine
from lib.markdown import markdown_table

TEMPERATURES = (0.0, 1.0)
LOOPS = ("here", "transformers")


def loops_over(draft, target):
    """Return {name: write} of both loops, which call the same two models of transformers."""
    import torch

    from wrappers.transformers_model import TransformersModel

    # As many threads as our products, in both loops.
    torch.set_num_threads(n_threads(target))
    small, large = to_transformers(draft), to_transformers(target)
    here = ours(None, TransformersModel(small), TransformersModel(large))
    return dict(zip(LOOPS, (here, generate_of(small, large))))


def totals_of_race(loops, xs, temperature, speculative, args):
    """Return {name: [seconds, rounds] of each repeat} [repeats, 2]; the loops take turns."""
    totals = {name: np.zeros((args.repeats, 2)) for name in loops}
    for write in loops.values():
        write(xs[0], min(args.N, 8), temperature, 0, speculative)  # warm-up
    # The loops write the same prompt one after the other, so they meet the same machine.
    for repeat in range(args.repeats):
        for i, x in enumerate(xs):
            seed = repeat * len(xs) + i  # a different text of this prompt in each repeat
            for name, write in loops.items():
                start = time.perf_counter()
                _, n_rounds = write(x, args.N, temperature, seed, speculative)
                totals[name][repeat] += time.perf_counter() - start, n_rounds
    return totals


def loop_row(totals, n_tokens):
    """Return one row of the table from the totals of every repeat."""
    rates, per_round = {}, {}  # each array [repeats]
    row = {"rates": {}, "tokens/pass": {}}
    for name, total in totals.items():
        seconds, n_rounds = total.T
        rates[name] = n_tokens / seconds
        per_round[name] = seconds / n_rounds
        row["rates"][name] = median_and_range(rates[name])
        row["tokens/pass"][name] = len(total) * n_tokens / n_rounds.sum()
    here, theirs = LOOPS
    # Both ratios are above 1 where our loop is faster.
    row["ratio"] = median_and_range(rates[here] / rates[theirs])
    row["ratio of a round"] = median_and_range(per_round[theirs] / per_round[here])
    return row


def median_and_range(values):
    """Return the median, the smallest and the largest of the repeats."""
    return {"median": float(np.median(values)), "low": min(values), "high": max(values)}


def all_figures(args):
    """Return the figures of one size."""
    import torch
    import transformers

    _, xs, pairs = texts_and_pairs(args.size)
    rows = {}
    for end, pair in pairs.items():
        loops = loops_over(*pair)
        for temperature in TEMPERATURES:
            for kind in ("plain", "speculative"):
                totals = totals_of_race(loops, xs, temperature, kind == "speculative", args)
                name = f"{kind}, temperature {temperature:g}{end}"
                rows[name] = loop_row(totals, args.N * len(xs))
    versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
    return machine() | {"size": args.size, "K": PER_ROUND, "texts": named(len(xs), args.N),
                        "repeats": args.repeats, "versions": versions, "rows": rows}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield (f"{figures['size']}, K = {figures['K']}, {figures['texts']}, {figures['versions']}; "
           f"median and range of {figures['repeats']} repeats. {figures['measured']}")
    table = []
    for name, row in figures["rows"].items():
        rates = [ranged(row["rates"][loop], "{:.1f}") for loop in LOOPS]
        per_pass = [number(row["tokens/pass"][loop]) for loop in LOOPS]
        ratios = [ranged(row[key]) for key in ("ratio", "ratio of a round")]
        table.append([name, *rates, *per_pass, *ratios])
    yield markdown_table(["texts", *(f"{loop}, tokens/s" for loop in LOOPS),
                          *(f"{loop}, tokens/pass" for loop in LOOPS), "ratio of tokens/s",
                          "ratio of time per round"], table)


def main(argv=None):
    parser = command.new_parser("benchmarks.loops", __doc__, repeats=5)
    parser.add_argument("--size", choices=SIZES, default="pair", help="models")
    return command.run("loops", parser.parse_args(argv), all_figures, paragraphs,
                       "requirements/peers.txt")


if __name__ == "__main__":
    sys.exit(main())
