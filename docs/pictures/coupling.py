"""Draw coupling.svg: the ratio test for two tokens, as two sticks of length 1.

    D, P      the probabilities of the tokens A and B by the draft and by the target
    kept      min(D, P) of a token: green in both sticks
    moved     the draft's surplus, A: red above. After a rejection it becomes B: blue below
"""

from fractions import Fraction

from docs.pictures.palette import colour
from docs.pictures.svg import EDGE, WIDTH, picture
from lib.svg import line, rect, text

HEIGHT = 330
D = {"A": Fraction(2, 3), "B": Fraction(1, 3)}
P = {"A": Fraction(1, 3), "B": Fraction(2, 3)}
STICK = WIDTH - 2 * EDGE  # its length
ABOVE = 72  # top of the upper stick
BELOW = 188  # top of the lower stick
HIGH = 46  # height of both


def part(start, share, y, token, words, kind):
    """Yield a part of a stick, with its token and what happens to it."""
    x = EDGE + STICK * float(start)
    width = STICK * float(share)
    # A gap of 1 at both ends parts the pieces.
    yield rect(x + 1, y, width - 2, HIGH, kind, rx=3)
    yield text(x + width / 2, y + 18, f"{token} {share}", "small bold", text_anchor="middle")
    if words:
        yield text(x + width / 2, y + 38, words, "small", text_anchor="middle")


def arrow(share_before, share):
    """Yield an arrow from the middle of a part of the upper stick to the lower stick."""
    x = EDGE + STICK * float(share_before + share / 2)
    yield line(x, ABOVE + HIGH + 6, x, BELOW - 8, "mark")
    # Both sides of the arrow's head.
    yield line(x - 5, BELOW - 14, x, BELOW - 7, "mark")
    yield line(x + 5, BELOW - 14, x, BELOW - 7, "mark")


def draw(data):
    """Return the picture; `data` is not used, because all figures are D and P."""
    kept = {token: min(D[token], P[token]) for token in D}
    # The draft has too much of A by D["A"] - kept["A"], and too little of B by P["B"] -
    # kept["B"]. The two are equal, because each distribution adds up to 1.
    moved = D["A"] - kept["A"]
    # (start, length) in both sticks: A's kept part, then the moved part, then B's kept part.
    pieces = [(Fraction(0), kept["A"]), (kept["A"], moved), (kept["A"] + moved, kept["B"])]
    # (token, what happens to it, class of its colour) of each piece
    above = [("A", "accept", "kept"), ("A", "reject", "lost"), ("B", "accept", "kept")]
    below = [("A", "", "kept"), ("B", "replaced", "won"), ("B", "", "kept")]
    parts = [text(EDGE, 32, "the draft guesses", "bold"),
             text(EDGE, 58, f"A with {D['A']}, B with {D['B']}", "small muted")]
    for (start, share), (token, words, kind) in zip(pieces, above):
        parts += part(start, share, ABOVE, token, words, kind)
        parts += arrow(start, share)
    for (start, share), (token, words, kind) in zip(pieces, below):
        parts += part(start, share, BELOW, token, words, kind)
    parts += [text(EDGE, BELOW + HIGH + 26, "the text gets", "bold"),
              text(EDGE, BELOW + HIGH + 50, f"A with {P['A']}, B with {P['B']}: the target's",
                   "small muted"),
              text(EDGE, BELOW + HIGH + 72, f"A is accepted with ({P['A']}) / ({D['A']}) = "
                   f"{P['A'] / D['A']}, B always", "small muted")]
    style = (f".kept{{fill:{colour('green_bar')};fill-opacity:.35}}"
             f".lost{{fill:{colour('red_bar')};fill-opacity:.35}}"
             f".won{{fill:{colour('blue_bar')};fill-opacity:.35}}")
    title = ("Two tokens as sticks of length 1. What draft and target both have stays; the "
             "draft's surplus of A becomes B.")
    return picture(HEIGHT, title, parts, style)
