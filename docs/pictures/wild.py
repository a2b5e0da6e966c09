"""Draw wild.svg: the distance of each inexact rule found in public, by project and status.

docs/wild_tables.md has the distances, as python -m exact.rules --public printed them.
"""

from docs.pictures.palette import colour
from docs.tables import PRINTED, ROOT, cells

COLOURS = {"shipped": "red_bar", "reported": "red_bar", "option": "blue_bar",
           "fixed": "green_bar"}
KEY = [("red_bar", "in the linked code"), ("green_bar", "fixed since"),
       ("blue_bar", "option")]


def entries():
    """Return [(distance, project, id, status)], the largest distance first."""
    page = (ROOT / "docs/wild_tables.md").read_text(encoding="utf-8")
    (printed,) = (block for block in PRINTED.finditer(page) if "--public" in block["flags"])
    found = []
    for line in printed["text"].strip().split("\n")[2:]:
        project, name, status, _, distance, _ = cells(line)
        found.append((float(distance), project, name, status))
    return sorted(found, key=lambda entry: -entry[0])


def draw(figure):
    """Draw for each rule its id and project, and below them a bar and its distance."""
    axes = figure.subplots()
    rules = entries()
    for y, (distance, project, name, status) in enumerate(rules):
        axes.barh(y + 0.37, distance, 0.27, color=colour(COLOURS[status]))
        axes.text(0, y, name, va="center")
        axes.text(1.2, y, project, va="center", ha="right", color=colour("muted"))
        axes.text(distance + 0.02, y + 0.37, f"{distance:.3f}", va="center")
    axes.set(xlim=(0, 1.2), ylim=(len(rules), -0.5))
    axes.axis("off")
    bars = [axes.barh(0, 0, color=colour(name), label=words) for name, words in KEY]
    title = "Inexact rules found in public: total\nvariation from the target (toy A, K = 3)"
    figure.legend(bars, [words for _, words in KEY], loc="outside upper left", ncols=3,
                  frameon=False, alignment="left", title=title)
