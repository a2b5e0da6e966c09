"""Draw the plots of docs/speed.md: what a formula says, and what the benchmarks measured."""

from docs.pictures.palette import colour
from docs.tables import stored
from theory.speedup import walltime_improvement


def draw_expected_tokens(figure):
    """Draw the predicted speed-up against K at four acceptances, with measured costs."""
    data = stored("speed-pair")
    # The median time of a pass over n rows; the keys of JSON are strings.
    rows = {int(n): ms["median"] for n, ms in data["passes"]["rows_ms"].items()}
    c = data["passes"]["draft_ms"]["median"] / rows[1]
    Ks = range(1, 9)
    axes = figure.subplots()
    for alpha in (0.9, 0.8, 0.7, 0.6):
        # A round of K guesses has a pass over K + 1 rows.
        speedups = [walltime_improvement(alpha, K, c, rows[K + 1] / rows[1]) for K in Ks]
        axes.plot(Ks, speedups, label=f"alpha = {alpha}: up to {max(speedups):.2f}")
    axes.axhline(1, color=colour("ink"), linewidth=0.8)  # the speed of plain decoding
    axes.set(xlabel="K, guesses per round", ylabel="speed-up", xticks=Ks, ylim=(0, 3),
             title="Predicted speed-up, with measured costs")
    place_legend(axes, ncols=2)


def draw_speed(figure):
    """Draw the measured speed-ups of the pair against K, and the formula's predictions."""
    data = stored("speed-pair")
    axes = figure.subplots()
    for i, (temperature, race) in enumerate(data["own"]["races"].items()):
        # "0", plain decoding, and "auto" have no prediction.
        Ks = [int(K) for K, row in race.items() if "predicted" in row]
        axes.plot(Ks, [race[str(K)]["speedup"] for K in Ks], linestyle="",
                  label=f"temperature {temperature}")
        # Ci is colour i of the cycle, which the points of race i have.
        axes.plot(Ks, [race[str(K)]["predicted"] for K in Ks], color=f"C{i}", marker="",
                  label="predicted")
    axes.axhline(1, color=colour("ink"), linewidth=0.8)
    axes.set(xlabel="K, guesses per round", ylabel="speed-up", xticks=range(1, 9), ylim=(0, 2),
             title=f"Speed-up of the bundled pair on {data['cores']} cores")
    place_legend(axes, ncols=2)


def draw_batch(figure):
    """Draw tokens per second against the number of texts."""
    data = stored("batch-124M")
    axes = figure.subplots()
    # A curve for each K; run is {number of texts: figures}.
    for K, run in data["runs"].items():
        n_texts = [int(n) for n in run]
        medians = [cell["tokens_per_s"]["median"] for cell in run.values()]
        axes.plot(n_texts, medians, label=f"K = {K}" if K != "0" else "plain")
    axes.set_xscale("log", base=2)
    axes.set_xticks(n_texts, n_texts)  # every run has the same numbers of texts
    alpha = data["texts"].split()[-1]  # the last word of the sentence
    axes.set(xlabel="texts per batch", ylabel="tokens per second, all texts", ylim=(0, None),
             title=f"GPT-2 {data['size']}, {data['cores']} cores, acceptance set to {alpha}")
    place_legend(axes, ncols=3)


def draw_acceptance(figure):
    """Draw acceptance against temperature, on texts of each one and on the same texts."""
    data = stored("acceptance")
    axes = figure.subplots()
    temperatures = [float(key) for key in data["temperatures"]]
    rows = data["temperatures"].values()
    for key, name in (("own", "on texts generated at this temperature"),
                      ("same", "on the same texts, from temperature 1")):
        axes.plot(temperatures, [row[key]["mean"] for row in rows], label=name)
    axes.set(xlabel="temperature of both models", ylabel="alpha, accepted guesses",
             xticks=temperatures[::2], ylim=(0, 1),
             title=f"Acceptance of the bundled pair on {data['texts']} texts")
    place_legend(axes, ncols=1)


def place_legend(axes, ncols):
    """Put the legend under the axes, where it covers no data."""
    axes.figure.legend(loc="outside lower center", ncols=ncols, frameon=False)
