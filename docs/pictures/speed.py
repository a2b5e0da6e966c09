"""Draw the plots of docs/speed.md: what a formula says, and what the benchmarks measured."""

import numpy as np

from docs.pictures.palette import colour
from theory.speedup import expected_tokens


def draw_expected_tokens(figure, data):
    """Draw Eq. 1, a line for each K; `data` is not needed."""
    axes = figure.subplots()
    alphas = np.linspace(0, 1, 51)
    for i, K in enumerate((1, 2, 3, 5, 7, 10)):
        tokens = [expected_tokens(alpha, K) for alpha in alphas]
        axes.plot(alphas, tokens, markevery=10, clip_on=False)
        axes.annotate(f"K = {K}", (1, tokens[-1]), (9, -5), textcoords="offset points",
                      color=f"C{i}")
    axes.set(xlabel="alpha, the probability that a guess is accepted", xlim=(0, 1),
             ylim=(0, 11.5), ylabel="tokens per round", xticks=np.linspace(0, 1, 6),
             title="Tokens per round, (1 - alpha^(K+1)) / (1 - alpha)")


def draw_speed(figure, data):
    """Draw what M rows cost, and the speed-up against K with acceptance set and on own text."""
    left, *panels = figure.subplots(1, 3)
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    left.plot(list(rows), np.array(list(rows.values())) / rows[1])
    left.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title="time of a target pass", xticks=[1, 4, 8, 16])
    named = [("simulated", "speed-up, acceptance set", "alpha = {}"),
             ("own", "speed-up on the pair's own texts", "temperature {}")]
    for axes, (part, title, name) in zip(panels, named):
        for i, (key, race) in enumerate(data[part]["races"].items()):
            # "0", plain decoding, and "auto" have no prediction.
            Ks = [int(K) for K, row in race.items() if "predicted" in row]
            axes.plot(Ks, [race[str(K)]["speedup"] for K in Ks], linestyle="",
                      label=name.format(key))
            axes.plot(Ks, [race[str(K)]["predicted"] for K in Ks], color=f"C{i}", marker="")
        axes.axhline(1, color=colour("ink"), linewidth=0.8)
        axes.set(xlabel="K", title=title, xticks=range(1, 9))
        place_legend(axes, ncols=2)
    panels[0].set_ylabel("speed-up over plain decoding")
    panels[1].sharey(panels[0])
    panels[0].set_ylim(0, None)
    figure.suptitle(f"The bundled pair on {data['cores']} cores. Speed-up: points are "
                    "measured, lines predicted from the costs and the acceptance", fontsize=10)


def draw_batch(figure, data):
    """Draw tokens per second against the number of texts."""
    axes = figure.subplots()
    for K, run in data["runs"].items():
        n_texts = [int(n) for n in run]
        medians = [cell["tokens_per_s"]["median"] for cell in run.values()]
        axes.plot(n_texts, medians, label=f"K = {K}" if K != "0" else "plain")
    axes.set_xscale("log", base=2)
    axes.set_xticks(n_texts, n_texts)  # every run has the same numbers of texts
    alpha = data["texts"].split()[-1]  # the last word of the sentence
    axes.set(xlabel="texts per batch", ylabel="tokens per second, all texts together",
             ylim=(0, None), title=f"GPT-2 {data['size']} with random weights on "
             f"{data['cores']} cores, acceptance set to {alpha}")
    place_legend(axes, ncols=5)


def draw_acceptance(figure, data):
    """Draw acceptance against temperature, on texts of each one and on the same texts."""
    axes = figure.subplots()
    temperatures = [float(key) for key in data["temperatures"]]
    rows = data["temperatures"].values()
    for key, name in (("own", "on texts written at this temperature"),
                      ("same", "on the same texts, written at temperature 1")):
        axes.plot(temperatures, [row[key]["mean"] for row in rows], label=name)
    axes.set(xlabel="temperature of both models", ylabel="alpha", xticks=temperatures,
             ylim=(0.4, 0.8), title=f"Acceptance of the bundled pair on {data['texts']} texts")
    axes.legend(loc="lower right", frameon=False)


def place_legend(axes, ncols):
    """Put the legend under the axes, where it covers no data."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=ncols, fontsize=9,
                frameon=False)
