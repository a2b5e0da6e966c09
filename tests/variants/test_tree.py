"""Token trees: attention equals each path alone, siblings have their rows; kseq and traversal."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exact.expected import along_paths
from exact.law import expectation, law
from gpt2 import GPT2
from sampling import warp
from speculative import complete, draft_and_verify, make_step, verify
from tests.distributions import Scripted, assert_same_law
from tests.reuse import assert_close, some_tokens, some_trees, tokens_read
from tests.small import tiny_params, tree_step
from tests.toys import PAIRS, rows_of_four, toy, tree_of
from variants.block import block_verify
from variants.kseq import find_rho, guess_chains, shared, verify_kseq
from variants.multipath import verify_best_path
from variants.shared.branches import Tree, best_ids
from variants.shared.tree_gpt2 import TreeGPT2
from variants.traversal import verify_traversal
from variants.tree import draw_siblings, verify_tree

ROUNDING = 1e-12
PARAMS = tiny_params(n_ctx=16)


def mean_tokens(step):
    """Return the mean number of tokens of a first round."""
    return expectation(partial(step, [0], 9), lambda result: len(result.ids))


# ---- guesses and test

@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("of_tree, of_chain", [
    (verify_tree, verify), (verify_kseq, verify), (verify_traversal, block_verify),
    (verify_best_path, block_verify)])
def test_on_a_tree_of_one_path_the_test_is_that_of_a_chain(pair, of_tree, of_chain):
    steps = (draft_and_verify(*PAIRS[pair], 3, of_chain),
             tree_step(*PAIRS[pair], (1, 1, 1), "independent", of_tree))
    for seed in range(8):
        chain, tree = (complete([0], step, 12, np.random.default_rng(seed)) for step in steps)
        assert chain == tree


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 12))
def test_the_best_ids_are_those_of_a_stable_sort(row, n):
    assert best_ids(np.array(row), n) == np.argsort(-np.array(row), kind="stable")[:n].tolist()


# ---- trees as lists of parents

@given(some_trees(range(13)))
def test_mask_depth_and_paths_agree_with_a_walk_up(tree):
    sees = tree.ancestors()
    for i, path in enumerate(tree.paths()):
        node = i
        walked = []
        while node >= 0:
            assert sees[i, node]
            walked.insert(0, tree.tokens[node])
            node = tree.parents[node]
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


# ---- tree attention

def rows_alone(texts):
    """Return the row after each text, from a model that has read nothing else."""
    return [GPT2(PARAMS, 3)(text)[-1] for text in texts]


@pytest.mark.parametrize("n_accepted", range(4))
def test_the_accepted_path_is_not_computed_again(n_accepted):
    tree = tree_of([5, 5, 6, 7, 6, 8, 9], [-1, 0, 0, 2, -1, 3, 2])  # 5 6 7 8 are not the first
    x = [1, 2, 3, *[5, 6, 7, 8][:n_accepted], 11]
    for text, n_new in ((x, 1), (x + tree_of([4], [-1]), 2)):  # 11, and the node below it
        model = TreeGPT2(PARAMS, 3)
        model([1, 2, 3] + tree, 1 + len(tree))
        with tokens_read() as numbers:
            rows = model(text, n_new)
        assert numbers == [n_new]
        assert_close(rows[0], *rows_alone([x]))


@given(some_tokens(range(13), most=8), some_trees(range(13)))
@example([*range(12)], tree_of([1, 2, 3, 4, 5, 6], [-1] * 6))  # more nodes than positions left
def test_every_node_has_the_logits_of_its_path_alone(x, tree):
    x = [7, *x]
    rows = TreeGPT2(PARAMS, 3)(np.array(x) + tree, 1 + len(tree))
    assert_close(rows, rows_alone((x + tree).texts()))


@pytest.mark.parametrize("x, tokens, n_last, message", [
    ([], [1], 2, "len"), ([1] * 16, [1], 2, "n_ctx"), ([1] * 15, [1, 2], 3, "n_ctx"),
    ([1], [13], 2, "n_vocab"),
    *(([1] * 5, [1, 2], n, f"n_last <= 1 . n_nodes = 3 .*= {n}$") for n in (-1, 0, 4))])
def test_a_chain_or_a_number_of_rows_that_does_not_fit_is_named(x, tokens, n_last, message):
    with pytest.raises(ValueError, match=message):
        TreeGPT2(PARAMS, 3)(x + tree_of(tokens, range(-1, len(tokens) - 1)), n_last)


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


# ---- K-SEQ

@given(rows_of_four, rows_of_four, st.integers(2, 6))
def test_rho_is_the_smallest_that_fits(p_draft, p_target, m):
    assert find_rho(p_draft, p_draft, m) == 1
    rho = find_rho(p_draft, p_target, m)
    if rho > 1 + 1e-6:
        beta = shared(p_draft, p_target, rho - 1e-6).sum()
        assert 1 - (1 - beta) ** m > (rho - 1e-6) * beta - ROUNDING


@pytest.mark.parametrize("seed", range(2))
def test_more_chains_yield_more_tokens_and_three_at_least_as_many_as_multi_step(seed):
    draft, target = (toy(4, seed + more, zeros=0) for more in (0, 60))
    steps = [make_step(along_paths(target), 1,
                       partial(guess_chains, draft=draft, chains=chains), verify_kseq)
             for chains in (1, 2, 3)]
    steps.append(tree_step(draft, target, (3,), "independent"))
    *means, multi_step = map(mean_tokens, steps)
    assert means == sorted(means) and means[2] >= multi_step - ROUNDING


# ---- traversal

@pytest.mark.parametrize("widths, siblings, n_toys", [
    ((1, 1), "distinct", 6), ((2, 1), "distinct", 3), ((1, 2), "distinct", 3),
    ((2, 2), "distinct", 2), ((2, 1), "independent", 2)])
def test_traversal_never_yields_fewer_tokens_than_the_walk_from_the_root(
        widths, siblings, n_toys):
    gains = []
    for seed in range(n_toys):
        draft, target = (toy(3, seed + more, zeros=0.2) for more in (0, 50))
        walk, traversal = (mean_tokens(tree_step(draft, target, widths, siblings, verify))
                           for verify in (verify_tree, verify_traversal))
        gains.append(traversal - walk)
    assert min(gains) > -ROUNDING and max(gains) > 0.001


@pytest.mark.parametrize("pair, widths, siblings", [
    ("sparse", (2, 2), "top"), ("greedy target", (2, 2), "top"),
    ("four tokens", (3,), "distinct"), ("four tokens", (2,), "independent")])
def test_with_one_hot_rows_or_one_level_traversal_is_the_walk_from_the_root(
        pair, widths, siblings):
    steps = [tree_step(*PAIRS[pair], widths, siblings, verify)
             for verify in (verify_tree, verify_traversal)]
    assert_same_law(*(law(lambda rng, step=step: step([0], 9, rng).ids) for step in steps))
