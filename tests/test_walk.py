"""How far it is from the command to the algorithm: what a reader steps through."""

import os
import sys
from pathlib import Path

import pytest

import main
from tests.commands import json_of_run
from tests.pages import ROOT, code, file_text

FILES = 16
FUNCTIONS = 130


class FirstRound(BaseException):
    """Leave a run at its first round; no handler of errors catches this."""


def test_few_files_and_functions_are_entered_before_the_first_speculative_step():
    entered = set()  # (file, function) of our own code; a module's own lines are no function

    def watch(frame, event, argument):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{ROOT}{os.sep}"):
            return
        file = Path(code.co_filename).relative_to(ROOT)
        if file.parts[0] != "tests" and code.co_name != "<module>":
            entered.add((file.as_posix(), code.co_qualname))
        if code.co_name == "speculative_step":
            raise FirstRound

    sys.setprofile(watch)
    try:
        with pytest.raises(FirstRound):
            main.main(["--K", "4", "--temperature", "0", "--n_tokens_to_generate", "8"])
    finally:
        sys.setprofile(None)
    n_files = len({file for file, _ in entered})
    assert n_files <= FILES and len(entered) <= FUNCTIONS, sorted(entered)


def test_the_statements_of_the_readme_write_the_text_of_its_command(capsys):
    exec(code(file_text("README.md"), "python", "load_pair"), {})
    text = capsys.readouterr().out.removesuffix("\n")
    assert text == json_of_run("--K", 4, "--temperature", 0)["speculative"]["text"]
