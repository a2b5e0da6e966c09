"""Draw pictures of the pages: docs/img/NAME.svg, and from it NAME-dark.svg for dark pages.

    wild              how far from the target's distribution public rules are
    power             which test of which engine finds which wrong rule
    expected_tokens   predicted speed-up against K, with the measured costs of passes
    methods           the speed-up of every method, as benchmarks/variants.py measured it
    speed-pair        the speed-ups that benchmarks/speed.py measured, and the predicted ones
    batch-124M        tokens per second against texts at once, as benchmarks/batch.py measured
    acceptance        acceptance against the temperature, as benchmarks/acceptance.py measured
    low_acceptance    acceptance by position, as benchmarks/low_acceptance.py counted it

matplotlib draws them: pip install -r requirements/plots.txt
The other files of docs/img are edited by hand; their dark ones are derived like all others.
All are 480 pixels wide, because their letters are then as large as those of a page.
"""

from docs.pictures import low_acceptance, methods, power, speed, wild
from docs.pictures.figures import save_figure
from docs.pictures.palette import darkened
from docs.tables import ROOT

IMAGES = ROOT / "docs" / "img"
PLOTS = {  # {name: (draw, height in inches of 96 pixels)}
    "wild": (wild.draw, 14.5), "power": (power.draw, 8.6), "methods": (methods.draw, 8.2),
    "expected_tokens": (speed.draw_expected_tokens, 4), "speed-pair": (speed.draw_speed, 4),
    "batch-124M": (speed.draw_batch, 4.2), "acceptance": (speed.draw_acceptance, 3.8),
    "low_acceptance": (low_acceptance.draw, 5)}


def picture_names():
    """Return the names of all pictures; pictures that are edited by hand come last."""
    light = {path.stem for path in IMAGES.glob("*.svg") if not path.stem.endswith("-dark")}
    return [*PLOTS, *sorted(light - PLOTS.keys())]


def write_picture(name, folder):
    """Write both files of a picture; only the dark file if the light one is edited by hand."""
    light = folder / f"{name}.svg"
    if name in PLOTS:
        save_figure(*PLOTS[name], light)
    dark = darkened(light.read_text(encoding="utf-8"))
    (folder / f"{name}-dark.svg").write_text(dark, encoding="utf-8")


def write_pictures(name):
    """Write a picture, or all of them."""
    for each in picture_names() if name == "all" else [name]:
        write_picture(each, IMAGES)
