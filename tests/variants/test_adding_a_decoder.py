"""The decoder that CONTRIBUTING.md adds in one file does what that page says."""

import re
import types
from pathlib import Path

import pytest

import main
import variants
from tests.test_main import figures
from tests.variants.registered import assert_keeps_the_distribution

PAGE = (Path(main.__file__).parent / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"^## Adding a decoder$.*?^```python\n(.*?)^```$", PAGE,
                    re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def added(monkeypatch):
    """The example's module, registered as variants/__init__.py would: the name of its decoder."""
    module = types.ModuleType("variants.example")
    exec(compile(EXAMPLE, "CONTRIBUTING.md", "exec"), module.__dict__)
    monkeypatch.setitem(variants.DECODERS, module.DECODER.name, module.DECODER)
    for name, flag in module.DECODER.flags.items():
        monkeypatch.setitem(variants.FLAGS, name, variants.FLAGS.get(name, flag))
    return module.DECODER.name


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_it_is_exact(added, temperature):
    assert_keeps_the_distribution(added, {}, dict(temperature=temperature))


def test_the_command_line_lists_it(added, capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    (choices,) = re.findall(r"--decoder \{(.*?)\}", said)[-1:]
    assert added in choices.replace(" ", "").split(",")


def test_the_command_line_runs_it(added):
    got = figures("--decoder", added, "--n_tokens_to_generate", 10, "--dtype", "float64")
    assert got["identical"] and got["exact"] and got[added]["tokens"] == 10


def test_its_first_line_says_whether_it_is_lossless():
    assert "ossless" in EXAMPLE.split("\n")[0]
