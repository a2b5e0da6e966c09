"""Write a picture as SVG, and the positions of the letters of a text.

A picture is a function `draw(data)`, in the palette's light colours. A file has no script and
no font.
"""

import re
from xml.sax.saxutils import escape

from docs.pictures.palette import COLOURS, colour
from lib.svg import element, rect

SANS = "-apple-system,BlinkMacSystemFont,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,'SF Mono',Menlo,Consolas,'Liberation Mono',monospace"
ADVANCE = 0.6  # width of a letter / its size; `mono` sets every monospace font to this width
WIDTH = 480  # of a picture
EDGE = 18  # the space at its left and right
SIZE = 16  # of letters
SMALL_SIZE = 15  # of small letters: 11 pixels on a telephone, which is 358 pixels wide


def mono(x, y, string, size=SMALL_SIZE, class_="", **attributes):
    """Return a piece of monospace text. Its width follows from ADVANCE in every font."""
    width = len(string) * size * ADVANCE
    return element("text", escape(string), x=x, y=y, class_=f"mono {class_}".strip(),
                   font_size=size, textLength=width, **attributes)


def picture(height, title, parts, style=""):
    """Return the file, with a frame; `title` describes it for readers who do not see it."""
    # A class for each colour, which fills letters and boxes.
    inks = "".join(f".{name}{{fill:{colour(name)}}}" for name in COLOURS)
    base = (f"text{{font-family:{SANS};fill:{colour('ink')};white-space:pre}}"
            f".mono{{font-family:{MONO}}}.small{{font-size:{SMALL_SIZE}px}}"
            ".bold{font-weight:600}"
            f"{inks}.panel{{stroke:{colour('line')}}}"
            f".rule{{stroke:{colour('block')}}}.mark{{stroke:{colour('ink')};stroke-width:2}}")
    # The frame lies within the picture: a line is drawn half on each side of its edge.
    frame = rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8)
    # The picture's own style comes last, so it overrides the base. Empty parts are left out.
    body = "\n".join([element("title", escape(title)), element("style", f"\n{base}\n{style}\n"),
                      frame, *filter(None, parts)])
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
            # Several line ends begin a new paragraph.
            row += 1 if len(piece) == 1 else 1.5
            column = 0
            places += [(column, row)] * len(piece)
            continue
        is_word = not piece.isspace()
        # A word that does not fit this line begins the next one. At column 0 there is no need
        # for a new line: a longer word would not fit there either.
        if is_word and column and column + len(piece) > columns:
            row += 1
            column = 0
        # Spaces are placed too, even beyond the end of a line, where they are not seen.
        places += [(column + i, row) for i in range(len(piece))]
        column += len(piece)
    return places
