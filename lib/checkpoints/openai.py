"""GPT-2 as OpenAI released it: downloaded once, read through TensorFlow once, then converted.

    hparams.json          the sizes
    encoder.json, vocab.bpe                the vocabulary
    checkpoint, model.ckpt.*               the weights, TensorFlow's format
    params.npy            ours (converted.py), made from the checkpoint

TensorFlow knows its format, and the checksums in it; what is written here only keeps it quiet.
"""

import contextlib
import os
from pathlib import Path

import numpy as np

from lib.checkpoints.converted import write_flat
from lib.checkpoints.download import download, folder_lock
from lib.checkpoints.textfiles import read_json
from lib.checkpoints.weights import check_hparams, n_params, read_params

RELEASED = ("124M", "355M", "774M", "1558M")
BASE_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"
CHECKPOINT = ("checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index", "model.ckpt.meta")
TEXTS = ("encoder.json", "hparams.json", "vocab.bpe")


def fetch_missing(model_size, folder):
    """Download the files of a released size that the folder lacks."""
    def missing():
        wanted = TEXTS if (folder / "params.npy").exists() else TEXTS + CHECKPOINT
        return [name for name in wanted if not (folder / name).exists()]

    if not missing():
        return
    if model_size not in RELEASED:
        raise ValueError(what_exists(model_size, folder, missing()))
    base = os.environ.get("GPT2_BASE_URL", BASE_URL).rstrip("/")
    with folder_lock(folder):
        for name in missing():  # again: another process may have been here first
            download(f"{base}/{model_size}/{name}", folder / name)


def what_exists(model_size, folder, missing):
    """The error for a model that is neither here nor to be had."""
    if (folder / "hparams.json").exists():
        return (f"need all files of a model in {folder}, which is none of the released sizes; "
                f"still missing: {', '.join(missing)}")
    here = sorted(path.parent.name for name in ("hparams.json", "config.json")
                  for path in folder.parent.glob(f"*/{name}"))
    return (f"need one of {', '.join(here) or 'the models (there are none)'} in {folder.parent} "
            f"(--models_dir), or a released size, which is downloaded: {', '.join(RELEASED)}; "
            f"got {model_size}")


def read_hparams(folder):
    """The sizes in hparams.json, or a ValueError that says what is wrong with them."""
    return check_hparams(read_json(folder / "hparams.json"), folder / "hparams.json")


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
    flat = read_params(hparams, get_tensor, folder, dtype)
    write_flat(folder / "params.npy", flat)


@contextlib.contextmanager
def silent_stderr():
    """Nothing reaches file descriptor 2, where TensorFlow's C++ writes notes at every start."""
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
    if not data.is_file() or not (folder / "model.ckpt.index").is_file():
        raise ValueError(f"need plain files for the checkpoint in {folder}")
    if data.stat().st_size < n_bytes:
        raise ValueError(f"need {n_bytes} bytes of weights for the sizes in hparams.json, got "
                         f"{data.stat().st_size} in {data}; remove it to have it downloaded again")
    try:
        with silent_stderr():
            import tensorflow as tf  # here: seconds and 600 MB, needed once for each checkpoint
    except ImportError as error:
        raise ValueError("need TensorFlow to read OpenAI's checkpoint format, once for each model "
                         f"(pip install tensorflow), got: {error}") from None

    def read(action, what):
        try:
            with contextlib.chdir(folder):  # TensorFlow takes \ [ * ? in a path for patterns
                return action()
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0][:200]
            raise ValueError(f"need a whole TensorFlow checkpoint in {folder}, got for {what}: "
                             f"{reason}; remove model.ckpt.* to have it downloaded again") from None

    reader = read(lambda: tf.train.load_checkpoint("model.ckpt"), "model.ckpt.index")
    return lambda name: read(lambda: reader.get_tensor(f"model/{name}"), f"model/{name}")
