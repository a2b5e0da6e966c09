"""Test exact/recorded.py: what the file has, and what the judge prints of a verifier on it."""

import re

import numpy as np
import pytest

from benchmarks.__main__ import main
from exact import judge, recorded
from exact.expected import match_tokens
from speculative import verify
from tests.pages import ROOT, code, file_text, section
from tests.test_judge import RIGHT, judged, keep_few_toys
from variants.block import block_verify
from variants.match import match_verify

SECTION = section(file_text(".github/CONTRIBUTING.md"), "Your rule on the recorded rounds")
CHAINS, ON_WHOLE_ROWS = recorded.read_chains()
ALWAYS = "def verify(guesses, p_draft, p_target, rng):\n    return [*guesses, 0]\n"
# wrong on recorded rows only, which have more columns than a toy's
RAISES = ALWAYS.replace("return", "return len(p_target[0]) > 3 and 1 / 0 or")
ALL_DRAWS = """\
from sampling import sample
def verify(guesses, p_draft, p_target, rng):
    rows = p_target if len(p_target[0]) > 3 else p_target[:1]
    return [sample(row, rng) for row in rows][:1]
"""
UNKNOWN_TOKEN = ALWAYS.replace("0]", "99 * (len(p_target[0]) > 3)]")


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Return a function that judges a file with this text on n rounds: (status, output)."""
    keep_few_toys(monkeypatch)

    def run(text, n=3, **limits):
        monkeypatch.setattr(recorded, "read_chains", lambda path: (CHAINS[:n], ON_WHOLE_ROWS[:n]))
        return judged(tmp_path, text, with_rows=True, **limits)
    return run


# ---- the file

def test_reduced_rows_keep_the_guesses_and_what_is_accepted():
    """Two guesses of token 7, which is improbable, on rows of 200 tokens."""
    rows = np.random.default_rng(0).dirichlet([0.1] * 200, size=5)
    p_draft, p_target = rows[:2], rows[2:]
    p_draft[:, 7] = 1e-12
    p_target[:, 7] = 1e-13
    guesses, few_draft, few_target = recorded.reduced([7, 7], p_draft, p_target)
    for t, token in enumerate(guesses):
        assert few_draft[t][token] == 1e-12 and few_target[t][token] == 1e-13
    assert few_draft.shape == (2, 68) and few_target.shape == (3, 68)
    assert np.allclose(few_target.sum(axis=1), p_target.sum(axis=1))
    accepted = np.minimum(p_draft, p_target[:2]).sum(axis=1)
    assert np.allclose(np.minimum(few_draft, few_target[:2]).sum(axis=1), accepted)


def test_the_figures_of_reduced_rows_are_those_of_whole_rows_and_not_above_the_bound():
    figures = recorded.figures_of()
    reduced = [[*of_round.values()] for of_round in figures]
    assert abs(np.mean(reduced, axis=0) - ON_WHOLE_ROWS.mean(axis=0)).max() < 0.001
    assert not any(recorded.is_above_bound(figures, name) for name in recorded.TESTS)


def test_the_file_is_what_the_command_writes(tmp_path, capsys):
    assert main(["rules", "--record", str(tmp_path / "rows.npz"), "--rounds", "21"]) == 0
    assert "3 recorded rounds of the bundled pair" in capsys.readouterr().out
    written, on_whole_rows = recorded.read_chains(tmp_path / "rows.npz")
    for chain, stored in zip(written, CHAINS[:3], strict=True):
        for new, old in zip(chain, stored):  # guesses, p_draft, p_target: float16 has 11 bits
            assert np.allclose(new, old, rtol=2e-3, atol=1e-6)
    assert np.allclose(on_whole_rows, ON_WHOLE_ROWS[:3], rtol=1e-4)


# ---- a verifier on its rows

@pytest.mark.parametrize("test, tokens", [(verify, recorded.TESTS["ratio"]),
                                          (block_verify, recorded.TESTS["block"]),
                                          (match_verify, match_tokens)])
def test_a_verifiers_tokens_are_those_of_its_formula(test, tokens):
    wanted = [tokens(*chain) for chain in CHAINS[:8]]
    assert recorded.tokens_of(test, CHAINS[:8]) == pytest.approx(wanted, abs=1e-12)


def test_a_verifier_may_write_into_its_rows():
    def in_place(guesses, p_draft, p_target, rng):
        ids = verify(guesses, p_draft, p_target, rng)
        p_target[:] = 0
        return ids

    assert recorded.tokens_of(in_place, CHAINS[:2]) == recorded.tokens_of(verify, CHAINS[:2])


def test_drawn_guesses_are_no_guesses_of_a_files_own(said):
    assert said("from speculative import guess, verify", K=1)[0] == 0
    assert judge.judged_file(ROOT / "speculative.py").verify


def test_the_page_shows_what_the_judge_says(said, monkeypatch):
    """Match's tokens are those of its formula, which is compared with the enumeration above."""
    monkeypatch.setattr(recorded, "tokens_of", lambda verify, chains: [
        match_tokens(*chain) for chain in chains])
    file = code(SECTION, "python")
    assert file == "from variants.match import match_verify as verify\n"
    status, out = said(file, n=200)
    assert status == 0
    assert out.endswith(f"{judge.NOT_ENUMERATED}\n\n{code(SECTION, 'text')}")


def test_the_table_of_a_verifier_that_is_not_lossless_says_so(said):
    status, out = said(ALWAYS)
    assert status == 1 and "| answer.py | 5.000 | 0.000 |" in out and "<- too high" in out
    assert out.endswith("answer.py is not exact: the bound does not hold for it.\n")


def test_a_mean_above_the_bound_is_not_exact_although_the_toys_show_nothing(said):
    """The toys with rows of three tokens show nothing of a rule that is wrong on longer rows."""
    untested = "    if len(p_target[0]) > 3: return [*guesses, 0]\n"
    status, out = said(RIGHT.replace("    for t", f"{untested}    for t"), n=40)
    assert status == 1 and "The distribution is the target's in all of these cases." in out
    assert out.endswith("answer.py is not exact: its mean is more than 6 standard errors above "
                        "the bound.\n")


@pytest.mark.parametrize("text, message", [
    ("def step(*args): return [0]", "--rows needs a function verify alone, because"),
    (RAISES, r"line 2: ZeroDivisionError: .* \(called with rows of 68 columns\)"),
    (ALL_DRAWS, "need a verify with at most 2000 outcomes in a recorded round"),
    (UNKNOWN_TOKEN, "need a list of 1 to 5 tokens of 0 .. 67, got"),
])
def test_what_has_no_tokens_per_round_gets_one_line(said, text, message):
    status, out = said(text)
    assert status == 2 and re.search(message, out.splitlines()[-1])
