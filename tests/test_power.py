"""exact/power.py: what the tests of engines see, and docs/power.md."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from exact import power
from exact.kernels import EXACT
from exact.power import PROTOCOLS, VERIFIERS, fits, rounds, share
from tests.commands import outcome, refusal

ROOT = Path(power.__file__).parents[1]
STORED = ROOT / "benchmarks/results/power.json"
RATIO, MATCH, _ = power.RIGHT
QUICK = [name for name in PROTOCOLS if name not in ("vLLM wide", "TensorRT-LLM")]


def passes(protocol, rule, seed=0):
    return PROTOCOLS[protocol].passes(VERIFIERS[rule], np.random.default_rng(seed))


@pytest.mark.parametrize("protocol", QUICK)
def test_exact_rules_pass(protocol):
    """A right rule fails a test by chance with a probability that the page gives as 0."""
    assert passes(protocol, RATIO) and passes(protocol, MATCH)


@pytest.mark.parametrize("protocol", ["vLLM V1", "vLLM narrow", "oracle"])
def test_a_draw_from_the_target_is_seen(protocol):
    assert not passes(protocol, "ratio test, then a draw from the target")


@pytest.mark.parametrize("protocol", ["vLLM V1", "vLLM narrow"])
def test_equal_rows_hide_faults_of_rows(protocol):
    """The rule's rounds are those of the ratio test, number by number."""
    assert passes(protocol, "bonus token from the last guess's row")
    assert not passes("oracle", "bonus token from the last guess's row")


@pytest.mark.parametrize("protocol, rule", [
    ("SGLang", "bonus token from the last guess's row"),
    ("FlashInfer", "\"q = 1\"; argmax guesses, always rejected"),
    ("transformers", "\"q = 1\"; argmax guesses, always rejected"),
    ("transformers", "match with the target's best token, at any temperature")])
def test_every_protocol_can_fail(protocol, rule):
    assert not passes(protocol, rule)


def test_chi_squared_is_below_its_bound_for_the_right_row_only():
    row = np.array([0.5, 0.25, 0.125, 0.125 - 1e-6, 1e-6])
    tokens = np.random.default_rng(0).choice(5, 10_000, p=row)
    assert fits(tokens, row) and not fits(tokens, row[[1, 0, 2, 3, 4]])
    assert fits(tokens[:5], row)  # too few for two bins


def test_rounds_of_many_parts_have_the_rows_that_are_given(monkeypatch):
    monkeypatch.setattr(power, "NUMBERS", 100)
    rows = np.eye(3)[[1, 2, 0]]
    assert (rounds(VERIFIERS[RATIO], rows[:2], rows, 100, np.random.default_rng(0))
            == [1, 2, 0]).all()


def test_shares_have_their_standard_error():
    assert [share(0, 20), share(20, 20), share(5, 20)] == ["0", "1", "0.25 +- 0.10"]


def test_the_figures_are_of_all_rules_and_protocols():
    stored = json.loads(STORED.read_text("utf-8"))
    assert [*stored] == [*VERIFIERS] and all([*row] == [*PROTOCOLS] for row in stored.values())
    assert all([passed, 1] == stored[rule]["oracle"] for rule in VERIFIERS
               for passed in [int(rule in EXACT)])


def test_four_wrong_rules_pass_the_wide_test_and_not_the_narrow_one():
    stored = json.loads(STORED.read_text("utf-8"))
    assert sum(row["vLLM wide"][0] > 0 == row["vLLM narrow"][0] for row in stored.values()) == 4


def test_the_command_shows_the_figures_of_its_file():
    status, out, err = outcome(power.main, "--show", STORED)
    assert (status, err) == (0, "") and out.count("\n") == 2 + len(VERIFIERS) + 1


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"traversal": {}}', '{"traversal": [0, 0]}'])
def test_a_file_without_figures_is_one_line(text, tmp_path):
    path = tmp_path / "figures.json"
    path.write_text(text, encoding="utf-8")
    assert f"--show {path} does not hold figures of this" in refusal(power.main, "--show", path)


def test_what_cannot_be_written_is_refused_before_anything_is_simulated(tmp_path, monkeypatch):
    monkeypatch.setattr(power, "simulate", None)
    assert f"cannot write --json {tmp_path}: Is a dir" in refusal(power.main, "--json", tmp_path)
    assert "--json does not apply to --show" in refusal(
        power.main, "--json", tmp_path / "new", "--show", STORED)
    assert not any(tmp_path.iterdir())


def test_sources_are_files_at_a_commit():
    sources = [protocol.source for name, protocol in PROTOCOLS.items() if name != "oracle"]
    pattern = r"https://github.com/[\w-]+/[\w-]+/blob/[0-9a-f]{40}/[\w/-]+\.py"
    assert all(re.fullmatch(pattern, source) for source in sources)
