"""demo/costs.py: each pass measured by turns, the least counted, the text read before."""

import pytest

from demo.costs import SECONDS, measure_costs
from gpt2 import common_prefix


class Clock:
    """Count time that passes only when a model reads: seconds for each row that GPT2 computes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def model(self, seconds_per_row, late=()):
        """Return a model that takes this long; its calls `late` take five times as long."""
        read = []
        calls = iter(range(1000))

        def wrapper(ids, n_last=1):
            n_past = min(common_prefix(read, ids), len(ids) - n_last)
            slow = 5.0 if next(calls) in late else 1.0
            self.now += slow * seconds_per_row * (len(ids) - n_past)
            read[:] = ids

        return wrapper


@pytest.mark.parametrize("ids", [[0], [0] * 30])
@pytest.mark.parametrize("n_rows", [1, 4, 9])
def test_a_pass_costs_its_rows_and_not_those_of_the_text(ids, n_rows):
    clock = Clock()
    costs = measure_costs(clock.model(0.001), clock.model(0.004), ids, n_rows, clock)
    assert costs.draft == pytest.approx(0.001)
    assert costs.passes == pytest.approx([0.004 * n for n in range(1, n_rows + 1)])


def test_a_slow_moment_is_not_believed():
    clock = Clock()
    target = clock.model(0.004, late=range(2, 8))
    costs = measure_costs(clock.model(0.001), target, [0] * 9, 4, clock)
    assert costs.passes == pytest.approx([0.004, 0.008, 0.012, 0.016])


def test_slow_models_are_measured_once():
    clock = Clock()
    measure_costs(clock.model(SECONDS), clock.model(SECONDS), [0] * 9, 3, clock)
    assert clock() == pytest.approx(SECONDS * (9 + 9 + 1 + 1 + 2 + 3))
