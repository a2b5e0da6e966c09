"""--K auto: lossless, quick to find K, and idle where no K pays."""

import numpy as np
import pytest

from speculative import complete, generate
from tests.enumerating import distance, law, text_law
from tests.toys import counted, toy
from theory.speedup import best_K
from variants.auto import K_MAX, PROBE, Costs, auto, measure

EVEN = Costs(c=0.1, pass_cost=[1.0] * (K_MAX + 1), seconds=0.0)
CHEAP_PAIR = Costs(c=0.1, pass_cost=[1.0, 1.1, 1.3, 3, 4, 5, 6, 7, 8], seconds=0.0)


@pytest.mark.parametrize("costs", [EVEN, CHEAP_PAIR])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_law_is_the_targets(costs, zeros):
    draft, target = toy(3, 41, zeros), toy(3, 42, zeros)
    costs = costs._replace(pass_cost=costs.pass_cost[:3])  # K <= 2
    got = law(lambda rng: complete([0], auto(draft, target, costs), 4, rng))
    assert distance(got, text_law([0], target, 4)) < 1e-12


def choices(draft, target, costs, N=400):
    """Every K that was chosen over a text of N tokens."""
    chosen = []
    step = auto(draft, target, costs, on_choice=lambda K, alpha: chosen.append(K))
    rounds = list(generate([0], step, N, np.random.default_rng(0)))
    return chosen, rounds


def test_a_perfect_draft_gets_the_largest_K():
    target = toy(5, 43)
    chosen, _ = choices(target, target, EVEN)
    assert chosen[-1] == K_MAX


def fixed_acceptance(alpha):
    """Draft and target of context-free rows that share the mass alpha."""
    p_target, p_draft = np.array([1.0, 0.0]), np.array([alpha, 1 - alpha])
    return [lambda ids, n_last, row=row: np.array([row] * n_last) for row in (p_draft, p_target)]


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_K_settles_near_the_best_one_for_the_acceptance(alpha):
    chosen, rounds = choices(*fixed_acceptance(alpha), EVEN, N=2000)
    best = best_K(alpha, EVEN.c, EVEN.pass_cost)
    assert abs(np.mean(chosen[len(chosen) // 2 :]) - best) <= 1.5


def test_a_useless_draft_is_hardly_called():
    draft, target = map(counted, fixed_acceptance(0.0))
    costs = Costs(c=0.2, pass_cost=[1 + 0.3 * K for K in range(K_MAX + 1)], seconds=0.0)
    chosen, rounds = choices(draft, target, costs, N=1000)
    assert len(draft.calls) < 8 + 1000 / PROBE
    pauses = [gap for gap in np.diff(np.flatnonzero(chosen)).tolist() if gap > 1]
    assert len(pauses) >= 4
    assert pauses == [PROBE * 2**i + 1 for i in range(len(pauses))]  # 33, 65, 129, 257, ...


def test_a_draft_that_becomes_good_is_noticed():
    useless, target = fixed_acceptance(0.0)
    draft = lambda ids, n_last: (useless if len(ids) < 300 else target)(ids, n_last)
    costs = Costs(c=0.2, pass_cost=[1 + 0.1 * K for K in range(K_MAX + 1)], seconds=0.0)
    chosen, rounds = choices(draft, target, costs, N=3000)
    assert chosen[-1] >= 4 and 0 in chosen


def test_costs_are_measured_in_units_of_one_row():
    ticks = [0.0]

    def model(seconds_a_row):
        read = [0]

        def wrapper(ids, n_last=1):
            ticks[0] += seconds_a_row * max(len(ids) - read[0], n_last)
            read[0] = len(ids)
            return np.ones((n_last, 3)) / 3

        return wrapper

    costs = measure(model(1.0), model(4.0), [0, 1, 2], clock=lambda: ticks[0])
    assert costs.c == 0.25 and costs.pass_cost == [K + 1 for K in range(K_MAX + 1)]
