"""Jacobi: the fixed-point view itself, the joint distribution, and what the block carries over."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from exact.law import Scripted, assert_same_law, expectation, law, text_law
from exact.toys import PAIRS, mapped, one_hot, toy
from sampling import one_hot_rows, warp
from speculative import autoregressive_sampling, autoregressive_step, complete, generate
from variants.jacobi import jacobi
from variants.shared.long_context import windowed

TARGETS = {name: target for name, (_, target) in PAIRS.items()} | {
    "dense, greedy": mapped(toy(3, 2, zeros=0), one_hot)}


def rounds_of(target, K, x, N, n_vocab, seed=0):
    step = jacobi(target, K, n_vocab)
    return list(generate(x, step, N, np.random.default_rng(seed)))


def greedy_text(target, x, N):
    return autoregressive_sampling(x, target, N, np.random.default_rng(0))[len(x) :]


# ---- the equations

GREEDY = mapped(toy(3, 21, zeros=0), one_hot)
X, K = [0, 2], 4
BLOCKS = [list(block) for block in product(range(3), repeat=K)]


def F(block):
    """One pass: the target's best token at every place of the block."""
    return GREEDY(X + block, K + 1)[:-1].argmax(axis=-1).tolist()


def test_greedy_decoding_is_the_only_fixed_point():
    assert [block for block in BLOCKS if F(block) == block] == [greedy_text(GREEDY, X, K)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_pass_makes_one_more_token_right_from_any_block(block):
    text = greedy_text(GREEDY, X, K)
    for passes in range(1, K + 1):
        block = F(block)
        assert block[:passes] == text[:passes]


@pytest.mark.parametrize("seed", range(8))
def test_every_pass_gives_a_token_and_the_rest_of_F_is_guessed_next(seed):
    rounds, n_left = rounds_of(toy(4, seed), 4, [seed % 4], 30, 4, seed), 30
    for before, after in zip(rounds, rounds[1:]):
        n_left -= len(before.ids)
        carried = before.p_target[len(before.ids) :].argmax(axis=-1).tolist()
        assert len(before.ids) >= 1 and len(after.guesses) == min(4, n_left - 1)
        assert after.guesses[: len(carried)] == carried[: len(after.guesses)]


@pytest.mark.parametrize("K", range(1, 5))
def test_what_depends_on_no_neighbour_is_solved_in_one_pass_and_seen_in_the_next(K):
    places = lambda ids, n_last: one_hot_rows(range(len(ids) + 1 - n_last, len(ids) + 1), 50)
    rounds = rounds_of(places, K, [0], 4 * (K + 2), 50)
    assert [len(round.ids) for round in rounds] == [1, K + 1] * 4


def test_a_text_that_stands_still_needs_the_fewest_passes():
    still = lambda ids, n_last: one_hot_rows([2] * n_last, 3)
    assert [len(round.ids) for round in rounds_of(still, 3, [2], 20, 3)] == [4] * 5


# ---- the distribution

@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_jacobi_keeps_the_joint_distribution(name, K):
    target = TARGETS[name]
    n_vocab, N = len(target([0])[0]), 4 if len(target([0])[0]) < 5 else 3
    got = law(lambda rng: complete([0], jacobi(target, K, n_vocab), N, rng))
    assert_same_law(got, text_law([0], target, N))


@pytest.mark.parametrize("stop", [{0}, {1, 2}])
def test_a_stop_token_in_the_block_keeps_the_distribution(stop):
    target = TARGETS["sparse"]
    got = law(lambda rng: complete([0], jacobi(target, 3, 3), 4, rng, stop))
    assert_same_law(got, text_law([0], target, 4, stop))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_repetition_penalty_counts_every_guess_before_a_place(temperature):
    logits = toy(3, 32)
    target = lambda ids, n_last=1: warp(4 * logits(ids, n_last) - 2, temperature, ids=ids,
                                        repetition_penalty=1.8)
    got = law(lambda rng: complete([0], jacobi(target, 3, 3), 4, rng))
    assert_same_law(got, text_law([0], target, 4))


def test_some_guesses_are_kept_and_some_are_not():
    target = TARGETS["dense"]
    kept = expectation(lambda rng: jacobi(target, 1, 3)([0, 1], 2, rng).n_accepted, float)
    assert kept == pytest.approx(target([0, 1])[-1][1]) and 0.1 < kept < 0.9


@pytest.mark.parametrize("x, then", [([0, 1], [2, 2, 1]), ([1, 1, 0], [0])])
def test_a_block_from_another_text_keeps_the_distribution(x, then):
    target = TARGETS["dense"]

    def second_text(rng):
        step = jacobi(target, 2, 3)
        complete(x, step, 3, Scripted([0.4] * 12))
        return complete(then, step, 3, rng)

    assert_same_law(law(second_text), text_law(then, target, 3))


def test_two_texts_have_two_blocks():
    one, other = (jacobi(toy(4, 2), 3, 4) for _ in range(2))
    first, second = (one([1, 2], 9, Scripted([0.5] * 9)).guesses for _ in range(2))
    assert other([1, 2], 9, Scripted([0.5] * 9)).guesses == first != second


@pytest.mark.parametrize("n_left", range(1, 6))
def test_at_most_room_minus_1_guesses(n_left):
    step = jacobi(TARGETS["dense"], 3, 3)
    for _ in range(3):
        assert len(step([0], n_left, np.random.default_rng(0)).guesses) == min(3, n_left - 1)


def test_a_window_of_the_text_keeps_the_distribution():
    """Beyond the context the target sees three or fewer tokens; the block goes on."""
    target = TARGETS["dense"]

    def text(rng):
        return complete([0, 1], windowed(jacobi(target, 2, 3), 2, 3), 4, rng)

    plain = partial(autoregressive_step, model=target)
    expected = law(lambda rng: complete([0, 1], windowed(plain, 2, 3), 4, rng))
    assert_same_law(law(text), expected)
