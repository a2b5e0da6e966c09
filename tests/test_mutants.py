"""A few of tests/mutants.py in every test run, and all of them still to be found in the code."""

import pytest

from tests.mutants import MUTANTS, QUICK, ROOT, mutated, run


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_every_mutant_still_has_its_place_and_is_python(mutant):
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    compile(mutated(text, mutant), mutant.file, "exec")


def test_no_mutant_stands_there_twice():
    assert len({mutant[:3] for mutant in MUTANTS}) == len(MUTANTS)


def test_the_quick_mutants_are_killed():
    chosen = [mutant for mutant in MUTANTS if mutant.fault in QUICK]
    assert len(chosen) == len(QUICK)
    assert run(chosen, jobs=2)
