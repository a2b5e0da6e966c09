"""Load the models of the tables. No training text contains the prompts, OPENINGS."""

import numpy as np

from gpt2 import GPT2
from lib.backend import products
from lib.checkpoints.weights import random_params
from lib.terminal import notify
from theory.hardware import GPT2_SIZES
from utils import load_pair

LENGTH = 100  # new tokens per text, unless --N
OPENINGS = [
    "The miller's youngest daughter could count to nine and no further, and so",
    "There stood at the edge of the marsh a house with a single window, and in it lived",
    "\"If you carry me over the river,\" said the hedgehog to the goose, \"I will",
    "When the old clockmaker had been dead a year and a day, his three apprentices",
    "Far to the north, where the snow lies until midsummer, a bear once",
    "The queen lost her thimble in the well on a Monday, and by Tuesday",
]


def load_benchmark_pair(size, backend="numba"):
    """Return (encoder or None, draft, target).

    A released size has random weights, because time does not depend on their values. Its draft
    is as wide as the target and has an eighth of the layers, rounded down.
    """
    products.set_backend(backend)
    products.warm_up(np.float32, notify)
    if size == "pair":
        return load_pair("tales-small", "tales-large", backend=backend)
    hparams = GPT2_SIZES[size]
    few_layers = hparams | {"n_layer": max(1, hparams["n_layer"] // 8)}
    # The draft has its own seed, so that its weights differ from the target's.
    draft = random_model(few_layers, seed=1, backend=backend)
    target = random_model(hparams, backend=backend)
    return None, draft, target


def random_model(hparams, seed=0, backend="numba"):
    """Return a GPT2 of random weights."""
    params = random_params(hparams, np.random.default_rng(seed), backend=backend)
    return GPT2(params, hparams["n_head"])


def sizes(model):
    """Return a model's hparams."""
    return dict(n_vocab=model.n_vocab, n_ctx=model.n_ctx, n_head=model.n_head,
                n_embd=model.params["wte"].shape[1], n_layer=len(model.params["blocks"]))


def named(n_prompts, N):
    """Return the words for a table's texts, such as "6 prompts of 100 new tokens each"."""
    if n_prompts == 1:
        return f"1 prompt of {N} new tokens"
    return f"{n_prompts} prompts of {N} new tokens each"
