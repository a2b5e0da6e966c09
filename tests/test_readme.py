"""The README quotes the project as it is."""

import re

import pytest

from speculative import verify
from tools.readme import BLOCK, ROOT, STATIC, fill, run

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_quoted_code_and_line_counts_are_the_sources():
    assert fill(README, STATIC) == README


@pytest.mark.parametrize("command, quoted", [
    (match[3], match[4]) for match in BLOCK.finditer(README)
    if match[2] == "run" and "main.py" in match[3]])
def test_quoted_output_is_what_the_command_prints(command, quoted):
    """Apart from clocks: every text, count and label is the same."""
    clock = r"[\d.]+(?=s \(| tokens a second| ms| measured| predicted)"
    untimed = lambda text: re.sub(clock, "#", text)
    assert untimed(run(command)) == untimed(quoted)


def test_every_file_that_the_readme_names_exists():
    for name in re.findall(r"`([\w/]+\.(?:py|md|txt))`", README):
        assert (ROOT / name).exists(), name


def test_every_core_file_is_linked():
    for path in ROOT.glob("*.py"):
        assert f"]({path.name})" in README, path.name


def test_the_quoted_experiment_tells_a_right_test_from_a_wrong_one():
    code = next(block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
                if "total_variation" in block)
    *setup, question = code.strip().split("\n")
    for yours, right in [(verify, True), (lambda guesses, *rows_and_rng: guesses + [0], False)]:
        names = {"yours": yours}
        exec("\n".join(setup), names)
        assert (eval(question, names) < 1e-12) == right
