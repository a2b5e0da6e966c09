"""Find, download, convert and load checkpoints.

    models_dir/
        tales-large/                    one folder per model, in Hugging Face's layout:
            config.json                 the sizes
            model.safetensors           the weights
            vocab.json, merges.txt      the vocabulary
        124M/                           or in OpenAI's layout:
            hparams.json                the sizes
            encoder.json, vocab.bpe     the vocabulary
            checkpoint, model.ckpt.*    the weights, in TensorFlow's format
            params.safetensors          the same weights, which this project converts once

lib/checkpoints/ reads the files.
"""

import re
from pathlib import Path

import numpy as np

from encoder import Encoder
from gpt2 import GPT2
from lib.backend import products
from lib.backend.arrays import get_backend
from lib.checkpoints import gguf, hub, huggingface, llama, openai
from lib.checkpoints.files import read_json
from lib.checkpoints.vocabulary import read_ends, read_vocabulary
from lib.checkpoints.weights import cut_params
from llama import Llama

MODELS_DIR = Path(__file__).parent / "models"


def load_encoder_hparams_and_params(model_size: str, models_dir: str | Path, dtype=np.float32,
                                    backend: str = "numba") -> tuple[Encoder, dict, dict]:
    """Return the contents of a model folder; download and convert them first if need be.

    Parameters
    ----------
    model_size : str or path
        A released size (124M, 355M, 774M, 1558M), the name of any folder in `models_dir`, the
        path of a Hugging Face folder, or owner/name on the hub, whose folder is fetched.
    models_dir : path
    dtype : float32 or float64
        The precision of the weights. `GPT2` takes no other; tools.export reads float16 too.
    backend : "numba", "numpy" or "cupy"
        "numpy" uses NumPy alone, "cupy" a GPU. "numba" uses NumPy's arrays and compiles the
        matrix products of few rows, where Numba is installed. All models of a
        process multiply with the backend of the last call.

    Returns
    -------
    encoder : Encoder
    hparams : dict of n_vocab, n_ctx, n_embd, n_head, n_layer
    params : dict
        The tree of weights that `gpt2.GPT2` takes.

    Raises
    ------
    ValueError
        If there is no such model, one of its files is broken, or a package is missing.
    OSError
        If a download or a disk fails. GPT2_BASE_URL in the environment may name a mirror.
    """
    name = getattr(dtype, "__name__", dtype)  # np.float32 has a name, "float32" is one
    if name not in ("float16", "float32", "float64"):  # GPT2 refuses float16
        raise ValueError(f"need dtype float32 or float64, got {name}")
    folder = find_folder(model_size, models_dir)
    layout = huggingface if huggingface.is_model(folder) else openai
    if layout is openai:
        openai.fetch_missing(str(model_size), folder)
    if backend != products.backend:  # one setting of the whole process
        products.set_backend(backend)
    arrays = get_backend(backend) if backend == "cupy" else np
    hparams = layout.read_hparams(folder)
    encoder = read_encoder(folder, hparams["n_vocab"])
    flat = layout.load_all_weights(folder, hparams, dtype)  # one flat array
    params = cut_params(arrays.asarray(flat), hparams)  # the tree, as views of the array
    # Some training code pads wte to a round number of rows, which belong to no token.
    params["wte"] = params["wte"][: encoder.n_vocab]
    return encoder, hparams | {"n_vocab": encoder.n_vocab}, params


def load_model(model_size, models_dir=MODELS_DIR, dtype=np.float32, backend="numba"):
    """Return (tokenizer, model): an Encoder and a GPT2, ChatTokens and a Llama, or a wrapper.

    For the arguments see `load_encoder_hparams_and_params`. With dtype "int8" the model is the
    rounded copy of the float32 model, which is a different distribution. A model of
    transformers can also have dtype "bfloat16" or "auto". Logits that belong to no token are
    cut off.
    """
    folder = find_folder(model_size, models_dir)
    if runs_in_transformers(folder, backend):
        if not (folder / "config.json").is_file():
            raise ValueError("--backend transformers needs a Hugging Face folder, got "
                             f"{folder}; python -m tools.export writes one of a GPT-2")
        if dtype == "int8":
            raise ValueError(f"--dtype int8 needs a model of this project, and transformers "
                             f"runs {folder}: choose a different --dtype")
        # PyTorch is imported for such models only.
        from wrappers import transformers_model, transformers_tokenizer

        tokenizer = transformers_tokenizer.transformers_tokenizer(folder)
        other_model = transformers_model.TransformersModel(folder, dtype=dtype)
        # Either of the two may have more tokens than the other one: families pad their
        # embeddings differently. The distribution is then the one over tokens that exist.
        other_model.n_vocab = min(tokenizer.n_vocab, other_model.n_vocab)
        tokenizer.cut(other_model.n_vocab)
        return tokenizer, other_model
    if dtype in ("auto", "bfloat16"):
        raise ValueError(f"--dtype {dtype} needs --backend transformers: the weights of "
                         f"{folder} are read as float32 or float64, or rounded to int8")
    if dtype == "int8":
        # A default run must not load a decoder that it does not use.
        from variants.quantized import int8_copy

        tokenizer, model = load_model(model_size, models_dir, np.float32, backend)
        copy = int8_copy(model)
        # No bit of a target's row may depend on how many rows a pass has.
        return tokenizer, copy.with_params({**copy.params, "rows_alone": True})
    if folder.is_file() or huggingface.folder_model_type(folder) not in (None, "gpt2"):
        return load_chat_model(folder, dtype, backend)
    encoder, hparams, params = load_encoder_hparams_and_params(model_size, models_dir, dtype,
                                                               backend)
    return encoder, GPT2(params, hparams["n_head"])


def load_chat_model(path, dtype, backend):
    """Return (tokenizer, model) of a GGUF file, or of a Hugging Face folder for llama.py.

    Rows of logits that belong to no token are left out.
    """
    # Models other than GPT-2 need packages that GPT-2 does not need.
    from wrappers.chat_tokens import tokens_of_folder, tokens_of_gguf

    arrays = get_backend(backend)
    products.set_backend(backend)

    def convert(array):
        return arrays.array(array, dtype)  # a copy: the mapped file may change

    kind = Llama
    if path.is_file():
        file = gguf.GGUFFile(path)
        tokenizer = tokens_of_gguf(file.fields, path)
        if file.architecture == "gpt2":
            kind = GPT2
            params, n_head = gguf.read_gpt2(file, dtype, arrays.asarray)
        else:
            params, n_head = llama.read_gguf(file, convert)
    else:
        tokenizer = tokens_of_folder(path)
        params, n_head = llama.read_folder(path, read_json(path / "config.json"), convert)
    for name in {"wte", "lm_head"} & params.keys():
        params[name] = params[name][: tokenizer.n_vocab]
    tokenizer.cut(len(params["wte"]))
    return tokenizer, kind(params, n_head)


def load_pair(draft_model_size, target_model_size, models_dir=MODELS_DIR, dtype=np.float32,
              backend="numba"):
    """Return (encoder, draft, target), loaded by `load_model`; draft is None for size None.

    The encoder is the target's. A draft with a different vocabulary is wrapped, so that it is a
    model over the target's ids too; ValueError if the two have no token in common. The models
    share their weights if both names lead to one folder.
    """
    settings = (models_dir, dtype, backend)
    encoder, target = load_model(target_model_size, *settings)
    if draft_model_size is None:
        return encoder, None, target
    draft_folder = find_folder(draft_model_size, models_dir)
    if draft_folder.resolve() == find_folder(target_model_size, models_dir).resolve():
        return encoder, target.fresh(), target
    draft_encoder, draft = load_model(draft_model_size, *settings)
    if draft_encoder.symbols == encoder.symbols:
        return encoder, draft, target
    # The two vocabularies differ: the draft guesses the tokens that both have.
    from wrappers.intersection import CommonTokens, TokenLevelIntersection
    return encoder, TokenLevelIntersection(draft, CommonTokens(draft_encoder, encoder)), target


def runs_in_transformers(folder, backend):
    """Return whether transformers runs a model: on request, or if it is unknown here."""
    if backend == "transformers":
        return True
    model_type = huggingface.folder_model_type(folder)  # None for OpenAI's layout or a file
    if model_type in (None, "gpt2"):
        return False
    return llama.why_unknown(llama.with_rope(read_json(folder / "config.json"))) is not None


def find_folder(model_size, models_dir):
    """Return the folder of a model: a name in models_dir, a path, or owner/name on the hub.

    The path of a GGUF file is returned as it is; the name smollm2 means such a file.
    """
    name = str(model_size)  # model_size may be a Path
    if name == gguf.SMOLLM2 or name.lower().endswith(".gguf"):
        return gguf.gguf_path(name)
    if re.fullmatch(r"\w[\w.-]*", name):  # a plain name, not a path
        return Path(models_dir) / name
    # is_name is False if there is a folder with this path.
    folder = hub.fetched_folder(name) if hub.is_name(name) else Path(name)
    if not huggingface.is_model(folder):
        raise ValueError(f"{name!r} is not a Hugging Face folder: it needs config.json and "
                         "model.safetensors. Name a folder in models_dir without its path.")
    return folder


def read_encoder(folder, n_vocab):
    """Return the Encoder of a folder; ValueError if it has more than n_vocab symbols."""
    vocab, merges, added, files = read_vocabulary(folder)
    ends = read_ends(folder, vocab)
    try:
        encoder = Encoder(vocab, merges, ends[0], added)
    except ValueError as error:
        raise ValueError(f"{error} in {files} of {folder}") from None
    encoder.end_tokens |= {vocab[end] for end in ends if end in vocab}
    if encoder.n_vocab > n_vocab:
        raise ValueError(f"need no more symbols in {files} than n_vocab in {folder}, got "
                         f"{encoder.n_vocab} and {n_vocab}: give the model a row for each "
                         "token (in transformers: resize_token_embeddings)")
    return encoder
