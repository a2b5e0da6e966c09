"""Test OpenAI's folders: real checkpoints by TensorFlow, and what can be wrong with them."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import main
from lib.checkpoints import openai
from lib.checkpoints.openai import CHECKPOINT, PARAMS, TEXTS
from lib.checkpoints.weights import flatten
from tests.checkpoints import HPARAMS, random_weights, write_checkpoint, write_model
from utils import load_encoder_hparams_and_params

pytest.importorskip("tensorflow")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return models/tiny as OpenAI would ship it, and its weights."""
    folder = tmp_path_factory.mktemp("original") / "tiny"
    return folder, write_model(folder)


@pytest.fixture
def models(original, tmp_path):
    """Return a fresh copy of its models folder."""
    shutil.copytree(original[0], tmp_path / "tiny")
    return tmp_path


def loaded(models, name="tiny", **kwargs):
    """Return (encoder, hparams, params) of a model."""
    return load_encoder_hparams_and_params(name, models, **kwargs)


def file_names(folder):
    """Return the names of a folder's files."""
    return {path.name for path in folder.iterdir()}


def assert_has(params, weights, dtype=np.float32):
    """Assert that a tree has these weights, bit by bit."""
    for name, weight in flatten(params):
        assert weight.dtype == dtype
        assert (weight == weights[f"model/{name}"].reshape(weight.shape)).all(), name


def test_loading_through_tensorflow_gives_bit_equal_parameters(models, original):
    (models / "tiny" / "params.npy").write_bytes(b"of an earlier version")  # nobody reads it
    _, hparams, params = loaded(models)
    assert hparams == HPARAMS and len([*flatten(params)]) == len(original[1])
    assert_has(params, original[1])
    assert params["blocks"][0]["mlp"]["c_fc"]["w"].T.flags.c_contiguous  # as products.py wants it
    assert_has(loaded(models, dtype=np.float64)[2], original[1], np.float64)


@pytest.mark.parametrize("name", ["plain folder", "[odd]*?\\"])
def test_a_checkpoint_is_read_from_any_folder_and_a_plain_one_is_not_entered(
        models, original, monkeypatch, name):
    """The working directory belongs to all threads."""
    (models / name).mkdir()
    (models / "tiny").rename(models / name / "tiny")
    if name == "plain folder":
        monkeypatch.setattr("contextlib.chdir", None)
    assert_has(loaded(models / name)[2], original[1])


def test_a_released_size_is_downloaded_converted_and_loaded_once(original, tmp_path, monkeypatch):
    urls = []

    def download(url, path):
        urls.append(url)
        shutil.copy(original[0] / path.name, path)

    monkeypatch.setattr(openai, "download", download)
    monkeypatch.setenv("GPT2_BASE_URL", "https://mirror/")
    assert_has(loaded(tmp_path, "124M")[2], original[1])
    assert file_names(tmp_path / "124M") == {*CHECKPOINT, *TEXTS, PARAMS}
    for name in CHECKPOINT:  # the second time it needs neither these nor TensorFlow
        (tmp_path / "124M" / name).unlink()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert_has(loaded(tmp_path, "124M")[2], original[1])
    assert sorted(urls) == sorted(f"https://mirror/124M/{name}" for name in CHECKPOINT + TEXTS)


# ---- what can be wrong with a folder

def hparams(**changes):
    """Return a change of hparams.json."""
    def edit(folder):
        found = json.loads((folder / "hparams.json").read_text(encoding="utf-8")) | changes
        (folder / "hparams.json").write_text(json.dumps(found), encoding="utf-8")
    return edit


def truncate(name):
    """Return a change of a folder: half of a file is missing."""
    def edit(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
    return edit


def not_finite(folder):
    """Write a checkpoint with NaN in it."""
    weights = random_weights(HPARAMS, np.random.default_rng(0))
    write_checkpoint(folder, weights | {"model/wpe": weights["model/wpe"] * np.nan})


def text(name, content):
    """Return a change of a folder: a file has this content."""
    return lambda folder: (folder / name).write_bytes(content)


FAULTS = {
    "a size is missing": (hparams(n_layer=None), "n_layer"),
    "a size is text": (hparams(n_ctx="16"), "n_ctx"),
    "heads do not divide": (hparams(n_head=5), "n_head to divide"),
    "another vocabulary": (hparams(n_vocab=258), "as many symbols in encoder.json"),
    "another context length": (hparams(n_ctx=15), "need wpe of shape"),
    "data cut": (truncate("model.ckpt.data-00000-of-00001"), "whole TensorFlow checkpoint"),
    "a weight that is not finite": (not_finite, "finite"),
    "a vocabulary that is not JSON": (text("encoder.json", b"\xff"), "JSON object in .*encoder"),
    "a vocabulary of brackets": (text("encoder.json", b"[" * 10**5), "JSON object in .*encoder"),
    "a vocabulary of texts": (text("encoder.json", b'{"a": "x"}'), "need ids .* encoder.json"),
    "a merge of three": (text("vocab.bpe", b"#version: 0.2\na b c\n"), "merges of two .*vocab.bpe"),
    "a merge of nothing known": (text("vocab.bpe", b"zz qq\n"), "'zzqq' in .* vocab.bpe of"),
    "merges that are not UTF-8": (text("vocab.bpe", b"\xff\xfe\n"), "UTF-8 text in .*vocab.bpe"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_folder_is_one_clear_error_and_leaves_no_params(models, fault):
    edit, message = FAULTS[fault]
    edit(models / "tiny")
    before = file_names(models / "tiny")
    with pytest.raises(ValueError, match=message) as caught:
        loaded(models)
    assert file_names(models / "tiny") == before and "\n" not in str(caught.value)
    assert "download it again" not in str(caught.value)  # for nobody could


def test_a_broken_checkpoint_of_a_released_size_may_be_downloaded_again(models):
    (models / "tiny").rename(models / "124M")
    truncate("model.ckpt.index")(models / "124M")
    with pytest.raises(ValueError, match="remove model.ckpt.* to download it again"):
        loaded(models, "124M")


def test_broken_params_are_one_clear_error(models):
    loaded(models)
    path = models / "tiny" / PARAMS
    weights = load_file(path)
    save_file({**weights, "wpe": weights["wpe"].T.copy()}, path)
    with pytest.raises(ValueError, match="of shape"):
        loaded(models)
    truncate(PARAMS)(models / "tiny")
    with pytest.raises(ValueError, match="whole safetensors file"):
        loaded(models)


CONVERT = """
import sys, time
from unittest import mock
import numpy as np
import utils
from lib.checkpoints import openai
tensorflow, convert = mock.Mock(), openai.convert  # the true one takes seconds to start
tensorflow.errors.OpError = OSError
tensorflow.train.load_checkpoint().get_tensor = np.load(sys.argv[2]).__getitem__
def convert_slowly(*args):
    print("converts", flush=True)
    time.sleep(0.5)
    convert(*args)
openai.convert, sys.modules["tensorflow"] = convert_slowly, tensorflow
utils.load_encoder_hparams_and_params("tiny", sys.argv[1])
print("loaded")
"""


def test_two_conversions_at_once_and_one_that_is_killed_end_with_one_good_file(models, original):
    np.savez(models / "weights.npz", **original[1])
    start = partial(subprocess.Popen, [sys.executable, "-c", CONVERT, models,
                                       models / "weights.npz"],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    killed = start()
    killed.stdout.readline()
    others = [start(), start()]
    killed.kill()
    killed.communicate()
    said = [process.communicate(timeout=120) for process in others]
    assert sorted(out for out, _ in said) == ["converts\nloaded\n", "loaded\n"], said
    assert file_names(models / "tiny") == {*TEXTS, *CHECKPOINT, PARAMS}
    assert_has(loaded(models)[2], original[1])


@pytest.mark.parametrize("package, name", [
    ("tensorflow", "tiny"), ("requests", "124M"), ("filelock", "124M")])
def test_a_package_that_is_missing_is_named(models, monkeypatch, capsys, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    assert main.main(["--models_dir", str(models), "--target_model_size", name]) == 2
    assert capsys.readouterr().err == (
        f"main.py: the package {package} is missing: pip install -r requirements.txt\n")
