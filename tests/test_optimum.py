"""exact/optimum.py: the optimum is that of the linear programme, and no test exceeds it."""

import numpy as np
import pytest

from exact.optimum import (
    CASES,
    TESTS,
    best_accepted,
    best_independent,
    bound_distinct,
    guesses_law,
    kseq_independent,
    match_independent,
    multi_step_distinct,
    multi_step_independent,
    reached,
    toys_table,
)
from exact.rules import TOYS, X
from exact.toys import PAIRS

FIRST_ROWS = {name: [model(X)[-1] for model in pair] for name, pair in {**TOYS, **PAIRS}.items()}


def best_by_transport(guesses, p_target):
    """Return the optimum by a linear programme: the most mass that guesses move to own tokens."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    moves = [(i, token) for i, tokens in enumerate(guesses) for token in {*tokens}]
    limits = np.zeros((len(guesses) + len(p_target), len(moves)))
    for column, (i, token) in enumerate(moves):
        limits[[i, len(guesses) + token], column] = 1
    return -linprog(-np.ones(len(moves)), limits, np.array([*guesses.values(), *p_target])).fun


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_the_optimum_is_that_of_the_linear_programme_and_of_sorted_rows(name):
    rows = p_draft, p_target = [np.asarray(row, float) for row in FIRST_ROWS[name]]
    for n, siblings in CASES:
        guesses = guesses_law(p_draft, n, siblings)
        best = best_accepted(guesses, p_target)
        assert best_by_transport(guesses, p_target) == pytest.approx(best, abs=1e-9)
        closed = bound_distinct(*rows) if siblings == "distinct" else best_independent(*rows, n)
        assert closed == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("toy", TOYS)
def test_no_test_exceeds_the_optimum_and_the_closed_forms_are_what_the_tests_reach(toy):
    rows = p_draft, p_target = [np.asarray(row, float) for row in FIRST_ROWS[toy]]
    assert best_independent(*rows, 1) == pytest.approx(np.minimum(p_draft, p_target).sum())
    for n, siblings in CASES:
        found = {test: reached(test, toy, n, siblings) for test in TESTS}
        best = best_accepted(guesses_law(p_draft, n, siblings), p_target)
        assert max(filter(None, found.values())) <= best + 1e-12
        forms = ({"multi-step": multi_step_distinct(*rows)} if siblings == "distinct" else
                 {"multi-step": multi_step_independent(*rows, n),
                  "K-SEQ": kseq_independent(*rows, n), "match": match_independent(*rows, n)})
        for test, form in forms.items():
            assert form == pytest.approx(float(found[test]), abs=1e-9), (test, n, siblings)


def test_the_table_has_the_figures_that_are_quoted():
    """The best possible and the multi-step test: 1, 2, 3 independent guesses, 2 distinct ones."""
    quoted = {"A": ["0.8000 0.8000", "0.9900 0.9200", "1.0000 0.9280", "1.0000 0.9333"],
              "B": ["0.5000 0.5000", "0.6900 0.6500", "0.7710 0.6850", "0.8583 0.7667"],
              "C": ["0.2000 0.2000"] * 4}
    rows = [row.split(" | ") for row in toys_table().splitlines()[2:]]
    for toy, expected in quoted.items():
        assert [f"{row[2]} {row[3]}" for row in rows if row[0] == f"| {toy}"] == expected
