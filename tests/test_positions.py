"""Acceptance by position: counts, identities, and intervals."""

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


def test_guesses_of_all_repeats_are_counted_by_their_position_and_untested_ones_are_not():
    counts = counts_of_race([[written([2, 0, 3])], [written([1])]], K)
    assert counts.tested.tolist() == [[4, 3, 2]] and counts.accepted.tolist() == [[3, 2, 1]]


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


def test_an_interval_is_over_prompts_and_not_over_guesses():
    """A quarter of the resamples has the first of two prompts alone, another one the second."""
    counts = PositionCounts(np.full((2, 1), 40), np.array([[0], [40]]))
    assert position_figures(counts) == [{"tested": 80, "acceptance": 0.5, "low": 0, "high": 1}]
