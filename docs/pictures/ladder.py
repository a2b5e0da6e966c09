"""Draw ladder.svg: expected tokens per round on a toy, as exact.expected prints them."""

from docs.pictures.figures import LETTERS
from docs.pictures.palette import colour
from exact.expected import chain_bound, chain_mean, climb
from speculative import guess

TOY = "A"
K = 3
TESTS = ("plain decoding", "match", "ratio test")


def draw(figure):
    """Draw a bar for match and for the ratio test, and the bound of all tests of one chain."""
    axes = figure.subplots()
    tokens = {name: float(mean) for name, _, mean in climb(TOY, K)}
    bound = float(chain_mean(guess, chain_bound, TOY, K))
    means = [tokens[name] for name in TESTS]
    axes.barh(range(len(TESTS)), means, 0.5, color=colour("blue_bar"))
    for y, mean in enumerate(means):
        axes.text(mean - 0.1, y, f"{mean:.2f}", va="center", ha="right")  # within the bar
    # The bound is a dashed line over the whole height.
    axes.axvline(bound, linestyle="--", color=colour("ink"))
    axes.text(bound - 0.1, 0, f"no exact test of {K}\ndrawn guesses\nexceeds {bound:.2f}",
              va="center", ha="right")
    axes.set_yticks(range(len(TESTS)), TESTS)
    axes.set_ylim(len(TESTS) - 0.45, -0.55)  # y grows downwards
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle(f"Expected tokens per pass of the target, K = {K}", x=0.03, ha="left",
                    fontsize=LETTERS)
    axes.set(xlim=(0, K + 0.6), xticks=range(K + 1))
