"""Define the toys of docs/wild.md: pairs of models with three tokens, enumerated on Fractions.

    TOYS[name]             (draft, target), each a Model
    Found(toy, K, ..)      the texts that a rule wrote on a toy, and the target's texts
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exact.law import composed_law, law, total_variation
from lib.markdown import markdown_table
from speculative import Model, check_length, guess

X = (0,)  # the text before the first round
N_VOCAB = 3
# {toy: (the draft's rows, the target's rows)}. The rows are those after token 0, 1 and 2. A row
# has one digit for each token, in tenths: "154" is .1, .5 and .4.
TENTHS = {
    "A": (["154", "433", "118"], ["262", "622", "226"]),  # after token 0 both prefer token 1
    "B": (["721", "181", "622"], ["235", "523", "145"]),  # the draft prefers 0, the target 2
    "C": (["640", "055", "307"], ["208", "550", "046"]),  # with zeros
}


def markov(rows: Sequence[Sequence]) -> Model:
    """Return the model whose row after a text is the row of the text's last token.

    >>> model = markov(["154", "433", "118"])
    >>> [str(p) for p in model([2, 0])[-1]]  # the row after token 0
    ['1/10', '1/2', '2/5']
    """
    def fractions(digits):
        return np.array([Fraction(int(digit), 10) for digit in digits], dtype=object)

    row_of = [fractions(row) for row in rows]  # row_of[token] is the row after this token

    def rows_after(ids, n_last=1):
        # the last row follows all of ids, and the row before it follows ids[:-1]
        last_tokens = list(ids)[-n_last:]
        return np.array([row_of[token] for token in last_tokens])

    return rows_after


TOYS = {name: (markov(draft), markov(target)) for name, (draft, target) in TENTHS.items()}


def mapped(model: Model, function: Callable) -> Model:
    """Return the model with `function` applied to each of its rows."""
    def mapped_rows(ids, n_last=1):
        return np.array([function(row) for row in model(ids, n_last)])

    return mapped_rows


def one_hot(token: Any, n_vocab: int = N_VOCAB) -> np.ndarray:
    """Return the row in which the token has probability 1, on Fractions."""
    # int() makes 1 of a comparison that holds, and 0 of all others
    return np.array([Fraction(int(i == token)) for i in range(n_vocab)], dtype=object)


def best(x, k, rng, draft: Model):
    """Guess the draft's most probable tokens; their rows are one-hot."""
    return guess(x, k, rng, mapped(draft, lambda row: one_hot(np.argmax(row))))


class Found(NamedTuple):
    """Hold the distribution of the texts that a rule wrote, for one toy and one K."""

    toy: str
    K: int
    texts: dict  # {text: probability}
    wanted: dict  # {text: probability} of the target

    @property
    def distance(self) -> Any:
        """Return the total variation between the texts and the target's."""
        return total_variation(self.texts, self.wanted)


def texts_by_rounds(step_of: Callable, K: int, key: slice = slice(None),
                    enumerate_outcomes: Callable = law) -> dict:
    """Return the distribution of K + 1 tokens after X, from rounds that are enumerated alone.

    step_of    k -> a step with k guesses
    key        the part of the text that a round depends on; slice(-1, None): its last token
    """
    @cache
    def round_after(x, k):
        step = step_of(k)

        def ids_of_round(rng):
            ids = step(list(x), k + 1, rng).ids
            check_length(ids, k + 1)  # a guess may return too many tokens
            return ids

        return enumerate_outcomes(ids_of_round)

    return composed_law(X, lambda x, k: round_after(tuple(x)[key], k), K + 1, K)


def distance_cell(distance: Any, rounding: float = 1e-12) -> str:
    """Return a distance with four decimals, or "0" for a distance that is only rounding."""
    return f"{float(distance):.4f}" if distance > rounding else "0"


def toys_table() -> str:
    """Return the rows of all toys as Markdown."""
    def with_points(rows):
        """Return ".1 .5 .4; .4 .3 .3; .1 .1 .8" for the rows "154", "433" and "118"."""
        return "; ".join(" ".join(f".{digit}" for digit in row) for row in rows)

    lines = []
    for toy, (draft, target) in TENTHS.items():
        lines.append([toy, with_points(draft), with_points(target)])
    return markdown_table(["toy", "p_draft after 0; 1; 2", "p_target after 0; 1; 2"], lines)
