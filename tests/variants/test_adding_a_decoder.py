"""The decoder that CONTRIBUTING.md adds in one file does what that page says."""

import re
import types
from pathlib import Path

import pytest

import main
import variants
from docs.pictures import family
from docs.readme import families
from tests.commands import json_of_run
from tests.small import PAIRS, forms, stepper
from tests.test_laws import assert_exact

PAGE = (Path(main.__file__).parent / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"^## Adding a decoder$.*?^```python\n(.*?)^```$", PAGE,
                    re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def added(monkeypatch):
    """Register the example's decoder as variants/__init__.py would; return its name."""
    module = types.ModuleType("variants.example")
    exec(compile(EXAMPLE, "CONTRIBUTING.md", "exec"), module.__dict__)
    monkeypatch.setitem(variants.DECODERS, module.DECODER.name, module.DECODER)
    return module.DECODER.name


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_example_is_exact_and_its_first_line_says_so(added, temperature):
    sampling = dict(temperature=temperature)
    new_step = stepper(added, forms(added)[0], PAIRS["dense"], sampling)
    assert_exact(new_step, "dense", sampling)
    assert "ossless" in EXAMPLE.split("\n")[0]


def test_the_command_line_lists_and_runs_the_example(added, capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    assert f" {added}" in capsys.readouterr().out.split("Decoders (")[1]
    got = json_of_run("--decoder", added, "--n_tokens_to_generate", 10, "--dtype", "float64")
    assert got["identical"] and got["exact"] and got[added]["tokens"] == 10


def test_the_picture_and_the_table_of_families_show_it(added):
    assert re.search(rf"mono small.*\b{added}\b", family.draw(None))
    assert f"`{added}`" in families()
