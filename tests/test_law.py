"""exact/law.py, the base of every exactness test, on distributions worked out by hand."""

import math
from fractions import Fraction
from functools import partial
from itertools import count

import numpy as np
import pytest

from exact.law import composed_law, expectation, law, text_law, total_variation
from sampling import accept, sample
from tests.distributions import assert_same_law, distance
from tests.toys import context_free

THIRD = Fraction(1, 3)
HALF = Fraction(1, 2)
ROW = np.array([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], dtype=object)


def test_every_outcome_of_a_draw_comes_with_its_probability():
    assert law(lambda rng: sample(ROW, rng)) == dict(enumerate(ROW))
    assert law(lambda rng: sample(ROW, rng) > 0) == {False: HALF, True: HALF}
    assert expectation(lambda rng: sample(ROW, rng), lambda token: token) == Fraction(2, 3)


def test_two_draws_are_independent_and_one_uniform_used_twice_is_not():
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

    sixth = Fraction(1, 6)
    assert law(fewer_than) == {((True, True), (2, 2)): sixth, ((False, True), (2, 2)): sixth,
                               ((True, False), (2, 2)): THIRD, ((False, False), (2, 2)): THIRD}


def test_a_draw_may_decide_whether_there_is_one_more():
    def until_accepted(rng):
        return next((n for n in range(3) if accept(THIRD, rng)), 3)

    assert law(until_accepted) == {0: THIRD, 1: Fraction(2, 9), 2: Fraction(4, 27),
                                   3: Fraction(8, 27)}


def test_all_comparisons_are_enumerated_and_bounds_may_be_outside_the_interval():
    for compare in (lambda u: u > THIRD, lambda u: u >= THIRD):
        got = law(lambda rng, compare=compare: bool(compare(rng.random())))
        assert got == {True: 2 * THIRD, False: THIRD}
    assert law(lambda rng: bool(rng.random() <= THIRD)) == {True: THIRD, False: 2 * THIRD}
    for compare in (lambda u: u > float("nan"), lambda u: u < float("nan")):
        assert law(lambda rng, compare=compare: bool(compare(rng.random()))) == {False: 1}
    assert law(lambda rng: (accept(0, rng), accept(1, rng), accept(2, rng))) == {
        (False, True, True): 1}


def test_bounds_of_low_precision_do_not_round_the_interval():
    """1/3 in float16 is a little below 1/3, so a number may be between the two."""
    bound = np.float16(1 / 3)

    def twice(rng):
        u = rng.random()
        return bool(u < 1 / 3), bool(u < bound)

    assert law(twice)[True, False] == pytest.approx(1 / 3 - float(bound))


def test_a_run_may_draw_as_often_as_a_text_of_a_few_hundred_tokens():
    assert law(lambda rng: sum(accept(1, rng) for _ in range(900))) == {900: 1}


def never_ends(rng):
    while accept(HALF, rng):
        pass


def two_draws(rng, first=HALF):
    return accept(first, rng), accept(HALF, rng)


def changing(before, after, n_runs):
    """Return a function of rng: `before` in the first n_runs runs, then `after`."""
    run_numbers = count(1)
    return lambda rng: before(rng) if next(run_numbers) <= n_runs else after(rng)


@pytest.mark.parametrize("function, error, words", [
    (never_ends, AssertionError, "does not end"),
    (lambda rng: rng.integers(2), AttributeError, "cannot be enumerated"),
    (lambda rng: np.log(rng.random()), TypeError, "'Uniform' does not support"),
    (changing(two_draws, partial(two_draws, first=THIRD), 12), AssertionError, "state"),
    (changing(two_draws, partial(accept, HALF), 10), AssertionError, "state")])
def test_a_function_that_does_not_end_or_has_a_state_is_refused(function, error, words):
    with pytest.raises(error, match=words):
        law(function)


@pytest.mark.parametrize("use", [
    lambda u, other: u == 0.5, lambda u, other: bool(u), lambda u, other: u < other,
    lambda u, other: 2 * u, lambda u, other: 1 - u, lambda u, other: math.log(u),
    lambda u, other: np.searchsorted([0.5, 1.0], u)])
def test_a_uniform_that_is_used_for_more_than_a_comparison_is_refused(use):
    with pytest.raises(TypeError, match="can only be compared, u < bound"):
        law(lambda rng: use(rng.random(), rng.random()))


HIDDEN = np.random.default_rng(0)  # created before, so it cannot be forbidden


@pytest.mark.parametrize("draw", [
    lambda: HIDDEN.random() < 0.5, lambda: np.random.default_rng(0).random() < 0.5,
    lambda: np.random.rand() < 0.5, lambda: __import__("random").random() < 0.5,
    lambda: __import__("os").urandom(1) < b"a"])
def test_a_draw_from_a_different_generator_is_refused(draw):
    with pytest.raises(AssertionError, match="hidden"):
        law(lambda rng: (accept(HALF, rng), bool(draw())))


def test_the_text_law_is_the_product_of_its_rows_and_ends_at_a_stop_token():
    model = context_free(ROW)
    assert text_law([0], model, 2) == {(0, a, b): ROW[a] * ROW[b] for a in range(3)
                                       for b in range(3)}
    assert text_law([0], model, 2, stop={1}) == {
        (0, 1): THIRD, **{(0, a, b): ROW[a] * ROW[b] for a in (0, 2) for b in range(3)}}


@pytest.mark.parametrize("stop", [(), {1}])
def test_rounds_of_one_token_compose_the_text_law(stop):
    """Two ways to multiply out, neither of which runs a decoder."""
    def one_token(text, memory, n_left):
        return {((token,), memory): p for token, p in enumerate(ROW)}

    composed = composed_law([0], one_token, 2, stop)
    assert {text: p for (text, _), p in composed.items()} == text_law(
        [0], context_free(ROW), 2, stop)


def test_two_distributions_are_compared_at_all_outcomes():
    a = {0: HALF, 1: HALF}
    b = {0: HALF, 2: HALF}
    assert distance(a, b) == HALF == total_variation(a, b) and distance(a, a) == 0
    for pair in ((a, b), (b, a), ({}, a), (a, {0: HALF}), (a, {0: HALF, 1: float("nan")})):
        with pytest.raises(AssertionError, match="a different distribution"):
            assert_same_law(*pair)
    assert_same_law(a, dict(a))
