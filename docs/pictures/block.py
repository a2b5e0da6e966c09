"""Draw block.svg: block verification and the ratio test on every pair of guesses of one toy.

At every position the draft gives tokens 0 and 1 the probabilities 2/3 and 1/3, the target the
reverse. All figures are enumerated from the two tests.
"""

from fractions import Fraction
from itertools import product

import numpy as np

from docs.pictures.svg import boxes, line, picture, rect, text
from exact.law import law
from speculative import verify
from variants.block import block_verify

WIDTH, HEIGHT, LEFT, LONG = 840, 330, 300, 400
P_DRAFT = np.array([[Fraction(2, 3), Fraction(1, 3)]] * 2)
P_TARGET = np.array([[Fraction(1, 3), Fraction(2, 3)]] * 3)


def accepted(test, guesses):
    """Return the expected number of accepted guesses."""
    found = law(lambda rng: len(test(list(guesses), P_DRAFT, P_TARGET, rng)) - 1)
    return sum(n * p for n, p in found.items())


def data():
    """Return [(guesses, their probability, accepted one by one, accepted as a block)]."""
    return [(guesses, P_DRAFT[0][guesses[0]] * P_DRAFT[1][guesses[1]],
             accepted(verify, guesses), accepted(block_verify, guesses))
            for guesses in product((0, 1), repeat=2)]


def draw(data, colour):
    """Return the picture: two bars for each pair of guesses, and their means."""
    means = [sum(row[1] * row[which] for row in data) for which in (2, 3)]
    rows = [(f"guesses {a} {b}", f"drawn with {p}; ratios {ratio(a)}, {ratio(b)}", one, block)
            for (a, b), p, one, block in data]
    parts = [rect(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "panel", rx=8),
             text(24, 34, "Expected number of accepted guesses, of two", "bold"),
             rect(LEFT + 90, 22, 14, 14, "blue_bar"), text(LEFT + 110, 34, "one by one", "small"),
             rect(LEFT + 200, 22, 14, 14, "green_bar"), text(LEFT + 220, 34, "as a block", "small")]
    for i, (name, says, one, block) in enumerate([*rows, ("mean", "over all guesses", *means)]):
        y = 60 + 52 * i
        parts += [text(24, y + 14, name, "bold"), text(24, y + 32, says, "small muted")]
        for value, top, class_ in ((one, y, "blue_bar"), (block, y + 19, "green_bar")):
            parts += [rect(LEFT, top, float(LONG * value / 2), 16, class_),
                      text(LEFT + float(LONG * value / 2) + 8, top + 13, f"{value}", "small")]
    parts.append(line(24, 60 + 52 * 4 - 6, WIDTH - 24, 60 + 52 * 4 - 6))
    figures = "; ".join(f"{name}: {one} one by one, {block} as a block"
                        for name, _, one, block in [*rows, ("mean", "", *means)])
    return picture(WIDTH, HEIGHT, f"Bars: expected number of accepted guesses. {figures}.", parts,
                   colour, boxes(colour))


def ratio(token):
    """Return p_target / p_draft of a token."""
    return P_TARGET[0][token] / P_DRAFT[0][token]
