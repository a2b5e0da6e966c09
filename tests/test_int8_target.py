"""--dtype int8: the target is its own rounded copy, which every decoder leaves as it is."""

import numpy as np

from lib.backend.products import set_backend
from tests.commands import json_of_run
from utils import load_model
from variants.quantized import int8_copy

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_a_target_in_int8_is_the_rounded_copy_of_the_floats():
    _, target = load_model("tales-large")
    _, rounded = load_model("tales-large", dtype="int8")
    assert (rounded(IDS, 5) == int8_copy(target)(IDS, 5)).all()
    assert (rounded(IDS, 5) != target(IDS, 5)).any()


def test_decoders_write_the_text_of_the_target_in_int8():
    flags = ("--dtype", "int8", "--n_tokens_to_generate", 24)
    texts = set()
    for decoder in ("lookup", "skip", "eagle", "medusa"):
        got = json_of_run(*flags, "--decoder", decoder)
        assert got["identical"] and got["settings"]["dtype"] == "int8"
        texts.add(got["autoregressive"]["text"])
    assert len(texts) == 1


def test_a_target_in_int8_runs_after_a_model_was_loaded_for_another_backend():
    _, rounded = load_model("tales-large", dtype="int8")
    expected = rounded.fresh()(IDS, 5)
    load_model("tales-small", backend="numpy")
    try:
        np.testing.assert_allclose(rounded(IDS, 5), expected, rtol=0, atol=0.02)
    finally:
        set_backend("numba")
