"""Draw cache.svg: the columns of the target's cache before and after a rejection."""

from docs.pictures.svg import box, boxes, line, picture, rect, text

WIDTH, HEIGHT, LEFT, STEP, WIDE = 840, 296, 196, 70, 62
X = ["x[:-1]", "x[-1]"]
PASSES = [("the pass", X + ["g0", "g1", "g2", "g3"], "gbbbrr"),
          ("the text", X + ["g0", "g1", "y"], "gbbb."),
          ("the next pass", X + ["g0", "g1", "y", "h0", "h1", "h2", "h3"], "ggggppppp")]
CLASS = {"b": "strong", "r": "lost", "p": "box", ".": None, "g": "track"}
SAYS = ["reads four guesses", "y replaces g2", "reads four new guesses"]
COLOURS = ("Grey: reused from the pass before. Blue: computed, stays. Dashed: computed, then "
           "overwritten. Plain: computed now.")


def draw(data, colour):
    """Return the picture: three rows of columns, one under another."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, "Keys and values in the target's cache, one column per token", "bold")]
    for row, ((name, tokens, kinds), says) in enumerate(zip(PASSES, SAYS)):
        y = 66 + 66 * row
        parts += [text(24, y + 16, name, "bold"), text(24, y + 34, says, "small muted")]
        for i, (token, kind) in enumerate(zip(tokens, kinds)):
            x = LEFT + STEP * i
            parts.append(box(x, y, WIDE, 36, token, CLASS[kind]) if CLASS[kind] else
                         text(x + WIDE / 2, y + 23, token, text_anchor="middle"))
    edge = LEFT + STEP * 4 - 4
    parts += [line(edge, 52, edge, HEIGHT - 50, "mark"),
              text(edge + 8, 58, "the common prefix ends here", "small muted"),
              text(24, HEIGHT - 20, COLOURS, "small muted")]
    title = ("Three rows of boxes. The pass reads the last token of x and g0, g1, g2, g3; what "
             "stands before it in x is reused. The test accepts g0 and g1 and writes y in place "
             "of g2; y has no column yet. The next pass reuses x, g0 and g1, and computes y and "
             "four new guesses; the columns of g2 and g3 are overwritten.")
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour))
