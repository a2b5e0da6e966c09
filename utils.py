"""The front door to checkpoints: find a model, download and convert it if need be, load it fast.

    models_dir/
        124M/                     one folder a model, in the layout that OpenAI ships:
            hparams.json          the sizes
            encoder.json, vocab.bpe            the vocabulary
            checkpoint, model.ckpt.*           the weights, TensorFlow's format
            params.npy            ours: the same weights as one flat array, made from the checkpoint

The files themselves are the affair of checkpoints/; a reader of the algorithm needs none of it.
"""

import re
from pathlib import Path

import numpy as np

from gpt2 import GPT2
from lib.backend import products
from lib.checkpoints import huggingface
from lib.checkpoints.converted import load_params
from lib.checkpoints.download import folder_lock
from lib.checkpoints.openai import convert, fetch_missing, read_hparams
from lib.checkpoints.textfiles import read_json, read_merges
from encoder import Encoder

MODELS_DIR = Path(__file__).parent / "models"


def load_encoder_hparams_and_params(model_size: str, models_dir: str | Path, dtype=np.float32,
                                    backend: str = "numpy", cut_vocab: bool = False
                                    ) -> tuple[Encoder, dict, dict]:
    """Everything a model folder holds; downloaded and converted first if that was not done before.

    Parameters
    ----------
    model_size : str
        A released size (124M, 355M, 774M, 1558M), the name of any folder in `models_dir`, or the
        path of a folder as Hugging Face keeps them, with config.json and model.safetensors.
    models_dir : path
    dtype : float32 or float64
    backend : "numpy" or "cupy"
    cut_vocab : bool
        Leave out rows of wte beyond the tokenizer's vocabulary: some training code pads it to a
        round number. Without this such a folder is refused. (Hugging Face's kind only.)

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
        return load_huggingface(folder, dtype, backend, cut_vocab)
    return load_openai(model_size, folder, dtype, backend)


def load_pair(draft_model_size, target_model_size, models_dir=MODELS_DIR, dtype=np.float32,
              backend="numba", cut_vocab=False):
    """Return (encoder, draft, target): two GPT2 models; the draft is None if no name is given.

    Both models share their weights if both names lead to one folder. The other arguments are
    those of `load_encoder_hparams_and_params`; backend is "numba", "numpy" or "cupy".

    Raises
    ------
    ValueError
        If the two vocabularies differ, and as `load_encoder_hparams_and_params` does.
    """
    products.choose(backend)
    encoder, hparams, params = load_encoder_hparams_and_params(
        target_model_size, models_dir, dtype, backend, cut_vocab)
    target = GPT2(params, hparams["n_head"])
    if draft_model_size is None:
        return encoder, None, target
    folders = [find_folder(size, models_dir) for size in (draft_model_size, target_model_size)]
    if folders[0].resolve() == folders[1].resolve():
        return encoder, GPT2(params, hparams["n_head"]), target
    draft_encoder, hparams, params = load_encoder_hparams_and_params(
        draft_model_size, models_dir, dtype, backend, cut_vocab)
    check_same_vocabulary(draft_encoder, encoder)
    return encoder, GPT2(params, hparams["n_head"]), target


def check_same_vocabulary(draft, target):
    """Raise a ValueError that names the first id whose symbol differs between two Encoders."""
    for id in range(max(draft.n_vocab, target.n_vocab)):
        here, there = draft.symbols.get(id), target.symbols.get(id)
        if here != there:
            raise ValueError("Draft and target use different vocabularies (first difference at "
                             f"id {id}: {here!r} / {there!r}).")


def find_folder(model_size, models_dir):
    """Where a model is: by its name in models_dir, or, for Hugging Face's kind, by any path."""
    if re.fullmatch(r"\w[\w.-]*", model_size):
        return Path(models_dir) / model_size
    if not huggingface.is_model(Path(model_size)):
        raise ValueError("need a model's name, not a path (--models_dir is where names are looked "
                         "up), or that of a folder with config.json and model.safetensors, got "
                         f"{model_size!r}")
    return Path(model_size)


def load_openai(model_size, folder, dtype, backend):
    """A folder in OpenAI's layout, fetched and converted if that was not done before."""
    fetch_missing(model_size, folder)
    hparams = read_hparams(folder)
    encoder = read_encoder(folder, hparams, "encoder.json", "vocab.bpe")
    if not (folder / "params.npy").exists():
        with folder_lock(folder):
            if not (folder / "params.npy").exists():  # another process may have been here first
                convert(folder)
    return encoder, hparams, load_params(folder, hparams, dtype, backend)


def load_huggingface(folder, dtype, backend, cut_vocab=False):
    """A folder as Hugging Face keeps them: read as it is, nothing is converted."""
    hparams = huggingface.read_hparams(folder)
    encoder = read_encoder(folder, hparams, "vocab.json", "merges.txt", cut_vocab)
    params = huggingface.load_params(folder, hparams, dtype, backend)
    params["wte"] = params["wte"][: encoder.n_vocab]
    return encoder, hparams | {"n_vocab": encoder.n_vocab}, params


def read_encoder(folder, hparams, vocab, merges, cut_vocab=False):
    """The Encoder from two files of a folder; ValueError if it has not n_vocab symbols."""
    encoder = Encoder(read_json(folder / vocab), read_merges(folder / merges))
    padding = hparams["n_vocab"] - encoder.n_vocab
    if padding and not (cut_vocab and padding > 0):
        advice = f": padded by {padding}, which --cut_vocab leaves out" if padding > 0 else ""
        raise ValueError(f"need as many symbols in {vocab} as n_vocab says in {folder}, got "
                         f"{encoder.n_vocab} and {hparams['n_vocab']}{advice}")
    return encoder
