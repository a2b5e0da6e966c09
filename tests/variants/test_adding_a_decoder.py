"""The decoder that CONTRIBUTING.md adds in one file does what that page says."""

import sys
import types

import numpy as np
import pytest

import main
import variants
from docs.readme import methods_table
from tests import small, test_laws
from tests.commands import json_of_run
from tests.pages import code, file_text, section
from tests.small import forms, stepper
from tests.toys import PAIRS

EXAMPLE = code(section(file_text(".github/CONTRIBUTING.md"), "Adding a decoder"), "python")


def registered(source, monkeypatch):
    """Register the decoder of a source; return its name."""
    module = types.ModuleType("variants.example")
    exec(compile(source, "example.py", "exec"), module.__dict__)
    name = module.DECODER.name
    monkeypatch.setitem(sys.modules, f"variants.{name}", module)
    monkeypatch.setattr(variants, "FILES", (*variants.FILES, name))
    return name


@pytest.fixture
def added(monkeypatch):
    """Register the example's decoder as variants/__init__.py would; return its name."""
    return registered(EXAMPLE, monkeypatch)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_the_example_is_exact_and_its_first_line_says_so(added, temperature):
    sampling = dict(temperature=temperature)
    new_step = stepper(added, forms(added)[0].flags, PAIRS["dense"], sampling)
    test_laws.assert_exact(new_step, "dense", sampling)
    assert "ossless" in EXAMPLE.split("\n")[0]


def test_the_command_line_lists_and_runs_the_example(added, capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    assert f" {added}" in capsys.readouterr().out.split("Decoders (")[1]
    got = json_of_run("--decoder", added, "--n_tokens_to_generate", 10, "--dtype", "float64")
    assert got["identical"] and got["exact"] and got[added]["tokens"] == 10


def test_the_table_of_its_family_shows_it(added):
    assert f"| {added} |" in methods_table("no draft model")


# ---- a lossy one

TYPICAL = '''"""Accept a guess if the target's probability of it is at least 0.2. Not lossless."""

from sampling import sample
from speculative import draft_and_verify, guess
from variants.registry import GUESSES, Decoder


def verify_typical(guesses, p_draft, p_target, rng):
    for t, token in enumerate(guesses):
        if p_target[t][token] < 0.2:
            return guesses[:t] + [sample(p_target[t], rng)]
    return guesses + [sample(p_target[-1], rng)]


def build(models, K: GUESSES = 4):
    return draft_and_verify(models.draft_rows, models.target_rows, K, verify_typical)


DECODER = Decoder("plain_typical", "", "", idea="", family="a lossy rule", guess=guess,
                  test=verify_typical, build=build, exact=False)
'''


def first_token(p_draft, p_target):
    """Return its distribution: a typical guess, or else a draw from the target."""
    typical = np.where(p_target >= 0.2, p_draft, 0)
    return typical + (1 - typical.sum()) * p_target


def test_a_lossy_decoder_is_named_so_and_has_to_predict_its_distribution(monkeypatch):
    name = registered(TYPICAL, monkeypatch)
    assert not small.can_be_exact(name) and small.is_lossy(name)
    test_laws.test_an_entry_of_a_lossy_test_says_when_it_is_exact(name)
    with pytest.raises(AssertionError, match="need the distribution that plain_typical has"):
        test_laws.test_a_lossy_decoder_deviates_as_its_formula_says(name)
    monkeypatch.setitem(small.LOSSY, name, ({"K": 1}, first_token))
    test_laws.test_a_lossy_decoder_deviates_as_its_formula_says(name)
    monkeypatch.setitem(small.LOSSY, name, ({"K": 1}, lambda p_draft, p_target: p_target))
    with pytest.raises(AssertionError, match="a different distribution"):
        test_laws.test_a_lossy_decoder_deviates_as_its_formula_says(name)
    got = json_of_run("--decoder", name, "--n_tokens_to_generate", 5, "--temperature", 1)
    assert got["exact"] is False


def test_a_lossy_decoder_that_says_nothing_is_refused(monkeypatch):
    name = registered(TYPICAL.replace(", exact=False", ""), monkeypatch)
    with pytest.raises(AssertionError, match="need exact=False, or the flags"):
        test_laws.test_an_entry_of_a_lossy_test_says_when_it_is_exact(name)
