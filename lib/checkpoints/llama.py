"""Read a Llama, Mistral, Qwen2, Qwen3 or SmolLM as the tree of weights of llama.py.

    config     the settings in config.json of a Hugging Face folder; a GGUF file's settings are
               translated to these names
    arrays     {name in the file: array}
    weights    weights.Weights: each weight by transformers' name, a matrix as [n_out, n_in]

Two orders of a head's numbers exist. In Hugging Face's files number j and number j + d_head / 2
are a pair, which rotates. In Meta's files, and in GGUF files of the architecture llama,
neighbours are a pair, as llama.py needs them.
"""

import math
import re
import sys
from typing import NamedTuple

import numpy as np

from lib.checkpoints.gguf import FOLDER_INSTEAD
from lib.checkpoints.huggingface import stored_arrays
from lib.checkpoints.weights import LARGEST_SIZES, Weights

# The settings that llama.py can run, {name: values}; the first value is the default.
KNOWN = {"model_type": ("llama", "mistral", "qwen2", "qwen3", "smollm3"),
         "hidden_act": ("silu",), "quantization_config": (None,),
         "rope_type": ("default", "none", "llama3"), "partial_rotary_factor": (1,)}
FIELDS = {  # the name of a setting in config.json: its name in GGUF files
    "num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "head_dim": "attention.key_length",
    "num_key_value_heads": "attention.head_count_kv", "rope_theta": "rope.freq_base",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_type": "rope.scaling.type",
    "sliding_window": "attention.sliding_window",
    "rope.dimension_count": "rope.dimension_count"}  # config.json has a factor instead
ROTATED = re.compile(r"\.[qk]_(proj|norm)\.")  # in the names of queries' and keys' weights


def with_rope(config):
    """Return a config in which the settings of the rotation are settings like all others."""
    # The old form wins over the new one, as in transformers.
    forms = config.get("rope_scaling"), config.get("rope_parameters")
    rope = next((form for form in forms if form and isinstance(form, dict)), {})
    return config | rope | {"rope_type": rope.get("rope_type", rope.get("type"))}


def why_unknown(config):
    """Return why llama.py cannot run a model with these settings, or None if it can."""
    for name, values in KNOWN.items():
        value = config.get(name) or values[0]  # files have null for some settings
        if value not in values:
            return f"need {name} to be {' or '.join(map(str, values))}, got {value!r:.80}"
    return None


class Sizes(NamedTuple):
    """Hold the sizes of a model."""

    n_vocab: int
    n_ctx: int
    n_embd: int
    n_inner: int  # the width inside the feed-forward network
    n_layer: int
    n_head: int
    n_kv: int
    d_head: int
    eps: float


def checked(config, name, where, kind=int, default=None):
    """Return a setting; ValueError unless it is a number of this kind in its range, above 0."""
    value = config.get(name) or default
    largest_size = LARGEST_SIZES["n_layer" if name == "num_hidden_layers" else "n_vocab"]
    largest = largest_size if kind is int else sys.float_info.max
    if type(value) not in (int, kind) or not 0 < value <= largest:
        raise ValueError(f"need {name} to be {kind.__name__}, above 0 and at most "
                         f"{largest:.3g}, in {where}, got {value!r:.80}")
    return value


def read_sizes(config, where):
    """Return the Sizes in a config; ValueError if one is missing or does not fit."""
    def size(name, default=None):
        return checked(config, name, where, default=default)

    n_ctx, n_embd = size("max_position_embeddings"), size("hidden_size")
    # With a window of n tokens every token sees the n tokens before it and itself. Texts of at
    # most n tokens are as without a window; longer ones are refused, beyond n_ctx.
    if config.get("use_sliding_window", config["model_type"] == "mistral"):
        # null is no window; without the entry transformers' default holds
        window = config.get("sliding_window", 4096)
        n_ctx = min(n_ctx, size("sliding_window", window or n_ctx))
    n_head = size("num_attention_heads")
    n_kv, d_head = size("num_key_value_heads", n_head), size("head_dim", n_embd // n_head)
    if n_head % n_kv or d_head % 2:
        raise ValueError(f"need heads of an even width in equal groups in {where}, got "
                         f"{n_head} heads of width {d_head} and {n_kv} groups")
    return Sizes(size("vocab_size"), n_ctx, n_embd, size("intermediate_size"),
                 size("num_hidden_layers"), n_head, n_kv, d_head,
                 checked(config, "rms_norm_eps", where, float))


def with_neighbours(array, d_head):  # [n * d_head, ..] -> the same shape
    """Reorder each head's numbers, so that number j and number j + d_head / 2 are neighbours.

    >>> with_neighbours(np.array([0, 1, 2, 3, 4, 5, 6, 7]), d_head=4)
    array([0, 2, 1, 3, 4, 6, 5, 7])
    """
    halves = array.reshape(-1, 2, d_head // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


# ---- the tree

def tree_of_weights(config, sizes, weights):
    """Return the tree of weights that llama.Llama takes."""
    n_vocab, n_embd = sizes.n_vocab, sizes.n_embd
    params = {"wte": weights("model.embed_tokens.weight", n_vocab, n_embd),
              "blocks": [block(weights, sizes, i) for i in range(sizes.n_layer)],
              "ln_f": norm(weights, "model.norm", n_embd, sizes.eps),
              "n_ctx": sizes.n_ctx, "n_kv": sizes.n_kv,
              "rope": rope(config, sizes.d_head, weights)}
    # SmolLM3 has a flag for each block: if it is 0, positions turn nothing there. Without the
    # flags every fourth is 0, or every n-th.
    every = (checked(config, "no_rope_layer_interval", weights.where, default=4)
             if config["model_type"] == "smollm3" else math.inf)
    flags = config.get("no_rope_layers") or [
        int(i % every > 0) for i in range(1, 1 + sizes.n_layer)]
    if not isinstance(flags, list) or len(flags) != sizes.n_layer:
        raise ValueError(f"need a list of {sizes.n_layer} flags in no_rope_layers of "
                         f"{weights.where}, got {flags!r:.80}")
    for made, flag in zip(params["blocks"], flags):
        made["attn"]["turns"] = bool(flag)
    if config.get("tie_word_embeddings"):
        weights.unread.discard("lm_head.weight")
    elif "lm_head.weight" in weights:
        params["lm_head"] = weights("lm_head.weight", n_vocab, n_embd)
    return params


def rope(config, d_head, weights):
    """Return the arguments of llama.frequencies."""
    def number(name, default=None):
        return checked(config, name, weights.where, float, default)

    theta = 2e6 if config["model_type"] == "smollm3" else 1e4  # transformers' defaults
    settings = {"d_head": d_head, "theta": number("rope_theta", theta)}
    if config.get("rope_type") == "llama3":
        settings["scaling"] = {name: number(name) for name in (
            "factor", "low_freq_factor", "high_freq_factor",
            "original_max_position_embeddings")}
    if "rope_freqs.weight" in weights:  # what the scaling comes to, in GGUF files
        settings["divisors"] = weights("rope_freqs.weight", d_head // 2)
    return settings


def block(weights, sizes, i):
    """Return the weights of one transformer block."""
    n_embd, n_inner, eps = sizes.n_embd, sizes.n_inner, sizes.eps
    n_q, n_k = sizes.n_head * sizes.d_head, sizes.n_kv * sizes.d_head
    at, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
    qkv = {f"{at}.q_proj": n_q, f"{at}.k_proj": n_k, f"{at}.v_proj": n_k}
    gate_and_up = {f"{mlp}.gate_proj": n_inner, f"{mlp}.up_proj": n_inner}
    attn = {"c_attn": one_map(weights, n_embd, qkv),
            "c_proj": one_map(weights, n_q, {f"{at}.o_proj": n_embd})}
    for name in ("q_norm", "k_norm"):
        if f"{at}.{name}.weight" in weights:
            attn[name] = norm(weights, f"{at}.{name}", sizes.d_head, eps)
    return {"ln_1": norm(weights, f"model.layers.{i}.input_layernorm", n_embd, eps),
            "attn": attn,
            "ln_2": norm(weights, f"model.layers.{i}.post_attention_layernorm", n_embd, eps),
            "mlp": {"c_fc": one_map(weights, n_embd, gate_and_up),
                    "c_proj": one_map(weights, n_inner, {f"{mlp}.down_proj": n_embd})}}


def norm(weights, name, n, eps):
    """Return gain and eps of one norm."""
    return {"g": weights(f"{name}.weight", n), "eps": eps}


def one_map(weights, n_in, widths):  # widths: {name: n_out}
    """Return matrix and bias, if there is one, of several maps of one input as one map."""
    # In memory each output's weights lie side by side, as lib/backend/products.py needs them.
    made = {"w": np.concatenate([weights(f"{name}.weight", n_out, n_in)
                                 for name, n_out in widths.items()]).T}
    if all(f"{name}.bias" in weights for name in widths):
        made["b"] = np.concatenate([weights(f"{name}.bias", n_out)
                                    for name, n_out in widths.items()])
    return made


# ---- files

def read_folder(folder, config, convert):
    """Return the weights and n_head of a Hugging Face folder; `convert` changes an array."""
    arrays = {name: array for name, array in stored_arrays(folder).items()
              if not name.endswith("rotary_emb.inv_freq")}  # older files store the frequencies
    config = with_rope(config)
    return read(config, read_sizes(config, folder), arrays, folder, convert)


def read_gguf(file, convert):
    """Return the weights and n_head of a gguf.GGUFFile; `convert` changes an array."""
    config = {ours: file.field(theirs) for ours, theirs in FIELDS.items()}
    config |= {"model_type": file.architecture, "vocab_size": file.n_vocab}
    config["use_sliding_window"] = config["sliding_window"] is not None
    sizes = read_sizes(config, file.path)
    n_turned = checked(config, "rope.dimension_count", file.path, default=sizes.d_head)
    if why := why_unknown(config | {"partial_rotary_factor": n_turned / sizes.d_head}):
        raise ValueError(f"{why} in {file.path}: {FOLDER_INSTEAD}")
    return read(config, sizes, file, file.path, convert, file.own_name,
                are_halves=file.architecture != "llama")


def read(config, sizes, arrays, where, convert, own_name=str, are_halves=True):
    """Return the tree of weights and n_head; ValueError if a weight of the file is left."""
    def change(name, array):
        if are_halves and ROTATED.search(name):
            array = with_neighbours(array, sizes.d_head)
        return convert(array)

    weights = Weights(arrays, where, change, own_name)
    params = tree_of_weights(config, sizes, weights)
    weights.refuse_unread()
    return params, sizes.n_head
