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
from functools import partial
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

@st.composite
def pair_of_rows(draw):
    """Draw two distributions over 3 to 6 tokens, as Fractions, zeros included."""
    n_vocab = draw(st.integers(3, 6))
    weights = st.lists(st.integers(0, 20), min_size=n_vocab, max_size=n_vocab).filter(any)
    return normalised(draw(weights), draw(weights))


def normalised(*rows):
    return [np.array([Fraction(w, sum(row)) for w in row], dtype=object) for row in rows]


def for_any_pair_of_rows(test):
    """Run a test on Hypothesis' pairs of rows, a disjoint, an equal and a one-hot pair."""
    for rows in ([[1, 0, 2], [0, 3, 0]], [[1, 2, 3], [1, 2, 3]], [[0, 1, 0], [1, 1, 1]]):
        test = example(normalised(*rows))(test)
    return settings(max_examples=40)(given(pair_of_rows())(test))


def one_guess(p_draft, p_target):
    """Return a function of rng that tests one guess: (accepted: 0 or 1, first token)."""
    def one_round(rng):
        guesses, rows = guess([0], 1, rng, context_free(p_draft))
        ids = verify(guesses, rows, [p_target, p_target], rng)
        return len(ids) - 1, ids[0]

    return one_round


def surplus_of(p_draft, p_target):
    return np.maximum(p_target - p_draft, 0)


@for_any_pair_of_rows
def test_a_guess_is_x_and_accepted_with_the_smaller_of_its_two_probabilities(rows):
    got = law(one_guess(*rows))
    assert [got.get((1, x), 0) for x in range(len(rows[0]))] == np.minimum(*rows).tolist()


@for_any_pair_of_rows
def test_a_guess_is_rejected_with_the_mass_that_the_two_distributions_do_not_share(rows):
    got = law(one_guess(*rows))
    rejected = sum(p for (n_accepted, _), p in got.items() if n_accepted == 0)
    assert rejected == 1 - np.minimum(*rows).sum() == surplus_of(*rows).sum()


@for_any_pair_of_rows
def test_a_rejected_guess_is_replaced_by_x_with_the_surplus_of_the_target_at_x(rows):
    p_draft, p_target = rows
    surplus = surplus_of(*rows)
    got = law(one_guess(*rows))
    assert [got.get((0, x), 0) for x in range(len(p_target))] == surplus.tolist()
    if surplus.any():
        assert (residual(p_target, p_draft) * surplus.sum() == surplus).all()


@for_any_pair_of_rows
def test_accepted_guesses_and_their_replacements_sum_to_the_targets_distribution(rows):
    p_target = rows[1]
    assert (np.minimum(*rows) + surplus_of(*rows) == p_target).all()
    got = law(lambda rng: one_guess(*rows)(rng)[1])
    assert_same_law(got, dict(enumerate(p_target)), tolerance=0)


@for_any_pair_of_rows
def test_the_acceptance_rate_is_1_minus_TV_and_1_minus_D_LK(rows):
    p_draft, p_target = rows
    alpha = np.minimum(*rows).sum()
    assert alpha == 1 - abs(p_target - p_draft).sum() / 2  # TV
    assert alpha == 1 - abs(p_target - (p_target + p_draft) / 2).sum()  # D_LK
    assert acceptance_rate(p_target, p_draft) == pytest.approx(float(alpha), abs=1e-12)


@given(st.integers(0, 2**16), st.integers(3, 4), st.integers(1, 3), st.integers(0, 3))
@settings(max_examples=25)
def test_the_rounds_products_sum_to_the_targets_joint_distribution(seed, n_vocab, K, N):
    """No code of the algorithm here: the induction over guesses and rounds is algebra."""
    draft, target = (toy(n_vocab, seed + i, exact=True) for i in range(2))
    one_round = partial(round_law, draft=draft, target=target)
    assert composed_law([0], one_round, N, K) == text_law([0], target, N)


tiny = st.floats(1e-300, 1) | st.sampled_from([0.0, 1.0, 1e-9, 0.5, np.nextafter(0.5, 1)])


@given(st.lists(st.tuples(tiny, tiny), min_size=3, max_size=6))
def test_in_floats_the_distribution_of_one_token_is_the_targets_too(weights):
    rows = [np.array(row) for row in zip(*weights)]
    assume(all(row.any() for row in rows))
    p_draft, p_target = (row / row.sum() for row in rows)
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
    """Return the smallest and the largest share of n draws that `check` accepts for p."""
    def is_accepted(share):
        return n * coin_divergence(share, p) <= surprise_limit(cells, FALSE_ALARM)

    return [bisected(p, end, is_accepted)[1] for end in (0.0, 1.0)]  # the first that is refused


def miss(wrong, right, n):
    """Return an upper bound of the probability that `check` accepts n draws from `wrong`."""
    bounds = [1.0]
    for cell in wrong.keys() | right.keys():
        low, high = edges(right.get(cell, 0), n, len(right))
        p = wrong.get(cell, 0)
        if not low <= p <= high:
            bounds.append(math.exp(-n * coin_divergence(high if p > high else low, p)))
    return min(bounds)


def drawn(function, n, seed):
    rng = np.random.default_rng(seed)
    return [function(rng) for _ in range(n)]


@given(pair_of_rows(), st.integers(0, 2**64 - 1))
@settings(max_examples=15, database=None, phases=[Phase.generate])
def test_real_draws_accept_and_replace_guesses_with_the_exact_probabilities(rows, seed):
    p_draft, p_target = (row.astype(float) for row in rows)
    outcomes = drawn(one_guess(p_draft, p_target), 1000, seed)
    rows = {1: np.minimum(p_draft, p_target), 0: surplus_of(p_draft, p_target)}
    check(outcomes, {(k, x): p for k, row in rows.items() for x, p in enumerate(row)})
    check([x for _, x in outcomes], dict(enumerate(p_target)))
    check([k for k, _ in outcomes], {k: row.sum() for k, row in rows.items()})


@pytest.mark.parametrize("pair", ["dense", "four tokens", "disjoint", "greedy draft"])
def test_real_draws_of_three_tokens_have_the_targets_joint_distribution(pair):
    draft, target = PAIRS[pair]
    new_text = lambda rng: tuple(speculative_sampling([0], draft, target, 3, 2, rng))
    check(drawn(new_text, 2000, 1), text_law([0], target, 3))


FAULTS = {
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
    low, high = edges(0.3, 1000, 2)
    for share in (low + 1e-3, high - 1e-3):
        assert 1000 * coin_divergence(share, 0.3) <= surprise_limit(2, FALSE_ALARM)
    for share in (low - 1e-3, high + 1e-3):
        assert 1000 * coin_divergence(share, 0.3) > surprise_limit(2, FALSE_ALARM)
    assert miss({0: 0.3, 1: 0.7}, {0: 0.3, 1: 0.7}, 1000) == 1


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
