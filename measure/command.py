"""Share what commands that measure need: flags, errors in one line, and cells of tables."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lib import terminal
from lib.checkpoints.files import read_json
from lib.markdown import shown
from measure.models import LENGTH
from variants.registry import whole


class Benchmark(NamedTuple):
    """Describe a command, such as a table of RESULTS.md: how it measures and what it shows."""

    doc: str  # of its module; --help shows the first line
    all_figures: Callable  # (args) -> figures, measured
    paragraphs: Callable  # (figures, args) -> sentences and tables
    repeats: int | None = None  # the default of --repeats; None: without --repeats and --N
    N: int = LENGTH  # the default of --N
    flags: dict = {}  # {further flag: its settings for argparse}
    requirements: str = "requirements.txt"
    draw: Callable | None = None  # (figures, path) -> None: the picture of --plot


WITH_SHOW = {"show", "only", "plot"}  # flags that apply to stored figures
# A flag of several tables.
BACKEND = dict(choices=("numba", "cupy"), default="numba",
               help="numba runs the models on the processor, cupy on a GPU")


def parts_flag(parts):
    """Return the settings of --only, by which parts of a table are chosen."""
    return dict(nargs="+", choices=parts, default=[*parts], metavar="PART",
                help=f"measure or show only these: {', '.join(map(repr, parts))}")


def new_parser(program, benchmark):
    """Return the Parser of a benchmark's flags, with --json and --show."""
    parser = terminal.Parser(f"python -m {program}", description=benchmark.doc.split("\n")[0],
                             formatter_class=terminal.Help)
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    add("--show", type=Path, metavar="FILE",
        help="print the tables of the figures in FILE instead of measuring")
    if benchmark.repeats:
        # main.py has the longer name.
        add("--N", "--n_tokens_to_generate", type=whole, default=benchmark.N, metavar="N",
            help="number of new tokens per text")
        add("--repeats", type=whole, default=benchmark.repeats,
            help="number of repetitions of all measurements")
    for name, settings in benchmark.flags.items():
        add(f"--{name}", **settings)
    return parser


def run(program, benchmark, argv=None):
    """Measure, print and write --json, or print what --show holds. Return the exit status."""
    parser = new_parser(program, benchmark)
    args = parser.parse_args(argv)
    args.given = terminal.flags_given(sys.argv[1:] if argv is None else argv)
    # A flag without an effect is an error, because the user expects one.
    misplaced = args.given - WITH_SHOW
    if args.show and misplaced:
        parser.error(f"--{min(misplaced)} does not apply to --show, which measures nothing")
    in_one_line = terminal.command(program, benchmark.requirements)  # all errors
    return in_one_line(print_tables)(args, benchmark)


def print_tables(args, benchmark):
    """Print the paragraphs; write --json and draw --plot."""
    plot = args.plot if benchmark.draw else None
    if plot:
        # What would fail at the end is an error before the measurement.
        terminal.try_to_write("plot", plot)
        importlib.import_module("matplotlib")
    if args.show:
        figures = read_json(args.show)
        # list runs the generator here, so that its errors are caught.
        try:
            parts = list(benchmark.paragraphs(figures, args))
        except (LookupError, TypeError, AttributeError, ValueError, ZeroDivisionError) as why:
            raise ValueError(f"--show {args.show} does not contain figures of this "
                             "command") from why
    else:
        figures = measured_figures(args, benchmark.all_figures)
        parts = benchmark.paragraphs(figures, args)
    terminal.print_safely("\n\n".join(parts), sys.stdout)
    if plot:
        benchmark.draw(figures, plot)


def measured_figures(args, all_figures):
    """Return the figures as --show reads them; write them to --json before they are printed."""
    # A file that cannot be written is an error before the measurement, not after it.
    if args.json:
        terminal.try_to_write("json", args.json)
    text = json.dumps(all_figures(args))
    # The figures are read back, because JSON turns all keys into strings. So `paragraphs` gets
    # strings as keys here, as it does from a file of --show. JSON has no NaN, which is a figure
    # of nothing measured: it becomes null.
    figures = json.loads(text, parse_constant=lambda name: None)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


# ---- cells of tables

def ranged(values, form="{:.2f}", figure="median"):
    """Return "figure (low - high)", such as "0.50 (0.40 - 0.70)"."""
    low, middle, high = (shown(values[key], form) for key in ("low", figure, "high"))
    return f"{middle} ({low} - {high})"
