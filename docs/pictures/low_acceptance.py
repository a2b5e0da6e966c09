"""Draw low_acceptance.svg: acceptance by position with each planted fault, and without one.

A plot for each fault of benchmarks/low_acceptance.py, two in a row. A plot has a curve for each
temperature, with 90 % intervals; the dashed curves are those of the draft without a fault.
"""

from benchmarks.low_acceptance import EAGLE, GUESSED, exact_cell
from measure.positions import counts_from_lists, position_figures

HEALTHY = "none"
LABELS = {  # names that fit over a plot
    "cache cut one token too late": "cache cut 1 too late",
    "cache cut two tokens too late": "cache cut 2 too late",
    "cache cut one token too early": "cache cut 1 too early",
    "cache cut two tokens too early": "cache cut 2 too early",
    "positions from 128 on untrained": "positions past 127",
    "draft at temperature 0.3": "draft's temperature .3",
    "draft at temperature 2": "draft's temperature 2",
    "zero-filled from guess 3 on": "zeros from guess 3 on"}


def curve(case):
    """Return the tested positions of a case, their acceptances and both interval ends."""
    places = position_figures(counts_from_lists(case["by_position"]))
    tested = [(t, place) for t, place in enumerate(places, start=1) if place["tested"]]
    values = ([place[key] for _, place in tested] for key in ("acceptance", "low", "high"))
    return [t for t, _ in tested], *values


def plot(axes, name, row, healthy):
    """Draw the plot of one fault, over the curves without a fault."""
    for i, temperature in enumerate(("0", "1")):
        positions, shares, *_ = curve(healthy["temperatures"][temperature])
        axes.plot(positions, shares, color=f"C{i}", marker="", linestyle="--", linewidth=1)
    for i, temperature in enumerate(("0", "1")):
        positions, shares, low, high = curve(row["temperatures"][temperature])
        axes.plot(positions, shares, color=f"C{i}", marker="o", markersize=4,
                  label=f"temperature {temperature}")
        axes.vlines(positions, low, high, color=f"C{i}", linewidth=1)
    axes.set(title=LABELS.get(name, name), xlim=(0.5, GUESSED + 0.5), ylim=(-0.05, 1.05),
             xticks=range(1, GUESSED + 1), yticks=(0, 0.5, 1))


def draw(figure, data):
    """Draw all faults."""
    rows = dict(data["rows"])
    healthy = rows.pop(HEALTHY)
    rows.pop(EAGLE)  # is not a fault
    grid = figure.subplots((len(rows) + 1) // 2, 2, sharex=True, sharey=True, squeeze=False)
    for axes, (name, row) in zip(grid.flat, rows.items()):
        plot(axes, name, row, healthy)
    n_prompts = len(healthy["temperatures"]["0"]["by_position"]["tested"])
    n_exact = sum(exact_cell(row, n_prompts) == "yes" for row in rows.values())
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper left", ncols=2, frameon=False,
                  title="Acceptance of guesses 1 to 5 of a round; dashed: no fault",
                  alignment="left")
    figure.supxlabel(f"The text is exact with {n_exact} of the {len(rows)} faults.",
                     fontsize="medium")
