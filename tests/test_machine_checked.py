"""The proofs in theory/*.v: Coq accepts them, and they are about this code.

Coq computes with fractions, so the functions that the proofs are about can be run. Their
distributions on the toys of exact/toys.py are compared with those of the code, with `==`.
"""

import itertools
import os
import re
import shutil
import subprocess
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from exact.expected import along_paths
from exact.law import law
from exact.toys import TENTHS, TOYS
from speculative import draft_and_verify, make_step, speculative_sampling, verify
from tests.commands import until
from variants.block import block_verify
from variants.traversal import verify_traversal
from variants.tree import guess_shape, verify_tree

THEORY = Path(__file__).parent.parent / "theory"
FILES = ("lossless", "block", "tree", "traversal")  # each imports files before it
TEXTS = {file: (THEORY / f"{file}.v").read_text(encoding="utf-8") for file in FILES}
ONE = "(OneGuess NoGuess NoGuess)"
SHAPES = [  # of K levels, here and in Coq: no guess, two guesses, and one below the first
    ([], "NoGuess"), ([(0,), (1,)], f"(OneGuess NoGuess {ONE})"),
    ([(0,), (1,), (0, 0)], f"(OneGuess {ONE} {ONE})")]
V = 3  # tokens of a toy

if not shutil.which("coqc") and not os.environ.get("REQUIRE_COQ"):
    pytest.skip("needs Coq (Debian, Ubuntu: apt-get install coq)", allow_module_level=True)


def coqc(file, *flags):
    """Run Coq on a file, in the file's folder."""
    return subprocess.run(["coqc", *flags, file.name], cwd=file.parent, capture_output=True,
                          text=True, encoding="utf-8")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a folder with the compiled proofs; pytest-xdist's processes share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "theory"
    errors = folder / "errors"  # exists when all files are compiled
    try:
        folder.mkdir()
    except FileExistsError:  # another process compiles, or has compiled
        until(errors.exists)
    else:
        for file in FILES:
            (folder / f"{file}.v").write_text(TEXTS[file], encoding="utf-8")
        said = "".join(coqc(folder / f"{file}.v").stderr for file in FILES)
        errors.write_text(said, encoding="utf-8")
    assert errors.read_text(encoding="utf-8") == ""
    return folder


# ---- no axioms

def test_coq_accepts_every_theorem_without_axioms(compiled, tmp_path):
    names = [f"{file}.{name}" for file in FILES
             for name in re.findall(r"^Theorem (\w+)", TEXTS[file], re.MULTILINE)]
    assert {f"lossless.step_{i}" for i in range(1, 8)} < set(names)
    all_of_them = f"Definition all := ({', '.join('@' + name for name in names)})."
    (tmp_path / "axioms.v").write_text(
        f"Require {' '.join(FILES)}.\n{all_of_them}\nPrint Assumptions all.", "utf-8")
    result = coqc(tmp_path / "axioms.v", "-Q", compiled, "")
    assert (result.stdout, result.stderr) == ("Closed under the global context\n", "")


# ---- the functions of the proofs are those of the code

EVALUATE = """
From Coq Require Import Arith Bool List Lqa QArith Qcanon.
Require Import lossless block tree traversal.
Import ListNotations.

(* The probability of each outcome, as its numerator and denominator. *)
Definition law (m : D text) (outcomes : list (list nat)) :=
  map (fun y => let p := this (probability (ids <- m; ret (is y ids))) in
                (Qnum p, Zpos (Qden p))) outcomes.

(* A toy: the row after a text depends on its last token, in tenths. *)
Definition tenths (rows : list (list Z)) := map (map (fun n => Q2Qc (n # 10))) rows.
Definition markov (rows : list (list Qc)) : model := fun x v => nth v (nth (last x O) rows []) 0%Qc.
"""


def toys_in_coq():
    """Return definitions of A_draft, A_target, .., with rows that are computed once."""
    lines = []
    for name, pair in TENTHS.items():
        for role, rows in zip(("draft", "target"), pair):
            tenths = str([[int(digit) for digit in row] for row in rows]).replace(",", ";")
            lines.append(f"Definition {name}_{role}_rows := Eval vm_compute in tenths {tenths}%Z.")
            lines.append(f"Definition {name}_{role} := markov {name}_{role}_rows.")
    return "\n".join(lines)


def chain(test_in_coq, test, name, K):
    """Return a step that guesses a chain on this toy, in Coq and in Python."""
    draft, target = TOYS[name]
    return (f"(speculative_step {name}_target (fun _ => {K}) (guess {V} {name}_draft) "
            f"({test_in_coq} {V}))", draft_and_verify(draft, target, K, test))


def tree(step_in_coq, test, siblings, name, K):
    """Return a step that guesses a tree of K levels on this toy, in Coq and in Python."""
    draft, target = map(along_paths, TOYS[name])
    shape, in_coq = SHAPES[K]
    rivals = {"independent": f"(independent {name}_draft)",
              "distinct": f"(distinct {V} {name}_draft)"}[siblings]
    guess = partial(guess_shape, draft=draft, shape=shape, siblings=siblings)
    return (f"({step_in_coq} {V} {rivals} {name}_target (fun _ => {in_coq}))",
            make_step(target, K, guess, test))


DECODERS = [
    partial(chain, "verify", verify), partial(chain, "block_verify", block_verify),
    partial(tree, "tree_step", verify_tree, "independent"),
    partial(tree, "traversal_step", verify_traversal, "distinct")]


def texts(*lengths):
    """Return all texts of these lengths."""
    return [list(ids) for n in lengths for ids in itertools.product(range(V), repeat=n)]


def laws_in_coq(questions, folder, compiled):
    """Return {text: probability} for each question, a program in Coq and its possible texts."""
    commands = [f"Eval vm_compute in (law ({program}) {outcomes})%nat.".replace(",", ";")
                for program, outcomes in questions]
    lines = [EVALUATE, toys_in_coq(), *commands]
    (folder / "evaluate.v").write_text("\n".join(lines), encoding="utf-8")
    result = coqc(folder / "evaluate.v", "-Q", compiled, "")
    assert result.stderr == ""
    answers = result.stdout.split(": list (Z * Z)")[:-1]
    laws = []
    for answer, (_, outcomes) in zip(answers, questions, strict=True):
        numbers = [int(number) for number in re.findall(r"-?\d+", answer)]
        probabilities = map(Fraction, numbers[::2], numbers[1::2])
        pairs = zip(outcomes, probabilities, strict=True)
        laws.append({tuple(ids): p for ids, p in pairs if p})
    return laws


def test_rounds_and_texts_in_coq_have_the_distribution_of_the_code(compiled, tmp_path):
    """With 0 and 1 guess on all toys; with 2, which are slow, on A and on C, which has zeros."""
    starts = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]  # guesses, last token
    cases = [*itertools.product(TOYS, starts), ("A", (2, 0)), ("C", (2, 0))]
    questions, wanted = [], []
    for decoder, (name, (k, last)) in itertools.product(DECODERS, cases):
        program, step = decoder(name, k)
        questions.append((f"{program} [{last}] {k + 1}", texts(*range(1, k + 2))))
        wanted.append(law(lambda rng: step([last], k + 1, rng).ids))  # noqa: B023  used now
    for name, (N, K) in itertools.product(TOYS, [(1, 1), (2, 2), (3, 2)]):
        models = f"{name}_draft {name}_target"
        program = f"speculative_sampling {V} [0] {models} {N} (fun _ => {K}) never"
        questions.append((program, texts(N)))
        whole = law(partial(speculative_sampling, [0], *TOYS[name], N, K))
        wanted.append({ids[1:]: p for ids, p in whole.items()})
    assert laws_in_coq(questions, tmp_path, compiled) == wanted
