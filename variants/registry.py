"""Describe a decoder: its guess, its test, and how it is built from models and flags.

A decoder's file ends with its entry, DECODER. .github/CONTRIBUTING.md says how to add one.
"""

import inspect
import math
import re
import shlex
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

import speculative
from sampling import with_sampling
from speculative import Model, Step, Test, autoregressive_step, verify


class Costs(NamedTuple):
    """Hold times of a draft pass and of target passes, all in one unit."""

    draft: float
    passes: list  # passes[k] is the time of a target pass over k + 1 rows: k guesses

    @property
    def c(self):
        """Return a draft pass's time in target rows. Leviathan et al. (2023) Sec. 3.3."""
        return self.draft / self.passes[0]

    @property
    def pass_cost(self):
        """Return the passes' times in target rows."""
        return [time / self.passes[0] for time in self.passes]


def check_costs(costs: Costs) -> None:
    """Raise ValueError unless a draft pass takes a time >= 0 and every target pass one > 0."""
    draft, passes = costs
    draft_fits = 0 <= draft < math.inf
    passes_fit = len(passes) > 0 and all(0 < time < math.inf for time in passes)
    if not (draft_fits and passes_fit):
        raise ValueError("need Costs of a draft pass >= 0 and of passes over 1, 2, .. rows, "
                         f"each > 0, got {draft} and {passes}")


class LogitsModel(Protocol):
    """State what every model offers, gpt2.GPT2 and the models of wrappers/."""

    n_ctx: Any  # the most tokens it reads: int, or math.inf
    n_vocab: int

    # -> logits [n_last, n_vocab]; the last row is for the token after `ids`
    def __call__(self, ids: Any, n_last: int = 1) -> np.ndarray: ...
    def fresh(self) -> Any: ...  # a model over the same weights that has read nothing


class Models(NamedTuple):
    """Hold what a decoder is built from: models of logits, and the sampling settings."""

    draft: Any  # a LogitsModel, for some decoders one that reads trees; None without a draft
    target: Any  # such a model too; where weights or states are read, a cache.CachedModel
    sampling: dict  # sampling.warp's settings
    folder: Path | None = None  # the target's, where its heads are
    costs: Costs | None = None  # given or measured before the run
    # of a chain of guesses: block.py puts its own into decoders whose entry has `verify`
    test: Test = verify

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


def needing(*needs):
    """Return the function `needs` of an entry: these needs, and costs if a flag is auto."""
    def needs_with(settings):
        return {*needs, "costs"} if "auto" in settings.values() else {*needs}

    return needs_with


def missing(needs, models):
    """Return in words what the models lack of the needs, or None if they lack nothing."""
    if needs & {"params", "heads"} and not hasattr(models.target, "params"):
        return "a GPT-2 whose weights can be read"
    if "heads" in needs and not hasattr(models.target, "hidden"):
        return "a target with hidden states"
    if "draft" in needs and models.draft is None:
        return "a draft"
    used = [models.target, models.draft] if "draft" in needs else [models.target]
    # The models of wrappers/ read trees, and have no attribute `reads_trees`.
    if "tree" in needs and not all(getattr(model, "reads_trees", True) for model in used):
        return "models that read trees of guesses"
    return None


class Flag(NamedTuple):
    """Describe a parameter of `build` to argparse; the flag has its name and its default."""

    type: Callable  # text, or the value itself -> value; its ValueError is shown to the user
    help: str
    choices: tuple | None = None

    def read(self, value, default):
        """Return a value, given as text or as itself; ValueError if the flag refuses it."""
        if value is None and default is None:
            return None
        if value is None:
            raise ValueError(f"need a value, got None (the default is {default})")
        value = self.type(value)
        if self.choices and value not in self.choices:
            raise ValueError(f"need {' or '.join(self.choices)}, got {value!r}")
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


def always(settings):
    """Return True: the text has the target's distribution with all settings."""
    return True


def never(settings):
    """Return False: the text has a different distribution with all settings."""
    return False


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
    exact: Callable[[dict], bool | None] = always  # (settings) -> whether the text is exact
    exact_words: str = "exact"  # "no", or a condition such as "with --lenience 1"
    tree: tuple = ()  # (guess, test) with flags that make the guesses a tree
    # (settings) -> what it needs: a loaded "draft", "costs" of passes, a target with "params"
    # or with "heads", models that read a "tree"
    needs: Callable[[dict], set] = needing("draft")
    without_draft: dict | None = None  # settings with which it needs no draft
    # (settings) -> None, or a function (target, notify) -> a draft made from the target
    draft_maker: Callable[[dict], Callable | None] = lambda settings: None
    greedy: bool = False  # whether the decoder runs at temperature 0 only
    # (settings) -> the fields that these settings change, such as the guess
    changes: Callable[[dict], dict] = lambda settings: {}
    # (models, **settings) -> plain decoding that uses the random numbers as this decoder does
    plain: Callable | None = None

    @property
    def flags(self):
        """Return {name: (default, Flag)}, read from the signature of `build`."""
        return flags_of(self.build)

    def with_settings(self, settings):
        """Return the entry as it is with these settings."""
        return self._replace(**self.changes(settings))

    @property
    def is_chain(self):
        """Return whether the guess and the test are speculative.py's: the papers' decoder."""
        return self.guess is speculative.guess and self.test is speculative.verify

    def settings(self, given):
        """Return the values of all flags: given values, checked, and defaults of the others."""
        if unknown := given.keys() - self.flags:
            raise ValueError(f"--{min(unknown)} does not apply to --decoder {self.name}")
        settings = {}
        for name, (default, flag) in self.flags.items():
            try:
                settings[name] = (flag.read(given[name], default) if name in given
                                  else default)
            except ValueError as error:
                raise ValueError(f"--{name}: {error}") from None
        return settings


# ---- readers of flags: each takes a text or the value itself

def whole(value, least=1):
    """Read a whole number, by default >= 1."""
    text = str(value)
    if not re.fullmatch(r"\d+", text) or int(text) < least:
        raise ValueError(f"need a whole number >= {least}, got {text!r}")
    return int(text)


whole_from_0 = partial(whole, least=0)


def number(value):
    """Read a finite number."""
    text = str(value)
    try:
        read = float(text)
    except ValueError:
        raise ValueError(f"need a number, got {text!r:.80}") from None
    if not math.isfinite(read):
        raise ValueError(f"need a finite number, got {text}")
    return read


def costs(text):
    """Read "0.1,1,1.1,1.2": times of a draft pass and of target passes over 1, 2, .. rows."""
    try:
        draft, *passes = map(float, text.split(","))
        check_costs(Costs(draft, passes))
        if len(passes) > 1:
            return Costs(draft, passes)
    except ValueError:
        pass
    raise ValueError("need a time >= 0, then two or more times > 0, such as 0.1,1,1.1,1.2, "
                     f"got {text!r}")


def either(read, *words):
    """Return a type that reads one of these words as itself, and any other value by `read`."""
    def word_or_value(value):
        try:
            return value if value in words else read(value)
        except ValueError as error:  # "need a whole number" becomes "need auto or a whole .."
            needed = str(error).removeprefix("need ")
            raise ValueError(f"need {', '.join(words)} or {needed}") from None

    return word_or_value


def wholes(value, least=1):
    """Read "3,2,1" as a tuple of whole numbers."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    try:
        if parts:
            return tuple(whole(part, least) for part in parts)
    except ValueError:
        pass
    raise ValueError(f"need whole numbers >= {least} separated by commas, got {value!r}")


GUESSES = Annotated[int, Flag(whole, "guesses per round")]
GUESSES_OR_AUTO = Annotated[int | str, Flag(
    either(whole, "auto"),
    "guesses per round; auto: choose K in each round from measured costs")]


# ---- a decoder inside a decoder

def words_of(text):
    """Return the words of a text; one in quotes may have spaces, such as a further decoder."""
    words = shlex.shlex(text, posix=True)
    words.whitespace_split = True
    words.escape = words.commenters = ""  # a backslash of a path and a # are like letters
    try:
        return list(words)
    except ValueError:
        raise ValueError(f"need a closing quote, got {text!r}") from None


@cache
def decoder_with_flags(text):
    """Return the entry and the given flags of "eagle --widths 2,1"; ValueError if not exact."""
    name, *words = words_of(text) or [""]
    entry = entry_of(name)
    names, values = words[::2], words[1::2]
    if len(names) > len(values) or not all(word.startswith("--") for word in names):
        raise ValueError("need a decoder with its flags, such as 'eagle --widths 2,1', got "
                         f"{text!r}")
    given = {word.removeprefix("--"): value for word, value in zip(names, values)}
    if entry.greedy or not entry.exact(entry.settings(given)):
        raise ValueError(f"need a decoder that is exact at every temperature, got {text!r}")
    return entry, given


def exact_decoder(text):
    """Read the flag of an inner decoder: the text itself, which --json shows."""
    decoder_with_flags(str(text))
    return str(text)


def chain_decoder(text):
    """Read the flag of an inner decoder whose guesses are a chain with the test `verify`."""
    text = exact_decoder(text)
    entry, settings = inner_decoder(text)
    if entry.test is not verify or "tree" in entry.needs(settings):
        raise ValueError("need a decoder that tests a chain of guesses by the ratio rule, got "
                         f"{text!r}")
    return text


def inner_decoder(text, K=None):
    """Return the entry and all settings of a decoder with flags; `K` is its --K if given."""
    entry, given = decoder_with_flags(text)
    if K is None:
        return entry, entry.settings(given)
    if "K" in given:
        raise ValueError(f"--K {K} and {text!r} both give the number of guesses: leave one out")
    return entry, entry.settings({"K": K} | given)


def of_inner(inner):
    """Return the fields `needs` and `draft_maker` of an entry that runs a decoder inside it."""
    def needs(settings):
        entry, settings_of_inner = inner(settings)
        return entry.needs(settings_of_inner)

    def draft_maker(settings):
        entry, settings_of_inner = inner(settings)
        return entry.draft_maker(settings_of_inner)

    return dict(needs=needs, draft_maker=draft_maker)


# ---- the registry

class Registry(Mapping):
    """Map the name of a decoder to its entry; import the decoder's file at the first look."""

    def __getitem__(self, name: str) -> Decoder:
        if name not in self:
            raise KeyError(name)
        return import_module(f"variants.{name}").DECODER

    # Mapping's own __contains__ would look the decoder up, and so import its file.
    def __contains__(self, name):
        return name in import_module("variants").FILES

    def __iter__(self):
        return iter(import_module("variants").FILES)

    def __len__(self):
        return len(import_module("variants").FILES)


DECODERS: Mapping[str, Decoder] = Registry()


def entry_of(name):
    """Return the entry of a decoder's name, or an entry as it is; ValueError if unknown."""
    if isinstance(name, Decoder):
        return name
    if name not in DECODERS:
        raise ValueError(f"need one of the decoders {', '.join(DECODERS)}, got {name!r}")
    return DECODERS[name]


def build(name, models, given=()):
    """Return a decoder's step for one text. Flags that are not in `given` have their defaults.

    `name` may be an entry; `given` is a dict {flag: value}, or its pairs. ValueError if there
    is no such decoder, a flag or the temperature does not fit, the models lack something that
    the decoder needs, or costs are missing or impossible.
    """
    entry = entry_of(name)
    flags = entry.settings(dict(given))
    if entry.greedy and not models.is_greedy:
        raise ValueError(f"--decoder {entry.name} needs --temperature 0, because it is greedy; "
                         f"got {models.sampling.get('temperature', 1.0)}")
    needs = entry.needs(flags)
    if lacking := missing(needs, models):
        raise ValueError(f"--decoder {entry.name} needs {lacking}: the models given do not "
                         "offer it")
    if "costs" in needs:
        if models.costs is None:
            raise ValueError(f"--decoder {entry.name} needs Models.costs with these flags")
        check_costs(models.costs)
    if "heads" in needs:
        from variants.shared.states import States  # most decoders read no states
        models = models._replace(target=States(models.target))
    return entry.build(models, **flags)


def build_plain(name, models, given=()):
    """Return the step of plain decoding that a decoder is compared with."""
    entry = entry_of(name)
    if entry.plain:
        return entry.plain(models, **entry.settings(dict(given)))
    return partial(autoregressive_step, model=models.target_rows)
