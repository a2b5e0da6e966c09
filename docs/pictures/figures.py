"""Draw with matplotlib, in the palette's colours.

    save(draw, height, data, path)    NAME.svg and NAME-dark.svg of draw(figure, data)
    colour("red"), colour(0)          a colour of the theme by its name; that of series 0

The same data give the same bytes. The background is transparent, and letters stay letters, so that
a page shows them in a font it has.
"""

from docs.pictures.palette import MARKERS, SERIES, THEMES

WIDTH = 630 / 72  # inches of 96 pixels: 840
theme = dict(THEMES[""])  # the one being drawn


def save(draw, height, data, path):
    """Write the picture in both themes; the height is in inches of 96 pixels."""
    import matplotlib  # optional: requirements/plots.txt
    from matplotlib.figure import Figure

    for suffix, colours in THEMES.items():
        theme.update(colours)
        with matplotlib.rc_context(style()):
            figure = Figure(figsize=(WIDTH, height), layout="constrained")
            figure.get_layout_engine().set(w_pad=0.1, h_pad=0.07)
            draw(figure, data)
            file = path.with_name(f"{path.stem}{suffix}.svg")
            figure.savefig(file, metadata={"Date": None})


def style():
    """Return matplotlib's settings for the theme."""
    from matplotlib import cycler

    ink = ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
           "grid.color"]
    return dict.fromkeys(ink, colour("ink")) | {
        "axes.prop_cycle": cycler(color=[colour(name) for name in SERIES], marker=MARKERS),
        "svg.hashsalt": "", "svg.fonttype": "none", "font.size": 10, "axes.grid": True,
        "axes.axisbelow": True, "grid.alpha": 0.15, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 10, "savefig.transparent": True,
        "lines.linewidth": 1.5}


def colour(name):
    """Return the theme's colour of this name, or of the series of this number."""
    return theme[SERIES[name % len(SERIES)] if isinstance(name, int) else name]
