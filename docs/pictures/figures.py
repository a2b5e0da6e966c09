"""Draw with matplotlib, in the palette's light colours.

The same data give the same bytes. The background is transparent, and letters stay letters, so
that a page shows them in a font it has.
"""

import re

from docs.pictures.palette import MARKERS, SERIES, colour

WIDTH = 5  # inches of 96 pixels
LETTERS = 11.25  # points: 11 pixels on a telephone, which is 358 pixels wide
SANS = "-apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"


def save_figure(draw, height, path):
    """Write the framed picture of draw(figure), `height` inches high."""
    import matplotlib  # optional: requirements/plots.txt
    from matplotlib.figure import Figure

    inks = ["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
            "grid.color"]
    colours = [colour(name) for name in SERIES]
    style = dict.fromkeys(inks, colour("ink")) | {
        "axes.prop_cycle": matplotlib.cycler(color=colours, marker=MARKERS),
        # Without a fixed salt the names in a file would differ each time; "none" keeps letters.
        "svg.hashsalt": "", "svg.fonttype": "none", "font.size": LETTERS, "axes.grid": True,
        "axes.axisbelow": True, "grid.alpha": 0.15, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": LETTERS, "axes.titlelocation": "left",
        "axes.titley": 1.03, "savefig.transparent": True, "lines.linewidth": 1.5}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.15, h_pad=0.13)  # inches to the frame
        draw(figure)
        figure.savefig(path, metadata={"Date": None})  # the same bytes every day
    path.write_text(framed(path.read_text(encoding="utf-8"), height), encoding="utf-8")


def framed(svg, height):
    """Return a picture of matplotlib with a frame and with letters of the page's font."""
    style = f".panel{{fill:{colour('panel')};stroke:{colour('line')};stroke-width:0.75}}"
    frame = (f'<style>{style}</style><rect x="0.4" y="0.4" width="{72 * WIDTH - 0.8:g}" '
             f'height="{72 * height - 0.8:g}" class="panel" rx="6"/>')
    # The frame comes before matplotlib's drawing, so it is behind it.
    start, figure = svg.split('<g id="figure_1">')
    figure = re.sub("'DejaVu Sans'[^;\"]*sans-serif", SANS, figure)
    return f'{start}{frame}\n<g id="figure_1">{figure}'
