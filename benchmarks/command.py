"""Share what the benchmarks' commands need: flags, errors in one line, and figures as Markdown."""

import argparse
import json
import os
import sys
from pathlib import Path

from lib.demo.terminal import Parser, complain


def new_parser(module, doc):
    """Return a Parser with the flags that every benchmark has."""
    parser = Parser(f"python -m {module}", description=doc.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, too")
    parser.add_argument("--show", type=Path, metavar="FILE",
                        help="print the tables of the figures in FILE, measure nothing")
    return parser


def positive(text):
    """Return a whole number >= 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"need a whole number >= 1, got {text}")
    return int(text)


def read(path):
    """Return the figures of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def print_all(lines):
    """Print lines; end quietly if the reader, such as `head`, has left."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # so that Python's exit does not try to write again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stored(tell, args):
    """Return the lines of the figures in --show."""
    try:
        return list(tell(read(args.show), args))
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"need figures that this command wrote, got {args.show}") from None


def run(program, args, measure, tell):
    """Measure, print and write --json, or print what --show holds. Return the exit status."""
    try:
        if args.show:
            print_all(stored(tell, args))
            return 0
        figures = json.loads(json.dumps(measure(args)))
        print_all(tell(figures, args))
        if args.json:
            args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    except ModuleNotFoundError as error:
        return complain(program, f"need the package {error.name} (see requirements/), got none")
    except (ValueError, OSError, MemoryError) as error:
        return complain(program, error)
    return 0


# ---- Markdown

def table(head, rows):
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def number(value, form="{:.2f}"):
    """Return a formatted number; "-" for None."""
    return "-" if value is None else form.format(value)


def ranged(values, form="{:.2f}"):
    """Return "median (low - high)"."""
    low, median, high = (number(values[key], form) for key in ("low", "median", "high"))
    return f"{median} ({low} - {high})"


def about(figures):
    """Return a sentence on when and where some figures were measured (clock.machine)."""
    return (f"Measured on {figures['date']}: {figures['cores']} cores ({figures['machine']}), "
            f"matrix products by {figures['product']}, NumPy {figures['numpy']}, BLAS kernels for "
            f"{figures['blas_kernels']}.")


def scatter(speeds):
    """Return a sentence on how far apart the repeats of some spreads (clock.spread) lie."""
    widths = sorted(100 * (speed["high"] - speed["low"]) / speed["median"] for speed in speeds)
    return (f"The quartiles of the tokens per second lie {widths[len(widths) // 2]:.0f} % of the "
            f"median apart, at most {widths[-1]:.0f} %.")
