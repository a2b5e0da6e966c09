"""GPT-2 as Hugging Face keeps it: the same weights under other names, in one file of raw numbers.

    config.json               the sizes, under other names, and what else could differ in the model
    model.safetensors         8 bytes: the header's length; the header, JSON; then the numbers
    vocab.json, merges.txt    encoder.json and vocab.bpe under other names

Here are names and bytes only; utils.py makes weights of them, tools/export_hf.py writes them.
Format: github.com/huggingface/safetensors, README, "Format".
"""

import json
import math
import re

import numpy as np

from encoder import parse_json, read_json

SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd", "n_head": "n_head",
         "n_layer": "n_layer"}  # ours: theirs
FIXED = {"layer_norm_epsilon": (1e-5,), "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
N_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
           "BOOL": 1}  # of one number
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_HEADER = 100_000_000  # the format's own limit
UNUSED = re.compile(r"(transformer\.)?(h\.\d+\.attn\.(masked_)?bias|lm_head\.weight)")


def is_model(folder):
    """Whether a folder is of this kind."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def their_name(name):
    """transformers' name of a weight, without the leading "transformer.".

    >>> their_name("h11/attn/c_attn/w"), their_name("ln_f/g"), their_name("wte")
    ('h.11.attn.c_attn.weight', 'ln_f.weight', 'wte.weight')
    """
    *path, last = re.sub(r"^h(\d+)/", r"h/\1/", name).split("/")
    ends = {"w": ["weight"], "g": ["weight"], "b": ["bias"]}
    return ".".join(path + ends.get(last, [last, "weight"]))


def read_config(folder):
    """The sizes in config.json under our names; ValueError for a model of another kind."""
    path = folder / "config.json"
    config = read_json(path)
    if config.get("model_type") != "gpt2":
        raise ValueError(f"need model_type gpt2 in {path}, got {config.get('model_type')!r:.80}")
    for name, values in FIXED.items():
        if config.get(name, values[0]) not in values:
            raise ValueError(f"need {name} = {values[0]} in {path}, got {config[name]!r:.80}")
    sizes = {ours: config.get(theirs) for ours, theirs in SIZES.items()}
    width = config.get("n_inner")
    if width is not None and (type(sizes["n_embd"]) is not int or width != 4 * sizes["n_embd"]):
        raise ValueError(f"need n_inner = 4 n_embd in {path}, got {width!r:.80}")
    return sizes


def config(hparams, end_of_text):
    """What config.json says of a model of ours."""
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            **{name: values[0] for name, values in FIXED.items()},
            **{theirs: hparams[ours] for ours, theirs in SIZES.items()},
            "bos_token_id": end_of_text, "eos_token_id": end_of_text}


# ---- safetensors

def read_header(path):
    """{name: (dtype, shape, place in the file)} of a safetensors file; ValueError if not whole."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, MAX_HEADER):
            raise ValueError(f"need a header within the {size} bytes of {path}, got {length} bytes")
        header = parse_json(file.read(length), path)
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if not is_entry(entry):
            raise ValueError(f"need dtype, shape and place of {name!r:.80} in {path}, "
                             f"got {str(entry)[:80]}")
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, place = entry["dtype"], tuple(entry["shape"]), 8 + length + end
        if entry["data_offsets"] != [end, end := end + N_BYTES[dtype] * math.prod(shape)]:
            raise ValueError(f"need the numbers of {name!r:.80} in {path} right behind those "
                             f"before them, got {entry['data_offsets']} for {dtype} {shape}")
        tensors[name] = dtype, shape, place
    if 8 + length + end != size:
        raise ValueError(f"need {8 + length + end} bytes in {path}, got {size}")
    return tensors


def is_entry(entry):
    """Whether this is one tensor's description in a safetensors header."""
    def whole(numbers, most):
        return (isinstance(numbers, list) and len(numbers) <= most
                and all(type(n) is int and 0 <= n < 2**60 for n in numbers))

    return (isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
            and isinstance(entry["dtype"], str) and entry["dtype"] in N_BYTES
            and whole(entry["shape"], 8) and whole(entry["data_offsets"], 2))


def open_weights(folder, names, n_bytes):
    """A function `name -> array` over model.safetensors, under OpenAI's names.

    Parameters
    ----------
    folder : Path
    names : list of str
        All weights that will be asked for; ValueError if the file lacks one or has another.
    n_bytes : int
        The file must be as large, so that nothing is allocated for sizes that it cannot fill.
    """
    path = folder / "model.safetensors"
    tensors = read_header(path)
    if path.stat().st_size < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in config.json, got "
                         f"{path.stat().st_size} in {path}")
    prefix = "transformer." if "transformer.wte.weight" in tensors else ""
    theirs = {name: prefix + their_name(name) for name in names}
    odd = set(theirs.values()) ^ {name for name in tensors if not UNUSED.fullmatch(name)}
    if odd:
        raise ValueError(f"need the weights that config.json speaks of in {path}, got one too many "
                         f"or too few: {min(odd)!r:.80}")

    def get_tensor(name):
        dtype, shape, place = tensors[theirs[name]]
        if dtype not in FLOATS:
            raise ValueError(f"need floating-point numbers for {theirs[name]} in {path}, "
                             f"got {dtype}")
        weight = np.fromfile(path, FLOATS[dtype], math.prod(shape), offset=place).reshape(shape)
        return (weight.astype("<u4") << 16).view("<f4") if dtype == "BF16" else weight

    return get_tensor


def write_weights(file, weights):
    """A safetensors file of {their name: array}, float16, float32 or float64."""
    codes = {np.dtype(code): name for name, code in FLOATS.items() if code != "<u2"}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in weights.items():
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape),
                        "data_offsets": [end, end := end + array.nbytes]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the numbers lie at multiples of 8, as their readers like it
    file.write(len(text).to_bytes(8, "little") + text)
    for array in weights.values():
        file.write(np.ascontiguousarray(array).data)
