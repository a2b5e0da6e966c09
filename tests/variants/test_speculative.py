"""--K auto finds K quickly, and rests where no K pays. (Exactness: tests/test_laws.py.)"""

import numpy as np
import pytest

from speculative import generate
from tests.small import fixed_acceptance, of_probabilities
from tests.toys import counted, toy
from theory.speedup import best_K
from variants.registry import Costs
from variants.speculative import RETRY_AFTER, build

EQUAL_COSTS = Costs(0.1, [1.0] * 9)


def guesses_per_round(draft, target, costs, N=400):
    """Return the number of guesses in every round of a text of N tokens."""
    step = build(of_probabilities(draft, target, costs), "auto")
    return [len(result.guesses) for result in generate([0], step, N, np.random.default_rng(0))]


def test_a_perfect_draft_gets_the_largest_K():
    target = toy(5, 43)
    assert guesses_per_round(target, target, EQUAL_COSTS)[-2] == 8


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_K_settles_near_the_best_one_for_the_acceptance(alpha):
    chosen = guesses_per_round(*fixed_acceptance(alpha), EQUAL_COSTS, N=2000)
    best = best_K(alpha, EQUAL_COSTS.c, EQUAL_COSTS.pass_cost)
    assert abs(np.mean(chosen[len(chosen) // 2 :]) - best) <= 1.5


def test_only_the_ratios_of_the_costs_matter():
    pair = fixed_acceptance(0.6)
    in_ms = Costs(100 * EQUAL_COSTS.draft, [100 * cost for cost in EQUAL_COSTS.passes])
    assert guesses_per_round(*pair, EQUAL_COSTS) == guesses_per_round(*pair, in_ms)


def test_a_useless_draft_is_hardly_called():
    draft, target = map(counted, fixed_acceptance(0.0))
    costs = Costs(0.2, [1 + 0.3 * K for K in range(9)])
    chosen = guesses_per_round(draft, target, costs, N=1000)
    assert len(draft.calls) < 8 + 1000 / RETRY_AFTER
    pauses = [gap for gap in np.diff(np.flatnonzero(chosen)).tolist() if gap > 1]
    assert len(pauses) >= 4
    assert pauses == [RETRY_AFTER * 2**i + 1 for i in range(len(pauses))]  # 33, 65, 129, 257 ..
