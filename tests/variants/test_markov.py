"""Medusa's heads with a Markov table: a chain whose guesses know each other, enumerated."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import gpt2
import main
from exact.law import Scripted, assert_same_law, expectation, law, text_law
from exact.toys import mapped, one_hot, toy
from gpt2 import GPT2, unembed
from lib.checkpoints.weights import random_params
from sampling import softmax, warp, with_sampling
from speculative import autoregressive_sampling, complete, generate, speculative_step
from tests.variants.registered import Logits, assert_keeps_the_distribution, write_heads
from variants import DECODERS, Models, build
from variants.markov import guess_by_chain, load_table
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2

PARAMS = random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=2),
                       np.random.default_rng(0), np.float64)
SETTINGS = [{}, dict(temperature=0.4), dict(temperature=0.0), dict(top_k=2), dict(top_p=0.6),
            dict(repetition_penalty=2.5), dict(temperature=0.0, repetition_penalty=2.5)]
MARKOV = {"markov": True}


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
    return partial(speculative_step, target=target, K=K, make_guesses=guess)


# ---- the distribution

@pytest.mark.parametrize("x", [[0], [0, 1]])
@pytest.mark.parametrize("K, n_heads", [(1, 3), (2, 3), (3, 3), (3, 1)])
@pytest.mark.parametrize("model", [toy(3, 2, zeros=0), toy(4, 6)])
def test_the_chain_has_the_targets_joint_distribution(model, K, n_heads, x):
    n_vocab = len(model([0])[0])
    step = chain(model, scores_of(n_heads, n_vocab), table_of(n_vocab), K)
    assert_same_law(law(lambda rng: complete(x, step, 3, rng)), text_law(x, model, 3))


def test_rows_with_zeros_keep_the_distribution():
    model, heads, follows = toy(3, 3, zeros=0.5), scores_of(3, 3), table_of(3)
    for settings_ in (dict(top_k=1), dict(top_k=2), dict(top_p=0.5), dict(temperature=0.0)):
        step = chain(model, heads, follows, **settings_)
        assert_same_law(law(lambda rng: complete([0, 1], step, 3, rng)),  # noqa: B023  called here
                        text_law([0, 1], model, 3))


def test_a_stop_token_keeps_the_distribution():
    model, step = toy(4, 6), chain(toy(4, 6), scores_of(3, 4), table_of(4), K=2)
    assert_same_law(law(lambda rng: complete([0, 1], step, 3, rng, {1, 3})),
                    text_law([0, 1], model, 3, {1, 3}))


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_the_decoder_keeps_the_distribution_under_every_setting(sampling, tmp_path):
    heads = write_heads(tmp_path, n_embd=3)
    sampling = {"temperature": 1.0, **sampling}
    assert_keeps_the_distribution("medusa", MARKOV, sampling, heads)


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


def test_near_the_end_there_are_fewer_guesses():
    step = chain(toy(3, 2), scores_of(3, 3), table_of(3))
    for n_left in (1, 2, 3, 9):
        assert len(step([0, 1], n_left, np.random.default_rng(0)).guesses) == min(n_left - 1, 3)


def test_greedy_text_is_the_targets():
    model = mapped(toy(5, 2, zeros=0), one_hot)
    step = chain(model, scores_of(3, 5), table_of(5), temperature=0.0)
    expected = autoregressive_sampling([0], model, 20, np.random.default_rng(0))
    assert complete([0], step, 20, np.random.default_rng(0)) == expected


# ---- on a GPT2

@pytest.fixture
def heads(tmp_path):
    return write_heads(tmp_path, n_embd=12, n_vocab=13)


def models(heads, **sampling):
    """A target that has read nothing yet, and no draft."""
    return Models(None, TreeGPT2(PARAMS, 3), {"temperature": 1.0, **sampling}, heads)


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_a_GPT2_reads_every_token_once_and_its_rows_are_a_fresh_ones(heads, sampling):
    step, x = build("medusa", models(heads, **sampling), MARKOV), [1, 2, 3]
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


def test_a_step_used_for_another_text_forgets_the_first(heads):
    used = build("medusa", models(heads), MARKOV)
    for x in ([1, 2, 3], [1, 2, 4, 5], [1, 2], [9]):
        new = build("medusa", models(heads), MARKOV)
        texts = [[round.ids for round in generate(x, step, 9, np.random.default_rng(0))]
                 for step in (used, new)]
        assert texts[0] == texts[1]


def test_the_chain_is_as_long_as_the_tree_is_deep(heads):
    for flags, K in (({}, 3), ({"widths": (4, 1)}, 2), ({"sparse": [(0,), (1,)]}, 1)):
        step = build("medusa", models(heads), MARKOV | flags)
        assert len(step([1, 2], 9, np.random.default_rng(0)).guesses) == K


# ---- the file and the flag

def test_a_loaded_table_is_the_product_of_its_two_parts(heads):
    file = load_file(heads / "heads.safetensors")
    product = file["markov/w1"] @ file["markov/w2"]
    follows = load_table(heads / "heads.safetensors", 13, np.float64)
    assert np.allclose([follows(token) for token in range(13)], product)


def test_what_does_not_go_together_is_named(heads, tmp_path):
    bare = {name: array for name, array in load_file(heads / "heads.safetensors").items() if "medusa" in name}
    save_file(bare, tmp_path / "heads.safetensors")
    with pytest.raises(ValueError, match="need markov/w1, markov/w2 in the heads of"):
        build("medusa", models(tmp_path), MARKOV)
    with pytest.raises(ValueError, match=r"need w1 \[13, rank\]"):
        build("medusa", models(write_heads(tmp_path, 12)), MARKOV)
    with pytest.raises(ValueError, match="exact with --markov, got typical"):
        build("medusa", models(heads), MARKOV | {"acceptance": "typical"})
    with pytest.raises(ValueError, match="need heads trained"):
        build("medusa", models(None), MARKOV)


def test_the_flag_needs_no_value(capsys):
    parse = lambda *args: main.parse_args(["--decoder", *args]).settings.get("markov")
    assert parse("medusa", "--markov") is True is parse("medusa", "--markov", "true")
    assert parse("medusa") is False is parse("medusa", "--markov", "false")
    for args in (["medusa", "--markov", "1"], ["tree", "--markov"]):
        with pytest.raises((SystemExit, ValueError)):
            parse(*args)


def test_its_rounds_are_a_chains_whose_guesses_were_drawn(heads):
    """What --show and --trace say of a round: one uniform a guess, then the tests' own."""
    assert DECODERS["medusa"].is_tree({"markov": False})
    assert not DECODERS["medusa"].is_tree(MARKOV) and DECODERS["medusa"].rounds.draws == 1
    round = build("medusa", Models(None, Logits(toy(3, 2, zeros=0)), {"temperature": 1.0},
                                   write_heads(heads, 3)), MARKOV)([0, 1], 9, Scripted([0.5] * 7))
    assert round.guesses == [int((row.cumsum() <= 0.5).sum()) for row in round.p_draft]


def test_heads_and_a_table_of_zeros_are_the_targets_own_row(tmp_path):
    save_file({"medusa/w": np.zeros((2, 12, 12)), "medusa/b": np.zeros((2, 12)),
               "medusa/a": np.stack([np.eye(12)] * 2), "markov/w1": np.zeros((13, 2)),
               "markov/w2": np.zeros((2, 13))}, tmp_path / "heads.safetensors")
    round = build("medusa", models(tmp_path), MARKOV | {"widths": (1, 1)})(
        [1, 2, 3], 9, np.random.default_rng(0))
    expected = softmax(unembed(GPT2(PARAMS, 3).hidden([1, 2]), PARAMS))
    assert np.allclose(round.p_draft, expected[[0, 0]])
