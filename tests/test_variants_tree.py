"""Token trees: tree attention equals each path alone, the law is exact, the accepted path stays read."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from gpt2 import GPT2
from sampling import warp, warped
from speculative import autoregressive_sampling, generate, guess, run, speculative_step, verify
from tests.enumerating import distance, expectation, law, mapped, one_hot, text_law, toy
from utils import random_params
from variants.tree import (Tree, ancestors, best_ids, draw_siblings, expand, node_of, path_by_path, paths,
                           propose, tree_step, tree_warped, verify_tree)

EXACT = 1e-12
DENSE = toy(3, 1, zeros=0), toy(3, 2, zeros=0)
SPARSE = toy(3, 3, zeros=0.5), toy(3, 4, zeros=0.5)
FOUR = toy(4, 5), toy(4, 6)
SIBLINGS = ("distinct", "independent", "top")
PARAMS = random_params(dict(n_vocab=13, n_ctx=16, n_embd=12, n_head=3, n_layer=3),
                       np.random.default_rng(0), np.float64)


def stepper(draft, target, widths, siblings="distinct"):
    return partial(tree_step, drafts=[path_by_path(draft)], target=path_by_path(target),
                   widths=widths, siblings=siblings)


# ---- the law

@pytest.mark.parametrize("siblings", SIBLINGS)
@pytest.mark.parametrize("pair, widths, N", [
    (DENSE, (2,), 3), (DENSE, (2, 1), 3), (SPARSE, (2, 2), 4), (SPARSE, (3, 1), 4),
    (SPARSE, (1, 2), 4), (SPARSE, (1, 1, 1), 5), (FOUR, (2, 1), 3)], ids=str)
def test_trees_have_the_targets_joint_law(pair, widths, N, siblings):
    draft, target = pair
    got = law(lambda rng: run([0], stepper(draft, target, widths, siblings), N, rng))
    assert distance(got, text_law([0], target, N)) < EXACT


@pytest.mark.parametrize("siblings", SIBLINGS)
@pytest.mark.parametrize("greedy", ["draft", "target", "both"])
def test_trees_keep_the_law_where_a_side_is_greedy(greedy, siblings):
    draft, target = (mapped(model, one_hot) if greedy in (name, "both") else model
                     for name, model in zip(("draft", "target"), SPARSE))
    got = law(lambda rng: run([0], stepper(draft, target, (2, 2), siblings), 4, rng))
    assert distance(got, text_law([0], target, 4)) < EXACT


def test_a_guess_made_twice_keeps_the_law():
    """Independent siblings of a draft that has two ids only: most pairs are the same id twice."""
    narrow = lambda row: np.array([0.75, 0.25, 0.0])
    draft, target = mapped(DENSE[0], narrow), DENSE[1]
    got = law(lambda rng: run([0], stepper(draft, target, (3,), "independent"), 3, rng))
    assert distance(got, text_law([0], target, 3)) < EXACT


@pytest.mark.parametrize("siblings, N", [("distinct", 3), ("independent", 4)])
def test_several_drafts_merged_keep_the_law(siblings, N):
    drafts, target = [path_by_path(toy(3, seed, zeros=0.4)) for seed in (5, 6)], SPARSE[1]
    step = partial(tree_step, drafts=drafts, target=path_by_path(target), widths=(1, 1),
                   siblings=siblings)
    got = law(lambda rng: run([0], step, N, rng))
    assert distance(got, text_law([0], target, N)) < EXACT


@pytest.mark.parametrize("stop", [{0}, {1, 2}])
def test_a_stop_id_on_a_path_keeps_the_law(stop):
    got = law(lambda rng: run([0], stepper(*SPARSE, (2, 1)), 3, rng, stop))
    assert distance(got, text_law([0], SPARSE[1], 3, stop)) < EXACT


def test_a_tree_of_one_path_is_speculative_sampling():
    draft, target = DENSE
    for seed in range(20):
        chain, tree = ([round.ids for round in generate([0], step, 9, np.random.default_rng(seed))]
                       for step in (partial(speculative_step, draft=draft, target=target, K=3),
                                    stepper(draft, target, (1, 1, 1), "independent")))
        assert chain == tree


def test_more_siblings_keep_more():
    draft, target = toy(4, 5, zeros=0), toy(4, 6, zeros=0)
    means = [expectation(lambda rng: stepper(draft, target, (width,))([0], 9, rng), lambda r: len(r.ids))
             for width in (1, 2, 3)]
    assert means == sorted(means) and means[0] < means[2]


def test_multi_step_sampling_keeps_more_than_sample_and_match():
    """Miao et al. (2023): against drawing from the target and looking whether it is a child."""
    for seed in range(10):
        draft, target = toy(4, seed, zeros=0), toy(4, seed + 50, zeros=0)
        p_target = target([0])[0]
        for siblings in ("independent", "distinct"):
            kept = expectation(lambda rng: stepper(draft, target, (2,), siblings)([0], 9, rng),
                               lambda round: len(round.ids) - 1)
            matched = expectation(lambda rng: draw_siblings(draft([0])[0], 2, siblings, rng),
                                  lambda drawn: p_target[sorted({token for token, _ in drawn})].sum())
            assert kept >= matched - EXACT


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 12))
def test_the_best_ids_are_those_of_a_stable_sort(row, n):
    assert best_ids(np.array(row), n) == np.argsort(-np.array(row), kind="stable")[:n].tolist()


def test_siblings_come_from_the_laws_that_go_with_them():
    row = np.array([0.5, 0.3, 0.2, 0.0])
    assert [token for token, _ in draw_siblings(row, 9, "top", None)] == [0, 1, 2]
    for siblings, most in (("distinct", 3), ("independent", 5)):
        drawn = draw_siblings(row, 5, siblings, np.random.default_rng(0))
        assert len(drawn) == most
        seen = []
        for token, p_draft in drawn:
            left = row * ~np.isin(np.arange(4), seen)
            assert np.allclose(p_draft, left / left.sum())
            seen += [token] if siblings == "distinct" else []


def test_greedy_trees_take_the_best_child():
    draft, target = toy(4, 5, zeros=0), mapped(FOUR[1], one_hot)
    rounds = list(generate([0], stepper(draft, target, (4, 4), "top"), 9, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [3, 3, 3]  # every child was in the tree
    assert sum((round.ids for round in rounds), [0]) == autoregressive_sampling([0], target, 9, np.random.default_rng(0))


@pytest.mark.parametrize("N", range(5))
def test_exactly_N_ids_come(N):
    assert len(run([0, 1], stepper(*DENSE, (2, 2, 2)), N, np.random.default_rng(0))) == 2 + N


# ---- trees as lists of parents

parents_lists = st.lists(st.integers(0, 9), max_size=7).map(
    lambda numbers: [number % (i + 1) - 1 for i, number in enumerate(numbers)])


@given(parents_lists)
def test_mask_depth_and_paths_agree_with_a_walk_up(parents):
    sees, tokens = ancestors(parents), list(range(10, 10 + len(parents)))
    for i, path in enumerate(paths(tokens, parents)):
        node, walked = i, []
        while node >= 0:
            assert sees[i, node]
            walked.insert(0, tokens[node])
            node = parents[node]
        assert path == walked and sees[i].sum() == len(walked)


def test_a_path_drawn_twice_stands_once():
    tree, row = Tree([], [], []), np.array([0.5, 0.5])
    assert [propose(tree, -1, 1, row), propose(tree, 0, 1, row), propose(tree, -1, 1, row)] == [0, 1, 0]
    assert tree.tokens == [1, 1] and tree.parents == [-1, 0] and len(tree.proposals) == 3
    assert [node_of(tree, ids) for ids in ([], [1], [1, 1])] == [-1, 0, 1]


# ---- tree attention

trees = parents_lists.flatmap(lambda parents: st.tuples(
    st.just(parents), st.lists(st.integers(0, 12), min_size=len(parents), max_size=len(parents))))
prompts = st.lists(st.integers(0, 12), min_size=1, max_size=9)


def close(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-10)


@given(prompts, trees)
@settings(deadline=None, max_examples=50)
def test_logits_of_every_node_are_those_of_its_own_path_run_alone(x, tree):
    parents, tokens = tree
    got = GPT2(PARAMS, 3).tree(x, tokens, ancestors(parents))
    alone = [GPT2(PARAMS, 3)(x + path)[-1] for path in [[], *paths(tokens, parents)]]
    assert close(got, alone)


def test_a_tree_is_forgotten_by_the_next_call():
    model, x = GPT2(PARAMS, 3), [1, 2, 3]
    model.tree(x, [5, 6], ancestors([-1, 0]))
    model([1, 2, 3, 9])
    assert close(model([1, 2, 3, 9, 5, 6, 7]), GPT2(PARAMS, 3)([1, 2, 3, 9, 5, 6, 7]))


@pytest.mark.parametrize("n_kept", range(4))
@pytest.mark.parametrize("then", ["plain", "tree"])
def test_the_accepted_path_is_not_computed_again(n_kept, then):
    tokens, parents = [5, 5, 6, 7, 6, 8, 9], [-1, 0, 0, 2, -1, 3, 2]  # a path 5 6 7 8, not in front
    model, x = GPT2(PARAMS, 3), [1, 2, 3]
    model.tree(x, tokens, ancestors(parents))
    x = x + [5, 6, 7, 8][:n_kept] + [11]
    with mock.patch.object(gpt2, "forward", side_effect=gpt2.forward) as forward:
        got = model(x) if then == "plain" else model.tree(x, [4], [[True]])[:1]
    assert len(forward.call_args.args[0]) == (1 if then == "plain" else 2)  # 11, and the new node
    assert close(got, GPT2(PARAMS, 3)(x))


@given(st.lists(st.tuples(prompts, trees, st.integers(-1, 6), st.booleans()), max_size=5))
@settings(deadline=None, max_examples=50)
def test_a_model_that_read_trees_answers_as_a_fresh_one(calls):
    """Trees, going on along one of their paths or elsewhere, and plain calls, in any order."""
    used, x = GPT2(PARAMS, 3), [1]
    for prompt, (parents, tokens), node, goes_on in calls:
        x = x if goes_on and len(x) < 9 else prompt
        assert close(used.tree(x, tokens, ancestors(parents)),
                     GPT2(PARAMS, 3).tree(x, tokens, ancestors(parents)))
        x = (x + [[], *paths(tokens, parents)][1 + min(node, len(tokens) - 1)] + [7])[:16]
        if not goes_on:
            assert close(used(x, 1), GPT2(PARAMS, 3)(x, 1))


def test_a_whole_decoding_reads_every_id_once_and_every_node_once():
    model = GPT2(PARAMS, 3)
    step = partial(tree_step, drafts=[path_by_path(warped(GPT2(PARAMS, 3), temperature=2.0))],
                   target=tree_warped(model), widths=(2, 1, 1))
    with mock.patch.object(gpt2, "forward", side_effect=gpt2.forward) as forward:
        rounds = list(generate([1, 2, 3], step, 10, np.random.default_rng(3)))
    read = [len(call.args[0]) for call in forward.call_args_list if call.args[4] is PARAMS
            and call.args[3] is model.cache]
    assert read == [(3 if i == 0 else 1) + len(round.guesses) for i, round in enumerate(rounds)]


def test_a_tree_may_have_more_nodes_than_the_context_has_places_left():
    x, tokens = list(range(13)), [1, 2, 3, 4, 5, 6]
    got = GPT2(PARAMS, 3).tree(x, tokens, ancestors([-1] * 6))
    assert close(got[1:], [GPT2(PARAMS, 3)(x + [token])[-1] for token in tokens])


def test_an_interrupted_tree_pass_leaves_a_true_cache():
    model, x = GPT2(PARAMS, 3), [1, 2, 3]
    model.tree(x, [4, 5], ancestors([-1, 0]))
    with mock.patch.object(gpt2, "forward", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        model.tree(x + [4, 5], [6], ancestors([-1]))
    assert close(model(x + [4, 9]), GPT2(PARAMS, 3)(x + [4, 9]))


@pytest.mark.parametrize("x, tokens, parents, message", [
    ([], [1], [-1], "len"), ([1] * 16, [1], [-1], "n_ctx"), ([1] * 15, [1, 2], [-1, 0], "n_ctx"),
    ([1], [13], [-1], "n_vocab")])
def test_a_tree_that_does_not_fit_is_named(x, tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        GPT2(PARAMS, 3).tree(x, tokens, ancestors(parents))


def test_every_node_is_penalised_for_its_own_path():
    model, knobs = GPT2(PARAMS, 3), dict(repetition_penalty=1.7, temperature=0.8, top_k=5)
    x, tokens, parents = [1, 2], [3, 4, 3, 5], [-1, -1, 1, 2]
    got = tree_warped(model, **knobs)(x, tokens, parents)
    for row, path in zip(got, [[], *paths(tokens, parents)]):
        assert np.allclose(row, warped(GPT2(PARAMS, 3), **knobs)(x + path, 1)[-1], atol=1e-10)


def test_the_repetition_penalty_in_a_tree_keeps_the_warped_law():
    def penalised(model):
        return lambda ids, n_last=1: warp(4 * model(ids, n_last) - 40, ids=ids, repetition_penalty=1.8)

    draft, target = map(penalised, (toy(3, 31), toy(3, 32)))
    got = law(lambda rng: run([0], stepper(draft, target, (2, 1)), 3, rng))
    assert distance(got, text_law([0], target, 3)) < EXACT


def test_unknown_siblings_are_named():
    with pytest.raises(ValueError, match="siblings"):
        stepper(*DENSE, (2,), "twins")([0], 3, np.random.default_rng(0))
