"""A run that can be watched: every round as plain data, or as one line.

    rng = Recorded(np.random.default_rng(0))
    see = watcher(encoder, rng)
    seen = [see(round) for round in generate(x, step, N, rng)]
    save("run.html", trace(prompt, seen))  # lib/demo/page.py

    round      what a step returned (speculative.Round); its ids may be cut after a stop token
    seen       the same as a dict that JSON can hold; what cannot be known is absent from it
    n          how many of its ids are known to be guesses that passed the test
    known      what a decoder's rounds can tell: which row and which uniform are whose
    u          a uniform number in [0, 1): `sample` and `accept` ask `rng` for one each

Nothing here prints, and no decoder knows of it. lib/demo/page.py makes files of what was seen.
"""

import codecs
import functools
import os
from typing import NamedTuple

from lib.demo.rows import add_branches, likeliest, rows_of
from sampling import residual
from speculative import verify
from variants.shared.branches import Tree


class Rounds(NamedTuple):
    """What can be known of a round from outside."""

    chain: bool  # guess t follows guess t - 1
    verified: bool  # by speculative.verify
    draws: int | None = None


class Recorded:
    """A generator that keeps the uniforms it gave since they were last taken."""

    def __init__(self, rng):
        self.rng, self.uniforms = rng, []

    def random(self):
        self.uniforms.append(self.rng.random())
        return self.uniforms[-1]

    def take(self):
        """The uniforms since the last call."""
        taken, self.uniforms = self.uniforms, []
        return taken


# ---- a round as data

def watcher(encoder, rng, test=verify, clocks=None, n_top=5):
    """A function that says what can be seen of each round of one text.

    Parameters
    ----------
    encoder : encoder.Encoder
    rng : Recorded
        The very generator that the run draws from.
    test : callable
        The decoder's.
    clocks : dict of name -> list of seconds, optional
        Lists that grow by one with every call of a model, such as "draft" and "target".
    n_top : int
        How many of a row's likeliest tokens are kept. 0 leaves all rows aside, and is faster.

    Returns
    -------
    callable `(Round) -> dict`
        ids      each with "id", "text" and "origin": "kept", "replacement", "bonus", or "last"
                 where these cannot be told apart
        guesses  each with "id" and "text"; "p_draft", "p_target", "threshold" (the chance to be
                 kept), "u_draft", "u_accept" (what it was drawn and tested with) and "accepted"
                 as far as known; in a tree "parent", and "led_on" if it is on the path taken
        rows     the likeliest tokens of both models at each position (lib/demo/rows.py), of a chain
        last     how the last token came about: "law" (drawn from "residual" or "target"), "u", its
                 "p" and the likeliest rivals, "top"; absent if a stop token cut the round before
        seconds  of each clock, in this round

    Raises
    ------
    ValueError
        By the callable, if a round was not decided as `known` says.

    Examples
    --------
    >>> import numpy as np
    >>> from encoder import Encoder, byte_characters
    >>> from speculative import draft_and_verify, generate
    >>> encoder = Encoder({char: id for id, char in enumerate(byte_characters().values())}, [])
    >>> after = lambda ids, n_last: np.eye(256)[np.array(ids[-n_last:]) + 1]  # the next letter
    >>> step = draft_and_verify(after, after, K=2)
    >>> rng = Recorded(np.random.default_rng(0))
    >>> see = watcher(encoder, rng)
    >>> [line(see(round)) for round in generate(encoder.encode("A"), step, 3, rng)]
    ['BC{+D+}']
    """
    clocks = clocks or {}
    bytes_of = functools.cache(lambda token: encoder.decode_bytes([token]))
    text_of = lambda token: bytes_of(token).decode("utf-8", errors="replace")
    text = codecs.getincrementaldecoder("utf-8")("replace")  # waits for the rest of a character
    read = {name: len(clock) for name, clock in clocks.items()}

    def see(round):
        chain = not isinstance(round.guesses, Tree)
        seen = describe(round, rng.take(), Rounds(chain, chain and test is verify), text_of, n_top)
        for token in seen["ids"]:  # a character may take several ids: it comes with the last one
            token["text"] = text.decode(bytes_of(token["id"]))
        seen["seconds"] = {name: sum(clock[read[name] :]) for name, clock in clocks.items()}
        read.update((name, len(clock)) for name, clock in clocks.items())
        return seen

    return see


def describe(round, uniforms, known, text_of, n_top):
    """One round as a dict. `uniforms` are those drawn in it, `text_of` gives the text of an id."""
    origins = origins_of(round, known)
    n = origins.count("kept")
    seen = {"ids": [{"id": int(i), "origin": origin} for i, origin in zip(round.ids, origins)],
            "guesses": [{"id": int(i), "text": text_of(i)} for i in round.guesses]}
    if known.chain:
        for t, token in enumerate(seen["guesses"]):
            token.update(chances(round, t, known) | verdict(round, t, n))
        if n_top:
            seen["rows"] = rows_of(round, known.verified, text_of, n_top)
    if hasattr(round.guesses, "parents"):
        add_branches(seen["guesses"], round)
    if known.verified:
        add_uniforms(seen["guesses"], round, n, uniforms, known)
        if n < len(round.ids):
            seen["last"] = last(round, n, uniforms, text_of, n_top)
    return seen


def origins_of(round, known):
    """Where each id came from. `verify` never replaces a guess by itself; other tests may."""
    n = round.n_accepted if known.verified else len(round.ids) - 1
    if n == len(round.ids):
        return ["kept"] * n
    if n == len(round.guesses):
        return ["kept"] * n + ["bonus"]
    replaced = known.chain and round.ids[n] != round.guesses[n]
    return ["kept"] * n + ["replacement" if replaced else "last"]


def chances(round, t, known):
    """The probabilities of guess t, and the chance to keep it: Leviathan et al. (2023) Sec. 2.3."""
    token = round.guesses[t]
    p_draft, p_target = float(round.p_draft[t][token]), float(round.p_target[t][token])
    threshold = {"threshold": min(p_target / p_draft, 1.0)} if known.verified else {}
    return {"p_draft": p_draft, "p_target": p_target} | threshold


def verdict(round, t, n):
    """Whether guess t was accepted, if the text tells: n guesses are known to be kept."""
    if t < n:
        return {"accepted": True}
    return {"accepted": False} if t < len(round.ids) and round.ids[t] != round.guesses[t] else {}


def add_uniforms(guesses, round, n, uniforms, known):
    """Tell the uniforms of a round apart by their order: draws, tests, one for the last id."""
    if known.draws is not None:
        first = known.draws * len(guesses)
    elif n < len(round.ids):
        first = len(uniforms) - 1 - round.n_tested
    else:  # cut: it is not known how many guesses after the stop token were tested
        return
    for guess, u in zip(guesses, uniforms[:first] if known.draws else ()):
        guess["u_draft"] = u
    for guess, u in zip(guesses, uniforms[first:-1]):
        guess["u_accept"] = u
        if guess.get("accepted", u < guess["threshold"]) != (u < guess["threshold"]):
            raise ValueError(f"need rounds of a decoder that tests as speculative.verify does, got "
                             f"u = {u}, threshold {guess['threshold']}, kept: {guess['accepted']}")


def last(round, n, uniforms, text_of, n_top):
    """How the token after n accepted guesses came about: from the residual or from the target."""
    bonus = n == len(round.guesses)
    known = {"law": "target" if bonus else "residual"} | ({"u": uniforms[-1]} if uniforms else {})
    if n_top:
        row = round.p_target[n] if bonus else residual(round.p_target[n], round.p_draft[n])
        known |= {"p": float(row[round.ids[n]]), "top": top(row, text_of, n_top)}
    return known


def top(row, text_of, n):
    """The n most probable tokens of a row, most probable first."""
    best = sorted(likeliest(row, n).tolist(), key=lambda token: (-row[token], token))
    return [{"id": token, "text": text_of(token), "p": float(row[token])} for token in best]


# ---- a round as a line

MARKS = {"kept": ("", ""), "rejected": ("[-", "-]"), None: ("{+", "+}")}
COLOURS = {"kept": ("\x1b[32m", "\x1b[0m"), "rejected": ("\x1b[9;31m", "\x1b[0m"),
           None: ("\x1b[94m", "\x1b[0m")}  # green; red and struck out; blue


def line(seen, colour=False):
    """One round as in Leviathan et al. (2023) Fig. 1: what passed, what failed, what came instead.

    >>> line({"ids": [{"text": " a", "origin": "kept"}, {"text": " b", "origin": "replacement"}],
    ...       "guesses": [{"text": " a", "accepted": True}, {"text": " c", "accepted": False}]})
    ' a[- c-]{+ b+}'
    """
    passed = "".join(token["text"] for token in seen["ids"] if token["origin"] == "kept")
    failed = [guess["text"] for guess in seen["guesses"] if guess.get("accepted") is False]
    own = [token["text"] for token in seen["ids"] if token["origin"] != "kept"]
    marks = COLOURS if colour else MARKS
    parts = [("kept", passed)] * (passed != "") + [("rejected", text) for text in failed]
    parts += [(None, text) for text in own]
    return "".join(marks[kind][0] + printable(text) + marks[kind][1] for kind, text in parts)


def printable(text):
    """The text with everything escaped that could break a line or command a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def wants_colour(stream, environ=os.environ):
    """Whether a stream is a terminal whose reader has not said NO_COLOR (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
