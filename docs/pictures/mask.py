"""Draw mask.svg: a tree of five guesses and the mask of the pass that scores it."""

from docs.pictures.svg import box, boxes, line, picture, rect, text
from variants.shared.branches import Tree

WIDTH, HEIGHT, CELL = 840, 300, 34
NODES = [(-1, "a"), (-1, "the"), (0, "king"), (0, "fox"), (1, "fox")]  # parent, token
AT = [(170, 80), (170, 190), (300, 50), (300, 110), (300, 190)]
GRID = 536, 78


def make_tree():
    """Return the tree of the picture; its mask comes from the code that decodes."""
    tree = Tree()
    for parent, token in NODES:
        tree.add(parent, token, None)
    return tree


def draw(data, colour):
    """Return the picture: the tree at the left, who sees whom at the right."""
    sees, (left, top) = make_tree().ancestors(), GRID
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, "Five guesses", "bold"), box(24, 134, 96, 36, "the text", "track")]
    for i, ((parent, token), (x, y)) in enumerate(zip(NODES, AT)):
        px, py = (120, 152) if parent < 0 else (AT[parent][0] + 84, AT[parent][1] + 18)
        parts += [line(px, py, x, y + 18), box(x, y, 84, 36, f"{i}: {token}")]
    parts += [text(left - 120, 34, "What each row sees", "bold"),
              text(left + CELL / 2, top - 10, "text", "small muted", text_anchor="middle")]
    for i, (_, token) in enumerate(NODES):
        y = top + CELL * i
        parts.append(text(left - 14, y + 22, f"{i}: {token}", "small", text_anchor="end"))
        parts.append(text(left + CELL * (i + 1.5), top - 10, f"{i}", "small muted",
                          text_anchor="middle"))
        for j in range(-1, len(NODES)):
            seen = j < 0 or sees[i, j]
            parts.append(rect(left + CELL * (j + 1) + 1, y + 1, CELL - 2, CELL - 2,
                              "green_bar" if seen else "box", rx=3))
    parts.append(text(24, HEIGHT - 22, "A guess sees the text, its ancestors and itself; its "
                      "position is its depth. Nodes 3 and 4 have the same token and different "
                      "rows.", "small muted"))
    title = ("A tree: after the text come 0 a and 1 the; 2 king and 3 fox follow a, 4 fox follows "
             "the. Beside it a grid: every row sees the text and itself; rows 2 and 3 also see 0, "
             "row 4 also sees 1.")
    return picture(WIDTH, HEIGHT, title, parts, colour, boxes(colour))
