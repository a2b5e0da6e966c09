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


def members(family):
    """Return the names of a family's decoders, in the registry's order."""
    return [name for name, entry in DECODERS.items() if entry.family == family]


def box(x, y, width, words, class_, words_class=None):
    """Yield a box around one line of text; y is the middle of both."""
    yield rect(x, y - LOW / 2, width, LOW, class_, rx=6)
    yield text(x + width / 2, y + 5, words, words_class, text_anchor="middle")


def branch_parts(branch, tops, root_y):
    """Yield a branch, a box for each of its families, and the lines that lead to them."""
    middle = sum(tops.values()) / len(tops) + HIGH / 2
    yield line(ROOT + ROOT_WIDTH, root_y, BRANCH, middle)
    yield from box(BRANCH, middle, BRANCH_WIDTH, f"the {branch}", "box")
    for family, y in tops.items():
        yield line(BRANCH + BRANCH_WIDTH, middle, BOX, y + HIGH / 2)
        yield rect(BOX, y, BOX_WIDTH, HIGH, "track", rx=6)
        yield text(BOX + 16, y + 21, family, "bold")
        yield text(BOX + 16, y + 41, "  ".join(members(family)), "mono small")


def draw(data):
    """Return the picture; `data` is not needed."""
    branches = {}  # {branch: {family: the upper edge of its box}}
    y = EDGE
    for branch in dict.fromkeys(FAMILIES.values()):
        branches[branch] = {}
        for family in (each for each in FAMILIES if FAMILIES[each] == branch):
            branches[branch][family] = y
            y += STEP
        y += GAP
    height = y - GAP - STEP + HIGH + EDGE
    parts = [rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8)]
    for branch, tops in branches.items():
        parts += branch_parts(branch, tops, height / 2)
    parts += box(ROOT, height / 2, ROOT_WIDTH, "speculative", "strong", "bold blue")
    style = (f".box{{fill:none;stroke:{colour('grey')}}}"
             f".strong{{fill:none;stroke-width:2;stroke:{colour('blue')}}}")
    listed = "; ".join(f"{family}: {', '.join(members(family))}" for family in FAMILIES)
    title = ("A tree from left to right. Its root is speculative; one branch changes the "
             f"guess, the other the test. Boxes at its right: {listed}.")
    return picture(WIDTH, height, title, parts, style)
