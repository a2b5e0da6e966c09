"""Medusa's heads with a Markov table: a chain whose guesses know each other, enumerated."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import gpt2
from exact.law import assert_same_law, expectation, law
from exact.toys import toy
from gpt2 import GPT2, unembed
from lib.checkpoints.weights import random_params
from sampling import softmax, warp, with_sampling
from speculative import generate, make_step
from tests.small import write_heads
from variants import Models, build
from variants.markov import guess_by_chain, load_table
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2

PARAMS = random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=2),
                       np.random.default_rng(0), np.float64)
SETTINGS = [{}, dict(temperature=0.4), dict(temperature=0.0), dict(top_k=2), dict(top_p=0.6),
            dict(repetition_penalty=2.5), dict(temperature=0.0, repetition_penalty=2.5)]
def scores_of(n_heads, n_vocab, seed=70):
    """Heads whose scores depend on the whole prefix, which is their state."""
    models = [toy(n_vocab, seed + k, zeros=0) for k in range(n_heads)]
    return lambda state: np.log([model(list(state))[0] for model in models])


def table_of(n_vocab, seed=80):
    """What a token adds to the scores after it."""
    effects = np.random.default_rng(seed).normal(size=(n_vocab, n_vocab))
    return lambda token: effects[token]


def chain(model, heads, follows, K=3, calls=None, **settings):
    """The step of a toy whose hidden states are the prefixes themselves."""
    def target(ids, n_last):
        if calls is not None:
            calls.append(n_last)
        return model(ids, n_last)

    guess = partial(guess_by_chain, state_after=tuple, heads=heads, follows=follows, **settings)
    return make_step(target, K, guess)


# ---- the distribution

# ---- the rows

@given(st.integers(0, 10**6), st.sampled_from(SETTINGS), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
def test_each_row_is_that_heads_scores_and_what_follows_the_token_before(seed, sampling, k):
    x, heads, follows = [2, 0, 1], scores_of(3, 4), table_of(4)
    guesses, rows = guess_by_chain(x, k, np.random.default_rng(seed), tuple, heads, follows,
                                   **sampling)
    assert len(guesses) == len(rows) == min(k, 3)
    for t, (token, row) in enumerate(zip(guesses, rows)):
        before = [*x, *guesses][: len(x) + t]
        expected = warp(heads((2, 0))[t] + follows(before[-1]), ids=before, **sampling)
        assert np.allclose(row, expected) and row[token] > 0


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_a_guess_is_drawn_from_its_row(sampling):
    heads, follows = scores_of(1, 3), table_of(3)
    drawn = lambda rng: guess_by_chain([2, 0, 1], 1, rng, tuple, heads, follows, **sampling)[0][0]
    row = warp(heads((2, 0))[0] + follows(1), ids=[2, 0, 1], **sampling)
    assert_same_law(law(drawn), dict(enumerate(row)))


def test_one_guess_is_kept_with_the_mass_that_draft_and_target_share():
    model, heads, follows = toy(3, 2, zeros=0), scores_of(1, 3), table_of(3)
    step = chain(model, heads, follows, K=1)
    shared = np.minimum(softmax(heads((0,))[0] + follows(1)), model([0, 1])[0]).sum()
    assert expectation(lambda rng: step([0, 1], 2, rng).n_accepted, float) == pytest.approx(shared)


def test_a_single_token_has_no_state_and_so_no_guess():
    heads, follows = scores_of(3, 3), table_of(3)
    assert guess_by_chain([1], 3, np.random.default_rng(0), tuple, heads, follows) == ([], [])


# ---- as few passes as can be

@pytest.mark.parametrize("sampling", [dict(temperature=1.0), dict(temperature=0.5),
                                      dict(temperature=0.0), dict(top_k=2)], ids=str)
def test_a_table_that_is_the_target_has_every_guess_kept(sampling):
    """A first-order chain needs no state: only the token before, which the table knows."""
    logits = np.random.default_rng(3).normal(size=(5, 5))
    model = with_sampling(lambda ids, n_last=1: logits[np.array(ids[-n_last:])], **sampling)
    calls, nothing = [], lambda state: np.zeros((3, 5))
    step = chain(model, nothing, logits.__getitem__, calls=calls, **sampling)
    rounds = list(generate([0, 1], step, 16, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [4] * 4 == calls


# ---- on a GPT2

@pytest.fixture
def heads(tmp_path):
    return write_heads(tmp_path, n_embd=12, n_vocab=13)


def models(heads, **sampling):
    """A target that has read nothing yet, and no draft."""
    return Models(None, TreeGPT2(PARAMS, 3), {"temperature": 1.0, **sampling}, heads)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_a_GPT2_reads_every_token_once_and_its_rows_are_a_fresh_ones(heads, sampling):
    step, x = build("markov", models(heads, **sampling)), [1, 2, 3]
    plain = with_sampling(GPT2(PARAMS, 3), **sampling)
    with mock.patch.object(gpt2, "forward", side_effect=gpt2.forward) as forward:
        rounds = list(generate(x, step, 21, np.random.default_rng(0)))  # to the context's end
    read = [len(call.args[0]) for call in forward.call_args_list]
    for round in rounds:
        rows = plain(x + round.guesses, len(round.p_target))
        assert np.allclose(round.p_target, rows, atol=1e-10)
        x = x + round.ids
    assert read == [2] + [1 + len(round.guesses) for round in rounds] and len(x) == 24


@given(st.lists(st.integers(0, 3) | st.lists(st.integers(0, 12), min_size=1, max_size=6),
                max_size=6))
@example([[1, 2, 5], [1, 2, 5, 6, 7, 8]])
@settings(deadline=None, max_examples=30)
def test_a_state_is_that_of_its_text_whatever_was_read_before(calls):
    """After some of the guesses, after another text, twice the same."""
    model, x = States(TreeGPT2(PARAMS, 3)), [1, 2]
    for then in calls:
        logits = model(x + [5, 6, 7], 4)
        assert np.allclose(logits, GPT2(PARAMS, 3)(x + [5, 6, 7], 4))
        x = then if isinstance(then, list) else x + [5, 6, 7][:then]
        x = x if len(x) < 12 else [7, 7]
        assert np.allclose(model.state_after(x), GPT2(PARAMS, 3).hidden(x)[-1], atol=1e-10)


# ---- the file and the flag

def test_a_loaded_table_is_the_product_of_its_two_parts(heads):
    file = load_file(heads / "heads.safetensors")
    product = file["markov/w1"] @ file["markov/w2"]
    follows = load_table(heads / "heads.safetensors", 13, np.float64)
    assert np.allclose([follows(token) for token in range(13)], product)


def test_what_does_not_go_together_is_named(heads, tmp_path):
    arrays = load_file(heads / "heads.safetensors")
    bare = {name: array for name, array in arrays.items() if "medusa" in name}
    save_file(bare, tmp_path / "heads.safetensors")
    with pytest.raises(ValueError, match="need .*markov/w1 .*got none"):
        build("markov", models(tmp_path))
    with pytest.raises(ValueError, match=r"need w1 \[13, rank\]"):
        build("markov", models(write_heads(tmp_path, 12)))
    with pytest.raises(ValueError, match="need heads trained"):
        build("markov", models(None))


def test_heads_and_a_table_of_zeros_are_the_targets_own_row(tmp_path):
    save_file({"medusa/w": np.zeros((2, 12, 12)), "medusa/b": np.zeros((2, 12)),
               "medusa/a": np.stack([np.eye(12)] * 2), "markov/w1": np.zeros((13, 2)),
               "markov/w2": np.zeros((2, 13))}, tmp_path / "heads.safetensors")
    round = build("markov", models(tmp_path), {"K": 2})(
        [1, 2, 3], 9, np.random.default_rng(0))
    expected = softmax(unembed(GPT2(PARAMS, 3).hidden([1, 2]), PARAMS))
    assert np.allclose(round.p_draft, expected[[0, 0]])
