"""Draw with matplotlib, in the palette's light colours.

The same data give the same bytes. The background is transparent, and letters stay letters, so
that a page shows them in a font it has.
"""

from docs.pictures.palette import MARKERS, SERIES, colour

WIDTH = 630 / 72  # inches: 840 pixels, 96 in an inch


def save_figure(draw, height, data, path):
    """Write the picture of draw(figure, data); the height is in inches of 96 pixels."""
    import matplotlib  # optional: requirements/plots.txt
    from matplotlib.figure import Figure

    inks = ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
            "grid.color"]
    colours = [colour(name) for name in SERIES]
    style = dict.fromkeys(inks, colour("ink")) | {
        "axes.prop_cycle": matplotlib.cycler(color=colours, marker=MARKERS),
        "svg.hashsalt": "", "svg.fonttype": "none", "font.size": 10, "axes.grid": True,
        "axes.axisbelow": True, "grid.alpha": 0.15, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 10, "savefig.transparent": True,
        "lines.linewidth": 1.5}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.07)
        draw(figure, data)
        figure.savefig(path, metadata={"Date": None})
