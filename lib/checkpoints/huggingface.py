"""GPT-2 as Hugging Face keeps it: the same weights under other names.

    config.json               the sizes, under other names, and what else could differ in the model
    model.safetensors         the weights, or several files, model-00001-of-00003.safetensors
"""

import re

import numpy as np

from lib.checkpoints import tensors
from lib.checkpoints.files import read_json
from lib.checkpoints.weights import check_hparams, read_flat

THEIR_SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd",
               "n_head": "n_head", "n_layer": "n_layer"}  # ours: theirs
FIXED = {"layer_norm_epsilon": (1e-5,), "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")


def is_model(folder):
    """Return whether a folder is of this kind."""
    return (folder / "config.json").is_file() and any(folder.glob("model*.safetensors"))


def their_name(name):
    """Return transformers' name of a weight, without the leading "transformer.".

    >>> their_name("h11/attn/c_attn/w"), their_name("ln_f/g"), their_name("wte")
    ('h.11.attn.c_attn.weight', 'ln_f.weight', 'wte.weight')
    """
    *path, last = re.sub(r"^h(\d+)/", r"h/\1/", name).split("/")
    ends = {"w": ["weight"], "g": ["weight"], "b": ["bias"]}
    return ".".join(path + ends.get(last, [last, "weight"]))


def read_hparams(folder):
    """Return the sizes in config.json under our names; ValueError for a model of another kind."""
    path = folder / "config.json"
    found = read_json(path)
    if found.get("model_type") != "gpt2":
        raise ValueError(f"need model_type gpt2 in {path}, got {found.get('model_type')!r:.80}")
    for name, values in FIXED.items():
        if found.get(name, values[0]) not in values:
            raise ValueError(f"need {name} = {values[0]} in {path}, got {found[name]!r:.80}")
    hparams = check_hparams({ours: found.get(name) for ours, name in THEIR_SIZES.items()}, path)
    if found.get("n_inner") not in (None, 4 * hparams["n_embd"]):
        raise ValueError(f"need n_inner = 4 n_embd in {path}, got {found['n_inner']!r:.80}")
    return hparams


def load_flat(folder, hparams, dtype=np.float32):
    """Return all weights as one flat array."""
    found, used = {}, {"lm_head.weight"}
    whole = folder / "model.safetensors"
    for path in [whole] if whole.is_file() else folder.glob("model-*.safetensors"):
        for name, stored in tensors.open_file(path)[0].items():
            found[name.removeprefix("transformer.")] = stored

    def take(name, shape=None):
        used.add(their_name(name))
        return tensors.read(found, their_name(name), folder, shape)

    flat = read_flat(hparams, take, folder, dtype)
    if extra := [name for name in found.keys() - used if not MASK.fullmatch(name)]:
        raise ValueError(f"need the weights of a GPT-2 of the sizes in config.json in {folder}, "
                         f"got one more: {extra[0]!r:.80}")
    if "lm_head.weight" in found and not np.array_equal(take("lm_head"), take("wte")):
        raise ValueError(f"need lm_head.weight to equal wte.weight in {folder}, got a different "
                         "one: only models with tied embeddings can be read")
    return flat
