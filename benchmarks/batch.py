"""Measure many texts at once: tokens per second for 1 .. 16 of them, plain and speculative.

    python -m benchmarks.batch --json benchmarks/results/batch-pair.json
    python -m benchmarks.batch --size 124M --repeats 2 --json benchmarks/results/batch-124M.json

The same texts are written for every number at once, and the compiled product makes them equal bit
by bit (variants/shared/batch.py), so only the time can differ. Reading the prompts counts. The pair
writes its own text at a temperature; other sizes have random weights of the true shape, and guesses
accepted with a given probability (race.py). All settings take turns.

    n    texts at once
    K    guesses per round; 0 is plain decoding
"""

import sys
from functools import partial

import numpy as np

from benchmarks import command
from benchmarks.clock import interleaved, machine, spread
from benchmarks.command import about, number, scatter, table
from benchmarks.models import SIZES, load
from benchmarks.prompts import LENGTH, OPENINGS, named
from benchmarks.race import simulated
from sampling import with_sampling
from speculative import draft_and_verify
from variants.registry import whole_from_0
from variants.shared.batch_gpt2 import BatchGPT2


def prompts(encoder, n_texts):
    """Return the openings, again and again; or twelve tokens each, the first a text's own."""
    if encoder:
        return [encoder.encode(OPENINGS[i % len(OPENINGS)]) for i in range(n_texts)]
    return [[i, *range(1, 12)] for i in range(n_texts)]


def write(draft, target, xs, args, n, K):
    """Write all texts, n at once, with new models; return the new tokens and rounds of all."""
    from variants.shared.batch import Shared, generate_batch  # here: it needs greenlet

    models = [Shared(BatchGPT2(model.params, model.n_head), turn)
              for turn, model in enumerate((draft, target))]
    if args.size == "pair":
        models = [with_sampling(model, temperature=args.temperature) for model in models]
    else:
        models = [simulated(models[0], args.alpha), simulated(models[1], 1)]
    jobs = [(x, args.N, np.random.default_rng((0, i))) for i, x in enumerate(xs)]
    rounds = generate_batch(jobs, partial(draft_and_verify, *models, K), n)
    counts = [len(round.ids) for _, round in rounds]
    return sum(counts), len(counts)


def measure(args):
    """Return the figures of one size."""
    encoder, draft, target = load(args.size)
    xs = prompts(encoder, args.texts)
    actions = {(n, K): partial(write, draft, target, xs, args, n, K)
               for K in args.K for n in args.batches}
    counts = {K: actions[args.batches[-1], K]() for K in args.K}  # the same for every n
    times = interleaved(actions, args.repeats, warm=False)
    runs = {K: {n: {"tokens_per_s": spread([counts[K][0] / s for s in times[n, K]]),
                    "times": float(np.median(np.divide(times[args.batches[0], K], times[n, K])))}
                for n in args.batches} for K in args.K}
    how = f"temperature {args.temperature:g}" if encoder else f"acceptance {args.alpha:g}"
    return machine() | {
        "size": args.size, "texts": f"{named(len(xs), args.N)}, {how}", "runs": runs,
        "tokens_per_pass": {K: n_tokens / n_rounds for K, (n_tokens, n_rounds) in counts.items()}}


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"{figures['size']}, {figures['texts']}. {about(figures)}\n"
    runs = figures["runs"]
    rows = [["tokens per pass", *(number(figures["tokens_per_pass"][K]) for K in runs)]]
    for n in next(iter(runs.values())):
        cells = [runs[K][n] for K in runs]
        rows += [[f"{n} at once: tokens per second",
                  *(number(cell["tokens_per_s"]["median"], "{:.0f}") for cell in cells)],
                 [f"{n}: speed-up over one at once", *(number(cell["times"]) for cell in cells)]]
    yield table(["", *(f"K = {K}" if K != "0" else "plain" for K in runs)], rows)
    yield scatter([cell["tokens_per_s"] for run in runs.values() for cell in run.values()]) + "\n"


def main(argv=None):
    parser = command.new_parser("benchmarks.batch", __doc__)
    add = parser.add_argument
    add("--size", choices=SIZES, default="pair")
    add("--batches", type=command.positive, nargs="+", default=[1, 2, 4, 8, 16],
        help="texts at once")
    add("--K", type=whole_from_0, nargs="+", default=[0, 1, 2, 3, 4], help="guesses per round")
    add("--texts", type=command.positive, default=16)
    add("--N", type=command.positive, default=LENGTH, help="new tokens per text")
    add("--repeats", type=command.positive, default=3)
    add("--temperature", type=float, default=1.0, help="of the pair")
    add("--alpha", type=float, default=0.8, help="of other sizes: probability of acceptance")
    return command.run("batch", parser.parse_args(argv), measure, tell)


if __name__ == "__main__":
    sys.exit(main())
