"""The pictures, each from one command, each with its data beside it.

    python -m benchmarks.plots expected_tokens      # needs requirements-plots.txt
    python -m benchmarks.plots row_cost --repeats 41
    python -m benchmarks.plots all --redraw         # from the data in docs/plots/, no measuring

    expected_tokens   ids a round against alpha: Leviathan et al. (2023) Eq. 1, Fig. 2
    speedup           speed-up against K by Theorem 3.8, and the pair as benchmarks.speed found it
    acceptance        the chance that a guess is kept, against temperature
    roofline          arithmetic intensity of each step of a layer, and the speed it reaches here
    row_cost          what M rows in one pass cost, in units of one row

    alpha   the chance that a guess is accepted        c   time of a draft step / of a target row
    roof    the FLOP/s that arithmetic and memory allow: min(peak, bandwidth * intensity)

NAME.json holds the data, NAME.svg the picture, 800 pixels wide. `benchmarks.speed --plot` draws its
own figures with `draw_speed` here.
"""

import argparse
import itertools
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.clock import bandwidth, machine, medians
from benchmarks.passes import load, rows_table
from benchmarks.race import KS, OPENINGS
from gpt2 import matmul
from sampling import warped
from speculative import generate, speculative_step
from theory import (GPT2_SIZES, acceptance_rate, expected_tokens, intensity_table,
                    walltime_improvement)

FOLDER = Path(__file__).parent.parent / "docs" / "plots"
COLOURS = ["#0a55a8", "#a85a00", "#176b30", "#76349c", "#b3261e", "#575d66"]
MARKERS = ["o", "s", "^", "D", "v", "P"]


def all_cores():
    """BLAS on all cores within the block: loading a small model holds it to one (utils.py)."""
    return threadpool_limits(os.cpu_count(), user_api="blas")


# ---- expected_tokens

def expected_tokens_data(args):
    alphas = [i / 50 for i in range(51)]
    return {"alpha": alphas, "tokens": {K: [expected_tokens(alpha, K) for alpha in alphas]
                                        for K in (1, 2, 3, 5, 7, 10)}}


def draw_expected_tokens(figure, data):
    axes = figure.subplots()
    for i, (K, tokens) in enumerate(data["tokens"].items()):
        axes.plot(data["alpha"], tokens, color=COLOURS[i], marker=MARKERS[i], markevery=10)
        axes.annotate(f"K = {K}", (1, tokens[-1]), (6, -4), textcoords="offset points",
                      color=COLOURS[i])
    axes.set(xlabel="alpha, the chance that a guess is accepted", xlim=(0, 1.1), ylim=(0, 11.5),
             ylabel="ids a round", title="Ids for one pass of the target, (1 - alpha^(K+1)) / "
             "(1 - alpha)", xticks=np.linspace(0, 1, 6))


# ---- speedup

def speedup_data(args):
    """The formula where a pass costs one row; and the pair: by the clock, by the formula."""
    Ks = list(range(1, 13))
    curves = {c: {alpha: [float(walltime_improvement(alpha, K, c)) for K in Ks]
                  for alpha in (0.6, 0.7, 0.8, 0.9)} for c in (0.02, 0.2)}
    return {"K": Ks, "curves": curves} | ({} if args.theory_only else {"pair": pair_data()})


def pair_data():
    """The bundled pair at temperatures 0 and 1, as benchmarks.speed has measured it."""
    figures = json.loads((FOLDER.parent / "speed-pair.json").read_text(encoding="utf-8"))
    own = {T: [table[str(K)] for K in KS] for T, table in figures["own"].items()}
    runs = {T: {"measured": [run["speedup"] for run in row],
                "acceptance": [run["acceptance"] for run in row],
                "papers": [walltime_improvement(run["acceptance"], K, run["c"])
                           for K, run in zip(KS, row)],
                "predicted": [run["predicted"] for run in row]} for T, row in own.items()}
    return {"K": list(KS), "c": float(np.median([run["c"] for run in own["0"]])),
            "cost": [run["pass_cost"] for run in own["0"]], "runs": runs}


def draw_speedup(figure, data):
    panels = figure.subplots(1, 3 if "pair" in data else 2)
    for axes, (c, curves) in zip(panels, data["curves"].items()):
        for i, (alpha, gains) in enumerate(curves.items()):
            axes.plot(data["K"], gains, color=COLOURS[i], marker=MARKERS[i], markersize=4,
                      label=f"alpha = {alpha}")
        axes.set(xlabel="K", title=f"c = {c}, a pass costs a row", ylim=(0, 6.5))
    panels[0].set_ylabel("times faster than plain decoding")
    panels[1].legend(loc="upper right")
    if "pair" in data:
        draw_pair(panels[2], data["pair"])
    for axes in panels:
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(1, 13, 2))


def draw_pair(axes, pair):
    for i, (T, run) in enumerate(pair["runs"].items()):
        axes.plot(pair["K"], run["measured"], MARKERS[i], color=COLOURS[i],
                  label=f"measured, temperature {T}")
        axes.plot(pair["K"], run["predicted"], color=COLOURS[i], label="the formula, K + 1 rows")
        axes.plot(pair["K"], run["papers"], ":", color=COLOURS[i], label="a pass costs a row")
    most = max(max(run[key]) for run in pair["runs"].values() for key in ("measured", "papers"))
    axes.set(xlabel="K", title=f"the bundled pair, c = {pair['c']:.2f}", ylim=(0, 1.7 * most))
    axes.legend(fontsize=8, loc="upper center")


# ---- acceptance

def acceptance_data(args):
    """alpha of the bundled pair: the shared mass of the two laws at every place examined."""
    encoder, draft, target = load("pair")
    points = []
    for temperature in [i / 10 for i in range(0, 16)]:
        models = [warped(model, temperature=temperature) for model in (draft, target)]
        shared = [share for seed, opening in enumerate(OPENINGS)
                  for share in shared_masses(encoder.encode(opening), *models, args.tokens, seed)]
        points.append({"temperature": temperature, "alpha": float(np.mean(shared)),
                       "standard_error": float(np.std(shared) / len(shared) ** 0.5),
                       "places": len(shared)})
    return {"K": 4, "points": points}


def shared_masses(x, draft, target, N, seed):
    """sum(min(p_target, p_draft)) at the places of one text whose guess was put to the test."""
    step = partial(speculative_step, draft=draft, target=target, K=4)
    for round in generate(x, step, N, np.random.default_rng(seed)):
        for t in range(round.n_examined):
            yield acceptance_rate(round.p_target[t], round.p_draft[t])


def draw_acceptance(figure, data):
    axes = figure.subplots()
    T, alpha, error = ([point[key] for point in data["points"]]
                       for key in ("temperature", "alpha", "standard_error"))
    axes.errorbar(T, alpha, 2 * np.array(error), color=COLOURS[0], marker="o", capsize=3)
    axes.set(xlabel="temperature, of draft and target", ylabel="alpha", ylim=(0, 1),
             title="The bundled pair: the chance that a guess is kept (bars: two standard errors)")


# ---- roofline

def peak():
    """The FLOP/s that the cores reach together on large products: the best of some."""
    n, cores = 1024, os.cpu_count()
    a = np.ones((n, n), np.float32)

    def seconds(pool):
        start = time.perf_counter()
        list(pool.map(lambda _: a @ a, range(2 * cores)))
        return time.perf_counter() - start

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(cores) as pool:
        return 2 * cores * 2 * n**3 / min(seconds(pool) for _ in range(9))


def products(n_new, n_past, n_embd, n_head):
    """{step: a function that does it once}, each time with weights that are not in the cache."""
    rng, n_seq, d_head = np.random.default_rng(0), n_past + n_new, n_embd // n_head
    some = lambda *shape: rng.standard_normal(shape, dtype=np.float32)

    def dense(n_in, n_out):
        x, weights = some(n_new, n_in), itertools.cycle([some(n_out, n_in).T for _ in range(12)])
        return lambda: matmul(x, next(weights))

    def batched(left, right):
        a, layers = some(*left), itertools.cycle([some(*right) for _ in range(12)])
        return lambda: a @ next(layers)

    return {
        "Q = x W_Q": dense(n_embd, n_embd),
        "Score = softmax(Q K^T / sqrt(H))": batched((n_head, n_new, d_head),
                                                    (n_head, d_head, n_seq)),
        "Z = Score V": batched((n_head, n_new, n_seq), (n_head, n_seq, d_head)),
        "A = Out W_1": dense(n_embd, 4 * n_embd),
        "x' = A' W_2": dense(4 * n_embd, n_embd),
    }


def roofline_data(args):
    hparams = GPT2_SIZES[args.size]
    n_embd, n_head = hparams["n_embd"], hparams["n_head"]
    passes = {"one row": (1, args.n_seq), "K + 1 = 5 rows": (5, args.n_seq),
              f"prefill of {args.n_seq}": (args.n_seq, 0)}
    points = []
    for name, (n_new, n_past) in passes.items():
        steps = {row.step: row for row in intensity_table(n_new, n_past, n_embd, n_head, n_bytes=4)}
        with all_cores():
            times = medians(products(n_new, n_past, n_embd, n_head), args.repeats)
        points += [{"pass": name, "step": step, "intensity": steps[step].intensity,
                    "flop_per_s": steps[step].flops / seconds} for step, seconds in times.items()]
    return machine() | {"size": args.size, "n_seq": args.n_seq, "peak_flop_per_s": peak(),
                        "bandwidth_bytes_per_s": bandwidth(), "points": points}


def draw_roofline(figure, data):
    axes, names = figure.subplots(), list(dict.fromkeys(p["pass"] for p in data["points"]))
    top, read = data["peak_flop_per_s"] / 1e9, data["bandwidth_bytes_per_s"] / 1e9
    intensity = np.geomspace(0.1, 1000, 200)
    axes.plot(intensity, np.minimum(top, read * intensity), color="black")
    axes.annotate(f"{read:.0f} GB/s", (0.2, 0.2 * read), (-48, 6), textcoords="offset points")
    axes.annotate(f"{top:.0f} GFLOP/s", (200, top), (0, 6), textcoords="offset points")
    steps = list(dict.fromkeys(p["step"] for p in data["points"]))
    for p in data["points"]:
        axes.plot(p["intensity"], p["flop_per_s"] / 1e9, MARKERS[names.index(p["pass"])],
                  color=COLOURS[steps.index(p["step"])])
    for i, name in enumerate(names):
        axes.plot([], [], MARKERS[i], color="black", fillstyle="none", label=name)
    for i, step in enumerate(steps):
        axes.plot([], [], "_", color=COLOURS[i], markersize=14, markeredgewidth=4,
                  label=step.replace("softmax(Q K^T / sqrt(H))", "Q K^T"))
    axes.legend(loc="lower right", ncols=2)
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte, float32", ylabel="GFLOP/s reached",
             ylim=(min(1, 0.1 * read), 4 * top))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_title(f"One layer of GPT-2 {data['size']}, {data['n_seq']} ids before it, "
                   f"{data['cores']} cores")


# ---- row_cost

def row_cost_data(args):
    """Seconds of M rows: whole passes, and one product as BLAS and as gpt2.matmul do it."""
    series = {"the bundled target": rows_table(load("pair")[2], args.repeats)}
    rows, d = list(series["the bundled target"]), GPT2_SIZES[args.size]["n_embd"]
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((4 * d, d), dtype=np.float32).T for _ in range(12)]
    x, weights = rng.standard_normal((max(rows), d), dtype=np.float32), itertools.cycle(layers)
    for name, product in {"BLAS": np.matmul, "gpt2.matmul": matmul}.items():
        actions = {n: lambda n=n: product(x[:n], next(weights)) for n in rows}
        with all_cores():
            series[f"{d} x {4 * d}, {name}"] = medians(actions, args.repeats)
    if not args.theory_only:
        with all_cores():
            series[f"GPT-2 {args.size}"] = rows_table(load(args.size)[2], args.repeats)
    seconds = {name: list(times.values()) for name, times in series.items()}
    return machine() | {"rows": rows, "seconds": seconds}


def draw_row_cost(figure, data):
    axes = figure.subplots()
    for i, (name, seconds) in enumerate(data["seconds"].items()):
        axes.plot(data["rows"], np.array(seconds) / seconds[0], color=COLOURS[i], marker=MARKERS[i],
                  label=name)
    axes.axhline(1, color="black", linewidth=0.8, linestyle=":", label="the papers")
    axes.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"What M rows cost, {data['cores']} cores", xticks=data["rows"])
    axes.legend()


# ---- the figures of benchmarks.speed

def draw_speed(figure, data):
    """What M rows cost; speed-up against K, measured and predicted: simulated, and own."""
    left, *panels = figure.subplots(1, 3 if "own" in data else 2)
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    left.plot(list(rows), np.array(list(rows.values())) / rows[1], color=COLOURS[0], marker="o")
    left.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"{data['size']}, {data['cores']} cores", xticks=list(rows))
    named = [("simulated", "acceptance set", "alpha = {}"), ("own", "own text", "temperature {}")]
    for axes, (part, title, name) in zip(panels, named):
        for i, (key, race) in enumerate(data[part].items()):
            draw_race(axes, race, name.format(key), COLOURS[i], MARKERS[i])
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(xlabel="K", title=f"{title} (lines: predicted)", xticks=range(1, 9))
        axes.legend(fontsize=8)
    panels[0].set_ylabel("times faster than plain decoding")


def draw_race(axes, race, name, colour, marker):
    Ks = [K for K, row in race.items() if "predicted" in row]
    axes.plot(list(map(int, Ks)), [race[K]["speedup"] for K in Ks], marker, color=colour,
              label=name)
    axes.plot(list(map(int, Ks)), [race[K]["predicted"] for K in Ks], color=colour)


def draw_speed_of(figures):
    """speed-SIZE.svg of the figures that benchmarks.speed measured or read."""
    save(draw_speed, 3.8, figures, FOLDER / f"speed-{figures['size']}.svg")


# ---- all of them

PLOTS = {"expected_tokens": (expected_tokens_data, draw_expected_tokens, 4.2),
         "speedup": (speedup_data, draw_speedup, 3.8),
         "acceptance": (acceptance_data, draw_acceptance, 3.6),
         "roofline": (roofline_data, draw_roofline, 4.8),
         "row_cost": (row_cost_data, draw_row_cost, 4.2)}


def save(draw, height, data, path):
    """The picture of the data in an SVG file; the same data give the same bytes."""
    import matplotlib  # optional: requirements-plots.txt
    from matplotlib.figure import Figure

    style = {"svg.hashsalt": "", "font.size": 10, "axes.grid": True, "grid.alpha": 0.3,
             "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(600 / 72, height), layout="constrained")
        draw(figure, data)
        figure.savefig(path, metadata={"Date": None})


def make(name, args):
    """Data, unless they are to be drawn again as they are, and picture."""
    path = args.folder / f"{name}.json"
    if not args.redraw:
        args.folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(PLOTS[name][0](args), indent=1) + "\n", encoding="utf-8")
    _, draw, height = PLOTS[name]
    save(draw, height, json.loads(path.read_text(encoding="utf-8")), path.with_suffix(".svg"))


def main(argv=None):
    parser = argparse.ArgumentParser("python -m benchmarks.plots", description="The pictures.")
    add = parser.add_argument
    add("name", choices=[*PLOTS, "all"])
    add("--redraw", action="store_true", help="draw the data that are there, measure nothing")
    add("--theory_only", action="store_true", help="speedup: no runs; row_cost: no GPT-2 pass")
    add("--size", choices=GPT2_SIZES, default="124M", help="of roofline and row_cost")
    add("--n_seq", type=int, default=512, help="ids before the pass in roofline")
    add("--tokens", type=int, default=64, help="new ids a text")
    add("--repeats", type=int, default=21, help="passes or products of which the median counts")
    add("--folder", type=Path, default=FOLDER, help="where data and pictures are")
    args = parser.parse_args(argv)
    for name in PLOTS if args.name == "all" else [args.name]:
        make(name, args)


if __name__ == "__main__":
    main()
