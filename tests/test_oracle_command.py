"""The oracle for programs: right ones are exact, twins are named, others get one sentence."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from exact import oracle
from exact.oracle import Program, check
from exact.rules.batched import EXACT, WRONG
from tests.commands import outcome, refusal, write_package, written
from tests.pages import ROOT, code, file_text

EXAMPLES = ROOT / "docs" / "oracle"
PAGE = file_text("docs/oracle.md")
WARNINGS = {"gcc": "-Wall -Wextra -Werror", "rustc": "-D warnings", "go": ""}
LINE = r'the line "3 3 [0-9 .]+"'  # as given to a program
RIGHT = "ratio"
RULE = "target-draw"

pytestmark = pytest.mark.usefixtures("own_path")


@pytest.fixture
def quick(monkeypatch):
    """Let the oracle ask a program, which is slow, for a tenth of its lines.

    A right program that is asked too little gets a wrong distribution: it is not called exact.
    """
    monkeypatch.setattr(oracle, "REPEATED", 256)
    monkeypatch.setattr(oracle, "SAMPLES", 8)
    monkeypatch.setattr(oracle, "POINTS", 1024)
    monkeypatch.setattr(oracle, "ROUNDS_IF_SLOW", 10_000)


# ---- examples

@pytest.fixture(scope="module", params=["verifier.c", "verifier.rs", "verifier.go"])
def compiled(request, tmp_path_factory):
    """Compile an example as it states; return the folder of the program."""
    folder = tmp_path_factory.mktemp(request.param)
    example = Path(shutil.copy(EXAMPLES / request.param, folder))
    stated = r"[ \t](\w+) (.+) && python oracle\.py --command \./verifier"
    compiler, words = re.search(stated, example.read_text("utf-8")).groups()
    if sys.platform == "win32":
        pytest.skip("./verifier is not a name there")
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    words = [compiler, *words.split(), *WARNINGS[compiler].split()]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("flags, twin, status, begin", [
    ("", "", 0, r"exact: .* 2\.33 tokens per round"),
    ("", "--wrong", 1, rf"NOT exact: (.*\n)+likely fault: {RULE}: .*\n"),
    ("--K 1 --V 4 --dtype float32 --seconds 60", "", 0, r"exact: .*\(K = 1, V = 4, no padding"),
    ("--K 2 --padding", "", 0, r"exact: .*\(K = 2, V = 3, \d+ boxes")])
def test_an_example_is_exact_and_its_twin_is_named(compiled, flags, twin, status, begin, quick):
    words = [*flags.split(), "--command", compiled / "verifier", *twin.split()]
    got, out, _ = outcome(oracle.main, *words)
    assert got == status and re.match(begin, out)


COMMAND = re.escape("$ python -m exact.oracle --command ./verifier")


@pytest.mark.parametrize("rule, report", [
    (EXACT[RIGHT], re.search(rf"{COMMAND}\n((?:[^$`].*\n)+)", PAGE)[1]),
    (WRONG[RULE], code(PAGE, "text", "NOT exact"))])  # --wrong is the fault in PyTorch
def test_the_page_quotes_the_reports_and_bounds_the_lines(rule, report):
    """Of the rules over arrays, which the examples and their twins are."""
    n_rows = []

    def counted(guesses, *arrays):
        n_rows.append(len(guesses))
        return rule(guesses, *arrays)

    assert f"{check(counted)}\n" == report
    assert sum(n_rows) < 250_000 and "fewer than 250,000 lines" in " ".join(PAGE.split())


# ---- Python programs

def words_of(text):
    """Return the words that run this text as a Python program."""
    assert text.isascii()
    return [sys.executable, "-c", text]


# A program that draws one token from a row of the target: row 0 is right.
ONE_TOKEN = """
import random, sys
for line in sys.stdin:
    K, V, *numbers = map(float, line.split())
    first = int(K + 3 * K + 3 * ROW)  # after the guesses, p_draft and the target's earlier rows
    a, b = numbers[first], numbers[first + 1]
    u = NUMBER
    token = (u >= a) + (u >= a + b)
    print(token, *[-1] * int(K), flush=True)
"""
WITH_UNIFORMS = ONE_TOKEN.replace("NUMBER", "numbers[-1]")
OWN_NUMBERS = ONE_TOKEN.replace("NUMBER", "random.random()")
RIGHT_TOKEN = WITH_UNIFORMS.replace("ROW", "0")
WRONG_TOKEN = WITH_UNIFORMS.replace("ROW", "1")


def answer(text):
    """Return a program that answers each line with this text."""
    return f"import sys\nfor line in sys.stdin: print({text!r}, flush=True)"


@pytest.mark.parametrize("flags, text, status, begin", [
    ("--K 1 --V 3 --dtype float32 --padding --seconds 60", RIGHT_TOKEN, 0, "exact: "),
    ("--K 1", WRONG_TOKEN, 1, "NOT exact: "),
    ("--K 1 --sampling", OWN_NUMBERS.replace("ROW", "0"), 0, "no fault seen: "),
    ("--K 1 --sampling", OWN_NUMBERS.replace("ROW", "1"), 1, "NOT exact: "),
    ("--K 1 --sampling", RIGHT_TOKEN.replace("[-1]", "[10]"), 2, "not checked: the program ended")])
def test_the_exit_status_of_a_program(flags, text, status, begin, quick, capfd):
    """A right program that draws its own numbers is called wrong with a probability of 1e-9.

    The wrong one draws a token of the next row, which is impossible on some toys. The last one
    reads uniforms, which --sampling does not give.
    """
    assert oracle.main([*flags.split(), "--command", *words_of(text)]) == status
    assert capfd.readouterr().out.startswith(begin)


def test_a_program_gets_all_digits(tmp_path):
    """Numbers that are read again are those of the arrays, row by row; K and V have no point."""
    log = tmp_path / "lines"
    program = Program(words_of(f"import sys\nfor line in sys.stdin:\n"
                               f"    open({str(log)!r}, 'a').write(line)\n"
                               f"    print(0, -1, -1, flush=True)"))
    rng = np.random.default_rng(0)
    guesses = np.array([[2, -1], [0, 1]])
    p_draft, *others = (rng.random(shape).astype(np.float32) / 1000
                        for shape in [(2, 2, 3), (2, 3, 3), (2, 3)])
    wanted = []
    for call in ([p_draft, *others], [p_draft / 2, *others]):
        assert program(guesses, *call).tolist() == [[0, -1, -1]] * 2
        for row in range(2):
            numbers = np.concatenate([array[row].ravel() for array in call])
            wanted.append([2, 3, *guesses[row], *numbers])
    lines = log.read_text("utf-8").splitlines()
    assert [[float(word) for word in line.split()] for line in lines] == wanted
    assert lines[0].startswith("2 3 2 -1 ")


NO_LINE = (r"the program has not printed a line within 0\.5 seconds \(does it flush its output "
           f"after each line\\?\\) for {LINE}")
NO_NUMBERS = r"the program printed '{}' instead of K \+ 1 = 4 whole numbers for " + LINE
NOT_NUMBERS = ["0 -1 -1", "0 -1 -1 -1 -1", "0.0 -1 -1 -1", "10000000000 -1 -1 -1"]
HANGING = {
    "has a child that sleeps":
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input(); input(); "
        "import time; time.sleep(1000)'])",
    "reads everything before it writes":
        "import sys\nfor line in sys.stdin.read().splitlines(): print(0, -1, -1, -1)",
    "closes its input": "import os, time; os.close(0); time.sleep(1000)",
    "reads no further": "import time; print('0 -1 -1 -1', flush=True) if input() else 0; "
                        "time.sleep(1000)"}
BAD = {
    "ends at once": ("raise SystemExit(3)",
                     f"the program ended with status 3 instead of an answer to {LINE}"),
    "no UTF-8": ("import sys; sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush(); "
                 "input()", r"the program printed '\\\\xff' .* " + LINE),
    "a long line": (answer("7" * 10_000), NO_NUMBERS.format("7{80}")),
    "a line without an end": ("while True: print(end='7' * 100)",
                              r"the program printed '7{80}' .* " + LINE),
    "lines without end": ("while True: print(0, -1, -1, -1, flush=True)",
                          f"the program printed '0 -1 -1 -1' before it was given {LINE}"),
    **{line: (answer(line), NO_NUMBERS.format(re.escape(line))) for line in NOT_NUMBERS},
    **{name: (text, NO_LINE) for name, text in HANGING.items()}}


def test_a_bad_program_gets_one_sentence_and_ends(quick):
    """All at once, because one that hangs takes seconds.

    The threads have ended too: a program's children do not hold its pipes.
    """
    bad = dict(BAD)
    if not hasattr(os, "killpg"):
        del bad["has a child that sleeps"]  # needs groups of processes
    n_threads = threading.active_count()
    start = time.monotonic()
    programs = {name: Program(words_of(text), seconds=0.5 if name in HANGING else 60)
                for name, (text, _) in bad.items()}
    with ThreadPoolExecutor(len(programs)) as pool:
        reports = dict(zip(programs, pool.map(check, programs.values())))
    assert time.monotonic() - start < 60  # of the 1000 that some sleep
    assert all(program.process.returncode is not None for program in programs.values())
    assert threading.active_count() == n_threads
    end = re.escape(f" ({oracle.ORIGIN})")
    wrong = {name: str(reports[name]) for name, (_, sentence) in bad.items()
             if not re.fullmatch(f"not checked: {sentence}{end}", str(reports[name]))}
    assert not wrong and all(report.exact is None for report in reports.values())


def test_the_seconds_are_for_a_batch_and_not_for_all():
    """Each batch takes half a second, and all together more than the limit."""
    slow = Program(words_of(f"import sys, time\n"
                            f"for n, line in enumerate(sys.stdin):\n"
                            f"    if n % {oracle.LINES} == 0: time.sleep(0.5)\n"
                            f"    print(0, -1, flush=True)"), seconds=2)
    n = 5 * oracle.LINES
    start = time.monotonic()
    tokens = slow(np.zeros((n, 1), int), np.ones((n, 1, 1)), np.ones((n, 2, 1)), np.ones((n, 2)))
    assert tokens.tolist() == [[0, -1]] * n and time.monotonic() - start > 2


@pytest.mark.parametrize("words", ["./verifier", []])
def test_a_program_is_a_list_of_words(words):
    with pytest.raises(ValueError, match="need a program and its arguments as a list, "):
        Program(words)


def test_a_program_ends_when_its_input_does(tmp_path):
    """It can still write what it has counted."""
    file = tmp_path / "ended"
    program = Program(words_of(f"import sys\nfor line in sys.stdin: pass\n"
                               f"open({str(file)!r}, 'w').write('ended')"))
    program.end()
    assert file.read_text("utf-8") == "ended" and program.process.returncode == 0


def test_a_program_that_has_ended_is_not_asked_again(quick):
    program = Program(words_of("for n in range(300): input(); print(0, -1, -1, -1, flush=True)"))
    assert "ended with status 0 instead of an answer to" in str(check(program))
    assert "need a running program, got one that has ended: make a new" in str(check(program))


# ---- the command

def test_everything_after_command_is_the_programs(tmp_path, quick, capsys):
    file = tmp_path / "words"
    text = f"import sys; open({str(file)!r}, 'w').write(' '.join(sys.argv[1:]))"
    flags = "-h --K 9 --command -- --seconds x.py"
    assert oracle.main(["--command", "--", *words_of(text), *flags.split()]) == 2
    assert file.read_text("utf-8") == flags
    assert "ended with status 0" in capsys.readouterr().out
    assert "cannot run ./none: " in refusal(oracle.main, "--K", 1, "--command=./none", "--flag")


@pytest.mark.parametrize("flag", ["--K 4", "--tolerance=0.1"])
def test_a_flag_of_the_oracle_among_the_programs_words_is_refused(flag):
    name = re.split("[ =]", flag)[0]
    assert (f"{name} must come before --command (if it is a flag of the program, write "
            "`--command -- PROGRAM ..`)\n") in refusal(
                oracle.main, "--command", "./verifier", "--wrong", *flag.split())


# ---- the action

ACTION = ROOT / ".github" / "actions" / "oracle"
INPUTS = {"FILE": "file", "COMMAND": "command", "OPTIONS": "options"}


def test_the_inputs_of_the_action_are_the_environment_of_its_step():
    text = (ACTION / "action.yml").read_text("utf-8")
    assert dict(re.findall(r"^ +([A-Z]+): \$\{\{ inputs\.(\w+) \}\}$", text, re.M)) == INPUTS
    assert re.findall(r'^  (\w+): \{description: ".+", default: ""\}$', text, re.M) == [
        *INPUTS.values()]
    assert text.count("${{") == len(INPUTS)  # no input is a part of the script


@pytest.fixture
def step(tmp_path):
    """Return a function that runs the action's step as GitHub does, on these inputs."""
    if sys.platform == "win32" or not shutil.which("bash"):
        pytest.skip("needs bash")
    text = (ACTION / "action.yml").read_text("utf-8")
    script = tmp_path / "step.sh"
    script.write_text(textwrap.dedent(text.partition("run: |\n")[2]), encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)

    def run(**inputs):
        env = {name: inputs.get(name, "") for name in INPUTS}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script], cwd=tmp_path,
            capture_output=True, text=True, env=os.environ | env | {
                "GITHUB_ACTION_PATH": str(ACTION), "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        return done.returncode, done.stdout + done.stderr
    return run


def test_the_step_of_the_action_checks_a_program_with_its_options(step, tmp_path):
    (tmp_path / "its twin.py").write_text(WRONG_TOKEN, encoding="utf-8")
    status, out = step(COMMAND='python "its twin.py" --flag', OPTIONS="--K 1 --dtype float32")
    assert status == 1 and out.startswith("NOT exact: ") and "(K = 1, " in out


# ---- a file that imports its own modules

ONE_TOKEN_OF_ARRAYS = """
import numpy as np
def verify(g, q, p, u):
    import toys  # while it is called
    token = (u[:, :1] >= p[:, 0].cumsum(-1)).sum(-1)
    return np.c_[token, -np.ones_like(g)]
assert toys.IS_MINE and __package__ == "mypkg"
"""


@pytest.fixture
def user(tmp_path):
    """Return a folder with a file that imports its neighbours, a package among them."""
    return write_package(tmp_path / "my user", ONE_TOKEN_OF_ARRAYS).parent


@pytest.mark.parametrize("words", [["-m", "exact.oracle"], ["-I", oracle.__file__]])
def test_a_file_finds_its_own_modules_first(words, user):
    """-I makes Python leave out the folder of the script."""
    done = subprocess.run(
        [sys.executable, *words, "my user/verifier.py", "--K", "1"], capture_output=True, text=True,
        cwd=user.parent, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("exact: ")


def test_the_step_of_the_action_checks_a_file_in_a_package(step, user):
    status, out = step(FILE="my user/verifier.py", OPTIONS="--K 1")
    assert status == 0 and out.startswith("exact: ")


def test_an_error_begins_with_the_words_that_were_typed(tmp_path):
    done = subprocess.run([sys.executable, oracle.__file__, "none.py"], capture_output=True,
                          text=True, cwd=tmp_path)
    assert done.stderr == f"python {oracle.__file__}: cannot read none.py: no such file\n"


# ---- files that draw their own numbers

OWN_NUMBERS_IN_PYTHON = """
import numpy as np
rng = np.random.default_rng(0)
def verify(guesses, p_draft, p_target):
    token = (rng.random((len(guesses), 1)) >= p_target[:, ROW].cumsum(-1)).sum(-1)
    return np.c_[token, -np.ones_like(guesses)]
"""


def test_a_file_that_draws_its_own_numbers_is_checked_by_sampling(tmp_path, monkeypatch):
    """The right one is called wrong with a probability of at most 1e-9.

    The wrong one draws a token of the next row, which is impossible on some toys.
    """
    monkeypatch.setattr(oracle, "ROUNDS", 100_000)
    path = written(tmp_path, OWN_NUMBERS_IN_PYTHON.replace("ROW", "0"))
    assert "its own numbers, say --sampling (in Python: check_by" in refusal(oracle.main, path)
    status, out, _ = outcome(oracle.main, path, "--sampling")
    assert status == 0 and out.startswith("no fault seen: ") and oracle.ROUNDS_ALONE in out
    assert "100,000 sampled rounds" in out
    assert "20,000 sampled rounds" in outcome(
        oracle.main, path, "--sampling", "--n", 20_000, "--tolerance", 0.1)[1]
    assert "--n applies only to --sampling" in refusal(oracle.main, path, "--n", 20_000)
    written(tmp_path, OWN_NUMBERS_IN_PYTHON.replace("ROW", "1"))
    assert outcome(oracle.main, path, "--sampling", "--n", 20_000)[0] == 1
    written(tmp_path, "def verify(guesses, p_draft, p_target, uniforms): pass")
    assert "need verify(guesses, p_draft, p_target), got" in refusal(
        oracle.main, path, "--sampling")
