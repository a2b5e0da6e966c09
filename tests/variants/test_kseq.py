"""K-SEQ: exact at every place and jointly, and better than one draft."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative import complete, draft_and_verify, generate, speculative_step
from exact.law import distance, expectation, law, text_law
from exact.toys import PAIRS, mapped, one_hot, path_by_path, toy
from variants.kseq import find_rho, guess_chains, left_over, shared, verify_kseq
from variants.tree import guess_tree, verify_tree

EXACT = 1e-12
DENSE, SPARSE = PAIRS["dense"], PAIRS["sparse"]
MORE = PAIRS | {"sparse, greedy draft": (mapped(SPARSE[0], one_hot), SPARSE[1]),
                "dense, greedy target": (DENSE[0], mapped(DENSE[1], one_hot))}


def stepper(draft, target, K, chains):
    return partial(speculative_step, target=path_by_path(target), K=K, test=verify_kseq,
                   make_guesses=partial(guess_chains, draft=draft, chains=chains))


@pytest.mark.parametrize("pair, K, chains, N", [
    ("sparse", 1, 3, 3), ("sparse", 2, 2, 3), ("dense", 1, 2, 3), ("dense", 1, 3, 2),
    ("dense", 2, 2, 3), ("sparse, greedy draft", 2, 2, 4), ("dense, greedy target", 1, 3, 3),
    ("four tokens", 1, 2, 3)])
def test_kseq_has_the_targets_joint_law(pair, K, chains, N):
    draft, target = MORE[pair]
    got = law(lambda rng: complete([0], stepper(draft, target, K, chains), N, rng))
    assert distance(got, text_law([0], target, N)) < EXACT


def test_a_stop_id_keeps_the_law():
    got = law(lambda rng: complete([0], stepper(*SPARSE, 2, 2), 3, rng, {1}))
    assert distance(got, text_law([0], SPARSE[1], 3, {1})) < EXACT


rows = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any).map(
    lambda w: np.array(w) / sum(w))


@given(rows, rows, st.integers(1, 6))
@settings(deadline=None)
def test_what_passes_and_what_is_left_add_up_to_the_target(p_draft, p_target, m):
    rho = find_rho(p_draft, p_target, m)
    once = shared(p_draft, p_target, rho)
    beta = once.sum()
    passed = once * sum((1 - beta) ** i for i in range(m))
    rest = left_over(p_draft, p_target, rho, m)
    assert 1 <= rho <= m and (passed <= p_target + EXACT).all()
    assert np.allclose(passed + (1 - passed.sum()) * rest / rest.sum(), p_target, atol=1e-9)


@given(rows, rows, st.integers(2, 6))
@settings(deadline=None)
def test_no_smaller_rho_would_do(p_draft, p_target, m):
    rho = find_rho(p_draft, p_target, m)
    if rho > 1 + 1e-6:
        beta = shared(p_draft, p_target, rho - 1e-6).sum()
        assert 1 - (1 - beta) ** m > (rho - 1e-6) * beta - EXACT


def test_one_chain_is_speculative_sampling():
    for seed in range(20):
        chain, tree = ([round.ids for round in generate([0], step, 9, np.random.default_rng(seed))]
                       for step in (draft_and_verify(DENSE[0], DENSE[1], 3),
                                    stepper(*DENSE, 3, 1)))
        assert chain == tree


@pytest.mark.parametrize("seed", range(6))
def test_more_chains_keep_more_and_so_does_kseq_beside_multi_step(seed):
    draft, target = toy(4, seed, zeros=0), toy(4, 60 + seed, zeros=0)
    steps = [stepper(draft, target, 1, chains) for chains in (1, 2, 3)]
    kept = [expectation(partial(step, [0], 9), lambda round: len(round.ids)) for step in steps]
    guess = partial(guess_tree, drafts=[path_by_path(draft)], widths=(3,), siblings="independent")
    step = partial(speculative_step, target=path_by_path(target), K=1, make_guesses=guess,
                   test=verify_tree)
    multi_step = expectation(lambda rng: step([0], 9, rng), lambda round: len(round.ids))
    assert kept == sorted(kept) and kept[2] >= multi_step - EXACT


def test_equal_laws_need_no_rho():
    for row in ([0, 1 / 6, 4 / 6, 1 / 6], [0.1, 0.2, 0.7], [1 / 3] * 3):
        assert find_rho(np.array(row), np.array(row), 4) == 1


def test_an_equal_draft_needs_the_fewest_target_passes():
    rounds = list(generate([0], stepper(DENSE[1], DENSE[1], 3, 3), 20, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [4] * 5
