"""The README quotes the project as it is."""

import re
import subprocess
import sys

import pytest

from exact.law import law
from speculative import complete, draft_and_verify
from tools.readme import BLOCK, ROOT, STATIC, fill, run

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_quoted_code_and_line_counts_are_the_sources():
    assert fill(README, STATIC) == README


def words(output):
    """What is the same in every run: all but the columns of the table that a clock fills."""
    timed = ("Time", "speed-up", "time", "tokens per second", "ms per", "Few rows")
    return [line for line in output.split("\n") if not line.startswith(timed)]


@pytest.mark.parametrize("command, quoted", [
    (match[3], match[4]) for match in BLOCK.finditer(README)
    if match[2] == "run" and "main.py" in match[3]])
def test_quoted_output_is_what_the_command_prints(command, quoted):
    """Apart from clocks: every text, count and label is the same."""
    assert words(run(command)) == words(quoted)


def test_the_short_list_of_packages_is_all_that_the_main_job_needs():
    short = set(re.search("^pip install (.*)$", README, re.MULTILINE)[1].split())
    whole = {re.match(r"[\w-]+", line)[0] for line in
             (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()}
    assert short < whole
    hide = "import sys; sys.modules |= dict.fromkeys(sys.argv[1:]); sys.argv[1:] = []; import main"
    run = f"{hide}; sys.exit(main.main(['--n_tokens', '4']))"
    done = subprocess.run([sys.executable, "-c", run,
                           *(name.replace("-", "_") for name in whole - short)],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_file_that_the_readme_names_exists():
    for name in re.findall(r"`([\w/]+\.(?:py|md|txt))`", README):
        assert (ROOT / name).exists(), name


def test_every_core_file_is_linked():
    for path in ROOT.glob("*.py"):
        assert f"]({path.name})" in README, path.name


def examples(word):
    """The Python block that has this word in it."""
    return next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
                if word in block)


def test_the_toy_gives_the_targets_distribution_and_tells_a_wrong_test_apart():
    *setup, question, comment = examples("import law").strip().split("\n")
    names = {}
    exec("\n".join(setup), names)
    got = eval(question.split("  #")[0], names)
    assert comment.startswith("# {0: 0.2, 1: 0.3, 2: 0.5}")
    assert got == pytest.approx({0: 0.2, 1: 0.3, 2: 0.5}, abs=1e-12)
    always_0 = lambda guesses, *rest: guesses + [0]
    wrong = draft_and_verify(names["draft"], names["target"], 1, always_0)
    assert law(lambda rng: complete([0], wrong, 2, rng)[1]) != pytest.approx(got, abs=0.01)


def test_the_example_that_loads_the_pair_writes_a_text(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(examples("load_encoder_hparams_and_params"), {})
    assert capsys.readouterr().out.startswith("The old witch looked at the boy and")
