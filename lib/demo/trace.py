"""A run that can be watched: every round as plain data, or as one line.

    rng = Recorded(np.random.default_rng(0))
    see = watcher(encoder, rng)
    seen = [see(round) for round in generate(x, step, N, rng)]
    save("run.html", trace(prompt, seen))  # lib/demo/page.py

A round as seen is a dict that JSON can hold. What cannot be known is left out.

    ids       each with "id", "text" and "origin": "kept" (an accepted guess), "replacement",
              "bonus", or "last" where these cannot be told apart
    guesses   each with "id", "text", "p_draft", "p_target", "threshold" (the probability to accept
              it), "u_draft" and "u_accept" (drawn for the guess and for its test), "accepted"; in
              a tree "parent", and "led_on" on the path taken
    rows      of each position, unless the guesses branch: see `row_of`
    last      how the last token was drawn: "law" ("residual" or "target"), "u", its "p", and the
              most probable tokens, "top"
    seconds   of each clock, in this round

    n         number of the round's ids that are accepted guesses; a stop token may cut the ids
    u         a uniform number in [0, 1): `sample` and `accept` draw one each
"""

import codecs
import os

import numpy as np

from sampling import residual
from speculative import verify
from variants.shared.branches import Tree

UNTESTED = 8  # tokens of all rows after the last tested guess, which matter only if a tick is moved


class Recorded:
    """A generator that keeps the uniforms it returned until they are taken.

    `passes` is a list that grows by one with every pass of the target, such as its clock: the last
    pass of a round separates the uniforms of the guesses from those of the test.
    """

    def __init__(self, rng, passes=()):
        self.rng, self.passes, self.drawn = rng, passes, []

    def random(self):
        u = self.rng.random()
        self.drawn.append((u, len(self.passes)))
        return u

    def take(self, k):
        """Return the uniforms since the last call: of the guesses, and of the test.

        Without `passes` each of the k guesses is taken to have drawn one.
        """
        drawn, self.drawn = self.drawn, []
        uniforms = [u for u, _ in drawn]
        if self.passes:
            k = sum(n_passes < len(self.passes) for _, n_passes in drawn)
        return uniforms[:k], uniforms[k:]


# ---- a round as data

def watcher(encoder, rng, test=verify, clocks=None, n_top=5):
    """Return a function that turns a Round into data.

    `test` is the decoder's: thresholds and uniforms are known of speculative.verify only. `clocks`
    are lists of seconds by name ("draft", "target"), which grow by one with every call of a model.
    `n_top` is how many of a row's most probable tokens are kept; 0 keeps no rows, and is faster.
    """
    clocks = clocks or {}
    read = {name: len(clock) for name, clock in clocks.items()}
    text_of, next_text = lambda token: encoder.decode([token]), text_reader(encoder)

    def see(round):
        seen = describe(round, rng.take(len(round.guesses)), test, text_of, n_top)
        for token in seen["ids"]:
            token["text"] = next_text(token["id"])
        seen["seconds"] = {name: sum(clock[read[name] :]) for name, clock in clocks.items()}
        read.update((name, len(clock)) for name, clock in clocks.items())
        return seen

    return see


def text_reader(encoder):
    """Return a function from the next id to its text; a character of several ids ends with it."""
    reader = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda token: reader.decode(encoder.decode_bytes([token]))


def describe(round, uniforms, test, text_of, n_top):
    """Return one round as a dict. `uniforms` are those of its guesses and those of its test."""
    chain = not isinstance(round.guesses, Tree)
    verified = chain and test is verify
    origins = origins_of(round, chain, verified)
    n = origins.count("kept")
    seen = {"ids": [{"id": int(i), "origin": origin} for i, origin in zip(round.ids, origins)],
            "guesses": [{"id": int(i), "text": text_of(i)} for i in round.guesses]}
    if not chain:
        add_branches(seen["guesses"], round)
        return seen
    for t, guess in enumerate(seen["guesses"]):
        guess |= known_of(round, t, n, verified and uniforms)
    if n_top:
        seen["rows"] = rows_of(round, verified, text_of, n_top)
    if verified and n < len(round.ids):
        seen["last"] = last(round, n, uniforms[1], text_of, n_top)
    return seen


def origins_of(round, chain, verified):
    """Return where each id came from. `verify` never replaces a guess by the same token."""
    n = round.n_accepted if verified else len(round.ids) - 1
    if n == len(round.ids):
        return ["kept"] * n
    if n == len(round.guesses):
        return ["kept"] * n + ["bonus"]
    replaced = chain and round.ids[n] != round.guesses[n]
    return ["kept"] * n + ["replacement" if replaced else "last"]


def known_of(round, t, n, uniforms):
    """Return what is known of guess t; without `uniforms`, if verify did not test it."""
    token = round.guesses[t]
    p_draft, p_target = float(round.p_draft[t][token]), float(round.p_target[t][token])
    known = {"p_draft": p_draft, "p_target": p_target}
    if uniforms:
        of_guesses, of_test = uniforms
        known["threshold"] = min(p_target / p_draft, 1.0)  # Leviathan et al. (2023) Sec. 2.3
        if len(of_guesses) == len(round.guesses):  # each drew one
            known["u_draft"] = of_guesses[t]
        if t < len(of_test) - 1:  # the last one drew the last token
            known["u_accept"] = of_test[t]
    if t < n or t < len(round.ids) and round.ids[t] != token:  # else the text does not say
        known["accepted"] = t < n
    return known


def add_branches(guesses, round):
    """Add "parent" to the guesses of a tree, and "led_on" to those on the path taken.

    The last id may equal a guess that was rejected, so it is not looked for.
    """
    tree, node = round.guesses, -1
    for guess, parent in zip(guesses, tree.parents):
        guess["parent"] = int(parent)
    for token in round.ids[:-1]:
        node = tree.child(node, token)
        if node is None:
            return
        guesses[node]["led_on"] = True


def last(round, n, uniforms, text_of, n_top):
    """Return how the token after n accepted guesses was drawn: from the residual or the target."""
    bonus = n == len(round.guesses)
    known = {"law": "target" if bonus else "residual", "u": uniforms[-1]}
    if n_top:
        row = round.p_target[n] if bonus else residual(round.p_target[n], round.p_draft[n])
        best = sorted(likeliest(row, n_top), key=lambda token: (-row[token], token))
        known |= {"p": float(row[round.ids[n]]),
                  "top": [{"id": i, "text": text_of(i), "p": float(row[i])} for i in best]}
    return known


# ---- rows: of a page, a whole vocabulary is too much

def rows_of(round, verified, text_of, n):
    """Return the row of each guess and of the bonus, cut to the most probable tokens."""
    k, rows = len(round.guesses), []
    for t, (p_draft, p_target) in enumerate(zip([*round.p_draft, None], round.p_target)):
        shown = {int(token) for token in (*round.ids[t : t + 1], *round.guesses[t : t + 1])}
        n_here = n if t <= round.n_tested else min(n, max(1, UNTESTED // k))
        rows.append(row_of(p_draft, p_target, shown, verified, text_of, n_here))
    return rows


def row_of(p_draft, p_target, wanted, verified, text_of, n):
    """Return {"top": [[id, text, p_draft, p_target, from, to], ..], "others": [..], "mass": m}.

    A uniform u with from <= u * mass < to draws this token where `verify` draws one here: from and
    to are left out of a token that it cannot draw, all three if another test decided. "others"
    sums the other tokens' p_draft, p_target and what both share. p_draft is None for the bonus.
    """
    draft = 0 * p_target if p_draft is None else p_draft
    ids = sorted({*likeliest(draft, n), *likeliest(p_target, n), *wanted},
                 key=lambda token: (-p_target[token], -draft[token], token))
    shown = lambda p: float(f"{p:.6g}")
    top = [[i, text_of(i), None if p_draft is None else shown(draft[i]), shown(p_target[i])]
           for i in ids]
    rest = [max(float(each.sum() - each[ids].sum()), 0.0)
            for each in (draft, p_target, np.minimum(draft, p_target))]
    row = {"top": top, "others": [shown(p) for p in rest]}
    if verified:
        cdf = np.cumsum(p_target if p_draft is None else residual(p_target, draft))
        row["mass"] = float(cdf[-1])  # 1 but for rounding
        for token, entry in zip(ids, top):
            start, end = float(cdf[token - 1]) if token else 0.0, float(cdf[token])
            entry += [start, end] if start < end else []
    return row


def likeliest(row, n):
    """Return the n most probable tokens of a row, in no order, without those of probability 0."""
    best = np.flatnonzero(row)
    return (best[np.argpartition(row[best], -n)[-n:]] if len(best) > n else best).tolist()


# ---- a round as a line

MARKS = {"kept": ("", ""), "rejected": ("[-", "-]"), "last": ("{+", "+}")}
COLOURS = {"kept": ("\x1b[32m", "\x1b[0m"), "rejected": ("\x1b[9;31m", "\x1b[0m"),
           "last": ("\x1b[94m", "\x1b[0m")}  # green; red and struck out; blue


def line(seen, colour=False):
    """Return one round as Leviathan et al. (2023) Fig. 1 shows it: accepted, rejected, added.

    >>> line({"ids": [{"text": " a", "origin": "kept"}, {"text": " b", "origin": "replacement"}],
    ...       "guesses": [{"text": " a", "accepted": True}, {"text": " c", "accepted": False}]})
    ' a[- c-]{+ b+}'
    """
    parts = {"kept": [token["text"] for token in seen["ids"] if token["origin"] == "kept"],
             "rejected": [guess["text"] for guess in seen["guesses"]
                          if guess.get("accepted") is False],
             "last": [token["text"] for token in seen["ids"] if token["origin"] != "kept"]}
    marks = COLOURS if colour else MARKS
    return "".join(marks[kind][0] + printable("".join(texts)) + marks[kind][1]
                   for kind, texts in parts.items() if texts)


def printable(text):
    """Return the text with everything escaped that could break a line or command a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def wants_colour(stream, environ=os.environ):
    """Return whether a stream is a terminal whose user did not set NO_COLOR (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
