"""Test that pictures show their data, and that the dark ones are the light ones in dark colours."""

import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from docs.__main__ import main
from docs.pictures.gallery import IMAGES, SVG, data_of, picture_names, write_picture
from docs.pictures.palette import COLOURS, SERIES, darkened
from docs.pictures.race import BAR, text_of
from docs.pictures.svg import SMALL_SIZE
from docs.pictures.theorem1 import columns
from docs.pictures.wild import COLOURS as COLOURS_OF_STATUS
from docs.pictures.wild import FULL
from tests.chromium import PICTURES, TELEPHONE, assert_apart
from tests.pages import file_text, output

TEXT = "{http://www.w3.org/2000/svg}text"
EACH_PICTURE = pytest.mark.parametrize("name", picture_names())


def committed_svg(name):
    """Return the text of a picture of docs/img."""
    return (IMAGES / f"{name}.svg").read_text("utf-8")


@EACH_PICTURE
def test_the_dark_picture_is_the_light_one_in_the_dark_colours(name):
    light, dark = committed_svg(name), committed_svg(f"{name}-dark")
    assert dark == darkened(light) != light, f"run: python -m docs pictures {name}"
    assert len(light) < 150_000
    assert not re.search(r'<script|<image|<a |href="(?!#)|@import|url\((?!#)|@font-face', light)
    assert ElementTree.fromstring(light).tag.endswith("svg")


def contrast(one, other):
    """Return the contrast of two colours, 1 to 21, as WCAG 2 defines it."""
    lights = []
    for colour in (one, other):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255  # of "#rrggbb"
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        lights.append(0.05 + linear @ [0.2126, 0.7152, 0.0722])
    return max(lights) / min(lights)


@pytest.mark.parametrize("side, page", [(0, "#ffffff"), (1, "#0d1117")])  # light, dark
def test_text_lines_and_bars_stand_out_from_their_ground(side, page):
    colours = {name: both[side] for name, both in COLOURS.items()}
    for ground in (page, colours["panel"]):
        for name in colours.keys() - {"line", "panel", "track"}:  # of frames and grounds
            least = 4.5 if name in {"ink", "muted", "grey", *SERIES} else 3
            assert contrast(colours[name], ground) >= least, name
    for ground in ("track", "blue_bar"):  # with text on them
        assert contrast(colours["ink"], colours[ground]) >= 4.5


@EACH_PICTURE
def test_only_frames_are_faint(name):
    """Only the frame around a panel has a line in one of the colours "line" and "track"."""
    svg = committed_svg(name)
    faint_stroke = rf"stroke: ?(?:{COLOURS['line'][0]}|{COLOURS['track'][0]})"
    classes = re.findall(rf"\.(\w+)\s*{{[^}}]*{faint_stroke}", svg)
    assert {*classes} <= {"panel"} and not re.search(rf'style="[^"]*{faint_stroke}', svg)


@pytest.mark.parametrize("name, words", [
    *((name, None) for name in SVG if name != "wild"),
    pytest.param("wild", None, marks=pytest.mark.weekly),  # enumerates rules for seconds
    ("low_acceptance", ["rising: cache cut 1 too early", "dashed: no fault"]),
    ("ladder", ["2.95", "4.00", "exceeds 3.22"]),
    ("theorem1", ["accepted", "green + blue = the target, exactly"]),
    ("forking", ["replacement 1", "2/9 + 2/9 = 4/9", "The target alone: 0 0 with 1/9"]),
    ("expected_tokens", ["alpha = 0.9: up to"]), ("speed-pair", ["temperature 1"]),
    ("batch-124M", ["plain", "acceptance set to 0.8"]),
    ("acceptance", ["temperature of both models"])])
def test_the_committed_files_show_their_data(name, words, tmp_path):
    if words:
        pytest.importorskip("matplotlib")
    write_picture(name, tmp_path)
    for path in tmp_path.iterdir():
        drawn, committed = path.read_text("utf-8"), committed_svg(path.stem)
        if words:  # of a plot, which another version of Matplotlib draws a little differently
            assert all(word in drawn and word in committed for word in words)
        else:
            assert drawn == committed


def test_the_picture_of_rules_has_the_entries_of_the_pages_table():
    """tests/test_rules.py enumerates the table; once a week the picture is drawn again."""
    wanted = []  # (distance at K = 3, project, rule, status)
    for line in output(file_text("docs/wild.md"), "--public").split("\n")[2:]:
        _, project, rule, status, _, distance, *_ = map(str.strip, line.split("|"))
        wanted.append((float(distance), project, rule, status))
    wanted.sort(key=lambda entry: -entry[0])
    svg = ElementTree.parse(IMAGES / "wild.svg")
    texts = [node.text for node in svg.iter(TEXT)]
    figures = [float(text) for text in texts if re.fullmatch(r"\d\.\d{3}", text)]
    bars = [(node.get("class"), float(node.get("width"))) for node in svg.iter()
            if node.get("class") in COLOURS_OF_STATUS.values() and node.get("width") != "12"]
    assert figures == pytest.approx([entry[0] for entry in wanted], abs=6e-4) and len(wanted) > 10
    for (colour, width), (distance, project, rule, status) in zip(bars, wanted, strict=True):
        assert colour == COLOURS_OF_STATUS[status]
        assert width == pytest.approx(FULL * distance, abs=0.02)
        assert project in texts and rule in texts


# The names of pictures that the narrow pages show: their text has at least 11 pixels.
ON_FRONT_PAGES = {*re.findall(r"img/([\w-]+?)(?:-dark)?\.svg",
                              file_text("README.md") + file_text("docs/learn.md"))}
DEJAVU = """<meta charset="utf-8"><style>body { margin: 0 }
svg, svg * { font-family: "DejaVu Sans" !important }
svg .mono { font-family: "DejaVu Sans Mono" !important }</style>"""


@EACH_PICTURE
def test_no_text_overlaps_or_leaves_the_picture_in_a_wide_font(browser, tmp_path, name):
    """DejaVu Sans is the widest of the fonts that systems have."""
    _, tag, svg = committed_svg(name).partition("<svg")
    (tmp_path / "page.html").write_text(DEJAVU + tag + svg, encoding="utf-8")
    browser.ask("Emulation.setEmulatedMedia",  # a race is shown at its end
                features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.open((tmp_path / "page.html").as_uri())
    [picture] = browser(PICTURES)
    assert_apart(picture)
    smallest = min(text["size"] for text in picture["texts"])
    if name in ON_FRONT_PAGES:
        assert smallest * TELEPHONE / picture["units"] >= 11


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["pictures", "forking"]) == 2
    err = capsys.readouterr().err
    assert "matplotlib is missing: pip install -r requirements/plots.txt" in err


def test_the_race_shows_the_text_that_both_wrote_and_every_guess():
    data, texts = data_of("race"), list(ElementTree.parse(IMAGES / "race.svg").iter(TEXT))
    plain, fast = data["autoregressive"], data["speculative"]
    assert text_of(plain, data["prompt"]) == text_of(fast, data["prompt"])  # greedy
    for result in fast["rounds"]:
        tokens = {token.strip() for token, _ in [*result["guesses"], *result["ids"]]}
        assert tokens - {""} <= {node.text for node in texts}
    lowest = max(float(node.get("y")) for node in texts if node.get("textLength"))
    assert lowest <= BAR - SMALL_SIZE  # no text covers the bar


def test_the_picture_of_a_round_has_the_recorded_numbers():
    texts = {node.text for node in ElementTree.parse(IMAGES / "round.svg").iter(TEXT)}
    for token in data_of("round")["guesses"]:
        assert {token["text"].strip(), f"u = {token['u_accept']:.2f}"} <= texts
        assert texts & {f"{relation} {token['threshold']:.2f}" for relation in "<\u2265"}


def test_green_and_blue_are_the_target_green_and_red_the_draft():
    row = data_of("theorem1")["rows"][3]
    for (_, _, *p), (_, green, blue, red) in zip(row["top"], columns(row)):
        assert [green + red, green + blue] == pytest.approx(p[:2]) and min(blue, red) == 0
    _, *heights = zip(*columns(row))
    green, blue, red = map(sum, heights)
    assert green + blue == pytest.approx(1, abs=1e-5) == green + red
