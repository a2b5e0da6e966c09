"""docs/run.html is the page of today, with a run that the bundled pair writes today."""

import re

import pytest

from docs.run import PAGE, draw_picture, recorded_race, recorded_run, with_todays_code
from page.page import page_text, stored_run
from tests.chromium import CHROMIUM
from tests.pages import file_text

STORED = stored_run(PAGE)
TEXT = file_text("docs/run.html")


def drawn(rounds):
    """Return what was guessed and written, and the number that each test drew."""
    return [([guess["id"] for guess in seen["guesses"]], [token["id"] for token in seen["ids"]],
             [guess.get("u_accept") for guess in seen["guesses"]], seen["u_last"])
            for seen in rounds]


def probabilities(rounds):
    """Return both models' probabilities of every guess."""
    return [guess[name] for seen in rounds for guess in seen["guesses"]
            for name in ("p_draft", "p_target")]


def test_the_published_page_is_todays_page_around_the_stored_run():
    assert TEXT == page_text(with_todays_code(STORED)), "python -m docs run"
    assert len(TEXT) < 150_000


def test_the_page_needs_no_other_file():
    """The workflow publishes docs/ alone, so a link to a file above it would lead nowhere."""
    links = re.findall(r'(?:src|srcset|href)="([^"]*)"|url\(([^)]*)\)|@import (\S+)', TEXT)
    assert links and all(re.match("#|data:", "".join(link)) for link in links)


def test_the_published_run_is_what_the_pair_writes_today():
    today = recorded_run()
    assert today["settings"] == STORED["settings"] and today["prompt"] == STORED["prompt"]
    assert drawn(today["rounds"]) == drawn(STORED["rounds"])
    assert probabilities(today["rounds"]) == pytest.approx(probabilities(STORED["rounds"]), 1e-3)


def test_a_recorded_race_is_the_same_run_with_its_seconds():
    race = recorded_race(repeats=1)
    assert drawn(race["rounds"]) == drawn(STORED["rounds"])
    assert len(race["plain"]["pieces"]) == race["summary"]["ids"]
    assert race["seconds"] > sum(race["summary"]["by_clock"].values()) > 0
    assert with_todays_code(race) == race


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.weekly)])
def test_the_picture_of_the_page_shows_the_line_that_tests_a_guess(tmp_path, scheme):
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    picture = tmp_path / "run.png"
    draw_picture(picture, scheme)
    # An empty page, in which the script failed, has 5 kB.
    assert 50_000 < picture.stat().st_size < 150_000
