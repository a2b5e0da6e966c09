"""Run a few of tests/mutants.py, and check that the code still has the lines that all replace."""

from tests.mutants import MUTANTS, QUICK, ROOT, mutated, run


def test_each_mutant_replaces_a_piece_that_occurs_once_and_is_python():
    assert len({mutant[:4] for mutant in MUTANTS}) == len(MUTANTS) <= 180
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        compile(mutated(text, mutant), mutant.file, "exec")


def test_a_few_mutants_are_killed():
    chosen = [mutant for mutant in MUTANTS if mutant.fault in QUICK]
    assert len(chosen) == len(QUICK)
    assert run(chosen)
