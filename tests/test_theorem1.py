"""Theorem 1: each step of docs/proof.md, then real draws, then the bundled pair.

The steps are checked on exact Fractions, with `==`. Real draws are checked against the exact
distribution with a bound whose probability of a false alarm is known:

Of n independent draws, `count` fall into a cell of probability p. By Chernoff's bound
(Hoeffding 1963, Theorem 1; valid for every n) a count as far from n p as this one, on the same
side, has a probability of at most exp(-n KL(count / n, p)), where KL(a, p) = a log(a / p) +
(1 - a) log((1 - a) / (1 - p)). `check` refuses a distribution if n KL exceeds
log(2 cells / FALSE_ALARM) for any of its cells: two sides, `cells` cells, so by the union bound
it refuses the true distribution with a probability of at most FALSE_ALARM = 1e-12. More than
MAX_CHECKS = 900 calls in a run fail, so no run raises a false alarm with a probability above
9e-10 < 1e-9. (PCG64's streams of different seeds are taken as independent. Only Hypothesis
varies the seeds; the other checks have fixed ones.)

`miss` bounds the probability that a given wrong distribution passes. For the planted faults
below it is less than FALSE_ALARM too.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

import speculative
from exact.law import composed_law, law, text_law
from gpt2 import GPT2
from lib.statistics import bisected, coin_divergence, surprise_limit
from sampling import residual, with_sampling
from speculative import guess, speculative_sampling, verify
from tests import bundled
from tests.distributions import assert_same_law, round_law
from tests.small import lively_params
from tests.toys import PAIRS, context_free, remembered, toy
from theory.speedup import acceptance_rate

FALSE_ALARM = 1e-12
MAX_CHECKS = 900
CHECKS = itertools.count(1)


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


@given(st.integers(0, 2**16), st.integers(3, 4), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=25)
def test_the_rounds_products_sum_to_the_targets_joint_distribution(seed, n_vocab, K, N):
    """No code of the algorithm here: the induction over guesses and rounds is algebra."""
    draft, target = (toy(n_vocab, seed + i, exact=True) for i in range(2))

    def one_round(x, memory, n_left):
        ids_law = round_law(list(x), min(K, n_left - 1), draft, target)
        return {(ids, memory): p for ids, p in ids_law.items()}

    texts = {text: p for (text, _), p in composed_law([0], one_round, N).items()}
    assert texts == text_law([0], target, N)


tiny = st.floats(1e-300, 1) | st.sampled_from([0.0, 1.0, 1e-9, 0.5, np.nextafter(0.5, 1)])


@given(st.lists(st.tuples(tiny, tiny), min_size=3, max_size=6))
def test_in_floats_the_distribution_of_one_token_is_the_targets_too(weights):
    rows = np.array(weights).T
    assume(rows.any(axis=1).all())
    p_draft, p_target = rows / rows.sum(axis=1, keepdims=True)
    got = law(lambda rng: one_guess(p_draft, p_target)(rng)[1])
    assert_same_law(got, dict(enumerate(p_target)))


# ---- the bound for real draws

def check(outcomes, expected):
    """Refuse the outcomes if they are not draws from `expected`; see the head of this file."""
    assert next(CHECKS) <= MAX_CHECKS, "more checks than the false-alarm bound allows for"
    counts = Counter(outcomes)
    n = len(outcomes)
    for cell in counts.keys() | expected.keys():
        p = min(expected.get(cell, 0), 1)
        surprise = n * coin_divergence(counts[cell] / n, p)
        what = f"{cell}: {counts[cell]} of {n}, not {p:.3g}"
        assert surprise <= surprise_limit(len(expected), FALSE_ALARM), what


def edges(p, n, cells):
    """Return the shares of n draws, below p and above it, at which `check` begins to refuse."""
    def is_accepted(share):
        return n * coin_divergence(share, p) <= surprise_limit(cells, FALSE_ALARM)

    _, low = bisected(p, 0.0, is_accepted)
    _, high = bisected(p, 1.0, is_accepted)
    return low, high


def miss(wrong, right, n):
    """Return an upper bound of the probability that `check` accepts n draws from `wrong`."""
    bounds = [1.0]
    for cell in wrong.keys() | right.keys():
        low, high = edges(right.get(cell, 0), n, len(right))
        p = wrong.get(cell, 0)
        if p < low:
            bounds.append(math.exp(-n * coin_divergence(low, p)))
        if p > high:
            bounds.append(math.exp(-n * coin_divergence(high, p)))
    return min(bounds)


def drawn(function, n, seed):
    rng = np.random.default_rng(seed)
    return [function(rng) for _ in range(n)]


@given(pair_of_rows(), st.integers(0, 2**64 - 1))
@settings(max_examples=15, database=None, phases=[Phase.generate])
def test_real_draws_accept_and_replace_guesses_with_the_exact_probabilities(rows, seed):
    p_draft, p_target = (row.astype(float) for row in rows)
    alpha = np.minimum(p_draft, p_target).sum()
    outcomes = drawn(one_guess(p_draft, p_target), 1000, seed)
    check(outcomes, law_of_one_guess(p_draft, p_target))
    check([token for _, token in outcomes], dict(enumerate(p_target)))
    check([accepted for accepted, _ in outcomes], {1: alpha, 0: 1 - alpha})


@pytest.mark.parametrize("pair", ["dense", "four tokens", "disjoint", "greedy draft"])
def test_real_draws_of_three_tokens_have_the_targets_joint_distribution(pair):
    draft, target = PAIRS[pair]
    new_text = lambda rng: tuple(speculative_sampling([0], draft, target, 3, 2, rng))
    check(drawn(new_text, 2000, 1), text_law([0], target, 3))


FAULTS = {  # what `mock.patch.object` replaces
    "resample from p_target": (speculative, "residual", lambda p_target, p_draft: p_target),
    "residual reversed": (
        speculative, "residual", lambda p_target, p_draft: residual(p_draft, p_target)),
    "accept every guess": (speculative, "accept", lambda prob, rng: True),
    "accept no guess": (speculative, "accept", lambda prob, rng: False),
    "accept with half the probability": (
        speculative, "accept", lambda prob, rng: bool(rng.random() < prob / 2)),
    "most probable guess": (
        guess, "__defaults__", (lambda probs, rng: int(np.argmax(probs)),)),
}


P_DRAFT, P_TARGET = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])


def first_token(rng):
    return one_guess(P_DRAFT, P_TARGET)(rng)[1]


@pytest.mark.parametrize("fault", FAULTS)
def test_real_draws_show_a_planted_fault(fault):
    right = dict(enumerate(P_TARGET))
    with mock.patch.object(*FAULTS[fault]):
        wrong = law(first_token)
        outcomes = drawn(first_token, 4000, 1)
    assert miss(wrong, right, 4000) < FALSE_ALARM
    with pytest.raises(AssertionError, match=" of 4000, not "):
        check(outcomes, right)


def test_real_draws_without_a_fault_pass():
    check(drawn(first_token, 4000, 1), dict(enumerate(P_TARGET)))


def test_the_edges_of_the_bound_are_where_check_turns():
    right = {0: 0.3, 1: 0.7}
    n = 1000
    low, high = edges(0.3, n, len(right))
    for n_zeros in (math.ceil(n * low), math.floor(n * high)):
        check([0] * n_zeros + [1] * (n - n_zeros), right)
    for n_zeros in (math.ceil(n * low) - 1, math.floor(n * high) + 1):
        with pytest.raises(AssertionError):
            check([0] * n_zeros + [1] * (n - n_zeros), right)
    assert miss(right, right, n) == 1


# ---- GPT-2

def test_models_with_a_cache_have_the_distribution_of_models_without_one():
    """The enumeration calls the models with many rewinds."""
    hparams = dict(n_vocab=3, n_ctx=8, n_embd=4, n_head=2, n_layer=2)
    params = [lively_params(hparams, seed, scale=1) for seed in (1, 2)]
    draft, target = (with_sampling(remembered(GPT2(p, 2))) for p in params)
    fresh = with_sampling(lambda ids, n_last: GPT2(params[1], 2)(ids, n_last))
    got = law(lambda rng: speculative_sampling([0], draft, target, 4, 2, rng))
    assert_same_law(got, text_law([0], fresh, 4))


PROMPTS = ["Once upon a time there was a", "The king said", "\"I am", "It was dark. The girl"]


@pytest.fixture(scope="module")
def pair():
    """Return draft and target as functions that give logits, in float64."""
    return [remembered(GPT2(*bundled.weights(size))) for size in ("tales-small", "tales-large")]


@pytest.mark.parametrize("sampling", [
    dict(top_k=3), dict(top_k=4, top_p=0.8, temperature=0.7, repetition_penalty=1.3)], ids=str)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_bundled_pairs_next_three_tokens_have_the_targets_joint_distribution(
        pair, prompt, sampling):
    x = bundled.encoder().encode(prompt)
    draft, target = (remembered(with_sampling(model, **sampling)) for model in pair)
    got = law(lambda rng: speculative_sampling(x, draft, target, 3, 2, rng))
    assert_same_law(got, text_law(x, target, 3))
