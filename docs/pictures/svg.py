"""Write SVG as text: elements, a picture, and the positions of the letters of a text.

A picture is a function `draw(data)`, in the palette's light colours. A file has no script and
no font.
"""

import re
from xml.sax.saxutils import escape, quoteattr

from docs.pictures.palette import COLOURS, colour

SANS = "-apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,'SF Mono',Menlo,Consolas,'Liberation Mono',monospace"
ADVANCE = 0.6  # width of a letter / its size; `mono` sets every monospace font to this width
WIDTH, EDGE = 480, 18  # of a picture, and of the space at its left and right
SIZE, SMALL_SIZE = 16, 15  # of letters; SMALL_SIZE is 11 pixels on a telephone, 358 pixels wide


def element(name, content="", **attributes):
    """Return <name ...>content</name>; class_ is class, font_size is font-size."""
    shown = {key.rstrip("_").replace("_", "-"): short_number(value)
             for key, value in attributes.items() if value is not None}
    head = " ".join([name, *(f"{key}={quoteattr(value)}" for key, value in shown.items())])
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def short_number(value):
    """Return a float with at most two decimals, everything else as it is."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(x, y, string, class_=None, **attributes):
    """Return a line of sans-serif text; x is its start unless text_anchor is given."""
    return element("text", escape(string), x=x, y=y, class_=class_, **attributes)


def mono(x, y, string, size=SMALL_SIZE, class_="", **attributes):
    """Return a piece of monospace text. Its width follows from ADVANCE in every font."""
    width = len(string) * size * ADVANCE
    return element("text", escape(string), x=x, y=y, class_=f"mono {class_}".strip(),
                   font_size=size, textLength=width, **attributes)


def rect(x, y, width, height, class_=None, **attributes):
    """Return a rectangle; rx is the radius of its corners."""
    return element("rect", x=x, y=y, width=width, height=height, class_=class_, **attributes)


def line(x1, y1, x2, y2, class_="rule", **attributes):
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def picture(height, title, parts, style=""):
    """Return the file, with a frame. `title` says what is seen, for readers who do not see it."""
    inks = "".join(f".{name}{{fill:{colour(name)}}}" for name in COLOURS)
    base = (f"text{{font-family:{SANS};fill:{colour('ink')};white-space:pre}}"
            f".mono{{font-family:{MONO}}}.small{{font-size:{SMALL_SIZE}px}}.bold{{font-weight:600}}"
            f"{inks}.panel{{stroke:{colour('line')}}}"
            f".rule{{stroke:{colour('block')}}}.mark{{stroke:{colour('ink')};stroke-width:2}}")
    body = "\n".join([element("title", escape(title)), element("style", f"\n{base}\n{style}\n"),
                      rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8), *filter(None, parts)])
    svg = element("svg", f"\n{body}\n", xmlns="http://www.w3.org/2000/svg", width=WIDTH,
                  height=height, viewBox=f"0 0 {WIDTH} {height}", role="img", font_size=SIZE)
    return svg + "\n"


def positions(string, columns):
    """Return [(column, line)] of every letter of a text broken between words.

    A new paragraph begins one and a half lines lower.

    >>> positions("ab cde", 5)
    [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    """
    places = []
    column = 0
    row = 0
    for piece in re.findall(r"\n+|[^\S\n]+|\S+", string):  # line ends, spaces, or a word
        if piece[0] == "\n":
            row += 1 if len(piece) == 1 else 1.5
            column = 0
            places += [(column, row)] * len(piece)
            continue
        is_word = not piece.isspace()
        if is_word and column and column + len(piece) > columns:  # does not fit this line
            row += 1
            column = 0
        places += [(column + i, row) for i in range(len(piece))]
        column += len(piece)
    return places
