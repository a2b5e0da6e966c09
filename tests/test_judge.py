"""The judge of docs/exercises.md: right answers pass, wrong ones are shown, others are refused."""

import re
from pathlib import Path

import pytest

from exact import judge

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
    while len(ids) < min(n_left, K + 1):
        guess = int(draft(x + ids)[0].argmax())
        ids.append(sample(target(x + ids)[0], rng))
        if ids[-1] != guess:
            break
    return ids
"""
RATIO = "min(1, p_target[t][token] / p_draft[t][token])"
RESIDUAL = "residual(p_target[t], p_draft[t])"
VERIFY = "def verify(g, q, p, rng): "


@pytest.fixture
def said(tmp_path, capsys):
    """Return a function that judges a text: (exit status, what was printed)."""
    def run(text):
        path = tmp_path / "answer.py"
        path.write_text(text, encoding="utf-8")
        return judge.answer(path), capsys.readouterr().out
    return run


@pytest.mark.parametrize("text", [RIGHT, STEP])
def test_right_answers_are_exact_on_every_toy_for_the_K_that_are_named(said, text):
    status, out = said(text)
    assert status == 0 and out.count(": exact") == 12 == 3 * len(judge.TOYS)
    assert out.endswith("The distribution is the target's for K = 1, 2 and 3 on these toys.\n")


@pytest.mark.parametrize("old, new, found", [
    (RESIDUAL, "p_target[t]", "K = 1: distance 0.06"),
    (RATIO, "float(p_target[t][token] >= p_draft[t][token])", "K = 1: distance 0.2"),
    (RATIO, RATIO.replace("p_target", "1.0001 * p_target", 1), "K = 1: distance 2e-05"),
    ("p_target[-1]", "p_target[0]", "K = 1: distance 0.28"),
    (RATIO, f"{RATIO} if t < 2 else p_target[t][token]", "K = 3: distance 0."),
    ("    for t", "    accept = lambda prob, rng, u=rng.random(): u < prob\n    for t",
     "K = 2: distance 0.04"),
])
def test_a_fault_is_shown_where_it_happens(said, old, new, found):
    assert old in RIGHT
    status, out = said(RIGHT.replace(old, new))
    assert status == 1 and f"toy A, {found}" in out
    assert out.count("<- too high by") == 1


def test_the_page_shows_what_the_judge_says(said):
    _, out = said(RIGHT.replace(RESIDUAL, "p_target[t]"))
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    (quoted,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert out.endswith("\n\n" + quoted)


@pytest.mark.parametrize("text, message", [
    ("import nothing_of_this_name", "does not run: line 1: ModuleNotFoundError"),
    ("x = 1\ndef verify(", "does not run: line 2: SyntaxError: "),
    ("x = 1", "need a function verify or step"),
    (VERIFY + "return []", r"got \[\]"),
    (VERIFY + "return [7]", r"got \[7\]"),
    (VERIFY + "pass", "need a list of 1 to 2 tokens of 0, 1, 2, got None"),
    (VERIFY + "\n    return g[5]", "does not run: line 2: IndexError"),
    (VERIFY + "raise SystemExit(0)", "does not run: line 1: SystemExit"),
    ("import numpy as np\n" + VERIFY + "return [np.random.choice(3)]", "line 2: .*from rng alone"),
    ("n = []\n" + VERIFY + "\n    n.append(1)\n    return [len(n) % 3]", "not deterministic"),
    (VERIFY + "\n    while rng.random() < 2: pass", "does not end"),
    (VERIFY + "return [rng.choice(3)]", r"line 1: .*use rng\.random\(\), accept or sample"),
])
def test_what_cannot_be_judged_gets_one_line(said, text, message):
    status, out = said(text)
    complaint = out.splitlines()[-1]
    assert status == 2 and re.search(message, complaint) and "answer.py" in complaint


def test_the_command_names_its_file_and_returns_the_judgement(tmp_path, capfd, monkeypatch):
    path = tmp_path / "answer.py"
    path.write_text(VERIFY + "return [0]", encoding="utf-8")
    assert judge.main([str(path)]) == 1
    for other in (tmp_path, tmp_path / "answer.txt", tmp_path / "missing.py"):
        assert judge.main([str(other)]) == 2
        assert capfd.readouterr().out.endswith(f"{other}: need a Python file, FILE.py\n")
    path.write_text("while True: pass", encoding="utf-8")
    monkeypatch.setattr(judge, "SECONDS", 0.1)
    assert judge.main([str(path)]) == 2
    assert capfd.readouterr().out.endswith("still running after 0.1 s (an endless loop?)\n")
