"""forking.svg: every way two tokens can be written with one guess a round, and what each sums to.

    path     one run: its decisions, each with the weight of the branch taken
    leaf     the end of a path; its probability is the product along it
    text     what the path has written; the target's probability is the sum over its leaves

The paths are those that exact/law.py walks, with speculative.py's own code.
"""

from collections import defaultdict
from fractions import Fraction

import numpy as np

from speculative import draft_and_verify, generate
from exact.law import paths
from docs.pictures.svg import line, mono, picture, rect, text

P_DRAFT, P_TARGET, N, K = (2, 1), (1, 2), 2, 1  # thirds
WIDTH, TOP, STEP, EDGE = 840, 110, 46, 24
LEFT, ACROSS, BOX = 22, 124, 80  # centre of the first column, from one to the next, width of a box
PRODUCT, SUM = 604, 724  # columns of figures


def flat(thirds):
    """A model with one row."""
    row = np.array([Fraction(part, 3) for part in thirds], dtype=object)
    return lambda ids, n_last=1: np.array([row] * n_last)


def decisions(rounds):
    """What was decided in a run, in the order in which it was."""
    for round in rounds:
        for token in round.guesses:
            yield f"guess {token}"
        for t in range(round.n_tested):
            yield "accept" if t < round.n_accepted else "reject"
        kind = "draw" if not round.guesses else "bonus" if round.n_accepted else "instead"
        yield f"{kind} {round.ids[-1]}"


def data():
    """[(text, probability, [(decision, weight)])], enumerated."""
    step = draft_and_verify(flat(P_DRAFT), flat(P_TARGET), K)
    found = []
    for rounds, chance, forks in paths(lambda rng: list(generate([0], step, N, rng))):
        weights = [weights[branch] for weights, branch in forks]
        ids = [token for round in rounds for token in round.ids]
        found.append((ids, chance, list(zip(decisions(rounds), weights))))
    return found


def boxes(leaves):
    """{path so far: mean height of the leaves beyond it}, in the order of the walk."""
    beyond = defaultdict(list)
    for i, (_, _, path) in enumerate(leaves):
        for n in range(len(path) + 1):
            beyond[tuple(path[:n])].append(TOP + STEP * i)
    return {path: sum(ys) / len(ys) for path, ys in beyond.items()}


def tree(leaves):
    """Every decision as a box, joined to the one before it by a line with its weight."""
    places = boxes(leaves)
    for path, y in places.items():
        x = LEFT + ACROSS * len(path)
        if path:
            x1, y1 = x - ACROSS + BOX / 2, places[path[:-1]]
            yield line(x1, y1, x - BOX / 2, y)
            name, weight = path[-1]
            yield rect(x - BOX / 2, y - 13, BOX, 26, "box", rx=6)
            yield text(x, y + 5, name, "small", text_anchor="middle")
            yield text((x1 + x - BOX / 2) / 2, (y1 + y) / 2 + (16 if y > y1 else -7), str(weight),
                       "small muted", text_anchor="middle")
        else:
            yield text(EDGE, y + 5, "start", "small bold")


def figures(leaves):
    """The product at each leaf; the sum of each text at its last leaf."""
    total = defaultdict(list)
    for i, (ids, chance, path) in enumerate(leaves):
        y, word = TOP + STEP * i, " ".join(map(str, ids))
        total[word].append(chance)
        x = LEFT + ACROSS * len(path) + BOX / 2 + 4
        yield line(x, y, PRODUCT - 12, y, "thread")
        yield mono(PRODUCT, y + 5, word, 14, "bold")
        yield text(PRODUCT + 48, y + 5, f"{chance}", text_anchor="start")
        if word not in {" ".join(map(str, later[0])) for later in leaves[i + 1 :]}:
            parts = " + ".join(map(str, total[word]))
            parts = f"{parts} = {sum(total[word])}" if len(total[word]) > 1 else parts
            yield text(SUM, y + 5, parts, "green")


def draw(leaves, colour):
    """The picture."""
    height = TOP + STEP * len(leaves) + 42
    shown = lambda thirds: ", ".join(str(Fraction(part, 3)) for part in thirds)
    parts = [rect(0.5, 0.5, WIDTH - 1, height - 1, "panel", rx=8),
             text(EDGE, 34, f"Tokens 0 and 1.  p_draft = ({shown(P_DRAFT)}),  p_target = "
                  f"({shown(P_TARGET)}),  N = {N}, K = {K}"),
             text(EDGE, 70, "decisions, and the weight of each branch", "small muted"),
             text(PRODUCT, 70, "text, product", "small muted"),
             text(SUM, 70, "sum = target's", "small muted"),
             *tree(leaves), *figures(leaves)]
    want = [Fraction(P_TARGET[a] * P_TARGET[b], 9) for a in (0, 1) for b in (0, 1)]
    parts.append(text(EDGE, height - 24, "The target alone: " + ", ".join(
        f"{a} {b} with {p}" for (a, b), p in zip([(0, 0), (0, 1), (1, 0), (1, 1)], want)), "small"))
    title = ("A tree of decisions. Each path's weights multiply to its probability; those of the "
             "paths with one text add up to the target's probability of it.")
    style = (f".box{{fill:none;stroke:{colour['block']}}}"
             f".thread{{stroke:{colour['line']};stroke-dasharray:2 3}}")
    return picture(WIDTH, height, title, parts, colour, style)
