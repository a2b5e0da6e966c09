"""Write model folders: as OpenAI ships them, with a TensorFlow checkpoint, or as converted."""

import json
import os
from pathlib import Path

import numpy as np

from encoder import Encoder, byte_characters
from lib.checkpoints.openai import write_params
from lib.checkpoints.weights import flatten, random_params

HPARAMS = dict(n_vocab=257, n_ctx=16, n_embd=12, n_head=3, n_layer=2)
SYMBOLS = [*byte_characters().values(), "ab", "<|endoftext|>"]
TINY = Encoder({symbol: token for token, symbol in enumerate(SYMBOLS)}, [("a", "b")])
TINY_HPARAMS = HPARAMS | {"n_vocab": TINY.n_vocab}


def random_weights(hparams, rng):
    """Return {OpenAI's variable name: array}; projections have a leading axis of 1."""
    return {f"model/{name}": weight[None] if name.endswith("/w") else weight
            for name, weight in flatten(random_params(hparams, rng))}


def write_checkpoint(folder, weights):
    """Write checkpoint and model.ckpt.* by the operation that TensorFlow's Saver uses."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("checkpoint", "model.ckpt.meta"):  # the loader does not read them
        (folder / name).write_bytes(b"")
    tf.raw_ops.SaveV2(prefix=str(folder / "model.ckpt"), tensor_names=[*weights],
                      shape_and_slices=[""] * len(weights), tensors=[*weights.values()])


def write_texts(folder, hparams):
    """Write hparams.json and a vocabulary: single bytes, numbers, and <|endoftext|>."""
    folder.mkdir(parents=True, exist_ok=True)
    symbols = [*byte_characters().values(), "<|endoftext|>"]
    symbols[256:256] = [f"<{i}>" for i in range(hparams["n_vocab"] - 257)]
    (folder / "hparams.json").write_text(json.dumps(hparams), "utf-8")
    (folder / "encoder.json").write_text(json.dumps({s: i for i, s in enumerate(symbols)}), "utf-8")
    (folder / "vocab.bpe").write_text("#version: 0.2\n", encoding="utf-8")


def write_model(folder, hparams=HPARAMS, seed=0):
    """Write a whole model folder; return the weights in it."""
    weights = random_weights(hparams, np.random.default_rng(seed))
    write_texts(folder, hparams)
    write_checkpoint(folder, weights)
    return weights


def write_converted(folder, hparams=HPARAMS, seed=0):
    """Write a model folder as it is after its conversion, which needs no TensorFlow."""
    write_texts(folder, hparams)
    write_params(folder, random_params(hparams, np.random.default_rng(seed)))


def files_in(folder):
    """Return {path: bytes} of all files below a folder, with paths from there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in Path(folder).rglob("*") if path.is_file()}


# ---- changes of a folder, each a function of it

def edited(name, change):
    """Return a change of a folder: of the object in a JSON file, by a function of it."""
    def edit(folder):
        found = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(change(found)), encoding="utf-8")
    return edit


def with_entries(name, **entries):
    """Return a change of a folder: a JSON file has these entries too."""
    return edited(name, lambda found: found | entries)


def rewritten(name, content):
    """Return a change of a folder: a file has this content."""
    return lambda folder: (folder / name).write_bytes(content)


def truncated(name, share=0.5):
    """Return a change of a folder: a file has only this share of its bytes."""
    def truncate(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(share * len(data))])
    return truncate


def without(name):
    return lambda folder: (folder / name).unlink()
