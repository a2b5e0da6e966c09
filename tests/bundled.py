"""Load the bundled pair, in float64, once for all tests of a process."""

from functools import cache

import numpy as np

from utils import MODELS_DIR, load_encoder_hparams_and_params


@cache
def load(model_size):
    """Return encoder, hparams and params; no test may write to them."""
    return load_encoder_hparams_and_params(model_size, MODELS_DIR, np.float64)


def weights(model_size):
    """Return the arguments of a GPT2."""
    _, hparams, params = load(model_size)
    return params, hparams["n_head"]


def encoder():
    """Return the encoder of both models."""
    return load("tales-large")[0]
