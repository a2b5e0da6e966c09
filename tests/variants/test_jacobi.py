"""Jacobi: the fixed-point view itself, the joint distribution, and what the block carries over."""

from itertools import product

import numpy as np
import pytest

from exact.law import Scripted, expectation
from exact.toys import PAIRS, mapped, one_hot, toy
from sampling import one_hot_rows
from speculative import autoregressive_sampling, generate
from variants.jacobi import jacobi

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

def test_some_guesses_are_kept_and_some_are_not():
    target = TARGETS["dense"]
    kept = expectation(lambda rng: jacobi(target, 1, 3)([0, 1], 2, rng).n_accepted, float)
    assert kept == pytest.approx(target([0, 1])[-1][1]) and 0.1 < kept < 0.9


def test_two_texts_have_two_blocks():
    one, other = (jacobi(toy(4, 2), 3, 4) for _ in range(2))
    first, second = (one([1, 2], 9, Scripted([0.5] * 9)).guesses for _ in range(2))
    assert other([1, 2], 9, Scripted([0.5] * 9)).guesses == first != second
