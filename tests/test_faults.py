"""The oracle against single-line faults of a right verifier: it sees each that is wrong."""

from itertools import cycle

import numpy as np
import pytest

from exact import oracle
from exact.oracle import check
from tests.faults import RIGHT, mutants, verifier
from tests.pages import file_text

MUTANTS = mutants()


def marked(marks):
    """Return the lines with one of these marks, in their order."""
    return [line for line, mutant in MUTANTS.items() if mutant.mark in marks]


def right_mutants(K):
    return {*marked("=1" if K == 1 else "=")}


def is_called_exact(line, K, V, dtype="float64"):
    """Return whether the oracle calls the mutant with this line exact."""
    try:
        return check(MUTANTS[line].verify, K, V, dtype).exact is True
    except Exception:  # a fault may raise anything: it does not go unseen
        return False


def called_exact(lines, *options):
    """Return which of these mutants the oracle calls exact."""
    return {line for line in lines if is_called_exact(line, *options)}


def test_the_page_counts_the_mutants():
    assert f"[{len(MUTANTS)} faults]" in " ".join(file_text("docs/oracle.md").split())


def test_the_right_verifier_is_exact():
    assert check(verifier(RIGHT), 3, 4, dtype="float32").exact


@pytest.mark.parametrize("line, case", [*zip(marked("*"), cycle([
    (2, 3, "float64"), (1, 4, "float64"), (2, 3, "float32")]))])
def test_each_kind_of_fault_is_seen(line, case):
    assert not is_called_exact(line, *case)


@pytest.mark.parametrize("line, case", [*zip(marked("!"), cycle([
    (1, 3, "float64"), (1, 4, "float32"), (3, 3, "float32")]))])
def test_a_fault_that_begins_at_an_extreme_value_is_seen_but_not_on_the_first_toy(
        line, case, monkeypatch):
    report = check(MUTANTS[line].verify, *case)
    assert report.exact is not True and report.rule is None  # rounding to 5 digits is not known
    monkeypatch.setattr(oracle, "TOYS", {3: oracle.TOYS[3][:1]})
    assert is_called_exact(line, 1, 3)


def test_with_one_guess_a_part_of_the_mutants_is_judged_rightly():
    """Every fifth; `python -m pytest -m weekly tests/test_faults.py` judges all."""
    some = [*MUTANTS][::5]
    assert called_exact(some, 1, 3) == right_mutants(K=1) & {*some}


@pytest.mark.weekly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("V", oracle.TOYS)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_every_mutant_is_judged_rightly(K, V, dtype):
    assert called_exact(MUTANTS, K, V, dtype) == right_mutants(K)


@pytest.mark.parametrize("K, every", [
    (1, 8), *(pytest.param(K, 1, marks=pytest.mark.weekly) for K in (1, 2))])
def test_right_mutants_are_exact_on_random_toys_too(K, every):
    rows = np.random.default_rng(K).dirichlet([1, 1, 1], size=(2, 4))  # draft and target
    for line in sorted(right_mutants(K))[::every]:
        assert check(MUTANTS[line].verify, K, rows=rows).exact, line
