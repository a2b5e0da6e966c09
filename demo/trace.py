"""A run that can be watched: every round as plain data, or as one line.

A round as seen is a dict that JSON can hold. What cannot be known is left out.

    ids       "id", "text" and "origin" of each: "kept" (an accepted guess), "replacement", "bonus",
              or "last" where these cannot be told apart
    guesses   "id", "text", "p_draft" and "p_target" of each, whether it was "accepted", and the
              "threshold" that the uniform number "u_accept" was compared with; in a tree "parent",
              and "led_on" on the path taken
    rows      of each position, unless the guesses branch: see `row_of`
    u_last    the uniform number that drew the last token
    seconds   in this round, by model
"""

import codecs
import os

import numpy as np

from sampling import residual
from speculative import verify
from variants.shared.branches import Tree

N_TOP = 4  # tokens of a row that are kept: on a page, a whole vocabulary is too much


class Recorded:
    """A generator that keeps what it returned since the target's last pass: the test's part."""

    def __init__(self, rng, passes):
        self.rng, self.passes, self.n_passes, self.drawn = rng, passes, 0, []

    def random(self):
        if self.n_passes < len(self.passes):
            self.n_passes, self.drawn = len(self.passes), []
        self.drawn.append(self.rng.random())
        return self.drawn[-1]


# ---- a round as data

def watcher(encoder, rng, test, clocks):
    """Return a function that turns a Round into data. `rng` is Recorded, `test` the decoder's."""
    next_text, n_read = text_reader(encoder), dict.fromkeys(clocks, 0)

    def see(result):
        seen = describe(result, rng.drawn, test, lambda token: encoder.decode([token]))
        for token in seen["ids"]:
            token["text"] = next_text(token["id"])
        seen["seconds"] = {name: sum(clock[n_read[name] :]) for name, clock in clocks.items()}
        n_read.update((name, len(clock)) for name, clock in clocks.items())
        return seen

    return see


def text_reader(encoder):
    """Return a function from the next id to its text; a character of several ids ends with it."""
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda token: reader.decode(encoder.decode_bytes([token]))


def describe(result, uniforms, test, text_of):
    """Return one round as a dict. `uniforms` are those of its test."""
    branches = isinstance(result.guesses, Tree)
    verified = test is verify and not branches
    n, k = result.n_accepted if verified else len(result.ids) - 1, len(result.guesses)
    replaced = not branches and n < min(len(result.ids), k) and result.ids[n] != result.guesses[n]
    last = "bonus" if n == k else "replacement" if replaced else "last"
    tokens = result.guesses.tokens if branches else result.guesses
    seen = {"ids": [{"id": int(token), "origin": "kept" if i < n else last}
                    for i, token in enumerate(result.ids)],
            "guesses": [{"id": int(token), "text": text_of(token)} for token in tokens]}
    if branches:
        add_branches(seen["guesses"], result)
        return seen
    for t, guess in enumerate(seen["guesses"]):
        guess["p_draft"] = float(result.p_draft[t][guess["id"]])
        guess["p_target"] = float(result.p_target[t][guess["id"]])
        if t < n + replaced:  # of the others the text does not say
            guess["accepted"] = t < n
    if verified:
        add_test(seen, uniforms)
    return seen | {"rows": [row_of(result, t, text_of) for t in range(k + 1)]}


def add_test(seen, uniforms):
    """Add the numbers that `verify` compared: Leviathan et al. (2023) Sec. 2.3."""
    *of_guesses, seen["u_last"] = uniforms
    for guess in seen["guesses"]:
        guess["threshold"] = min(guess["p_target"] / guess["p_draft"], 1.0)
    for guess, u in zip(seen["guesses"], of_guesses):
        guess["u_accept"] = u


def add_branches(guesses, result):
    """Add "parent" to the guesses of a tree, and "led_on" to those on the path taken."""
    for guess, parent in zip(guesses, result.guesses.parents):
        guess["parent"] = int(parent)
    for n in range(1, len(result.ids)):  # the last id may equal a guess that was rejected
        guesses[result.guesses.find(result.ids[:n])]["led_on"] = True


def row_of(result, t, text_of):
    """Return {"top": [[id, text, p_draft, p_target, from, to], ..], "others": [..]} of a position.

    A uniform number u with from <= u < to draws this token where `verify` draws one here. "others"
    sums the other tokens' p_draft, p_target and what both share; the bonus token has no p_draft.
    """
    target = result.p_target[t]
    draft = result.p_draft[t] if t < len(result.guesses) else np.zeros_like(target)
    shown = {*result.ids[t : t + 1], *result.guesses[t : t + 1]}
    for row in (draft, target):
        shown.update(i for i in np.argpartition(row, -N_TOP)[-N_TOP:].tolist() if row[i] > 0)
    ids = sorted(map(int, shown), key=lambda token: (-target[token], -draft[token], token))
    cdf = np.append(0.0, np.cumsum(residual(target, draft)))
    numbers = np.stack([draft, target, cdf[:-1] / cdf[-1], cdf[1:] / cdf[-1]], axis=1)
    others = np.delete([draft, target, np.minimum(draft, target)], ids, axis=1).sum(axis=1)
    return {"top": [[token, text_of(token), *numbers[token].tolist()] for token in ids],
            "others": others.tolist()}


# ---- a round as a line

MARKS = ("{}", "[-{}-]", "{{+{}+}}")  # accepted, rejected, added
COLOURS = ("\x1b[32m{}\x1b[0m", "\x1b[9;31m{}\x1b[0m", "\x1b[94m{}\x1b[0m")


def line(seen, colour=False):
    """Return one round as Leviathan et al. (2023) Fig. 1 shows it: accepted, rejected, added.

    >>> line({"ids": [{"text": " a", "origin": "kept"}, {"text": " b", "origin": "replacement"}],
    ...       "guesses": [{"text": " a", "accepted": True}, {"text": " c", "accepted": False}]})
    ' a[- c-]{+ b+}'
    """
    texts = ([token["text"] for token in seen["ids"] if token["origin"] == "kept"],
             [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False],
             [token["text"] for token in seen["ids"] if token["origin"] != "kept"])
    marks = COLOURS if colour else MARKS
    return "".join(mark.format(printable("".join(text)))
                   for mark, text in zip(marks, texts) if text)


def printable(text):
    """Return the text with everything escaped that could break a line or command a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def wants_colour(stream, environ=os.environ):
    """Return whether a stream is a terminal whose user did not set NO_COLOR (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
