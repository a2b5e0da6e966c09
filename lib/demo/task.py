"""What a run needs, loaded from main.py's flags and checked."""

import os
import sys
from functools import partial
from typing import NamedTuple

import numpy as np

import gpt2
from lib.backend import fused, products
from lib.backend.arrays import limit_blas_threads
from lib.checkpoints import huggingface
from encoder import END_OF_TEXT
from utils import find_folder, load_encoder_hparams_and_params
from variants import DECODERS
from variants.memory import read_memory
from variants.shared.tree_gpt2 import TreeGPT2

MAX_PROMPT = 2**22  # bytes; far more than any context holds
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")


class Task(NamedTuple):
    """What a run needs, loaded and checked."""

    encoder: object
    x: list  # the prompt's tokens
    stop: set
    new_draft: object  # () -> a TreeGPT2 that has read nothing yet; None: no draft needed
    new_target: object
    heads: object  # the path of the target's Medusa heads
    sampling: dict  # sampling.warp's settings
    decoder: str
    settings: dict  # the decoder's own flags
    N: int
    seed: int
    n_ctx: int  # of the models in use, the smallest
    window: bool  # continue beyond n_ctx, with a window of the text (long_context.py)
    files: tuple = ()  # the weights of the models in use

    @property
    def n_left(self):
        """New tokens wanted, or as many of them as the context has positions for."""
        return self.N if self.window else min(self.N, self.n_ctx - len(self.x))

    @property
    def is_tree(self):
        """Do the guesses of this decoder branch?"""
        return DECODERS[self.decoder].is_tree(self.settings)


def sampling_settings(args):
    """The flags that `sampling.warp` takes."""
    return {name: getattr(args, name) for name in SAMPLING}


def read_prompt(args):
    """The prompt from the flag, a file or standard input; it must be UTF-8, or is made so."""
    if args.prompt_file:
        with open(args.prompt_file, "rb") as file:
            data, source = file.read(MAX_PROMPT + 1), args.prompt_file
    elif args.prompt == "-":
        data, source = sys.stdin.buffer.read(MAX_PROMPT + 1), "standard input"
    else:
        data, source = os.fsencode(args.prompt), "--prompt"
    if len(data) > MAX_PROMPT:
        raise ValueError(f"need a prompt of at most {MAX_PROMPT} bytes from {source}, got more")
    try:
        return data.decode("utf-8", args.errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text from {source}, got byte 0x{data[error.start]:02x} at "
                         f"position {error.start}; --errors replace reads it all the same"
                         ) from None


def load_task(args):
    """The Task that the flags ask for; ValueError if its parts do not fit together."""
    prompt = read_prompt(args)
    load = partial(load_encoder_hparams_and_params, models_dir=args.models_dir,
                   dtype=np.dtype(args.dtype), backend=args.backend, cut_vocab=args.cut_vocab)
    encoder, hparams, params = load(args.target_model_size)
    limit_blas_threads()
    products.choose(args.backend)
    if args.backend == "cupy":
        fused.install(gpt2)
    new_target, new_draft = partial(TreeGPT2, params, hparams["n_head"]), None
    n_ctx = hparams["n_ctx"]
    folders = [find_folder(args.target_model_size, args.models_dir)]
    if "draft" in DECODERS[args.decoder].needs:
        folders.append(find_folder(args.draft_model_size, args.models_dir))
        draft_encoder, draft_hparams, draft_params = (
            (encoder, hparams, params) if len({folder.resolve() for folder in folders}) == 1
            else load(args.draft_model_size))  # weights that are the same are shared
        if draft_encoder.vocab != encoder.vocab:
            raise ValueError(f"need draft and target with one vocabulary, got "
                             f"{args.draft_model_size} ({draft_encoder.n_vocab} tokens) and "
                             f"{args.target_model_size} ({encoder.n_vocab} tokens); "
                             "--draft_model_size and --target_model_size choose them")
        new_draft = partial(TreeGPT2, draft_params, draft_hparams["n_head"])
        n_ctx = min(n_ctx, draft_hparams["n_ctx"])
    if path := args.settings.get("memory"):
        read_memory(path, encoder.n_vocab)  # a bad one is better known now than after the first run
    x, N = encoder.encode(prompt), args.n_tokens_to_generate
    if not x:
        raise ValueError("need a prompt of at least one token, got an empty one")
    if len(x) + min(N, 1) > n_ctx and not args.window:
        raise ValueError(f"need a prompt that leaves room for a new token in n_ctx = {n_ctx}, or "
                         f"--window, got {len(x)} tokens")
    heads, files = folders[0] / "medusa.npz", tuple(map(weights_file, folders))
    return Task(encoder=encoder, x=x, stop=stop_ids(args, encoder), new_draft=new_draft,
                new_target=new_target, heads=heads, sampling=sampling_settings(args),
                decoder=args.decoder, settings=args.settings, N=N, seed=args.seed, n_ctx=n_ctx,
                window=args.window, files=files)


def weights_file(folder):
    """The file that a model's weights were read from, or the first of them."""
    if huggingface.is_model(folder):
        return huggingface.weight_files(folder)[0]
    return folder / "params.npy"


def stop_ids(args, encoder):
    """The --stop tokens' ids, each of which must be one token."""
    if args.stop is None:
        return {encoder.end_of_text} - {None}
    stop = set()
    for text in args.stop:
        ids = [encoder.end_of_text] if text == END_OF_TEXT else encoder.encode(text)
        if len(ids) != 1:
            pieces = ", ".join(repr(encoder.decode([token])) for token in ids)
            raise ValueError(f"need --stop to be one token (it may be repeated), got {text!r}, "
                             f"which is {len(ids)}: {pieces}")
        stop.update(ids)
    return stop
