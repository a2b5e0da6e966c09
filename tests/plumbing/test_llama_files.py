"""Read folders and GGUF files of llama.py's families: against transformers and each other."""

import numpy as np
import pytest

from lib.checkpoints.files import read_json
from lib.checkpoints.gguf import GGUFFile
from lib.checkpoints.llama import read_folder, read_gguf
from llama import Llama
from tests.llamas import FAMILIES, write_gguf, write_llama

IDS = [int(token) for token in np.random.default_rng(0).integers(0, 50, 60)]
GGUF_FAMILIES = [name for name in FAMILIES if "smollm3" not in name]


def as_float64(array):
    return np.array(array, np.float64)


def model_of(folder):
    """Return the Llama of a folder in float64."""
    return Llama(*read_folder(folder, read_json(folder / "config.json"), as_float64))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rows_of_each_family_are_transformers(name, tmp_path):
    """transformers computes norms and angles in float32 in any case, so 1e-5 is its part."""
    torch = pytest.importorskip("torch", reason="needs requirements/peers.txt")
    transformers = pytest.importorskip("transformers", reason="needs requirements/peers.txt")
    folder = write_llama(tmp_path, name)
    model = model_of(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    rng = np.random.default_rng(1)
    ids = IDS[: model.n_ctx]
    for _ in range(10):  # rollbacks
        text = ids[: rng.integers(6, len(ids) + 1)]
        text[-1] = int(rng.integers(50))
        n_last = int(rng.integers(1, 7))
        with torch.no_grad():
            expected = theirs(torch.tensor([text])).logits[0, -n_last:].numpy()
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(model(text, n_last), expected, rtol=0, atol=3e-5)


def test_a_text_that_crosses_a_window_is_refused(tmp_path):
    model = model_of(write_llama(tmp_path, "mistral, a window"))
    assert model.n_ctx == 24
    with pytest.raises(ValueError, match="n_ctx = 24, got n_last = 1, len.ids. = 25"):
        model(IDS[:25])


@pytest.mark.parametrize("name, kind", [
    *((name, "F32") for name in GGUF_FAMILIES),
    *((name, kind) for name in ("llama", "qwen2") for kind in ("F16", "BF16", "Q8_0", "Q4_0",
                                                               "Q4_1"))])
def test_a_gguf_file_is_the_folder_of_its_numbers(name, kind, tmp_path):
    pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    held = write_gguf(tmp_path / "a.gguf", name, kind)
    model = Llama(*read_gguf(GGUFFile(tmp_path / "a.gguf"), as_float64))
    folder = model_of(write_llama(tmp_path, name, held))
    ids = IDS[: folder.n_ctx]
    # GGUF files have what Llama 3.1's scaling comes to, in float32
    tolerance = 1e-4 if "3.1" in name else 0
    np.testing.assert_allclose(model(ids, 5), folder(ids, 5), rtol=0, atol=tolerance)
