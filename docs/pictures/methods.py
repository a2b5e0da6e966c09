"""Draw methods.svg: the speed-up of every method, as benchmarks/variants.py measured it."""

from docs.pictures.figures import LETTERS
from docs.pictures.palette import SERIES, colour
from docs.readme import raced_rows
from variants import DECODERS
from variants.registry import FAMILIES

COLOURS = dict(zip(FAMILIES, SERIES))  # the papers' own method has no family


def draw(figure):
    """Draw for each temperature the median and the range of each method with its defaults."""
    labels = []  # [(text, colour)] of each line; a family's name stands above its methods
    for family in ("", *FAMILIES):
        ink = colour(COLOURS.get(family, "ink"))
        methods = [name for name, entry in DECODERS.items()
                   if entry.family == family and name in raced_rows(0)]
        labels += [(family, ink)] * (family != "") + [(name, ink) for name in methods]
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    panels[0].set_zorder(1)  # the names of families reach over the other panel
    for temperature, axes in enumerate(panels):
        rows = raced_rows(temperature)
        for y, (name, ink) in enumerate(labels):
            if name in rows:
                row = rows[name]
                face = ink if row["exact"] == "yes" else colour("panel")
                axes.plot([row["low"], row["high"]], [y, y], color=ink, marker="", linewidth=1)
                axes.plot(row["speedup"], y, color=ink, marker="o", markerfacecolor=face)
        axes.axvline(1, color=colour("ink"), linewidth=0.8)  # the speed of plain decoding
        axes.set(title=f"temperature {temperature}", xlim=(0, 2.7), xticks=range(3))
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(range(len(labels)),
                         ["" if text in FAMILIES else text for text, _ in labels])
    panels[0].set_ylim(len(labels) - 0.4, -0.6)  # y grows downwards
    for y, (text, ink) in enumerate(labels):
        panels[0].get_yticklabels()[y].set_color(ink)
        if text in FAMILIES:
            # It covers the lines under it, and the space between the panels stays narrow.
            panels[0].text(0.06, y, text, color=ink, va="center", in_layout=False, zorder=3,
                           bbox={"facecolor": colour("panel"), "edgecolor": "none", "pad": 1})
    figure.supxlabel("speed-up over plain decoding; hollow: not exact", fontsize=LETTERS)
