"""Test Hugging Face folders: written, read back, equal in transformers, or refused."""

import json
from functools import partial
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file

from encoder import Encoder
from gpt2 import GPT2
from lib.checkpoints import huggingface
from lib.checkpoints.weights import flatten, random_params
from sampling import with_sampling
from speculative import autoregressive_sampling
from tests import bundled
from tests.checkpoints import (
    SYMBOLS,
    TINY,
    TINY_HPARAMS,
    edited,
    rewritten,
    truncated,
    with_entries,
    without,
)
from tests.commands import outcome
from tests.small import lively_params
from tools import export
from utils import MODELS_DIR, load_encoder_hparams_and_params

PARAMS = random_params(TINY_HPARAMS, np.random.default_rng(0))
WPE = "transformer.wpe.weight"
config = partial(with_entries, "config.json")


def loaded(folder, dtype=np.float32, **kwargs):
    return load_encoder_hparams_and_params(str(folder), MODELS_DIR, dtype, **kwargs)


@pytest.fixture
def folder(tmp_path):
    """Return a model folder of a few kilobytes."""
    huggingface.write_folder(tmp_path / "tiny", TINY, TINY_HPARAMS, PARAMS)
    return tmp_path / "tiny"


def equal(a, b):
    a, b = dict(flatten(a)), dict(flatten(b))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# ---- there and back

@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_was_written_is_read_back_bit_by_bit(tmp_path, dtype):
    params = random_params(TINY_HPARAMS, np.random.default_rng(0), dtype)
    params["wte"][0, 0] = 1 / 3  # has a digit for every bit
    huggingface.write_folder(tmp_path, TINY, TINY_HPARAMS, params)
    encoder, hparams, found = loaded(tmp_path, dtype)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    # engines read one name or the other
    assert config["dtype"] == config["torch_dtype"] == np.dtype(dtype).name
    assert config["n_ctx"] == config["n_positions"] == 16
    assert hparams == TINY_HPARAMS and equal(found, params) and found["wte"].dtype == dtype
    assert encoder.vocab == TINY.vocab and encoder.ranks == TINY.ranks
    assert found["blocks"][0]["mlp"]["c_fc"]["w"].T.flags.c_contiguous  # as products.py wants it


def test_merges_and_added_tokens_are_read_back(tmp_path):
    added = "<an added token>"  # with spaces, which no merge can have
    symbols = [*SYMBOLS[:256], "ab", "ba", added, "<|endoftext|>"]
    written = Encoder(dict(zip(symbols, range(260))), [("b", "a"), ("a", "b")], added=[added])
    hparams = TINY_HPARAMS | {"n_vocab": 260}
    params = random_params(hparams, np.random.default_rng(0))
    huggingface.write_folder(tmp_path, written, hparams, params)
    encoder, *_ = loaded(tmp_path)
    assert encoder.end_of_text == 259
    for text in ("bab", added):
        assert encoder.encode(text) == written.encode(text)
    assert encoder.decode([258]) == added


def in_shards(folder):
    arrays = [*load_file(folder / "model.safetensors").items()]
    save_file(dict(arrays[:5]), folder / "model-00001-of-00002.safetensors")
    save_file(dict(arrays[5:]), folder / "model-00002-of-00002.safetensors")
    (folder / "model.safetensors").unlink()


def as_openai_uploads(folder):
    """Drop the prefix of the names, and add masks: huggingface.co/openai-community/gpt2."""
    path = folder / "model.safetensors"
    weights = {name.removeprefix("transformer."): array for name, array in load_file(path).items()}
    weights["h.0.attn.bias"] = np.zeros((1, 1, 16, 16), np.uint8)
    weights["lm_head.weight"] = weights["wte.weight"]
    save_file(weights, path)


def with_tokenizer_json(folder, merge="a b"):
    """Write the vocabulary to one file."""
    (folder / "merges.txt").unlink()
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    added = [{"content": "<|endoftext|>", "id": vocab.pop("<|endoftext|>")}]
    (folder / "tokenizer.json").write_text(json.dumps({
        "model": {"vocab": vocab, "merges": [merge]}, "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel"}}), "utf-8")


@pytest.mark.parametrize("change", [
    in_shards, as_openai_uploads, with_tokenizer_json,
    partial(with_tokenizer_json, merge=["a", "b"]),
    edited("vocab.json", lambda found: found.pop("<|endoftext|>") and found)])  # it is added
def test_a_folder_in_a_different_form_is_the_same_model(folder, change):
    encoder, _, params = loaded(folder)
    change(folder)
    found, _, same = loaded(folder)
    assert equal(params, same) and (found.vocab, found.ranks) == (encoder.vocab, encoder.ranks)
    assert found.special == encoder.special


def test_parts_of_a_former_model_next_to_a_whole_file_are_not_read(folder):
    before = loaded(folder)[2]
    stored = load_file(folder / "model.safetensors")
    save_file({WPE: stored[WPE] + 1, "extra": stored[WPE]},
              folder / "model-00001-of-00002.safetensors")
    assert equal(before, loaded(folder)[2])


def test_bfloat16_is_the_upper_half_of_float32(folder):
    path = folder / "model.safetensors"
    wpe = np.arange(16 * 12, dtype=np.float32).reshape(16, 12)  # 8 bits are enough for each
    stored = save(load_file(path) | {WPE: (wpe.view(np.uint32) >> 16).astype(np.uint16)})
    # NumPy has no bfloat16. A file is the header's length, the header, the weights.
    end = 8 + int.from_bytes(stored[:8], "little")
    header = stored[8:end].replace(b'"U16"', b'"BF16"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + stored[end:])
    assert (loaded(folder)[2]["wpe"] == wpe).all()


def test_an_export_that_is_interrupted_is_no_model(tmp_path, monkeypatch):
    interrupt = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("lib.checkpoints.huggingface.config_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        huggingface.write_folder(tmp_path, TINY, TINY_HPARAMS, PARAMS)
    assert not huggingface.is_model(tmp_path)


# ---- the same in transformers

def their_model(folder):
    from tests.wrappers.families import torch, transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.filterwarnings("default")  # theirs
def test_transformers_reads_what_we_write_with_our_logits_and_ids(tmp_path):
    """The bundled models are such folders: test_benchmarks.py has transformers' texts of them."""
    from tests.wrappers.families import torch, transformers

    encoder = bundled.encoder()
    hparams = TINY_HPARAMS | {"n_vocab": encoder.n_vocab}
    params = lively_params(hparams)
    huggingface.write_folder(tmp_path, encoder, hparams, params)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("Once upon a time", "it's 42!\n\n  ok", "wïzard 語🙂\t"):
        assert tokenizer(text)["input_ids"] == encoder.encode(text)
        assert tokenizer.decode(encoder.encode(text)) == text
    assert tokenizer.eos_token_id == encoder.end_of_text and len(tokenizer) == encoder.n_vocab
    x = encoder.encode("Once upon a time there was a")
    with torch.no_grad():
        logits = their_model(tmp_path)(torch.tensor([x])).logits[0].numpy()
    np.testing.assert_allclose(GPT2(params, 3)(x, len(x)), logits, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("default")
def test_a_folder_that_transformers_saved_writes_its_text(tmp_path):
    """Odd sizes, another name of the activation, added tokens, and an end without a token."""
    from tests.wrappers.families import torch, transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=4096, n_positions=37, n_embd=35, n_head=5, n_layer=3, eos_token_id=50256,
        activation_function="gelu_pytorch_tanh"))
    for weight in model.parameters():  # larger than theirs, so that the text is not one token
        weight.data += 0.3 * torch.randn_like(weight)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS_DIR / "tales-small")
    tokenizer.add_tokens(["<a new token>", "語"])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    encoder, hparams, params = loaded(tmp_path, np.float64)
    target = with_sampling(GPT2(params, hparams["n_head"]), temperature=0)
    x = encoder.encode("The king")
    theirs = their_model(tmp_path).generate(torch.tensor([x]), do_sample=False, max_new_tokens=12,
                                            pad_token_id=0)
    text = autoregressive_sampling(x, target, 12, np.random.default_rng(0))
    assert text == theirs[0].tolist()
    assert encoder.end_of_text == encoder.id_of("<|endoftext|>") == 4095
    assert encoder.decode([4096, 4097]) == "<a new token>語" and encoder.id_of("語") == 4097


def test_the_models_own_ends_of_a_text_end_it_and_are_kept(folder, tmp_path):
    """As in tutorials, whose vocabularies have no <|endoftext|>; generation_config.json counts."""
    edited("vocab.json", lambda found: found | {"</s>": found.pop("<|endoftext|>")})(folder)
    without("added_tokens.json")(folder)
    config(eos_token_id=5)(folder)
    rewritten("generation_config.json", b"{}")(folder)
    assert loaded(folder)[0].end_of_text == 5
    again = tmp_path / "again"
    for ends, written in ((b"257", 257), (b"[257, 5, 999]", [257, 5])):
        rewritten("generation_config.json", b'{"eos_token_id": %s}' % ends)(folder)
        encoder, *model = loaded(folder)
        assert encoder.end_of_text == encoder.id_of("</s>") == 257
        huggingface.write_folder(again, encoder, *model)
        assert json.loads((again / "config.json").read_text("utf-8"))["eos_token_id"] == written
        assert loaded(again)[0].end_of_text == 257
        assert loaded(again)[0].end_tokens == encoder.end_tokens


def test_a_padded_vocabulary_is_cut(tmp_path):
    """nanoGPT's 50,304 rows for 50,257 tokens."""
    padded = TINY_HPARAMS | {"n_vocab": 264}
    params = random_params(padded, np.random.default_rng(0))
    huggingface.write_folder(tmp_path / "padded", TINY, padded, params)
    _, hparams, params = loaded(tmp_path / "padded")
    assert hparams == TINY_HPARAMS and params["wte"].shape == (258, 12)
    assert outcome(export.main, tmp_path / "padded", tmp_path / "cut")[0] == 0
    assert loaded(tmp_path / "cut")[1] == TINY_HPARAMS


def test_a_vocabulary_that_is_longer_than_the_weights_is_never_cut(tmp_path):
    short = TINY_HPARAMS | {"n_vocab": TINY.n_vocab - 6}
    params = random_params(short, np.random.default_rng(0))
    huggingface.write_folder(tmp_path, TINY, short, params)
    with pytest.raises(ValueError, match="a row for each token"):
        loaded(tmp_path)


# ---- what can be wrong with such a folder

def weights(change):
    """Return a change of a folder's weights, by a function of all of them."""
    def change_file(folder):
        path = folder / "model.safetensors"
        found = load_file(path)
        save_file(found | change(found), path)
    return change_file


FAULTS = [
    *((config(**{name: "another"}), f"need {name} = ") for name in (
        "layer_norm_epsilon", "activation_function", "scale_attn_weights", "tie_word_embeddings",
        "scale_attn_by_inverse_layer_idx", "add_cross_attention", "n_inner")),
    (weights(lambda w: {"lm_head.weight": w["transformer.wte.weight"] + 1}), "differs from wte"),
    (without("vocab.json"), "vocab.json"),
    (without("merges.txt"), "merges.txt"),
    (truncated("model.safetensors", 0.9999), "whole safetensors file"),
    (weights(lambda w: {WPE: w[WPE].astype(np.int32)}), "floating-point numbers"),
    (weights(lambda w: {WPE: w[WPE].T.copy()}), "of shape"),
    (weights(lambda w: {"extra": w[WPE]}), "does not have: 'extra'"),
    (weights(lambda w: {WPE: w[WPE] * np.nan}), "NaN or inf"),
    (config(model_type="llama"), "need model_type gpt2 in .*config.json, got 'llama': only GPT-2 "
     "can be read here; main.py and utils.load_model also read Llama"),
    (config(n_layer=3), "got none"),
    (config(vocab_size=257), "no more symbols in vocab.json and merges.*resize_token_embed"),
    (rewritten("tokenizer.json", b'{"model": {"type": "Unigram"}, "pre_tokenizer": {"type": 0}}'),
     "need GPT-2's byte-level BPE in .*Unigram"),
    (rewritten("tokenizer.json", b'{"model": {}, "pre_tokenizer": {"type": "Sequence"}}'),
     "need GPT-2's byte-level BPE in .*got: BPE after Sequence"),
    (rewritten("tokenizer.json", b'{"model": {}, "pre_tokenizer": {"type": "ByteLevel"}, '
               b'"post_processor": {"type": "TemplateProcessing", "special_tokens": {"a": 1}}}'),
     "a post_processor, TemplateProcessing, that adds tokens to a text: add --backend"),
    (rewritten("merges.txt", b"a c"), "none for 'ac' in vocab.json"),  # makes no symbol
]


@pytest.mark.parametrize("change, words", FAULTS)
def test_a_folder_that_cannot_be_read_is_one_line_that_says_what_to_do(folder, change, words):
    change(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=words) as caught:
        loaded(folder)
    assert len(str(caught.value)) < 1000 and "\n" not in str(caught.value)


def test_a_weight_that_float16_cannot_hold_is_refused(folder):
    weights(lambda w: {WPE: w[WPE] + 1e5})(folder)
    assert loaded(folder)[2]["wpe"].min() > 9e4
    with pytest.raises(ValueError, match="NaN or inf in wpe"):
        loaded(folder, np.float16)


@pytest.mark.parametrize("part, name, value", [
    (None, "normalizer", {"type": "Lowercase"}), (None, "normalizer", {"type": "NFC"}),
    ("pre_tokenizer", "add_prefix_space", True), ("pre_tokenizer", "use_regex", False),
    ("model", "ignore_merges", True)])
def test_a_setting_of_the_tokenizer_that_changes_the_ids_is_refused(folder, part, name, value):
    """The merge of "A" and a space crosses two words; no merge makes " bc"."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {symbol: token for token, symbol in enumerate([*SYMBOLS[:256], "A\u0120", "\u0120bc"])}
    content = {"model": {"type": "BPE", "vocab": vocab, "merges": [["A", "\u0120"]]},
               "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                 "trim_offsets": True, "use_regex": True}}
    file = folder / "tokenizer.json"

    def their_ids():
        file.write_text(json.dumps(content), "utf-8")
        return tokenizers.Tokenizer.from_file(str(file)).encode("A b cafe\u0301 bc").ids

    our_ids = their_ids()
    assert loaded(folder)[0].encode("A b cafe\u0301 bc") == our_ids
    (content[part] if part else content)[name] = value
    assert their_ids() != our_ids
    with pytest.raises(ValueError, match=f"{name} = .* changes the ids: add --backend transf"):
        loaded(folder)
