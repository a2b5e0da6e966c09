"""Load GPT-2 as OpenAI released it: downloaded once, and converted once through TensorFlow.

    hparams.json                the sizes
    checkpoint, model.ckpt.*    the weights, in TensorFlow's format
    params.safetensors          ours: the same weights in float32, under OpenAI's names

In params.safetensors a projection is [n_out, n_in], as in memory, to be read in one piece.
"""

import contextlib
import os
from pathlib import Path

import numpy as np

from lib.checkpoints import tensors
from lib.checkpoints.download import download
from lib.checkpoints.files import folder_lock, read_json
from lib.checkpoints.weights import check_hparams, cut_params, flatten, read_flat

RELEASED = ("124M", "355M", "774M", "1558M")
BASE_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"
CHECKPOINT = ("checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index",
              "model.ckpt.meta")
TEXTS = ("encoder.json", "hparams.json", "vocab.bpe")
PARAMS = "params.safetensors"


def fetch_missing(model_size, folder):
    """Download the files of a released size that the folder lacks."""
    wanted = TEXTS if (folder / PARAMS).exists() else TEXTS + CHECKPOINT
    missing = [name for name in wanted if not (folder / name).exists()]
    if not missing:
        return
    if model_size not in RELEASED:
        raise ValueError(why_no_model(model_size, folder, missing))
    base = os.environ.get("GPT2_BASE_URL", BASE_URL).rstrip("/")
    with folder_lock(folder):
        for name in missing:
            download(f"{base}/{model_size}/{name}", folder / name)


def why_no_model(name, folder, missing):
    """Return which files a model's folder lacks, or which models there are."""
    if (folder / "hparams.json").is_file():
        return f"{folder} lacks {', '.join(missing)}"
    if (folder / "config.json").is_file():
        return f"{folder} lacks model.safetensors"
    there = sorted(path.parent.name for path in folder.parent.glob("*/*")
                   if path.name in ("hparams.json", "config.json"))
    advice = (f"Did you mean ./{name}?" if Path(name, "config.json").is_file() else
              f"A Hugging Face folder elsewhere is given by its path, such as ./{name}.")
    return (f"No model {name!r} in {folder.parent}. There: {', '.join(there) or 'none'}. "
            f"Downloadable: {', '.join(RELEASED)}. {advice}")


def read_hparams(folder):
    """Return the sizes in hparams.json."""
    return check_hparams(read_json(folder / "hparams.json"), folder / "hparams.json")


def load_flat(folder, hparams, dtype=np.float32):
    """Return all weights as one flat array; convert the checkpoint first if need be."""
    path = folder / PARAMS
    if not path.exists():
        with folder_lock(folder):
            if not path.exists():  # a different process may have been faster
                convert(folder, hparams)
    found, _ = tensors.open_arrays(path)

    def take(name, *shape):
        if name.endswith("/w"):
            return tensors.checked_array(found, name, path, *shape[::-1]).T
        return tensors.checked_array(found, name, path, *shape)

    return read_flat(hparams, take, path, dtype)


def convert(folder, hparams):
    """Write params.safetensors from a folder's TensorFlow checkpoint; ValueError if broken."""
    import tensorflow as tf  # imported here because it is slow, and needed once per model

    def take(name, *shape):
        stored = reader.get_tensor(f"model/{name}")
        if stored.shape not in (shape, (1, *shape)):  # projections have an axis of 1
            raise ValueError(f"need {name} of shape {shape}, got {stored.shape}")
        return stored.reshape(shape)

    # TensorFlow reads \ [ * ? in a path as a pattern. Only then is the folder entered, because
    # that changes the working directory of all threads.
    path = (folder / "model.ckpt").as_posix()
    is_pattern = any(sign in path for sign in "\\[*?")
    try:
        with contextlib.chdir(folder) if is_pattern else contextlib.nullcontext():
            reader = tf.train.load_checkpoint("model.ckpt" if is_pattern else path)
            flat = read_flat(hparams, take, folder, np.float32)
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        advice = "; remove model.ckpt.* to download it again" if folder.name in RELEASED else ""
        raise ValueError(f"need a whole TensorFlow checkpoint in {folder}, got: "
                         f"{str(error).strip().splitlines()[0][:200]}{advice}") from None
    write_params(folder, cut_params(flat, hparams))


def write_params(folder, params):
    """Write the tree of weights to params.safetensors."""
    arrays = {name: weight.T if name.endswith("/w") else weight
              for name, weight in flatten(params)}
    tensors.write_arrays(folder / PARAMS, arrays)
