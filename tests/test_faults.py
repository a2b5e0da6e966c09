"""The oracle against single-line faults of a right verifier: it sees each that is wrong."""

from itertools import cycle

import pytest

from exact import oracle
from exact.oracle import check
from tests.faults import mutants
from tests.pages import file_text, on_one_line

MUTANTS = mutants()


def marked(marks):
    """Return the lines with one of these marks, in their order."""
    return [line for line, mutant in MUTANTS.items() if mutant.mark in marks]


def is_called_exact(line, K, V, dtype="float64"):
    """Return whether the oracle calls the mutant with this line exact."""
    try:
        return check(MUTANTS[line].verify, K, V, dtype).exact is True
    except Exception:  # a fault may raise anything: it does not go unseen
        return False


def is_right(line, K):
    return MUTANTS[line].mark in ("=1" if K == 1 else "=")


def test_the_page_counts_the_mutants():
    assert f"[{len(MUTANTS)} ways]" in on_one_line(file_text("docs/oracle.md"))


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
    for line in [*MUTANTS][::5]:
        assert is_called_exact(line, 1, 3) == is_right(line, K=1), line


@pytest.mark.weekly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("V", oracle.TOYS)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_every_mutant_is_judged_rightly(K, V, dtype):
    for line in MUTANTS:
        assert is_called_exact(line, K, V, dtype) == is_right(line, K), line
