"""Extend argparse: one-line errors, grouped help, a safe print."""

import argparse
import functools
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, TextIO

from lib.backend.arrays import gpu_error

NUMBERS = {int: "a whole number", float: "a number"}  # in messages
# Other names of our flags, in engines and papers: a message suggests the one that exists.
SYNONYMS = (("target_model_size", "target", "model"), ("draft_model_size", "draft"),
            ("n_tokens_to_generate", "N", "n", "max_tokens", "max_new_tokens"),
            ("temperature", "temp"), ("K", "k", "gamma"))


class Parser(argparse.ArgumentParser):
    """Parse as argparse does, but without abbreviations, and with errors in one line."""

    def __init__(self, *args, **settings):
        super().__init__(*args, allow_abbrev=False, **settings)

    def add_flags(self, title, flags, description=None):
        """Add a group of flags from {name: its settings}."""
        group = self.add_argument_group(title, description)
        for name, settings in flags.items():
            group.add_argument(f"--{name}", **settings)

    def error(self, message):
        """Print one line and exit; argparse would print the usage too."""
        # As in `command`, the line begins with the program's name, without "python -m".
        self.exit(complain(self.prog.removeprefix("python -m "), message))

    def parse_args(self, args=None, namespace=None):
        """Parse all words; the message about an unknown flag names the flag that was meant."""
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self.why_unknown(unknown[0]))
        return known

    def why_unknown(self, word):
        """Return that a word is not a flag, and which flag was meant, if one is near."""
        flags = [flag.lstrip("-") for flag in self._option_string_actions]
        meant = meant_name(word.lstrip("-").partition("=")[0], flags)
        advice = f": did you mean --{meant}?" if meant else "; see --help"
        return f"unrecognized arguments: {word}{advice}"

    def _get_value(self, action, text):
        """Return the value of a flag; the message of its type's ValueError is the error."""
        parse = action.type or str
        try:
            return parse(text)
        except ValueError as error:
            # The messages of int and float are about Python, so a noun replaces them.
            noun = NUMBERS.get(action.type)
            message = f"need {noun}, got {text!r}" if noun else error
            raise argparse.ArgumentError(action, message) from None

    def _check_value(self, action, value):
        """Raise an error that names the nearest choice, or all of them if none is near."""
        if action.choices is None or value in action.choices:
            return
        raise argparse.ArgumentError(action, not_a_choice(value, action.choices))


class Help(argparse.RawDescriptionHelpFormatter):
    """Show each default once; keep the line breaks of the examples."""

    def __init__(self, prog):
        # The width is 100 if the output does not go to a terminal.
        width = shutil.get_terminal_size(fallback=(100, 24)).columns
        super().__init__(prog, max_help_position=30, width=min(width, 100))

    def _get_help_string(self, action):
        # `is`, because 0 == False, and a default of 0 is worth showing.
        is_switch = action.default is False
        has_default = not is_switch and action.default not in (None, argparse.SUPPRESS)
        # Some help texts describe the default themselves.
        if has_default and "default" not in action.help:
            return f"{action.help} (default: %(default)s)"
        return action.help


def not_a_choice(value: Any, choices: Iterable) -> str:
    """Return a message that names the nearest choice, or all of them if none is near."""
    names = [str(choice) for choice in choices]
    meant = meant_name(str(value), names)
    advice = f"did you mean {meant}?" if meant else f"choose from {', '.join(names)}"
    return f"{value!r:.80} is not a choice: {advice}"


def meant_name(name: str, names: Iterable[str]) -> str | None:
    """Return which of the names a user meant, or None.

    >>> meant_name("max_tokens", ["seed", "N"]), meant_name("sed", ["seed", "N"])
    ('N', 'seed')
    """
    names = list(names)
    for synonyms in SYNONYMS:
        if name in synonyms and (known := {*synonyms} & {*names}):
            return min(known)
    return next(iter(get_close_matches(name, names, n=1)), None)


def flags_given(words: Iterable[str]) -> set[str]:
    """Return the names of the flags in a command line, even if their value is the default.

    Each word that starts with -- is the full name of a flag: a Parser has no abbreviations,
    and argparse reads such a word as a value only if it has a space.

    >>> sorted(flags_given(["--K", "4", "--seed=3", "prompts", "--stop", "-- The End"]))
    ['K', 'seed', 'stop']
    """
    names = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    return {name for name in names if " " not in name}


def open_flag(name: str, path: str, binary_mode: str) -> IO[bytes]:
    """Open the file that a flag names; an OSError names the flag too."""
    try:
        return open(path, binary_mode)
    except OSError as error:
        verb = "read" if binary_mode == "rb" else "write"
        raise OSError(f"cannot {verb} --{name} {path}: {error.strerror}") from None


def try_to_write(name: str, path: Path) -> None:
    """Raise OSError now, not after minutes, if the file of a flag cannot be written."""
    is_new = not os.path.exists(path)
    open_flag(name, str(path), "ab").close()  # "ab": a file that exists keeps its bytes
    if is_new:
        # An empty file would look like a result. A link to no file stays, and still leads to
        # none.
        path.resolve().unlink()


def check_page_path(path: str | Path) -> None:
    """Raise an error unless the page of --trace can be written; call it before a long run."""
    if Path(path).suffix != ".html":
        raise ValueError(f"--trace {path}: choose a name that ends in .html")
    try_to_write("trace", Path(path))


def command(program: str, requirements: str = "requirements.txt") -> Callable:
    """Return a decorator for a `main`, which then prints errors and returns a status."""
    def decorate(main):
        @functools.wraps(main)
        def wrapper(*args):
            if sys.stderr is None:  # closed, as by 2>&-: errors and bars are lost
                sys.stderr = io.StringIO()
            try:
                return main(*args) or 0  # a main that returns None has succeeded
            # The reader has closed the pipe, as `| head -1` does after one line.
            except BrokenPipeError:
                return 0
            except KeyboardInterrupt as error:
                # 128 + 2, as in shells; 2 is the number of the signal
                return complain(program, str(error) or "interrupted", 130)
            except Exception as error:
                why = why_failed(error, requirements)
                if not why:
                    raise
                return complain(program, why)

        return wrapper

    return decorate


def why_failed(error: Exception, requirements: str) -> str | None:
    """Return what a user has to know of an error; None for a fault in the program."""
    if why := gpu_error(error):
        return why
    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is missing: pip install -r {requirements}"
    if isinstance(error, OverflowError):
        return f"a number is too large: {error}"
    if isinstance(error, MemoryError):  # Python's own has no words
        return str(error) or ("need more memory than this process can have: choose smaller "
                              "models, or fewer tokens")
    return str(error) if isinstance(error, ValueError | OSError) else None


def complain(program: str, error: object, status: int = 2) -> int:
    """Print on standard error, in one line, why a program ends; return its exit status."""
    in_one_line = " ".join(str(error).split())
    print(f"{program}: {in_one_line}", file=sys.stderr)
    return status


def notify(text: str) -> None:
    """Print on standard error, if it is a terminal, why the user has to wait."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def print_safely(text: str, stream: TextIO, end: str = "\n") -> None:
    """Print a text; raise OSError once if the disk is full or the pipe is closed."""
    try:
        print(text, file=stream, end=end, flush=True)
    except OSError:
        # Python writes the rest of the text when it exits, and would fail again. So the stream
        # now leads to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise
