"""ladder.svg: the expected tokens per round of each test on one toy, and what each step adds.

Every figure is enumerated: python -m exact.expected prints them.
"""

from docs.pictures.svg import line, picture, rect, text
from exact.expected import climb

WIDTH, STEP, TOP, EDGE = 840, 46, 92, 24
LEFT, LONG = 356, 340  # where the bars begin, length of K + 1 tokens
TOY, K = "A", 3


def data():
    """Return [(test, what it adds, expected tokens per round)]."""
    return climb(TOY, K)


def rung(y, name, adds, tokens, before):
    """Yield one bar: what the test before it gives, and in green what this one adds."""
    unit = LONG / (K + 1)
    yield text(EDGE, y, name, "bold")
    yield text(EDGE, y + 17, adds, "small muted")
    yield rect(LEFT, y - 9, unit * before, 20, "blue_bar")
    yield rect(LEFT + unit * before, y - 9, unit * (tokens - before), 20, "green_bar")
    more = f"  (+{tokens - before:.3f})" if before else ""
    yield text(LEFT + unit * tokens + 8, y + 6, f"{tokens:.3f}{more}", "small")


def draw(data, colour):
    """Return the picture."""
    height = TOP + STEP * len(data) + 6
    parts = [rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8),
             text(EDGE, 34, "What each test adds", "bold"),
             text(EDGE, 55, f"Expected tokens per pass of the target, {K} guesses per path: toy "
                  f"{TOY}, all outcomes enumerated", "small muted")]
    for tokens in range(K + 2):
        x = LEFT + LONG * tokens / (K + 1)
        parts += [line(x, TOP - 14, x, height - 14),
                  text(x, TOP - 18, f"{tokens}", "small muted", text_anchor="middle")]
    before = [0, *(tokens for _, _, tokens in data)]
    for i, (one, last) in enumerate(zip(data, before)):
        parts += rung(TOP + 10 + STEP * i, *one, last)
    title = "Bars: expected tokens per round. " + "; ".join(
        f"{name}: {tokens:.3f}" for name, _, tokens in data)
    return picture(WIDTH, height, title, parts, colour)
