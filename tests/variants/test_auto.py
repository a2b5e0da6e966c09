"""--K auto: lossless, quick to find K, and idle where no K pays."""

import numpy as np
import pytest

from gpt2 import common_prefix
from speculative import complete, generate
from exact.law import distance, law, text_law
from exact.toys import counted, toy
from theory.speedup import best_K
from variants.auto import K_MAX, LONG, PROBE, Costs, Measuring, auto, auto_measuring
from variants.shared.long_context import windowed

EVEN = Costs(c=0.1, pass_cost=[1.0] * (K_MAX + 1))
CHEAP_PAIR = Costs(c=0.1, pass_cost=[1.0, 1.1, 1.3, 3, 4, 5, 6, 7, 8])


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
    costs = Costs(c=0.2, pass_cost=[1 + 0.3 * K for K in range(K_MAX + 1)])
    chosen, rounds = choices(draft, target, costs, N=1000)
    assert len(draft.calls) < 8 + 1000 / PROBE
    pauses = [gap for gap in np.diff(np.flatnonzero(chosen)).tolist() if gap > 1]
    assert len(pauses) >= 4
    assert pauses == [PROBE * 2**i + 1 for i in range(len(pauses))]  # 33, 65, 129, 257, ...


def test_a_draft_that_becomes_good_is_noticed():
    useless, target = fixed_acceptance(0.0)
    draft = lambda ids, n_last: (useless if len(ids) < 300 else target)(ids, n_last)
    costs = Costs(c=0.2, pass_cost=[1 + 0.1 * K for K in range(K_MAX + 1)])
    chosen, rounds = choices(draft, target, costs, N=3000)
    assert chosen[-1] >= 4 and 0 in chosen


# ---- the first rounds as measurements

class Clock:
    """Time that passes only where a model reads: so many seconds a row, as GPT2 would compute."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def model(self, model, seconds_a_row):
        read = []

        def wrapper(ids, n_last=1):
            n_past = min(common_prefix(read, ids), len(ids) - n_last)
            self.now += seconds_a_row * (len(ids) - n_past)
            read[:] = ids
            return model(ids, n_last)

        return wrapper


def measured(seconds_a_row, N=200, x=(0,) * 9, step_of=lambda step: step):
    """What is learned of a draft that costs a quarter of its target: every K, and the costs."""
    clock, chosen, told = Clock(), [], []
    draft, target = toy(3, 41, 0), toy(3, 42, 0)
    measuring = Measuring(clock.model(draft, seconds_a_row / 4),
                          clock.model(target, seconds_a_row), clock)
    step = auto_measuring(measuring, lambda K, alpha: chosen.append(K),
                          lambda costs: told.append((len(chosen), costs)))
    rounds = list(generate(list(x), step_of(step), N, np.random.default_rng(0)))
    return measuring, chosen, told, rounds


@pytest.mark.parametrize("seconds_a_row, repeats", [(LONG / 2, 2), (LONG * 2, 1)])
def test_every_K_is_measured_in_rounds_that_are_text(seconds_a_row, repeats):
    measuring, chosen, told, rounds = measured(seconds_a_row)
    n = 1 + repeats * (K_MAX + 1)  # the first round reads the prompt: it is not counted
    assert sorted(chosen[1:n]) == sorted([*range(K_MAX + 1)] * repeats)
    assert [at for at, _ in told] == [n] and len(rounds) == len(chosen) > n
    ((_, costs),) = told
    assert costs.c == pytest.approx(0.25)
    assert costs.pass_cost == pytest.approx([K + 1 for K in range(K_MAX + 1)])
    assert np.mean(chosen[n:]) < 0.1  # no K pays where every row costs as much as the first


def test_a_slow_moment_is_measured_again_and_not_believed():
    measuring = Measuring(None, None)
    measuring.passes = [[0.001 * (K + 1)] * 2 for K in range(K_MAX + 1)]
    assert measuring.next_K() is None
    measuring.passes[3] = [0.02, 0.004]
    assert measuring.next_K() == 3
    measuring.passes[3].append(0.0045)
    measuring.passes[5] = [0.009, 0.02, 0.03, 0.04]  # never twice the same: the least must do
    measuring.guess = 0.0005
    assert measuring.next_K() is None
    assert measuring.costs() == (0.5, pytest.approx([1, 2, 3, 4, 5, 9, 7, 8, 9]))


def test_the_seconds_of_measuring_are_those_of_its_rounds():
    clock = Clock()
    model = clock.model(toy(3, 42, 0), 1.0)
    measuring = Measuring(lambda ids, n_last: np.ones((n_last, 3)) / 3, model, clock)
    step, x = auto_measuring(measuring), [0]
    while measuring.next_K() is not None:
        before = clock()
        x = x + step(x, 99, np.random.default_rng(0)).ids
        assert clock() > before and measuring.seconds == clock()
    seconds = measuring.seconds
    step(x, 99, np.random.default_rng(0))
    assert measuring.seconds == seconds


def test_a_window_that_moves_is_not_taken_for_the_cost_of_a_round():
    _, _, told, _ = measured(LONG * 2, N=300, step_of=lambda step: windowed(step, 9, 24))
    ((_, costs),) = told
    assert costs.pass_cost == pytest.approx([K + 1 for K in range(K_MAX + 1)])


def test_a_text_that_is_too_short_to_measure_ends_well():
    _, chosen, told, rounds = measured(LONG / 2, N=12)
    assert told == [] and sum(len(round.ids) for round in rounds) == 12


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_the_law_is_the_targets_while_the_costs_are_measured(zeros):
    draft, target = toy(3, 41, zeros), toy(3, 42, zeros)

    def text(rng):
        clock = Clock()
        models = clock.model(draft, 1.0), clock.model(target, 4.0)
        return complete([0], auto_measuring(Measuring(*models, clock)), 5, rng)

    assert distance(law(text), text_law([0], target, 5)) < 1e-12
