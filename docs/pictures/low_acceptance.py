"""Draw low_acceptance.svg: four shapes of acceptance by position, each by a planted fault.

A plot has a curve for each temperature, with 90 % intervals; the dashed curves are those of the
draft without a fault.
"""

from benchmarks.low_acceptance import GUESSED
from docs.tables import stored

SHAPES = {  # {shape: (the fault that draws it, its name over the plot)}
    "rising": ("cache cut two tokens too early", "cache cut 2 too early"),
    "a cliff": ("zero-filled from guess 3 on", "zeros from guess 3 on"),
    "near zero": ("input shifted by one", "input shifted by one"),
    "low at one temperature": ("draft at temperature 0.3", "draft's temperature .3")}


def plot(axes, row, **style):
    """Draw the curves of a fault, one for each temperature."""
    for i, (temperature, case) in enumerate(row["temperatures"].items()):
        tested = [(t, place) for t, place in enumerate(case["by_position"], start=1)
                  if place["tested"]]
        positions = [t for t, _ in tested]
        axes.plot(positions, [place["acceptance"] for _, place in tested], color=f"C{i}",
                  **style, label=f"temperature {temperature}")
        if not style:
            axes.vlines(positions, [place["low"] for _, place in tested],
                        [place["high"] for _, place in tested], color=f"C{i}", linewidth=1)


def draw(figure):
    """Draw the plots of the four shapes."""
    rows = stored("low_acceptance")["rows"]
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (shape, (fault, label)) in zip(grid.flat, SHAPES.items()):
        plot(axes, rows["none"], marker="", linestyle="--", linewidth=1)
        plot(axes, rows[fault])
        axes.set(title=f"{shape}:\n{label}", xlim=(0.5, GUESSED + 0.5), ylim=(-0.05, 1.05),
                 xticks=range(1, GUESSED + 1), yticks=(0, 0.5, 1))
    lines, labels = axes.get_legend_handles_labels()
    figure.legend(lines[2:], labels[2:], loc="outside upper left", ncols=2, frameon=False,
                  title="Acceptance of guesses 1 to 5 of a round; dashed: no fault",
                  alignment="left")
