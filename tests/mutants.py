"""Inject one-line faults in the core; a test must detect each.

    python -m tests.mutants                  all of them
    python -m tests.mutants residual block   those with one of these words in their line

tests/data/mutants.txt has the faults. A mutant is a piece of a file, its replacement, and the
fault that this is. It is written into a copy of the project, in which the tests named with it
run until one fails. The exit status is 1 if no test detects a mutant.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from lib.terminal import Parser, command
from tests.pages import ROOT, file_text

SECONDS = 120  # a mutant may loop for ever
PROFILE = """
import sys
sys.modules["numba"] = None  # NumPy's products: they start faster
from hypothesis import Phase, settings
settings.register_profile("mutants", derandomize=True, database=None, deadline=None,
                          phases=[Phase.explicit, Phase.generate])
"""


class Mutant(NamedTuple):
    """Hold a piece of a file, its replacement, the fault that this is, and the tests to run."""

    file: str
    tests: str
    old: str
    new: str
    fault: str

    def has(self, word: str) -> bool:
        """Return whether a word occurs in the file's name or in the words of the fault."""
        return word in f"{self.file} {self.fault}"


def read_mutants(text: str) -> list[Mutant]:
    """Return the mutants of a file of faults, whose head says how they are written.

    >>> read_mutants("..\\n\\n== a.py: tests/test_a.py\\n\\nless\\n- x = 2\\n-\\n+ x = 1\\n")
    [Mutant(file='a.py', tests='tests/test_a.py', old='x = 2\\n', new='x = 1', fault='less')]
    """
    mutants = []
    _, *sections = text.split("\n== ")
    for section in sections:
        heading, *paragraphs = section.rstrip("\n").split("\n\n")
        file, tests = heading.split(": ")
        for paragraph in paragraphs:
            fault, *lines = paragraph.split("\n")
            # A line follows its sign and a space; an empty line is the sign alone.
            old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
            mutants.append(Mutant(file, tests, old, new, fault))
    return mutants


MUTANTS = read_mutants(file_text("tests/data/mutants.txt"))


def copy_project(folder: Path) -> None:
    """Copy the project into a folder, with settings for Hypothesis that repeat its examples."""
    # Compiled files are copied too; Python uses them only for files that are as they were.
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "models"))
    os.symlink(ROOT / "models", folder / "models")
    with open(folder / "tests/conftest.py", "a", encoding="utf-8") as file:
        file.write(PROFILE)


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text with the fault in it; ValueError unless the piece occurs once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"need {mutant.old!r} exactly once in {mutant.file}, got it {found} times "
                         f"({mutant.fault})")
    return text.replace(mutant.old, mutant.new)


def killer(mutant: Mutant, folder: Path) -> str | None:
    """Return the test that detects the mutant in this copy of the project, or None."""
    path = folder / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(mutated(text, mutant), encoding="utf-8")
    command = [sys.executable, "-B", "-m", "pytest", "-n0", "-x", "-rf", "--tb=no",
               "-p", "no:cacheprovider", "--hypothesis-profile=mutants",
               f"--basetemp={folder}.tmp", *shlex.split(mutant.tests)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS,
                              env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return f"the limit of {SECONDS} s"
    finally:
        path.write_text(text, encoding="utf-8")
    failed = re.search(r"^FAILED (\S+::\w+)", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1) or bool(done.returncode) != bool(failed):
        raise RuntimeError(f"the tests did not run:\n{done.stdout}{done.stderr}")
    return failed and failed[1]


@command("tests.mutants")
def main(argv=None):
    """Print which test detects each of the chosen mutants; return the exit status."""
    parser = Parser("python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="run only mutants with one of these words in their file or fault")
    words = parser.parse_args(argv).words or [""]  # every mutant has ""
    for word in words:
        if not any(mutant.has(word) for mutant in MUTANTS):
            parser.error(f"no mutant has {word!r} in its file or fault")
    chosen = [mutant for mutant in MUTANTS if any(mutant.has(word) for word in words)]
    n_alive = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "copy")
        copy_project(folder)
        for mutant in chosen:
            fate = killer(mutant, folder) or "SURVIVES"
            n_alive += fate == "SURVIVES"
            print(f"{mutant.file:30} {mutant.fault:62} {fate}", flush=True)
    print(f"{len(chosen) - n_alive} of {len(chosen)} mutants killed")
    return min(n_alive, 1)


if __name__ == "__main__":
    sys.exit(main())
