"""Theorem 1 by enumeration: the joint law of speculative sampling is the target's, to 1e-12."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import warp
from speculative import (autoregressive_sampling, generate, guess, run, speculative_sampling,
                         speculative_step, verify)
from tests.enumerating import (branches, counted, distance, expectation, law, mapped, one_hot,
                               text_law, toy, ulp_away)

EXACT = 1e-12


def disjoint(n_vocab):
    """A draft and a target that never agree: even ids here, odd ids there."""
    even = np.arange(n_vocab) % 2 == 0
    keep = lambda mask: lambda row: (row + 1e-3) * mask / ((row + 1e-3) * mask).sum()
    return mapped(toy(n_vocab, 1), keep(even)), mapped(toy(n_vocab, 2), keep(~even))


PAIRS = {
    "dense": (toy(3, 1, zeros=0), toy(3, 2, zeros=0)),
    "sparse": (toy(3, 3, zeros=0.5), toy(3, 4, zeros=0.5)),
    "four tokens": (toy(4, 5), toy(4, 6)),
    "disjoint": disjoint(4),
    "equal": (toy(3, 7), toy(3, 7)),
    "one ulp away": (toy(3, 8, zeros=0), mapped(toy(3, 8, zeros=0), ulp_away)),
    "greedy draft": (mapped(toy(3, 9), one_hot), toy(3, 10)),
    "greedy target": (toy(3, 11), mapped(toy(3, 12), one_hot)),
    "both greedy": (mapped(toy(3, 13), one_hot), mapped(toy(3, 14), one_hot)),
}


@pytest.mark.parametrize("pair, K", [(pair, K) for pair in PAIRS for K in (1, 2, 3)
                                     if (pair, K) != ("four tokens", 3)])  # 10^6 branches
def test_speculative_sampling_has_the_targets_joint_law(pair, K):
    draft, target = PAIRS[pair]
    got = law(lambda rng: speculative_sampling([0], draft, target, K + 2, K, rng))
    assert distance(got, text_law([0], target, K + 2)) < EXACT


@pytest.mark.parametrize("pair", PAIRS)
def test_autoregressive_sampling_has_the_models_joint_law(pair):
    _, target = PAIRS[pair]
    got = law(lambda rng: autoregressive_sampling([0, 1], target, 4, rng))
    assert distance(got, text_law([0, 1], target, 4)) < EXACT


@pytest.mark.parametrize("K", [1, 2, 3])
def test_the_law_is_exact_to_the_last_bit_on_fractions(K):
    draft, target = toy(3, 21, exact=True), toy(3, 22, exact=True)
    got = law(lambda rng: speculative_sampling([0], draft, target, K + 1, K, rng))
    assert got == text_law([0], target, K + 1)


@pytest.mark.parametrize("stop", [{0}, {2}, {0, 2}, {0, 1, 2}])
@pytest.mark.parametrize("K", [1, 2, 3])
def test_a_stop_id_anywhere_in_a_round_keeps_the_law(K, stop):
    draft, target = PAIRS["dense"]
    got = law(lambda rng: speculative_sampling([0], draft, target, 4, K, rng, stop=stop))
    assert distance(got, text_law([0], target, 4, stop)) < EXACT


@pytest.mark.parametrize("N", [0, 1, 2, 3])
@pytest.mark.parametrize("K", [1, 2, 5])
def test_a_round_cut_by_N_keeps_the_law(N, K):
    draft, target = PAIRS["sparse"]
    got = law(lambda rng: speculative_sampling([1], draft, target, N, K, rng))
    assert distance(got, text_law([1], target, N)) < EXACT


KNOBS = [dict(temperature=0.5), dict(top_k=2), dict(top_p=0.7), dict(repetition_penalty=1.8),
         dict(temperature=2.0, top_k=3, top_p=0.8, repetition_penalty=1.3), dict(temperature=0)]


@pytest.mark.parametrize("sides", ["draft", "target", "both"])
@pytest.mark.parametrize("knobs", KNOBS, ids=str)
def test_sampling_knobs_on_either_side_keep_the_warped_targets_law(knobs, sides):
    def with_knobs(model):  # the toy's rows, shifted, serve as logits
        return lambda ids, n_last=1: warp(4 * model(ids, n_last) - 40, ids=ids, **knobs)

    def plain(model):
        return lambda ids, n_last=1: warp(4 * model(ids, n_last) - 40, ids=ids)

    draft = (plain if sides == "target" else with_knobs)(toy(4, 31))
    target = (plain if sides == "draft" else with_knobs)(toy(4, 32))
    got = law(lambda rng: speculative_sampling([0], draft, target, 3, 2, rng))
    assert distance(got, text_law([0], target, 3)) < EXACT


def test_a_K_that_depends_on_the_past_keeps_the_law():
    draft, target = PAIRS["dense"]

    def step(x, room, rng):
        return speculative_step(x, room, rng, draft, target, K=1 + (sum(x) + len(x)) % 3)

    got = law(lambda rng: run([0], step, 4, rng))
    assert distance(got, text_law([0], target, 4)) < EXACT


@pytest.mark.parametrize("pair", PAIRS)
def test_verify_is_lossless(pair):
    """One round, then the target alone: the joint law of k + 1 tokens is the target's."""
    draft, target = PAIRS[pair]

    def two_guesses_then_target(rng):
        x = [0]
        guesses, p_draft = guess(x, draft, 2, rng)
        ids = verify(guesses, p_draft, target(x + guesses, 3), rng)
        return autoregressive_sampling(x + ids, target, 3 - len(ids), rng)

    assert distance(law(two_guesses_then_target), text_law([0], target, 3)) < EXACT


weights = st.lists(st.integers(0, 20), min_size=3, max_size=5).filter(any)


@st.composite
def pair_of_rows(draw):
    """Two laws over one vocabulary of 3 to 5 tokens, as Fractions, zeros included."""
    first = draw(weights)
    second = draw(st.lists(st.integers(0, 20), min_size=len(first), max_size=len(first)).filter(any))
    return [np.array([Fraction(w, sum(row)) for w in row], dtype=object) for row in (first, second)]


@given(pair_of_rows())
@settings(deadline=None)
def test_one_guess_verified_has_the_targets_law_on_any_pair_of_rows(rows):
    p_draft, p_target = rows

    def one_round(rng):
        guesses, laws = guess([0], lambda ids, n_last: [p_draft], 1, rng)
        return verify(guesses, laws, [p_target, p_target], rng)[0]

    assert law(one_round) == {token: p for token, p in enumerate(p_target) if p > 0}


@given(pair_of_rows())
@settings(deadline=None)
def test_a_guess_is_accepted_with_the_mass_that_the_two_laws_share(rows):
    p_draft, p_target = rows

    def accepted(rng):
        guesses, laws = guess([0], lambda ids, n_last: [p_draft], 1, rng)
        return len(verify(guesses, laws, [p_target, p_target], rng)) - 1

    shared = sum(np.minimum(p_draft, p_target))
    assert law(accepted).get(1, 0) == shared
    assert shared == 1 - sum(abs(p_draft - p_target)) / 2


@given(pair_of_rows(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_no_token_comes_out_that_the_target_gives_no_chance(rows, seed):
    p_draft, p_target = (row.astype(float) for row in rows)
    rng = np.random.default_rng(seed)
    guesses, laws = guess([0], lambda ids, n_last: [p_draft], 3, rng)
    for t, token in enumerate(verify(guesses, laws, [p_target] * 4, rng)):
        assert p_target[token] > 0


@given(st.integers(0, 20), st.integers(1, 8), st.integers(0, 99))
@settings(deadline=None)
def test_exactly_N_new_ids_come(N, K, seed):
    x = [2, 0]
    out = speculative_sampling(x, *PAIRS["dense"], N, K, np.random.default_rng(seed))
    assert out[:2] == x and len(out) == 2 + N and x == [2, 0]


@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 99))
@settings(deadline=None)
def test_an_equal_draft_needs_the_fewest_target_passes(N, K, seed):
    target = counted(PAIRS["dense"][1])
    speculative_sampling([0], PAIRS["dense"][1], target, N, K, np.random.default_rng(seed))
    assert len(target.calls) == -(-N // (K + 1))


def test_one_target_pass_a_round_and_one_draft_call_a_guess():
    draft, target = map(counted, PAIRS["dense"])
    rounds = list(generate([0], lambda x, room, rng: speculative_step(x, room, rng, draft, target, 3),
                           20, np.random.default_rng(0)))
    assert len(target.calls) == len(rounds)
    assert target.calls == [len(round.guesses) + 1 for round in rounds]
    assert draft.calls == [1] * sum(len(round.guesses) for round in rounds)


def test_rows_of_a_round_are_fresh_calls_on_their_prefixes():
    draft, target = PAIRS["dense"]
    x = [0]
    for round in generate(x, lambda x, room, rng: speculative_step(x, room, rng, draft, target, 3),
                          12, np.random.default_rng(0)):
        for t, row in enumerate(round.p_draft):
            assert (row == draft(x + round.guesses[:t], 1)[-1]).all()
        for t, row in enumerate(round.p_target):
            assert (row == target(x + round.guesses[:t], 1)[-1]).all()
        x = x + round.ids


def test_tokens_per_round_are_what_the_acceptance_says():
    """With context-free laws E[ids a round] = (1 - alpha^(K+1)) / (1 - alpha). Leviathan Eq. 1."""
    p_draft, p_target = PAIRS["dense"][0]([0])[0], PAIRS["dense"][1]([0])[0]
    draft = lambda ids, n_last: np.array([p_draft] * n_last)
    target = lambda ids, n_last: np.array([p_target] * n_last)
    alpha, K = np.minimum(p_draft, p_target).sum(), 3
    mean = expectation(lambda rng: speculative_step([0], 9, rng, draft, target, K), lambda r: len(r.ids))
    assert mean == pytest.approx((1 - alpha ** (K + 1)) / (1 - alpha), abs=EXACT)


def test_the_enumeration_sees_a_uniform_used_twice():
    def twice(rng):
        u = rng.random()
        return bool(u < 0.5), bool(u < 0.25)

    assert law(twice) == {(True, True): 0.25, (True, False): 0.25, (False, False): 0.5}


def test_the_enumeration_refuses_hidden_state_hidden_generators_and_endless_runs():
    calls = []

    def remembers(rng):
        calls.append(rng)
        return bool(rng.random() < 1 / (1 + len(calls)))

    def never_ends(rng):
        while True:
            bool(rng.random() < 0.5)

    for function in (remembers, never_ends, lambda rng: np.random.default_rng().random()):
        with pytest.raises(AssertionError):
            list(branches(function))


@pytest.mark.parametrize("call, message", [
    (lambda rng: speculative_sampling([], *PAIRS["dense"], 3, 2, rng), "at least one id"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], 3, 0, rng), "K >= 1"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], -1, 2, rng), "N >= 0"),
    (lambda rng: speculative_sampling([0], toy(3, 0), toy(4, 0), 3, 2, rng), "one vocabulary"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], 3, 2, None), "Generator"),
    (lambda rng: verify([0], [], [[1.0]], rng), "k rows"),
    (lambda rng: verify([1], [[1.0, 0.0]], [[0.5, 0.5]] * 2, rng), "was drawn from"),
    (lambda rng: autoregressive_sampling([], toy(3, 0), 3, rng), "at least one id"),
])
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
