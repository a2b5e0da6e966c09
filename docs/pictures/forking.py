"""Draw forking.svg: every way to write two tokens with one guess per round, and the sums.

    path     one run: its decisions, each with the weight of the branch taken
    leaf     the end of a path; its probability is the product of the weights
    text     what the path has written; the target's probability is the sum over its leaves

The paths are those that exact/law.py walks, with speculative.py's own code.
"""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from docs.pictures.palette import colour
from exact.law import paths
from speculative import draft_and_verify, generate

P_DRAFT, P_TARGET = np.array([[2, 1], [1, 2]]) * Fraction(1, 3)
N, K = 2, 1
PRODUCT, SUM = 4.8, 5.8  # columns of figures; a decision's column is its number, from 1


def flat(row):
    """Return a model that gives the same row after every text."""
    return lambda ids, n_last=1: np.array([row] * n_last)


def decisions(rounds):
    """Yield what a run decided, in order."""
    for result in rounds:
        for token in result.guesses:
            yield f"guess {token}"
        for t in range(result.n_tested):
            yield "accept" if t < result.n_accepted else "reject"
        kind = "draw" if not result.guesses else "bonus" if result.n_accepted else "replacement"
        yield f"{kind} {result.ids[-1]}"


def enumerate_paths():
    """Return [(text, probability, [(decision, weight)])], enumerated."""
    step = draft_and_verify(flat(P_DRAFT), flat(P_TARGET), K)
    found = []
    for rounds, probability, forks in paths(lambda rng: list(generate([0], step, N, rng))):
        weights = [weights[branch] for weights, branch in forks]
        words = " ".join(str(token) for result in rounds for token in result.ids)
        found.append((words, probability, list(zip(decisions(rounds), weights))))
    return found


def heights(leaves):
    """Return {path so far: mean row of its leaves}, in the order of the walk."""
    rows = defaultdict(list)
    for row, (_, _, path) in enumerate(leaves):
        for n in range(len(path) + 1):
            rows[tuple(path[:n])].append(row)
    return {path: sum(found) / len(found) for path, found in rows.items()}


def draw(figure, data):
    """Draw the tree of decisions, the product at each leaf, each text's sum at its last."""
    axes = figure.subplots()
    leaves = enumerate_paths()
    sums = defaultdict(list)
    at = heights(leaves)
    boxes = {}  # {path so far: the box around its last decision}
    for path in at:
        boxes[path] = draw_decision(axes, path, at, boxes)
    for y, (words, probability, path) in enumerate(leaves):
        sums[words].append(probability)
        axes.annotate(words, (len(path), y), (PRODUCT, y), va="center", fontweight="bold",
                      arrowprops=line_to(boxes[tuple(path)]) | {"linestyle": ":"})
        axes.text(PRODUCT + 0.35, y, str(probability), va="center")
        if words not in [later for later, *_ in leaves[y + 1 :]]:
            total = f" = {sum(sums[words])}" if len(sums[words]) > 1 else ""
            axes.text(SUM, y, " + ".join(map(str, sums[words])) + total, va="center",
                      color=colour("green"))
    for x, words in ((-0.3, "decisions, and the weight of each branch"),
                     (PRODUCT, "text, product"), (SUM, "sum = target's")):
        axes.text(x, -0.85, words, color=colour("muted"), fontsize=9)
    alone = ", ".join(f"{a} {b} with {P_TARGET[a] * P_TARGET[b]}"
                      for a in (0, 1) for b in (0, 1))
    axes.text(-0.3, len(leaves) - 0.15, f"The target alone: {alone}", fontsize=9)
    axes.set(xlim=(-0.4, 7.2), ylim=(len(leaves) + 0.1, -1.2))
    axes.set_title(f"Tokens 0 and 1.  p_draft = ({P_DRAFT[0]}, {P_DRAFT[1]}),  p_target = "
                   f"({P_TARGET[0]}, {P_TARGET[1]}),  N = {N}, K = {K}", loc="left")
    axes.axis("off")


def draw_decision(axes, path, at, boxes):
    """Draw the last decision of a path, its line and weight; return the box around it."""
    x, y = len(path), at[path]
    words, weight = path[-1] if path else ("start", "")
    above = at[path[:-1]]
    edge = {"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": colour("block")}
    axes.text(x - 0.52, (above + y) / 2 + (0.15 if y > above else -0.15), str(weight),
              va="center", ha="right", fontsize=8.5, color=colour("muted"))
    return axes.annotate(
        words, (len(path[:-1]), above), (x, y), ha="center", va="center", fontsize=9, bbox=edge,
        arrowprops=line_to(boxes[path[:-1]]) if path else None).get_bbox_patch()


def line_to(box):
    """Return the style of a line that ends at the edge of a box."""
    return {"arrowstyle": "-", "patchB": box, "shrinkA": 0, "shrinkB": 0,
            "color": colour("muted")}
