"""K-SEQ: its formulas at one position, and more accepted tokens with more chains."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import expectation
from speculative import make_step
from tests.small import tree_step
from tests.toys import path_by_path, rows_of_four, toy
from variants.kseq import find_rho, guess_chains, left_over, shared, verify_kseq

EXACT = 1e-12


@given(rows_of_four, rows_of_four, st.integers(1, 6))
@settings(deadline=None)
def test_accepted_guesses_and_the_residual_sum_to_the_target(p_draft, p_target, m):
    rho = find_rho(p_draft, p_target, m)
    once = shared(p_draft, p_target, rho)
    beta = once.sum()
    accepted = once * sum((1 - beta) ** i for i in range(m))
    rest = left_over(p_draft, p_target, rho, m)
    assert 1 <= rho <= m and (accepted <= p_target + EXACT).all()
    assert np.allclose(accepted + (1 - accepted.sum()) * rest, p_target, atol=1e-9)


@given(rows_of_four, rows_of_four, st.integers(2, 6))
@settings(deadline=None)
def test_rho_is_the_smallest_that_fits(p_draft, p_target, m):
    rho = find_rho(p_draft, p_target, m)
    if rho > 1 + 1e-6:
        beta = shared(p_draft, p_target, rho - 1e-6).sum()
        assert 1 - (1 - beta) ** m > (rho - 1e-6) * beta - EXACT


@pytest.mark.parametrize("seed", range(6))
def test_more_chains_yield_more_tokens_and_three_at_least_as_many_as_multi_step(seed):
    draft, target = (toy(4, seed + more, zeros=0) for more in (0, 60))
    steps = [make_step(path_by_path(target), 1,
                       partial(guess_chains, draft=draft, chains=chains), verify_kseq)
             for chains in (1, 2, 3)]
    steps.append(tree_step(draft, target, (3,), "independent"))
    *means, multi_step = (expectation(partial(step, [0], 9), lambda result: len(result.ids))
                          for step in steps)
    assert means == sorted(means) and means[2] >= multi_step - EXACT


def test_rho_is_1_for_equal_distributions():
    for row in ([0, 1 / 6, 4 / 6, 1 / 6], [0.1, 0.2, 0.7], [1 / 3] * 3):
        assert find_rho(np.array(row), np.array(row), 4) == 1
