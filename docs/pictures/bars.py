"""Draw ladder.svg and wild.svg: bars of what exact/ enumerates on a toy.

    ladder    python -m exact.expected: the expected tokens per round of each test
    wild      python -m exact.rules, also with --settings: the distance of each inexact rule
"""

import functools

from docs.pictures.palette import colour
from exact.expected import chain_bound, chain_mean, climb
from exact.rules import register, settings
from exact.rules.register import enumerated_rule
from exact.rules.settings import enumerated_setting
from speculative import guess

TOY, K = "A", 3


def draw_ladder(figure, data):
    """Draw a bar for each test, and the bound of a chain as a line."""
    axes = figure.subplots()
    names, ideas, tokens = zip(*climb(TOY, K))
    bound = float(chain_mean(guess, chain_bound, TOY, K))
    axes.barh(range(len(names)), tokens, 0.5, color=colour("blue_bar"))
    for y, expected in enumerate(tokens):
        annotate(axes, K + 1, y, f"{expected:.3f}")  # right of all bars and of the line
    axes.axvline(bound, linestyle="--", color=colour("ink"))
    words = f"no lossless test of one chain\nof drawn guesses exceeds {bound:.3f}"
    annotate(axes, bound, 0, words, -8, ha="right")  # at the left of the line
    name_bars(axes, [f"{name}\n{idea}" for name, idea in zip(names, ideas)],
              f"Expected tokens per pass of the target, {K} guesses per path "
              f"(toy {TOY}, all outcomes enumerated)")
    axes.set(xlim=(0, K + 1.6), xticks=range(K + 2))


@functools.cache
def wrong_rules():
    """Return [(name, distance)] of the wrong rules, largest first, and how many rules are exact."""
    every = [(rule, enumerated_rule) for rule in register.RULES]
    every += [(rule, enumerated_setting) for rule in settings.SETTINGS]
    wrong = []
    for rule, enumerated in every:
        if not rule.exact:
            distance = float(enumerated(rule.name, TOY, K).distance)
            wrong.append((rule.name, distance))
    n_exact = len(every) - len(wrong)
    return sorted(wrong, key=lambda row: row[1], reverse=True), n_exact


def draw_wild(figure, data):
    """Draw a bar for each rule that is wrong, and one green mark for all that are exact."""
    axes = figure.subplots()
    wrong, n_exact = wrong_rules()
    names, distances = zip(*wrong)
    bars = axes.barh(range(len(wrong)), distances, 0.6, color=colour("red_bar"))
    axes.bar_label(bars, fmt="%.3f", padding=8, fontsize=9)
    # All exact rules share one line below the bars.
    axes.plot(0, len(wrong), marker="o", color=colour("green"), clip_on=False, markersize=5)
    annotate(axes, 0, len(wrong), "0, exact", color=colour("green"))
    name_bars(axes, [*names, f"{n_exact} other rules"],
              f"Total variation distance from the target's distribution, {K + 1} tokens\n"
              f"with {K} guesses per round (toy {TOY}, all outcomes enumerated)")
    axes.set(xlim=(0, 1), xticks=[0, 0.25, 0.5, 0.75, 1])


def annotate(axes, x, y, words, distance=8, **style):
    """Write words at the right of a point, or at its left if `distance` is negative."""
    axes.annotate(words, (x, y), (distance, 0), textcoords="offset points", va="center", fontsize=9,
                  **style)


def name_bars(axes, names, title):
    """Write the title above everything and the names at the left, the first one at the top."""
    axes.figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.45, -0.55)  # y grows downwards
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0, pad=8)
