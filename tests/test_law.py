"""Test the enumerator that every exactness test trusts: distributions worked out by hand."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from exact.law import expectation, law, text_law, total_variation
from sampling import accept, sample
from tests.distributions import assert_same_law, distance

ROOT = Path(__file__).parents[1]
THIRD, HALF = Fraction(1, 3), Fraction(1, 2)
ROW = np.array([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], dtype=object)


def test_every_outcome_of_a_draw_comes_with_its_probability():
    assert law(lambda rng: sample(ROW, rng)) == dict(enumerate(ROW))
    assert law(lambda rng: sample(ROW, rng) > 0) == {False: HALF, True: HALF}
    assert expectation(lambda rng: sample(ROW, rng), lambda token: token) == Fraction(2, 3)


def test_two_draws_are_independent_and_one_used_twice_is_not():
    assert law(lambda rng: (sample(ROW, rng), sample(ROW, rng))) == {
        (a, b): ROW[a] * ROW[b] for a in range(3) for b in range(3)}

    def once(rng):
        u = rng.random()
        return bool(u < HALF), bool(u < THIRD), bool(u < Fraction(2, 3))

    assert law(once) == {(True, True, True): THIRD, (True, False, True): Fraction(1, 6),
                         (False, False, True): Fraction(1, 6), (False, False, False): THIRD}


def test_an_array_of_numbers_is_independent_draws_each_compared_with_its_bound():
    def fewer_than(rng):
        accepted = rng.random(2) < np.array([HALF, THIRD])
        rejected = np.array([HALF, THIRD]) <= rng.random((2, 1))
        return tuple(accepted.tolist()), rejected.shape

    half_third = {(a, b): HALF * (THIRD if b else 2 * THIRD)
                  for a in (True, False) for b in (True, False)}
    assert law(fewer_than) == {(pair, (2, 2)): p for pair, p in half_third.items()}


def test_what_a_draw_decides_may_decide_whether_there_is_another():
    def until_accepted(rng):
        return next((n for n in range(3) if accept(THIRD, rng)), 3)

    assert law(until_accepted) == {0: THIRD, 1: Fraction(2, 9), 2: Fraction(4, 27),
                                   3: Fraction(8, 27)}


def test_comparisons_the_other_way_and_bounds_outside_the_interval():
    for compare in (lambda u: u > THIRD, lambda u: u >= THIRD):
        got = law(lambda rng, compare=compare: bool(compare(rng.random())))
        assert got == {True: 2 * THIRD, False: THIRD}
    assert law(lambda rng: bool(rng.random() <= THIRD)) == {True: THIRD, False: 2 * THIRD}
    assert law(lambda rng: (accept(0, rng), accept(1, rng), accept(2, rng))) == {
        (False, True, True): 1}


HIDDEN, LATE = np.random.default_rng(0), []


@pytest.mark.parametrize("other", [
    lambda: HIDDEN.random() < 0.5,  # made before, so it cannot be forbidden
    lambda: np.random.default_rng(0).random() < 0.5, lambda: np.random.rand() < 0.5,
    lambda: __import__("random").random() < 0.5, lambda: __import__("os").urandom(1) < b"a"])
def test_a_draw_from_elsewhere_is_noticed(other):
    with pytest.raises(AssertionError, match="hidden"):
        law(lambda rng: (accept(HALF, rng), bool(other())))


def test_a_run_may_draw_as_often_as_a_text_of_a_few_hundred_tokens():
    assert law(lambda rng: sum(accept(1, rng) for _ in range(900))) == {900: 1}


def never_ends(rng):
    while accept(HALF, rng):
        pass


@pytest.mark.parametrize("function, error", [
    (never_ends, AssertionError),
    (lambda rng: rng.integers(2), AttributeError),
    (lambda rng: np.log(rng.random()), TypeError),
])
def test_what_cannot_be_enumerated_is_refused(function, error):
    with pytest.raises(error):
        law(function)


@pytest.mark.parametrize("use", [
    lambda u, other: u == 0.5, lambda u, other: bool(u), lambda u, other: u < other,
    lambda u, other: 2 * u, lambda u, other: 1 - u, lambda u, other: math.log(u),
    lambda u, other: np.searchsorted([0.5, 1.0], u)])
def test_a_number_of_rng_can_only_be_compared_with_a_bound(use):
    with pytest.raises(TypeError, match="can only be compared, u < bound"):
        law(lambda rng: use(rng.random(), rng.random()))


def test_a_function_whose_decisions_change_between_runs_is_noticed():
    def later(rng):
        LATE.append(rng)
        return [accept(THIRD if len(LATE) > 12 else HALF, rng), accept(HALF, rng)]

    def fewer(rng):
        LATE.append(rng)
        return [accept(HALF, rng)] + ([accept(HALF, rng)] if len(LATE) < 11 else [])

    for function in (later, fewer):
        LATE.clear()
        with pytest.raises(AssertionError, match="hidden state"):
            law(function)


def test_the_text_law_is_the_product_of_its_rows_and_ends_at_a_stop_token():
    model = lambda ids, n_last: [ROW]
    assert text_law([0], model, 2) == {(0, a, b): ROW[a] * ROW[b] for a in range(3)
                                       for b in range(3)}
    assert text_law([0], model, 2, stop={1}) == {
        (0, 1): THIRD, **{(0, a, b): ROW[a] * ROW[b] for a in (0, 2) for b in range(3)}}


def test_two_laws_are_compared_by_all_their_outcomes_and_the_comparison_is_reported(request):
    a, b = {0: HALF, 1: HALF}, {0: HALF, 2: HALF}
    assert distance(a, b) == HALF == total_variation(a, b) and distance(a, a) == 0
    for pair in ((a, b), (b, a), ({}, a), (a, {0: HALF}), (a, {0: HALF, 1: float("nan")})):
        with pytest.raises(AssertionError, match="a different distribution"):
            assert_same_law(*pair)
    assert_same_law(a, dict(a))
    assert dict(request.node.user_properties)["compared"] == [(0.0, 2)]


def test_the_page_quotes_tests_that_exist():
    page = (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (tests/\S+)::(\w+) \| [\d,]+ \| [\d,]+ \| (\S+) \|$", page, re.M)
    assert len(rows) == page.count("\n| tests/") >= 5
    for file, name, deviation in rows:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name
        assert float(deviation) < 1e-12
