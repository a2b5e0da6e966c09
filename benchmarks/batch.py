"""Many texts at once: tokens a second for 1, 2, 4, 8, 16 of them, plain and speculative.

    python -m benchmarks.batch --size pair --json benchmarks/results/batch-pair.json --plot
    python -m benchmarks.batch --size 124M --json benchmarks/results/batch-124M.json
    python -m benchmarks.batch --show benchmarks/results/batch-pair.json  # the table, no measuring

The same texts are written for every number at once, and with the compiled product they are the very
same (variants/shared/batch.py), so only the time can differ. Reading the prompts counts. The pair writes
its own text at a temperature; other sizes have random weights of the true shape, and guesses that
are kept with a chance that is set (race.py). All settings take turns, and the whole is repeated.

    n            texts at once
    K            guesses per round; 0 is plain decoding
    predicted    tokens / (every prompt's pass + rounds / n * the passes of a round), with passes
                 timed for one text: n (K + 1) rows of the target, in the groups of batch_gpt2.py,
                 and K times n rows of the draft. What is missing: attention text by text, sampling
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.clock import interleaved, machine, medians, spread
from docs.pictures.figures import below, colour, save
from docs.pictures.palette import MARKERS
from benchmarks.passes import load
from benchmarks.plots import FOLDER
from benchmarks.prompts import OPENINGS
from benchmarks.race import simulated
from benchmarks.tables import number, table
from gpt2 import GPT2
from sampling import with_sampling
from speculative import draft_and_verify
from theory.hardware import GPT2_SIZES
from utils import MODELS_DIR
from variants.shared.batch import Shared, generate_batch
from variants.shared.batch_gpt2 import BatchGPT2, Part, groups, most_rows


# ---- what is written

def prompts(encoder, target, n_texts):
    """Openings of stories, again and again; or twelve random tokens each."""
    if encoder:
        return [encoder.encode(OPENINGS[i % len(OPENINGS)]) for i in range(n_texts)]
    rng = np.random.default_rng(0)
    return rng.integers(0, target.n_vocab, (n_texts, 12)).tolist()


def batch_models(draft, target, encoder, args):
    """New models of probabilities for the steps of many texts, which have read nothing."""
    models = [Shared(BatchGPT2(model.params, model.n_head), turn)
              for turn, model in enumerate((draft, target))]
    if encoder:
        return [with_sampling(model, temperature=args.temperature) for model in models]
    return [simulated(models[0], args.alpha), simulated(models[1], 1)]


def write(new_models, xs, N, n, K):
    """All rounds of all texts, n at once: how many new tokens, and how many rounds."""
    jobs = [(x, N, np.random.default_rng((0, i))) for i, x in enumerate(xs)]
    rounds = generate_batch(jobs, partial(draft_and_verify, *new_models(), K), n)
    sizes = [len(round.ids) for _, round in rounds]
    return sum(sizes), len(sizes)


# ---- what it should take

def group_sizes(model, n_texts, n_rows):
    """The rows of the passes into which so many texts, of so many rows each, are put."""
    parts = [Part(None, range(n_rows), 0, 1)] * n_texts
    return [sum(part.n_new for part in group)
            for group in groups(parts, most_rows(model.params["wte"]))]


def pass_seconds(model, rows, repeats, context=32):
    """{M: median seconds} of passes over M rows of one text, after some tokens."""
    def read(n):  # the tokens differ from what is remembered, so all n are computed
        return model(prompt + rng.integers(0, model.n_vocab, n).tolist(), n)

    rng = np.random.default_rng(0)
    prompt = [1] * min(context, model.n_ctx - max(rows))
    return medians({n: partial(read, n) for n in sorted(rows)}, repeats)


def pass_costs(draft, target, xs, args):
    """Seconds of all passes that a prediction wants: (target's, draft's, those of all prompts)."""
    wanted = lambda model, row_counts: {size for n in args.batches for n_rows in row_counts
                                        for size in group_sizes(model, n, n_rows)}
    rows = pass_seconds(target, wanted(target, [K + 1 for K in args.K]), args.repeats)
    draft_rows = pass_seconds(draft, wanted(draft, [1]), args.repeats)
    fresh = {model: lambda model=model: [GPT2(model.params, model.n_head)(x) for x in xs]
             for model in (draft, target)}
    return rows, draft_rows, medians(fresh, min(3, args.repeats))


def predict(n, K, counts, draft, target, costs):
    """Tokens a second by the passes alone."""
    (n_tokens, n_rounds), (rows, draft_rows, reading) = counts, costs
    round = sum(rows[size] for size in group_sizes(target, n, K + 1))
    round += K * sum(draft_rows[size] for size in group_sizes(draft, n, 1))
    prompts = reading[target] + (reading[draft] if K else 0)
    return n_tokens / (prompts + n_rounds / n * round)


def measure(args):
    """The figures of one size."""
    encoder, draft, target = load(args.size, args.models_dir)
    xs = prompts(encoder, target, args.texts)
    new_models = partial(batch_models, draft, target, encoder, args)
    actions = {(n, K): partial(write, new_models, xs, args.tokens, n, K)
               for K in args.K for n in args.batches}
    counts = {K: actions[args.batches[-1], K]() for K in args.K}  # the same for every n
    costs = pass_costs(draft, target, xs, args)
    times = interleaved(actions, args.repeats, warm=False)
    runs = {K: {n: {"tokens_per_s": spread([counts[K][0] / s for s in times[n, K]]),
                    "times": float(np.median(np.divide(times[args.batches[0], K], times[n, K]))),
                    "predicted": predict(n, K, counts[K], draft, target, costs)}
                for n in args.batches} for K in args.K}
    kept = {"temperature": args.temperature} if encoder else {"alpha": args.alpha}
    figures = machine() | kept | {
        "size": args.size, "texts": args.texts, "tokens": args.tokens, "repeats": args.repeats,
        "tokens_per_pass": {K: n_tokens / n_rounds for K, (n_tokens, n_rounds) in counts.items()},
        "runs": runs}
    return json.loads(json.dumps(figures))  # keys as a file has them


# ---- what is told

def tell(figures):
    """The paragraphs of a file."""
    how = (f"temperature {figures['temperature']:g}" if "temperature" in figures
           else f"guesses kept with chance {figures['alpha']:g}")
    yield (f"{figures['size']}: {figures['texts']} texts of {figures['tokens']} new tokens, {how}; "
           f"{figures['cores']} cores, few rows by {figures['product']}, NumPy "
           f"{figures['numpy']}\n")
    runs = figures["runs"]
    heads = [f"K = {K}" if K != "0" else "plain" for K in runs]
    rows = [["tokens per pass", *(number(figures["tokens_per_pass"][K]) for K in runs)]]
    for n in next(iter(runs.values())):
        cells = [runs[K][n] for K in runs]
        rows += [[f"{n} at once: tokens per second",
                  *(number(cell["tokens_per_s"]["median"], "{:.0f}") for cell in cells)],
                 [f"{n}: predicted", *(number(cell["predicted"], "{:.0f}") for cell in cells)],
                 [f"{n}: times one at once", *(number(cell["times"]) for cell in cells)]]
    yield table(["", *heads], rows)
    speeds = [cell["tokens_per_s"] for run in runs.values() for cell in run.values()]
    widths = [100 * (speed["high"] - speed["low"]) / speed["median"] for speed in speeds]
    yield (f"Quartiles of the tokens per second lie {np.median(widths):.0f} % of the median apart, "
           f"at most {max(widths):.0f} %.\n")


def draw(figure, figures):
    """Tokens a second against the number of texts: points as measured, lines as predicted."""
    axes = figure.subplots()
    for i, (K, run) in enumerate(figures["runs"].items()):
        n = list(map(int, run))
        axes.plot(n, [cell["tokens_per_s"]["median"] for cell in run.values()], color=colour(i),
                  marker=MARKERS[i % len(MARKERS)], linestyle="",
                  label=f"K = {K}" if K != "0" else "plain")
        axes.plot(n, [cell["predicted"] for cell in run.values()], color=colour(i), marker="")
    axes.set(xlabel="texts at once", ylabel="tokens per second, all texts together", ylim=(0, None),
             xticks=n, title=f"{figures['size']}, {figures['cores']} cores (lines: predicted from "
             "the passes alone)")
    below(axes, ncols=5)


# ---- the command

def parse_args(argv):
    parser = argparse.ArgumentParser("python -m benchmarks.batch",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--size", choices=["pair", *GPT2_SIZES], default="pair")
    add("--models_dir", type=Path, default=MODELS_DIR, help="where released weights are, if any")
    add("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="texts at once")
    add("--K", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="guesses per round")
    add("--texts", type=int, default=16)
    add("--tokens", type=int, default=48, help="new tokens a text")
    add("--repeats", type=int, default=5)
    add("--temperature", type=float, default=1.0, help="of the pair")
    add("--alpha", type=float, default=0.8, help="of other sizes: the chance that guesses are kept")
    add("--json", type=Path, metavar="FILE", help="write the figures there as well")
    add("--plot", action="store_true",
        help="draw docs/img/batch-SIZE.svg (requirements/plots.txt)")
    add("--show", type=Path, metavar="FILE", help="tell the figures of a file, measure nothing")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    figures = (json.loads(args.show.read_text(encoding="utf-8")) if args.show
               else measure(args))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        save(draw, 4.2, figures, FOLDER / f"batch-{figures['size']}.svg")
    print("\n".join(tell(figures)))


if __name__ == "__main__":
    main()
