"""docs/article.md: its program does what the page says, and is speculative.py's algorithm."""

import re
from pathlib import Path

import numpy as np
import pytest

from exact.law import assert_same_law, law, text_law
from speculative import autoregressive_sampling, speculative_sampling

PAGE = (Path(__file__).parent.parent / "docs" / "article.md").read_text(encoding="utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
*STEPS, PROGRAM, WITH_GPT2 = [body for language, body in FENCES if language == "python"]
SHOWN, SHOWN_WITH_GPT2 = [body for language, body in FENCES if not language]


@pytest.fixture(scope="module")
def program():
    """What the program defines."""
    names = {"__name__": "article"}
    exec(PROGRAM, names)
    return names


def test_the_program_is_built_from_the_four_steps_and_fits_80_lines():
    assert len(STEPS) == 4 and all(step in PROGRAM for step in STEPS)
    assert len(PROGRAM.splitlines()) <= 80


def test_it_prints_what_the_page_shows(capsys):
    exec(PROGRAM, {"__name__": "__main__"})
    assert capsys.readouterr().out.rstrip("\n") == SHOWN


def test_with_gpt2_it_prints_what_the_page_shows(program, capsys):
    exec(WITH_GPT2, dict(program))
    assert capsys.readouterr().out.rstrip("\n") == SHOWN_WITH_GPT2


@pytest.mark.parametrize("seed", range(200))
def test_it_draws_the_tokens_of_speculative_py(program, seed):
    target, draft = (program["make_model"](sharpness, seed) for sharpness in (1.5, 0.7))
    N, K = 1 + seed % 20, 1 + seed % 5
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    ids, n_passes = program["speculative"]([0, 1], draft, target, N, K, ours)
    assert ids == speculative_sampling([0, 1], draft, target, N, K, theirs)
    assert N / (K + 1) <= n_passes <= N
    assert program["autoregressive"]([0, 1], target, N, ours) == autoregressive_sampling(
        [0, 1], target, N, theirs)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_its_texts_have_the_targets_distribution(program, K):
    target, draft = (program["make_model"](sharpness, 3, n_vocab=3) for sharpness in (1.5, 0.7))
    written = law(lambda rng: program["speculative"]([0, 1], draft, target, 3, K, rng)[0])
    assert_same_law(written, text_law([0, 1], target, 3))
