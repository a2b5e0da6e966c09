"""--K auto and stopping choose how many guesses to make: as many as pay, and none if none pays.

tests/test_laws.py has their distribution.
"""

import numpy as np
import pytest

from speculative import generate
from tests.small import fixed_acceptance, of_probabilities
from tests.toys import counted, toy
from theory.speedup import best_K
from variants import DECODERS
from variants.registry import Costs
from variants.speculative import RETRY_AFTER

K_MAX = 8
EQUAL_COSTS = Costs(0.1, [1.0] * (K_MAX + 1))
RISING_COSTS = Costs(0.1, [1 + 0.1 * K for K in range(K_MAX + 1)])
FLAGS = {"speculative": {"K": "auto"}, "stopping": {}}
EACH = pytest.mark.parametrize("name", FLAGS)


def guesses_per_round(name, draft, target, costs, N):
    """Return the number of guesses in every round of a text of N tokens."""
    step = DECODERS[name].build(of_probabilities(draft, target, costs), **FLAGS[name])
    return [len(result.guesses) for result in generate([0], step, N, np.random.default_rng(0))]


@EACH
def test_a_perfect_draft_gets_every_guess_there_is(name):
    draft, target = (counted(toy(5, 43)) for _ in range(2))
    chosen = guesses_per_round(name, draft, target, EQUAL_COSTS, N=600)
    assert chosen[20:-1] == [K_MAX] * (len(chosen) - 21)
    assert len(draft.calls) == sum(chosen)


@EACH
@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("costs", [EQUAL_COSTS, RISING_COSTS])
def test_the_guesses_settle_near_the_best_K_for_the_acceptance(name, costs, alpha):
    in_ms = Costs(100 * costs.draft, [100 * cost for cost in costs.passes])
    chosen = guesses_per_round(name, *fixed_acceptance(alpha), in_ms, N=1000)
    best = best_K(alpha, costs.draft, costs.passes)
    assert abs(np.mean(chosen[len(chosen) // 2 :]) - best) <= 1


@EACH
def test_a_useless_draft_is_hardly_called_but_tried_again(name):
    draft, target = map(counted, fixed_acceptance(0.0))
    chosen = guesses_per_round(name, draft, target, RISING_COSTS._replace(draft=0.2), N=1000)
    assert len(draft.calls) < 60
    pauses = [gap for gap in np.diff(np.flatnonzero(chosen)).tolist() if gap > 1]
    if name == "stopping":
        assert np.flatnonzero(chosen)[-1] > 900 and max(pauses) < 200
    else:  # each pause is twice as long: 33, 65, 129, 257 ..
        assert len(draft.calls) < 8 + 1000 / RETRY_AFTER and len(pauses) >= 4
        assert pauses == [RETRY_AFTER * 2**i + 1 for i in range(len(pauses))]
