"""The README's pictures, each in a light and a dark file.

    python -m docs.pictures all               # draws the recorded runs in benchmarks/results/
    python -m docs.pictures race --record     # runs the bundled pair first

    race       both decoders write the same text at their recorded pace
    round      one round, step by step, with its numbers
    theorem1   why the accepted and the resampled tokens together are the target's distribution
    wild       how far from the target each rule of exact/rules.py is
    forking    all that can happen in two tokens, as exact/law.py walks through it
    ladder     the expected tokens per round of each test, and what each step adds

The last three are enumerated, not recorded.
"""

import argparse
import json
from pathlib import Path

from docs.pictures import forking, ladder, race, record, round, theorem1, wild
from docs.pictures.palette import THEMES

ROOT = Path(__file__).parents[2]
DATA = ROOT / "benchmarks" / "results"
PICTURES = {"race": (race.draw, "race"), "round": (round.draw, "round"),
            "theorem1": (theorem1.draw, "round"), "wild": (wild.draw, wild.data),
            "forking": (forking.draw, forking.data),
            "ladder": (ladder.draw, ladder.data)}  # name: (draw, whose recorded data, or data())
RECORDERS = {"race": record.record_race, "round": record.record_round}


def files(name):
    """{file name: text} of one picture."""
    draw, source = PICTURES[name]
    data = source() if callable(source) else json.loads(
        (DATA / f"{source}.json").read_text(encoding="utf-8"))
    return {f"{name}{suffix}.svg": draw(data, colour) for suffix, colour in THEMES.items()}


def main(argv=None):
    parser = argparse.ArgumentParser("python -m docs.pictures", description="The pictures.")
    parser.add_argument("name", choices=[*PICTURES, "all"])
    parser.add_argument("--record", action="store_true", help="run the models for it first")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    args = parser.parse_args(argv)
    names = list(PICTURES) if args.name == "all" else [args.name]
    for source in dict.fromkeys(PICTURES[name][1] for name in names
                                if args.record and PICTURES[name][1] in RECORDERS):
        text = json.dumps(RECORDERS[source](), indent=1, ensure_ascii=False) + "\n"
        (DATA / f"{source}.json").write_text(text, encoding="utf-8")
    for name in names:
        for file, text in files(name).items():
            (args.out / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
