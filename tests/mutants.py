"""Inject one-line faults in the core; a test must detect each.

    python -m tests.mutants                  all of them
    python -m tests.mutants residual block   those with one of these words in their line

tests/data/mutants.txt has the faults. A mutant is a piece of a file, its replacement, and the
fault that this is. It is written into a copy of the project, in which the tests named with it
run until one fails. At the end the tests that failed must pass in a copy without a fault. The
exit status is 1 if no test detects a mutant, or such a test fails.
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
SECONDS_OF_ALL = 1200  # for all tests that detected a mutant, one after the other
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


class Copy:
    """Hold a copy of the project in its own folder, for one fault after the other."""

    def __init__(self, folder):
        self.folder = Path(folder)
        # Compiled files are copied too; Python uses them only for files that are as they were.
        shutil.copytree(ROOT, self.folder, ignore=shutil.ignore_patterns(".*", "models"))
        os.symlink(ROOT / "models", self.folder / "models")
        with open(self.folder / "tests/conftest.py", "a", encoding="utf-8") as file:
            file.write(PROFILE)

    def first_failure(self, *tests, seconds=SECONDS):
        """Return the test that fails first, or None; RuntimeError if the tests could not run."""
        command = [sys.executable, "-B", "-m", "pytest", "-n0", "-x", "-rf", "--tb=no",
                   "-p", "no:cacheprovider", "--hypothesis-profile=mutants",
                   f"--basetemp={self.folder}.tmp", *tests]
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                                  timeout=seconds, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        except subprocess.TimeoutExpired:
            return f"the limit of {seconds} s"
        failed = re.search(r"^FAILED (\S+::\w+)", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 1) or bool(done.returncode) != bool(failed):
            raise RuntimeError(f"the tests did not run:\n{done.stdout}{done.stderr}")
        return failed and failed[1]

    def killer(self, mutant):
        """Return the test that detects the mutant, or None."""
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutated(text, mutant), encoding="utf-8")
        try:
            return self.first_failure(*shlex.split(mutant.tests))
        finally:
            path.write_text(text, encoding="utf-8")


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text with the fault in it; ValueError unless the piece occurs once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"need {mutant.old!r} exactly once in {mutant.file}, got it {found} times "
                         f"({mutant.fault})")
    return text.replace(mutant.old, mutant.new)


def run(mutants: list[Mutant]) -> bool:
    """Print which test detects each mutant; return whether all are, by tests that are sound."""
    killers = []  # of each mutant: a test, the limit of seconds, or None
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(f"{folder}/copy")
        for mutant in mutants:
            killers.append(copy.killer(mutant))
            fate = killers[-1] or "SURVIVES"
            print(f"{mutant.file:30} {mutant.fault:62} {fate}", flush=True)
        # The tests that detected a fault must pass without one.
        tests = sorted({killer for killer in killers if killer and "::" in killer})
        unsound = tests and copy.first_failure(*tests, seconds=SECONDS_OF_ALL)
    n_alive = killers.count(None)
    print(f"{len(killers) - n_alive} of {len(killers)} mutants killed by {len(tests)} tests")
    if unsound:
        print(f"{unsound} fails without a fault")
    return not n_alive and not unsound


@command("tests.mutants")
def main(argv=None):
    """Run the chosen mutants; return the exit status."""
    parser = Parser("python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD",
                        help="run only mutants with one of these words in their file or fault")
    words = parser.parse_args(argv).words or [""]  # every mutant has ""
    for word in words:
        if not any(mutant.has(word) for mutant in MUTANTS):
            parser.error(f"no mutant has {word!r} in its file or fault")
    chosen = [mutant for mutant in MUTANTS if any(mutant.has(word) for word in words)]
    return 0 if run(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
