"""The README's pictures: they show what was recorded, and two files differ in colours only."""

import json
import re
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from docs.pictures.__main__ import DATA, PICTURES, ROOT, files
from docs.pictures.animation import Clock
from docs.pictures.race import BAR, SIZE, draw, text_of
from docs.pictures.palette import SERIES, THEMES
from docs.pictures.svg import mono, places
from docs.pictures.theorem1 import columns

SVG = "{http://www.w3.org/2000/svg}"
COLOUR = re.compile(r"#[0-9a-f]{6}")


def recorded(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def texts(name):
    """All pieces of text in a picture, with their attributes."""
    root = ElementTree.fromstring(files(name)[f"{name}.svg"])
    return [("".join(node.itertext()), node.attrib) for node in root.iter(f"{SVG}text")]


# ---- every picture

@pytest.mark.parametrize("name", PICTURES)
def test_the_committed_file_is_what_its_data_give(name):
    for file, text in files(name).items():
        assert (ROOT / "docs" / "img" / file).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", PICTURES)
def test_light_and_dark_differ_in_colours_only(name):
    light, dark = files(name).values()
    assert light != dark and COLOUR.sub("", light) == COLOUR.sub("", dark)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_needs_nothing_else(name):
    for text in files(name).values():
        ElementTree.fromstring(text)
        assert len(text) < 150_000
        assert not re.search(r"<script|<image|<a |href|@import|url\((?!#)|@font-face", text)


def luminance(colour):
    """WCAG 2.2's relative luminance of #rrggbb."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


@pytest.mark.parametrize("suffix, page", [("", "#ffffff"), ("-dark", "#0d1117")])
@pytest.mark.parametrize("name", ["ink", "grey", *SERIES])
def test_text_can_be_read_on_panel_and_page(suffix, page, name):
    for ground in (THEMES[suffix]["panel"], page):
        dark, light = sorted(luminance(c) for c in (THEMES[suffix][name], ground))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


# ---- race

def test_the_race_shows_both_texts_and_every_guess():
    data, shown = recorded("race"), [text for text, _ in texts("race")]
    plain, fast = data["autoregressive"], data["speculative"]
    assert text_of(plain, data["prompt"]) == text_of(fast, data["prompt"])  # greedy
    words = re.sub(r"\s", "", text_of(fast, data["prompt"]))
    assert sum(len(re.sub(r"\s", "", text)) for text in shown) > 2 * len(words)
    for round in fast["rounds"]:
        for token in [*round["guesses"], *round["ids"]]:
            assert not token[0].strip() or token[0].strip() in shown
    assert shown.count("rejected") == 1 and f"{plain['seconds']:.2f} s" in " ".join(shown)


def test_the_recorded_race_went_the_way_it_says():
    data = recorded("race")
    for run in (data["autoregressive"], data["speculative"]):
        ends = [round["end"] for round in run["rounds"]]
        assert ends == sorted(ends) and 0 < ends[0] and ends[-1] <= run["seconds"]
    assert all(len(round["ids"]) == 1 for round in data["autoregressive"]["rounds"])
    middle = sorted(data["speedups"])[len(data["speedups"]) // 2]
    assert middle == data["autoregressive"]["seconds"] / data["speculative"]["seconds"]


def test_no_text_lies_on_the_bar():
    below = [float(node["y"]) for _, node in texts("race")
             if "textLength" in node and float(node["y"]) > BAR - SIZE]
    assert not below


def test_moments_of_a_loop():
    clock = Clock(0.25, THEMES[""])
    assert clock.slower == 50 and clock.at(0.1) == pytest.approx(0.8 + 5)
    assert clock.loop == pytest.approx(0.8 + 12.5 + 4.5)
    first = clock.appear(0.1)
    assert clock.appear(0.1) == first != clock.appear(0.2)
    for steps in clock.rules:
        percents = [float(p) for p in re.findall(r"([\d.]+)%", steps)]
        assert percents == sorted(percents) and percents[0] == 0


def test_without_motion_the_last_state_is_shown():
    text = draw(recorded("race"), THEMES[""])
    assert "@media (prefers-reduced-motion:reduce){*{animation:none!important}}" in text
    assert text.count("gone") == 1 + 2 + sum(  # the rule, the notes under the bars, and
        any(accepted is not True for _, accepted in round["guesses"])
        for round in recorded("race")["speculative"]["rounds"])


def test_places_break_between_words():
    assert places("ab cd", 5) == [(i, 0) for i in range(5)]
    assert places("abc de f", 5)[4:6] == [(0, 1), (1, 1)]
    assert places("abcdefg", 3)[-1] == (6, 0)  # no place to break
    assert places("a\nb", 9)[-1] == (0, 1) and places("a\n\nb", 9)[-1] == (0, 1.5)


def test_monospace_text_is_as_wide_in_every_font():
    assert 'textLength="25.2"' in mono(0, 0, "abc", 14)
    assert "&lt;" in mono(0, 0, "<", 14)


# ---- round

def test_the_round_shows_the_numbers_that_decided_it():
    data, shown = recorded("round"), [text for text, _ in texts("round")]
    for guess in data["guesses"]:
        for number in (guess["p_draft"], guess["p_target"]):
            assert f"{number:.3f}" in shown
        assert guess["threshold"] == min(1, guess["p_target"] / guess["p_draft"])
        if "accepted" in guess:
            assert guess["accepted"] == (guess["u_accept"] < guess["threshold"])
            sign = "<" if guess["accepted"] else "\u2265"
            assert f"{guess['u_accept']:.2f} {sign} {guess['threshold']:.2f}" in shown
    assert shown.count("accepted") == len(data["ids"]) - 1 and shown.count("rejected") == 1
    assert f"{len(data['ids'])} tokens for 1 target pass" in shown


# ---- theorem 1

def test_green_and_blue_are_the_target_green_and_red_the_draft():
    position = recorded("round")["position"]
    shown = columns(position)
    for (_, draft, target), (_, green, blue, red) in zip(position["tokens"], shown):
        assert green + blue == pytest.approx(target, abs=1e-15)
        assert green + red == pytest.approx(draft, abs=1e-15)
        assert min(blue, red) == 0
    green, blue, red = (sum(map(Fraction, part)) for part in list(zip(*shown))[1:])
    assert green + blue == pytest.approx(1, abs=1e-12)
    assert green + red == pytest.approx(1, abs=1e-12)


def test_the_drawn_bars_are_as_tall_as_their_probabilities():
    position = recorded("round")["position"]
    root = ElementTree.fromstring(files("theorem1")["theorem1.svg"])
    bars = {}
    for node in root.iter(f"{SVG}rect"):
        if node.get("class", "").endswith("_bar") and "rx" not in node.attrib:
            bars.setdefault(node.get("class"), []).append(float(node.get("height")))
    total = {name: sum(heights) for name, heights in bars.items()}
    scale = total["green_bar"] + total["blue_bar"]  # pixels for a probability of 1
    assert total["red_bar"] == pytest.approx(total["blue_bar"], abs=0.1)
    name, draft, target = position["tokens"][0]
    assert bars["green_bar"][0] / scale == pytest.approx(min(draft, target), abs=1e-3)
