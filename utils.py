"""Checkpoints and arrays: find, download, read through TensorFlow, convert once, load fast.

    models_dir/
        124M/                     one folder a model, in the layout that OpenAI ships:
            hparams.json          the sizes
            encoder.json, vocab.bpe            the vocabulary
            checkpoint, model.ckpt.*           the weights, TensorFlow's format
            params.npy            ours: the same weights as one flat array, made from the checkpoint

params.npy holds the weights in the order in which `build_params` asks for them, so the sizes in
hparams.json say where each one lies. It needs no TensorFlow, no parsing and no copy to load.
"""

import contextlib
import math
import os
import re
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from encoder import get_encoder, read_json

MODELS_DIR = Path(__file__).parent / "models"
SIZES = ("124M", "355M", "774M", "1558M")  # released by OpenAI
BASE_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"
CHECKPOINT = ("checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index", "model.ckpt.meta")
TEXTS = ("encoder.json", "hparams.json", "vocab.bpe")
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")


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


def random_params(hparams, rng, dtype=np.float32):
    """Weights of a true shape and of no meaning, for tests and timing: std 0.02, gains near 1."""

    def fill(name, *shape):
        noise = 0.02 * rng.standard_normal(shape[::-1], dtype=np.float32).T
        return 1 + noise if name.endswith("/g") else noise

    return cut_params(np.empty(n_params(hparams), dtype), hparams, fill)


# ---- files

@contextlib.contextmanager
def atomic(path):
    """A binary file that takes the place of `path` when the block ends; it vanishes on errors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # only if nothing else is in it
        raise


def download(url, path, quiet=False):
    """Fetch `url` to `path`, with a progress bar; raise OSError if it fails or comes short."""
    import requests  # here: a tenth of a second at every start, needed for a download only

    with requests.get(url, stream=True, timeout=30) as response, atomic(path) as file:
        response.raise_for_status()
        length = int(response.headers.get("Content-Length", 0))
        with tqdm(total=length or None, unit="B", unit_scale=True, desc=path.name,
                  disable=True if quiet else None) as bar:  # None: shown on a terminal only
            for chunk in response.iter_content(2**20):
                file.write(chunk)
                bar.update(len(chunk))
        if length and file.tell() != length:
            raise OSError(f"need {length} bytes from {url}, got {file.tell()}")


def fetch_missing(model_size, folder):
    """Download the files of a released size that the folder lacks."""
    wanted = TEXTS if (folder / "params.npy").exists() else TEXTS + CHECKPOINT
    missing = [name for name in wanted if not (folder / name).exists()]
    if missing and model_size not in SIZES:
        raise ValueError(f"need one of the released sizes {', '.join(SIZES)} or a folder in "
                         f"{folder.parent}, got {model_size} (missing there: {', '.join(missing)})")
    base = os.environ.get("GPT2_BASE_URL", BASE_URL).rstrip("/")
    for name in missing:
        download(f"{base}/{model_size}/{name}", folder / name)


def read_hparams(folder):
    """The sizes in hparams.json, or a ValueError that says what is wrong with them."""
    hparams = read_json(folder / "hparams.json")
    for name in HPARAMS:
        if type(hparams.get(name)) is not int or hparams[name] < 1:
            raise ValueError(f"need {name} to be a whole number >= 1 in {folder / 'hparams.json'}, "
                             f"got {hparams.get(name)!r}")
    if hparams["n_embd"] % hparams["n_head"]:
        raise ValueError(f"need n_head to divide n_embd in {folder / 'hparams.json'}, "
                         f"got {hparams['n_head']} and {hparams['n_embd']}")
    return hparams


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
    get_tensor = open_checkpoint(folder, 4 * n_params(hparams))

    def fill(name, *shape):
        weight = get_tensor(f"model/{name}")
        if weight.shape not in (shape, (1, *shape)):  # projections carry a leading axis of 1
            raise ValueError(f"need shape {shape} for model/{name} in {folder}, got {weight.shape}")
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {folder}, got NaN or inf in model/{name}")
        return weight.reshape(shape)

    flat = np.empty(n_params(hparams), dtype)
    cut_params(flat, hparams, fill)
    with atomic(folder / "params.npy") as file:
        np.save(file, flat)


@contextlib.contextmanager
def silent_stderr():
    """Nothing reaches file descriptor 2: TensorFlow's C++ writes notes there, come what may."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def open_checkpoint(folder, n_bytes):
    """A function `name -> array` over a TensorFlow checkpoint of at least n_bytes of weights."""
    data = folder / "model.ckpt.data-00000-of-00001"
    if data.stat().st_size < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in hparams.json, got "
                         f"{data.stat().st_size} in {data}")
    try:
        with silent_stderr():
            import tensorflow as tf  # here: seconds and 600 MB, needed once for each checkpoint
    except ImportError as error:
        raise ValueError("need TensorFlow to read OpenAI's checkpoint format, once for each model "
                         f"(pip install tensorflow), got: {error}") from None

    def read(action, what):
        try:
            return action()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0][:200]
            raise ValueError(f"need a whole TensorFlow checkpoint in {folder}, got for {what}: "
                             f"{reason}") from None

    reader = read(lambda: tf.train.load_checkpoint(str(folder / "model.ckpt")), "model.ckpt.index")
    return lambda name: read(lambda: reader.get_tensor(name), name)


def load_params(folder, hparams, dtype=np.float32, backend="numpy"):
    """The tree of weights from params.npy: one read, no copy where the file has that dtype."""
    path = folder / "params.npy"
    try:
        flat = np.load(path, mmap_mode="r", allow_pickle=False)  # first a look, then the numbers
    except (ValueError, EOFError) as error:
        raise ValueError(f"need a whole array file in {path}, got: {error}") from None
    if flat.shape != (n_params(hparams),) or flat.dtype not in (np.float16, np.float32, np.float64):
        raise ValueError(f"need {n_params(hparams)} floating-point numbers in {path} for the sizes "
                         f"in hparams.json, got shape {flat.shape}, {flat.dtype}")
    # Subtle: numbers read into memory of our own lie in huge pages, those of a mapped file do not.
    flat = np.load(path) if flat.dtype == dtype else flat.astype(dtype)
    return cut_params(get_backend(backend).asarray(flat), hparams)


def load_encoder_hparams_and_params(model_size, models_dir, dtype=np.float32, backend="numpy"):
    """Everything a model folder holds; downloaded and converted first if that was not done before.

    Parameters
    ----------
    model_size : str
        A released size (124M, 355M, 774M, 1558M) or the name of any folder in `models_dir`.
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
    if not re.fullmatch(r"[\w][\w.-]*", model_size):
        raise ValueError(f"need a model's name, not a path, got {model_size!r}")
    folder = Path(models_dir) / model_size
    fetch_missing(model_size, folder)
    hparams = read_hparams(folder)
    encoder = get_encoder(model_size, models_dir)
    if encoder.n_vocab != hparams["n_vocab"]:
        raise ValueError(f"need as many symbols in encoder.json as hparams.json says in {folder}, "
                         f"got {encoder.n_vocab} and {hparams['n_vocab']}")
    if not (folder / "params.npy").exists():
        convert(folder)
    return encoder, hparams, load_params(folder, hparams, dtype, backend)
