"""Run all benchmarks for a GPU, one after another, and write their results into a folder.

    python -m benchmarks.gpu gpu

The command runs benchmarks.speed for the pair, 124M and 1558M, and benchmarks.variants for some
decoders of each kind, with --backend cupy. `python -m benchmarks.speed --show
gpu/speed-pair.json` shows a result. tests/test_cupy.py compares the decoders' texts with
NumPy's, on a GPU if there is one.
"""

import sys
from pathlib import Path

from benchmarks import speed, variants
from lib.terminal import Parser, command

MEASURED = ["speculative --K 4", "tree", "tree --widths 4,2,1,1", "tree --widths auto",
            "traversal", "eagle", "eagle --widths dynamic --K 6", "suffix", "lookahead",
            "block", "skip"]
LARGE = ["--N", "24", "--repeats", "9"]
RUNS = {
    "speed-pair": (speed, []),
    "speed-124M": (speed, ["--size", "124M", *LARGE]),
    "speed-1558M": (speed, ["--size", "1558M", *LARGE]),
    "variants": (variants, ["--N", "50", "--rows", *MEASURED])}


@command("benchmarks.gpu", "requirements/gpu.txt")
def main(argv=None):
    """Run all benchmarks; return the exit status of the worst."""
    parser = Parser("python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="folder for the JSON files of the results")
    folder = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    statuses = []
    for name, (benchmark, flags) in RUNS.items():
        path = folder / f"{name}.json"
        statuses.append(benchmark.main(["--backend", "cupy", *flags, "--json", str(path)]))
    # A status is 0 if the benchmark ran.
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
