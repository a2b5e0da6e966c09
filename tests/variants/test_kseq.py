"""K-SEQ: exact at every place and jointly, and better than one draft."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import expectation
from speculative import draft_and_verify, generate, make_step
from tests.small import tree_step
from tests.toys import PAIRS, path_by_path, toy
from variants.kseq import find_rho, guess_chains, left_over, shared, verify_kseq

EXACT = 1e-12


def stepper(draft, target, K, chains):
    guess = partial(guess_chains, draft=draft, chains=chains)
    return make_step(path_by_path(target), K, guess, verify_kseq)


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
    assert np.allclose(passed + (1 - passed.sum()) * rest, p_target, atol=1e-9)


@given(rows, rows, st.integers(2, 6))
@settings(deadline=None)
def test_no_smaller_rho_would_do(p_draft, p_target, m):
    rho = find_rho(p_draft, p_target, m)
    if rho > 1 + 1e-6:
        beta = shared(p_draft, p_target, rho - 1e-6).sum()
        assert 1 - (1 - beta) ** m > (rho - 1e-6) * beta - EXACT


def test_one_chain_is_speculative_sampling():
    for seed in range(20):
        chain, tree = ([result.ids
                        for result in generate([0], step, 9, np.random.default_rng(seed))]
                       for step in (draft_and_verify(*PAIRS["dense"], 3),
                                    stepper(*PAIRS["dense"], 3, 1)))
        assert chain == tree


@pytest.mark.parametrize("seed", range(6))
def test_more_chains_keep_more_and_so_does_kseq_beside_multi_step(seed):
    draft, target = toy(4, seed, zeros=0), toy(4, 60 + seed, zeros=0)
    steps = [stepper(draft, target, 1, chains) for chains in (1, 2, 3)]
    kept = [expectation(partial(step, [0], 9), lambda result: len(result.ids)) for step in steps]
    step = tree_step(draft, target, (3,), "independent")
    multi_step = expectation(partial(step, [0], 9), lambda result: len(result.ids))
    assert kept == sorted(kept) and kept[2] >= multi_step - EXACT


def test_equal_laws_need_no_rho():
    for row in ([0, 1 / 6, 4 / 6, 1 / 6], [0.1, 0.2, 0.7], [1 / 3] * 3):
        assert find_rho(np.array(row), np.array(row), 4) == 1
