"""The pictures show their data, light and dark differ in colours only, and text can be read."""

import re
import sys
from xml.etree import ElementTree

import pytest

from docs.pictures.__main__ import PLOTS, ROOT, SVG, data_of, main, write
from docs.pictures.palette import SERIES, THEMES
from docs.pictures.race import BAR, SIZE, text_of
from docs.pictures.svg import places
from docs.pictures.theorem1 import columns

TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.mark.parametrize("name", SVG)
def test_the_committed_files_are_what_the_data_give_in_two_themes(name, tmp_path):
    write(name, tmp_path)
    light, dark = ((tmp_path / f"{name}{suffix}.svg").read_text() for suffix in THEMES)
    without_colours = [re.sub("#[0-9a-f]{6}", "", text) for text in (light, dark)]
    assert light != dark and without_colours[0] == without_colours[1] and len(light) < 150_000
    assert not re.search(r"<script|<image|<a |href|@import|url\((?!#)|@font-face", light)
    for suffix, text in zip(THEMES, (light, dark)):
        ElementTree.fromstring(text)
        assert (ROOT / "docs" / "img" / f"{name}{suffix}.svg").read_text() == text


@pytest.mark.parametrize("name, words", [
    ("ladder", ["3.634  (+0.357)"]),
    ("theorem1", ["accepted", "green + blue = the target, exactly."]), ("wild", ["0, exact"]),
    ("forking", ["instead 1", "2/9 + 2/9 = 4/9", "The target alone: 0 0 with 1/9"])])
def test_a_plot_says_what_its_data_say(name, words, tmp_path):
    pytest.importorskip("matplotlib")
    write(name, tmp_path)
    for suffix in THEMES:
        shown = (tmp_path / f"{name}{suffix}.svg").read_text()
        committed = (ROOT / "docs" / "img" / f"{name}{suffix}.svg").read_text()
        assert all(word in shown and word in committed for word in words)


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main(["round", "--out", str(tmp_path)])
    for name in PLOTS:
        with pytest.raises(SystemExit, match="pip install -r requirements/plots.txt"):
            main([name, "--out", str(tmp_path)])


def luminance(colour):
    """Return WCAG 2.2's relative luminance of #rrggbb."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


@pytest.mark.parametrize("suffix, page", [("", "#ffffff"), ("-dark", "#0d1117")])
def test_text_can_be_read_on_panel_and_page(suffix, page):
    for name in ("ink", "grey", *SERIES):
        for ground in (THEMES[suffix]["panel"], page):
            dark, light = sorted(luminance(c) for c in (THEMES[suffix][name], ground))
            assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_race_shows_the_text_that_both_wrote_and_every_guess():
    data, root = data_of("race", SVG["race"]), ElementTree.parse(ROOT / "docs/img/race.svg")
    plain, fast = data["autoregressive"], data["speculative"]
    assert text_of(plain, data["prompt"]) == text_of(fast, data["prompt"])  # greedy
    shown = {"".join(node.itertext()) for node in root.iter(TEXT)}
    for round in fast["rounds"]:
        assert {token.strip() for token, _ in [*round["guesses"], *round["ids"]]} - {""} <= shown
    lowest = max(float(node.get("y")) for node in root.iter(TEXT) if node.get("textLength"))
    assert lowest <= BAR - SIZE  # no text covers the bar
    assert places("a bc\n\nd", 3) == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2.5), (0, 2.5), (0, 2.5)]


def test_green_and_blue_are_the_target_green_and_red_the_draft():
    position = data_of("theorem1", None)["position"]
    shown = columns(position)
    for (_, draft, target), (_, green, blue, red) in zip(position["tokens"], shown):
        assert (green + blue, green + red) == pytest.approx((target, draft)) and min(blue, red) == 0
    green, blue, red = (sum(parts) for parts in list(zip(*shown))[1:])
    assert green + blue == pytest.approx(1) == green + red
