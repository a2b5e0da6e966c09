"""Token trees: attention equals each path alone, siblings have their rows, paths are reused."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from exact.law import expectation
from gpt2 import GPT2
from sampling import warp
from speculative import Round, complete, draft_and_verify, verify
from tests.distributions import Scripted
from tests.small import tiny_params, tree_step
from tests.toys import PAIRS, toy, tree_of
from variants.block import block_verify
from variants.kseq import verify_kseq
from variants.shared import tree_gpt2
from variants.shared.branches import Tree, best_ids
from variants.shared.tree_gpt2 import TreeGPT2
from variants.traversal import verify_traversal
from variants.tree import draw_siblings, verify_tree

PARAMS = tiny_params(n_ctx=16)


# ---- guesses and test

@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("of_tree, of_chain", [
    (verify_tree, verify), (verify_kseq, verify), (verify_traversal, block_verify)])
def test_on_a_tree_of_one_path_the_test_is_that_of_a_chain(pair, of_tree, of_chain):
    steps = (draft_and_verify(*PAIRS[pair], 3, of_chain),
             tree_step(*PAIRS[pair], (1, 1, 1), "independent", of_tree))
    for seed in range(20):
        chain, tree = (complete([0], step, 12, np.random.default_rng(seed)) for step in steps)
        assert chain == tree


@pytest.mark.parametrize("siblings", ["independent", "distinct"])
@pytest.mark.parametrize("seed", range(10))
def test_multi_step_sampling_accepts_more_than_sample_and_match(seed, siblings):
    """Miao et al. (2023): sample and match draws from the target and looks for that child."""
    draft, target = (toy(4, seed + more, zeros=0) for more in (0, 50))
    p_target = target([0])[0]
    accepted = expectation(partial(tree_step(draft, target, (2,), siblings), [0], 9),
                           lambda result: len(result.ids) - 1)
    matched = expectation(partial(draw_siblings, draft([0])[0], 2, siblings),
                          lambda drawn: p_target[sorted({token for token, _ in drawn})].sum())
    assert accepted >= matched - 1e-12


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 12))
def test_the_best_ids_are_those_of_a_stable_sort(row, n):
    assert best_ids(np.array(row), n) == np.argsort(-np.array(row), kind="stable")[:n].tolist()


def test_siblings_have_the_rows_that_they_were_drawn_from():
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


# ---- trees as lists of parents

parents_lists = st.lists(st.integers(0, 9), max_size=7).map(
    lambda numbers: [number % (i + 1) - 1 for i, number in enumerate(numbers)])


@given(parents_lists)
def test_mask_depth_and_paths_agree_with_a_walk_up(parents):
    tree = tree_of(range(10, 10 + len(parents)), parents)
    sees = tree.ancestors()
    for i, path in enumerate(tree.paths()):
        node = i
        walked = []
        while node >= 0:
            assert sees[i, node]
            walked.insert(0, tree.tokens[node])
            node = parents[node]
        assert path == walked and sees[i].sum() == len(walked)
        assert tree.find(path) == i and ([7] + tree).texts()[1 + i] == [7, *path]


def test_a_path_drawn_twice_is_one_node_and_two_proposals():
    tree = Tree()
    row = np.array([0.5, 0.5])
    assert [tree.add(-1, 1, row), tree.add(0, 1, row), tree.add(-1, 1, row)] == [0, 1, 0]
    assert tree.tokens == [1, 1] and tree.parents == [-1, 0] and len(tree.proposals) == 3
    assert [tree.find(ids) for ids in ([], [1], [1, 1], [0])] == [-1, 0, 1, None]
    assert len(tree) == 2 and len(tree.rows()) == 2
    assert tree.add_path([1, 0]) == 2 and len(tree.proposals) == 3  # a node, but no guess


def test_the_guesses_of_a_tree_are_never_counted_as_those_of_a_chain():
    tree = tree_of([5, 7, 9], [-1, -1, 1])  # 7 9 was accepted, but the nodes begin with 5
    result = Round([7, 9, 1], tree, tree.rows(), None)
    with pytest.raises(TypeError, match="not iterable"):
        print(result.n_accepted)


# ---- tree attention

trees = parents_lists.flatmap(lambda parents: st.tuples(st.lists(
    st.integers(0, 12), min_size=len(parents), max_size=len(parents)), st.just(parents)))
trees = trees.map(lambda nodes: tree_of(*nodes))
prompts = st.lists(st.integers(0, 12), min_size=1, max_size=9)


def close(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-10)


def tree_rows(model, x, tree):
    """Return the rows after x and after every node."""
    return model(x + tree, 1 + len(tree))


def fresh(ids):
    return GPT2(PARAMS, 3)(ids)


@pytest.mark.parametrize("n_accepted", range(4))
@pytest.mark.parametrize("then", ["plain", "tree"])
def test_the_accepted_path_is_not_computed_again(n_accepted, then):
    tree = tree_of([5, 5, 6, 7, 6, 8, 9], [-1, 0, 0, 2, -1, 3, 2])  # 5 6 7 8 are not the first
    model = TreeGPT2(PARAMS, 3)
    tree_rows(model, [1, 2, 3], tree)
    x = [1, 2, 3, *[5, 6, 7, 8][:n_accepted], 11]
    module = gpt2 if then == "plain" else tree_gpt2
    with mock.patch.object(module, "forward", side_effect=gpt2.forward) as forward:
        got = model(x) if then == "plain" else tree_rows(model, x, tree_of([4], [-1]))[:1]
    n_read = len(forward.call_args.args[0])
    assert n_read == (1 if then == "plain" else 2)  # 11, and the new node
    assert close(got, fresh(x))


@given(st.lists(st.tuples(prompts, trees, st.integers(-1, 6), st.booleans()), max_size=5))
@settings(deadline=None, max_examples=50)
def test_every_node_has_the_logits_of_its_path_alone_whatever_was_read_before(calls):
    """Texts continue along a path or are different ones; some calls have no tree."""
    used = TreeGPT2(PARAMS, 3)
    x = [1]
    for prompt, tree, node, continues in calls:
        x = x if continues and len(x) < 9 else prompt
        assert close(tree_rows(used, x, tree), [fresh(text)[-1] for text in (x + tree).texts()])
        x = ((x + tree).texts()[1 + min(node, len(tree) - 1)] + [7])[:16]
        if not continues:
            assert close(used(x, 1), fresh(x))


def test_a_tree_may_have_more_nodes_than_the_context_has_positions_left():
    x = list(range(13))
    tokens = [1, 2, 3, 4, 5, 6]
    got = tree_rows(TreeGPT2(PARAMS, 3), x, tree_of(tokens, [-1] * 6))
    assert close(got[1:], [fresh(x + [token])[-1] for token in tokens])


@pytest.mark.parametrize("x, tokens, parents, message", [
    ([], [1], [-1], "len"), ([1] * 16, [1], [-1], "n_ctx"),
    ([1] * 15, [1, 2], [-1, 0], "n_ctx"), ([1], [13], [-1], "n_vocab")])
def test_a_tree_that_does_not_fit_is_named(x, tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        tree_rows(TreeGPT2(PARAMS, 3), x, tree_of(tokens, parents))


def test_a_sibling_is_drawn_from_the_rest_of_a_sharp_row_even_if_it_is_subnormal():
    """Otherwise u times the sum rounds to the sum, and a token of weight 0 is drawn."""
    row = warp([-30.0, 10.0, 2.57], temperature=0.01)
    assert 0 < row[2] < np.finfo(float).tiny and row[0] == 0
    drawn = draw_siblings(row, 3, "distinct", Scripted([0.5, 0.9]))
    assert [token for token, _ in drawn] == [1, 2] and drawn[1][1].tolist() == [0, 0, 1]


@pytest.mark.parametrize("verify", [verify_tree, verify_traversal, verify_kseq])
def test_no_guess_is_accepted_by_a_row_of_nan(verify):
    tree = Tree()
    tree.add(-1, 0, np.array([0.5, 0.5]))
    p_target = np.array([[np.nan, np.nan], [0.5, 0.5]])
    with pytest.raises(ValueError, match="nan"):
        verify(tree, tree.rows(), p_target, np.random.default_rng(0))
