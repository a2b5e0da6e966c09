"""Theorem 1: each step of docs/proof.md on exact Fractions, real draws, and the bundled pair."""

from collections import Counter
from fractions import Fraction
from math import log

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import speculative
from exact.law import law, text_law
from gpt2 import GPT2
from sampling import residual, with_sampling
from speculative import guess, speculative_sampling, verify
from tests import bundled
from tests.distributions import assert_same_law, surprise
from tests.toys import PAIRS, context_free, remembered
from theory.speedup import acceptance_rate

# ---- the steps of the proof, on Fractions

def normalised(weights):
    """Return the distribution with these weights, as Fractions."""
    return np.array([Fraction(weight, sum(weights)) for weight in weights], dtype=object)


@st.composite
def pair_of_rows(draw):
    """Draw two distributions over 3 to 6 tokens, zeros included."""
    n_vocab = draw(st.integers(3, 6))
    weights = st.lists(st.integers(0, 20), min_size=n_vocab, max_size=n_vocab).filter(any)
    return normalised(draw(weights)), normalised(draw(weights))


DISJOINT = normalised([1, 0, 2]), normalised([0, 3, 0])
EQUAL = normalised([1, 2, 3]), normalised([1, 2, 3])
ONE_HOT = normalised([0, 1, 0]), normalised([1, 1, 1])


def for_any_pair_of_rows(test):
    """Run a test on Hypothesis' pairs of rows, and on the three pairs above."""
    for rows in (DISJOINT, EQUAL, ONE_HOT):
        test = example(rows)(test)
    return settings(max_examples=40)(given(pair_of_rows())(test))


def one_guess(p_draft, p_target):
    """Return a function of rng that tests one guess: (accepted: 0 or 1, first token)."""
    def one_round(rng):
        guesses, rows = guess([0], 1, rng, context_free(p_draft))
        ids = verify(guesses, rows, [p_target, p_target], rng)
        return len(ids) - 1, ids[0]

    return one_round


def law_of_one_guess(p_draft, p_target):
    """Return the distribution of (accepted, first token) as the proof states it."""
    accepted = np.minimum(p_draft, p_target)  # step 1
    replaced = np.maximum(p_target - p_draft, 0)  # step 3
    return {(1, token): p for token, p in enumerate(accepted)} | {
        (0, token): p for token, p in enumerate(replaced)}


@for_any_pair_of_rows
def test_one_guess_has_the_probabilities_of_steps_1_to_4(rows):
    assert_same_law(law(one_guess(*rows)), law_of_one_guess(*rows), tolerance=0)  # steps 1, 3
    p_draft, p_target = rows
    accepted = np.minimum(p_draft, p_target)
    replaced = np.maximum(p_target - p_draft, 0)
    assert replaced.sum() == 1 - accepted.sum()  # step 2
    assert (accepted + replaced == p_target).all()  # step 4
    if replaced.any():
        assert (residual(p_target, p_draft) * replaced.sum() == replaced).all()  # step 3


@for_any_pair_of_rows
def test_the_acceptance_rate_is_1_minus_TV_and_1_minus_D_LK(rows):
    p_draft, p_target = rows
    alpha = np.minimum(*rows).sum()
    assert alpha == 1 - abs(p_target - p_draft).sum() / 2  # TV
    assert alpha == 1 - abs(p_target - (p_target + p_draft) / 2).sum()  # D_LK
    assert acceptance_rate(p_target, p_draft) == pytest.approx(float(alpha), abs=1e-12)


tiny = st.floats(1e-300, 1) | st.sampled_from([0.0, 1.0, 1e-9, 0.5, np.nextafter(0.5, 1)])


@given(st.lists(st.tuples(tiny, tiny), min_size=3, max_size=6))
def test_in_floats_the_distribution_of_one_token_is_the_targets_too(weights):
    rows = np.array(weights).T
    assume(rows.any(axis=1).all())
    p_draft, p_target = rows / rows.sum(axis=1, keepdims=True)
    got = law(lambda rng: one_guess(p_draft, p_target)(rng)[1])
    assert_same_law(got, dict(enumerate(p_target)))


# ---- real draws

def fits(draws, expected, false_alarm=1e-12):
    """Return whether draws can be from a distribution.

    The answer is wrong for draws from the distribution with a probability of at most
    `false_alarm`.
    """
    counts = Counter(draws)
    n = len(draws)
    # Each outcome has its part of the false alarm.
    limit = log(2 * len(expected) / false_alarm)
    return all(surprise(n, counts[cell] / n, expected.get(cell, 0)) <= limit
               for cell in counts.keys() | expected.keys())


def test_real_draws_of_three_tokens_have_the_targets_joint_distribution(monkeypatch):
    draft, target = map(remembered, PAIRS["dense"])

    def texts():
        rng = np.random.default_rng(1)
        return [tuple(speculative_sampling([0], draft, target, 3, 2, rng)) for _ in range(4000)]

    right = text_law([0], target, 3)
    assert fits(texts(), right)
    monkeypatch.setattr(speculative, "residual", lambda p_target, p_draft: p_target)
    assert not fits(texts(), right)


# ---- GPT-2

PROMPTS = ["Once upon a time there was a", "It was dark. The girl"]


@pytest.fixture(scope="module")
def pair():
    """Return draft and target as functions that give logits, in float64."""
    return [remembered(GPT2(*bundled.weights(size))) for size in ("tales-small", "tales-large")]


@pytest.mark.parametrize("prompt, sampling", [*zip(PROMPTS, [
    dict(top_k=3), dict(top_k=4, top_p=0.8, temperature=0.7, repetition_penalty=1.3)])])
def test_the_bundled_pairs_next_three_tokens_have_the_targets_joint_distribution(
        pair, prompt, sampling):
    x = bundled.encoder().encode(prompt)
    draft, target = (remembered(with_sampling(model, **sampling)) for model in pair)
    got = law(lambda rng: speculative_sampling(x, draft, target, 3, 2, rng))
    assert_same_law(got, text_law(x, target, 3))
