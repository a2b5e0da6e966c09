"""Load GPT-2 as OpenAI released it: downloaded once, and converted once through TensorFlow.

    hparams.json                the sizes
    checkpoint, model.ckpt.*    the weights, in TensorFlow's format
    params.safetensors          ours: the same weights in float32, under OpenAI's names

In params.safetensors a projection is [n_out, n_in], as in memory, so it is read in one piece.
"""

import os
from pathlib import Path

import numpy as np

from lib.backend.arrays import in_one_line
from lib.checkpoints import weights
from lib.checkpoints.download import download
from lib.checkpoints.files import file_lock, read_json

RELEASED = ("124M", "355M", "774M", "1558M")
BASE_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"
CHECKPOINT = ("checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index",
              "model.ckpt.meta")
TEXTS = ("encoder.json", "hparams.json", "vocab.bpe")
PARAMS = "params.safetensors"
# The published sums of files: https://github.com/openai/tiktoken has those of the vocabulary,
# which all sizes share. A checkpoint has sums inside, which TensorFlow checks.
SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "124M/model.ckpt.data-00000-of-00001":
        "2060c885360cc0cf41d7a6dbc4d24b5127aae20260c8b5ae521b5a6578407118",
}


def fetch_missing(model_size, folder):
    """Download the files of a released size that the folder lacks."""
    is_converted = (folder / PARAMS).exists()
    wanted = TEXTS if is_converted else TEXTS + CHECKPOINT
    missing = [name for name in wanted if not (folder / name).exists()]
    if not missing:
        return
    if model_size not in RELEASED:
        raise ValueError(why_no_model(model_size, folder, missing))
    # A user may name a mirror.
    base = os.environ.get("GPT2_BASE_URL", BASE_URL).rstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / ".lock"):  # two processes must not write one file
        for name in missing:
            sha256 = SHA256.get(name) or SHA256.get(f"{model_size}/{name}")
            download(f"{base}/{model_size}/{name}", folder / name, sha256)


def why_no_model(name, folder, missing):
    """Return a message: which files a model's folder lacks, or which models exist."""
    if (folder / "hparams.json").is_file():
        return f"{folder} lacks {', '.join(missing)}"
    if (folder / "config.json").is_file():
        return f"{folder} lacks model.safetensors"
    models = sorted(path.parent.name for path in folder.parent.glob("*/*")
                    if path.name in ("hparams.json", "config.json"))
    # A folder of this name may be in the working directory instead of --models_dir.
    advice = f"A Hugging Face folder elsewhere is given by its path, such as ./{name}."
    if Path(name, "config.json").is_file():
        advice = f"Did you mean ./{name}?"
    return (f"No model {name!r} in {folder.parent}. There: {', '.join(models) or 'none'}. "
            f"Downloadable: {', '.join(RELEASED)}. {advice}")


def read_hparams(folder):
    """Return the sizes in hparams.json."""
    return weights.check_hparams(read_json(folder / "hparams.json"), folder / "hparams.json")


def load_all_weights(folder, hparams, dtype=np.float32):
    """Return all weights as one flat array; convert the checkpoint first if necessary."""
    path = folder / PARAMS
    if not path.exists():
        with file_lock(folder / ".lock"):
            # A different process may have converted it while this one waited for the lock.
            if not path.exists():
                convert_checkpoint(folder, hparams)
    stored, _ = weights.open_arrays(path)
    weight_of = weights.as_stored(weights.Weights(stored, path))
    return weights.read_all_weights(hparams, weight_of, path, dtype)


def convert_checkpoint(folder, hparams):
    """Write params.safetensors from a folder's TensorFlow checkpoint; ValueError if broken."""
    import tensorflow as tf  # imported here because it is slow, and needed once per model

    def weight_of(name, *shape):
        stored = reader.get_tensor(f"model/{name}")  # `reader` is opened below
        # Projections are stored with an additional axis of length 1.
        if stored.shape not in (shape, (1, *shape)):
            raise ValueError(f"need {name} of shape {shape}, got {stored.shape}")
        return stored.reshape(shape)

    try:
        reader = tf.train.load_checkpoint((folder / "model.ckpt").as_posix())
        flat = weights.read_all_weights(hparams, weight_of, folder, np.float32)
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        raise ValueError(f"need a whole TensorFlow checkpoint in {folder}/model.ckpt.*, got: "
                         f"{in_one_line(error)}") from None
    write_params(folder, weights.cut_params(flat, hparams))


def write_params(folder, params):
    """Write the tree of weights to params.safetensors."""
    arrays = {}
    for name, weight in weights.flatten(params):
        # A projection is stored as it lies in memory, [n_out, n_in].
        arrays[name] = weight.T if name.endswith("/w") else weight
    weights.write_arrays(folder / PARAMS, arrays)
