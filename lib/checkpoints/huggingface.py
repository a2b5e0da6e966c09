"""Read and write GPT-2 in Hugging Face's layout: the same weights under other names.

    config.json            the sizes, under other names, and settings that FIXED checks
    model.safetensors      the weights, or several files, model-00001-of-00003.safetensors
"""

import json
import re
from pathlib import Path

import numpy as np

from lib.checkpoints.files import atomic, read_json
from lib.checkpoints.vocabulary import merge_lines
from lib.checkpoints.weights import (
    Weights,
    check_hparams,
    flatten,
    open_arrays,
    read_all_weights,
    write_arrays,
)

THEIR_SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd",
               "n_head": "n_head", "n_layer": "n_layer"}  # ours: theirs
# The settings of GPT-2, {name: allowed values}; the first value is transformers' default.
FIXED = {"layer_norm_epsilon": (1e-5,),
         "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
# The advice to users who have a Llama or a Qwen.
OTHER_MODELS = ("only GPT-2 can be read here; main.py and utils.load_model also read Llama, "
                "Mistral, Qwen and SmolLM, and others with --backend transformers")
# Older files store each layer's causal mask under these names; a mask is not a weight.
MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")


def is_model(folder):
    """Return whether a folder is a Hugging Face model."""
    return (folder / "config.json").is_file() and any(weight_files(folder))


def weight_files(folder):
    """Return a model's files of weights: one, or several of a large model."""
    whole = folder / "model.safetensors"
    return [whole] if whole.is_file() else sorted(folder.glob("model-*.safetensors"))


def folder_model_type(folder):
    """Return the model_type of a folder, or None if there is no config.json that says it."""
    try:
        model_type = read_json(Path(folder) / "config.json").get("model_type")
    except (OSError, ValueError, TypeError):  # TypeError: the argument is not a path
        return None
    return model_type if isinstance(model_type, str) else None


def transformers_name(name):
    """Return transformers' name of a weight, without the leading "transformer.".

    >>> transformers_name("h11/attn/c_attn/w"), transformers_name("ln_f/g")
    ('h.11.attn.c_attn.weight', 'ln_f.weight')
    >>> transformers_name("wte")
    'wte.weight'
    """
    # "h11/attn/c_attn/w" -> ["h", "11", "attn", "c_attn"] and "w"
    *path, last = re.sub(r"^h(\d+)/", r"h/\1/", name).split("/")
    ends = {"w": ["weight"], "g": ["weight"], "b": ["bias"]}
    # wte and wpe have no /w at the end, so "weight" is added.
    return ".".join(path + ends.get(last, [last, "weight"]))


def read_hparams(folder):
    """Return the sizes in config.json under our names; ValueError if it is not a GPT-2."""
    path = folder / "config.json"
    config = read_json(path)
    if config.get("model_type") != "gpt2":
        raise ValueError(f"need model_type gpt2 in {path}, got "
                         f"{config.get('model_type')!r:.80}: {OTHER_MODELS}")
    for name, values in FIXED.items():
        if config.get(name, values[0]) not in values:  # the first value is the default
            raise ValueError(f"need {name} = {values[0]} in {path}, got {config[name]!r:.80}")
    sizes = {ours: config.get(theirs) for ours, theirs in THEIR_SIZES.items()}
    hparams = check_hparams(sizes, path)
    # n_inner is the width of the feed-forward network; None means 4 n_embd.
    if config.get("n_inner") not in (None, 4 * hparams["n_embd"]):
        raise ValueError(f"need n_inner = 4 n_embd in {path}, got {config['n_inner']!r:.80}")
    return hparams


def load_all_weights(folder, hparams, dtype=np.float32):
    """Return all weights as one flat array."""
    stored = stored_arrays(folder)
    for mask in [*filter(MASK.fullmatch, stored)]:
        del stored[mask]
    weights = Weights(stored, folder, own_name=transformers_name)
    flat = read_all_weights(hparams, weights, folder, dtype)
    # lm_head, the unembedding, has no place in our tree, because it must be equal to wte.
    has_lm_head = "lm_head.weight" in stored
    if has_lm_head and not np.array_equal(weights("lm_head"), weights("wte")):
        raise ValueError(f"lm_head.weight differs from wte.weight in {folder}: only models "
                         "with tied embeddings can be read")
    weights.refuse_unread()
    return flat


def stored_arrays(folder):
    """Return {name without "transformer.": array} of all files of weights in a folder."""
    stored = {}
    for path in weight_files(folder):
        arrays, _ = open_arrays(path)
        for name, array in arrays.items():
            stored[name.removeprefix("transformer.")] = array
    return stored


# ---- writing

def write_folder(folder, encoder, hparams, params):
    """Write a model, loaded as utils loads it, to a new folder; weights in their own dtype.

    config.json comes last: a folder without it is not a model, so no partial export is loaded.
    """
    weights = {f"transformer.{transformers_name(name)}": weight
               for name, weight in flatten(params)}
    write_arrays(folder / "model.safetensors", weights, {"format": "pt"})
    texts = tokenizer_texts(encoder)
    ends = sorted(encoder.end_tokens, key=lambda token: token != encoder.end_of_text)
    config = config_json(hparams, ends, params["wte"].dtype)
    texts["config.json"] = json.dumps(config)  # the last entry, so it is written last
    for name, text in texts.items():
        with atomic(folder / name) as file:
            file.write(text.encode())


def tokenizer_texts(encoder):
    """Return {file name: text} of a vocabulary."""
    # `special` has <|endoftext|> even if the vocabulary lacks it, so the intersection is taken.
    added = {symbol: encoder.vocab[symbol] for symbol in encoder.special & encoder.vocab.keys()}
    end = encoder.symbols.get(encoder.end_of_text)
    return {"vocab.json": json.dumps(encoder.vocab),
            "added_tokens.json": json.dumps(added),
            "merges.txt": "\n".join(["#version: 0.2", *merge_lines(encoder), ""]),
            "tokenizer_config.json": json.dumps({
                "tokenizer_class": "GPT2Tokenizer", "bos_token": end, "eos_token": end,
                "unk_token": end})}


def config_json(hparams, ends, dtype):
    """Return the object in config.json; `ends` are the ids at which a text ends.

    The first of them also begins a text, as in GPT-2.
    Engines cast weights to half precision unless config.json names a dtype.
    """
    first = ends[0] if ends else None
    # The dtype has an old and a new name. n_ctx is for llama.cpp's converter.
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            **{name: values[0] for name, values in FIXED.items()},
            **{name: hparams[ours] for ours, name in THEIR_SIZES.items()},
            "n_ctx": hparams["n_ctx"], "dtype": str(dtype), "torch_dtype": str(dtype),
            "bos_token_id": first, "eos_token_id": ends if len(ends) > 1 else first}
