"""Test that pictures show their data, and that the dark ones are the light ones in dark colours."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from docs.pictures.gallery import IMAGES, PLOTS, picture_names, write_picture
from docs.pictures.palette import darkened
from docs.tables import first_round, stored
from exact.expected import LADDER, chain_bound, chain_mean
from speculative import guess
from tests.chromium import PICTURES, TELEPHONE, assert_apart

TEXT = "{http://www.w3.org/2000/svg}text"
EACH_PICTURE = pytest.mark.parametrize("name", picture_names())


def committed_svg(name):
    """Return the text of a picture of docs/img."""
    return (IMAGES / f"{name}.svg").read_text("utf-8")


def texts_of(name):
    """Return all texts of a picture."""
    return [node.text for node in ElementTree.parse(IMAGES / f"{name}.svg").iter(TEXT)]


@EACH_PICTURE
def test_the_dark_picture_is_the_light_one_in_the_dark_colours(name):
    light, dark = committed_svg(name), committed_svg(f"{name}-dark")
    assert dark == darkened(light) != light, f"run: python -m docs pictures {name}"
    assert len(light) < 150_000
    assert not re.search(r'<script|<image|<a |href="(?!#)|@import|url\((?!#)|@font-face', light)
    assert ElementTree.fromstring(light).tag.endswith("svg")


@pytest.mark.parametrize("name", PLOTS)
def test_the_committed_file_has_the_texts_and_colours_of_todays_data(name, tmp_path):
    """Places are not compared: another version of Matplotlib draws a little differently."""
    pytest.importorskip("matplotlib", reason="needs requirements/plots.txt")
    write_picture(name, tmp_path)
    drawn = (tmp_path / f"{name}.svg").read_text("utf-8")
    today, committed = (re.findall("fill: #[0-9a-f]+|>[^<>]+</text>", svg)
                        for svg in (drawn, committed_svg(name)))
    assert today == committed, f"run: python -m docs pictures {name}"


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
    assert picture["width"] == pytest.approx(480)
    assert min(text["size"] for text in picture["texts"]) * TELEPHONE / picture["units"] >= 11


# ---- pictures that are edited by hand

def test_the_picture_of_a_story_has_its_tokens_over_bars_of_their_acceptance():
    svg = ElementTree.parse(IMAGES / "easy.svg")
    widths = {kind: [float(node.get("width")) for node in svg.iter() if node.get("class") == kind]
              for kind in ("track", "green_bar")}
    tokens = [(text.strip(), share) for text, share in stored("recorded")["easy tokens"]["rows"]
              if text.strip()]
    _, *texts = texts_of("easy")  # the first text is the prompt
    assert texts[: len(tokens)] == [text for text, _ in tokens]
    shares = np.divide(widths["green_bar"], widths["track"])
    assert shares == pytest.approx([share for _, share in tokens], abs=0.005)


def test_the_picture_of_theorem_1_has_the_most_probable_tokens_of_the_recorded_round():
    """Below each token are both probabilities; the tokens that are left out are less probable."""
    texts = texts_of("theorem1")
    tokens = {name.strip(): p for _, name, *p in
              (entry[:4] for entry in first_round()["rows"][3]["top"])}
    shown = sorted(tokens, key=lambda name: -max(tokens[name]))[:5]
    places = [texts.index(name) for name in shown]
    assert [texts[i + 1 : i + 3] for i in places] == [
        [f"{p:.2f}" for p in tokens[name]] for name in shown]


def test_the_ladder_has_the_means_and_the_bound():
    texts = texts_of("ladder")
    for rung, _, mean in LADDER:
        assert {rung.replace("test", "rule"), f"{float(mean('A', 3)):.2f}"} <= {*texts}
    assert f"exceeds {float(chain_mean(guess, chain_bound, 'A', 3)):.2f}" in texts
