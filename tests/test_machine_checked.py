"""The proofs in theory/*.v: Coq accepts them, they are about this code, wrong copies fail.

Coq computes with fractions, so the functions that the proofs are about can be run. Their
distributions on the toys of exact/toys.py are compared with those of the code, with `==`.
"""

import itertools
import os
import re
import shutil
import subprocess
from collections import defaultdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from exact.law import composed_law, law
from exact.toys import TENTHS, TOYS
from speculative import complete, draft_and_verify, make_step, speculative_sampling, verify
from tests.commands import until
from tests.pages import file_text
from tests.toys import path_by_path
from variants.block import block_verify
from variants.traversal import verify_traversal
from variants.tree import guess_shape, verify_tree

THEORY = Path(__file__).parent.parent / "theory"
FILES = ("lossless", "block", "tree", "traversal")  # each imports files before it
TEXTS = {file: (THEORY / f"{file}.v").read_text(encoding="utf-8") for file in FILES}
SHAPE = [(0,), (1,), (0, 0), (0, 0, 0)]  # two guesses, and a chain below the first
V = 3  # tokens of a toy
SIZES = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]  # (N, K): no round has more than N - 1 guesses

if not shutil.which("coqc") and not os.environ.get("REQUIRE_COQ"):
    pytest.skip("needs Coq (Debian, Ubuntu: apt-get install coq)", allow_module_level=True)


def coqc(file, *flags):
    """Run Coq on a file, in the file's folder."""
    return subprocess.run(["coqc", *flags, file.name], cwd=file.parent, capture_output=True,
                          text=True, encoding="utf-8")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a folder with the compiled proofs; pytest-xdist's processes share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "theory"
    done = folder / "done"
    try:
        folder.mkdir()
    except FileExistsError:  # another process compiles, or has compiled
        until(done.exists)
        assert done.read_text(encoding="utf-8") == ""
        return folder
    errors = ""
    for file in FILES:
        (folder / f"{file}.v").write_text(TEXTS[file], encoding="utf-8")
        if not errors:
            errors = coqc(folder / f"{file}.v").stderr
    done.write_text(errors, encoding="utf-8")
    assert errors == ""
    return folder


# ---- no axioms

def without_comments(text):
    assert "(*" not in re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)


def theorems(file):
    return re.findall(r"^Theorem (\w+)", TEXTS[file], flags=re.MULTILINE)


def test_coq_accepts_every_theorem_without_axioms(compiled, tmp_path):
    names = [f"{file}.{name}" for file in FILES for name in theorems(file)]
    assert {f"lossless.step_{i}" for i in range(1, 8)} < set(names)
    all_of_them = f"Definition all := ({', '.join('@' + name for name in names)})."
    (tmp_path / "axioms.v").write_text(
        f"Require {' '.join(FILES)}.\n{all_of_them}\nPrint Assumptions all.", "utf-8")
    result = coqc(tmp_path / "axioms.v", "-Q", compiled, "")
    assert (result.stdout, result.stderr) == ("Closed under the global context\n", "")


def test_the_proofs_assume_nothing_in_passing():
    """A section's `Variable` and `Hypothesis` become premises; these words would not."""
    for text in TEXTS.values():
        words = set(re.findall(r"\w+", without_comments(text)))
        assert not words & {"Axiom", "Axioms", "Parameter", "Parameters", "Conjecture",
                            "Admitted", "admit", "give_up", "bypass_check", "Declare"}
        assert not re.search(r"Unset|Set +\w+ +Checking", text)


def test_the_page_names_every_theorem_beside_its_step():
    page = file_text("docs/proof.md")
    named = re.findall(r"\[`(\w+)`\]\[(\w+)\]", page)
    assert {file: set(theorems(file)) for file in FILES} == {
        file: {name for name, its_file in named if its_file == file} for file in FILES}
    steps = page.split("\n## What the proof needs")[0]
    for i in range(1, 8):
        step = re.search(rf"^{i}\. .*?(?=^\d\. |\n\n)", steps, flags=re.DOTALL | re.MULTILINE)[0]
        assert f"[`step_{i}`][lossless]" in step


# ---- the functions of the proofs are those of the code

EVALUATE = """
From Coq Require Import Arith Bool List Lqa QArith Qcanon.
Require Import lossless block tree traversal.
Import ListNotations.

(* The probability of each outcome, as its numerator and denominator. *)
Definition law (outcome : text -> list nat) (m : D text) (outcomes : list (list nat)) :=
  map (fun y => let p := this (probability (ids <- m; ret (is y (outcome ids)))) in
                (Qnum p, Zpos (Qden p))) outcomes.
Definition all (ids : text) := ids.
Definition how_many (ids : text) := [length ids].
Definition how_many_and_last (ids : text) := [length ids; last ids O].

(* A toy: the row after a text depends on its last token, in tenths. *)
Definition tenths (rows : list (list Z)) := map (map (fun n => Q2Qc (n # 10))) rows.
Definition markov (rows : list (list Qc)) : model := fun x v => nth v (nth (last x O) rows []) 0%Qc.
"""


def coq(value):
    """Return a number or nested lists of numbers in Coq's notation."""
    if isinstance(value, int):
        return str(value)
    return f"[{'; '.join(map(coq, value))}]"


def coq_shape(shape, path=()):
    """Return the guesses below a path: each with those below it and those next to it."""
    out = "NoGuess"
    for child in reversed([longer for longer in shape if longer[:-1] == path]):
        out = f"(OneGuess {coq_shape(shape, child)} {out})"
    return out


def toys_in_coq():
    """Return definitions of A_draft, A_target, .., with rows that are computed once."""
    lines = []
    for name, pair in TENTHS.items():
        for role, rows in zip(("draft", "target"), pair):
            tenths = coq([[int(digit) for digit in row] for row in rows])
            lines.append(f"Definition {name}_{role}_rows := Eval vm_compute in tenths {tenths}%Z.")
            lines.append(f"Definition {name}_{role} := markov {name}_{role}_rows.")
    return "\n".join(lines)


class Pair(NamedTuple):
    """Hold one decoder twice: its step in Coq, and in Python."""

    in_coq: str
    in_python: object


def chain(test_in_coq, test, name, K):
    draft, target = TOYS[name]
    return Pair(f"(speculative_step {name}_target (fun _ => {K}) (guess {V} {name}_draft) "
                f"({test_in_coq} {V}))", draft_and_verify(draft, target, K, test))


def tree(step_in_coq, test, siblings, name, K):
    draft, target = map(path_by_path, TOYS[name])
    shape = [path for path in SHAPE if len(path) <= K]
    siblings_in_coq = {"independent": f"(independent {name}_draft)",
                       "distinct": f"(distinct {V} {name}_draft)"}[siblings]
    guess = partial(guess_shape, draft=draft, shape=shape, siblings=siblings)
    return Pair(f"({step_in_coq} {V} {siblings_in_coq} {name}_target "
                f"(fun _ => {coq_shape(shape)}))", make_step(target, K, guess, test))


DECODERS = {
    "verify": partial(chain, "verify", verify),
    "block": partial(chain, "block_verify", block_verify),
    "tree": partial(tree, "tree_step", verify_tree, "independent"),
    "traversal": partial(tree, "traversal_step", verify_traversal, "distinct"),
}


def texts(n):
    return [list(ids) for ids in itertools.product(range(V), repeat=n)]


class Question(NamedTuple):
    """Ask for the distribution of a program's outcome, evaluated by Coq."""

    program: str
    outcomes: list
    outcome: str = "all"  # or how_many, or how_many_and_last, of the tokens
    module: str | None = None  # whose definitions come first


def laws_in_coq(questions, folder, compiled, modules=()):
    """Return {outcome: probability} for each question."""
    lines = [EVALUATE, toys_in_coq(), *modules]
    for i, (program, outcomes, outcome, module) in enumerate(questions):
        question = f"Eval vm_compute in (law {outcome} ({program}) {coq(outcomes)})%nat."
        if module:
            question = f"Module Question{i}.\nImport {module}.\n{question}\nEnd Question{i}."
        lines.append(question)
    (folder / "evaluate.v").write_text("\n".join(lines), encoding="utf-8")
    result = coqc(folder / "evaluate.v", "-Q", compiled, "", "-w", "-notation-overridden")
    assert result.stderr == ""
    answers = result.stdout.split(": list (Z * Z)")[:-1]
    laws = []
    for answer, question in zip(answers, questions, strict=True):
        numbers = [int(number) for number in re.findall(r"-?\d+", answer)]
        probabilities = map(Fraction, numbers[::2], numbers[1::2])
        pairs = zip(question.outcomes, probabilities, strict=True)
        laws.append({tuple(ids): p for ids, p in pairs if p})
    return laws


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_decoder_in_coq_has_the_distribution_of_the_code(decoder, compiled, tmp_path):
    """Compare rounds of 0 to 3 guesses, and texts that are composed of such rounds."""
    # For three tokens the first round has at most 2 guesses, and a later round at most 1. Of a
    # round with 3 guesses only the number of tokens is compared, on toy A, because 120 outcomes
    # are slow.
    settings = [(name, last, k) for name in TOYS for k in range(4) for last in range(V)
                if k < 2 or last == 0 and (k == 2 or name == "A")]
    questions = []
    for name, last, k in settings:
        program = f"{DECODERS[decoder](name, k).in_coq} [{last}] {k + 1}"
        lengths = range(1, k + 2)
        if k < 3:
            questions.append(Question(program, [ids for n in lengths for ids in texts(n)]))
        else:
            questions.append(Question(program, [[n] for n in lengths], "how_many"))
    rounds = dict(zip(settings, laws_in_coq(questions, tmp_path, compiled)))

    for (name, last, k), in_coq in rounds.items():
        step = DECODERS[decoder](name, k).in_python
        in_python = law(lambda rng: step([last], k + 1, rng).ids)  # noqa: B023
        if k == 3:
            in_python = lengths_law(in_python)
        assert in_coq == in_python

    for name, (N, K) in itertools.product(TOYS, SIZES):
        in_coq = composed_law([0], lambda x, k: rounds[name, x[-1], k], N, K)  # noqa: B023
        step = DECODERS[decoder](name, K).in_python
        assert in_coq == law(partial(complete, [0], step, N))


def lengths_law(law):
    """Return the distribution of the number of tokens."""
    total = defaultdict(int)
    for ids, probability in law.items():
        total[len(ids),] += probability
    return dict(total)


def test_speculative_sampling_in_coq_has_the_distribution_of_the_code(compiled, tmp_path):
    settings = [(name, N, K) for name in TOYS for N, K in SIZES]
    programs = [f"speculative_sampling {V} [0] {name}_draft {name}_target {N} (fun _ => {K}) never"
                for name, N, K in settings]
    questions = [Question(program, texts(N)) for program, (_, N, _) in zip(programs, settings)]
    for (name, N, K), in_coq in zip(settings, laws_in_coq(questions, tmp_path, compiled)):
        in_python = law(partial(speculative_sampling, [0], *TOYS[name], N, K))
        assert {(0, *ids): p for ids, p in in_coq.items()} == in_python


# ---- wrong copies: each has one wrong line

class Wrong(NamedTuple):
    """Hold one wrong line, and what it breaks."""

    file: str
    right: str
    wrong: str
    lemma: str  # whose proof fails
    program: str  # whose distribution on toy A changes


SPECULATIVE = f"speculative_sampling {V} [0] A_draft A_target 2 (fun _ => 1) (fun _ => false)"
BLOCK = (f"generate [0] (speculative_step A_target (fun _ => 2) (guess {V} A_draft) "
         f"(block_verify {V})) 3 never")
TREE = (f"generate [0] (tree_step {V} (independent A_draft) A_target (fun _ => "
        f"{coq_shape([(0,), (1,)])})) 2 never")
TRAVERSAL = TREE.replace("tree_step", "traversal_step")
WRONG = {
    "a replacement drawn from the target": Wrong(
        "lossless", "token <- sample (residual p d);", "token <- sample p;",
        "first_guess", SPECULATIVE),
    "1 for the ratio": Wrong(
        "lossless", "accepted <- accept (min (p token / d token) 1);", "accepted <- accept 1;",
        "first_guess", SPECULATIVE),
    "a residual that is not divided by its mass": Wrong(
        "lossless", "surplus p_target p_draft v / mass", "surplus p_target p_draft v",
        "mass_times_residual", SPECULATIVE),
    "the bonus token from the last guess's row": Wrong(
        "lossless", "ids <- verify guesses p_draft p_target;",
        "ids <- verify guesses p_draft (match guesses with [] => [p] | _ => p_target end);",
        "first_guess", SPECULATIVE),
    "K guesses when fewer tokens are wanted": Wrong(
        "lossless", "make_guesses x (Nat.min (K x) (n_left - 1))", "make_guesses x (K x)",
        "speculative_step_is_exact", SPECULATIVE),
    "a text that goes on after a stop token": Wrong(
        "lossless", "if stop (last ids O) then ret ids else", "", "step_7",
        SPECULATIVE.replace("false", "true")),
    "a block's shares without their cap": Wrong(
        "block", "min (share * p token / d token) 1", "share * p token / d token",
        "next_share_between", BLOCK),
    "a block's test that forgets what longer blocks leave": Wrong(
        "block", "let missing := surplus + 1 - share in", "let missing := 1 in",
        "missing_times_p_accept", BLOCK),
    "a sibling that is tested against the whole target": Wrong(
        "tree", "verify_tree x (residual V left row) next", "verify_tree x left next",
        "tree_round", TREE),
    "a guess of a tree that is always accepted": Wrong(
        "traversal", "(next_share share left row token)", "1", "visit_round", TRAVERSAL),
}


def parts(fault):
    """Return the file's head, its algorithm with the wrong line, and the proofs."""
    head, algorithm = TEXTS[fault.file].split("Open Scope list_scope.\n")
    heading = "(* ---- 3." if fault.file == "lossless" else "(* ---- 2."
    algorithm, proofs = algorithm.split(heading)
    assert algorithm.count(fault.right) == 1
    return head + "Open Scope list_scope.\n", algorithm.replace(fault.right, fault.wrong), (
        heading + proofs)


@pytest.mark.parametrize("name", WRONG)
def test_coq_refuses_a_wrong_copy_at_the_lemma_that_it_breaks(name, request, tmp_path):
    fault = WRONG[name]
    before, lemma = re.split(rf"^(?=(?:Lemma|Theorem) {fault.lemma}\b)", "".join(parts(fault)),
                             flags=re.MULTILINE)
    # The lemmas before it are admitted, which saves time.
    before = re.sub(r"Proof\..*?Qed\.", "Admitted.", before, flags=re.DOTALL)
    file = tmp_path / f"{fault.file}.v"
    file.write_text(before + lemma, encoding="utf-8")
    flags = []
    if fault.file != "lossless":
        flags = ["-Q", request.getfixturevalue("compiled"), ""]
    result = coqc(file, *flags)
    assert result.returncode == 1
    line = int(re.search(rf'File "\./{file.name}", line (\d+)', result.stderr)[1])
    first = before.count("\n") + 1
    assert first <= line <= first + lemma.partition("Qed.")[0].count("\n")


def test_what_coq_refuses_has_a_different_distribution(compiled, tmp_path):
    """A proof can also fail because a line looks different; so each wrong copy is evaluated."""
    outcomes = [[n, token] for n in (1, 2, 3) for token in range(V)]
    programs = list({fault.program for fault in WRONG.values()})
    questions = [Question(program, outcomes, "how_many_and_last") for program in programs]
    modules = []
    for i, fault in enumerate(WRONG.values()):
        _, algorithm, _ = parts(fault)
        section = re.search(r"^Section (\w+)", algorithm, flags=re.MULTILINE)[1]
        modules.append(f"Module Wrong{i}.\n{algorithm}\nEnd {section}.\nEnd Wrong{i}.")
        questions.append(Question(fault.program, outcomes, "how_many_and_last", f"Wrong{i}"))
    laws = laws_in_coq(questions, tmp_path, compiled, modules)
    right = dict(zip(programs, laws))
    assert all(sum(law.values()) == 1 for law in right.values())
    for fault, wrong in zip(WRONG.values(), laws[len(programs) :], strict=True):
        assert wrong != right[fault.program]
