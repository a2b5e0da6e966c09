"""Watch a run: return every round as plain data, or as one line.

A round as data is a dict for JSON. A key whose value is unknown is missing.

    ids       "id", "text" and "origin" of each: "accepted" (a guess), "replacement", "bonus",
              or "last" (after the accepted path of a tree)
    guesses   "id", "text", "p_draft" and "p_target" of each, whether it was "accepted", and
              the "threshold" that the uniform number "u_accept" was compared with, and the
              number "u_draw" that drew it; in a tree "parent", and "led_on" on the path taken
    rows      of each position, unless the guesses branch: see `row_of`
    u_last    the uniform number that drew the last token
    forced    true if a pattern left one token at each position, so that no model was asked
    seconds   in this round, by model
"""

import codecs
import os
from collections.abc import Callable, Mapping
from typing import TextIO

import numpy as np

from sampling import residual
from speculative import Round, Test, verify
from variants.shared.branches import Tree
from wrappers.forced import ForcedRound
from wrappers.transformers_tokenizer import Tokenizer

N_TOP = 4  # tokens of a row that are stored: on a page, a whole vocabulary is too much


class Recorded:
    """Record the numbers drawn in a round: those of the guess, then those of the test."""

    def __init__(self, rng: np.random.Generator, passes: list):
        self.rng = rng
        self.passes = passes  # one entry for each pass of the target; it grows
        self.drawn: list[tuple[int, float]] = []  # passes of the target so far, the number

    def random(self):
        number = self.rng.random()
        self.drawn.append((len(self.passes), number))
        return number

    def of_round(self) -> tuple[list[float], list[float]]:
        """Return the numbers drawn before and after the target's last pass; begin a round."""
        before = [number for n, number in self.drawn if n < len(self.passes)]
        after = [number for n, number in self.drawn if n == len(self.passes)]
        self.drawn = []
        return before, after


# ---- a round as data

def watcher(encoder: Tokenizer, rng: Recorded, test: Test,
            clocks: Mapping[str, list]) -> Callable[[Round], dict]:
    """Return a function that turns each Round of a run into data.

    `test` is the decoder's; `clocks` has the seconds of all passes by model, and grows.
    """
    next_text = text_reader(encoder)
    n_read = dict.fromkeys(clocks, 0)

    def see(result):
        of_guess, of_test = rng.of_round()
        seen = round_as_data(result, of_test, test, lambda token: encoder.decode([token]))
        if len(of_guess) == len(seen["guesses"]):  # one number for each guess
            for guess, u in zip(seen["guesses"], of_guess):
                guess["u_draw"] = u
        if isinstance(result, ForcedRound):
            seen["forced"] = True
        for token in seen["ids"]:
            token["text"] = next_text(token["id"])
        seen["seconds"] = {name: sum(clock[n_read[name] :]) for name, clock in clocks.items()}
        n_read.update((name, len(clock)) for name, clock in clocks.items())
        return seen

    return see


def text_reader(encoder: Tokenizer) -> Callable[[int], str]:
    """Return a function from the next id to its text.

    A character of several ids is returned with its last id.
    """
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda token: reader.decode(encoder.decode_bytes([token]))


def round_as_data(result: Round, uniforms: list, test: Test,
                  text_of: Callable[[int], str]) -> dict:
    """Return one round as a dict; `uniforms` are the numbers that its test drew."""
    is_tree = isinstance(result.guesses, Tree)
    guesses = result.guesses.tokens if is_tree else result.guesses
    n = result.n_accepted
    k = len(guesses)
    origins = ["accepted"] * n + [origin_of_last(n, k, is_tree)]
    seen = {"ids": [{"id": int(token), "origin": origin}
                    for token, origin in zip(result.ids, origins)],
            "guesses": [{"id": int(token), "text": text_of(token)} for token in guesses]}
    if is_tree:
        add_branches(seen["guesses"], result)
        return seen
    for t, guess in enumerate(seen["guesses"]):
        guess["p_draft"] = float(result.p_draft[t][guess["id"]])
        guess["p_target"] = float(result.p_target[t][guess["id"]])
        if t <= n:  # whether the guesses after a rejected one are good does not matter
            guess["accepted"] = t < n
    if test is verify:
        add_test(seen, uniforms)
    seen["rows"] = [row_of(result, t, text_of) for t in range(k + 1)]
    return seen


def origin_of_last(n_accepted: int, k: int, is_tree: bool) -> str:
    """Return the origin of the token that the test adds to the accepted guesses."""
    if n_accepted == k:
        return "bonus"
    return "last" if is_tree else "replacement"


def add_test(seen: dict, uniforms: list) -> None:
    """Add the numbers that `verify` compared: Leviathan et al. (2023) Sec. 2.3."""
    *of_guesses, seen["u_last"] = uniforms
    for guess in seen["guesses"]:
        guess["threshold"] = min(guess["p_target"] / guess["p_draft"], 1.0)
    for guess, u in zip(seen["guesses"], of_guesses):
        guess["u_accept"] = u


def add_branches(guesses: list[dict], result: Round) -> None:
    """Add "parent" to the guesses of a tree, and "led_on" to those on the path taken."""
    for guess, parent in zip(guesses, result.guesses.parents):
        guess["parent"] = int(parent)
    path = result.ids[: result.n_accepted]  # the next id may equal a guess that was rejected
    for n in range(1, len(path) + 1):
        guesses[result.guesses.find(path[:n])]["led_on"] = True


def row_of(result: Round, t: int, text_of: Callable[[int], str]) -> dict:
    """Return the most probable tokens of a position, "top", and the sums of the "others".

    A row of "top" is [id, text, p_draft, p_target, from, to]: a uniform number u with
    from <= u < to draws this token where `verify` draws one here. "others" sums the other
    tokens' p_draft, p_target and what both share; the bonus token has no p_draft.
    """
    target = result.p_target[t]
    draft = result.p_draft[t] if t < len(result.guesses) else np.zeros_like(target)
    shown = {*result.ids[t : t + 1], *result.guesses[t : t + 1]}
    surplus = residual(target, draft)
    for row in (draft, target, surplus):
        largest = np.argpartition(row, -N_TOP)[-N_TOP:].tolist()
        shown.update(token for token in largest if row[token] > 0)
    ids = sorted(map(int, shown), key=lambda token: (-target[token], -draft[token], token))
    # `sample` draws the token whose stretch of the cumulative sum holds u
    ends = np.append(0.0, np.cumsum(surplus))
    ends /= ends[-1]
    numbers = np.stack([draft, target, ends[:-1], ends[1:]], axis=1)  # [n_vocab, 4]
    others = np.delete([draft, target, np.minimum(draft, target)], ids, axis=1).sum(axis=1)
    return {"top": [[token, text_of(token), *numbers[token].tolist()] for token in ids],
            "others": others.tolist()}


# ---- a round as a line

MARKS = ("{}", "[-{}-]", "{{+{}+}}")  # accepted, rejected, added
COLOURS = ("\x1b[32m{}\x1b[0m", "\x1b[9;31m{}\x1b[0m", "\x1b[94m{}\x1b[0m")


def round_as_line(seen: dict, colour: bool = False) -> str:
    """Return one round as Leviathan et al. (2023) Fig. 1 shows it: accepted, rejected, added.

    >>> round_as_line({"ids": [{"text": " a", "origin": "accepted"},
    ...                        {"text": " b", "origin": "replacement"}],
    ...                "guesses": [{"text": " a", "accepted": True},
    ...                            {"text": " c", "accepted": False}]})
    ' a[- c-]{+ b+}'
    """
    texts = ([token["text"] for token in seen["ids"] if token["origin"] == "accepted"],
             [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False],
             [token["text"] for token in seen["ids"] if token["origin"] != "accepted"])
    marks = COLOURS if colour else MARKS
    return "".join(mark.format(printable("".join(text)))
                   for mark, text in zip(marks, texts) if text)


def legend(colour: bool = False) -> str:
    """Return what the marks of a round's line mean, each shown by itself."""
    words = ("accepted", "rejected", "replacement or bonus token")
    marks = COLOURS if colour else MARKS
    return ", ".join(mark.format(word) for mark, word in zip(marks, words))


def printable(text: str) -> str:
    """Return the text with everything escaped that could break a line or command a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stream is a terminal whose user did not set NO_COLOR (no-color.org)."""
    return (stream.isatty() and not environ.get("NO_COLOR")
            and environ.get("TERM") != "dumb")
