"""demo/costs.py measures passes in turn, after the text was read, and counts the fastest."""

from itertools import count

import pytest

from demo.costs import SECONDS, measure_costs
from gpt2 import common_prefix


class Clock:
    """Tell a time that advances only when a model computes a row."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def model(self, seconds_per_row, slow_calls=()):
        """Return a model that computes as many rows as GPT2; slow calls take 5 times longer."""
        read = []
        calls = count()

        def wrapper(ids, n_last=1):
            n_past = min(common_prefix(read, ids), len(ids) - n_last)
            factor = 5.0 if next(calls) in slow_calls else 1.0
            self.now += factor * seconds_per_row * (len(ids) - n_past)
            read[:] = ids

        return wrapper


@pytest.mark.parametrize("ids", [[0], [0] * 30])
@pytest.mark.parametrize("n_rows", [1, 4, 9])
def test_a_pass_costs_its_new_rows_and_not_the_rows_of_the_text(ids, n_rows):
    clock = Clock()
    costs = measure_costs(clock.model(0.001), clock.model(0.004), ids, n_rows, clock)
    assert costs.draft == pytest.approx(0.001)
    assert costs.passes == pytest.approx([0.004 * n for n in range(1, n_rows + 1)])


def test_a_slow_moment_does_not_change_the_costs():
    clock = Clock()
    target = clock.model(0.004, slow_calls=range(2, 8))
    costs = measure_costs(clock.model(0.001), target, [0] * 9, 4, clock)
    assert costs.passes == pytest.approx([0.004, 0.008, 0.012, 0.016])


def test_slow_models_are_measured_once():
    clock = Clock()
    measure_costs(clock.model(SECONDS), clock.model(SECONDS), [0] * 9, 3, clock)
    assert clock() == pytest.approx(SECONDS * (9 + 9 + 1 + 1 + 2 + 3))
