"""The forward pass of llama.py against its formulas, and against transformers'."""

import json

import numpy as np
import pytest

from llama import Llama, silu
from tests.llamas import FORMS, llama_params, needs_smollm2, twin_logits
from tests.pages import file_text
from utils import load_model


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_logits_equal_those_of_the_formulas_by_hand(form, dtype, tolerance):
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    twin = twin_logits(ids, llama_params(**FORMS[form]), 4)
    logits = Llama(llama_params(**FORMS[form], dtype=dtype), 4)(ids, n_last=10)
    assert np.abs(twin).max() > 1 and logits.dtype == dtype
    np.testing.assert_allclose(logits, twin, rtol=0, atol=tolerance)


def test_a_gate_far_below_0_is_0_without_a_warning():
    np.testing.assert_array_equal(silu(np.float32([-200, 0, 200])), np.float32([0, 0, 200]))


def test_the_rows_of_smollm2_are_those_that_transformers_computed_in_float64():
    """transformers' norms and angles are float32: its rows are 6e-7 of the largest logit away."""
    needs_smollm2()
    recorded = json.loads(file_text("tests/data/smollm2_rows.json"))
    _, model = load_model("smollm2")
    ids, expected = recorded["ids"], np.array(recorded["logits"])
    rows = model(ids, len(ids))[recorded["positions"]]
    distance = np.abs(rows[:, recorded["tokens"]] - expected).max()
    assert distance < 1e-5 * np.abs(expected).max()
    assert rows.argmax(axis=1).tolist() == recorded["best"]
