"""Draw cache.svg: the target's cache before and after a rejection, one column per token.

    g0 .. g3    the guesses of a round, of which g0 and g1 are accepted
    y           the replacement of g2
    h0 .. h3    the guesses of the next round
"""

from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, WIDTH, picture
from lib.svg import line, rect, text

HEIGHT = 492
STEP = 50  # from one column to the next
BOX = 44  # width of a box
TOP = 92  # top of the first row of boxes
ROW = 92  # from one row to the next
ROWS = [  # (name, what it does, [(tokens, their class)])
    ("a pass", "reads the guesses g0 .. g3",
     [("x[:-1]", "track"), ("x[-1] g0 g1", "strong"), ("g2 g3", "lost")]),
    ("the text", "after the test; y replaces g2",
     [("x[:-1]", "track"), ("x[-1] g0 g1", "strong"), ("y", "later")]),
    ("the next pass", "reads y and h0 .. h3",
     [("x[:-1] x[-1] g0 g1", "track"), ("y h0 h1 h2 h3", "box")]),
]
N_COMMON = 4  # columns that both passes share
LEGEND = [("track", "reused from the pass before"), ("strong", "computed, stays"),
          ("lost", "computed, then overwritten"), ("later", "in the text, not computed yet"),
          ("box", "computed now")]


def row(i, name, note, groups):
    """Yield the boxes of row i, under its name."""
    top = TOP + ROW * i
    yield text(EDGE, top - 12, name, "bold")
    yield text(WIDTH - EDGE, top - 12, note, "small muted", text_anchor="end")
    # A group is a string of tokens, parted by spaces, and the class of all of them.
    tokens = [(token, class_) for names, class_ in groups for token in names.split()]
    for column, (token, class_) in enumerate(tokens):
        x = EDGE + STEP * column
        yield rect(x, top, BOX, 36, class_, rx=6)
        yield text(x + BOX / 2, top + 23, token, "small", text_anchor="middle")


def draw(data):
    """Return the picture; `data` is not needed."""
    parts = [text(EDGE, 34, "Keys and values in the target's cache", "bold")]
    # The middle of the gap after the common columns.
    prefix_end = EDGE + STEP * N_COMMON - (STEP - BOX) / 2
    for i, (name, note, groups) in enumerate(ROWS):
        parts += row(i, name, note, groups)
        top = TOP + ROW * i
        # The line is 5 longer than the boxes, which are 36 high, at both ends.
        parts.append(line(prefix_end, top - 5, prefix_end, top + 41, "mark"))
    last = TOP + ROW * (len(ROWS) - 1) + 36  # the bottom of the last row of boxes
    parts.append(text(prefix_end, last + 24, "the common prefix ends here",
                      "small muted", text_anchor="middle"))
    for i, (class_, words) in enumerate(LEGEND):
        y = last + 52 + 24 * i  # below the words on the prefix
        parts += [rect(EDGE, y, 28, 15, class_, rx=3), text(EDGE + 40, y + 13, words, "small")]
    style = (f".box{{fill:none;stroke:{colour('grey')}}}"
             f".strong{{fill:none;stroke-width:2;stroke:{colour('blue')}}}"
             f".lost{{fill:none;stroke:{colour('red')};stroke-width:1.5;stroke-dasharray:5 3}}"
             f".later{{fill:none;stroke:{colour('muted')};stroke-width:1.5;"
             "stroke-dasharray:2 3}")
    title = ("Three rows of boxes. A pass reads the last token of x and the guesses g0, g1, "
             "g2, g3; what comes before it in x is reused. The test accepts g0 and g1 and "
             "writes y in place of g2; y has no column yet. The next pass reuses x, g0 and g1, "
             "and computes y and the new guesses h0, h1, h2, h3; the columns of g2 and g3 are "
             "overwritten.")
    return picture(HEIGHT, title, parts, style)
