"""Variants with heads, medusa and blockwise: on toys whose states are their prefixes, on a GPT2."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import gpt2
from exact.law import distance, law, text_law
from exact.toys import mapped, one_hot, path_by_path, toy
from gpt2 import GPT2, unembed
from lib.checkpoints.weights import random_params
from sampling import with_sampling
from speculative import autoregressive_sampling, complete, generate, make_step
from variants.blockwise import blockwise_verify, build, in_top
from variants.medusa import (
    cartesian,
    choices,
    chosen_tree,
    guess_by_heads,
    load_heads,
    medusa_step,
    typical,
    verify_typical,
)
from variants.shared import tree_gpt2
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2
from variants.tree import Tree, verify_tree

EXACT = 1e-12
SPARSE_TREE = [(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
PARAMS = random_params(dict(n_vocab=13, n_ctx=32, n_embd=12, n_head=3, n_layer=2),
                       np.random.default_rng(0), np.float64)


def medusa(model, heads, choices, verify=verify_tree, calls=None):
    """The step of a target whose hidden states are the prefixes themselves."""
    def target(ids, n_last):
        if calls is not None:
            calls.append(n_last - 1)
        return path_by_path(model)(ids, n_last)

    guess = partial(guess_by_heads, state_after=tuple, heads=heads, choices=choices)
    return make_step(target, max(map(len, choices)), guess, verify)


def blockwise(model, heads, block=4, top_k=1, minimum=1, calls=None):
    chain = [(0,) * n for n in range(1, block)]
    return medusa(model, heads, chain,
                  partial(blockwise_verify, top_k=top_k, minimum=minimum), calls)


def head_toy(n_heads, n_vocab, seed):
    """Heads whose scores are toys of the prefix."""
    models = [toy(n_vocab, seed + k, zeros=0) for k in range(n_heads)]
    return lambda state: np.array([model(list(state))[0] for model in models])


def knowing(model, n_heads):
    """Heads that know what a greedy model will write: head k the id k + 2 places on."""
    def heads(state):
        text = autoregressive_sampling(list(state), model, n_heads + 1, np.random.default_rng(0))
        return np.eye(len(model([0])[0]))[text[len(state) + 1 :]]
    return heads


def greedy(model, N, x=(0,)):
    return autoregressive_sampling(list(x), mapped(model, one_hot), N, np.random.default_rng(0))


# ---- the exact test

def test_a_target_that_always_says_0_is_decoded_as_any_other():
    """Padding ragged trees with id 0 would have a pad accepted here."""
    model = lambda ids, n_last=1: np.eye(4)[[0] * n_last]
    for heads in (lambda state: np.eye(4)[[1, 1, 1]], lambda state: np.eye(4)[[0, 1, 0]]):
        step, rng = medusa(model, heads, SPARSE_TREE), np.random.default_rng(0)
        assert complete([2, 3], step, 9, rng) == [2, 3] + [0] * 9


def test_heads_that_know_need_the_fewest_passes_and_each_round_is_one():
    model, calls = mapped(toy(5, 3, zeros=0), one_hot), []
    step = medusa(model, knowing(model, 3), cartesian((2, 1, 1)), calls=calls)
    rounds = list(generate(greedy(model, 1), step, 16, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [4] * 4
    assert calls == [len(round.guesses) for round in rounds]  # one pass per round


# ---- the tree

@given(st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_cartesian_trees_have_their_size_and_are_closed_under_prefix(widths):
    choices = cartesian(widths)
    assert len(choices) == sum(np.prod(widths[: n + 1]) for n in range(len(widths)))
    assert all(c[:-1] in choices or len(c) == 1 for c in choices)
    assert len(set(choices)) == len(choices)


def test_choices_become_paths_of_the_heads_best_ids():
    scores = np.array([[1, 9, 8, 0], [5, 6, 0, 7], [0, 0, 0, 1.0]])
    tree = chosen_tree(scores, [(1, 2), (0,), (1,), (0, 0), (0, 0, 0)], 3)
    assert sorted(map(tuple, tree.paths())) == [(1,), (1, 3), (1, 3, 3), (2,), (2, 0)]
    assert [len(path) for path in chosen_tree(scores, [(0,), (0, 0)], 1).paths()] == [1]


# ---- the typical test: not lossless

def typical_step(model, choices, epsilon, delta):
    verify = partial(verify_typical, epsilon=epsilon, delta=delta)
    return medusa(model, head_toy(3, 4, 70), choices, verify)


def test_typical_is_the_papers_inequality():
    row = np.array([0.5, 0.25, 0.125, 0.125])  # H = 1.75 bits
    threshold = np.exp(-1.75 * np.log(2))
    assert typical(row, 1, 1).tolist() == (row > threshold).tolist() == [True, False, False, False]
    assert typical(row, 0.2, 1).tolist() == [True, True, False, False]
    assert typical(row, 1, 0.2 / threshold).tolist() == [True, True, False, False]
    assert typical(np.array([1.0, 0, 0]), 0.09, 0.3).tolist() == [True, False, False]


def test_nothing_typical_is_plain_sampling():
    model = toy(4, 6)
    step = partial(typical_step, model, cartesian((2, 2)), 1, np.inf)
    got = law(lambda rng: complete([0, 1], step(), 3, rng))
    assert distance(got, text_law([0, 1], model, 3)) < EXACT


def test_everything_typical_keeps_the_full_depth():
    model = toy(4, 6, zeros=0)
    step = typical_step(model, cartesian((2, 2, 1)), 0, 1)
    for round in generate([0, 1], step, 12, np.random.default_rng(0)):
        assert len(round.ids) == 4


@given(st.integers(0, 99), st.floats(0.01, 1), st.floats(0.1, 2))
@settings(deadline=None, max_examples=40)
def test_the_longest_typical_path_is_kept_the_likeliest_of_equal_length(seed, epsilon, delta):
    model, x = toy(4, seed), [0, 1]
    step = typical_step(model, SPARSE_TREE, epsilon, delta)
    for round in generate([0, 1], step, 8, np.random.default_rng(seed)):
        scores = head_toy(3, 4, 70)(tuple(x[:-1]))
        tree, best = chosen_tree(scores, SPARSE_TREE, 8 - (len(x) - 2) - 1), (0, 1.0)
        for path in tree.paths():
            rows = [model(x + path[:t])[0] for t in range(len(path))]
            if all(typical(row, epsilon, delta)[token] for row, token in zip(rows, path)):
                chance = np.prod([row[token] for row, token in zip(rows, path)])
                best = max(best, (len(path), chance))
        kept = round.ids[:-1]
        chance = np.prod([model(x + kept[:t])[0][token] for t, token in enumerate(kept)])
        assert len(kept) == best[0] and chance == pytest.approx(best[1])
        x += round.ids


# ---- blockwise

def test_heads_that_know_fill_every_block():
    model, calls = toy(5, 3, zeros=0), []
    step = blockwise(model, knowing(mapped(model, one_hot), 3), calls=calls)
    rounds = list(generate(greedy(model, 1), step, 16, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [4] * 4 and calls == [3, 3, 3, 3]


@given(st.integers(0, 99), st.integers(1, 3), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_relaxed_blocks_keep_their_predicate_and_their_size(seed, top_k, minimum):
    model, x = toy(5, seed), [0, 1]
    step = blockwise(model, head_toy(3, 5, seed), 4, top_k, minimum)
    for round in generate([0, 1], step, 15, np.random.default_rng(0)):
        guesses, n_left = list(round.guesses), 15 - (len(x) - 2)
        assert len(round.ids) >= min(minimum, n_left)
        kept = len(round.ids) - 1
        for t, token in enumerate(guesses[: kept + 1]):
            row = model(x + guesses[:t])[0]
            good = token in np.argsort(-row, kind="stable")[:top_k]
            assert good == (t < kept) or t < minimum - 1
        x += round.ids[:-1]
        assert round.ids[-1] == model(x)[0].argmax()
        x += round.ids[-1:]


def test_of_equally_good_ids_the_lowest_count_first():
    row = np.array([0.25, 0.25, 0.5, 0.0])
    assert [in_top(row, token, 2) for token in range(4)] == [True, False, True, False]


@pytest.mark.parametrize("bad", [dict(selection=0), dict(minimum=0), dict(minimum=5)])
def test_bad_criteria_are_named(bad):
    with pytest.raises(ValueError, match="selection"):
        build(None, **bad)


# ---- on a GPT2

@pytest.fixture
def heads(tmp_path):
    rng = np.random.default_rng(1)
    w, a = rng.normal(size=(2, 3, 12, 12)).astype(np.float16)
    b = rng.normal(size=(3, 12)).astype(np.float16)
    return save_heads(tmp_path, w, b, a)


def save_heads(folder, w, b, a):
    """Write Medusa's arrays to a file of heads; return its path."""
    save_file({"medusa/w": w, "medusa/b": b, "medusa/a": a}, folder / "heads.safetensors")
    return folder / "heads.safetensors"


def test_loaded_heads_are_the_formula(heads):
    h, file = 100 * GPT2(PARAMS, 3).hidden([1, 2])[0], load_file(heads)  # both tails of SiLU
    for k, row in enumerate(load_heads(heads, PARAMS)(h)):
        z = h @ file["medusa/w"][k].astype(float) + file["medusa/b"][k]
        x = (h + z / (1 + np.exp(-z))) @ file["medusa/a"][k].astype(float)
        assert np.allclose(row, PARAMS["wte"] @ x)


def test_heads_of_zeros_are_the_targets_own_head(tmp_path):
    path = save_heads(tmp_path, np.zeros((2, 12, 12)), np.zeros((2, 12)),
                      np.stack([np.eye(12)] * 2))
    h = GPT2(PARAMS, 3).hidden([1, 2])
    for row in load_heads(path, PARAMS)(h[0]):
        assert np.allclose(row, unembed(h, PARAMS)[0])


def test_heads_of_another_width_are_named(tmp_path):
    path = save_heads(tmp_path, *(np.zeros(shape) for shape in ((2, 8, 8), (2, 8), (2, 8, 8))))
    with pytest.raises(ValueError, match="width 12"):
        load_heads(path, PARAMS)


@pytest.mark.parametrize("chosen", [dict(temperature=0),
                                    dict(temperature=0, repetition_penalty=1.5)], ids=str)
def test_a_GPT2_with_heads_writes_its_greedy_text_and_reads_every_token_once(heads, chosen):
    model = States(TreeGPT2(PARAMS, 3))
    step = medusa_step(model, load_heads(heads, PARAMS), cartesian((3, 2, 1)), verify_tree,
                       **chosen)
    with mock.patch.object(gpt2, "forward", side_effect=gpt2.forward) as forward:
        with mock.patch.object(tree_gpt2, "forward", forward):
            rounds = list(generate([1, 2, 3], step, 20, np.random.default_rng(0)))
    text = [1, 2, 3] + sum((round.ids for round in rounds), [])
    plain = with_sampling(GPT2(PARAMS, 3), **chosen)
    assert text == autoregressive_sampling([1, 2, 3], plain, 20, np.random.default_rng(0))
    read = [len(call.args[0]) for call in forward.call_args_list]
    assert read == [2] + [1 + len(round.guesses) for round in rounds]


@given(st.lists(st.integers(-1, 3) | st.lists(st.integers(0, 12), min_size=1, max_size=6),
                max_size=6))
@example([[3, 4]])
@settings(deadline=None, max_examples=30)
def test_a_state_is_that_of_its_text_whatever_was_read_before(calls):
    """After the path to a node of a tree, after another text, twice the same."""
    model, x = States(TreeGPT2(PARAMS, 3)), [1, 2]
    for then in calls:
        tree = Tree()
        for token, parent in ((5, -1), (6, -1), (7, 0), (8, 2)):
            tree.add(parent, token, None)
        model(x + tree, 5)
        x = then if isinstance(then, list) else (x + tree).texts()[1 + then]
        x = x if len(x) < 12 else [7, 7]
        assert np.allclose(model.state_after(x), GPT2(PARAMS, 3).hidden(x)[-1], atol=1e-10)


def test_a_rank_that_no_head_has_is_no_guess():
    tree = chosen_tree(np.array([[0.0, 3, 2, 1]]), [(0,), (3,), (4,), (9,)], depth=2)
    assert tree.tokens == [1, 0]


@pytest.mark.parametrize("text", ["0..1", ".", "0.", "-1", "a", "0 1.0.x"])
def test_a_sparse_tree_is_spelled_as_ranks(text):
    with pytest.raises(ValueError, match="need ranks such as"):
        choices(text)
    assert choices(" 0  1 0.0 ") == [(0,), (1,), (0, 0)] and choices("") == []
