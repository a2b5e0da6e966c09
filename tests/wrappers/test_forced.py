"""Forced runs: the text's distribution stays, and no model is asked where a mask decides."""

from functools import partial

import numpy as np
import pytest

from exact.law import law, text_law, total_variation
from sampling import with_sampling
from speculative import autoregressive_sampling, complete, draft_and_verify, generate, guess, verify
from tests.distributions import assert_same_law
from tests.small import Logits
from tests.toys import toy
from variants.block import block_verify
from variants.coupled import Replay, coupled
from wrappers.forced import ForcedRound, forced_run, with_forced_runs


def one_after_zero(ids):
    """Allow only 1 after token 0, only 2 after the tokens 0 1, and 0 or 2 after any other 1."""
    if ids[-1] == 0:
        return np.array([False, True, False])
    if list(ids[-2:]) == [0, 1]:
        return np.array([False, False, True])
    if ids[-1] == 1:  # a choice of two tokens is no run
        return np.array([True, False, True])
    return np.ones(3, dtype=bool)


DRAFT, TARGET = (with_sampling(Logits(toy(3, seed, zeros=0)), allowed=one_after_zero)
                 for seed in (1, 2))


@pytest.mark.parametrize("test", [verify, block_verify])
def test_the_text_is_distributed_as_the_masked_targets_own(test):
    step = with_forced_runs(draft_and_verify(DRAFT, TARGET, 2, test), one_after_zero)
    for N in range(1, 5):
        got = law(lambda rng, N=N: tuple(complete([2], step, N, rng)))
        assert_same_law(got, text_law([2], TARGET, N))


def test_the_mask_changes_the_distribution_of_the_second_token():
    """Otherwise the comparison above could not see that a round ignores the mask."""
    free = toy(3, 2, zeros=0)
    assert_same_law(text_law([2], TARGET, 1), text_law([2], free, 1))  # all may follow a 2
    assert total_variation(text_law([2], TARGET, 2), text_law([2], free, 2)) > 0.1


def test_a_run_is_all_accepted_and_no_model_is_called_for_it():
    calls = []

    def counting(ids, n_last):
        calls.append(len(ids))
        return TARGET(ids, n_last)

    step = with_forced_runs(draft_and_verify(counting, counting, 2), one_after_zero)
    first, *_ = generate([2, 0], step, 9, np.random.default_rng(0))
    assert first.ids == [1, 2] and first.n_accepted == 1 and min(calls) > 3


def test_a_run_ends_with_the_tokens_that_are_wanted():
    assert forced_run([0], 1, one_after_zero) == [1]
    step = with_forced_runs(None, one_after_zero)
    assert complete([2, 0], step, 1, np.random.default_rng(0)) == [2, 0, 1]
    always = partial(np.equal, np.arange(3))
    assert forced_run([0], 3, lambda ids: always(len(ids) % 3)) == [1, 2, 0]


def test_a_run_ends_with_a_stop_token_and_where_nothing_is_allowed():
    assert forced_run([0], 9, lambda ids: np.zeros(3, dtype=bool)) == []
    always_2 = lambda ids: np.arange(3) == 2
    assert forced_run([0], 9, always_2) == [2] * 9
    assert forced_run([0], 9, always_2, stop={2}) == [2]
    [only] = generate([0], with_forced_runs(None, always_2, {2}), 9, np.random.default_rng(0), {2})
    assert only.ids == [2] and isinstance(only, ForcedRound)


def test_with_coupled_draws_and_runs_the_text_is_that_of_plain_decoding():
    """A run's tokens use up the numbers of their positions, in every cell of the uniforms.

    With three guesses a rejected first one leaves two numbers, which a run of two tokens uses up.
    """
    def both(rng):
        numbers = []  # one per position, for both
        step = coupled(TARGET, 3, partial(guess, draft=DRAFT))
        text = complete([2], with_forced_runs(step, one_after_zero), 5, Replay(numbers, rng))
        plain = autoregressive_sampling([2], TARGET, 5, Replay(numbers, rng))
        return tuple(text), tuple(plain)

    found = law(both)
    assert len(found) > 5 and all(text == plain for text, plain in found)
