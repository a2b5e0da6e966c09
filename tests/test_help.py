"""Every command shows its help and does nothing else."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests import mutants

ROOT = Path(__file__).parents[1]
MAIN = re.compile('^if __name__ == "__main__":$', re.MULTILINE)
COMMANDS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")
                  if MAIN.search(path.read_text(encoding="utf-8")))
WRITTEN = ("docs", "benchmarks/results", "tests/data")  # by commands that have no --out


def state_of_files():
    """Return {path: time of its last change} of all files that a command might renew."""
    files = [path for folder in WRITTEN for path in (ROOT / folder).rglob("*.*")]
    return {path: path.stat().st_mtime_ns for path in files if path.suffix != ".pyc"}


@pytest.mark.parametrize("file", COMMANDS)
def test_help_is_shown_and_nothing_runs_or_is_written(file, monkeypatch, capsys):
    command = file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    before = state_of_files()
    monkeypatch.setattr(sys, "argv", [str(ROOT / file), "--help"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_path(str(ROOT / file), run_name="__main__")
    out = capsys.readouterr().out
    name = "main.py" if file == "main.py" else f"python -m {command}"
    assert exit_.value.code == 0 and out.startswith(f"usage: {name} ")
    assert state_of_files() == before


def test_a_word_that_no_mutant_has_is_named(capsys):
    with pytest.raises(SystemExit) as exit_:
        mutants.main(["residual", "nosuchword"])
    error = "python -m tests.mutants: no mutant has 'nosuchword' in its file or fault\n"
    assert (exit_.value.code, capsys.readouterr().err) == (2, error)
