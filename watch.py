"""A run that can be watched: every round as plain data, as one line, or as a page to explore.

    rng = Recorded(np.random.default_rng(0))
    see, seen = watcher(encoder, rng), []
    speculative_sampling(x, draft, target, N, K, rng, on_round=lambda r: seen.append(see(r)))
    save("run.html", trace(prompt, seen))

    round      what a step returned (speculative.Round); its ids may be cut behind a stop id
    seen       the same as a dict that JSON can hold; what cannot be known is absent from it
    n          how many of its ids are known to be guesses that passed the test
    order      what a decoder's rounds can tell: which row and which uniform are whose
    u          a uniform number in [0, 1): `sample` and `accept` ask `rng` for one each

Nothing here prints, and no decoder knows of it. The page is watch.html with the data put in.
"""

import codecs
import functools
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sampling import residual

TEMPLATE = Path(__file__).parent / "watch.html"


class Order(NamedTuple):
    """What is known of a decoder's rounds. By default nothing but ids and guesses."""

    chain: bool = False  # the guesses stand one behind the other, row t is the law at guess t
    verify: bool = False  # they were tested by speculative.verify: threshold, residual, bonus
    draws: int | None = None  # uniforms that each guess took before the tests; None: not fixed


# Subtle: a tree has rows of the same shape, for other places; the shape alone tells nothing.
ORDERS = {
    "autoregressive": Order(True, True, 1),
    "speculative": Order(True, True, 1),
    "assisted": Order(True, True, 1),
    "lookup": Order(True, True, 0),  # copied guesses, no chance involved
    "staged": Order(True, True),  # the inner decoder draws as often as it likes
    "block": Order(True), "lenient": Order(True), "bild": Order(True),
}


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

def watcher(encoder, rng, decoder="speculative", clocks=None, n_top=5):
    """A function for `on_round` that says what can be seen of each round of one text.

    Parameters
    ----------
    encoder : encoder.Encoder
    rng : Recorded
        The very generator that the run draws from.
    decoder : str
        A key of ORDERS. Of any other decoder, as of trees, only ids and guesses are known.
    clocks : dict of name -> list of seconds, optional
        Lists that grow by one with every call of a model, such as "draft" and "target".
    n_top : int
        How many of the last id's rivals are kept. 0 leaves its law aside, and is faster.

    Returns
    -------
    callable `(Round) -> dict`
        ids      each with "id", "text" and "origin": "kept", "replacement", "bonus", or "last"
                 where these cannot be told apart
        guesses  each with "id" and "text"; "p_draft", "p_target", "threshold" (the chance to be
                 kept), "u_draft", "u_accept" (what it was drawn and tested with) and "accepted"
                 as far as known
        last     how the last id came about: "law" ("residual" or "target"), "u", its "p" and the
                 law's most probable tokens, "top"; absent if a stop id cut the round before it
        seconds  of each clock, in this round

    Raises
    ------
    ValueError
        By the callable, if a round was not decided as `decoder` decides.

    Examples
    --------
    >>> from encoder import Encoder, byte_characters
    >>> from speculative import speculative_sampling
    >>> encoder = Encoder({char: id for id, char in enumerate(byte_characters().values())}, [])
    >>> after = lambda ids, n_last: np.eye(256)[np.array(ids[-n_last:]) + 1]  # the next letter
    >>> rng, seen = Recorded(np.random.default_rng(0)), []
    >>> see = watcher(encoder, rng)
    >>> ids = speculative_sampling(encoder.encode("A"), after, after, 3, 2, rng,
    ...                            on_round=lambda round: seen.append(see(round)))
    >>> [line(round) for round in seen]
    ['BC{+D+}']
    """
    order, clocks = ORDERS.get(decoder, Order()), clocks or {}
    bytes_of = functools.cache(lambda token: encoder.decode_bytes([token]))
    text_of = lambda token: bytes_of(token).decode("utf-8", errors="replace")
    text = codecs.getincrementaldecoder("utf-8")("replace")  # waits for the rest of a character
    read = {name: len(clock) for name, clock in clocks.items()}

    def see(round):
        seen = describe(round, rng.take(), order, text_of, n_top)
        for token in seen["ids"]:  # a character may take several ids: it comes with the last one
            token["text"] = text.decode(bytes_of(token["id"]))
        seen["seconds"] = {name: sum(clock[read[name] :]) for name, clock in clocks.items()}
        read.update((name, len(clock)) for name, clock in clocks.items())
        return seen

    return see


def describe(round, uniforms, order, text_of, n_top):
    """One round as a dict. `uniforms` are those drawn in it, `text_of` gives the text of an id."""
    origins = origins_of(round, order)
    n = origins.count("kept")
    seen = {"ids": [{"id": int(i), "origin": origin} for i, origin in zip(round.ids, origins)],
            "guesses": [{"id": int(i), "text": text_of(i)} for i in round.guesses]}
    if order.chain:
        for t, token in enumerate(seen["guesses"]):
            token.update(chances(round, t, order) | verdict(round, t, n))
    if order.verify:
        add_uniforms(seen["guesses"], round, n, uniforms, order)
        if n < len(round.ids):
            seen["last"] = last(round, n, uniforms, text_of, n_top)
    return seen


def origins_of(round, order):
    """Where each id came from. `verify` never replaces a guess by itself; other tests may."""
    n = round.n_kept if order.verify else len(round.ids) - 1
    if n == len(round.ids):
        return ["kept"] * n
    if n == len(round.guesses):
        return ["kept"] * n + ["bonus"]
    replaced = order.chain and round.ids[n] != round.guesses[n]
    return ["kept"] * n + ["replacement" if replaced else "last"]


def chances(round, t, order):
    """The probabilities of guess t, and the chance to keep it: Leviathan et al. (2023) Sec. 2.3."""
    token = round.guesses[t]
    p_draft, p_target = float(round.p_draft[t][token]), float(round.p_target[t][token])
    known = {"p_draft": p_draft, "p_target": p_target}
    return known | ({"threshold": min(p_target / p_draft, 1.0)} if order.verify else {})


def verdict(round, t, n):
    """Whether guess t was accepted, if the text tells: n guesses are known to be kept."""
    if t < n:
        return {"accepted": True}
    return {"accepted": False} if t < len(round.ids) and round.ids[t] != round.guesses[t] else {}


def add_uniforms(guesses, round, n, uniforms, order):
    """Tell the uniforms of a round apart by their order: draws, tests, one for the last id."""
    if order.draws is not None:
        first = order.draws * len(guesses)
    elif n < len(round.ids):
        first = len(uniforms) - 1 - round.n_examined
    else:  # cut: it is not known how many guesses behind the stop id were tested
        return
    for guess, u in zip(guesses, uniforms[:first] if order.draws else ()):
        guess["u_draft"] = u
    for guess, u in zip(guesses, uniforms[first:-1]):
        guess["u_accept"] = u
        if guess.get("accepted", u < guess["threshold"]) != (u < guess["threshold"]):
            raise ValueError(f"need rounds of a decoder that tests as speculative.verify does, got "
                             f"u = {u}, threshold {guess['threshold']}, kept: {guess['accepted']}")


def last(round, n, uniforms, text_of, n_top):
    """How the id behind n kept guesses came about: the residual's draw or the target's own."""
    bonus = n == len(round.guesses)
    known = {"law": "target" if bonus else "residual"} | ({"u": uniforms[-1]} if uniforms else {})
    if n_top:
        law = round.p_target[n] if bonus else residual(round.p_target[n], round.p_draft[n])
        known |= {"p": float(law[round.ids[n]]), "top": top(law, text_of, n_top)}
    return known


def top(law, text_of, n):
    """The n most probable tokens of a law, most probable first."""
    best = np.flatnonzero(law)
    if len(best) > n:
        best = best[np.argpartition(law[best], -n)[-n:]]
    best = sorted(best.tolist(), key=lambda token: (-law[token], token))
    return [{"id": token, "text": text_of(token), "p": float(law[token])} for token in best]


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


# ---- a run as a file

def trace(prompt, rounds, settings=None, seconds=None):
    """The whole run: what came before the first round, all rounds as seen, and their sums."""
    return {"prompt": prompt, "settings": settings or {}, "rounds": rounds,
            "summary": summary(rounds) | ({} if seconds is None else {"seconds": seconds})}


def summary(rounds):
    """Ids, rounds, acceptance by place in the round, and seconds by clock, over a run."""
    verdicts = [(t, guess["accepted"]) for seen in rounds
                for t, guess in enumerate(seen["guesses"]) if "accepted" in guess]
    places = 1 + max((t for t, _ in verdicts), default=-1)
    count = lambda place, wanted: sum(1 for t, got in verdicts if t == place and got in wanted)
    clocks = sorted({name for seen in rounds for name in seen["seconds"]})
    return {
        "ids": sum(len(seen["ids"]) for seen in rounds),
        "rounds": len(rounds),
        "by_place": [{"examined": count(t, (True, False)), "kept": count(t, (True,))}
                     for t in range(places)],
        "by_clock": {name: sum(seen["seconds"][name] for seen in rounds) for name in clocks},
    }


def check_path(path):
    """Raise unless `save` can write such a file: better before a long run than after it."""
    if Path(path).suffix not in (".html", ".json"):
        raise ValueError(f"need a trace file that ends in .html or .json, got {path}")
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"need a trace file in a folder that exists, got {path}")


def save(path, run):
    """Write a trace: a page that needs nothing else, or its data, by the file's suffix."""
    check_path(path)
    text = page(run) if Path(path).suffix == ".html" else json.dumps(run, allow_nan=False, indent=1)
    Path(path).write_text(text, encoding="utf-8")


def page(run):
    """watch.html with the run in it. No text of the run can end the element that holds the data."""
    data = json.dumps(run, allow_nan=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("{{run}}", data, 1)
