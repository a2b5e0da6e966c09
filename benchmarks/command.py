"""What the benchmarks' commands share: --json, --show, whole numbers, and errors in one line."""

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


def run(program, args, measure, tell):
    """Measure, or read --show; write --json; print the tables. Return the exit status."""
    try:
        figures = read(args.show) if args.show else json.loads(json.dumps(measure(args)))
        if args.json:
            args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print("\n".join(tell(figures, args)), flush=True)
    except BrokenPipeError:  # whoever reads has left, as `| head` does: Python's exit must not try
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        return complain(program, f"need the package {error.name} (see requirements/), got none")
    except (ValueError, OSError, MemoryError) as error:
        return complain(program, error)
    return 0
