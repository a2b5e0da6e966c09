"""Draw forking.svg: every way to write two tokens with one guess per round, and the sums.

    path     one run: [(decision, weight)], where the weight is the decision's probability
    leaf     the end of a path; its probability is the product of the path's weights
    text     the tokens that a path writes; their probability is the sum over the leaves of
             all paths that write them
    row      the number of a leaf, from above: its y in the picture

The paths are those that exact/law.py walks, with speculative.py's own code.
"""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from docs.pictures.palette import colour
from exact.law import paths
from speculative import draft_and_verify, generate

P_DRAFT, P_TARGET = np.array([[2, 1], [1, 2]]) * Fraction(1, 3)
N = 2
K = 1
# x of two columns of figures; a decision's x is its number in its path, from 1
PRODUCT = 4.8
SUM = 5.8


def constant_model(row):
    """Return a model that gives the same row after every text."""
    return lambda ids, n_last=1: np.array([row] * n_last)


def decisions(rounds):
    """Yield the decisions of a run, in order."""
    for result in rounds:
        for token in result.guesses:
            yield f"guess {token}"
        # Guesses 0 .. n_accepted - 1 were accepted, and the next tested guess was rejected.
        for t in range(result.n_tested):
            yield "accept" if t < result.n_accepted else "reject"
        if not result.guesses:  # one token was wanted
            noun = "draw"
        elif result.n_accepted:  # K = 1: all guesses
            noun = "bonus"
        else:
            noun = "replacement"
        yield f"{noun} {result.ids[-1]}"


def enumerate_paths():
    """Return the leaves: [(text, probability, path)]."""
    step = draft_and_verify(constant_model(P_DRAFT), constant_model(P_TARGET), K)
    leaves = []
    for rounds, probability, forks in paths(lambda rng: list(generate([0], step, N, rng))):
        # A fork is (the weights of its branches, the branch taken).
        weights = [of_branches[branch] for of_branches, branch in forks]
        text = " ".join(str(token) for result in rounds for token in result.ids)
        leaves.append((text, probability, list(zip(decisions(rounds), weights))))
    return leaves


def mean_rows(leaves):
    """Return {start of a path: mean row of its leaves}; a start comes before longer ones."""
    rows = defaultdict(list)  # {start of a path: the rows of the leaves that follow}
    for row, (_, _, path) in enumerate(leaves):
        # The leaf follows every start of its path: none of its decisions, one, .. all of them.
        for n in range(len(path) + 1):
            rows[tuple(path[:n])].append(row)
    return {start: sum(below) / len(below) for start, below in rows.items()}


def draw(figure, data):
    """Draw the tree of decisions, the product at each leaf, the sum at a text's last leaf."""
    axes = figure.subplots()
    leaves = enumerate_paths()
    ys = mean_rows(leaves)
    boxes = {}  # {start of a path: the box around its last decision}
    # A shorter start comes first in ys, so its box exists when a longer start needs it.
    for start in ys:
        boxes[start] = draw_decision(axes, start, ys, boxes)
    products = defaultdict(list)  # {text: the probabilities of its leaves so far}
    for row, (text, probability, path) in enumerate(leaves):
        products[text].append(probability)
        # The text is in its column; a dotted line leads from it to the end of the path.
        axes.annotate(text, (len(path), row), (PRODUCT, row), va="center", fontweight="bold",
                      arrowprops=line_to(boxes[tuple(path)]) | {"linestyle": ":"})
        axes.text(PRODUCT + 0.35, row, str(probability), va="center")
        # The sum of a text stands at its last leaf.
        texts_below = [later for later, *_ in leaves[row + 1 :]]
        if text not in texts_below:
            words = sum_in_words(products[text])
            axes.text(SUM, row, words, va="center", color=colour("green"))
    for x, words in ((-0.3, "decisions, and the weight of each branch"),
                     (PRODUCT, "text, product"), (SUM, "sum = target's")):
        axes.text(x, -0.85, words, color=colour("muted"), fontsize=9)
    # The same row after every text, so the probability of a text is a product of two numbers.
    alone = ", ".join(f"{a} {b} with {P_TARGET[a] * P_TARGET[b]}"
                      for a in (0, 1) for b in (0, 1))
    axes.text(-0.3, len(leaves) - 0.15, f"The target alone: {alone}", fontsize=9)
    axes.set(xlim=(-0.4, 7.2), ylim=(len(leaves) + 0.1, -1.2))
    axes.set_title(f"Tokens 0 and 1.  p_draft = ({P_DRAFT[0]}, {P_DRAFT[1]}),  p_target = "
                   f"({P_TARGET[0]}, {P_TARGET[1]}),  N = {N}, K = {K}", loc="left")
    axes.axis("off")


def sum_in_words(fractions):
    """Return "1/9 + 1/9 = 2/9", or the fraction if there is only one."""
    terms = " + ".join(map(str, fractions))
    return f"{terms} = {sum(fractions)}" if len(fractions) > 1 else terms


def draw_decision(axes, start, ys, boxes):
    """Draw the last decision of a path's start, its line and weight; return its box."""
    x = len(start)
    y = ys[start]
    decision, weight = start[-1] if start else ("start", "")
    parent = start[:-1]  # the start without its last decision; () for the empty start
    parent_x = len(parent)
    parent_y = ys[parent]
    # The weight is written outside the fork: below a line that goes down, above one that goes
    # up.
    beside_line = 0.15 if y > parent_y else -0.15
    axes.text(x - 0.52, (parent_y + y) / 2 + beside_line, str(weight),
              va="center", ha="right", fontsize=8.5, color=colour("muted"))
    edge = {"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": colour("block")}
    line = line_to(boxes[parent]) if start else None
    # The decision is at (x, y); the line leads from it to the parent's box.
    annotation = axes.annotate(decision, (parent_x, parent_y), (x, y), ha="center",
                               va="center", fontsize=9, bbox=edge, arrowprops=line)
    return annotation.get_bbox_patch()


def line_to(box):
    """Return the style of a line that ends at the edge of a box."""
    return {"arrowstyle": "-", "patchB": box, "shrinkA": 0, "shrinkB": 0,
            "color": colour("muted")}
