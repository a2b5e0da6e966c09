"""Draw wild.svg: the distance of each inexact rule found in public, by project and status.

python -m exact.rules --public prints the distances.
"""

from docs.pictures.svg import EDGE, WIDTH, picture
from exact.rules.__main__ import public_rules
from lib.svg import rect, text

COLOURS = {"shipped": "red_bar", "reported": "red_bar", "option": "blue_bar",
           "fixed": "green_bar"}
KEY = [("red_bar", "in the linked code"), ("green_bar", "fixed since"),
       ("blue_bar", "option")]
TOP = 118  # y of the first rule
BAR = 17  # from a rule to its bar
BETWEEN = 45  # from a rule to the next rule
FULL = 330  # the length of the bar of distance 1


def entries():
    """Return [(distance, project, id, status)], the largest distance first."""
    found = [(float(law.distance), name, rule.id, rule.status)
             for name, rule, _, law in public_rules()]
    return sorted(found, key=lambda entry: -entry[0])


def draw(data):
    """Return the picture; `data` is not needed."""
    parts = [text(EDGE, 32, "Inexact rules found in public", "bold"),
             text(EDGE, 54, "total variation from the target (toy A, K = 3)", "small muted")]
    x = EDGE
    for bar, words in KEY:
        parts += [rect(x, 71, 12, 12, bar, rx=2), text(x + 18, 82, words, "small")]
        x += 44 + 8 * len(words)
    y = TOP
    rules = entries()
    for distance, project, name, status in rules:
        end = EDGE + FULL * distance
        parts += [text(EDGE, y, name, "small"),
                  text(WIDTH - EDGE, y, project, "small muted", text_anchor="end"),
                  rect(EDGE, y + BAR - 11, FULL * distance, 12, COLOURS[status], rx=2),
                  text(end + 8, y + BAR, f"{distance:.3f}", "small")]
        y += BETWEEN
    listed = "; ".join(f"{name} ({project}, {status}): {distance:.3f}"
                       for distance, project, name, status in rules)
    return picture(y, f"Bars: the distance of each inexact rule. {listed}.", parts)
