"""Draw pictures of the pages: docs/img/NAME.svg, and NAME-dark.svg for dark pages.

    python -m docs.pictures all               # from the figures in benchmarks/results/
    python -m docs.pictures race --record     # run the bundled pair first

    race              both decoders write the same text at their recorded pace
    round             one recorded round, step by step, with its numbers
    theorem1          why accepted and resampled tokens together have the target's distribution
    ladder            the expected tokens per round of each test, and what each step adds
    wild              how far from the target's distribution the rules of exact/ are
    forking           every outcome of two tokens, as exact/law.py enumerates them
    expected_tokens   tokens per round against alpha: Leviathan et al. (2023) Eq. 1, Fig. 2
    speed-pair        the costs of passes and the speed-ups that benchmarks.speed measured
    batch-124M        tokens per second against texts at once, as benchmarks.batch measured

All but the first two are drawn by matplotlib: pip install -r requirements/plots.txt
The other files of docs/img are edited by hand.
"""

import argparse
import json
import sys
from pathlib import Path

from docs.pictures import bars, forking, one_round, race, speed, theorem1
from docs.pictures.figures import save
from docs.pictures.palette import THEMES

ROOT = Path(__file__).parents[2]
IMAGES, RESULTS = ROOT / "docs" / "img", ROOT / "benchmarks" / "results"
SVG = {"race": race.draw, "round": one_round.draw}
PLOTS = {"theorem1": (theorem1.draw, 3.7), "ladder": (bars.draw_ladder, 5.2),
         "wild": (bars.draw_wild, 11.6), "forking": (forking.draw, 5.2),
         "expected_tokens": (speed.draw_expected_tokens, 4), "speed-pair": (speed.draw_speed, 4),
         "batch-124M": (speed.draw_batch, 4.2)}  # height in inches of 96 pixels


def data_of(name):
    """Return the figures that a picture shows; None if it computes them."""
    path = RESULTS / f"{'round' if name == 'theorem1' else name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def record(name):
    """Run the models for a picture and keep what they did."""
    from docs.pictures import record  # loads models, which drawing does not need

    text = json.dumps(getattr(record, f"record_{name}")(), indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write(name, folder):
    """Write both files of one picture."""
    if name in PLOTS:
        return save(*PLOTS[name], data_of(name), folder / f"{name}.svg")
    for suffix, colours in THEMES.items():
        text = SVG[name](data_of(name), colours)
        (folder / f"{name}{suffix}.svg").write_text(text, encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser("python -m docs.pictures", description="Draw the pictures.")
    parser.add_argument("name", choices=[*SVG, *PLOTS, "all"])
    parser.add_argument("--record", action="store_true", help="run the models for race and round")
    args = parser.parse_args(argv)
    for name in [*SVG, *PLOTS] if args.name == "all" else [args.name]:
        if args.record and name in SVG:
            record(name)
        try:
            write(name, IMAGES)
        except ModuleNotFoundError as error:
            sys.exit(f"{name}: need matplotlib (pip install -r requirements/plots.txt), "
                     f"got: {error}")


if __name__ == "__main__":
    main()
