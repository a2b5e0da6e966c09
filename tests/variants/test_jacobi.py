"""Jacobi: what a round guesses of the block that the round before it computed."""

import numpy as np
import pytest

from sampling import one_hot_rows
from speculative import generate
from tests.small import of_probabilities
from tests.toys import toy
from variants.jacobi import build


def rounds_of(target, K, x, N, n_vocab, seed=0):
    step = build(of_probabilities(None, target, n_vocab=n_vocab), K)
    return list(generate(x, step, N, np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(8))
def test_every_pass_yields_a_token_and_the_rest_of_F_is_guessed_next(seed):
    rounds = rounds_of(toy(4, seed), 4, [seed % 4], 30, 4, seed)
    n_left = 30
    for before, after in zip(rounds, rounds[1:]):
        n_left -= len(before.ids)
        carried = before.p_target[len(before.ids) :].argmax(axis=-1).tolist()
        assert len(before.ids) >= 1 and len(after.guesses) == min(4, n_left - 1)
        assert after.guesses[: len(carried)] == carried[: len(after.guesses)]


@pytest.mark.parametrize("K", range(1, 5))
def test_independent_positions_are_solved_in_one_pass_and_accepted_in_the_next(K):
    position = lambda ids, n_last: one_hot_rows(range(len(ids) + 1 - n_last, len(ids) + 1), 50)
    rounds = rounds_of(position, K, [0], 4 * (K + 2), 50)
    assert [len(result.ids) for result in rounds] == [1, K + 1] * 4
