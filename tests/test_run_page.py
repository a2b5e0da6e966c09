"""docs/run.html is the page of today, with a run that the bundled pair writes today."""

import shlex

import pytest

import docs.run
from docs.run import PAGE, with_todays_code
from main import decode, decoder_step
from page.page import page_text, stored_run
from run.flags import parse_args, settings_for_json
from run.task import load_task
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


def test_the_published_run_is_what_the_pair_writes_today():
    _, command = docs.run.__doc__.split("main.py ")
    args = parse_args(shlex.split(command.replace("\\\n", "")))
    rounds = []
    task = load_task(args)
    decode(task, decoder_step, rounds.append)
    assert settings_for_json(args) == STORED["settings"]
    assert task.encoder.decode(task.x) == STORED["prompt"]
    assert drawn(rounds) == drawn(STORED["rounds"])
    assert probabilities(rounds) == pytest.approx(probabilities(STORED["rounds"]), 1e-3)
