"""Describe a decoder: its guess, its test, and how it is built from models and flags.

A decoder's file ends with its entry, DECODER. .github/CONTRIBUTING.md says how to add one.
"""

import inspect
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

import speculative
from sampling import with_sampling
from speculative import Model, Step


class Costs(NamedTuple):
    """Hold times of a draft step and of target passes over 1, 2, .. rows, all in one unit."""

    draft: float
    passes: list  # passes[k] is the time of a pass over k + 1 rows

    @property
    def c(self):
        """Return a draft step's time in target rows. Leviathan et al. (2023) Sec. 3.3."""
        return self.draft / self.passes[0]

    @property
    def pass_cost(self):
        """Return the passes' times in target rows."""
        return [time / self.passes[0] for time in self.passes]


def check_costs(costs: Costs) -> None:
    """Raise ValueError unless the step's time is >= 0 and every pass's > 0."""
    draft, passes = costs
    draft_fits = 0 <= draft < math.inf
    passes_fit = len(passes) > 0 and all(0 < time < math.inf for time in passes)
    if not (draft_fits and passes_fit):
        raise ValueError("need Costs of a draft step >= 0 and of passes over 1, 2, .. rows, "
                         f"each > 0, got {draft} and {passes}")


class LogitsModel(Protocol):
    """State what every model offers, gpt2.GPT2 and the models of wrappers/."""

    n_ctx: Any  # the most tokens it reads: int, or math.inf
    n_vocab: int

    def __call__(self, ids: Any, n_last: int = 1) -> np.ndarray:  # -> [n_last, n_vocab]
        """Return logits; the last row is for the token after `ids`."""

    def fresh(self) -> Any:
        """Return a model over the same weights that has read nothing."""


class WithParams(LogitsModel, Protocol):
    """State what a target offers if its weights can be read: a draft can be made from them."""

    n_head: int
    params: dict


class WithStates(LogitsModel, Protocol):
    """State what heads read: the target's hidden states."""

    def hidden(self, ids: Any, n_last: int = 1) -> np.ndarray:  # -> [n_last, n_embd]
        """Return the hidden states that `logits` unembeds; heads read them (states.py)."""

    def logits(self, states: np.ndarray) -> np.ndarray:  # [n, n_embd] -> [n, n_vocab]
        """Return the logits of hidden states."""


class Target(WithParams, WithStates, Protocol):
    """State all that decoders read of a target, as gpt2.GPT2 offers it."""


# A decoder can need "draft", a loaded draft; "heads", the target's heads.safetensors; "costs",
# Models.costs; and properties of its models, the keys of OF_MODELS. If a model lacks a
# property, the error message has the words of OF_MODELS.
OF_MODELS = {"params": "a GPT-2 whose weights can be read",
             "states": "a target with hidden states",
             "tree": "models that read trees of guesses"}
NEEDS = ("draft", "heads", "costs", *OF_MODELS)
ON_STATES = ("heads", "params", "states")  # what decoders with heads need


class Models(NamedTuple):
    """Hold what a decoder is built from: models of logits, and the sampling settings."""

    draft: Any  # a LogitsModel, for some decoders one that reads trees; None without a draft
    target: Any  # a Target, for some decoders a TreeGPT2
    sampling: dict  # sampling.warp's settings
    folder: Path | None = None  # the target's, where its heads are
    costs: Costs | None = None  # given or measured before the run

    @property
    def offered(self):
        """Return the keys of OF_MODELS for what the models offer."""
        models = [model for model in (self.draft, self.target) if model is not None]
        # Models that are no GPT2 (wrappers/) read trees, and have no attribute `reads_trees`.
        all_read_trees = all(getattr(model, "reads_trees", True) for model in models)
        is_offered = {"params": hasattr(self.target, "params"),
                      "states": hasattr(self.target, "hidden"),
                      "tree": all_read_trees}
        return {name for name, offers in is_offered.items() if offers}

    @property
    def is_greedy(self):
        """Return whether the temperature is 0."""
        return self.sampling.get("temperature", 1.0) == 0

    @property
    def warm(self):
        """Return these Models at temperature 1 if they are greedy, else as they are.

        Some decoders need whole distributions: at temperature 0 every row is one-hot.
        """
        if not self.is_greedy:
            return self
        return self._replace(sampling={**self.sampling, "temperature": 1.0})

    @property
    def draft_rows(self) -> Model:
        """Return the draft as a model of probabilities."""
        return with_sampling(self.draft, **self.sampling)

    @property
    def target_rows(self) -> Model:
        """Return the target as a model of probabilities."""
        return with_sampling(self.target, **self.sampling)


def as_typed(value):
    """Return a value as a user would type it, so that it is checked as if it had been typed.

    >>> as_typed(4), as_typed((3, 2, 1)), as_typed([(0,), (1,), (0, 0)])
    ('4', '3,2,1', '0 1 0.0')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    is_sparse_tree = isinstance(value, list) and all(isinstance(path, tuple) for path in value)
    if is_sparse_tree:
        words = [".".join(map(str, path)) for path in value]
        return " ".join(words)
    return str(value)


class Flag(NamedTuple):
    """Describe a parameter of `build` to argparse.

    The flag has the name and the default of the parameter.
    """

    type: Callable  # text -> value; the user sees the message of its ValueError
    help: str
    choices: tuple | None = None

    def read(self, value, default):
        """Return a value, given as text or as itself; ValueError if the flag refuses it.

        None is accepted only if the default is None.
        """
        if value is None and default is None:
            return None
        if value is None:
            raise ValueError(f"need a value, got None (the default is {default})")
        value = self.type(as_typed(value))
        if self.choices and value not in self.choices:
            raise ValueError(f"need {' or '.join(self.choices)}, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"need a finite number, got {value}")
        return value


FAMILIES = {  # family: the part of the papers' decoder, speculative, that it changes
    "no draft model": "guess",
    "heads on the target": "guess",
    "a cheaper draft, or a K that adapts": "guess",
    "several guesses per position": "guess",
    "a different exact rule": "test",
    "a lossy rule": "test",
}


@cache  # inspect.signature is slow beside an enumeration's many builds
def flags_of(build):
    """Return {name: (default, Flag)} for each parameter of `build` after the models."""
    _, *parameters = inspect.signature(build).parameters.values()
    flags = {}
    for parameter in parameters:
        # The annotation is Annotated[type, Flag(..)], whose metadata are what follows `type`.
        flag, *_ = parameter.annotation.__metadata__
        flags[parameter.name] = (parameter.default, flag)
    return flags


class Decoder(NamedTuple):
    """Describe one method, and how to build it from models and flags."""

    name: str  # its --decoder, and its file
    source: str  # the paper; the names of several papers are joined by "; "
    url: str  # the paper's address; several addresses are joined by " "
    idea: str  # what the decoder adds, in one phrase
    guess: Callable  # a speculative.Guess, once `build` has bound its other arguments
    test: Callable  # a speculative.Test, once `build` has bound its other arguments
    build: Callable[..., Step]  # (models, **settings) -> Step; each setting is a flag
    family: str = ""  # a key of FAMILIES
    exact: bool | str = True  # True, False, or a condition such as "with --lenience 1"
    exact_if: Callable | None = None  # (settings) -> whether they meet the condition in `exact`
    tree: tuple = ()  # (guess, test) with flags that make the guesses a tree
    needs: tuple = ("draft",)  # members of NEEDS
    needs_if: Callable | None = None  # (settings) -> more members of NEEDS
    without_draft: dict | None = None  # settings with which it needs no draft
    make_draft: Callable | None = None  # (target, notify) -> a draft made from the target
    greedy: bool = False  # whether the decoder runs at temperature 0 only
    plain: Callable | None = None  # (models, **settings) -> plain decoding with the same text

    @property
    def flags(self):
        """Return {name: (default, Flag)}, read from the signature of `build`."""
        return flags_of(self.build)

    @property
    def is_chain(self):
        """Return whether the guess and the test are speculative.py's: the papers' decoder."""
        return self.guess is speculative.guess and self.test is speculative.verify

    def settings(self, given):
        """Return the values of all flags: given values, checked, and defaults of the others."""
        settings = {name: default for name, (default, _) in self.flags.items()}
        for name, value in given.items():
            if name not in settings:
                raise ValueError(f"--{name} does not apply to --decoder {self.name}")
            default, flag = self.flags[name]
            try:
                settings[name] = flag.read(value, default)
            except ValueError as error:
                raise ValueError(f"--{name}: {error}") from None
        return settings

    def is_exact(self, settings):
        """Return whether the text has the target's distribution with these settings."""
        return self.exact_if(settings) if self.exact_if else bool(self.exact)

    def needs_with(self, settings):
        """Return the set of members of NEEDS that the decoder needs with these settings."""
        needs = set(self.needs)
        if self.needs_if:
            needs.update(self.needs_if(settings))
        if self.without_draft and self.without_draft.items() <= settings.items():
            needs.remove("draft")
        # --K auto and --widths auto choose by costs.
        if "auto" in (settings.get("K"), settings.get("widths")):
            needs.add("costs")
        return needs

    def needs_draft(self, settings):
        """Return whether the decoder asks a draft that has to be loaded."""
        return "draft" in self.needs_with(settings)

    def needs_costs(self, settings):
        """Return whether `build` reads Models.costs, always or because a flag is auto."""
        return "costs" in self.needs_with(settings)

    def check_needs(self, settings, offered, whose):
        """Raise ValueError if models offer less than the decoder needs.

        The message ends with `whose`, a clause about the models.
        """
        needs = self.needs_with(settings)
        for need, words in OF_MODELS.items():
            if need in needs and need not in offered:
                raise ValueError(f"--decoder {self.name} needs {words}: {whose}")


def whole(text, least=1):
    """Read a whole number, by default >= 1."""
    if not re.fullmatch(r"\d+", text) or int(text) < least:
        raise ValueError(f"need a whole number >= {least}, got {text!r}")
    return int(text)


def whole_from_0(text):
    """Read a whole number >= 0."""
    return whole(text, 0)


def costs(text):
    """Read "0.1,1,1.1,1.2": times of a draft step and of target passes over 1, 2, .. rows."""
    try:
        times = [float(time) for time in text.split(",")]
    except ValueError:
        times = []  # too few times, so the next lines raise the error
    if len(times) < 3 or not all(0 < time < math.inf for time in times):
        raise ValueError(f"need at least three times > 0, such as 0.1,1,1.1,1.2, got {text!r}")
    return Costs(draft=times[0], passes=times[1:])


def either(read, *words):
    """Return a type that reads one of these words as itself, and any other text by `read`."""
    def word_or_value(text):
        try:
            return text if text in words else read(text)
        except ValueError as error:
            # "need a whole number" becomes "need auto or a whole number".
            needed = str(error).removeprefix("need ")
            raise ValueError(f"need {', '.join(words)} or {needed}") from None

    return word_or_value


def wholes(text, least=1):
    """Read "3,2,1" as a tuple of whole numbers."""
    try:
        return tuple(whole(part, least) for part in text.split(","))
    except ValueError:
        raise ValueError(f"need whole numbers >= {least} separated by commas, got {text!r}"
                         ) from None


GUESSES = Annotated[int, Flag(whole, "guesses per round")]
GUESSES_OR_AUTO = Annotated[int | str, Flag(
    either(whole, "auto"),
    "guesses per round; auto: choose K in each round from measured costs")]
