"""What a command line needs beyond argparse: errors in one line, grouped help, a safe print."""

import argparse
import os
import sys


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message):
        if message.startswith("unrecognized arguments"):
            message += "; --help lists all there are"
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def parse_args(self, argv):
        """As argparse does. Subtle: before Python 3.13 it makes an empty list of `--flag=--`."""
        args = super().parse_args(argv)
        for name, value in vars(args).items():
            if isinstance(value, list) and [] in (value, *value):
                self.error(f"argument --{name}: expected one argument")
        return args


def saying_why(convert):
    """A type for add_argument whose ValueError is shown, not the function's name, as usual."""
    def wrapper(text):
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(error) from None

    return convert if convert in (int, float, str) else wrapper


class Help(argparse.RawDescriptionHelpFormatter):
    """Show each default once, and the examples at the end as they are written."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=30, width=100)

    def _get_help_string(self, action):
        default = action.default
        known = default is None or default is False or default == argparse.SUPPRESS
        if known or "default" in action.help or not action.option_strings:
            return action.help
        return f"{action.help} (default: %(default)s)"


def complain(program, error):
    """Say on standard error, in one line, why a program ends; its exit status."""
    print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def print_safely(text, stream):
    """Print. After an error there (a full disk, a closed pipe) Python's exit must not try again."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise
