"""Draw the plots of docs/speed.md from the figures in results/.

    python -m benchmarks.plots all      # needs requirements/plots.txt

    expected_tokens   tokens per round against alpha: Leviathan et al. (2023) Eq. 1, Fig. 2
    speed-SIZE        the costs of passes and the speed-ups that benchmarks.speed measured
    batch-SIZE        tokens per second against texts at once, as benchmarks.batch measured

    alpha   the probability that a guess is accepted

docs/img/NAME.svg and NAME-dark.svg are the pictures.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from docs.pictures.figures import below, colour, save
from docs.pictures.palette import MARKERS
from theory.speedup import expected_tokens

RESULTS = Path(__file__).parent / "results"
FOLDER = Path(__file__).parent.parent / "docs" / "img"


def draw_expected_tokens(figure, data):
    """Draw Eq. 1, a line for each K; `data` is not needed."""
    axes, alphas = figure.subplots(), np.linspace(0, 1, 51)
    for i, K in enumerate((1, 2, 3, 5, 7, 10)):
        tokens = [expected_tokens(alpha, K) for alpha in alphas]
        axes.plot(alphas, tokens, markevery=10, clip_on=False)
        axes.annotate(f"K = {K}", (1, tokens[-1]), (9, -5), textcoords="offset points",
                      color=colour(i))
    axes.set(xlabel="alpha, the probability that a guess is accepted", xlim=(0, 1),
             ylim=(0, 11.5), ylabel="tokens per round", xticks=np.linspace(0, 1, 6),
             title="Tokens per pass of the target, (1 - alpha^(K+1)) / (1 - alpha)")


def draw_speed(figure, data):
    """Draw what M rows cost, and the speed-up against K with acceptance set and on own text."""
    left, *panels = figure.subplots(1, 3 if "own" in data else 2)
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    left.plot(list(rows), np.array(list(rows.values())) / rows[1])
    left.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"{data['size']}, {data['cores']} cores", xticks=[1, 4, 8, 16])
    named = [("simulated", "acceptance set", "alpha = {}"), ("own", "own text", "temperature {}")]
    for axes, (part, title, name) in zip(panels, named):
        for i, (key, race) in enumerate(data[part]["races"].items()):
            Ks = [K for K, row in race.items() if "predicted" in row]
            draw_one(axes, Ks, [race[K]["speedup"] for K in Ks],
                     [race[K]["predicted"] for K in Ks], i, name.format(key))
        axes.axhline(1, color=colour("ink"), linewidth=0.8)
        axes.set(xlabel="K", title=f"{title} (lines: predicted)", xticks=range(1, 9))
        below(axes, ncols=2)
    panels[0].set_ylabel("times faster than plain decoding")
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(0, top)


def draw_one(axes, x, measured, predicted, i, name):
    """Draw the measured points and the predicted line of series i."""
    x, marker = list(map(int, x)), MARKERS[i % len(MARKERS)]
    axes.plot(x, measured, color=colour(i), marker=marker, linestyle="", label=name)
    axes.plot(x, predicted, color=colour(i), marker="")


def draw_batch(figure, data):
    """Draw tokens per second against the number of texts."""
    axes = figure.subplots()
    for K, run in data["runs"].items():
        axes.plot(list(map(int, run)), [cell["tokens_per_s"]["median"] for cell in run.values()],
                  label=f"K = {K}" if K != "0" else "plain")
    axes.set(xlabel="texts at once", ylabel="tokens per second, all texts together", ylim=(0, None),
             xticks=list(map(int, run)), title=f"{data['size']}, {data['cores']} cores")
    below(axes, ncols=5)


PLOTS = {"expected_tokens": (draw_expected_tokens, 4),
         **{f"speed-{size}": (draw_speed, 4) for size in ("pair", "124M")},
         **{f"batch-{size}": (draw_batch, 4.2) for size in ("pair", "124M")}}  # inches


def main(argv=None):
    parser = argparse.ArgumentParser("python -m benchmarks.plots", description="Draw the plots.")
    parser.add_argument("name", choices=[*PLOTS, "all"])
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the figures are")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the pictures go")
    args = parser.parse_args(argv)
    for name in PLOTS if args.name == "all" else [args.name]:
        (draw, height), path = PLOTS[name], args.results / f"{name}.json"
        data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        save(draw, height, data, args.folder / f"{name}.svg")


if __name__ == "__main__":
    main()
