"""Measure a table of RESULTS.md, or show the figures of a file.

    python -m benchmarks speed --json speed.json
    python -m benchmarks speed --show speed.json
    python -m benchmarks speed --help
"""

import importlib
import sys

from lib.terminal import Help, Parser
from measure import command

NAMES = ("speed", "variants", "acceptance", "rules", "batch", "patterns", "engines",
         "low_acceptance", "power", "real")


def main(argv=None):
    """Run the command line: a name, then the flags of its table."""
    words = sys.argv[1:] if argv is None else argv
    parser = Parser("python -m benchmarks", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    parser.add_argument("name", choices=NAMES, metavar="NAME", help="one of "
                        f"{', '.join(NAMES)}; NAME --help shows its flags")
    name = parser.parse_args(words[:1]).name
    benchmark = importlib.import_module(f"benchmarks.{name}").BENCHMARK
    return command.run(f"benchmarks {name}", benchmark, words[1:])


if __name__ == "__main__":
    sys.exit(main())
