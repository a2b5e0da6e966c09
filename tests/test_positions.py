"""Acceptance by position: identities, and the coverage of intervals."""

import numpy as np
import pytest

from measure.passes import Run
from measure.positions import PositionCounts, counts_of_race, position_figures, speedups_of_counts
from speculative import Round
from theory.speedup import tokens_of_rounds, walltime_improvement
from variants.registry import Costs

K = 3


def written(accepted):
    """Return a text whose rounds accepted these numbers of K guesses."""
    return Run(None, None, rounds=[Round([0] * (n + 1), [0] * K, [], [], n) for n in accepted])


def test_without_censoring_the_expected_tokens_are_the_mean_of_the_rounds():
    accepted = np.random.default_rng(0).integers(K + 1, size=200).tolist()
    figures = position_figures(counts_of_race([[written(accepted)]], K))
    rates = np.array([place["acceptance"] for place in figures])
    assert tokens_of_rounds(rates)[-1] == pytest.approx(1 + np.mean(accepted))


def test_guesses_are_counted_by_their_position_and_untested_ones_are_not():
    counts = counts_of_race([[written([2, 0, 3])]], K)
    assert counts.tested.tolist() == [[3, 2, 2]] and counts.accepted.tolist() == [[2, 2, 1]]


def test_the_repeats_of_a_prompt_are_added():
    one, other = [written([3, 0, 2])], [written([1, 1])]
    both = counts_of_race([one, other], K)
    for counts, *each in zip(both, counts_of_race([one], K), counts_of_race([other], K)):
        assert counts.tolist() == np.add(*each).tolist()


def test_with_one_acceptance_at_all_positions_the_speedups_are_those_of_the_formula():
    """Every prompt has the same counts, so every resample has the same speed-up."""
    alpha, costs = 0.75, Costs(1.0, [10.0, 11.0, 12.0, 14.0])
    tested = np.full((5, K), 40)
    predicted = speedups_of_counts(PositionCounts(tested, tested * 3 // 4), costs)
    assert [*predicted] == [1, 2, 3]
    for k, figures in predicted.items():
        wanted = walltime_improvement(alpha, k, costs.c, costs.pass_cost[k])
        assert [figures[name] for name in ("low", "speedup", "high")] == \
            pytest.approx([wanted] * 3)


def counts_of_coins(rng, n_prompts, spread, n_guesses=40):
    """Return counts at one position: each prompt has its own acceptance, .7 on average."""
    rates = np.clip(0.7 + spread * rng.standard_normal(n_prompts), 0, 1)
    accepted = rng.binomial(n_guesses, rates)
    tested = np.full((n_prompts, 1), n_guesses)
    return PositionCounts(tested, accepted.reshape(-1, 1))


def split(counts):
    """Return counts in which each guess is a prompt of its own."""
    n_tested = int(counts.tested.sum())
    accepted = np.arange(n_tested) < counts.accepted.sum()
    return PositionCounts(np.ones((n_tested, 1), int), accepted.astype(int).reshape(-1, 1))


def coverage(n_prompts, n_trials, change=lambda counts: counts):
    """Return how often the interval from changed counts holds .7."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(n_trials):
        place, = position_figures(change(counts_of_coins(rng, n_prompts, spread=0.1)))
        hits += place["low"] <= 0.7 <= place["high"]
    return hits / n_trials


def test_intervals_over_prompts_cover_and_intervals_over_guesses_do_not():
    assert 0.83 < coverage(25, 200) < 0.96
    assert coverage(10, 60, split) < 0.8
