"""Test OpenAI's folders: real checkpoints by TensorFlow, and what can be wrong with them."""

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import main
from lib.checkpoints import openai
from lib.checkpoints.openai import CHECKPOINT, PARAMS, TEXTS
from lib.checkpoints.weights import flatten
from tests.checkpoints import (
    HPARAMS,
    files_in,
    random_weights,
    rewritten,
    truncated,
    with_entries,
    write_checkpoint,
    write_model,
)
from tests.commands import refusal
from utils import load_encoder_hparams_and_params


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return models/tiny as OpenAI would ship it, and its weights."""
    pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("original") / "tiny"
    return folder, write_model(folder)


@pytest.fixture
def models(original, tmp_path):
    """Return a fresh copy of its models folder."""
    shutil.copytree(original[0], tmp_path / "tiny")
    return tmp_path


def loaded(models, name="tiny", **kwargs):
    return load_encoder_hparams_and_params(name, models, **kwargs)


def assert_has(params, weights, dtype=np.float32):
    """Assert that a tree has these weights and no other, bit by bit."""
    found = dict(flatten(params))
    assert len(found) == len(weights)
    for name, weight in found.items():
        assert weight.dtype == dtype
        assert (weight == weights[f"model/{name}"].reshape(weight.shape)).all(), name


def test_a_released_size_is_downloaded_converted_and_loaded_once(original, tmp_path, monkeypatch):
    urls = []

    def download(url, path, sha256):
        urls.append(url)
        shutil.copy(original[0] / path.name, path)

    monkeypatch.setattr(openai, "download", download)
    monkeypatch.setenv("GPT2_BASE_URL", "https://mirror/")
    _, hparams, params = loaded(tmp_path, "124M")
    assert hparams == HPARAMS
    assert_has(params, original[1])
    assert params["blocks"][0]["mlp"]["c_fc"]["w"].T.flags.c_contiguous  # as products.py wants it
    assert files_in(tmp_path / "124M").keys() == {*CHECKPOINT, *TEXTS, PARAMS}
    for name in CHECKPOINT:  # the second time it needs neither these nor TensorFlow
        (tmp_path / "124M" / name).unlink()
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert_has(loaded(tmp_path, "124M", dtype=np.float64)[2], original[1], np.float64)
    assert sorted(urls) == sorted(f"https://mirror/124M/{name}" for name in CHECKPOINT + TEXTS)


# ---- what can be wrong with a folder

hparams = partial(with_entries, "hparams.json")


def not_finite(folder):
    weights = random_weights(HPARAMS, np.random.default_rng(0))
    write_checkpoint(folder, weights | {"model/wpe": weights["model/wpe"] * np.nan})


@pytest.mark.parametrize("change, message", [
    (hparams(n_layer=True), "need n_layer to be a whole number in 1 .. 1000 in .*, got True"),
    (hparams(n_head=5), "n_head to divide"),
    (hparams(n_vocab=256), "no more symbols in encoder.json"),
    (hparams(n_ctx=15), "need wpe of shape"),
    (truncated("model.ckpt.data-00000-of-00001"), "whole TensorFlow checkpoint"),
    (not_finite, "finite"),
    (rewritten("vocab.bpe", b"#version: 0.2\na b c\n"), "merges of two .*vocab.bpe"),
    (rewritten("vocab.bpe", b"\xff\xfe\n"), "UTF-8 text in .*vocab.bpe")])
def test_a_broken_folder_is_one_clear_error_and_leaves_no_params(models, change, message):
    change(models / "tiny")
    before = files_in(models / "tiny")
    with pytest.raises(ValueError, match=message) as caught:
        loaded(models)
    assert files_in(models / "tiny") == before and "\n" not in str(caught.value)


def test_of_two_conversions_at_once_the_second_finds_the_file_of_the_first(
        models, original, monkeypatch):
    """tests/plumbing/test_prompts.py kills a process that holds such a lock."""
    convert = openai.convert_checkpoint
    converted = []

    def convert_slowly(*args):
        converted.append(args)
        time.sleep(0.2)
        convert(*args)

    monkeypatch.setattr(openai, "convert_checkpoint", convert_slowly)
    with ThreadPoolExecutor(2) as pool:
        both = [*pool.map(lambda _: loaded(models)[2], range(2))]
    assert len(converted) == 1
    assert files_in(models / "tiny").keys() == {*TEXTS, *CHECKPOINT, PARAMS}
    for params in both:
        assert_has(params, original[1])


@pytest.mark.parametrize("package, name", [
    ("tensorflow", "tiny"), ("requests", "124M"), ("filelock", "124M")])
def test_a_package_that_is_missing_is_named(models, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    assert refusal(main.main, "--models_dir", models, "--target_model_size", name) == (
        f"main.py: the package {package} is missing: pip install -r requirements.txt\n")
