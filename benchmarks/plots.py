"""The plots, each from one command, each with its data beside the other results.

    python -m benchmarks.plots expected_tokens      # needs requirements/plots.txt
    python -m benchmarks.plots row_cost --repeats 41
    python -m benchmarks.plots all --redraw         # from the data that are there, no measuring

    expected_tokens   tokens per round against alpha: Leviathan et al. (2023) Eq. 1, Fig. 2
    speedup           speed-up against K by Theorem 3.8, and the pair as benchmarks.speed found it
    acceptance        the chance that a guess is accepted, against temperature
    row_cost          what M rows in one pass cost, in units of one row
    best_tree         the best tree and its speed-up, against the cost of a further row
    speed-SIZE        what benchmarks.speed has measured: the costs of passes, and speed-ups
    batch-SIZE        what benchmarks.batch has measured: tokens per second against texts at once

    alpha   the chance that a guess is accepted        c   time of a draft step / of a target row

results/NAME.json holds the data, docs/img/NAME.svg and NAME-dark.svg the picture (drawing.py).
"""

import argparse
import itertools
import json
import os
from pathlib import Path

import numpy as np

from lib.backend.products import matmul
from benchmarks.clock import machine, medians
from benchmarks.drawing import (draw_acceptance, draw_batch, draw_best_tree,
                                draw_expected_tokens, draw_row_cost, draw_speed, draw_speedup)
from benchmarks.models import load
from benchmarks.passes import rows_table
from benchmarks.prompts import OPENINGS
from benchmarks.race import acceptances_by_rank
from benchmarks.speed import KS
from docs.pictures.figures import save
from sampling import with_sampling
from speculative import draft_and_verify, generate
from theory.hardware import GPT2_SIZES
from theory.speedup import acceptance_rate, expected_tokens, walltime_improvement
from variants.best_tree import best_shape, nodes
from variants.shared.tree_gpt2 import TreeGPT2

RESULTS = Path(__file__).parent / "results"
FOLDER = Path(__file__).parent.parent / "docs" / "img"


def all_cores():
    """BLAS on all cores within the block: loading a small model holds it to one."""
    from threadpoolctl import threadpool_limits  # here: --help does without

    return threadpool_limits(os.cpu_count(), user_api="blas")


# ---- the data of each

def expected_tokens_data(args):
    alphas = [i / 50 for i in range(51)]
    return {"alpha": alphas, "tokens": {K: [expected_tokens(alpha, K) for alpha in alphas]
                                        for K in (1, 2, 3, 5, 7, 10)}}


def speedup_data(args):
    """The formula where a pass costs one row; and the pair: timed, and by the formula."""
    Ks = list(range(1, 13))
    curves = {c: {alpha: [float(walltime_improvement(alpha, K, c)) for K in Ks]
                  for alpha in (0.6, 0.7, 0.8, 0.9)} for c in (0.02, 0.2)}
    return {"K": Ks, "curves": curves} | ({} if args.theory_only else {"pair": pair_data()})


def pair_data():
    """The bundled pair at temperatures 0 and 1, as benchmarks.speed has measured it."""
    figures = json.loads((RESULTS / "speed-pair.json").read_text(encoding="utf-8"))
    own = {T: [rows[str(K)] for K in KS] for T, rows in figures["own"]["races"].items()}
    runs = {T: {"measured": [run["speedup"] for run in row],
                "acceptance": [run["acceptance"] for run in row],
                "papers": [walltime_improvement(run["acceptance"], K, run["c"])
                           for K, run in zip(KS, row)],
                "predicted": [run["predicted"] for run in row]} for T, row in own.items()}
    return {"K": list(KS), "c": float(np.median([run["c"] for run in own["0"]])),
            "cost": [run["pass_cost"] for run in own["0"]], "runs": runs}


def acceptance_data(args):
    """alpha of the bundled pair: the shared mass of both distributions where a guess was tested."""
    encoder, draft, target = load("pair")
    points = []
    for temperature in [i / 10 for i in range(0, 16)]:
        models = [with_sampling(model, temperature=temperature) for model in (draft, target)]
        shared = [share for seed, opening in enumerate(OPENINGS)
                  for share in shared_masses(encoder.encode(opening), *models, args.tokens, seed)]
        points.append({"temperature": temperature, "alpha": float(np.mean(shared)),
                       "standard_error": float(np.std(shared) / len(shared) ** 0.5),
                       "places": len(shared)})
    return {"K": 4, "points": points}


def shared_masses(x, draft, target, N, seed):
    """sum(min(p_target, p_draft)) at the positions of one text whose guess was tested."""
    step = draft_and_verify(draft, target, 4)
    for round in generate(x, step, N, np.random.default_rng(seed)):
        for t in range(round.n_tested):
            yield acceptance_rate(round.p_target[t], round.p_draft[t])


def row_cost_data(args):
    """Seconds of M rows: whole passes, and one product by BLAS and by lib/backend/products."""
    series = {"the bundled target": rows_table(load("pair")[2], args.repeats)}
    rows, d = list(series["the bundled target"]), GPT2_SIZES[args.size]["n_embd"]
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((4 * d, d), dtype=np.float32).T for _ in range(12)]
    x, weights = rng.standard_normal((max(rows), d), dtype=np.float32), itertools.cycle(layers)
    for name, product in {"BLAS": np.matmul, "our matmul": matmul}.items():
        actions = {n: lambda n=n, product=product: product(x[:n], next(weights)) for n in rows}
        with all_cores():
            series[f"{d} x {4 * d}, {name}"] = medians(actions, args.repeats)
    if not args.theory_only:
        with all_cores():
            series[f"GPT-2 {args.size}"] = rows_table(load(args.size)[2], args.repeats)
    seconds = {name: list(times.values()) for name, times in series.items()}
    return machine() | {"rows": rows, "seconds": seconds}


def best_tree_data(args):
    """The best tree and chain for each cost of a row, and for the costs that were measured."""
    passes = json.loads((RESULTS / "speed-pair.json").read_text(encoding="utf-8"))["passes"]
    series = {name: [passes[key][str(n)]["median"] for n in range(1, 10)]
              for name, key in (("this machine's NumPy", "numpy_rows_ms"),
                                ("its compiled product", "rows_ms"))}
    measured = {name: [ms / row[0] for ms in row] for name, row in series.items()}
    c, most = passes["draft_ms"]["median"] / series["its compiled product"][0], 16
    costs, temperatures = [i / 100 for i in range(61)], {}
    encoder, *pair = load("pair")
    models = [TreeGPT2(model.params, model.n_head) for model in pair]
    texts = [encoder.encode(opening) for opening in OPENINGS]
    for temperature in (0.0, 1.0):
        ranks, _ = acceptances_by_rank(*models, temperature, texts, args.tokens)
        linear = [[1 + cost * n for n in range(most + 1)] for cost in costs]
        temperatures[temperature] = {
            "acceptances": ranks, "tree": [best_shape(ranks, c, row)[0] for row in linear],
            "chain": [best_shape(ranks[:1], c, row)[0] for row in linear],
            "marks": {name: best_tree(ranks, c, row) for name, row in
                      {**measured, "rows are free": linear[0]}.items()}}
    return {"c": c, "row_cost": costs, "most": most, "temperatures": temperatures}


def best_tree(acceptances, c, pass_cost):
    """The speed-up of the best tree, its shape, and what a further row of its pass costs."""
    gain, shape = best_shape(acceptances, c, pass_cost)
    n = nodes(shape)
    return {"speedup": gain, "shape": shape, "row_cost": (pass_cost[n] - 1) / n if n else 0}


# ---- all of them

PLOTS = {"expected_tokens": (expected_tokens_data, draw_expected_tokens, 4),
         "speedup": (speedup_data, draw_speedup, 4.4),
         "acceptance": (acceptance_data, draw_acceptance, 3.4),
         "row_cost": (row_cost_data, draw_row_cost, 4.2),
         "best_tree": (best_tree_data, draw_best_tree, 5),
         **{f"speed-{size}": (None, draw_speed, 4) for size in ("pair", "124M")},
         **{f"batch-{size}": (None, draw_batch, 4.2) for size in ("pair", "124M")}}


def make(name, args):
    """Data, unless they are to be drawn again as they are, and picture."""
    data, draw, height = PLOTS[name]
    path = args.results / f"{name}.json"
    if data and not args.redraw:
        path.write_text(json.dumps(data(args), indent=1) + "\n", encoding="utf-8")
    save(draw, height, json.loads(path.read_text(encoding="utf-8")), args.folder / f"{name}.svg")


def main(argv=None):
    parser = argparse.ArgumentParser("python -m benchmarks.plots", description="The plots.")
    add = parser.add_argument
    add("name", choices=[*PLOTS, "all"])
    add("--redraw", action="store_true", help="draw the data that are there, measure nothing")
    add("--theory_only", action="store_true", help="speedup: no runs; row_cost: no GPT-2 pass")
    add("--size", choices=GPT2_SIZES, default="124M", help="of row_cost")
    add("--tokens", type=int, default=64, help="new tokens per text")
    add("--repeats", type=int, default=21, help="passes or products of which the median counts")
    add("--results", type=Path, default=RESULTS, help="where the data are")
    add("--folder", type=Path, default=FOLDER, help="where the pictures go")
    args = parser.parse_args(argv)
    for name in PLOTS if args.name == "all" else [args.name]:
        make(name, args)


if __name__ == "__main__":
    main()
