"""The decoder that CONTRIBUTING.md adds in one file does what that page says."""

import sys
import types

import pytest

import main
import variants
from docs.readme import methods_table
from tests.commands import json_of_run
from tests.pages import code, file_text, section
from tests.small import forms, stepper
from tests.test_laws import assert_exact
from tests.toys import PAIRS

EXAMPLE = code(section(file_text(".github/CONTRIBUTING.md"), "Adding a decoder"), "python")


@pytest.fixture
def added(monkeypatch):
    """Register the example's decoder as variants/__init__.py would; return its name."""
    module = types.ModuleType("variants.example")
    exec(compile(EXAMPLE, "example.py", "exec"), module.__dict__)
    name = module.DECODER.name
    monkeypatch.setitem(sys.modules, f"variants.{name}", module)
    monkeypatch.setattr(variants, "FILES", (*variants.FILES, name))
    return name


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_example_is_exact_and_its_first_line_says_so(added, temperature):
    sampling = dict(temperature=temperature)
    new_step = stepper(added, forms(added)[0].flags, PAIRS["dense"], sampling)
    assert_exact(new_step, "dense", sampling)
    assert "ossless" in EXAMPLE.split("\n")[0]


def test_the_command_line_lists_and_runs_the_example(added, capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    assert f" {added}" in capsys.readouterr().out.split("Decoders (")[1]
    got = json_of_run("--decoder", added, "--n_tokens_to_generate", 10, "--dtype", "float64")
    assert got["identical"] and got["exact"] and got[added]["tokens"] == 10


def test_the_table_of_its_family_shows_it(added):
    assert f"| {added} |" in methods_table("no draft model")
