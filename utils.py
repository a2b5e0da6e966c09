"""Checkpoints and arrays: find, download, read through TensorFlow, convert once, load fast.

    models_dir/
        124M/                     one folder a model, in the layout that OpenAI ships:
            hparams.json          the sizes
            encoder.json, vocab.bpe            the vocabulary
            checkpoint, model.ckpt.*           the weights, TensorFlow's format
            params.npy            ours: the same weights as one flat array, made from the checkpoint

params.npy holds the weights in the order in which `build_params` asks for them, so the sizes in
hparams.json say where each one lies, and behind them their checksum. It needs no TensorFlow, no
parsing and no copy to load. Hugging Face's folders (huggingface.py) are read as they are.
"""

import functools
import math
import os
import re
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import huggingface
import tf_checkpoint
from download import alone, atomic, download
from encoder import Encoder, read_json, read_merges

MODELS_DIR = Path(__file__).parent / "models"
SIZES = ("124M", "355M", "774M", "1558M")  # released by OpenAI
BASE_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"
CHECKPOINT = ("checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index", "model.ckpt.meta")
TEXTS = ("encoder.json", "hparams.json", "vocab.bpe")
# Sizes that are believed, and the bytes that weights, cache and mask of them may take in float32.
HPARAMS = dict(n_vocab=2**20, n_ctx=2**14, n_embd=2**15, n_head=2**10, n_layer=2**10)
MAX_BYTES = 2**36
# params.npy: the one header that np.save gives it, and what opens the 16 bytes behind the numbers.
HEADER = re.compile(rb"{'descr': '(<f[248])', 'fortran_order': False, 'shape': \((\d+),\), } *\n")
CHECKSUM = b"checksum"


# ---- the array backend

def get_backend(name):
    """The array module of that name, `numpy` or `cupy`.

    Raises
    ------
    ValueError
        If the name is another, or CuPy or a GPU for it is missing.
    """
    if name == "numpy":
        return np
    if name != "cupy":
        raise ValueError(f"need backend numpy or cupy, got {name}")
    try:
        import cupy  # here, for only this backend needs it

        cupy.zeros(1)  # fails where there is no GPU
    except Exception as error:
        raise ValueError("need CuPy >= 14 and a GPU for backend cupy (pip install cupy-cuda13x, or "
                         f"the package for your CUDA), got: {error}") from None
    return cupy


def limit_blas_threads(params):
    """One BLAS thread for weights that fit in a cache, all of them for larger ones.

    BLAS threads wait for each other by spinning. That pays where memory sets the pace; small
    products gain nothing from it, and beside another busy process become up to 70 times slower.
    """
    if params["wte"].size + params["wpe"].size < 2**23:
        threadpool_limits(limits=1, user_api="blas")


@functools.cache
def has_small_kernels():
    """Does NumPy's BLAS multiply small matrices without packing them? OpenBLAS on AVX-512 does.

    OpenBLAS calls its AVX-512 kernels by the first processor that had them.
    """
    return any(library.get("architecture") in ("SkylakeX", "Cooperlake", "SapphireRapids")
               for library in threadpool_info() if library["internal_api"] == "openblas")


def to_host(array):
    """A NumPy array of the same numbers: itself, or a copy from the GPU."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


# ---- the weights as a tree

def build_params(hparams, take):
    """The tree of weights whose keys are the argument names of gpt2.py's functions.

    Parameters
    ----------
    hparams : dict
        n_vocab, n_ctx, n_embd, n_layer.
    take : callable `(name, *shape) -> array`
        Gives each weight; called in a fixed order, with OpenAI's variable names (without the
        leading "model/").

    Returns
    -------
    dict
        wte, wpe, blocks (a list of ln_1, attn, ln_2, mlp), ln_f.

    Examples
    --------
    Counting GPT-2 124M's weights:

    >>> hparams = dict(n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12)
    >>> sizes = []
    >>> tree = build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))
    >>> sum(sizes)
    124439808
    """
    n = hparams["n_embd"]

    def norm(name):
        return {"g": take(f"{name}/g", n), "b": take(f"{name}/b", n)}

    def linear(name, n_in, n_out):
        return {"w": take(f"{name}/w", n_in, n_out), "b": take(f"{name}/b", n_out)}

    def block(name):
        return {
            "ln_1": norm(f"{name}/ln_1"),
            "attn": {"c_attn": linear(f"{name}/attn/c_attn", n, 3 * n),
                     "c_proj": linear(f"{name}/attn/c_proj", n, n)},
            "ln_2": norm(f"{name}/ln_2"),
            "mlp": {"c_fc": linear(f"{name}/mlp/c_fc", n, 4 * n),
                    "c_proj": linear(f"{name}/mlp/c_proj", 4 * n, n)},
        }

    return {
        "wte": take("wte", hparams["n_vocab"], n),
        "wpe": take("wpe", hparams["n_ctx"], n),
        "blocks": [block(f"h{i}") for i in range(hparams["n_layer"])],
        "ln_f": norm("ln_f"),
    }


def cut_params(flat, hparams, fill=None):
    """The tree of weights as views of one flat array; with `fill`, set to `fill(name, *shape)`.

    A projection [n_in, n_out] lies transposed in memory, each output's weights side by side: one
    row times such a matrix reads memory in order, and gpt2.matmul can cut it into blocks.
    """
    offset = 0

    def take(name, *shape):
        nonlocal offset
        part = flat[offset : offset + math.prod(shape)]
        offset += math.prod(shape)
        view = part.reshape(shape[::-1]).T if name.endswith("/w") else part.reshape(shape)
        if fill:
            view[...] = fill(name, *shape)
        return view

    return build_params(hparams, take)


def n_params(hparams):
    """How many weights a model of these sizes has."""
    sizes = []
    build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))
    return sum(sizes)


def flatten(params, prefix=""):
    """(OpenAI's variable name, weight) for every weight in the tree."""
    for key, part in params.items():
        if key == "blocks":
            for i, block in enumerate(part):
                yield from flatten(block, f"h{i}/")
        elif isinstance(part, dict):
            yield from flatten(part, f"{prefix}{key}/")
        else:
            yield prefix + key, part


def random_params(hparams, rng, dtype=np.float32):
    """Weights of a true shape and of no meaning, for tests and timing: std 0.02, gains near 1."""

    def fill(name, *shape):
        noise = 0.02 * rng.standard_normal(shape[::-1], dtype=np.float32).T
        return 1 + noise if name.endswith("/g") else noise

    return cut_params(np.empty(n_params(hparams), dtype), hparams, fill)


# ---- what a folder holds

def fetch_missing(model_size, folder):
    """Download the files of a released size that the folder lacks."""
    def missing():
        wanted = TEXTS if (folder / "params.npy").exists() else TEXTS + CHECKPOINT
        return [name for name in wanted if not (folder / name).exists()]

    if not missing():
        return
    if model_size not in SIZES:
        raise ValueError(f"need one of the released sizes {', '.join(SIZES)} or a folder in "
                         f"{folder.parent}, got {model_size} "
                         f"(missing there: {', '.join(missing())})")
    base = os.environ.get("GPT2_BASE_URL", BASE_URL).rstrip("/")
    with alone(folder):
        for name in missing():  # again: another process may have been here first
            download(f"{base}/{model_size}/{name}", folder / name)


def check_hparams(hparams, path):
    """The sizes of a model, or a ValueError before anything of an absurd size is allocated."""
    for name, most in HPARAMS.items():
        if type(hparams.get(name)) is not int or not 1 <= hparams[name] <= most:
            raise ValueError(f"need {name} to be a whole number in 1 .. {most} in {path}, "
                             f"got {str(hparams.get(name))[:80]}")
    n_ctx, n_embd, n_head = hparams["n_ctx"], hparams["n_embd"], hparams["n_head"]
    if n_embd % n_head:
        raise ValueError(f"need n_head to divide n_embd in {path}, got {n_head} and {n_embd}")
    n_cache = 2 * hparams["n_layer"] * n_ctx * n_embd + n_ctx**2  # and the mask
    if 4 * (n_params(hparams) + n_cache) > MAX_BYTES:
        raise ValueError(f"need at most {MAX_BYTES} bytes for weights and cache of the sizes in "
                         f"{path}, got {4 * n_params(hparams)} + {4 * n_cache}")
    return hparams


def read_hparams(folder):
    """The sizes in hparams.json, or a ValueError that says what is wrong with them."""
    return check_hparams(read_json(folder / "hparams.json"), folder / "hparams.json")


def read_params(hparams, get_tensor, folder, dtype):
    """All weights as one flat array; ValueError for one of another shape, or not finite."""
    def fill(name, *shape):
        weight = get_tensor(name)
        if weight.shape not in (shape, (1, *shape)):  # OpenAI's projections: a leading axis of 1
            raise ValueError(f"need shape {shape} for {name} in {folder}, got {weight.shape}")
        if weight.dtype.kind != "f":
            raise ValueError(f"need floating-point numbers for {name} in {folder}, "
                             f"got {weight.dtype}")
        with np.errstate(over="ignore"):
            weight = weight.astype(dtype, copy=False)
        if not is_finite(weight):
            raise ValueError(f"need finite weights in {folder}, got NaN or inf in {name}")
        return weight.reshape(shape)

    flat = np.empty(n_params(hparams), dtype)
    cut_params(flat, hparams, fill)
    return flat


def is_finite(array):
    """Whether no number is NaN or inf. The sum of squares tells, fast, unless it is too large."""
    flat = array.ravel(order="K")
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.dot(flat, flat)) or np.isfinite(flat).all())


def checksum(flat):
    """The sum of an array's bytes, taken as 64-bit words, modulo 2**64: as fast as memory is."""
    data = flat.view(np.uint8)
    n_whole = len(data) // 8 * 8
    total = int(np.add.reduce(data[:n_whole].view("<u8"), dtype=np.uint64))
    return (total + int.from_bytes(data[n_whole:].tobytes(), "little")) % 2**64


def convert(folder, dtype=np.float32):
    """Write params.npy from the TensorFlow checkpoint in a model folder.

    Parameters
    ----------
    folder : path
        Holds hparams.json and model.ckpt.*, as OpenAI ships them.
    dtype : numpy dtype
        Of the numbers on disk.

    Raises
    ------
    ValueError
        If TensorFlow is missing, the checkpoint cannot be read, or a weight in it is absent, has
        another shape than hparams.json says, or is not finite.
    """
    folder = Path(folder)
    hparams = read_hparams(folder)
    get_tensor = tf_checkpoint.open_weights(folder, 4 * n_params(hparams))
    flat = read_params(hparams, get_tensor, folder, dtype)
    with atomic(folder / "params.npy") as file:
        np.save(file, flat)
        file.write(CHECKSUM + checksum(flat).to_bytes(8, "little"))


def load_params(folder, hparams, dtype=np.float32, backend="numpy"):
    """The tree of weights from params.npy: one read, no copy where the file has that dtype."""
    with np.errstate(over="ignore"):
        flat = read_flat(folder / "params.npy", n_params(hparams)).astype(dtype, copy=False)
    if not is_finite(flat):
        raise ValueError(f"need finite weights in {folder / 'params.npy'}, got NaN or inf")
    return cut_params(get_backend(backend).asarray(flat), hparams)


def read_flat(path, n):
    """The n numbers of params.npy; ValueError if it is no such file, or its checksum differs.

    Nothing is allocated before header and length are what they must be. The numbers are read, not
    mapped. Subtle: in memory of our own they lie in huge pages, those of a mapped file do not.
    """
    if not path.is_file():
        raise ValueError(f"need a plain file in {path}")
    with open(path, "rb") as file:
        magic, length = file.read(8), int.from_bytes(file.read(2), "little")
        if magic != b"\x93NUMPY\x01\x00":
            raise ValueError(f"need a whole array file in {path}, got no NumPy array")
        header = file.read(length)
        match = HEADER.fullmatch(header)
        if not match or match[2] != str(n).encode():
            raise ValueError(f"need {n} floating-point numbers in {path} for the sizes in "
                             f"hparams.json, got {header[:90]!r}")
        dtype = np.dtype(match[1].decode())
        n_more = path.stat().st_size - file.tell() - n * dtype.itemsize
        if n_more not in (0, 16):  # without or with a checksum
            raise ValueError(f"need a whole array file in {path}, got {n_more:+} bytes")
        flat = np.fromfile(file, dtype, n)
        if n_more and file.read() != CHECKSUM + checksum(flat).to_bytes(8, "little"):
            raise ValueError(f"need the numbers that were written to {path}, got another checksum")
    return flat


def find_folder(model_size, models_dir):
    """Where a model is: by its name in models_dir, or, for Hugging Face's kind, by any path."""
    if re.fullmatch(r"\w[\w.-]*", model_size):
        return Path(models_dir) / model_size
    if not huggingface.is_model(Path(model_size)):
        raise ValueError("need a model's name, not a path, or that of a folder with config.json "
                         f"and model.safetensors, got {model_size!r}")
    return Path(model_size)


def load_encoder_hparams_and_params(model_size, models_dir, dtype=np.float32, backend="numpy"):
    """Everything a model folder holds; downloaded and converted first if that was not done before.

    Parameters
    ----------
    model_size : str
        A released size (124M, 355M, 774M, 1558M), the name of any folder in `models_dir`, or the
        path of a folder as Hugging Face keeps them, with config.json and model.safetensors.
    models_dir : path
    dtype : float32 or float64
    backend : "numpy" or "cupy"

    Returns
    -------
    encoder : Encoder
    hparams : dict
        n_vocab, n_ctx, n_embd, n_head, n_layer.
    params : dict
        The tree of weights that `gpt2.GPT2` takes.

    Raises
    ------
    ValueError
        If there is no such model, or a file of it is not what it should be.
    OSError
        If a download or a disk fails.

    Notes
    -----
    The base URL of the downloads can be changed with the environment variable GPT2_BASE_URL.
    """
    folder = find_folder(model_size, models_dir)
    if huggingface.is_model(folder):
        hparams = check_hparams(huggingface.read_config(folder), folder / "config.json")
        encoder = read_encoder(folder, hparams, "vocab.json", "merges.txt")
        names = []
        build_params(hparams, lambda name, *shape: names.append(name))
        get_tensor = huggingface.open_weights(folder, names, 2 * n_params(hparams))
        flat = read_params(hparams, get_tensor, folder, dtype)
        return encoder, hparams, cut_params(get_backend(backend).asarray(flat), hparams)
    fetch_missing(model_size, folder)
    hparams = read_hparams(folder)
    encoder = read_encoder(folder, hparams, "encoder.json", "vocab.bpe")
    if not (folder / "params.npy").exists():
        with alone(folder):
            if not (folder / "params.npy").exists():  # as in fetch_missing
                convert(folder)
    return encoder, hparams, load_params(folder, hparams, dtype, backend)


def read_encoder(folder, hparams, vocab, merges):
    """The Encoder from two files of a folder; ValueError if it has not n_vocab symbols."""
    encoder = Encoder(read_json(folder / vocab), read_merges(folder / merges))
    if encoder.n_vocab != hparams["n_vocab"]:
        raise ValueError(f"need as many symbols in {vocab} as n_vocab says in {folder}, got "
                         f"{encoder.n_vocab} and {hparams['n_vocab']}")
    return encoder
