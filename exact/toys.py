"""Define the toys of docs/wild.md: pairs of models with three tokens, enumerated on Fractions.

    TOYS[name]             (draft, target), each a Model
    numbered(rows, ..)     a model whose rows are chosen by the tokens so far
    Found(toy, K, ..)      the texts that a rule wrote on a toy, and the target's texts

A setting is what a decoder does to the target's row before it draws: a penalty, a mask, a
minimum length. setting(row, new_tokens) returns the weights of the next token, given the new
tokens before it. The weights need not sum to 1.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from exact.law import composed_law, law, total_variation
from lib.markdown import markdown_table
from speculative import Model, Step, check_length, guess

X = (0,)  # the text before the first round
N_VOCAB = 3
# {toy: (the draft's rows, the target's rows)}. The rows are those after token 0, 1 and 2. A row
# has one digit for each token, in tenths: "154" is .1, .5 and .4.
TENTHS = {
    "A": (["154", "433", "118"], ["262", "622", "226"]),  # after token 0 both prefer token 1
    "B": (["721", "181", "622"], ["235", "523", "145"]),  # the draft prefers 0, the target 2
    "C": (["640", "055", "307"], ["208", "550", "046"]),  # with zeros
}
# the rows of the judge's toy D, which depend on the whole text: see by_text
D_TENTHS = (["190", "343", "019", "271", "640", "406", "055"],
            ["703", "361", "505", "118", "370", "073", "226"])
N_NEW = 4  # new tokens of a whole text, where rounds may depend on earlier rounds

Setting = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]  # (row, new_tokens) -> weights


def fractions(model: Sequence[Sequence]) -> list[np.ndarray]:
    """Return rows of digits or whole numbers as Fractions, each row divided by its sum."""
    rows = [[*map(int, row)] for row in model]
    return [np.array([Fraction(n, sum(row)) for n in row], dtype=object) for row in rows]


def numbered(rows: Any, next_number: Callable[[int, int], int]) -> Model:
    """Return a model of these rows: the row after no token is row 0, and each token moves on.

    rows           [n, n_vocab] of floats, or rows of Fractions
    next_number    (number of the row before the token, token) -> number of the row after it

    >>> model = numbered(fractions(D_TENTHS[1]), by_text)
    >>> [str(p) for p in model([0, 2])[-1]]  # row (3 (3 * 0 + 0 + 1) + 2 + 1) mod 7 = 6
    ['1/5', '1/5', '3/5']
    """
    def rows_after(ids, n_last=1):
        numbers = [0]
        for token in ids:
            numbers.append(next_number(numbers[-1], token))
        return np.array([rows[number] for number in numbers[-n_last:]])

    return rows_after


by_last_token = lambda number, token: token
# every token, its place and the order change the number of the last row
by_text = lambda number, token: (3 * number + token + 1) % len(D_TENTHS[0])
# the rows of the oracle's toys: row 1 follows the prompt, row 2 + token each later token
by_later_token = lambda number, token: 1 if number == 0 else 2 + token


def rows_of_numbers(model: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return the rows of a model in the TOYS of exact/oracle.py as Fractions."""
    rows = fractions(model)
    return [rows[0], *rows]  # row 0, before the prompt, is never asked for


def markov(tenths: Sequence[str]) -> Model:
    """Return the model whose row after a text is the row of the text's last token."""
    return numbered(fractions(tenths), by_last_token)


TOYS = {name: (markov(draft), markov(target)) for name, (draft, target) in TENTHS.items()}


def row_under(setting: Setting, row: np.ndarray, new_tokens: Sequence[int]) -> np.ndarray:
    """Return the weights of a setting, divided by their sum."""
    weights = setting(row, tuple(new_tokens))
    return weights / weights.sum()


def under(setting: Setting, target: Model, n_prompt: int) -> Model:
    """Return the target whose rows are under a setting, which is given all new tokens."""
    def rows_under(ids, n_last=1):
        first_end = len(ids) - n_last + 1  # row 0 follows the ids before this place
        return np.array([row_under(setting, row, ids[n_prompt : first_end + i])
                         for i, row in enumerate(target(ids, n_last))])

    return rows_under


def mapped(model: Model, function: Callable) -> Model:
    """Return the model with `function` applied to each of its rows."""
    def mapped_rows(ids, n_last=1):
        return np.array([function(row) for row in model(ids, n_last)])

    return mapped_rows


def one_hot(token: Any) -> np.ndarray:
    """Return the row in which the token has probability 1, on Fractions."""
    # int() makes 1 of a comparison that holds, and 0 of all others
    return np.array([Fraction(int(i == token)) for i in range(N_VOCAB)], dtype=object)


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


def law_of_round(step: Step, x: Sequence[int], k: int) -> dict:
    """Return {ids: p} of the tokens that a step with k guesses writes after the text x."""
    def ids_of_round(rng):
        ids = step(list(x), k + 1, rng).ids
        check_length(ids, k + 1)  # a guess may return too many tokens
        return ids

    return law(ids_of_round)


def texts_by_rounds(round_after: Callable, K: int, n_new: int) -> dict:
    """Return {text: p} of X and n_new more tokens, from rounds that are enumerated alone.

    round_after    (text, k) -> the law_of_round of a step with k guesses
    """
    def one_round(text, memory, n_left):
        # k guesses give at most k + 1 tokens, so k = n_left - 1 guesses are enough
        ids_law = round_after(text, min(K, n_left - 1))
        return {(ids, memory): p for ids, p in ids_law.items()}

    return {text: p for (text, _), p in composed_law(X, one_round, n_new).items()}


def distance_cell(distance: Any, rounding: float = 1e-12) -> str:
    """Return a distance with four decimals, or "0" for a distance that is only rounding."""
    return f"{float(distance):.4f}" if distance > rounding else "0"


def toys_table(pairs: dict = TENTHS, numbers: str = "after 0; 1; 2") -> str:
    """Return the rows of these toys as Markdown; `numbers` tells which rows they are."""
    def with_points(rows):
        """Return ".1 .5 .4; .4 .3 .3; .1 .1 .8" for the rows "154", "433" and "118"."""
        return "; ".join(" ".join(f".{digit}" for digit in row) for row in rows)

    lines = []
    for toy, (draft, target) in pairs.items():
        lines.append([toy, with_points(draft), with_points(target)])
    return markdown_table(["toy", f"p_draft {numbers}", f"p_target {numbers}"], lines)
