"""What the plots show: every `draw_*(figure, data)` takes the data of a file in results/."""

import numpy as np

from docs.pictures.figures import SMALL, below, colour
from docs.pictures.palette import MARKERS


# ---- formulas

def draw_expected_tokens(figure, data):
    axes = figure.subplots()
    for i, (K, tokens) in enumerate(data["tokens"].items()):
        axes.plot(data["alpha"], tokens, markevery=10, clip_on=False)
        axes.annotate(f"K = {K}", (1, tokens[-1]), (9, -5), textcoords="offset points",
                      color=colour(i))
    axes.set(xlabel="alpha, the chance that a guess is accepted", xlim=(0, 1), ylim=(0, 11.5),
             ylabel="tokens per round", title="Tokens for one pass of the target, "
             "(1 - alpha^(K+1)) / (1 - alpha)", xticks=np.linspace(0, 1, 6))


def draw_speedup(figure, data):
    """By formula, with a cheap and with a dear draft; and the pair, on the same scale."""
    panels = figure.subplots(1, 3 if "pair" in data else 2, sharey=True)
    for axes, (c, curves) in zip(panels, data["curves"].items()):
        for alpha, gains in curves.items():
            axes.plot(data["K"], gains, markersize=4, label=f"alpha = {alpha}")
        axes.set(xlabel="K", title=f"Theorem 3.8, c = {c},\nK + 1 rows cost as much as one",
                 xticks=range(1, max(data["K"]) + 1, 2))
        below(axes, ncols=2)
    panels[0].set_ylabel("times faster than plain decoding")
    if "pair" in data:
        draw_pair(panels[2], data["pair"])
    for axes in panels:
        axes.axhline(1, color=colour("ink"), linewidth=0.8)
    panels[0].set_ylim(0, None)


def draw_pair(axes, pair):
    from matplotlib.lines import Line2D

    for i, run in enumerate(pair["runs"].values()):
        axes.plot(pair["K"], run["measured"], color=colour(i), marker=MARKERS[i], linestyle="")
        axes.plot(pair["K"], run["predicted"], color=colour(i), marker="")
        axes.plot(pair["K"], run["papers"], ":", color=colour(i), marker="")
    handles = [Line2D([], [], color=colour(i), marker=MARKERS[i], linestyle="",
                      label=f"temperature {T}") for i, T in enumerate(pair["runs"])]
    handles += [Line2D([], [], color=colour("ink"), label="Theorem 3.8, K + 1 rows as timed"),
                Line2D([], [], color=colour("ink"), linestyle=":",
                       label="Theorem 3.8, K + 1 rows cost as one")]
    axes.set(xlabel="K", title=f"the bundled pair as timed,\nc = {pair['c']:.2f}",
             xticks=pair["K"])
    below(axes, handles)


# ---- measured

def draw_acceptance(figure, data):
    axes = figure.subplots()
    T, alpha, error = ([point[key] for point in data["points"]]
                       for key in ("temperature", "alpha", "standard_error"))
    axes.errorbar(T, alpha, 2 * np.array(error), marker="o", capsize=3)
    tested = [point["places"] for point in data["points"]]
    axes.set(xlabel=f"temperature of draft and target (bars: two standard errors of the mean over "
             f"the {min(tested)} to {max(tested)} guesses tested)", ylabel="alpha", ylim=(0, 1),
             title="The bundled pair: the chance that a guess is accepted")


def draw_row_cost(figure, data):
    axes = figure.subplots()
    for name, seconds in data["seconds"].items():
        axes.plot(data["rows"], np.array(seconds) / seconds[0], label=name)
    axes.axhline(1, color=colour("ink"), linewidth=1, linestyle=":", label="as the papers assume")
    axes.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"What M rows cost, {data['cores']} cores", xticks=data["rows"])
    figure.legend(loc="outside lower center", ncols=3, **SMALL)


def draw_best_tree(figure, data):
    """Speed-up against the cost of a further row, and the trees at the marked costs."""
    from matplotlib.lines import Line2D

    upper, lower = figure.subfigures(2, 1, height_ratios=(5, 2))
    axes = upper.subplots()
    for i, found in enumerate(data["temperatures"].values()):
        for kind, style in (("tree", "-"), ("chain", ":")):
            axes.plot(data["row_cost"], found[kind], style, color=colour(i), marker="")
        for name, best in found["marks"].items():
            axes.plot(best["row_cost"], best["speedup"], MARKERS[i], color=colour(i),
                      clip_on=False, zorder=3)
            if i == 0:
                axes.annotate(name, (best["row_cost"], best["speedup"]), (8, 4),
                              textcoords="offset points", fontsize=9)
    handles = [Line2D([], [], color=colour(i), marker=MARKERS[i], label=f"temperature {float(T):g}")
               for i, T in enumerate(data["temperatures"])]
    handles += [Line2D([], [], color=colour("ink"), label="best tree"),
                Line2D([], [], color=colour("ink"), linestyle=":", label="best chain")]
    axes.axhline(1, color=colour("ink"), linewidth=0.8)
    axes.legend(handles=handles, loc="upper right", ncols=2, **SMALL)
    axes.set(xlabel="cost of a further row of the pass / cost of the first", ylim=(0.9, None),
             xlim=(0, max(data["row_cost"])), ylabel="times faster than plain decoding",
             title=f"The best tree of at most {data['most']} guesses, c = {data['c']:.2f} "
             "(points: costs as measured, at most 8 guesses)")
    marks = next(iter(data["temperatures"].values()))["marks"]
    for panel, (name, best) in zip(lower.subplots(1, len(marks)), reversed(marks.items())):
        draw_shape(panel, best["shape"])
        panel.set_title(f"{name}: {best['speedup']:.2f}", fontsize=9)


def draw_shape(axes, shape):
    """A tree from left to right, the likeliest child of a node at the top."""
    leaves = iter(range(10**6))

    def place(shape, depth):
        heights = [place(child, depth + 1) for child in shape] or [-next(leaves)]
        axes.plot([depth] * len(heights), heights, marker="", linestyle="")
        for height in heights[: len(shape)]:
            axes.plot([depth, depth + 1], [heights[0], height], color=colour("ink"), marker="",
                      linewidth=0.8)
        axes.plot(depth, heights[0], "o", color=colour(0), markersize=5)
        return heights[0]

    place(shape, 0)
    axes.set(xlim=(-0.5, 6.5), ylim=(-4.7, 0.7))
    axes.axis("off")


def draw_speed(figure, data):
    """What M rows cost; speed-up against K, measured and predicted: simulated, and own."""
    left, *panels = figure.subplots(1, 3 if "own" in data else 2)
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    left.plot(list(rows), np.array(list(rows.values())) / rows[1])
    left.set(xlabel="rows in one pass", ylabel="time / time of one row", ylim=(0, None),
             title=f"{data['size']}, {data['cores']} cores", xticks=[1, 4, 8, 16])
    named = [("simulated", "acceptance set", "alpha = {}"), ("own", "own text", "temperature {}")]
    for axes, (part, title, name) in zip(panels, named):
        for i, (key, race) in enumerate(data[part]["races"].items()):
            draw_race(axes, race, name.format(key), i)
        axes.axhline(1, color=colour("ink"), linewidth=0.8)
        axes.set(xlabel="K", title=f"{title} (lines: predicted)", xticks=range(1, 9))
        below(axes, ncols=2)
    panels[0].set_ylabel("times faster than plain decoding")
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(0, top)


def draw_race(axes, race, name, i):
    """The points and the line of one race."""
    Ks = [K for K, row in race.items() if "predicted" in row]
    axes.plot(list(map(int, Ks)), [race[K]["speedup"] for K in Ks], color=colour(i),
              marker=MARKERS[i], linestyle="", label=name)
    axes.plot(list(map(int, Ks)), [race[K]["predicted"] for K in Ks], color=colour(i), marker="")


def draw_batch(figure, data):
    """Tokens a second against the number of texts: points as measured, lines as predicted."""
    axes = figure.subplots()
    for i, (K, run) in enumerate(data["runs"].items()):
        n = list(map(int, run))
        axes.plot(n, [cell["tokens_per_s"]["median"] for cell in run.values()], color=colour(i),
                  marker=MARKERS[i % len(MARKERS)], linestyle="",
                  label=f"K = {K}" if K != "0" else "plain")
        axes.plot(n, [cell["predicted"] for cell in run.values()], color=colour(i), marker="")
    axes.set(xlabel="texts at once", ylabel="tokens per second, all texts together", ylim=(0, None),
             xticks=n, title=f"{data['size']}, {data['cores']} cores (lines: predicted from "
             "the passes alone)")
    below(axes, ncols=5)
