"""Draw pictures of the pages: docs/img/NAME.svg, and from it NAME-dark.svg for dark pages.

    race              both decoders write the same text at their recorded pace
    easy              how far draft and target agree on each token of a story
    wild              how far from the target's distribution public rules are
    power             which test of which engine finds which wrong rule
    theorem1          why accepted and resampled tokens together have the target's distribution
    ladder            the expected tokens per round of eight rules, and the bound of a chain
    forking           every outcome of two tokens, as exact/law.py enumerates them
    expected_tokens   predicted speed-up against K, with the measured costs of rows
    speed-pair        the speed-ups that benchmarks/speed.py measured, and the predicted ones
    batch-124M        tokens per second against texts at once, as benchmarks/batch.py measured
    acceptance        acceptance against the temperature, as benchmarks/acceptance.py measured
    low_acceptance    the acceptance rate by position with four faults, one of each shape

matplotlib draws theorem1 and all after it: pip install -r requirements/plots.txt
The other files of docs/img are edited by hand; their dark ones are derived like all others.
`round --record` stores a new round (results/round.json), which theorem1 and docs/learn.md show.
"""

import json
from pathlib import Path

from docs.pictures import (
    easy,
    forking,
    ladder,
    low_acceptance,
    power,
    race,
    speed,
    theorem1,
    wild,
)
from docs.pictures.figures import NARROW, WIDE, save_figure
from docs.pictures.palette import darkened

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
RESULTS = ROOT / "benchmarks" / "results"
SVG = {"race": race.draw, "wild": wild.draw, "power": power.draw, "easy": easy.draw}
RECORDED = ("race", "round", "easy")
PLOTS = {  # {name: (draw, (width, height) in inches of 96 pixels)}
    "theorem1": (theorem1.draw, (NARROW, 5.2)), "ladder": (ladder.draw, (NARROW, 4)),
    "forking": (forking.draw, (WIDE, 5.2)),
    "expected_tokens": (speed.draw_expected_tokens, (NARROW, 4)),
    "speed-pair": (speed.draw_speed, (NARROW, 4)),
    "batch-124M": (speed.draw_batch, (NARROW, 4.2)),
    "acceptance": (speed.draw_acceptance, (NARROW, 3.8)),
    "low_acceptance": (low_acceptance.draw, (WIDE, 5.5))}
FILES = {"theorem1": "round", "expected_tokens": "speed-pair"}  # {name: file that it shows}


def data_of(name):
    """Return the figures that a picture shows; None if it computes them."""
    path = RESULTS / f"{FILES.get(name, name)}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def picture_names():
    """Return the names of all pictures; pictures that are edited by hand come last."""
    light = {path.stem for path in IMAGES.glob("*.svg") if not path.stem.endswith("-dark")}
    drawn = [*SVG, *PLOTS]
    # A picture that no function draws is edited by hand.
    by_hand = light.difference(drawn)
    return drawn + sorted(by_hand)


def record_picture(name):
    """Run the models for a picture and store what they did."""
    from docs.pictures.record import RECORDERS  # loads models, which drawing does not need

    # The stored story keeps its letters, instead of escapes such as \u2019.
    text = json.dumps(RECORDERS[name](), indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write_picture(name, folder):
    """Write both files of a picture; only the dark file if the light one is edited by hand."""
    light = folder / f"{name}.svg"
    # A picture in neither PLOTS nor SVG is edited by hand, so its light file is there already.
    if name in PLOTS:
        draw, size = PLOTS[name]
        save_figure(draw, size, data_of(name), light)
    elif name in SVG:
        light.write_text(SVG[name](data_of(name)), encoding="utf-8")
    dark = darkened(light.read_text(encoding="utf-8"))
    (folder / f"{name}-dark.svg").write_text(dark, encoding="utf-8")


def write(name, record):
    """Write a picture, or all of them; run the models first if `record`."""
    names = picture_names() if name == "all" else [name]
    for name in names:
        if record and name in RECORDED:
            record_picture(name)
        write_picture(name, IMAGES)
