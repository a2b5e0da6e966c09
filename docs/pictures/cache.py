"""Draw cache.svg: the columns of the target's cache before and after a rejection."""

from docs.pictures.svg import box, boxes, line, picture, rect, text

WIDTH, HEIGHT, LEFT, STEP = 840, 262, 216, 88
PASSES = [("the pass", ["x", "g0", "g1", "g2", "g3"], "uaarr"),
          ("the test", ["x", "g0", "g1", "y"], "uaan"),
          ("the next pass", ["x", "g0", "g1", "y", "h0", "h1", "h2"], "uuunnnn")]
CLASS = {"a": "strong", "r": "lost", "n": "box", "u": "track"}
SAYS = ["reads four guesses", "g0, g1 accepted; y replaces g2", "reuses grey, computes the rest"]


def draw(data, colour):
    """Return the picture: three rows of columns, one under another."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, "Keys and values in the target's cache, one column per token", "bold")]
    for row, ((name, tokens, kinds), says) in enumerate(zip(PASSES, SAYS)):
        y = 60 + 66 * row
        parts += [text(24, y + 16, name, "bold"), text(24, y + 34, says, "small muted")]
        for i, (token, kind) in enumerate(zip(tokens, kinds)):
            if token:
                parts.append(box(LEFT + STEP * i, y, STEP - 8, 36, token, CLASS[kind]))
    edge = LEFT + STEP * 3 - 4
    parts.append(line(edge, 50, edge, HEIGHT - 16, "mark"))
    parts.append(text(edge + 8, 50, "the common prefix ends here", "small muted"))
    title = ("Three rows of boxes. The pass reads x, g0, g1, g2, g3. The test accepts g0 and g1 "
             "and writes y in place of g2; g3 is gone. The next pass reads x, g0, g1, y, h0, h1, "
             "h2: the columns of x, g0 and g1 are reused, all columns to the right of them are "
             "computed.")
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour))
