"""Run one of tests/mutants.py, and check that the code still has the lines that all replace."""

import pytest

from tests.mutants import MUTANTS, mutated, run
from tests.pages import file_text


def test_each_mutant_replaces_a_piece_that_occurs_once_and_is_python():
    assert len({mutant[:4] for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        text = file_text(mutant.file)
        compile(mutated(text, mutant), mutant.file, "exec")


@pytest.mark.weekly
def test_a_fault_is_seen_and_a_change_of_a_comment_survives(capsys):
    (fault,) = [mutant for mutant in MUTANTS if mutant.fault == "ratio swapped"]
    fault = fault._replace(tests="tests/test_speculative.py -k lossless")
    comment = fault._replace(old="# [1]", new="# [one]", fault="comment")
    assert not run([fault, comment])
    first, second, summary = capsys.readouterr().out.splitlines()
    assert "ratio swapped" in first and "::test_" in first and "SURVIVES" not in first
    assert "comment" in second and "SURVIVES" in second
    assert summary == "1 of 2 mutants killed by 1 tests"
