"""The forward pass of llama.py against its formulas, and against transformers'."""

import numpy as np
import pytest

from llama import Llama, silu
from tests.llamas import FORMS, llama_params, twin_logits


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
