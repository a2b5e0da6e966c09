"""The colours of every picture, for light and for dark pages.

    python -m docs.pictures wild        # writes docs/img/wild.svg and docs/img/wild-dark.svg

Text in ink, muted or a colour of SERIES has a contrast of at least 4.5 on panel and page.
"""

THEMES = {  # suffix of the file: {name: colour}
    "": {"ink": "#1f2328", "muted": "#59636e", "line": "#d1d9e0", "panel": "#f6f8fa",
         "blue": "#0757ba", "orange": "#9a5200", "green": "#1a7f37", "violet": "#76349c",
         "red": "#c21c26", "grey": "#6a737d", "track": "#e3e7eb", "block": "#818b98",
         "green_bar": "#4ac26b", "blue_bar": "#54aeff", "red_bar": "#ff8182"},
    "-dark": {"ink": "#f0f6fc", "muted": "#9ea7b3", "line": "#3d444d", "panel": "#151b23",
              "blue": "#6cb6ff", "orange": "#e8a33d", "green": "#4cc15d", "violet": "#c297ff",
              "red": "#ff7b72", "grey": "#8d96a0", "track": "#2b323b", "block": "#7d8590",
              "green_bar": "#238636", "blue_bar": "#1f6feb", "red_bar": "#b62324"},
}
SERIES = ["blue", "orange", "green", "violet", "red", "muted"]  # the order of a plot's curves
MARKERS = ["o", "s", "^", "D", "v", "P"]
