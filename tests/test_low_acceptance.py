"""Faults in a draft: their texts stay exact, and the table of their acceptance."""

import json
from functools import partial

import numpy as np
import pytest

from benchmarks import low_acceptance
from benchmarks.__main__ import main
from benchmarks.low_acceptance import (
    FAULTS,
    ROUNDING,
    Fault,
    WrongCut,
    faulty_step,
    first_guess_counts,
    text_distance,
    two_token_model,
    zero_filled,
)
from docs.tables import stored
from measure.models import OPENINGS
from sampling import with_sampling
from speculative import Round, draft_and_verify, generate, guess, make_step
from tests.commands import outcome
from tests.pages import file_text

K = low_acceptance.GUESSED
EACH_FAULT = pytest.mark.parametrize("name", FAULTS)


# ---- the planted faults

@pytest.mark.parametrize("n_more, wanted", [
    (0, [1, 2, 9, 8]), (-1, [1, 2, 3, 9, 8]), (-2, [1, 2, 3, 4, 9, 8]), (1, [1, 9, 8]),
    (2, [9, 8])])
def test_a_wrong_cut_keeps_or_loses_tokens_for_good(n_more, wanted):
    """The draft read 1 2, guessed 3 and 4, and the text went on with 9 8."""
    read = []
    draft = WrongCut(lambda ids, n_last: read.append(ids), n_more)
    guessing = [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    for text in [*guessing, [1, 2, 9], [1, 2, 9, 8]]:
        draft(text)
    assert read[:3] == guessing and read[-1] == wanted


def test_a_zero_filled_round_has_guesses_without_a_draft():
    two = lambda x, k, rng: ([7] * k, np.eye(8)[[7] * k])
    guesses, rows = zero_filled([1], 4, None, two, n_drafted=2, n_vocab=8)
    assert guesses == [7, 7, 0, 0] and np.argmax(rows, axis=1).tolist() == guesses
    assert zero_filled([1], 1, None, two, n_drafted=2, n_vocab=8)[0] == [7]


def toy_rounds(step_of):
    """Return the tokens and the draft's rows of some rounds of two random models."""
    prompt = np.random.default_rng(2).integers(2, size=low_acceptance.PROMPT_LENGTH).tolist()
    step = step_of(two_token_model(0), two_token_model(1), 1.0, len(prompt))
    rounds = generate(prompt, step, 40, np.random.default_rng(3))
    return [(result.ids, np.array(result.p_draft).tolist()) for result in rounds]


@EACH_FAULT
def test_every_fault_changes_what_the_draft_computes_and_no_fault_does_not(name):
    def healthy(draft, target, temperature, n_prompt):
        return draft_and_verify(with_sampling(draft, temperature=temperature),
                                with_sampling(target, temperature=temperature), K)

    found = toy_rounds(partial(faulty_step, FAULTS[name]))
    assert (found == toy_rounds(healthy)) == (name == "none")


def test_first_guesses_are_counted_by_the_round_before_them():
    """Two guesses a round: 2 accepted, then 0, 1 and 2; the last round has no guess."""
    rounds = [Round([0] * (n + 1), [0] * 2, [], [], n) for n in (2, 0, 1, 2)]
    counts = first_guess_counts([*rounds, Round([0], [], [], [], 0)])
    assert counts.tolist() == [[2, 1], [2, 0]]


# ---- exactness

@pytest.mark.parametrize("name", [
    "cache cut one token too late", "cache cut two tokens too early", "input shifted by one",
    "draft at temperature 0.3", "zero-filled from guess 3 on", "another tokenizer"])
def test_the_text_of_a_draft_with_a_fault_is_exact(name, monkeypatch):
    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    assert text_distance(FAULTS[name]) < ROUNDING


def test_guesses_that_are_tested_with_other_rows_are_not_exact(monkeypatch):
    """The control: the draft draws at temperature 0.3, and its rows are those of temperature 1."""
    def wrong_step(fault, draft, target, temperature, n_prompt):
        cold = with_sampling(draft, temperature=0.3)
        warm = with_sampling(draft.fresh(), temperature=temperature)

        def guess_with_other_rows(x, k, rng):
            guesses, _ = guess(x, k, rng, cold)
            return guesses, [warm([*x, *guesses[:t]], 1)[-1] for t in range(k)]

        return make_step(with_sampling(target, temperature=temperature), K,
                         guess_with_other_rows)

    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    monkeypatch.setattr(low_acceptance, "faulty_step", wrong_step)
    assert text_distance(Fault()) > 0.001


def test_all_stored_texts_are_exact():
    figures = stored("low_acceptance")
    assert figures["rows"].keys() == FAULTS.keys() | {low_acceptance.EAGLE}
    for name, row in figures["rows"].items():
        assert low_acceptance.exact_cell(row, len(OPENINGS)) == "yes", name


# ---- the table and the page

def test_the_table_says_no_if_a_text_differs_and_shows_untested_guesses():
    row = {"temperatures": {"0": {"by_position": {"tested": [[2, 0]], "accepted": [[1, 0]]},
                                  "first_guess": {"tested": [[0, 4]], "accepted": [[0, 1]]},
                                  "tokens_per_pass": 1.5}},
           "identical": 0, "distance": 0.0}
    _, table, _, second = low_acceptance.paragraphs(
        {"texts": "1 prompt", "repeats": 2, "rows": {"bad": row}}, None)
    assert table.endswith("| bad | 0.50 (0.50 - 0.50) | - | 1.50 | no: 0 of 1 texts, distance "
                          "0.0000 |")
    assert second.endswith("| bad | - | 0.25 (0.25 - 0.25) |")


def test_the_command_writes_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(low_acceptance, "OPENINGS", OPENINGS[:2])
    monkeypatch.setattr(low_acceptance, "FAULTS", {"none": Fault()})
    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    path = tmp_path / "a.json"
    status, out, _ = outcome(main, "low_acceptance", "--N", 8, "--json", path)
    assert status == 0 and outcome(main, "low_acceptance", "--show", path)[1] == out
    figures = json.loads(path.read_text("utf-8"))
    assert figures["rows"].keys() == {"none", low_acceptance.EAGLE}
    assert out.count("| yes |") == 4  # two rows at two temperatures


def test_the_page_is_short_and_names_every_shape_that_was_measured():
    page = file_text("docs/low_acceptance.md")
    assert page.count("\n") <= 90
    for words in ("rising", "cliff", "near zero", "low at one temperature only"):
        assert words in page
