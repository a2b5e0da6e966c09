"""From logits to tokens: each setting by its definition, each draw over all its outcomes."""

import re
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import law
from sampling import (
    accept,
    keep_largest,
    keep_top_p,
    residual,
    sample,
    softmax,
    warp,
    with_sampling,
)
from tests.distributions import HIGHEST, LOWEST, Scripted, distance
from tests.toys import mapped, toy

EXACT = 1e-12

logits = st.lists(st.floats(-110, -35), min_size=1, max_size=8).map(np.array)
with_ties = st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any).map(np.array)


# ---- softmax

@given(logits, st.sampled_from([0.0, -1000.0, 35.0, 110.0, 1000.0]))
def test_a_ratio_of_probabilities_is_the_exponential_of_the_logits_difference(row, constant):
    probs = softmax(row + constant)
    np.testing.assert_allclose(np.log(probs) - np.log(probs[0]), row - row[0], atol=1e-10)
    assert probs.dtype == np.float64 and probs.sum() == pytest.approx(1, abs=EXACT)


def test_float32_logits_are_warped_in_float64():
    in_32 = np.float32([[1.1, -0.3, 2.7]])
    assert softmax(in_32[0]).dtype == np.float64
    rows = [warp(logits, 0.7, repetition_penalty=1.3, ids=[0, 2])
            for logits in (in_32, in_32.astype(np.float64))]
    np.testing.assert_array_equal(*rows)


def test_every_row_has_its_own_softmax():
    rows = np.array([[1.0, 2.0], [-2000.0, -2001.0]])
    np.testing.assert_allclose(softmax(rows), [softmax(rows[0]), softmax(rows[1])], atol=EXACT)
    np.testing.assert_array_equal(softmax([1e300, -1e300, 1e300]), [0.5, 0, 0.5])


# ---- warp against plain definitions, in loops

def naive_top_k(row, top_k):
    """Keep the top_k most probable tokens, the lowest ids first among equals."""
    kept = sorted(range(len(row)), key=lambda token: (-row[token], token))[:top_k]
    mass = sum(row[token] for token in kept)
    return [row[token] / mass if token in kept else 0 for token in range(len(row))]


def naive_top_p(row, top_p):
    n = 1
    while n < len(row) and sum(sorted(row, reverse=True)[:n]) < top_p:
        n += 1
    return naive_top_k(row, n)


def naive_penalty(row, prefix, penalty):
    return [(value / penalty if value > 0 else value * penalty) if token in prefix else value
            for token, value in enumerate(row)]


@given(st.integers(0, 999), st.integers(1, 4), st.integers(1, 7), st.floats(0.3, 3),
       st.integers(0, 9), st.floats(0.1, 1), st.floats(0.5, 2))
@settings(max_examples=200)
def test_the_settings_apply_in_the_order_penalty_temperature_top_k_top_p(
        seed, n_last, n_vocab, temperature, top_k, top_p, penalty):
    """Among equals, top-k and top-p keep the lowest ids."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (n_last, n_vocab)).round()  # often equal
    ids = rng.integers(0, n_vocab, 4).tolist()
    rows = warp(logits, temperature, top_k, top_p, penalty, ids)
    for i in range(n_last):
        n_unseen = n_last - 1 - i  # later tokens, which row i must not see
        penalized = naive_penalty(logits[i], ids[: len(ids) - n_unseen], penalty)
        row = softmax(np.array(penalized) / temperature).tolist()
        row = naive_top_p(naive_top_k(row, top_k or n_vocab), top_p)
        np.testing.assert_allclose(rows[i], row, atol=EXACT)


QUARTERS = [0.25, 0.125, 0.5, 0.125]
TENTHS = [0.1] * 10


@pytest.mark.parametrize("row, top_p, kept", [
    (QUARTERS, 0.25, [2]), (QUARTERS, 0.5, [2]), (QUARTERS, 0.51, [0, 2]),
    (QUARTERS, 0.75, [0, 2]), (QUARTERS, 0.76, [0, 1, 2]), (QUARTERS, 1.0, [0, 1, 2, 3]),
    (TENTHS, 0.89, [*range(9)]),
    (TENTHS, 0.9, [*range(10)]),  # nine times 0.1 is 0.8999999999999999 in float64
])
def test_a_mass_of_exactly_top_p_is_enough(row, top_p, kept):
    assert np.flatnonzero(warp(np.log(row), top_p=top_p)).tolist() == kept


@given(st.integers(0, 999), st.floats(0.05, 0.999), st.floats(0.1, 8))
def test_top_p_is_decided_by_the_sum_of_the_sorted_row(seed, top_p, scale):
    """Leaving out tokens that cannot be needed changes nothing, ties and zeros included."""
    logits = np.random.default_rng(seed).normal(0, scale, 300).round(1)
    row = softmax(logits)
    row[::7] = 0  # every seventh token is impossible
    row /= row.sum()
    n = 1 + np.count_nonzero(np.cumsum(np.sort(row)[::-1]) < top_p)
    np.testing.assert_array_equal(keep_top_p(row, top_p), keep_largest(row, n))


def test_a_warped_model_is_the_model_then_warp():
    model = mapped(toy(4, 1), lambda row: 5 * row)
    ids = [0, 3, 1, 3]
    sampling = dict(temperature=0.7, top_k=3, top_p=0.8, repetition_penalty=1.5)
    got = with_sampling(model, **sampling)(ids, 3)
    np.testing.assert_array_equal(got, warp(model(ids, 3), ids=ids, **sampling))
    assert np.abs(got - softmax(model(ids, 3))).max() > 0.1


# ---- limits

def test_temperature_0_takes_the_lowest_id_of_equals():
    rows = [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]
    assert warp(rows, temperature=0).tolist() == [[0, 1, 0], [1, 0, 0]]


# ---- sample, accept, residual over all outcomes

@given(st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any))
def test_sample_draws_each_id_in_proportion_to_its_weight(weights):
    row = np.array([Fraction(weight) for weight in weights])
    expected = {token: weight / sum(row) for token, weight in enumerate(row) if weight > 0}
    assert law(lambda rng: sample(row, rng)) == expected
    as_floats = law(lambda rng: sample(np.array(weights, np.float32), rng))
    assert distance(as_floats, expected) < EXACT


@given(st.integers(0, 7), st.integers(1, 7))
def test_accept_is_true_with_its_probability(a, b):
    assert law(lambda rng: accept(Fraction(a, b), rng)).get(True, 0) == min(Fraction(a, b), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_0_and_1_are_never_and_always(dtype):
    for u in (LOWEST, 0.5, HIGHEST):
        assert not accept(dtype(0), Scripted([u]))
        assert accept(dtype(1), Scripted([u]))


@pytest.mark.parametrize("weights, token", [([0, 5e-324], 1), ([5e-324, 0, 5e-324, 0], 2)])
def test_a_token_of_weight_0_is_not_drawn_even_if_the_sum_is_subnormal(weights, token):
    assert sample(weights, Scripted([0.9])) == token


@pytest.mark.parametrize("scale", [1e-300, 0.9999, 1, 1.0001, 1e300])
def test_the_outermost_uniforms_draw_the_outermost_ids_that_have_weight(scale):
    row = scale * np.array([0, 0.1, 0.2, 0.7, 0])
    assert sample(row, Scripted([LOWEST])) == 1
    assert sample(row, Scripted([HIGHEST])) == 3


@given(with_ties)
def test_a_residual_without_mass_is_the_targets_distribution(weights):
    row = weights / weights.sum()
    np.testing.assert_array_equal(residual(row, row), row)
    np.testing.assert_array_equal(residual(row, 2 * row), row)


def test_a_residual_of_one_unit_in_the_last_place_is_one_token_of_lists_too():
    p_target = [0.25, 0.5, 0.25]
    p_draft = np.nextafter(p_target, [1, 0, 1]).tolist()
    assert residual(p_target, p_draft).tolist() == [0, 1, 0]


# ---- errors

@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused_with_its_row(value):
    for row, temperature in product(range(3), (0, 1)):
        rows = np.zeros((3, 5))
        rows[row, 4] = value
        with pytest.raises(ValueError, match=f"got {value} in row {row} of 3, token 4"):
            warp(rows, temperature=temperature)


@pytest.mark.parametrize("sampling, message", [
    (dict(temperature=-1), "temperature"), (dict(temperature=np.nan), "temperature"),
    (dict(temperature=np.inf), "temperature"),
    (dict(top_k=-1), "top_k"), (dict(top_k=1.5), "top_k"),
    (dict(top_p=0), "top_p"), (dict(top_p=1.1), "top_p"), (dict(top_p=np.nan), "top_p"),
    (dict(repetition_penalty=1e-320), "1e-99 <= repetition_penalty <= 1e99, got 1e"),
    (dict(repetition_penalty=1e300), "1e-99 <= repetition_penalty <= 1e99, got 1e"),
    (dict(top_k="2"), "numbers for .*, got '2'"), (dict(top_p=None), "got None"),
    (dict(top_k=np.inf), "top_k a whole number"), (dict(top_k=np.nan), "top_k a whole number"),
])
def test_a_setting_out_of_range_is_refused_by_name(sampling, message):
    with pytest.raises(ValueError, match=f"need .*{message}"):
        warp([1.0, 2.0], **sampling)
    with pytest.raises(ValueError, match=f"need .*{message}"):
        with_sampling(None, **sampling)  # before the model is called


@pytest.mark.parametrize("logits", [np.zeros((1, 2, 3)), 1.0, [], np.zeros((2, 0))], ids=str)
def test_logits_of_a_different_shape_are_refused_with_it(logits):
    shape = re.escape(str([*np.shape(logits)]))
    for sampling in ({}, dict(temperature=0), dict(top_k=1), dict(top_p=0.5)):
        with pytest.raises(ValueError, match=f"need logits of shape .*, got shape {shape}"):
            warp(logits, **sampling)


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan])
def test_softmax_needs_a_temperature_above_0(temperature):
    with pytest.raises(ValueError, match=f"need temperature > 0, got {temperature}"):
        softmax([1.0, 2.0], temperature)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_softmax_refuses_what_would_make_nan_and_takes_minus_infinity(value):
    assert softmax([0.0, -np.inf, 0.0]).tolist() == [0.5, 0, 0.5]
    with pytest.raises(ValueError, match="largest logit is finite"):
        softmax([[1.0, 2.0], [value, 1.0]])


@pytest.mark.parametrize("call", [
    softmax, warp, partial(warp, top_k=1), partial(warp, top_p=0.1), partial(warp, temperature=0),
    partial(warp, repetition_penalty=2.0, ids=[0, 1]), lambda row: sample(row, Scripted([0.3]))])
def test_no_argument_is_written_to(call):
    for dtype in (np.float32, np.float64):
        row = np.array([1.0, 3.0, 2.0], dtype)
        call(row)
        assert row.tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("draw, argument, message", [
    (sample, [0.0, 0.0], "probabilities >= 0 .*, got sum 0.0"),
    (sample, [0.5, np.nan], "sum nan"), (sample, [np.nan, 1.0], "sum nan"),
    (sample, [0.5, 1.5, -0.5], "sum 1.5, smallest -0.5"), (sample, [np.inf, 1.0], "sum inf"),
    (sample, [], r"one row .*, got shape \[0\]"),
    (sample, [[0.5, 0.5]] * 2, r"one row .*, got shape \[2, 2\]"),
    (accept, -0.1, "a probability >= 0"), (accept, np.nan, "a probability >= 0"),
    (accept, np.float32(np.nan), "a probability >= 0")])
def test_what_is_not_a_probability_is_refused_and_nan_is_no_rejection(draw, argument, message):
    with pytest.raises(ValueError, match=f"need .*{message}"):
        draw(argument, Scripted([0.3]))


# ---- a mask

def test_a_mask_is_of_each_rows_own_prefix_and_the_rest_is_renormalised():
    logits = np.log([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    not_the_last = lambda ids: np.arange(3) != ids[-1]
    rows = warp(logits, ids=[2, 0, 1], allowed=not_the_last)  # row 0 follows 2 0, row 1 2 0 1
    assert np.allclose(rows, [[0, 0.6, 0.4], [0.25, 0, 0.75]])
    greedy = warp(logits, temperature=0, ids=[2, 0, 1], allowed=not_the_last)
    assert greedy.tolist() == [[0, 1, 0], [0, 0, 1]]
    # the penalty comes first: it cannot make a masked token possible
    both = warp(logits, ids=[2, 0, 1], repetition_penalty=0.1, allowed=not_the_last)
    assert both[0, 0] == both[1, 1] == 0 and (both >= 0).all()
    assert warp([0.0, 0.0], ids=[0], allowed=lambda ids: [1, 0]).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("n_rows, sampling, message", [
    (1, dict(repetition_penalty=2.0, ids=[5]), "need ids in 0 .. n_vocab - 1 = 2, got 5"),
    (1, dict(repetition_penalty=2.0, ids=[0, -1]), "need ids in 0 .. n_vocab - 1 = 2, got -1"),
    (1, dict(repetition_penalty=2.0), "the whole sequence for .*, got 0 ids for 1 rows"),
    (2, dict(ids=[1], allowed=np.ones_like), "whole sequence for .* a mask, got 1 ids for 2"),
    (1, dict(ids=[1, 2], allowed=lambda ids: np.zeros(3, bool)),
     r"allows no token after 2 ids that end in \[1, 2\]"),
    (1, dict(ids=[1], allowed=[True]), "need a function allowed"),
    (1, dict(ids=[1], allowed=lambda ids: [True]), "need a mask of 3 tokens, got shape"),
    (1, dict(ids=[1], allowed=lambda ids: np.ones((3, 1), bool)), "of 3 tokens, got shape")])
def test_ids_and_masks_that_do_not_fit_are_refused(n_rows, sampling, message):
    with pytest.raises(ValueError, match=message):
        warp(np.zeros((n_rows, 3)), **sampling)


# ---- tiny and huge settings

@pytest.mark.parametrize("temperature", [1e-300, 2.3e-308, 5e-324])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_temperatures_are_greedy_without_a_warning(temperature, dtype):
    row = np.array([1, -3e38, 3, 2, -np.inf], dtype)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        assert softmax(row, temperature).tolist() == [0, 0, 1, 0, 0]
        assert warp(row[:4], temperature).tolist() == [0, 0, 1, 0]


def test_a_penalty_makes_no_logit_infinite():
    row = np.array([3e38, -3e38, 1, -1], np.float32)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for temperature in (0, 5e-324, 1):
            assert warp(row, temperature, repetition_penalty=1e-99, ids=[0, 1]).argmax() == 0
            assert warp(row, temperature, repetition_penalty=1e99, ids=[0, 1]).argmax() == 2
