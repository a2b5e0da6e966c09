"""Check that the code has the lines that the mutants replace."""

from tests.mutants import MUTANTS, mutated
from tests.pages import file_text


def test_each_mutant_replaces_a_piece_that_occurs_once_and_is_python():
    assert len({mutant[:4] for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        text = file_text(mutant.file)
        compile(mutated(text, mutant), mutant.file, "exec")
