"""Read a rule, the guess and the test of a round, from a file of yours: FILE.py.

FILE.py defines a rule in one of three ways. If it has several, only the first one is read:

 1. DECODER is the entry of a decoder, as at the end of a file of variants/.
 2. A function step is a whole round. It returns tokens, or a Round of speculative.py:

        step(x, n_left, rng, draft, target, K) -> 1 .. n_left tokens

 3. Functions verify and guess are the test and the guess of a round. A file may define one of
    them; the other one is then speculative.py's:

        verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens
        guess(x, k, rng, draft) -> up to k guesses, their rows

p_draft is a list of k rows, p_target an array [k + 1, n_vocab]. All random numbers must come
from `sample` and `accept` of sampling.py, or from rng.random().

A step may change the target's row before it draws (a penalty, a mask, a minimum length), and
may end a text at a stop token. The file then says so:

        setting(row, new_tokens) -> weights of the next token    new_tokens: without the prompt
        STOP = 2, or several tokens

A module of yours with the name of one of this project's, such as sampling, must be imported at
the top of FILE.py, and not in a function.

exact/judge.py enumerates such a rule, and run/own.py runs it with real models. RuleError is
raised for a file that is refused.
"""

import contextlib
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exact.law import ONLY_COMPARED
from exact.oracle import can_be_called
from speculative import Round, Test, is_whole, token_ids
from variants.registry import Decoder

ROOT = Path(__file__).resolve().parents[1]
ARGUMENTS = {  # of each function that a file can define
    "guess": ("x", "k", "rng", "draft"),
    "verify": ("guesses", "p_draft", "p_target", "rng"),
    "step": ("x", "n_left", "rng", "draft", "target", "K"),
    "setting": ("row", "new_tokens")}


class RuleError(ValueError):
    """State in one sentence why a file is refused."""


class NoMass(AssertionError):
    """State that a setting leaves no token after a text."""


class FileRule(NamedTuple):
    """Hold what a file defines; None for what it does not define."""

    decoder: Decoder | None = None
    step: Callable | None = None
    guess: Callable | None = None
    verify: Callable | None = None
    setting: Callable | None = None
    stop: tuple[int, ...] = ()


# ---- reading

def names_in_file(path: Path) -> dict[str, Any]:
    """Run the file as `python FILE.py` would; return the names that it defines."""
    if not path.exists():
        raise RuleError("no such file")
    if path.suffix != ".py" or not path.is_file():
        raise RuleError("need a Python file, FILE.py")
    with imports_of(path.resolve().parent):
        return runpy.run_path(str(path.absolute()))


@contextlib.contextmanager
def imports_of(folder: Path) -> Iterator[None]:
    """Let imports look into the folder first, and into this project last.

    So a file may import its own package, and modules whose names are used here too, such as
    utils. The folder stays the first one, because a function may import when it is called, but
    then it gets this project's modules of such names, which the project needs. A file within
    this project imports as the project does.
    """
    before = [place for place in sys.path if place != str(folder)]
    if folder.is_relative_to(ROOT):
        sys.path[:] = [*before, str(folder)]
        yield
        return
    others = [place for place in before if Path(place).resolve() != ROOT]
    sys.path[:] = [str(folder), *others, str(ROOT)]
    # a module of this project that is loaded already would be taken for the folder's own
    own_names = {path.stem for path in folder.iterdir()}
    hidden = {name: module for name, module in sys.modules.items()
              if name.partition(".")[0] in own_names and is_below(ROOT, module)}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(hidden)
        sys.path[:] = [str(folder), *before]


def is_below(folder: Path, module: Any) -> bool:
    """Return whether a module was loaded from a file in the folder or below it."""
    file = getattr(module, "__file__", None)
    return file is not None and folder in folders_above(file)


@cache
def folders_above(file: str) -> frozenset[Path]:
    """Return all folders that a module's file is in: once for each of thousands of modules."""
    return frozenset(Path(file).resolve().parents)


def namespaces(path: Path, functions: Iterable[Callable | None]) -> list[dict[str, Any]]:
    """Return the names that these functions of a file can use: its own, and its package's.

    A function written in Python has the names of its module in __globals__.
    """
    folder = path.resolve().parent
    found = [getattr(function, "__globals__", {}) for function in functions]
    if not folder.is_relative_to(ROOT):
        found += [vars(module) for name, module in sys.modules.items()
                  if is_below(folder, module) and not is_installed(folder, name, module)]
    return [*{id(names): names for names in found}.values()]  # each once


def is_installed(folder: Path, name: str, module: Any) -> bool:
    """Return whether a module below the folder is Python's, or of a package installed there."""
    places = Path(module.__file__).resolve().relative_to(folder).parts
    is_pythons = name.partition(".")[0] in sys.stdlib_module_names
    return is_pythons or bool({"site-packages", "dist-packages"} & {*places})


def rule_of(defined: dict[str, Any]) -> FileRule:
    """Return the rule among the names that a file defines."""
    if "DECODER" in defined:
        if not isinstance(defined["DECODER"], Decoder):
            raise RuleError("need a DECODER with a test, as in variants/registry.py")
        refuse_setting(defined)
        return FileRule(decoder=defined["DECODER"])
    # a name that is no function, as in verify = None, counts as not defined
    functions = {name: defined[name] for name in ARGUMENTS if callable(defined.get(name))}
    if not functions.keys() - {"setting"}:
        raise RuleError("need a function verify, guess or step in it, or a DECODER")
    stop = stop_tokens(defined.get("STOP"))
    if "step" in functions:  # verify and guess are then helpers that the step may call
        functions = {name: functions[name] for name in ("step", "setting") if name in functions}
    else:
        refuse_setting(defined)
    for name, function in functions.items():
        check_arguments(name, function)
    return FileRule(**functions, stop=stop)


def refuse_setting(defined: dict[str, Any]) -> None:
    """Raise RuleError for a setting or a STOP, because the file's rule is not a step."""
    if callable(defined.get("setting")) or defined.get("STOP") is not None:
        raise RuleError("setting and STOP say what a step does to the target's rows and texts: "
                        "define a function step that does so")


def stop_tokens(stop: Any) -> tuple[int, ...]:
    """Return a file's STOP, a token, several tokens or None, as a tuple."""
    if stop is None:
        return ()
    try:
        return tuple(token_ids([stop] if is_whole(stop) else stop, "STOP"))
    except ValueError as error:
        raise RuleError(str(error)) from None


def check_arguments(name: str, function: Callable) -> None:
    """Raise RuleError unless the function can be called with the arguments of its name."""
    needed = ARGUMENTS[name]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function that is not written in Python
        return
    # a verify over arrays of rounds has uniforms instead of rng
    if [*signature.parameters][-1:] == ["uniforms"]:
        raise RuleError("for a verify over arrays: python -m exact.oracle FILE.py")
    if not can_be_called(function, needed):
        raise RuleError(f"need {name}({', '.join(needed)}), got {name}"
                        f"({', '.join(signature.parameters)})")


# ---- what the functions return

def checked_verify(function: Callable) -> Test:
    """Return the function as a Test whose tokens are checked and whose errors say more."""
    def verify(guesses, p_draft, p_target, rng):
        n_vocab = len(p_target[-1])
        own_guesses = list(guesses)  # a copy, because the function may change its list
        try:
            ids = function(own_guesses, p_draft, p_target, rng)
            return as_tokens(ids, len(guesses) + 1, n_vocab)
        except Exception as error:  # raised again, with notes on how the function was called
            if not guesses:
                error.add_note("(called without guesses, as in the last round of a text)")
            if n_vocab > 3:
                error.add_note(f"(called with rows of {n_vocab} columns)")
            if str(error).startswith("list indices must be integers"):
                error.add_note("(guesses and p_draft are lists: p_draft[t][token])")
            raise

    return verify


def checked_guess(function: Callable) -> Callable:
    """Return the function with its guesses as a list, checked against their rows."""
    def guess(x, k, rng, draft):
        guesses, rows = function(list(x), k, rng, draft)
        if hasattr(guesses, "tolist"):  # an array or a tensor
            guesses = guesses.tolist()
        if not isinstance(guesses, list) or len(guesses) > k or len(rows) != len(guesses):
            raise AssertionError(f"need a list of up to {k} guesses, and as many rows, got "
                                 f"{guesses} and {len(rows)} rows")
        for token, row in zip(guesses, rows):
            if token not in range(len(row)):
                raise AssertionError(f"need guesses of 0 .. {len(row) - 1}, got {token}")
        return guesses, rows

    return guess


def checked_setting(function: Callable) -> Callable:
    """Return the function with its weights as a checked array."""
    def setting(row, new_tokens):
        weights = np.asarray(function(row.copy(), new_tokens))
        if weights.shape != row.shape or not (min(weights) >= 0 and sum(weights) < np.inf):
            raise AssertionError(f"need a setting that returns {len(row)} weights >= 0, not "
                                 f"all 0, got {weights}")
        if sum(weights) == 0:
            raise NoMass("need a setting that leaves a token after every text of a toy, got "
                         f"{weights} after the new tokens {list(new_tokens)}")
        return weights

    return setting


def checked_step(function: Callable, n_vocab: int = 3) -> Callable:
    """Return the function with its tokens checked and its result as a Round.

    If the function returns tokens alone, the Round has no guesses and no rows.
    """
    def step(x, n_left, rng, draft, target, K):
        return checked_round(function(list(x), n_left, rng, draft, target, K), n_left, n_vocab)

    return step


def checked_round(result: Any, n_left: int, n_vocab: int = 3) -> Round:
    """Return what a step returned, tokens or a Round, as a Round with checked tokens."""
    ids = as_tokens(result, n_left, n_vocab)
    if isinstance(result, Round):
        return result._replace(ids=ids)
    return Round(ids, [], [], np.empty(0), n_accepted=0)


def as_tokens(ids: Any, most: int, n_vocab: int = 3) -> list[int]:
    """Return a list, an array, a tensor or a Round as a list of 1 .. `most` tokens.

    AssertionError if there are more or fewer tokens, or a token is not in 0 .. n_vocab - 1.
    """
    tokens = ids.ids if isinstance(ids, Round) else ids
    if hasattr(tokens, "tolist"):  # an array or a tensor
        tokens = tokens.tolist()
    is_list = isinstance(tokens, (list, tuple))
    vocabulary = range(n_vocab)  # `in` compares numbers, so an integer of NumPy is in it too
    is_right = is_list and 1 <= len(tokens) <= most and all(i in vocabulary for i in tokens)
    if not is_right:
        number = "1 token" if most == 1 else f"1 to {most} tokens"
        raise AssertionError(f"need a list of {number} of 0 .. {n_vocab - 1}, got {ids}")
    return [int(token) for token in tokens]


# ---- errors of the file

def line_in_file(error: BaseException, path: Path) -> str:
    """Return "line N: " for the last line of the file in an error's traceback, or ""."""
    frames = traceback.extract_tb(error.__traceback__)  # the innermost call is last
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):  # its line was never run, so no frame has it
        places.append((error.filename or "", error.lineno))
    lines = [line for file, line in places if file == str(path.absolute())]
    return f"line {lines[-1]}: " if lines else ""


def in_words(error: BaseException) -> str:
    """Return an error's message in one line."""
    # a SyntaxError's msg is without the file and the line, which line_in_file returns
    message = str(getattr(error, "msg", error))
    # as in "unsupported operand type(s) for +: 'Uniform' .."; PyTorch names the array's type
    if "Uniform" in message or "numpy.object_" in message:
        message = ONLY_COMPARED
    sentences = [message, *getattr(error, "__notes__", [])]
    if "relative import" in message:
        sentences.append("(a file of a package cannot be run by itself: write a file next to "
                         "the package that imports verify from it)")
    # split() splits at line ends too
    words = " ".join(sentences).split()
    return " ".join(words)


def sentence(error: BaseException, path: Path) -> str:
    """Return a file's error as one sentence, with the name of the file and the line."""
    if isinstance(error, (AssertionError, RuleError)) and str(error):
        return f"{path}: {line_in_file(error, path)}{in_words(error)}"
    kind = type(error).__name__
    words = f"{path} does not run: {line_in_file(error, path)}{kind}: {in_words(error)}"
    return words.removesuffix(": ")  # of an error without a message
