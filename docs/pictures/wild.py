"""Draw wild.svg: the distance of each rule of exact/rules.py from the target's distribution."""

from docs.pictures.figures import colour
from exact.rules import RULES, find

TOY, K = "A", 3


def data():
    """Return [(name, whether it is exact, distance)], enumerated; the largest distance first."""
    found = [(rule.name, rule.exact, float(find(rule.name, TOY, K).distance)) for rule in RULES]
    return sorted(found, key=lambda row: -row[2])


def draw(figure, rows):
    """Draw a bar for each rule that is wrong, and a green mark for each that is exact."""
    axes, ys = figure.subplots(), range(len(rows))
    axes.barh(ys, [distance for *_, distance in rows], 0.6, color=colour("red_bar"))
    for y, (_, exact, distance) in enumerate(rows):
        if exact:
            axes.plot(0, y, marker="o", color=colour("green"), clip_on=False, markersize=5)
        axes.annotate("0, exact" if exact else f"{distance:.3f}", (distance, y), (8, 0),
                      textcoords="offset points", va="center", fontsize=9,
                      color=colour("green" if exact else "ink"))
    axes.set_yticks(ys, [name for name, *_ in rows], fontsize=9)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6), xticks=[0, 0.25, 0.5, 0.75, 1],
             title=f"Total variation distance from the target's distribution, {K + 1} tokens\n"
             f"with {K} guesses per round: toy {TOY}, all outcomes enumerated")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, pad=8)
