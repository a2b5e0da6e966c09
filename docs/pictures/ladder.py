"""Draw ladder.svg: expected tokens per round on a toy, as exact.expected prints them."""

from docs.pictures.figures import LETTERS
from docs.pictures.palette import colour
from exact.expected import chain_bound, chain_mean, climb
from speculative import guess

TOY = "A"
K = 3


def draw(figure):
    """Draw a bar for each rule, and the bound of all rules for one chain."""
    axes = figure.subplots()
    rungs = [(name.replace("test", "rule"), float(mean)) for name, _, mean in climb(TOY, K)]
    bound = float(chain_mean(guess, chain_bound, TOY, K))
    names, means = zip(*rungs)
    axes.barh(range(len(rungs)), means, 0.6, color=colour("blue_bar"))
    for y, mean in enumerate(means):
        axes.text(mean - 0.06, y, f"{mean:.2f}", va="center", ha="right")  # within the bar
    # The bound is a dashed line over the rules for a chain; all rungs after them judge trees.
    n_chains = sum(mean < bound for mean in means)
    axes.plot([bound, bound], [-0.5, n_chains - 0.5], linestyle="--", marker="",
              color=colour("ink"))
    axes.text(bound + 0.08, 0, f"no exact rule\nfor a chain\nexceeds {bound:.2f}", va="top")
    axes.set_yticks(range(len(rungs)), names)
    axes.set_ylim(len(rungs) - 0.45, -0.55)  # y grows downwards
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle(f"Expected tokens per pass of the target, K = {K}", x=0.03, ha="left",
                    fontsize=LETTERS)
    axes.set(xlim=(0, K + 1.6), xticks=range(K + 2))
