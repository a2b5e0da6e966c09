"""Measure batches: tokens per second of 1 .. 16 texts per batch, plain and speculative.

    python -m benchmarks.batch --N 24 --repeats 2 --json benchmarks/results/batch-124M.json

Every batch size writes the same texts, which the compiled product makes equal bit by bit
(variants/shared/batch.py), so only the time can differ. Reading the prompts counts. The weights
are random, of the true shape; guesses are accepted with a given probability (race.py). All
settings take turns.

    n    texts per batch
    K    guesses per round; 0 is plain decoding
"""

import sys
from functools import partial

import numpy as np

from benchmarks import command
from benchmarks.clock import interleaved, machine, spread
from benchmarks.command import number, ranged
from benchmarks.models import load_models, named
from benchmarks.race import simulated
from lib.markdown import markdown_table
from speculative import draft_and_verify
from variants.shared.batch_gpt2 import BatchGPT2

SIZE = "124M"
BATCHES = (1, 2, 4, 8, 16)
KS = range(5)
ALPHA = 0.8  # the probability of acceptance


def written_counts(draft, target, xs, N, n, K):
    """Write all texts with new models; return how many tokens and rounds they took together."""
    from variants.shared.batch import Shared, generate_batch  # here: it needs greenlet

    draft, target = (Shared(BatchGPT2(model.params, model.n_head), turn)
                     for turn, model in enumerate((draft, target)))
    new_step = partial(draft_and_verify, simulated(draft, ALPHA), simulated(target, 1), K)
    jobs = [(x, N, np.random.default_rng((0, i))) for i, x in enumerate(xs)]
    texts = generate_batch(jobs, new_step, n)
    n_tokens = [len(result.ids) for rounds in texts for result in rounds]
    return sum(n_tokens), len(n_tokens)


def all_figures(args):
    """Return all figures."""
    _, draft, target = load_models(SIZE)
    xs = [[i, *range(1, 12)] for i in range(BATCHES[-1])]  # known by their first tokens
    actions = {(n, K): partial(written_counts, draft, target, xs, args.N, n, K)
               for K in KS for n in BATCHES}
    counts = {K: actions[BATCHES[-1], K]() for K in KS}  # the same for every n
    times = interleaved(actions, args.repeats)
    runs = {}
    for K, (n_tokens, _) in counts.items():
        rates = {n: n_tokens / np.array(times[n, K]) for n in BATCHES}
        runs[K] = {n: {"tokens_per_s": spread(rate)} for n, rate in rates.items()}
    per_pass = {K: n_tokens / n_rounds for K, (n_tokens, n_rounds) in counts.items()}
    return machine() | {
        "size": SIZE, "texts": f"{named(len(xs), args.N)}, acceptance {ALPHA}", "runs": runs,
        "tokens_per_pass": per_pass}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield f"{figures['size']}, {figures['texts']}. {figures['measured']}"
    runs = figures["runs"]
    rows = [["tokens per pass", *map(number, figures["tokens_per_pass"].values())]]
    rows += [[f"{n} at once: tokens per second (quartiles)",
              *(ranged(run[n]["tokens_per_s"], "{:.0f}") for run in runs.values())]
             for n in next(iter(runs.values()))]
    yield markdown_table(["", *("plain" if K == "0" else f"K = {K}" for K in runs)], rows)


def main(argv=None):
    parser = command.new_parser("benchmarks.batch", __doc__, repeats=3)
    return command.run("batch", parser.parse_args(argv), all_figures, paragraphs)


if __name__ == "__main__":
    sys.exit(main())
