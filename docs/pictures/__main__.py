"""Draw the pictures of the pages, each in a light and a dark file.

    python -m docs.pictures all               # draw the recorded runs in benchmarks/results/
    python -m docs.pictures race --record     # run the bundled pair first

    race       both decoders write the same text at their recorded pace
    round      one round, step by step, with its numbers
    rows       which row of a pass judges which guess
    timeline   the time of plain and of speculative decoding
    cache      the target's cache before and after a rejection
    family     what each decoder changes
    mask       a tree of guesses and the mask of its pass
    block      block verification and the ratio test on two guesses
    heads      how Medusa's and EAGLE's heads guess
    ladder     the expected tokens per round of each test, and what each step adds
    theorem1   why accepted and resampled tokens together have the target's distribution
    wild       how far from the target's distribution each rule of exact/rules.py is
    forking    every outcome of two tokens, as exact/law.py enumerates them

The last four are drawn by matplotlib: pip install -r requirements/plots.txt
"""

import argparse
import json
import sys
from pathlib import Path

from docs.pictures import (block, cache, family, forking, heads, ladder, mask, race, round, rows,
                           theorem1, timeline, wild)
from docs.pictures.figures import save
from docs.pictures.palette import THEMES

ROOT = Path(__file__).parents[2]
DATA = ROOT / "benchmarks" / "results"
RECORDED = {"race": "race", "round": "round", "theorem1": "round"}  # picture: file of its data
SVG = {"race": race, "round": round, "rows": rows, "timeline": timeline, "cache": cache,
       "family": family, "mask": mask, "block": block, "heads": heads}
PLOTS = {"ladder": (ladder, 5.2), "theorem1": (theorem1, 3.7), "wild": (wild, 8.2),
         "forking": (forking, 5.2)}  # height


def data_of(name, module):
    """Return what a picture shows: recorded, enumerated by its module, or nothing."""
    if name in RECORDED:
        return json.loads((DATA / f"{RECORDED[name]}.json").read_text(encoding="utf-8"))
    return module.data() if hasattr(module, "data") else None


def record(name):
    """Run the models for a picture and keep what they did."""
    from docs.pictures import record  # loads models, which drawing does not need

    text = json.dumps(getattr(record, f"record_{name}")(), indent=1, ensure_ascii=False) + "\n"
    (DATA / f"{name}.json").write_text(text, encoding="utf-8")


def write(name, folder):
    """Write both files of one picture."""
    if name in PLOTS:
        module, height = PLOTS[name]
        return save(module.draw, height, data_of(name, module), folder / f"{name}.svg")
    for suffix, colours in THEMES.items():
        text = SVG[name].draw(data_of(name, SVG[name]), colours)
        (folder / f"{name}{suffix}.svg").write_text(text, encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser("python -m docs.pictures", description="Draw the pictures.")
    parser.add_argument("name", choices=[*SVG, *PLOTS, "all"])
    parser.add_argument("--record", action="store_true", help="run the models for it first")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    args = parser.parse_args(argv)
    names = [*SVG, *PLOTS] if args.name == "all" else [args.name]
    for name in names:
        if args.record and name in ("race", "round"):
            record(name)
        try:
            write(name, args.out)
        except ModuleNotFoundError as error:
            sys.exit(f"{name}: need matplotlib (pip install -r requirements/plots.txt), "
                     f"got: {error}")


if __name__ == "__main__":
    main()
