"""Commands that cannot be are refused in one line, before anything is measured or written."""

import importlib
import os
import re
import shlex
import sys
from pathlib import Path
from string import Template

import pytest

from run import flags
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import refusal
from tests.pages import ROOT, file_text
from tools import survey, will_it_pay

REFUSED = file_text("tests/data/refused.txt")
CASES = re.findall(r"^(?:without (\S+): )?python (?:-m )?(\S+) (.*)\n    (.*)$", REFUSED,
                   re.MULTILINE)
PARTS = {"files": "--models_dir models --prompts prompts --out out", "default": flags.PROMPT,
         "words": "word " * 600, "newline": "\n",
         "results": (ROOT / "benchmarks/results").as_posix()}
FILES = {"prompts": b"A bear\nb\n", "blank": b"\n \n", "bad": b"A fox\nTwo \xff hens\n",
         "own": b'{"prompt": "A fox", "regex": "("}\n', "no_token": b'A fox\n\n{"prompt": ""}\n'}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two small models, files of prompts, an empty folder and a pipe."""
    folder = tmp_path_factory.mktemp("refused")
    for name in ("tales-small", "tales-large"):
        write_converted(folder / "models" / name, HPARAMS | {"n_ctx": 32})
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize("package, command, flags, words", CASES, ids=lambda text: text[:60])
def test_a_command_that_cannot_be_is_one_line(folder, monkeypatch, package, command, flags, words):
    if command == "tools.survey" and not package:
        pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(survey, "TIMEOUT", 1)
    monkeypatch.setattr(will_it_pay, "timed_turns", None)
    if package:
        monkeypatch.setitem(sys.modules, package, None)
    before = sorted(os.listdir())
    flags = shlex.split(Template(flags).substitute(PARTS))
    module = importlib.import_module(command.removesuffix(".py"))
    if hasattr(module, "__path__"):  # a package, which Python runs by its __main__.py
        module = importlib.import_module(f"{command}.__main__")
    why = refusal(module.main, *flags)
    # A table's name follows the command's, and rows of `variants` are read as flags of main.py.
    program = command
    if command == "benchmarks" and "NAME" not in words:
        program = f"benchmarks {flags[0]}"
    programs = (f"{program}: ", "main.py: ") if "--rows" in flags else f"{program}: "
    # oracle.py, which may be copied, says with which words it was run
    assert words in why and why.removeprefix("python -m ").startswith(programs)
    assert sorted(os.listdir()) == before and Path("prompts").read_bytes() == FILES["prompts"]


def test_every_case_is_read():
    commands = re.findall(r"^(?:without \S+: )?python ", REFUSED, re.MULTILINE)
    assert len(CASES) == len(commands) == REFUSED.count("\n    ") > 80
