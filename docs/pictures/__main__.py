"""Draw pictures of the pages: docs/img/NAME.svg, and from it NAME-dark.svg for dark pages.

    python -m docs.pictures all               # from the figures in benchmarks/results/
    python -m docs.pictures race --record     # run the bundled pair first

    family            the decoders of the registry, by what they change
    race              both decoders write the same text at their recorded pace
    round             one recorded round, step by step, with its numbers
    theorem1          why accepted and resampled tokens together have the target's distribution
    ladder            the expected tokens per round of each test, and the bound of a chain
    wild              how far from the target's distribution the rules of exact/ are
    forking           every outcome of two tokens, as exact/law.py enumerates them
    expected_tokens   tokens per round against alpha: Leviathan et al. (2023) Eq. 1, Fig. 2
    speed-pair        the costs of passes and the speed-ups that benchmarks.speed measured
    batch-124M        tokens per second against texts at once, as benchmarks.batch measured
    acceptance        acceptance against the temperature, as benchmarks.acceptance measured

All but the first three are drawn by matplotlib: pip install -r requirements/plots.txt
The other files of docs/img are edited by hand; their dark ones are derived like all others.
"""

import json
import sys
from pathlib import Path

from docs.pictures import bars, family, forking, one_round, race, speed, theorem1
from docs.pictures.figures import save_figure
from docs.pictures.palette import darkened
from lib.terminal import Parser, command

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
RESULTS = ROOT / "benchmarks" / "results"
SVG = {"family": family.draw, "race": race.draw, "round": one_round.draw}
RECORDED = ("race", "round")
PLOTS = {"theorem1": (theorem1.draw, 3.7), "ladder": (bars.draw_ladder, 5.2),
         "wild": (bars.draw_wild, 11.6), "forking": (forking.draw, 5.2),
         "expected_tokens": (speed.draw_expected_tokens, 4), "speed-pair": (speed.draw_speed, 4),
         "batch-124M": (speed.draw_batch, 4.2),
         "acceptance": (speed.draw_acceptance, 3.2)}  # height in inches of 96 pixels


def data_of(name):
    """Return the figures that a picture shows; None if it computes them."""
    file = "round" if name == "theorem1" else name  # theorem1 shows a position of this round
    path = RESULTS / f"{file}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def picture_names():
    """Return the names of all pictures; pictures that are edited by hand come last."""
    light = {path.stem for path in IMAGES.glob("*.svg") if not path.stem.endswith("-dark")}
    drawn = [*SVG, *PLOTS]
    return drawn + sorted(light.difference(drawn))


def record_picture(name):
    """Run the models for a picture and store what they did."""
    from docs.pictures.record import RECORDERS  # loads models, which drawing does not need

    text = json.dumps(RECORDERS[name](), indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write_picture(name, folder):
    """Write both files of a picture; only the dark file if the light one is edited by hand."""
    light = folder / f"{name}.svg"
    if name in PLOTS:
        draw, height = PLOTS[name]
        save_figure(draw, height, data_of(name), light)
    elif name in SVG:
        light.write_text(SVG[name](data_of(name)), encoding="utf-8")
    dark = darkened(light.read_text(encoding="utf-8"))
    (folder / f"{name}-dark.svg").write_text(dark, encoding="utf-8")


@command("docs.pictures", "requirements/plots.txt")
def main(argv=None):
    parser = Parser("python -m docs.pictures", description="Draw the pictures.")
    parser.add_argument("name", choices=[*picture_names(), "all"])
    parser.add_argument("--record", action="store_true",
                        help=f"run the models first, for {' and '.join(RECORDED)}")
    args = parser.parse_args(argv)
    for name in picture_names() if args.name == "all" else [args.name]:
        if args.record and name in RECORDED:
            record_picture(name)
        write_picture(name, IMAGES)


if __name__ == "__main__":
    sys.exit(main())
