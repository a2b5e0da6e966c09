"""The loaders of models: a pair, its backend, and names that are refused."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lib.backend import products
from lib.checkpoints.huggingface import write_folder
from tests.checkpoints import HPARAMS, write_converted
from utils import load_encoder_hparams_and_params, load_pair


@pytest.fixture
def models(tmp_path):
    """Return a folder with two tiny models of one vocabulary."""
    for seed, name in enumerate(("small", "large")):
        write_converted(tmp_path / name, HPARAMS, seed)
    return tmp_path


def test_a_pair_is_two_models_over_the_same_ids(models):
    encoder, draft, target = load_pair("small", "large", models, np.float64)
    assert draft.n_vocab == target.n_vocab == encoder.n_vocab
    assert draft([1]).dtype == np.float64 and not np.allclose(draft([1]), target([1]))
    assert load_pair(None, "large", models)[1] is None


@pytest.mark.parametrize("load", [load_encoder_hparams_and_params, partial(load_pair, None)])
def test_both_loaders_choose_the_products_of_the_process(models, load):
    for backend in ("numpy", "numba"):
        load("large", models, backend=backend)
        assert products.backend == backend
    with pytest.raises(ValueError, match="numba, numpy or cupy, got jax"):
        load("large", models, backend="jax")
    assert products.backend == "numba"


def test_a_draft_with_other_ids_is_a_draft_over_the_targets_ids(models):
    """Its letters a and b have each other's ids."""
    path = models / "small" / "encoder.json"
    vocab = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(vocab | {"a": vocab["b"], "b": vocab["a"]}), encoding="utf-8")
    encoder, draft, _ = load_pair("small", "large", models)
    a, b = (encoder.vocab[letter] for letter in "ab")
    assert draft([a])[0][a] == draft.draft([b])[0][b]  # b is the draft's id of the letter a


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.int8, np.complex128])
def test_weights_of_a_different_precision_are_refused(models, dtype):
    with pytest.raises(ValueError, match=f"need .* float32 or float64, got {np.dtype(dtype)}"):
        load_pair(None, "large", models, dtype)
    with pytest.raises(ValueError, match="need dtype float32 or float64, got bfloat16"):
        load_encoder_hparams_and_params("large", models, "bfloat16")
    assert load_pair(None, "large", models, "float64")[2]([1]).dtype == np.float64


def test_a_model_may_be_named_by_a_path(models, tmp_path):
    write_folder(tmp_path / "theirs", *load_encoder_hparams_and_params("large", models))
    by_path = load_pair(tmp_path / "theirs", Path("large"), models)
    assert [model.n_vocab for model in by_path[1:]] == [257, 257]
    with pytest.raises(ValueError, match="No model '124' in"):
        load_pair(None, 124, models)


@pytest.mark.parametrize("name", [
    "../large", "/etc", "", "..", "nowhere", "large\0", "large/", ".lock", "large\n", "\udcff"])
def test_a_name_that_is_not_a_model_is_refused(models, name):
    with pytest.raises(ValueError, match="No model 'nowhere' in .*Downloadable: 124M|"
                                         "is not a Hugging Face folder"):
        load_pair(None, name, models / "elsewhere")
    assert not (models / "elsewhere").exists()


@pytest.mark.parametrize("written, words", [
    ([], "No model 'tgt' in .*models. There: large, small. Downloadable: .* by its path, such as "
         "./tgt.$"),
    (["tgt/config.json"], "Did you mean ./tgt\\?$"),
    (["models/tgt/config.json"], "models.tgt lacks model.safetensors$"),
    (["models/tgt/hparams.json"], "models.tgt lacks encoder.json, vocab.bpe, checkpoint, model")])
def test_a_model_that_is_not_there_is_answered_with_what_is(tmp_path, monkeypatch, written, words):
    monkeypatch.chdir(tmp_path)
    for name in ["models/small/config.json", "models/large/hparams.json", *written]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}", "utf-8")
    with pytest.raises(ValueError, match=words) as caught:
        load_pair(None, "tgt", "models")
    assert ("model.ckpt" in str(caught.value)) == ("models/tgt/hparams.json" in written)
