"""The judge of docs/exercises.md: right answers pass, wrong ones are shown, others are refused."""

import re
from pathlib import Path

import pytest

from exact import judge
from tests import mutants

ROOT = Path(judge.__file__).parents[1]
RIGHT = """
from sampling import accept, residual, sample

def verify(guesses, p_draft, p_target, rng):
    for t, token in enumerate(guesses):
        if not accept(min(1, p_target[t][token] / p_draft[t][token]), rng):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]
"""
STEP = """
from sampling import sample

def step(x, n_left, rng, draft, target, K):
    ids = []
    while len(ids) < min(room, K + 1):
        guess = int(draft(x + ids)[0].argmax())
        ids.append(sample(target(x + ids)[0], rng))
        if ids[-1] != guess:
            break
    return ids
"""


@pytest.fixture
def said(tmp_path, capsys):
    """A function that judges a text: (exit status, what was printed)."""
    def run(text):
        path = tmp_path / "answer.py"
        path.write_text(text, encoding="utf-8")
        status = judge.answer(path)
        return status, capsys.readouterr().out
    return run


@pytest.mark.parametrize("text", [RIGHT, STEP])
def test_right_answers_are_exact_on_every_toy(said, text):
    status, out = said(text)
    assert status == 0 and out.count(": exact") == 12
    assert out.endswith("The distribution is the target's.\n")


@pytest.mark.parametrize("old, new, toy, K, token", [
    ("residual(p_target[t], p_draft[t])", "p_target[t]", "A", 1, 2),
    ("min(1, p_target[t][token] / p_draft[t][token])", "p_target[t][token]", "A", 1, 0),
    ("p_target[-1]", "p_target[0]", "A", 1, None),
])
def test_a_fault_is_shown_where_it_happens(said, old, new, toy, K, token):
    assert old in RIGHT
    status, out = said(RIGHT.replace(old, new))
    assert status == 1 and f"toy {toy}, K = {K}: distance 0." in out
    assert out.count("<- too likely") == 1 and "written in round 1" in out
    assert token is None or f".. then {token} " in out.split("<- too likely")[0].splitlines()[-1]


def test_the_page_shows_what_the_judge_says(said):
    _, out = said(RIGHT.replace("residual(p_target[t], p_draft[t])", "p_target[t]"))
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert out.endswith("\n\n" + quoted)


def test_one_uniform_for_a_round_is_found_with_two_guesses_only(said):
    status, out = said(RIGHT.replace("    for t", "    u = rng.random()\n    for t").replace(
        "not accept(min(1, p_target[t][token] / p_draft[t][token]), rng)",
        "not u < min(1, p_target[t][token] / p_draft[t][token])"))
    assert status == 1 and "toy A, K = 1: exact" in out and "toy A, K = 2: distance 0.0400" in out


@pytest.mark.parametrize("fault", [
    "ratio swapped", "residual reversed", "no stop after a rejection",
    "accepted if and only if the target likes it more"])
def test_the_projects_own_mutants_are_refused(said, fault):
    (mutant,) = [mutant for mutant in mutants.MUTANTS if mutant.fault == fault]
    status, out = said(mutants.mutated((ROOT / mutant.file).read_text(encoding="utf-8"), mutant))
    assert status in (1, 2)


@pytest.mark.parametrize("text, message", [
    ("import nothing_of_this_name", "does not run: ModuleNotFoundError"),
    ("def verify(", "does not run: SyntaxError"), ("x = 1", "need a function verify or step"),
    ("def verify(g, q, p, rng): return []", r"need 1 to 2 tokens of 0, 1, 2, got \[\]"),
    ("def verify(g, q, p, rng): return [7]", r"got \[7\]"),
    ("def verify(g, q, p, rng): return g + g + g", "need 1 to 2 tokens"),
    ("def verify(g, q, p, rng): pass", "need a list of tokens, got None"),
    ("def verify(g, q, p, rng): return g[5]", "does not run: IndexError"),
    ("def verify(g, q, p, rng): raise SystemExit(0)", "does not run: SystemExit"),
    ("import numpy as np\ndef verify(g, q, p, rng): return [np.random.choice(3)]",
     "from rng alone"),
    ("import numpy as np\nr = np.random.default_rng(0)\n", "from rng alone"),
    ("from random import random\ndef verify(g, q, p, rng): return [int(3 * random())]",
     "from rng alone"),
    ("n = []\ndef verify(g, q, p, rng):\n    n.append(1)\n    return [len(n) % 3]", "hidden state"),
    ("def verify(g, q, p, rng):\n    while rng.random() < 2: pass", "does not end"),
    ("def verify(g, q, p, rng): return [rng.choice(3)]", "does not run: AttributeError"),
])
def test_what_cannot_be_judged_gets_one_line(said, text, message):
    status, out = said(text)
    complaint = out.splitlines()[-1]
    assert status == 2 and re.search(message, complaint) and "answer.py" in complaint


def test_a_file_that_never_ends_is_ended(tmp_path, capfd):
    path = tmp_path / "answer.py"
    path.write_text("while True: pass", encoding="utf-8")
    assert judge.main([str(path), "--seconds", "1"]) == 2
    assert capfd.readouterr().out.strip().endswith("does it end?")


def test_the_exit_status_of_the_command_is_the_judgement(tmp_path):
    path = tmp_path / "answer.py"
    path.write_text("def verify(guesses, p_draft, p_target, rng): return [0]", encoding="utf-8")
    assert judge.main([str(path)]) == 1
