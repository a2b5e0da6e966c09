"""The target's copy in int8 as its draft: what is rounded, what is shared, what is not.

tests/test_laws.py has its distribution, and that no row of the target depends on the copy.
"""

from unittest import mock

import numpy as np
import pytest

import cache
from gpt2 import GPT2
from lib.backend.int8 import Int8, int8, rounded_rows
from lib.checkpoints.weights import flatten
from measure.passes import Timed
from page.page import run_as_data
from speculative import generate
from tests import bundled
from tests.commands import json_of_run, run_main
from tests.small import lively_params
from utils import MODELS_DIR
from variants import Models, build, quantized
from variants.quantized import int8_copy, is_int8_copy
from variants.shared.tree_gpt2 import TreeGPT2

HPARAMS = dict(n_vocab=3, n_ctx=16, n_embd=16, n_head=2, n_layer=2)
X = [0, 2, 1]
SAMPLING = {"temperature": 0.7}
PARAMS = lively_params(HPARAMS, seed=3)


def target():
    """Return a model that has read nothing yet."""
    return GPT2(PARAMS, 2)


def floats(w):
    """Return the numbers of an array, of an Int8 or of its transpose."""
    if isinstance(w, np.ndarray):
        return w
    return w[:] if isinstance(w, Int8) else w.mT[:].T


# ---- the copy

def test_matrices_are_rounded_by_half_a_step_at_most_and_the_rest_is_shared(backend):
    tables = {"wte": PARAMS["wte"], "lm_head": PARAMS["wte"][::-1].copy()}
    model = GPT2(PARAMS | tables, 2)
    copy = int8_copy(model)
    both = zip(flatten(model.params), flatten(copy.params), strict=True)
    for (name, w), (_, rounded) in both:
        if name not in tables and not name.endswith("/w"):
            assert rounded is w, name
            continue
        assert isinstance(rounded, np.ndarray) == (backend == "numpy")
        one_output = -1 if name in tables else 0  # the axis that has a step of its own
        steps = abs(w).max(axis=one_output, keepdims=True) / 127
        error = abs(floats(rounded) - w)
        assert (error <= steps * 0.5000001).all() and error.max() > 0.4 * steps.min(), name
        numbers = floats(rounded) / steps
        np.testing.assert_allclose(numbers, np.rint(numbers), atol=1e-9)


def test_a_row_of_zeros_stays_one(backend):
    w = np.zeros((3, 16), np.float32)
    w[1] = np.arange(16)
    assert (floats(int8(w))[[0, 2]] == 0).all() and floats(int8(w))[1, 15] == 15


def test_the_copy_is_a_model_of_the_rounded_weights_that_rounds_rows_too(backend):
    copy = int8_copy(target())
    params = lively_params(HPARAMS)
    for (_, w), (_, rounded) in zip(flatten(params), flatten(copy.params)):
        w[...] = floats(rounded)

    def product_of_rounded_rows(x, w):
        numbers, scale = rounded_rows(x)
        return numbers * scale @ w

    product = product_of_rounded_rows if backend == "numba" else np.matmul
    with mock.patch.object(cache, "matmul", product):
        expected = GPT2(params, 2)(X, 3)
    for n_last in (1, 2, 3):
        assert np.allclose(copy(X, n_last), expected[-n_last:], rtol=0, atol=1e-12)
    assert 0.01 < abs(copy(X, 1) - target()(X, 1)).max() < 1


def test_a_copy_has_its_own_cache_and_is_distinguished_from_other_drafts():
    model = target()
    copy = int8_copy(model)
    assert not np.shares_memory(copy.cache, model.cache) and is_int8_copy(copy, model)
    other = GPT2({**PARAMS, "wpe": PARAMS["wpe"].copy()}, 2)
    assert not any(is_int8_copy(draft, model) for draft in (None, model, target(), other))
    assert not is_int8_copy(int8_copy(other), model)


def test_a_copy_given_as_the_draft_is_used_and_a_different_draft_is_not():
    model = target()
    models = Models(int8_copy(model), model, SAMPLING)
    with mock.patch.object(quantized, "int8_copy", side_effect=AssertionError):
        result = build("quantized", models)(X, 3, np.random.default_rng(0))
    assert models.draft.ids and len(result.guesses) == 2
    other = GPT2({**PARAMS, "wpe": -PARAMS["wpe"]}, 2)
    step = build("quantized", models._replace(draft=other))
    assert np.array_equal(step(X, 3, np.random.default_rng(0)).p_draft, result.p_draft)
    assert not other.ids


# ---- a guesser for the copy

@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_head_guesses_for_the_copy_whose_passes_are_fewer(temperature):
    """Every pass of the copy gives the head a state, as every pass of the target does."""
    sampling = dict(temperature=temperature)
    target = TreeGPT2(*bundled.weights("tales-large"))
    copy = Timed(int8_copy(target))
    models = Models(copy, target, sampling, MODELS_DIR / "tales-large")
    x = bundled.encoder().encode("Once upon a time there was a")
    step = build("quantized", models, {"K": 6, "guesser": "eagle --K 1"})
    rounds = list(generate(x, step, 60, np.random.default_rng(0)))
    n_guesses = sum(len(result.guesses) for result in rounds)
    # A guess of the head is right in about half of the cases; at random, one of a thousand.
    assert copy.n_passes() < 0.8 * n_guesses
    assert len(copy.rows) == copy.n_passes() + 1  # the prompt's states need a pass of their own
    assert n_guesses > 4 * len(rounds)


def test_a_page_shows_the_guess_that_ran():
    for guesser, name in ((None, "guess"), ("lookup", "staged_guess")):
        run = run_as_data("", [], {"decoder": "quantized", "guesser": guesser})
        assert run["listing"][0]["name"] == name and run["is_chain"] == (guesser is None)


# ---- main.py

def test_main_measures_the_copy_and_reports_where_it_is_slow(backend):
    in_int8 = backend == "numba"
    flags = ["--decoder", "quantized", "--backend", backend, "--n_tokens_to_generate", 12]
    # a start with .75, as of other drafts, would see no gain in a guess: 1.75 < 0.7 + 1.1
    got = json_of_run(*flags, "--K", "auto", "--costs", "0.7,1,1.1,1.1,1.1")
    assert got["draft_in_int8"] == in_int8 and got["draft_ms"] > 0 and got["identical"]
    assert got["target_passes"] < 12 and "draft_model_size" not in got["settings"]
    assert ("The int8 copy is stored as floats" in run_main(*flags)[1]) != in_int8
