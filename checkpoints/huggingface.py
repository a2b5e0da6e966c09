"""GPT-2 as Hugging Face keeps it: the same weights under other names, in one file of raw numbers.

    config.json               the sizes, under other names, and what else could differ in the model
    model.safetensors         8 bytes: the header's length; the header, JSON; then the numbers
    vocab.json, merges.txt    encoder.json and vocab.bpe under other names

The library safetensors reads and writes the weights; tools/export_hf.py writes whole folders.
"""

import math
import re

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from backend.arrays import get_backend
from checkpoints.textfiles import parse_json, read_json
from checkpoints.weights import build_params, check_hparams, cut_params, n_params, read_params

THEIR_SIZES = {"n_vocab": "vocab_size", "n_ctx": "n_positions", "n_embd": "n_embd",
               "n_head": "n_head", "n_layer": "n_layer"}  # ours: theirs
FIXED = {"layer_norm_epsilon": (1e-5,), "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
         "tie_word_embeddings": (True,), "scale_attn_weights": (True,),
         "scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)}
FLOATS = ("F64", "F32", "F16", "BF16")
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


def config(hparams, end_of_text):
    """What config.json says of a model of ours."""
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
            **{name: values[0] for name, values in FIXED.items()},
            **{name: hparams[ours] for ours, name in THEIR_SIZES.items()},
            "bos_token_id": end_of_text, "eos_token_id": end_of_text}


def load_params(folder, hparams, dtype=np.float32, backend="numpy"):
    """The tree of weights from model.safetensors."""
    names = []
    build_params(hparams, lambda name, *shape: names.append(name))
    get_tensor = open_checkpoint(folder, names, 2 * n_params(hparams))
    flat = read_params(hparams, get_tensor, folder, dtype)
    return cut_params(get_backend(backend).asarray(flat), hparams)


def open_checkpoint(folder, names, n_bytes):
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
    if path.stat().st_size < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in config.json, got "
                         f"{path.stat().st_size} in {path}")
    file, header, start = open_safetensors(path)
    prefix = "transformer." if "transformer.wte.weight" in header else ""
    theirs = {name: prefix + their_name(name) for name in names}
    odd = set(theirs.values()) ^ {name for name in header if not UNUSED.fullmatch(name)}
    if odd:
        raise ValueError(f"need the weights for the sizes in config.json in {path}, got one too "
                         f"many or too few: {min(odd)!r:.80}")

    def get_tensor(name):
        entry = header[theirs[name]]
        dtype, shape = entry["dtype"], entry["shape"]
        if dtype not in FLOATS or len(shape) > 2:
            raise ValueError(f"need one or two axes of floating-point numbers for {theirs[name]} "
                             f"in {path}, got {len(shape)} of {dtype}")
        if dtype != "BF16":
            return file.get_tensor(theirs[name])
        offset = start + entry["data_offsets"][0]
        halves = np.fromfile(path, "<u2", math.prod(shape), offset=offset).reshape(shape)
        return (halves.astype("<u4") << 16).view("<f4")  # NumPy has no bfloat16

    return get_tensor


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
