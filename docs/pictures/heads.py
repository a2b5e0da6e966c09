"""Draw heads.svg: how Medusa's heads and EAGLE's head guess from the target's last hidden state."""

from docs.pictures.svg import arrow, box, boxes, line, picture, rect, text

WIDTH, HEIGHT, HALF = 840, 330, 420


def medusa():
    """Yield the left half: three heads read one state, none reads a guess."""
    yield text(24, 34, "Medusa: three heads, in parallel", "bold")
    yield box(150, 268, 130, 36, "state h", "track")
    for i in range(3):
        x = 32 + 126 * i
        yield arrow(215, 268, x + 54, 216)
        yield box(x, 176, 108, 36, f"head {i + 1}")
        yield arrow(x + 54, 176, x + 54, 116)
        yield box(x, 76, 108, 36, f"{i + 2} ahead", "strong")


def eagle():
    """Yield the right half: one head that reads its own guesses."""
    yield text(HALF + 24, 34, "EAGLE: one head, step after step", "bold")
    for i in range(3):
        x = HALF + 32 + 126 * i
        yield box(x, 268, 92, 36, "h, token" if i == 0 else f"h', guess {i - 1}", "track")
        yield arrow(x + 46, 268, x + 46, 216)
        yield box(x, 176, 92, 36, "one block")
        yield arrow(x + 46, 176, x + 46, 116)
        yield box(x, 76, 92, 36, f"guess {i}", "strong")
        if i < 2:
            yield arrow(x + 92, 94, x + 121, 278)


def draw(data, colour):
    """Return the picture of both."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             line(HALF, 20, HALF, HEIGHT - 20), *medusa(), *eagle()]
    title = ("Left, Medusa: arrows lead from one box, state h, to three heads, and from each head "
             "to its guess, two, three and four tokens ahead. Right, EAGLE: h and the next token "
             "go into one block, which gives guess 0; guess 0 and the predicted state h' go into "
             "the same block, which gives guess 1, and so on.")
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour))
