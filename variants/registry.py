"""What every decoder says of itself: its builder, its flags, its paper, and when it is exact.

    Models      what a decoder is built from: the bare models and the sampling settings
    Flag        one command-line flag of a decoder: default, type, help, choices
    Rounds      what can be known of a decoder's rounds from outside
    Decoder     one method; each file of variants/ ends in its own

Adding a decoder is one file, and its name twice in variants/__init__.py: CONTRIBUTING.md shows how.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sampling import with_sampling
from speculative import autoregressive_step


# (flag, word): the decoders that take this word in place of numbers
WORDS = {("K", "auto"): ["speculative"], ("widths", "auto"): ["tree"],
         ("widths", "dynamic"): ["tree", "eagle"], ("widths", "chain"): ["eagle"]}


class Models(NamedTuple):
    """What a decoder is built from. The models give logits; the decoder applies the settings."""

    draft: object  # a GPT2, or what has its __call__
    target: object  # a TreeGPT2, or what has its __call__, hidden, params, n_vocab
    sampling: dict  # sampling.warp's settings
    heads: object = None  # where the target's medusa.npz is; its eagle.safetensors lies beside it

    @property
    def is_greedy(self):
        """At temperature 0?"""
        return self.sampling["temperature"] == 0

    @property
    def at_temperature_1(self):
        """The settings for a test that needs more of a row than its largest entry."""
        return {**self.sampling, "temperature": 1.0}

    def probabilities(self, name, temperature_1=False):
        """The draft or the target as a callable that gives probabilities."""
        settings = self.at_temperature_1 if temperature_1 else self.sampling
        return with_sampling(getattr(self, name), **settings)


class Flag(NamedTuple):
    """One flag: what argparse needs."""

    default: object
    type: Callable
    help: str
    choices: tuple = None


class Rounds(NamedTuple):
    """What the page of a run (lib/demo/trace.py) may know of a decoder's rounds. By default, little.

    A tree has rows of the same shape as a chain, for other positions: the shape tells nothing.
    """

    chain: bool = False  # guess t follows guess t - 1, and was drawn from row t or is its best
    verified: bool = False  # by speculative.verify: threshold, residual, bonus
    draws: int | None = None  # uniforms that each guess took before the tests; None: not fixed


class Decoder(NamedTuple):
    """One method."""

    name: str  # its --decoder, and its file
    build: Callable  # (models, **flags) -> step
    source: str
    url: str  # where the source is
    flags: dict  # name -> Flag
    exact: Callable = lambda settings: True  # (settings) -> bool
    needs: tuple = ("draft",)  # "draft", "heads", "eagle"
    greedy: bool = False  # temperature 0 only
    is_tree: Callable = lambda settings: False  # (settings) -> bool: the guesses branch
    rounds: Rounds = Rounds(chain=True)
    plain: Callable | None = None  # (models, **flags) -> plain decoding that draws the same text

    @property
    def has_heads(self):
        """Does it guess by the target's states, and need files that were trained for them?"""
        return not {"heads", "eagle"}.isdisjoint(self.needs)


def build_autoregressive(models):
    """Plain decoding, for comparison."""
    return partial(autoregressive_step, model=models.probabilities("target"))


def known_flags(decoders):
    """Every decoder flag by its name. A name means one thing, so its type is the same in all."""
    return {name: flag for entry in decoders.values() for name, flag in entry.flags.items()}


def settings_of(decoders, name, given):
    """All flags of a decoder. `given` holds those of the command line, None for one not given.

    Raises
    ------
    ValueError
        If a flag is given that this decoder does not use, or with a word that it does not take in
        place of numbers, or with a whole number below 1.
    """
    flags = decoders[name].flags
    given = {flag: value for flag, value in given.items() if value is not None}
    for flag, value in given.items():
        if flag not in flags:
            users = ", ".join(other for other in decoders if flag in decoders[other].flags)
            raise ValueError(f"need no --{flag} with the decoder {name} (it belongs to {users}), "
                             f"got {value}")
        if isinstance(value, str) and name not in WORDS.get((flag, value), [name]):
            raise ValueError(f"need a number for --{flag} with the decoder {name}, got {value}")
        if type(value) is int and value < 1:
            raise ValueError(f"need --{flag} >= 1, got {value}")
    return {**{flag: entry.default for flag, entry in flags.items()}, **given}


def need_greedy(models, name):
    """Raise the ValueError of a decoder that draws nothing."""
    if not models.is_greedy:
        raise ValueError(f"need --temperature 0 for the decoder {name}, a greedy method, "
                         f"got {models.sampling['temperature']}")


# ---- types of flags

def whole_or_auto(text):
    """A number of guesses, or "auto": chosen round by round from what was measured (auto.py)."""
    if text != "auto" and not re.fullmatch(r"-?\d+", text):
        raise ValueError(f"need a whole number of guesses or auto, got {text!r}")
    return text if text == "auto" else int(text)


def true_or_false(text):
    """Of a flag that needs no value: --markov is --markov true."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"need true or false, got {text!r}")
    return text.lower() == "true"


def numbers(text):
    """"3,2,1" as a tuple of ints >= 1."""
    if not re.fullmatch(r"0*[1-9]\d*(,0*[1-9]\d*)*", text):
        raise ValueError(f"need whole numbers >= 1 such as 3,2,1, got {text!r}")
    return tuple(int(part) for part in text.split(","))


def numbers_or_word(text):
    """The same, or "auto" (best_tree.py), "dynamic" (dynamic_tree.py), "chain" (eagle.py)."""
    return text if text in ("auto", "dynamic", "chain") else numbers(text)


def guesses_per_round(default):
    """The flag --K."""
    return Flag(default, whole_or_auto, "guesses per round")
