"""Theorem 1: each step of docs/proof.md, then real draws, then the bundled pair.

The steps are checked on exact Fractions, with `==`. Real draws are checked against the exact law
with a bound whose chance of a false alarm is known:

Of n independent draws, `count` fall into a cell of probability p. Chernoff's bound (Hoeffding 1963,
Theorem 1; exact for every n) says that a count which lies as far from n p as this one, on the same
side, has a probability of at most exp(-n KL(count / n, p)), where KL(a, p) = a log(a / p) +
(1 - a) log((1 - a) / (1 - p)). `check` refuses a law if for any of its cells n KL exceeds
log(2 cells / FALSE_ALARM): two sides, `cells` cells, so by the union bound it refuses the true law
with a probability of at most FALSE_ALARM = 1e-12. It may be called MAX_CHECKS = 900 times in a run,
after which it fails loudly: no run raises a false alarm with a probability above 9e-10 < 1e-9.
(PCG64's streams of different seeds are taken as independent, as always. Only Hypothesis varies the
seeds; the other checks here have fixed ones.)

`miss` turns the bound around: the probability that a given wrong law passes. For the planted faults
below it is less than FALSE_ALARM too.
"""

import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

import speculative
from exact.law import law, rounds_law, text_law
from gpt2 import GPT2
from lib.checkpoints.weights import random_params
from sampling import residual, with_sampling
from speculative import guess, speculative_sampling, verify
from tests import bundled
from tests.distributions import assert_same_law, round_law
from tests.toys import PAIRS, remembered, toy
from theory.speedup import acceptance_rate

FALSE_ALARM, MAX_CHECKS = 1e-12, 900
CHECKS = itertools.count(1)


# ---- the steps of the proof, on Fractions

@st.composite
def pair_of_rows(draw):
    """Two laws over one vocabulary of 3 to 6 tokens, as Fractions, zeros included."""
    n_vocab = draw(st.integers(3, 6))
    weights = st.lists(st.integers(0, 20), min_size=n_vocab, max_size=n_vocab).filter(any)
    return as_laws(draw(weights), draw(weights))


def as_laws(*rows):
    return [np.array([Fraction(weight, sum(row)) for weight in row], dtype=object) for row in rows]


def for_any_pair_of_rows(test):
    """Hypothesis' pairs of rows, and always a disjoint, an equal and a one-hot pair."""
    for rows in ([[1, 0, 2], [0, 3, 0]], [[1, 2, 3], [1, 2, 3]], [[0, 1, 0], [1, 1, 1]]):
        test = example(as_laws(*rows))(test)
    return given(pair_of_rows())(settings(deadline=None)(test))


def one_guess(p_draft, p_target):
    """A function of rng: draw one guess, verify it. Returns (guesses kept: 0 or 1, first id)."""
    def one_round(rng):
        guesses, laws = guess([0], 1, rng, lambda ids, n_last: [p_draft])
        ids = verify(guesses, laws, [p_target, p_target], rng)
        return len(ids) - 1, ids[0]

    return one_round


@for_any_pair_of_rows
def test_a_guess_is_x_and_kept_with_the_smaller_of_its_two_probabilities(rows):
    got = law(one_guess(*rows))
    assert [got.get((1, x), 0) for x in range(len(rows[0]))] == np.minimum(*rows).tolist()


@for_any_pair_of_rows
def test_a_guess_is_rejected_with_the_mass_that_the_two_laws_do_not_share(rows):
    p_draft, p_target = rows
    rejected = sum(chance for (kept, _), chance in law(one_guess(*rows)).items() if not kept)
    assert rejected == 1 - np.minimum(*rows).sum() == np.maximum(p_target - p_draft, 0).sum()


@for_any_pair_of_rows
def test_a_rejected_guess_is_replaced_by_x_with_the_surplus_of_the_target_at_x(rows):
    p_draft, p_target = rows
    surplus, got = np.maximum(p_target - p_draft, 0), law(one_guess(*rows))
    assert [got.get((0, x), 0) for x in range(len(p_target))] == surplus.tolist()
    if surplus.any():
        assert (residual(p_target, p_draft) * surplus.sum() == surplus).all()


@for_any_pair_of_rows
def test_what_is_kept_and_what_replaces_it_sum_to_the_targets_law(rows):
    p_draft, p_target = rows
    assert (np.minimum(*rows) + np.maximum(p_target - p_draft, 0) == p_target).all()
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
@settings(deadline=None, max_examples=25)
def test_the_rounds_products_sum_to_the_targets_joint_law(seed, n_vocab, K, N):
    """No code of the algorithm here: the induction over guesses and rounds is algebra."""
    draft, target = toy(n_vocab, seed, exact=True), toy(n_vocab, seed + 1, exact=True)
    one_round = partial(round_law, draft=draft, target=target)
    total = Counter()
    for (text, _), chance in rounds_law([0], one_round, N, K).items():
        total[text] += chance
    assert total == text_law([0], target, N)


tiny = st.floats(1e-300, 1) | st.sampled_from([0.0, 1.0, 1e-9, 0.5, np.nextafter(0.5, 1)])


@given(st.lists(st.tuples(tiny, tiny), min_size=3, max_size=6))
@settings(deadline=None)
def test_in_floats_the_law_of_one_token_is_the_targets_too(weights):
    rows = [np.array(row) for row in zip(*weights)]
    assume(all(row.any() for row in rows))
    p_draft, p_target = (row / row.sum() for row in rows)
    got = law(lambda rng: one_guess(p_draft, p_target)(rng)[1])
    assert_same_law(got, dict(enumerate(p_target)))


def test_every_test_that_the_proof_names_exists():
    root = Path(__file__).parent.parent
    proof = (root / "docs" / "proof.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"^\[(\w+)\]: \.\./(tests/\w+\.py)$", proof, re.MULTILINE))
    named = re.findall(r"\[`(test_\w+)`\]\[(\w+)\]", proof)
    assert len(named) == proof.count("`test_") >= 20
    for name, label in named:
        source = (root / files[label]).read_text(encoding="utf-8")
        assert f"def {name}(" in source, f"{files[label]} has no {name}"


# ---- the bound for real draws

def kl(a, p):
    """KL of two coins, a from p: infinite if a coin of chance p cannot look like a."""
    parts = [(a, p), (1 - a, 1 - p)]
    if any(seen > 0 and chance <= 0 for seen, chance in parts):
        return math.inf
    return sum(seen * math.log(seen / chance) for seen, chance in parts if seen > 0)


def limit(cells):
    return math.log(2 * cells / FALSE_ALARM)


def check(outcomes, expected):
    """Refuse the outcomes if they are not draws from `expected`; see the head of this file."""
    assert next(CHECKS) <= MAX_CHECKS, "more checks than the false-alarm bound allows for"
    counts, n = Counter(outcomes), len(outcomes)
    for cell in counts.keys() | expected.keys():
        chance = min(expected.get(cell, 0), 1)
        surprise = n * kl(counts[cell] / n, chance)
        assert surprise <= limit(len(expected)), f"{cell}: {counts[cell]} of {n}, not {chance:.3g}"


def edges(p, n, cells):
    """The smallest and the largest share of n draws that `check` lets pass for a chance p."""
    low, high = (0.0, p), (p, 1.0)
    for _ in range(60):
        middle = sum(low) / 2
        low = (low[0], middle) if n * kl(middle, p) <= limit(cells) else (middle, low[1])
        middle = sum(high) / 2
        high = (middle, high[1]) if n * kl(middle, p) <= limit(cells) else (high[0], middle)
    return low[0], high[1]


def miss(wrong, right, n):
    """No more than this is the probability that n draws from `wrong` pass for `right`."""
    chances = [1.0]
    for cell in wrong.keys() | right.keys():
        low, high = edges(right.get(cell, 0), n, len(right))
        chance = wrong.get(cell, 0)
        if not low <= chance <= high:
            chances.append(math.exp(-n * kl(high if chance > high else low, chance)))
    return min(chances)


def kept_and_replaced(kept, surplus):
    """The law of (guesses kept: 0 or 1, first id) from its two rows."""
    return {(1, x): p for x, p in enumerate(kept)} | {(0, x): p for x, p in enumerate(surplus)}


def drawn(function, n, seed):
    rng = np.random.default_rng(seed)
    return [function(rng) for _ in range(n)]


@given(pair_of_rows(), st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=40, database=None, phases=[Phase.generate])
def test_real_draws_keep_and_replace_guesses_as_the_law_says(rows, seed):
    p_draft, p_target = (row.astype(float) for row in rows)
    outcomes = drawn(one_guess(p_draft, p_target), 1000, seed)
    kept, surplus = np.minimum(p_draft, p_target), np.maximum(p_target - p_draft, 0)
    check(outcomes, kept_and_replaced(kept, surplus))
    check([x for _, x in outcomes], dict(enumerate(p_target)))
    check([k for k, _ in outcomes], {1: kept.sum(), 0: surplus.sum()})


@pytest.mark.parametrize("pair", ["dense", "four tokens", "disjoint", "greedy draft"])
def test_real_draws_of_three_tokens_have_the_targets_joint_law(pair):
    draft, target = PAIRS[pair]
    check(drawn(lambda rng: tuple(speculative_sampling([0], draft, target, 3, 2, rng)), 2000, 1),
          text_law([0], target, 3))


FAULTS = {
    "resample from p_target": (speculative, "residual", lambda p_target, p_draft: p_target),
    "residual reversed": (
        speculative, "residual", lambda p_target, p_draft: residual(p_draft, p_target)),
    "keep every guess": (speculative, "accept", lambda prob, rng: True),
    "keep no guess": (speculative, "accept", lambda prob, rng: False),
    "keep half of what may be kept": (
        speculative, "accept", lambda prob, rng: bool(rng.random() < prob / 2)),
    "most probable guess": (
        guess, "__defaults__", (lambda probs, rng: int(np.argmax(probs)),)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_real_draws_show_a_planted_fault_almost_surely(fault):
    p_draft, p_target = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    token = lambda rng: one_guess(p_draft, p_target)(rng)[1]
    right = dict(enumerate(p_target))
    with mock.patch.object(*FAULTS[fault]):
        wrong, outcomes = law(token), drawn(token, 4000, 1)
    assert miss(wrong, right, 4000) < FALSE_ALARM
    with pytest.raises(AssertionError, match=" of 4000, not "):
        check(outcomes, right)
    check(drawn(token, 4000, 1), right)


def test_the_edges_of_the_bound_are_where_check_turns():
    low, high = edges(0.3, 1000, 2)
    for share in (low + 1e-3, high - 1e-3):
        assert 1000 * kl(share, 0.3) <= limit(2)
    for share in (low - 1e-3, high + 1e-3):
        assert 1000 * kl(share, 0.3) > limit(2)
    assert miss({0: 0.3, 1: 0.7}, {0: 0.3, 1: 0.7}, 1000) == 1


# ---- GPT-2

def test_the_law_is_the_same_through_a_cache_as_through_models_that_remember_nothing():
    """The enumeration calls the models in an order full of rewinds."""
    hparams = dict(n_vocab=3, n_ctx=8, n_embd=4, n_head=2, n_layer=2)
    params = [random_params(hparams, np.random.default_rng(seed), np.float64) for seed in (1, 2)]
    draft, target = (with_sampling(remembered(GPT2(p, 2)), temperature=0.01) for p in params)
    fresh = with_sampling(lambda ids, n_last: GPT2(params[1], 2)(ids, n_last), temperature=0.01)
    got = law(lambda rng: speculative_sampling([0], draft, target, 4, 2, rng))
    assert_same_law(got, text_law([0], fresh, 4))


PROMPTS = ["Once upon a time there was a", "The king said", "\"I am", "It was dark. The girl"]


@pytest.fixture(scope="module")
def pair():
    """The encoder, and draft and target as functions that give logits, in float64."""
    return bundled.encoder(), *(remembered(GPT2(*bundled.weights(size)))
                                for size in ("tales-small", "tales-large"))


@pytest.mark.parametrize("knobs", [dict(top_k=3), dict(top_k=4, top_p=0.8, temperature=0.7,
                                                       repetition_penalty=1.3)], ids=str)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_bundled_pairs_next_three_tokens_have_the_targets_joint_law(pair, prompt, knobs):
    encoder, draft, target = pair
    x = encoder.encode(prompt)
    draft, target = (remembered(with_sampling(model, **knobs)) for model in (draft, target))
    got = law(lambda rng: speculative_sampling(x, draft, target, 3, 2, rng))
    assert_same_law(got, text_law(x, target, 3))
