"""Draw low_acceptance.svg: the four shapes of an acceptance rate by position that is too low.

A plot shows one planted fault of benchmarks/low_acceptance.py for each shape, with a curve for
each temperature and 90 % intervals; the dashed curves are those of the draft without a fault.
"""

from benchmarks.low_acceptance import EAGLE, GUESSED, exact_cell
from measure.positions import counts_from_lists, position_figures

HEALTHY = "none"
SHAPES = {  # {fault: title of its plot}
    "cache cut one token too early": "rising: cache cut 1 too early",
    "zero-filled from guess 3 on": "a cliff: zeros from guess 3 on",
    "input shifted by one": "near zero: input shifted by one",
    "draft at temperature 0.3": "low at one temperature: draft at .3"}


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
    axes.set(title=SHAPES[name], xlim=(0.5, GUESSED + 0.5), ylim=(-0.05, 1.05),
             xticks=range(1, GUESSED + 1), yticks=(0, 0.5, 1))


def draw(figure, data):
    """Draw a plot for each shape."""
    rows = dict(data["rows"])
    healthy = rows.pop(HEALTHY)
    rows.pop(EAGLE)  # is not a fault
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, name in zip(grid.flat, SHAPES):
        plot(axes, name, rows[name], healthy)
    n_prompts = len(healthy["temperatures"]["0"]["by_position"]["tested"])
    n_exact = sum(exact_cell(row, n_prompts) == "yes" for row in rows.values())
    lines, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper left", ncols=2, frameon=False,
                  title="Acceptance rate of guesses 1 to 5 of a round; dashed: no fault",
                  alignment="left")
    figure.supxlabel(f"The text is exact with {n_exact} of the {len(rows)} faults that were "
                     "planted.", fontsize="medium")
