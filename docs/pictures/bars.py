"""Draw ladder.svg and wild.svg: bars of what exact/ enumerates on a toy.

    ladder    python -m exact.expected: the expected tokens per round of each test
    wild      python -m exact.rules and exact.settings: the distance of each inexact rule
"""

import functools

from docs.pictures.palette import colour
from exact import rules, settings
from exact.expected import climb

TOY, K = "A", 3


def draw_ladder(figure, data):
    """Draw a bar for each test: what the one before it gives, and in green what it adds."""
    axes = figure.subplots()
    rows = climb(TOY, K)
    before = 0
    for y, (*_, tokens) in enumerate(rows):
        axes.barh(y, before, 0.5, color=colour("block"))
        axes.barh(y, tokens - before, 0.5, before, color=colour("green_bar"))
        more = f"  (+{tokens - before:.3f})" if before else ""
        label_bar(axes, tokens, y, f"{tokens:.3f}{more}", "ink")
        before = tokens
    name_bars(axes, [f"{name}\n{adds}" for name, adds, _ in rows])
    axes.set(xlim=(0, K + 1.9), xticks=range(K + 2),
             title=f"Expected tokens per pass of the target, {K} guesses per path: toy {TOY},\n"
             "all outcomes enumerated. Grey: the bar above; green: what this step adds")


@functools.cache
def distances():
    """Return [(name, distance)] of the inexact rules, largest first, and the number of others."""
    every = [(rule, module) for module in (rules, settings) for rule in module.RULES]
    wrong = [(rule.name, float(module.find(rule.name, TOY, K).distance))
             for rule, module in every if not rule.exact]
    return sorted(wrong, key=lambda row: -row[1]), len(every) - len(wrong)


def draw_wild(figure, data):
    """Draw a bar for each rule that is wrong, and one green mark for all that are exact."""
    axes = figure.subplots()
    wrong, n_exact = distances()
    for y, (_, distance) in enumerate(wrong):
        axes.barh(y, distance, 0.6, color=colour("red_bar"))
        label_bar(axes, distance, y, f"{distance:.3f}", "ink")
    axes.plot(0, len(wrong), marker="o", color=colour("green"), clip_on=False, markersize=5)
    label_bar(axes, 0, len(wrong), "0, exact", "green")
    name_bars(axes, [*(name for name, _ in wrong), f"{n_exact} other rules"])
    axes.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1],
             title=f"Total variation distance from the target's distribution, {K + 1} tokens\n"
             f"with {K} guesses per round: toy {TOY}, all outcomes enumerated")


def label_bar(axes, x, y, words, ink):
    """Write a bar's figure at its end."""
    axes.annotate(words, (x, y), (8, 0), textcoords="offset points", va="center", fontsize=9,
                  color=colour(ink))


def name_bars(axes, names):
    """Write the names at the left, the first one at the top."""
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, pad=8)
