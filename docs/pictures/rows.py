"""Draw rows.svg: a pass of the target over a text and three guesses; what each row tests.

A row depends on the token below it (a thick line) and on all tokens at its left (thin lines).
"""

from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, mono, picture
from lib.svg import element, line, rect, text

HEIGHT = 344
TOKENS = ["x[:-1]", "x[-1]", "guess 0", "guess 1", "guess 2"]
PAST = 72  # width of the first box
STEP = 93  # from one of the other boxes to the next
BOX = 87  # width of each other box
ROWS = 94  # tops of the boxes of rows
HIGH = 58  # their height
TOKEN_Y = 230  # tops of the boxes of tokens
LOW = 34  # their height


def left_edge(i):
    """Return the left edge of the box of token i."""
    # Box 0 has its own width. Box 1 begins 6 after it, and later boxes are STEP apart.
    if i == 0:
        return EDGE
    box_1 = EDGE + PAST + 6
    return box_1 + STEP * (i - 1)


def width(i):
    """Return the width of the box of token i."""
    return BOX if i else PAST


def middle(i):
    """Return the middle of the box of token i."""
    return left_edge(i) + width(i) / 2


def token_boxes():
    """Yield a box for each token; the first stands for all tokens in the cache."""
    for i, token in enumerate(TOKENS):
        yield rect(left_edge(i), TOKEN_Y, width(i), LOW, "box" if i else "track", rx=6)
        yield text(middle(i), TOKEN_Y + 23, token, text_anchor="middle")
    below = TOKEN_Y + LOW + 10
    # A line under the cached tokens, and one under the tokens of this pass.
    for first, last, words in ((0, 0, "cached"), (1, 4, "computed in this pass: one row each")):
        right = left_edge(last) + width(last)
        yield line(left_edge(first), below, right, below, "edge")
        yield text((left_edge(first) + right) / 2, below + 21, words, "small muted",
                   text_anchor="middle")


def row_boxes():
    """Yield a box for each row of p_target, above the token at whose position it is."""
    last = len(TOKENS) - 1
    for i in range(1, len(TOKENS)):
        # Row i - 1 of p_target is above token i, and tests guess i - 1, the token after it.
        words = ("tests", f"guess {i - 1}")
        if i == last:  # no guess follows
            words = ("bonus", "token")
        class_ = "bold blue" if i == last else None
        yield mono(middle(i) - 13.5, ROWS - 9, f"[{i - 1}]")  # 13.5: half of its three letters
        yield rect(left_edge(i), ROWS, BOX, HIGH, "strong" if i == last else "box", rx=6)
        for n, line_of_words in enumerate(words):
            y = ROWS + 24 + 22 * n
            yield text(middle(i), y, line_of_words, class_, text_anchor="middle")


def links():
    """Yield a line from each token to the rows that depend on it."""
    bottom = ROWS + HIGH + 1
    # Thin lines from the tokens at the left of a row.
    for row in range(1, len(TOKENS)):
        for token in range(row):
            yield line(middle(token), TOKEN_Y, middle(row), bottom, "edge")
    # Thick lines from the token below a row. They come later, so they are drawn over the
    # others.
    for row in range(1, len(TOKENS)):
        yield line(middle(row), TOKEN_Y, middle(row), bottom, "mark", marker_end="url(#tip)")


def draw(data):
    """Return the picture; `data` is not needed."""
    tip = element("path", d="M0,0.5 8,4 0,7.5z", class_="ink")  # a triangle
    # orient="auto" turns the tip into the direction of its line.
    marker = element("marker", tip, id="tip", viewBox="0 0 8 8", refX=8, refY=4, markerWidth=8,
                     markerHeight=8, markerUnits="userSpaceOnUse", orient="auto")
    parts = [marker, text(EDGE, 34, "One pass of the target: four rows", "bold"),
             text(EDGE, ROWS - 9, "p_target"), *links(), *token_boxes(), *row_boxes(),
             text(EDGE, HEIGHT - 18, "No line leads to the left: a row ignores later tokens.",
                  "small muted")]
    style = (f".box,.edge{{fill:none;stroke:{colour('grey')}}}"
             f".strong{{fill:none;stroke-width:2;stroke:{colour('blue')}}}")
    title = ("Five boxes of tokens: x[:-1], which is in the cache, then x[-1], guess 0, "
             "guess 1, guess 2, which the pass computes. Above each computed token is its row. "
             "p_target[0], above x[-1], tests guess 0; p_target[1], above guess 0, tests "
             "guess 1; p_target[2], above guess 1, tests guess 2; p_target[3], above guess 2, "
             "gives the bonus token. Lines lead to each row from the token below it and from "
             "the tokens at its left.")
    return picture(HEIGHT, title, parts, style)
