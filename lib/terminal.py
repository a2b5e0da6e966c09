"""What a command line needs beyond argparse: errors in one line, grouped help, a safe print."""

import argparse
import functools
import os
import sys


class Parser(argparse.ArgumentParser):
    """Parse as argparse does; print errors in one line."""

    def error(self, message):
        self.exit(complain(self.prog, message))

    def _get_values(self, action, texts):
        """Read the values of a flag. Before Python 3.13 argparse drops the -- of `--flag=--`."""
        if texts == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, texts)

    def _get_value(self, action, text):
        """Read a flag, showing the message of its type's ValueError."""
        try:
            return (action.type or str)(text)
        except ValueError as error:
            raise argparse.ArgumentError(action, error) from None


class Help(argparse.RawDescriptionHelpFormatter):
    """Show each default once, and the examples at the end as they are written."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=30, width=100)

    def _get_help_string(self, action):
        no_default = any(action.default is none for none in (None, False, argparse.SUPPRESS))
        if no_default or "default" in action.help:
            return action.help
        return f"{action.help} (default: %(default)s)"


def command(program, requirements="requirements.txt"):
    """Return a decorator for a `main(argv)`: it returns an exit status and prints errors."""
    def decorate(main):
        @functools.wraps(main)
        def wrapper(argv=None):
            try:
                main(argv)
                return 0
            except BrokenPipeError:  # as in `| head -1`: the reader has seen enough
                return 0
            except ModuleNotFoundError as error:
                return complain(program, f"need {error.name} (pip install -r {requirements}), "
                                "got none")
            except (ValueError, OSError, OverflowError, MemoryError) as error:
                return complain(program, error)
            except KeyboardInterrupt:
                return complain(program, "interrupted", 130)

        return wrapper

    return decorate


def complain(program, error, status=2):
    """Print in one line on standard error why a program ends; return its exit status."""
    print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
    return status


def print_safely(text, stream):
    """Print. After an error there (a full disk, a closed pipe) Python's exit must not try again."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise
