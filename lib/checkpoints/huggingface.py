"""GPT-2 as Hugging Face keeps it: the same weights under other names, in files of raw numbers.

    config.json               the sizes, under other names, and what else could differ in the model
    model.safetensors         8 bytes: the header's length; the header, JSON; then the numbers
    model.safetensors.index.json       in its place: which weight is in which of several such files
    vocab.json, merges.txt    encoder.json and vocab.bpe under other names

The library safetensors reads and writes the weights; tools/export_hf.py writes whole folders.
"""

import math
import re

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from lib.backend.arrays import get_backend
from lib.checkpoints.textfiles import parse_json, read_json
from lib.checkpoints.weights import build_params, check_hparams, cut_params, n_params, read_params

THEIR_SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd",
               "n_head": "n_head", "n_layer": "n_layer"}  # ours: theirs
FIXED = {"layer_norm_epsilon": (1e-5,), "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
UNUSED = re.compile(r"(transformer\.)?(h\.\d+\.attn\.(masked_)?bias|lm_head\.weight)")


def is_model(folder):
    """Whether a folder is of this kind."""
    return (folder / "config.json").is_file() and any(
        (folder / name).is_file() for name in (WHOLE, INDEX))


def their_name(name):
    """transformers' name of a weight, without the leading "transformer.".

    >>> their_name("h11/attn/c_attn/w"), their_name("ln_f/g"), their_name("wte")
    ('h.11.attn.c_attn.weight', 'ln_f.weight', 'wte.weight')
    """
    *path, last = re.sub(r"^h(\d+)/", r"h/\1/", name).split("/")
    ends = {"w": ["weight"], "g": ["weight"], "b": ["bias"]}
    return ".".join(path + ends.get(last, [last, "weight"]))


def read_hparams(folder):
    """The sizes in config.json under our names; ValueError for a model of another kind."""
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


def config(hparams, end_of_text, dtype="float32"):
    """What config.json says of a model of ours.

    Engines cast weights to half precision unless it names a dtype, under either of two names;
    llama.cpp's converter looks for n_ctx.
    """
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            **{name: values[0] for name, values in FIXED.items()},
            **{name: hparams[ours] for ours, name in THEIR_SIZES.items()},
            "n_ctx": hparams["n_ctx"], "dtype": str(dtype), "torch_dtype": str(dtype),
            "bos_token_id": end_of_text, "eos_token_id": end_of_text}


def load_params(folder, hparams, dtype=np.float32, backend="numpy"):
    """The tree of weights from model.safetensors, or from the files that an index names."""
    names = []
    build_params(hparams, lambda name, *shape: names.append(name))
    get_tensor = open_checkpoint(folder, names, 2 * n_params(hparams))
    flat = read_params(hparams, get_tensor, folder, dtype)
    return cut_params(get_backend(backend).asarray(flat), hparams)


def weight_files(folder):
    """The files with the weights; ValueError if an index names others than its neighbours."""
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict):
        raise ValueError(f"need a weight_map in {folder / INDEX}, got {places!r:.80}")
    files = {str(name) for name in places.values()}
    odd = [name for name in files if not re.fullmatch(r"[\w.-]+\.safetensors", name)]
    if odd:
        raise ValueError(f"need names of safetensors files in {folder / INDEX}, got {odd[0]!r:.80}")
    return [folder / name for name in sorted(files)]


def open_checkpoint(folder, names, n_bytes):
    """A function `name -> array` over the weights of a folder, under OpenAI's names.

    Parameters
    ----------
    folder : Path
    names : list of str
        All weights that will be asked for; ValueError if the files lack one or have another.
    n_bytes : int
        The files must be as large, so that nothing is allocated for sizes that they cannot fill.
    """
    paths = weight_files(folder)
    if (size := sum(path.stat().st_size for path in paths)) < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in config.json, got "
                         f"{size} in {folder}")
    found = {}
    for path in paths:
        file, header, start = open_safetensors(path)
        twice = found.keys() & header.keys()
        if twice:
            raise ValueError(f"need each weight once, got {min(twice)!r:.80} again in {path}")
        found |= {name: (path, file, start, entry) for name, entry in header.items()}
    prefix = "transformer." if "transformer.wte.weight" in found else ""
    theirs = {name: prefix + their_name(name) for name in names}
    odd = set(theirs.values()) ^ {name for name in found if not UNUSED.fullmatch(name)}
    if odd:
        raise ValueError(f"need the weights for the sizes in config.json in {folder}, got one too "
                         f"many or too few: {min(odd)!r:.80}")
    return lambda name: read_tensor(theirs[name], *found[theirs[name]])


def read_tensor(name, path, file, start, entry):
    """One weight of a file; ValueError unless it has one or two axes of floats."""
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in FLOATS or len(shape) > 2:
        raise ValueError(f"need one or two axes of floating-point numbers for {name} in {path}, "
                         f"got {len(shape)} of {dtype}")
    if dtype != "BF16":
        return file.get_tensor(name)
    offset = start + entry["data_offsets"][0]
    halves = np.fromfile(path, "<u2", math.prod(shape), offset=offset).reshape(shape)
    return (halves.astype("<u4") << 16).view("<f4")  # NumPy has no bfloat16


def open_safetensors(path):
    """A safetensors file, its header, and where its numbers start; ValueError if it is not whole.

    The library checks all but one thing: a name that comes twice, of which it takes the last.
    """
    try:
        file = safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ValueError(f"need a whole safetensors file in {path}, got: "
                         f"{str(error)[:200]!r}") from None
    with open(path, "rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        header = parse_json(raw.read(length), path)
    header.pop("__metadata__", None)
    return file, header, 8 + length


def write_weights(file, weights):
    """A safetensors file of {their name: array}, float16, float32 or float64.

    Subtle: the library takes an array's memory as it lies, and a projection lies transposed.
    """
    weights = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    file.write(save(weights, metadata={"format": "pt"}))
