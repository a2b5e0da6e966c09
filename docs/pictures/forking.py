"""Draw forking.svg: every way to write two tokens with one guess per round, and the sums.

    path     one run: its decisions, each with the weight of the branch taken
    leaf     the end of a path; its probability is the product of the weights
    text     what the path has written; the target's probability is the sum over its leaves

The paths are those that exact/law.py walks, with speculative.py's own code.
"""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from docs.pictures.figures import colour
from exact.law import paths
from speculative import draft_and_verify, generate

P_DRAFT, P_TARGET, N, K = (2, 1), (1, 2), 2, 1  # thirds
PRODUCT, SUM = 4.8, 5.8  # columns of figures; a decision's column is its number, from 1


def flat(thirds):
    """Return a model that gives the same row after every text."""
    row = np.array([Fraction(part, 3) for part in thirds], dtype=object)
    return lambda ids, n_last=1: np.array([row] * n_last)


def decisions(rounds):
    """Yield what a run decided, in order."""
    for round in rounds:
        for token in round.guesses:
            yield f"guess {token}"
        for t in range(round.n_tested):
            yield "accept" if t < round.n_accepted else "reject"
        kind = "draw" if not round.guesses else "bonus" if round.n_accepted else "instead"
        yield f"{kind} {round.ids[-1]}"


def data():
    """Return [(text, probability, [(decision, weight)])], enumerated."""
    step = draft_and_verify(flat(P_DRAFT), flat(P_TARGET), K)
    found = []
    for rounds, chance, forks in paths(lambda rng: list(generate([0], step, N, rng))):
        weights = [weights[branch] for weights, branch in forks]
        words = " ".join(str(token) for round in rounds for token in round.ids)
        found.append((words, chance, list(zip(decisions(rounds), weights))))
    return found


def heights(leaves):
    """Return {path so far: mean row of its leaves}, in the order of the walk."""
    rows = defaultdict(list)
    for row, (_, _, path) in enumerate(leaves):
        for n in range(len(path) + 1):
            rows[tuple(path[:n])].append(row)
    return {path: sum(found) / len(found) for path, found in rows.items()}


def draw(figure, leaves):
    """Draw the tree of decisions, the product at each leaf, the sum of each text at its last."""
    axes, at = figure.subplots(), heights(leaves)
    for path, y in at.items():
        box(axes, len(path), y, path[-1][0] if path else "start")
        if path:
            above = at[path[:-1]]
            axes.plot([len(path) - 0.7, len(path) - 0.3], [above, y], marker="", linewidth=1,
                      color=colour("muted"))
            x, shift = len(path) - (0.5 if y == above else 0.56), 0.15 if y > above else -0.15
            axes.text(x, (above + y) / 2 + shift, str(path[-1][1]), va="center", fontsize=8.5,
                      ha="center" if y == above else "right", color=colour("muted"))
    total = defaultdict(list)
    for y, (words, chance, path) in enumerate(leaves):
        total[words].append(chance)
        axes.plot([len(path) + 0.36, PRODUCT - 0.15], [y, y], ":", marker="", linewidth=1,
                  color=colour("block"))
        axes.text(PRODUCT, y, words, va="center", fontweight="bold")
        axes.text(PRODUCT + 0.35, y, str(chance), va="center")
        if words not in [later for later, *_ in leaves[y + 1 :]]:
            terms = [*map(str, total[words])]
            axes.text(SUM, y, " + ".join(terms) + (f" = {sum(total[words])}" if terms[1:] else ""),
                      va="center", color=colour("green"))
    write_heads(axes, len(leaves))


def box(axes, x, y, words):
    """Draw a decision."""
    edge = {"boxstyle": "round,pad=0.35", "facecolor": "none", "edgecolor": colour("block")}
    axes.text(x, y, words, ha="center", va="center", fontsize=9, bbox=edge)


def write_heads(axes, n_leaves):
    """Write the models above the columns, and the target's own probabilities below."""
    thirds = lambda row: ", ".join(str(Fraction(part, 3)) for part in row)
    for x, words in ((0, "decisions, and the weight of each branch"), (PRODUCT, "text, product"),
                     (SUM, "sum = target's")):
        axes.text(x - 0.3 * (x == 0), -0.85, words, color=colour("muted"), fontsize=9)
    alone = ", ".join(f"{a} {b} with {Fraction(P_TARGET[a] * P_TARGET[b], 9)}"
                      for a in (0, 1) for b in (0, 1))
    axes.text(-0.3, n_leaves - 0.15, f"The target alone: {alone}", fontsize=9)
    axes.set(xlim=(-0.4, 7.2), ylim=(n_leaves + 0.1, -1.2))
    axes.set_title(f"Tokens 0 and 1.  p_draft = ({thirds(P_DRAFT)}),  p_target = "
                   f"({thirds(P_TARGET)}),  N = {N}, K = {K}", loc="left")
    axes.axis("off")
