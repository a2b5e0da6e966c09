"""Medusa's heads with a Markov table: a chain in which each guess depends on the one before."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from sampling import warp, with_sampling
from speculative import generate, make_step
from tests.small import Logits, write_heads
from tests.toys import counted, toy
from variants import Models
from variants.markov import guess_by_chain, load_table
from variants.shared.heads import open_heads

SETTINGS = [{}, dict(temperature=0.4), dict(temperature=0.0), dict(top_k=2), dict(top_p=0.6),
            dict(repetition_penalty=2.5), dict(temperature=0.0, repetition_penalty=2.5)]
EFFECTS = np.random.default_rng(80).normal(size=(4, 4))  # of a token on the scores after it


def heads(state):
    """Return the scores of three heads, which depend on the whole prefix, their state."""
    return np.log([toy(4, seed, zeros=0)(list(state))[0] for seed in (70, 71, 72)])


@given(st.integers(0, 10**6), st.sampled_from(SETTINGS), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_each_row_is_a_heads_scores_plus_the_tables_row_of_the_token_before(seed, sampling, k):
    x = [2, 0, 1]
    guesses, rows = guess_by_chain(x, k, np.random.default_rng(seed), tuple, heads,
                                   EFFECTS.__getitem__, **sampling)
    assert len(guesses) == len(rows) == min(k, 3)
    for t, (token, row) in enumerate(zip(guesses, rows)):
        before = [*x, *guesses][: len(x) + t]
        expected = warp(heads((2, 0))[t] + EFFECTS[before[-1]], ids=before, **sampling)
        assert np.allclose(row, expected) and row[token] > 0


@pytest.mark.parametrize("sampling", [
    dict(temperature=0.5), dict(temperature=0.0), dict(top_k=2)], ids=str)
def test_every_guess_of_a_table_that_is_the_target_is_accepted(sampling):
    """A first-order chain needs no state, only the table's row of the token before."""
    model = counted(with_sampling(lambda ids, n_last=1: EFFECTS[ids[-n_last:]], **sampling))
    guess = partial(guess_by_chain, state_after=tuple, heads=lambda state: np.zeros((3, 4)),
                    follows=EFFECTS.__getitem__, **sampling)
    rounds = generate([0, 1], make_step(model, 3, guess), 16, np.random.default_rng(0))
    assert [len(result.ids) for result in rounds] == [4] * 4 == model.calls


def test_a_loaded_table_is_the_product_of_its_two_parts(tmp_path):
    file = load_file(write_heads(tmp_path, n_embd=3) / "heads.safetensors")
    follows = load_table(open_heads(Models(None, Logits(toy(3, 0)), {}, tmp_path)), n_vocab=3)
    product = file["markov/w1"] @ file["markov/w2"]
    assert np.allclose([follows(token) for token in range(3)], product)
