"""The names that CuPy offers, read off the installed package, which imports without a GPU.

    python -m tools.cupy_names tests/data/cupy-names.json

tests/fake_cupy.py knows these names and no others; tests/test_cupy.py compares the file with the
package where that is installed.
"""

import argparse
import functools
import importlib
import json
from pathlib import Path

PARTS = ("cupy", "cupy.ndarray", "cupy.cuda", "cupy.cuda.Device", "cupy.cuda.Event",
         "cupy.cuda.runtime", "cupy.RawModule")


def names(part):
    """All names of a part that do not begin with one underscore only."""
    cupy = importlib.import_module("cupy")
    found = dir(functools.reduce(getattr, part.split(".")[1:], cupy))
    return sorted(name for name in found if not name.startswith("_") or name.startswith("__"))


def read():
    """The version of the installed CuPy, and the names of its parts."""
    version = importlib.import_module("cupy").__version__
    return {"version": version, "names": {part: names(part) for part in PARTS}}


def main(argv=None):
    parser = argparse.ArgumentParser("python -m tools.cupy_names",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("path", type=Path, metavar="FILE", help="where to write them, as JSON")
    path = parser.parse_args(argv).path
    path.write_text(json.dumps(read(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
