"""Measure batches: tokens per second of 1 .. 16 texts per batch, plain and speculative.

    python -m benchmarks batch --N 24 --repeats 4 --json benchmarks/results/batch-124M.json

Only the time can differ between batch sizes: every size writes the same texts, because the
compiled product makes them equal bit by bit (wrappers/batch.py). The time includes
reading the prompts. The weights are random, of the true shape; guesses are accepted with a
given probability (measure/race.py). All settings take turns.

    n    texts per batch
    K    guesses per round; 0 is plain decoding
"""

from functools import partial

import numpy as np

from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import interleaved, machine, spread
from measure.command import ranged
from measure.models import load_benchmark_pair, named
from measure.race import simulated_builder

SIZE = "124M"
BATCHES = (1, 2, 4, 8, 16)
KS = range(5)
ALPHA = 0.8  # the probability of acceptance


def written_counts(draft, target, xs, N, n, K):
    """Write all texts, n at a time; return how many tokens and rounds they took together."""
    from wrappers.batch import batch_model, generate_batch  # here: it needs greenlet

    # If some texts wait for the draft and some for the target, the model of turn 0 runs first.
    shared = [batch_model(draft, turn=0), batch_model(target, turn=1)]
    build_step = simulated_builder(K, ALPHA)
    # Text i has its own generator, so its draws do not depend on n.
    jobs = [(x, N, np.random.default_rng((0, i))) for i, x in enumerate(xs)]
    texts = generate_batch(jobs, partial(build_step, *shared), n)
    tokens_of_rounds = [len(result.ids) for rounds in texts for result in rounds]
    return sum(tokens_of_rounds), len(tokens_of_rounds)


def all_figures(args):
    """Return all figures."""
    _, draft, target = load_benchmark_pair(SIZE)
    # A prompt begins with the number of its text, on which simulated acceptance depends.
    n_texts = BATCHES[-1]
    xs = [[i, *range(1, 12)] for i in range(n_texts)]
    actions = {(n, K): partial(written_counts, draft, target, xs, args.N, n, K)
               for K in KS for n in BATCHES}
    # Every batch size writes the same texts, so one size is enough for the counts.
    counts = {K: written_counts(draft, target, xs, args.N, n_texts, K) for K in KS}
    times = interleaved(actions, args.repeats)
    runs = {}
    per_pass = {}
    for K, (n_tokens, n_rounds) in counts.items():
        runs[K] = {}
        for n in BATCHES:
            rates = n_tokens / np.array(times[n, K])  # of each repeat
            runs[K][n] = {"tokens_per_s": spread(rates)}
        per_pass[K] = n_tokens / n_rounds
    return machine() | {
        "size": SIZE, "texts": f"{named(len(xs), args.N)}, acceptance {ALPHA}", "runs": runs,
        "tokens_per_pass": per_pass}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield f"{figures['size']}, {figures['texts']}. {figures['measured']}"
    runs = figures["runs"]  # {K: {texts per batch: figures}}
    # All K have the same batch sizes, so the first K has them all.
    batches = next(iter(runs.values())).keys()
    rows = [["tokens per pass", *map(shown, figures["tokens_per_pass"].values())]]
    for n in batches:
        cells = [ranged(run[n]["tokens_per_s"], "{:.0f}") for run in runs.values()]
        rows.append([f"{n} at once: tokens per second (quartiles)", *cells])
    names = ["plain" if K == "0" else f"K = {K}" for K in runs]
    yield markdown_table(["", *names], rows)


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=3)
