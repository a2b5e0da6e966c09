"""benchmarks/power.py: what the tests of engines see, and docs/power.md."""

import numpy as np
import pytest

from benchmarks import power
from benchmarks.power import PROTOCOLS, VERIFIERS, fits, rounds, share
from docs.tables import stored
from exact.rules.batched import EXACT

RATIO, *_ = power.RIGHT
SMALLER = {"vLLM wide": {"V": 512, "n": 5_120}}  # the whole one takes seconds
# rules that a protocol is known to see; the other protocols see target-draw
SEEN = {"SGLang": "last-row-bonus", "transformers": "greedy-match",
        "FlashInfer": "always-rejected"}


def passes(protocol, rule, seed=0):
    test = PROTOCOLS[protocol].passes
    return test(VERIFIERS[rule], np.random.default_rng(seed), **SMALLER.get(protocol, {}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exact_rule_passes_every_protocol_and_a_wrong_one_does_not(protocol):
    """A right rule fails a test by chance with a probability that the page gives as 0."""
    assert passes(protocol, RATIO)
    assert not passes(protocol, SEEN.get(protocol, "target-draw"))


@pytest.mark.parametrize("protocol", ["vLLM V1", "vLLM narrow"])
def test_equal_rows_hide_faults_of_rows(protocol):
    """The rule's rounds are those of the ratio rule, number by number."""
    assert passes(protocol, "last-row-bonus")


@pytest.mark.parametrize("deviations, is_right", [(9, True), (11, False)])
def test_chi_squared_must_be_below_df_and_10_standard_deviations(deviations, is_right):
    """Five tokens, 10,000 of each expected, so df = 4; two have x more and x fewer."""
    chi_squared = 4 + deviations * np.sqrt(2 * 4)
    x = round(np.sqrt(10_000 * chi_squared / 2))
    tokens = np.repeat(range(5), [10_000 + x, 10_000 - x, 10_000, 10_000, 10_000])
    assert fits(tokens, np.full(5, 0.2)) == is_right


def test_rounds_of_many_parts_have_the_rows_that_are_given(monkeypatch):
    monkeypatch.setattr(power, "NUMBERS", 100)
    rows = np.eye(3)[[1, 2, 0]]
    assert (rounds(VERIFIERS[RATIO], rows[:2], rows, 100, np.random.default_rng(0))
            == [1, 2, 0]).all()


def test_shares_have_their_standard_error():
    assert [share(0, 20), share(20, 20), share(5, 20)] == ["0", "1", "0.25 +- 0.10"]


def test_the_figures_are_of_known_rules_and_all_protocols():
    """Five wrong rules pass the wide test, and never the narrow one."""
    figures = stored("power")
    assert figures.keys() <= VERIFIERS.keys()  # a new rule is measured with the next run
    n_wide_alone = 0
    for rule, row in figures.items():
        assert [*row] == [*PROTOCOLS] and row["oracle"] == [int(rule in EXACT), 1]
        n_wide_alone += row["vLLM wide"][0] > 0 and row["vLLM narrow"][0] == 0
    assert n_wide_alone == 5
