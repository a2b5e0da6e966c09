"""Test models of transformers: every family is the same function of the text, however it is read.

The models are random and tiny, in float64. No test needs a network.
"""

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings

from gpt2 import GPT2
from sampling import with_sampling
from speculative import speculative_sampling
from tests import bundled
from tests.checkpoints import rewritten, with_entries, without
from tests.pages import ROOT, code, file_text
from tests.reuse import COPIES, assert_close, assert_used_is_fresh, some_edits
from tests.wrappers.families import (
    FAMILIES,
    NO_CACHE,
    PATH_BY_PATH,
    random_model,
    torch,
    transformers,
)
from utils import MODELS_DIR
from variants.shared.branches import tree_of_paths
from wrappers.transformers_model import TransformersModel
from wrappers.transformers_tokenizer import transformers_tokenizer

CACHED = [name for name in FAMILIES if name not in NO_CACHE]
ROUNDING = 1e-6  # of the largest entry


def fresh_rows(model, ids, n_last=1):
    return model.fresh()(ids, n_last)


# ---- a used model is a fresh model

same_model = cache(random_model)  # a test that changes its model takes a new one


# Some families round to float32 inside, so their distance depends on the text: no random texts.
@pytest.mark.parametrize("name", FAMILIES)
@given(some_edits(range(50)))
@settings(max_examples=4, derandomize=True)
def test_a_used_model_gives_what_one_pass_over_the_whole_text_gives(name, edits):
    theirs = same_model(name)
    model = TransformersModel(theirs)

    def one_pass(ids, n_last):
        with torch.inference_mode():
            return theirs(torch.tensor([ids]), use_cache=False).logits[0, -n_last:].numpy()

    assert_used_is_fresh(model, one_pass, edits, min(40, model.n_ctx), ROUNDING)


@pytest.mark.parametrize("name", FAMILIES)
def test_only_new_tokens_are_read_if_the_cache_can_go_back(name):
    model = TransformersModel(same_model(name))
    lengths = []
    hook = model.model.register_forward_pre_hook(
        lambda _, args: lengths.append(args[0].shape[1]))
    for ids in ([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 6, 7]):
        model(ids)
    hook.remove()
    assert lengths == ([4, 5, 4] if name in NO_CACHE else [4, 1, 2])


def test_a_window_can_be_left_backwards_again_and_again():
    """Rounds of speculative decoding: five tokens are read, and some of them are dropped."""
    model = TransformersModel(random_model("mistral, window"))
    lengths = []
    model.model.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))
    fresh = TransformersModel(random_model("mistral, window"))
    ids = list(range(20))
    model(ids)
    for n_accepted in (0, 1, 2, 3, 4, 0, 0):
        guesses = [40 + n_accepted, 3, 2, 1]
        assert_close(model(ids + guesses, 5), fresh_rows(fresh, ids + guesses, 5), ROUNDING)
        ids += [*guesses[:n_accepted], 30]
    for guess in range(5):  # as the paths of a tree
        assert_close(model([*ids, guess], 2), fresh_rows(fresh, [*ids, guess], 2), ROUNDING)
    assert lengths[0] == 20 and max(lengths[1:]) <= 6
    for n in (30, 24, 28, 23, 28, 5, 30, 29):  # 23: one position before the last crop's
        assert_close(model(ids[:n]), fresh_rows(model, ids[:n]), ROUNDING)


@pytest.mark.parametrize("name, text", [
    ("llama", [1, 2, 3, 5, 6]), ("mistral, window", [1, 2, 3, 5, 6]),
    ("llama", [1, 2, 3] + tree_of_paths([[5, 6], [8]], 50))], ids=str)
def test_an_interrupted_pass_leaves_no_half_read_cache(name, text):
    def interrupt(*_):
        raise KeyboardInterrupt

    model = TransformersModel(random_model(name))
    model([1, 2, 3, 4])
    hook = model.model.model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(text)
    hook.remove()
    assert_close(model([1, 2, 3, 5, 7]), fresh_rows(model, [1, 2, 3, 5, 7]), ROUNDING)


def test_a_model_whose_cache_cannot_go_back_says_so_once_on_standard_error(capsys):
    model = TransformersModel(random_model("mamba"))
    model([1, 2, 3])
    model([1, 2])
    model.fresh()([1])
    out, err = capsys.readouterr()
    assert not out
    assert err.count("mamba: transformers' cache of this model cannot go back") == 1


def test_only_the_rows_asked_for_are_computed():
    model = TransformersModel(random_model("llama"))
    numbers = []
    model.model.lm_head.register_forward_hook(
        lambda module, args, logits: numbers.append(logits.shape[1]))
    model(list(range(20)), 3)
    model(list(range(21)), 1)
    assert numbers == [3, 1]


# ---- GPT2's contract

def test_threads_may_share_a_model():
    model = TransformersModel(random_model("llama"))
    texts = [[1, 2, 3, i, *range(i)] for i in range(20)]
    with ThreadPoolExecutor(4) as pool:
        for text, rows in zip(texts, pool.map(model, texts)):
            assert_close(rows, fresh_rows(model, text), ROUNDING)


@pytest.mark.parametrize("copied", [*COPIES.values(), TransformersModel.fresh])
def test_a_copy_has_the_weights_and_an_empty_cache(copied):
    model = TransformersModel(random_model("qwen3"))
    model.n_vocab = 40
    rows = model([1, 2, 3])
    other = copied(model)
    assert other.ids == [] and model.ids == [1, 2, 3]
    assert other.lock is not model.lock
    assert_close(other([1, 2, 3]), rows, ROUNDING)
    assert rows.shape == (1, 40)


def test_a_model_in_training_is_set_to_evaluation():
    theirs = random_model("gpt2").train()  # GPT-2 has dropout
    model = TransformersModel(theirs)
    assert (model([1, 2]) == model.fresh()([1, 2])).all()


@pytest.mark.parametrize("dtype, expected", [
    ("auto", np.float64), (None, np.float64), ("bfloat16", np.float32), ("float32", np.float32),
    (np.float32, np.float32), (torch.bfloat16, np.float32)])
def test_rows_are_numpys_in_any_dtype(dtype, expected):
    exact = TransformersModel(random_model("llama"))([1, 2, 3], 2)
    rows = TransformersModel(random_model("llama"), device="cpu", dtype=dtype)([1, 2, 3], 2)
    assert type(rows) is np.ndarray and rows.dtype == expected
    assert_close(rows, exact, 0.1 if "bfloat16" in str(dtype) else 1e-5)


def test_a_text_ends_where_longrope_would_change_the_rows_of_all_its_positions():
    theirs = random_model("phi3, long")
    model = TransformersModel(theirs)
    assert model.n_ctx == 16 < theirs.config.max_position_embeddings
    x = [*range(17)]
    with torch.inference_mode():
        longer = theirs(torch.tensor([x]), use_cache=False).logits[0, 15:16].numpy()
    assert_close(model(x[:16]), fresh_rows(model, x[:16]), ROUNDING)
    with pytest.raises(AssertionError, match="of the largest entry away"):
        assert_close(model(x[:16]), longer, 100 * ROUNDING)
    with pytest.raises(ValueError, match="n_ctx = 16"):
        model(x)


def test_experts_run_in_float64():
    converted = TransformersModel(random_model("mixtral", torch.float32), dtype="float64")
    model = TransformersModel(random_model("mixtral"))
    assert_close(converted([1, 2, 3]), model([1, 2, 3]), 1e-5)


def test_rows_that_no_token_has_are_cut():
    padded = TransformersModel(random_model("qwen2", vocab_size=56))
    whole = padded([1, 2])
    padded.n_vocab = 47
    assert np.allclose(padded([1, 2]), whole[:, :47])
    with pytest.raises(ValueError, match="n_vocab - 1 = 46, got 48"):
        padded([1, 48])


# ---- trees

@pytest.mark.parametrize("name", CACHED)
def test_the_rows_of_a_tree_are_those_of_its_paths(name):
    """Rounds of a tree decoder: a text and a tree, of which some path is accepted, or none."""
    model = TransformersModel(random_model(name))
    assert model.takes_mask == (name not in PATH_BY_PATH)
    fresh = model.fresh()
    passes = []
    model.model.register_forward_hook(lambda *_: passes.append(1))
    x = [3, 4, 9]
    for accepted in ([5, 6], [8], [], [5, 7, 2]):
        tree = tree_of_paths([[5, 6], [5, 7, 2], [8]], 50)
        expected = np.concatenate([fresh(text) for text in (x + tree).texts()])
        passes.clear()
        assert_close(model(x + tree, 6), expected, ROUNDING)
        assert len(passes) == (6 if name in PATH_BY_PATH else 1)
        assert_close(model(x + tree, 2), expected[-2:], ROUNDING)
        x = [*x, *accepted, 30]
        assert_close(model(x, 2), fresh(x, 2), ROUNDING)
    no_guess = tree_of_paths([], 50)
    assert_close(model(x + no_guess, 1), fresh(x), ROUNDING)


@pytest.mark.parametrize("name", ["llama", "falcon", "bloom", "mpt"])
def test_the_dtype_does_not_decide_whether_a_tree_is_read_in_one_pass(name):
    model = TransformersModel(random_model(name, torch.bfloat16))
    assert model.takes_mask == (name not in PATH_BY_PATH)


def test_a_model_that_ignores_the_mask_reads_path_by_path(monkeypatch):
    monkeypatch.setattr("wrappers.transformers_tree.mask_settings", lambda *_: {})
    assert not TransformersModel(random_model("llama")).takes_mask


def test_a_bad_tree_is_refused():
    """By the function that refuses one for our own models (tests/variants/test_tree.py)."""
    with pytest.raises(ValueError, match="need 1 <= len.x. <= n_ctx - depth = 62, got 63"):
        TransformersModel(random_model("llama"))([1] * 63 + tree_of_paths([[5, 6]], 60), 1)


PAGE = file_text("docs/any_model.md")


def test_the_pages_notebook_writes_numpys_text(monkeypatch):
    """The page's models are float32: no draw comes within a rounding of a boundary here."""
    monkeypatch.chdir(ROOT)
    names = {}
    exec(code(PAGE, "python"), names)
    numpys = [with_sampling(GPT2(*bundled.weights(f"tales-{size}"))) for size in ("small", "large")]
    x = bundled.encoder().encode("Once upon a time")
    text = speculative_sampling(x, *numpys, 20, 4, np.random.default_rng(0))
    assert names["ids"] == text and len(text) == len(x) + 20


# ---- what is refused

def save(folder, **config):
    """Write a random Llama to a folder, with more settings in its config.json."""
    random_model("llama", torch.float32).save_pretrained(folder)
    with_entries("config.json", **config)(folder)
    return folder


def test_a_folder_is_loaded_and_nothing_is_printed(tmp_path, capfd):
    rows = TransformersModel(save(tmp_path), "cpu")([1, 2, 3])
    again = TransformersModel(str(tmp_path), "cpu", "float64")([1, 2, 3])
    assert rows.dtype == np.float32
    assert_close(rows, again, 1e-5)
    assert capfd.readouterr().out == ""


def pickled(folder):
    """Put the weights in a pickle, which could run any code."""
    (folder / "model.safetensors").unlink()
    torch.save(random_model("llama").state_dict(), folder / "pytorch_model.bin")


in_config = partial(with_entries, "config.json")
BAD = {  # changes of the folder of a Llama
    "no folder": (shutil.rmtree, "no such folder: "),
    "no config": (without("config.json"), "does not know the model_type None"),
    "code": (in_config(model_type="mine", auto_map={"AutoConfig": "c.C"}),
             r"\(model_type mine\) has Python code for its model, but code in a model folder is "
             "never run"),
    "unknown": (in_config(model_type="mine"), "transformers does not know the model_type 'mine'"),
    "encoder-decoder": (rewritten("config.json", b'{"model_type": "t5"}'),
                        "need a model that continues a text, got .*model_type t5"),
    "images": (rewritten("config.json", b'{"model_type": "clip"}'),
               r"transformers cannot load .* \(model_type clip\)"),
    "no weights": (without("model.safetensors"),
                   r"transformers cannot load .* \(model_type llama\): .*model.safetensors"),
    "a pickle": (pickled, "cannot load .*model.safetensors"),
    "broken": (rewritten("model.safetensors", b"broken"), "transformers cannot load"),
    "quantized": (in_config(quantization_config=dict(quant_method="gptq", bits=4)),
                  r"needs one more package to load .*\(model_type llama\): .*pip install"),
    "a layer missing": (in_config(num_hidden_layers=3),
                        "need all weights of a llama model in .*layers.2")}


@pytest.mark.parametrize("change, message", BAD.values(), ids=BAD)
def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(change, message, tmp_path, capfd):
    change(save(tmp_path / "model"))
    with pytest.raises(ValueError, match=message) as refused:
        TransformersModel(tmp_path / "model")
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().out == ""


def test_the_code_of_a_folder_is_never_run_though_its_model_type_is_known(tmp_path):
    """An auto_map names the classes that transformers would make with trust_remote_code."""
    code = {f"Auto{name}": "mine.Class" for name in ("Config", "ModelForCausalLM")}
    save(tmp_path, auto_map=code)
    for name in ("vocab.json", "merges.txt"):  # without a tokenizer.json transformers reads them
        shutil.copy(MODELS_DIR / "tales-small" / name, tmp_path)
    settings = {"tokenizer_class": "GPT2Tokenizer",
                "auto_map": {"AutoTokenizer": ["mine.Class", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    marker = tmp_path / "marker"
    (tmp_path / "mine.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nfrom transformers import LlamaConfig as Class",
        encoding="utf-8")
    assert TransformersModel(tmp_path, "cpu")([1, 2]).shape == (1, 50)
    assert transformers_tokenizer(tmp_path).encode("One day")
    assert not marker.exists()


def test_a_name_that_cannot_be_fetched_is_refused(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for door in (TransformersModel, transformers_tokenizer):
        with pytest.raises(ValueError, match="'some/model' is not a folder, and the hub's model "
                                             "of this name cannot be fetched: OfflineMode"):
            door("some/model")


def test_a_model_that_sees_later_tokens_is_refused():
    config = transformers.AutoConfig.for_model(
        "bert", vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64)
    torch.manual_seed(0)
    encoder = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match="need a causal model, .* got BertLMHeadModel"):
        TransformersModel(encoder)


def test_something_else_than_a_model_and_another_dtype_are_refused():
    for other in (None, 5, [1, 2], lambda ids, n_last: 0):
        with pytest.raises(ValueError, match="need a model of transformers, a folder or a name"):
            TransformersModel(other)
    with pytest.raises(ValueError, match="need dtype auto, bfloat16, float32 or float64"):
        TransformersModel(same_model("llama"), dtype="int8")


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_without_pytorch_the_model_type_and_the_command_are_named(package, tmp_path, monkeypatch):
    folder = tmp_path / (99 * "f")  # no part of a long name is cut off
    folder.mkdir()
    rewritten("config.json", b'{"model_type": "qwen3"}')(folder)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"f{99}' \(model_type qwen3\) needs PyTorch and .*: "
                                         r"pip install -r requirements/peers.txt$"):
        TransformersModel(folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="'some/name' needs PyTorch"):
        TransformersModel(os.path.join("some", "name"))
