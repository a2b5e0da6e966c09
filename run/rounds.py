"""Return every round of a run as plain data, or as one line.

A round as data is a dict for JSON. A key whose value is unknown is missing.

    ids       "id", "text", "logprob" (the target's, unless the decoder is lossy)
              and "origin" of each: "accepted" (a guess), "replacement", "bonus",
              or "last" (after the accepted path of a tree)
    guesses   "id", "text", "p_draft" and "p_target" of each; "u_draw", the uniform number that
              drew it; "accepted", true or false if it was tested; "u_accept" and "threshold",
              the two numbers that the test compared
              in a tree: "parent", and "led_on", true for guesses on the accepted path
    rows      of each position, unless the guesses branch: see `row_of`
    u_last    the uniform number that drew the last token
    forced    true if a pattern left one token at each position, so that no model was asked
    seconds   in this round, by model
"""

import codecs
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

import numpy as np

from lib.terminal import print_safely
from lib.tokenizer import Tokenizer
from run.task import Task
from sampling import HasRandom, residual
from speculative import Round, Test, verify
from variants import Models
from variants.shared.branches import Tree, row_after
from wrappers.forced import ForcedRound

N_TOP = 4  # tokens of a row that are stored: on a page, a whole vocabulary is too much


class Recorded:
    """Record the numbers drawn in a round: those of the guess, then those of the test."""

    def __init__(self, rng: HasRandom, passes: list):
        self.rng = rng
        self.passes = passes  # one entry for each pass of the target; it grows
        self.drawn: list[tuple[int, float]] = []  # (passes so far, the number)

    def random(self):
        """Draw a number and record it."""
        number = self.rng.random()
        self.drawn.append((len(self.passes), number))
        return number

    def of_round(self) -> tuple[list[float], list[float]]:
        """Return the numbers of the guess and of the test; forget them for the next round."""
        # The guess draws before the last pass of the target, the test after it.
        n_passes = len(self.passes)
        of_guess = [number for n, number in self.drawn if n < n_passes]
        of_test = [number for n, number in self.drawn if n == n_passes]
        self.drawn = []
        return of_guess, of_test


# ---- a round as data

def watched(task: Task, models: Models, rng: HasRandom) -> tuple[Recorded, Callable]:
    """Return a generator that records, and a function (a Round, seconds) -> the round as data.

    The data has "end", the seconds so far, and "n_left", the tokens wanted before the round.
    """
    recorded = Recorded(rng, models.target.seconds)
    clocks = {"target": models.target.seconds}  # {model: [seconds of each pass]}, which grow
    if models.draft:
        clocks["draft"] = models.draft.seconds
    n_read = dict.fromkeys(clocks, 0)  # passes of earlier rounds, by model
    next_text = text_reader(task.encoder)
    n_left = task.n_new

    def see(result, seconds):
        nonlocal n_left
        of_guess, of_test = recorded.of_round()
        seen = round_as_data(result, of_test, task.entry.test, partial(name_of, task.encoder))
        # Other counts of numbers cannot be assigned to guesses: some decoders draw none.
        if len(of_guess) == len(seen["guesses"]):
            for guess, u in zip(seen["guesses"], of_guess):
                guess["u_draw"] = u
        if isinstance(result, ForcedRound):
            seen["forced"] = True
        # The text of an id may depend on the ids before it, so the ids are read in order.
        for token in seen["ids"]:
            token["text"] = next_text(token["id"])
        if task.entry.exact(task.settings) is not False:  # a lossy decoder may store other rows
            logprobs = log_probabilities(result, task.models.is_greedy)
            for token, logprob in zip(seen["ids"], logprobs):
                token["logprob"] = logprob
        seen["seconds"] = {name: sum(clock[n_read[name] :]) for name, clock in clocks.items()}
        n_read.update({name: len(clock) for name, clock in clocks.items()})
        seen |= {"end": seconds, "n_left": n_left}
        n_left -= len(result.ids)
        return seen

    return recorded, see


def name_of(encoder: Tokenizer, token: int) -> str:
    """Return the text of one token, or its name if it is a special token without a text."""
    # A tokenizer has `name_of` if it has special tokens without a text. An Encoder has none.
    if hasattr(encoder, "name_of"):
        return encoder.name_of(token)
    return encoder.decode([token])


def text_reader(encoder: Tokenizer) -> Callable[[int], str]:
    """Return a function from the next id to its text, or to the name of a special token.

    A character of several ids is returned with its last id.
    """
    # "replace": bytes that are not UTF-8 are shown as U+FFFD, and do not end the run.
    reader = codecs.getincrementaldecoder("utf-8")("replace")

    def next_text(token):
        data = encoder.decode_bytes([token])
        if data:
            return reader.decode(data)
        # A special token ends an unfinished character, of which U+FFFD is shown.
        unfinished = reader.decode(b"", final=True)
        return unfinished + name_of(encoder, token)

    return next_text


def round_as_data(result: Round, uniforms: list, test: Test,
                  text_of: Callable[[int], str]) -> dict:
    """Return one round as a dict; `uniforms` are the numbers that its test drew."""
    is_tree = isinstance(result.guesses, Tree)
    guesses = result.guesses.tokens if is_tree else result.guesses
    n_accepted = result.n_accepted
    k = len(guesses)
    origins = ["accepted"] * n_accepted + [origin_of_last(n_accepted, k, is_tree)]
    # There are more ids than origins only if a step of yours does not say what it guessed.
    origins += ["last"] * (len(result.ids) - len(origins))
    # There are fewer ids than origins if a stop token cut the ids off. zip ignores the rest.
    seen = {"ids": [{"id": int(token), "origin": origin}
                    for token, origin in zip(result.ids, origins)],
            "guesses": [{"id": int(token), "text": text_of(token)} for token in guesses]}
    # A tree's rows belong to its nodes, not to positions, so they are left out.
    if is_tree:
        add_branches(seen["guesses"], result)
        return seen
    # Guesses 0 .. n_accepted - 1 were accepted. Guess n_accepted, if it counts as tested, was
    # rejected.
    for t, guess in enumerate(seen["guesses"][: result.n_tested]):
        guess["accepted"] = t < n_accepted
    # A step of yours may return a Round without rows.
    if len(result.p_target) <= k or len(result.p_draft) < k:
        return seen
    for t, (token, guess) in enumerate(zip(guesses, seen["guesses"])):
        guess["p_draft"] = float(result.p_draft[t][token])
        guess["p_target"] = float(result.p_target[t][token])
    # A different test draws different numbers, which cannot be assigned to guesses here.
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
    # `verify` draws one number per tested guess, then one for the replacement or the bonus
    # token.
    *of_tested_guesses, u_last = uniforms
    seen["u_last"] = u_last
    for guess in seen["guesses"]:
        guess["threshold"] = min(guess["p_target"] / guess["p_draft"], 1.0)
    # The tested guesses are the first ones; zip ends with them.
    for guess, u in zip(seen["guesses"], of_tested_guesses):
        guess["u_accept"] = u


def add_branches(guesses: list[dict], result: Round) -> None:
    """Add "parent" to the guesses of a tree, and "led_on" to those on the path taken."""
    for guess, parent in zip(guesses, result.guesses.parents):
        guess["parent"] = int(parent)
    # The accepted ids alone are looked up, because the id after them may equal a rejected
    # guess.
    path = result.ids[: result.n_accepted]
    for n in range(1, len(path) + 1):
        node = result.guesses.find(path[:n])  # the guess at the end of these n tokens
        guesses[node]["led_on"] = True


def row_of(result: Round, t: int, text_of: Callable[[int], str]) -> dict:
    """Return the most probable tokens of a position, "top", and the sums of the "others".

    An entry of "top" is [id, text, p_draft, p_target, from, to]. If `verify` draws a token at
    this position, it draws this entry's token when the uniform number u has from <= u < to.
    "others" are three sums over all other tokens: of p_draft, of p_target, and of the smaller
    one of both. The row after the last guess has no guess; p_draft is 0 there.
    """
    target = result.p_target[t]
    draft = result.p_draft[t] if t < len(result.guesses) else np.zeros_like(target)
    surplus = residual(target, draft)  # without a guess: the target's row itself

    # The tokens in "top" are the id and the guess of this position, if there are any, and the
    # N_TOP most probable tokens of each row.
    shown = {*result.ids[t : t + 1], *result.guesses[t : t + 1]}
    for row in (draft, target, surplus):
        largest = np.argpartition(row, -N_TOP)[-N_TOP:].tolist()  # in any order
        shown.update(token for token in largest if row[token] > 0)
    # They are sorted by the target's probability, the largest first; ties by the draft's
    # probability, then by the id.
    ids = sorted(map(int, shown), key=lambda token: (-target[token], -draft[token], token))

    # `sample` draws token i if u is in ends[i] .. ends[i + 1] of the cumulative sum.
    ends = np.append(0.0, np.cumsum(surplus))
    ends /= ends[-1]
    numbers = np.stack([draft, target, ends[:-1], ends[1:]], axis=1)  # [n_vocab, 4]
    top = [[token, text_of(token), *numbers[token].tolist()] for token in ids]
    every = np.stack([draft, target, np.minimum(draft, target)])  # [3, n_vocab]
    others = np.delete(every, ids, axis=1).sum(axis=1)
    return {"top": top, "others": others.tolist()}


def log_probabilities(result: Round, is_greedy: bool) -> list[float | None]:
    """Return the target's log-probability of each token of a round, after the settings.

    The decoder is exact. None for a probability that is not known, because a step of yours may
    return tokens alone, and for a token that the target never draws, as a wrong rule may.
    """
    ids, rows = result.ids, result.p_target
    if isinstance(result.guesses, Tree):
        # Row t is the row after the first t ids: they are a path of the tree.
        nodes = [result.guesses.find(ids[:t]) for t in range(len(ids))]
        rows = [row_after(result.p_target, node) for node in nodes]
    if len(rows) < len(ids):
        return [None] * len(ids)
    # The target's rows are one-hot, although some decoders read rows at temperature 1.
    if is_greedy:
        return [0.0 if token == np.argmax(row) else None for row, token in zip(rows, ids)]
    return [math.log(row[token]) if row[token] > 0 else None for row, token in zip(rows, ids)]


# ---- a round as a line

# Formats of accepted, rejected and added tokens: a, [-a-] and {+a+}; {{ is a brace.
MARKS = ("{}", "[-{}-]", "{{+{}+}}")
ANSI = ("\x1b[32m{}\x1b[0m", "\x1b[9;31m{}\x1b[0m", "\x1b[94m{}\x1b[0m")


def round_as_line(seen: dict, marks: tuple[str, str, str] = MARKS) -> str:
    """Return one round as Leviathan et al. (2023) Fig. 1 shows it: accepted, rejected, added.

    >>> round_as_line({"ids": [{"text": " a", "origin": "accepted"},
    ...                        {"text": " b", "origin": "replacement"}],
    ...                "guesses": [{"text": " a", "accepted": True},
    ...                            {"text": " c", "accepted": False}]})
    ' a[- c-]{+ b+}'
    """
    accepted = [token["text"] for token in seen["ids"] if token["origin"] == "accepted"]
    # get: a guess that was not tested has no "accepted", and is not shown.
    rejected = [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False]
    added = [token["text"] for token in seen["ids"] if token["origin"] != "accepted"]
    parts = []
    for mark, texts in zip(marks, (accepted, rejected, added)):
        if texts:  # so that no empty [--] is shown
            parts.append(mark.format(printable("".join(texts))))
    return "".join(parts)


def printable(text: str) -> str:
    """Return the text with everything escaped that could break a line or command a terminal."""
    shown = []
    for c in text:
        # A line end becomes a backslash and an n, for example.
        shown.append(c if c.isprintable() else c.encode("unicode_escape").decode())
    return "".join(shown)


def wants_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a stream is a terminal whose user did not set NO_COLOR (no-color.org)."""
    return (stream.isatty() and not environ.get("NO_COLOR")
            and environ.get("TERM") != "dumb")


def round_printer(stream: TextIO, rounds: list[dict]) -> Callable[[dict], None]:
    """Return a function that prints a round, the legend above the first; it fills `rounds`."""
    marks = ANSI if wants_colour(stream) else MARKS
    words = ("accepted", "rejected", "replacement or bonus token")
    legend = ", ".join(mark.format(word) for mark, word in zip(marks, words))

    def show_round(done_round):
        if not rounds:
            print_safely(f"Round by round: {legend}\n", stream)
        rounds.append(done_round)
        print_safely(round_as_line(done_round, marks), stream)

    return show_round
