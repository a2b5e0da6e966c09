"""wild.svg: how far from the target's distribution each rule of exact/rules.py is, as bars.

The rules that are wrong come first, the farthest at the top; those that are exact have no bar.
"""

from exact.rules import RULES, find
from docs.pictures.svg import line, picture, rect, text

WIDTH, STEP, TOP, EDGE = 840, 23, 92, 24
LEFT, LONG = 366, 380  # where the bars begin, length of a distance of 1
TOY, K = "A", 3


def data():
    """[(name, whether it is exact, distance)], enumerated."""
    return [(rule.name, rule.exact, float(find(rule.name, TOY, K).distance)) for rule in RULES]


def row(y, name, exact, distance):
    """A rule's name, its bar, and the length of that in figures."""
    yield text(LEFT - 14, y, name, "small", text_anchor="end")
    if exact:
        yield rect(LEFT, y - 10, 3, 13, "green_bar")
        yield text(LEFT + 12, y, "0, exact", "small green")
    else:
        yield rect(LEFT, y - 10, LONG * distance, 13, "red_bar")
        yield text(LEFT + LONG * distance + 8, y, f"{distance:.3f}", "small")


def draw(data, colour):
    """The picture."""
    rows = sorted(data, key=lambda one: -one[2])  # stable: the exact ones in the page's order
    height = TOP + STEP * len(rows) + 12
    parts = [rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8),
             text(EDGE, 34, "How far from the target is the text?", "bold"),
             text(EDGE, 55, f"Total variation distance of {K + 1} tokens, with {K} guesses in a "
                  f"round: toy {TOY}, all outcomes enumerated", "small muted")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + LONG * share
        parts += [line(x, TOP - 14, x, height - 16),
                  text(x, TOP - 18, f"{share:g}", "small muted", text_anchor="middle")]
    for i, one in enumerate(rows):
        parts += row(TOP + 8 + STEP * i, *one)
    title = ("Bars: the distance of verification rules from the target's distribution. "
             + "; ".join(f"{name}: {'exact' if exact else f'{distance:.3f}'}"
                         for name, exact, distance in rows))
    return picture(WIDTH, height, title, parts, colour)
