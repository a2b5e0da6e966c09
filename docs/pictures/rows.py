"""Draw rows.svg: which row of a target pass judges which guess, and what each depends on."""

from docs.pictures.svg import arrow, box, boxes, line, picture, rect, text

WIDTH, HEIGHT = 840, 304
LEFT, STEP, WIDE, HIGH = 214, 150, 124, 34
TOP, BOTTOM = 92, 206
READ = ["x", "guess 0", "guess 1", "guess 2"]
GIVES = ["judges guess 0", "judges guess 1", "judges guess 2", "bonus token"]


def draw(data, colour):
    """Return the picture: one column per token that the target reads, its row above it."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, "One pass of the target over the text x and three guesses", "bold"),
             text(24, TOP + 22, "rows of p_target", "bold"),
             text(24, BOTTOM + 22, "tokens read", "bold")]
    middles = [LEFT + STEP * i + WIDE / 2 for i in range(4)]
    for i, top in enumerate(middles):
        last = i == 3
        parts += [text(top, TOP - 12, f"row {i}", "small muted", text_anchor="middle"),
                  box(top - WIDE / 2, TOP, WIDE, HIGH, GIVES[i], "strong" if last else "box",
                      "bold blue" if last else None),
                  box(top - WIDE / 2, BOTTOM, WIDE, HIGH, READ[i], "track")]
        parts += [line(bottom, BOTTOM, top, TOP + HIGH, "edge") for bottom in middles[:i]]
        parts.append(arrow(top, BOTTOM, top, TOP + HIGH + 2))
    parts.append(text(24, HEIGHT - 24, "Lines run up and to the right only (the causal mask): row "
                      "1 depends on x and guess 0, and on no later guess.", "small muted"))
    title = ("Four tokens are read: x, guess 0, guess 1, guess 2. Above them are four rows. The "
             "row above x judges guess 0, the row above guess 0 judges guess 1, the row above "
             "guess 1 judges guess 2, the row above guess 2 gives the bonus token. Lines lead to "
             "each row from the token below it and from those to its left.")
    style = f".edge{{stroke:{colour['grey']}}}"
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour) + style)
