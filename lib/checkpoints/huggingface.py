"""GPT-2 as Hugging Face keeps it: the same weights under other names.

    config.json               the sizes, under other names, and what else could differ in the model
    model.safetensors         the weights, or model.safetensors.index.json: which file has which
    vocab.json, merges.txt    the vocabulary, or all of it in tokenizer.json
    generation_config.json    may name the token that ends a text; config.json names it, too
"""

import re
from pathlib import Path

import numpy as np

from lib.checkpoints import tensors
from lib.checkpoints.files import as_pair, read_json, read_merges
from lib.checkpoints.weights import check_hparams, read_flat

THEIR_SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd",
               "n_head": "n_head", "n_layer": "n_layer"}  # ours: theirs
FIXED = {"layer_norm_epsilon": (1e-5,), "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
UNUSED = re.compile(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias|lm_head\.weight")


def is_model(folder):
    """Return whether a folder is of this kind."""
    return (folder / "config.json").is_file() and any(
        (folder / name).is_file() for name in (WHOLE, INDEX))


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
    found = {}
    for path in weight_files(folder):
        found |= tensors.open_file(path)[0]
    prefix = "transformer." if "transformer.wte.weight" in found else ""
    known = set()

    def read_into(weight, name):
        theirs = prefix + their_name(name)
        known.add(theirs)
        tensors.read_into(weight, found.get(theirs), theirs, folder)

    flat = read_flat(hparams, read_into, folder, dtype)
    for name in found.keys() - known:
        if not UNUSED.fullmatch(name):
            raise ValueError(f"need the weights of a GPT-2 of the sizes in config.json in {folder}, "
                             f"got one more: {name!r:.80}")
    if "lm_head.weight" in found and not np.array_equal(
            *(tensors.read_array(found[name]) for name in ("lm_head.weight", f"{prefix}wte.weight"))):
        raise ValueError(f"need lm_head.weight to equal wte.weight in {folder}, got a different "
                         "one: only models with tied embeddings can be read")
    return flat


def weight_files(folder):
    """Return the files with the weights, all in this folder."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict):
        raise ValueError(f"need a weight_map in {folder / INDEX}, got {places!r:.80}")
    return sorted({folder / Path(str(name)).name for name in places.values()})


def read_vocabulary(folder):
    """Return {symbol: id}, the merges, the tokens added to them, and the names of the files read.

    An added token stands for itself; no merge makes it, so that no text is encoded as one.
    """
    if (folder / "tokenizer.json").is_file():
        return *read_tokenizer(folder / "tokenizer.json"), "tokenizer.json"
    vocab, merges = read_json(folder / "vocab.json"), read_merges(folder / "merges.txt")
    path = folder / "added_tokens.json"
    added = read_json(path) if path.is_file() else {}
    return vocab | added, merges, [*added], "vocab.json and merges.txt"


def read_tokenizer(path):
    """Return vocabulary, merges and added tokens of a tokenizer.json with GPT-2's kind of BPE."""
    found = read_json(path)
    try:
        model, split = found["model"], found["pre_tokenizer"]
        if (model.get("type", "BPE"), split["type"]) != ("BPE", "ByteLevel"):
            raise ValueError(f"{model['type']} after {split['type']}")
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        added = {token["content"]: token["id"] for token in found.get("added_tokens") or ()}
        return model["vocab"] | added, [as_pair(pair, path) for pair in pairs], [*added]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"need GPT-2's byte-level BPE in {path}, got: {error}") from None


def read_end_of_text(folder, vocab):
    """Return the symbol with eos_token_id, <|endoftext|> if the vocabulary has no such id.

    generation_config.json counts before config.json, as in transformers; GPT2Config's default is
    50256, whatever the vocabulary.
    """
    ends = None
    for path in (folder / "config.json", folder / "generation_config.json"):
        if path.is_file():
            ends = read_json(path).get("eos_token_id", ends)
    ends = ends if isinstance(ends, list) else [ends]
    if len(ends) > 1:
        raise ValueError(f"need one eos_token_id in {folder}, got {ends!s:.80}; keep one there, and "
                         "name all of them by --stop")
    return next((symbol for symbol, token in vocab.items() if token in ends), "<|endoftext|>")
