"""--dtype int8: the target is its own rounded copy, which every decoder leaves as it is."""

import numpy as np
import pytest

from lib.backend.products import set_backend
from tests.commands import json_of_run
from utils import load_model
from variants.quantized import int8_copy
from variants.shared.branches import Tree
from variants.shared.tree_gpt2 import TreeGPT2

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_a_target_in_int8_is_the_rounded_copy_of_the_floats():
    _, target = load_model("tales-large")
    _, rounded = load_model("tales-large", dtype="int8")
    copy = int8_copy(target)
    for n in range(1, len(IDS) + 1):  # token by token: other passes of the copy round differently
        assert (rounded(IDS[:n]) == copy(IDS[:n])).all()
        assert (rounded(IDS[:n]) != target(IDS[:n])).any()


@pytest.mark.parametrize("tree", [False, True])
def test_no_bit_of_a_row_depends_on_what_is_read_beside_it(tree):
    """Without `each_row_alone` the logits of these rows differ by 0.001."""
    _, rounded = load_model("tales-large", dtype="int8")
    model = TreeGPT2(rounded.params, rounded.n_head)
    branches = Tree([7, 8, 9, 10, 11], [-1, -1, 0, 1, 2] if tree else [-1, 0, 1, 2, 3])
    for n_past in (0, 3, len(IDS) - 1):
        reader = model.fresh()
        if n_past:
            reader(IDS[:n_past])
        rows = reader(IDS + branches, 6) if tree else reader(IDS + branches.tokens, 6)
        for row, path in zip(rows, [[], *branches.paths()]):
            one_by_one = rounded.fresh()
            for n in range(1, len(IDS + path)):
                one_by_one((IDS + path)[:n])
            assert (row == one_by_one(IDS + path)[0]).all()


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
