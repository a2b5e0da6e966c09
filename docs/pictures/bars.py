"""Draw ladder.svg and wild.svg: bars of what exact/ enumerates on a toy.

    ladder    python -m exact.expected: the expected tokens per round of each test
    wild      python -m exact.rules: the distance of each rule from the target's distribution
"""

import functools

from docs.pictures.figures import colour
from exact.expected import climb
from exact.rules import RULES, find

TOY, K = "A", 3


def draw_ladder(figure, data):
    """Draw a bar for each test: what the test before it gives, and in green what this test adds."""
    axes, rows, before = figure.subplots(), climb(TOY, K), 0
    for y, (*_, tokens) in enumerate(rows):
        axes.barh(y, before, 0.5, color=colour("block"))
        axes.barh(y, tokens - before, 0.5, before, color=colour("green_bar"))
        more = f"  (+{tokens - before:.3f})" if before else ""
        write_figure(axes, tokens, y, f"{tokens:.3f}{more}", "ink")
        before = tokens
    name_bars(axes, [f"{name}\n{adds}" for name, adds, _ in rows])
    axes.set(xlim=(0, K + 1.9), xticks=range(K + 2),
             title=f"Expected tokens per pass of the target, {K} guesses per path: toy {TOY},\n"
             "all outcomes enumerated. Grey: the bar above; green: what this step adds")


@functools.cache  # for both themes
def distances():
    """Return [(distance, rule)], the largest distance first."""
    rows = [(float(find(rule.name, TOY, K).distance), rule) for rule in RULES]
    return sorted(rows, key=lambda row: -row[0])


def draw_wild(figure, data):
    """Draw a bar for each rule that is wrong, and a green mark for each that is exact."""
    axes, rows = figure.subplots(), distances()
    for y, (distance, rule) in enumerate(rows):
        axes.barh(y, distance, 0.6, color=colour("red_bar"))
        if rule.exact:
            axes.plot(0, y, marker="o", color=colour("green"), clip_on=False, markersize=5)
        write_figure(axes, distance, y, "0, exact" if rule.exact else f"{distance:.3f}",
                     "green" if rule.exact else "ink")
    name_bars(axes, [rule.name for _, rule in rows])
    axes.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1],
             title=f"Total variation distance from the target's distribution, {K + 1} tokens\n"
             f"with {K} guesses per round: toy {TOY}, all outcomes enumerated")


def write_figure(axes, x, y, words, ink):
    """Write a bar's figure at its end."""
    axes.annotate(words, (x, y), (8, 0), textcoords="offset points", va="center", fontsize=9,
                  color=colour(ink))


def name_bars(axes, names):
    """Write the names at the left, the first one at the top."""
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, pad=8)
