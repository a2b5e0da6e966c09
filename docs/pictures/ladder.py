"""Draw ladder.svg: the expected tokens per round of each test, and what each step adds.

Every figure is enumerated: python -m exact.expected prints them.
"""

from docs.pictures.figures import colour
from exact.expected import climb

TOY, K = "A", 3


def data():
    """Return [(test, what it adds, expected tokens per round)]."""
    return climb(TOY, K)


def draw(figure, rows):
    """Draw a bar for each test: what the test before it gives, and in green what this test adds."""
    axes, before = figure.subplots(), 0
    for y, (*_, tokens) in enumerate(rows):
        axes.barh(y, before, 0.5, color=colour("block"))
        axes.barh(y, tokens - before, 0.5, before, color=colour("green_bar"))
        more = f"  (+{tokens - before:.3f})" if before else ""
        axes.annotate(f"{tokens:.3f}{more}", (tokens, y), (8, 0), textcoords="offset points",
                      va="center", fontsize=9)
        before = tokens
    axes.set_yticks(range(len(rows)), [f"{name}\n{adds}" for name, adds, _ in rows], fontsize=9)
    axes.set(xlim=(0, K + 1.9), ylim=(len(rows) - 0.5, -0.5), xticks=range(K + 2),
             title=f"Expected tokens per pass of the target, {K} guesses per path: toy {TOY},\n"
             "all outcomes enumerated. Grey: the bar above; green: what this step adds")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
