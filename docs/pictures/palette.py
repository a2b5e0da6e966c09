"""The colours of every picture, for light and for dark pages.

    python -m docs pictures wild        # writes docs/img/wild.svg and docs/img/wild-dark.svg

A picture is drawn in the light colours; `darkened` derives the file for dark pages from it.
Text in ink, muted or a colour of SERIES has a contrast of at least 4.5 on panel and page.
"""

import re

COLOURS = {  # name: (for light pages, for dark pages)
    "ink": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9ea7b3"),
    "line": ("#d1d9e0", "#3d444d"),
    "panel": ("#f6f8fa", "#151b23"),
    "blue": ("#0757ba", "#6cb6ff"),
    "orange": ("#9a5200", "#e8a33d"),
    "green": ("#1a7f37", "#4cc15d"),
    "violet": ("#76349c", "#c297ff"),
    "red": ("#c21c26", "#ff7b72"),
    "grey": ("#6a737d", "#8d96a0"),
    "track": ("#e3e7eb", "#2b323b"),
    "block": ("#818b98", "#7d8590"),
    "green_bar": ("#2da44e", "#238636"),
    "blue_bar": ("#218bff", "#1c66dd"),
    "red_bar": ("#fa4549", "#da3633"),
}
SERIES = ["blue", "orange", "green", "violet", "red", "muted"]  # the order of a plot's curves
MARKERS = ["o", "s", "^", "D", "v", "P"]
DARK = dict(COLOURS.values())  # {light colour: dark colour}


def colour(name):
    """Return the light colour of this name."""
    return COLOURS[name][0]


def darkened(svg):
    """Return a picture in the dark colours; KeyError if a colour is not in COLOURS."""
    # Every colour in the text is #RRGGBB.
    return re.sub("#[0-9a-f]{6}", lambda match: DARK[match[0]], svg)
