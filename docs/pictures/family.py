"""Draw family.svg: every decoder of the registry, in a box for what it changes.

A decoder's entry names its family (variants/registry.py): nothing is drawn by hand.
"""

from docs.pictures.palette import colour
from docs.pictures.svg import line, picture, rect, text
from variants import DECODERS
from variants.registry import FAMILIES

WIDTH, EDGE = 840, 24
ROOT, BRANCH, BOX = 20, 196, 350  # left edges of the three columns
ROOT_WIDTH, BRANCH_WIDTH, BOX_WIDTH = 128, 108, 466
LOW, HIGH = 44, 52  # heights of a box with one line of text, and with two
STEP, GAP = 64, 6  # from one family to the next; additional space between the two branches
HEIGHT = 2 * EDGE + (len(FAMILIES) - 1) * STEP + GAP + HIGH


def members(family):
    """Return the names of a family's decoders, in the registry's order."""
    return [name for name, entry in DECODERS.items() if entry.family == family]


def box(x, y, width, words, class_, words_class=None):
    """Yield a box around one line of text; y is the middle of both."""
    yield rect(x, y - LOW / 2, width, LOW, class_, rx=6)
    yield text(x + width / 2, y + 5, words, words_class, text_anchor="middle")


def branch_parts(branch, families, top):
    """Yield a branch, a box for each of its families, and the lines that lead to them."""
    last_top = top + (len(families) - 1) * STEP  # of the last family's box
    middle = (top + last_top + HIGH) / 2
    yield line(ROOT + ROOT_WIDTH, HEIGHT / 2, BRANCH, middle)
    yield from box(BRANCH, middle, BRANCH_WIDTH, f"the {branch}", "box")
    for i, family in enumerate(families):
        y = top + STEP * i
        yield line(BRANCH + BRANCH_WIDTH, middle, BOX, y + HIGH / 2)
        yield rect(BOX, y, BOX_WIDTH, HIGH, "track", rx=6)
        yield text(BOX + 16, y + 21, family, "bold")
        yield text(BOX + 16, y + 41, "  ".join(members(family)), "mono small")


def draw(data):
    """Return the picture; `data` is not needed."""
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8)]
    top = EDGE
    for branch in dict.fromkeys(FAMILIES.values()):  # each branch once, in order
        families = [family for family in FAMILIES if FAMILIES[family] == branch]
        parts += branch_parts(branch, families, top)
        top += STEP * len(families) + GAP
    parts += box(ROOT, HEIGHT / 2, ROOT_WIDTH, "speculative", "strong", "bold blue")
    style = (f".box{{fill:none;stroke:{colour('grey')}}}"
             f".strong{{fill:none;stroke-width:2;stroke:{colour('blue')}}}")
    listed = "; ".join(f"{family}: {', '.join(members(family))}" for family in FAMILIES)
    title = ("A tree from left to right. Its root is speculative; one branch changes the "
             f"guess, the other the test. Boxes at its right: {listed}.")
    return picture(WIDTH, HEIGHT, title, parts, style)
