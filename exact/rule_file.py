"""Read a rule, the guess and the test of a round, from a file of yours: FILE.py.

FILE.py defines a rule in one of three ways. If it has several, only the first one is read:

 1. DECODER is the entry of a decoder, as at the end of a file of variants/.
 2. A function step is a whole round. It returns tokens, or a Round of speculative.py:

        step(x, n_left, rng, draft, target, K) -> 1 .. n_left tokens

 3. Functions verify and guess are the test and the guess of a round. A file may define one of
    them; the other one is then speculative.py's:

        verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens
        guess(x, k, rng, draft) -> up to k guesses, their rows

exact/judge.py enumerates such a rule, and demo/own.py runs it with real models. RuleError is
raised for a file that is refused.
"""

import inspect
import runpy
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exact.law import ONLY_COMPARED
from speculative import Round, Test
from variants.registry import Decoder

ARGUMENTS = {  # of each function that a file can define
    "guess": ("x", "k", "rng", "draft"),
    "verify": ("guesses", "p_draft", "p_target", "rng"),
    "step": ("x", "n_left", "rng", "draft", "target", "K")}


class RuleError(ValueError):
    """State in one sentence why a file is refused."""


class FileRule(NamedTuple):
    """Hold what a file defines; None for what it does not define."""

    decoder: Decoder | None = None
    step: Callable | None = None
    guess: Callable | None = None
    verify: Callable | None = None


# ---- reading

def names_in_file(path: Path) -> dict[str, Any]:
    """Run the file; return the names that it defines."""
    if path.suffix != ".py" or not path.is_file():
        raise RuleError("need a Python file, FILE.py")
    return runpy.run_path(str(path.absolute()))


def rule_of(defined: dict[str, Any]) -> FileRule:
    """Return the rule among the names that a file defines."""
    if "DECODER" in defined:
        if not isinstance(defined["DECODER"], Decoder):
            raise RuleError("need a DECODER with a test, as in variants/registry.py")
        return FileRule(decoder=defined["DECODER"])
    # a name that is no function, as in verify = None, counts as not defined
    functions = {name: defined[name] for name in ARGUMENTS if callable(defined.get(name))}
    if not functions:
        raise RuleError("need a function verify, guess or step in it, or a DECODER")
    if "step" in functions:  # verify and guess are then helpers that the step may call
        functions = {"step": functions["step"]}
    for name, function in functions.items():
        check_arguments(name, function)
    return FileRule(**functions)


def check_arguments(name: str, function: Callable) -> None:
    """Raise RuleError unless the function can be called with the arguments of its name."""
    needed = ARGUMENTS[name]
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function that is not written in Python
        return
    # a verify over arrays of rounds has uniforms instead of rng
    if [*signature.parameters][-1:] == ["uniforms"]:
        raise RuleError("for a verify over arrays: python -m exact.oracle FILE.py")
    # bind() raises TypeError if a call with these arguments would; their values do not matter
    try:
        signature.bind(*needed)
    except TypeError:
        raise RuleError(f"need {name}({', '.join(needed)}), got {name}"
                        f"({', '.join(signature.parameters)})") from None


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


def checked_step(function: Callable, n_vocab: int = 3) -> Callable:
    """Return the function with its tokens checked and its result as a Round.

    If the function returns tokens alone, the Round has no guesses and no rows.
    """
    def step(x, n_left, rng, draft, target, K):
        result = function(list(x), n_left, rng, draft, target, K)
        ids = as_tokens(result, n_left, n_vocab)
        if isinstance(result, Round):
            return result._replace(ids=ids)
        return Round(ids, [], [], np.empty(0), n_accepted=0)

    return step


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

def line_of(error: BaseException, path: Path) -> str:
    """Return "line N: " for the last line of the file in an error's traceback, or ""."""
    frames = traceback.extract_tb(error.__traceback__)  # the innermost call is last
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError):  # its line was never run, so no frame has it
        places.append((error.filename or "", error.lineno))
    lines = [line for file, line in places if file == str(path.absolute())]
    return f"line {lines[-1]}: " if lines else ""


def in_words(error: BaseException) -> str:
    """Return an error's message in one line."""
    # a SyntaxError's msg is without the file and the line, which line_of returns
    message = str(getattr(error, "msg", error))
    sentences = [message, *getattr(error, "__notes__", [])]
    if "Uniform" in message:  # as in Python's "unsupported operand type(s) for +: 'Uniform' .."
        sentences.append(f"({ONLY_COMPARED})")
    # split() splits at line ends too
    words = " ".join(sentences).split()
    return " ".join(words)


def sentence(error: BaseException, path: Path) -> str:
    """Return a file's error as one sentence, with the name of the file and the line."""
    if isinstance(error, (AssertionError, RuleError)):
        return f"{path}: {line_of(error, path)}{in_words(error)}"
    kind = type(error).__name__
    return f"{path} does not run: {line_of(error, path)}{kind}: {in_words(error)}"
