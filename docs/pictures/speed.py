"""Draw the plots of docs/speed.md: what a formula says, and what the benchmarks measured."""

import numpy as np

from docs.pictures.palette import MARKERS, colour
from theory.speedup import expected_tokens


def draw_expected_tokens(figure, data):
    """Draw Eq. 1, a line for each K; `data` is not needed."""
    axes = figure.subplots()
    alphas = np.linspace(0, 1, 51)
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
    left, *panels = figure.subplots(1, 3)
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    left.plot(list(rows), np.array(list(rows.values())) / rows[1])
    left.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"{data['size']}, {data['cores']} cores", xticks=[1, 4, 8, 16])
    named = [("simulated", "acceptance set", "alpha = {}"), ("own", "own text", "temperature {}")]
    for axes, (part, title, name) in zip(panels, named):
        for i, (key, race) in enumerate(data[part]["races"].items()):
            points = {int(K): row for K, row in race.items() if "predicted" in row}
            axes.plot(list(points), [row["speedup"] for row in points.values()], linestyle="",
                      color=colour(i), marker=MARKERS[i], label=name.format(key))
            axes.plot(list(points), [row["predicted"] for row in points.values()],
                      color=colour(i), marker="")
        axes.axhline(1, color=colour("ink"), linewidth=0.8)
        axes.set(xlabel="K", title=f"{title} (lines: predicted)", xticks=range(1, 9))
        place_legend(axes, ncols=2)
    panels[0].set_ylabel("times faster than plain decoding")
    panels[1].sharey(panels[0])
    panels[0].set_ylim(0, None)


def draw_batch(figure, data):
    """Draw tokens per second against the number of texts."""
    axes = figure.subplots()
    for K, run in data["runs"].items():
        n_texts = [int(n) for n in run]
        medians = [cell["tokens_per_s"]["median"] for cell in run.values()]
        axes.plot(n_texts, medians, label=f"K = {K}" if K != "0" else "plain")
    axes.set(xlabel="texts per batch", ylabel="tokens per second, all texts together",
             ylim=(0, None), xticks=n_texts, title=f"{data['size']}, {data['cores']} cores")
    place_legend(axes, ncols=5)


def place_legend(axes, ncols):
    """Put the legend under the axes, where it covers no data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=ncols, fontsize=9,
                frameon=False)
