"""Build a model's weights as a tree, with its keys, its order and its checks.

    hparams    the sizes: n_vocab, n_ctx, n_embd, n_head, n_layer
    params     the tree, whose keys are the argument names of gpt2.py's functions
    flat       one array of which all weights are views
    take       a function `take(name, *shape)` that returns the weight of OpenAI's name `name`
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lib.backend.arrays import get_backend

Take = Callable[..., Any]  # (name, *shape) -> a weight


def build_params(hparams: dict[str, int], take: Take) -> dict:
    """Return the tree of weights that `take` returns."""
    n = hparams["n_embd"]
    return {
        "wte": take("wte", hparams["n_vocab"], n),
        "wpe": take("wpe", hparams["n_ctx"], n),
        "blocks": [block_weights(take, f"h{i}", n) for i in range(hparams["n_layer"])],
        "ln_f": norm_weights(take, "ln_f", n),
    }


def block_weights(take: Take, name: str, n: int) -> dict:
    """Return the weights of one transformer block on rows of n numbers."""
    return {
        "ln_1": norm_weights(take, f"{name}/ln_1", n),
        "attn": {"c_attn": linear_weights(take, f"{name}/attn/c_attn", n, 3 * n),
                 "c_proj": linear_weights(take, f"{name}/attn/c_proj", n, n)},
        "ln_2": norm_weights(take, f"{name}/ln_2", n),
        "mlp": {"c_fc": linear_weights(take, f"{name}/mlp/c_fc", n, 4 * n),
                "c_proj": linear_weights(take, f"{name}/mlp/c_proj", 4 * n, n)},
    }


def norm_weights(take: Take, name: str, n: int) -> dict:
    """Return gain and bias of one layer normalisation."""
    return {"g": take(f"{name}/g", n), "b": take(f"{name}/b", n)}


def linear_weights(take: Take, name: str, n_in: int, n_out: int) -> dict:
    """Return the matrix and the bias of one affine map."""
    return {"w": take(f"{name}/w", n_in, n_out), "b": take(f"{name}/b", n_out)}


def cut_params(flat: Any, hparams: dict[str, int]) -> dict:
    """Return the tree as views of one flat array.

    A projection [n_in, n_out] is transposed in memory, as lib/backend/products.py needs it.
    """
    offset = 0

    def take(name, *shape):
        nonlocal offset
        first = offset
        offset += math.prod(shape)
        part = flat[first:offset]
        # A projection is reshaped as [n_out, n_in]: each output's weights side by side.
        return part.reshape(shape[::-1]).T if name.endswith("/w") else part.reshape(shape)

    return build_params(hparams, take)


def n_params(hparams: dict[str, int]) -> int:
    """Return the number of weights of a model of these sizes."""
    sizes: list[int] = []
    build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))  # a tree of None
    return sum(sizes)


def flatten(params: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (OpenAI's variable name, weight) for every weight in the tree."""
    for key, part in params.items():
        if key == "blocks":
            for i, block in enumerate(part):
                yield from flatten(block, f"h{i}/")
        elif isinstance(part, dict):
            yield from flatten(part, f"{prefix}{key}/")
        else:
            yield prefix + key, part


def random_params(hparams, rng, dtype=np.float32, backend="numpy"):
    """Return random weights, for tests and timing: standard deviation 0.02, gains near 1."""
    flat = np.empty(n_params(hparams), dtype)
    for name, weight in flatten(cut_params(flat, hparams)):  # views: filling them fills `flat`
        noise = rng.standard_normal(weight.shape[::-1], dtype=np.float32).T
        weight[...] = 0.02 * noise + name.endswith("/g")
    return cut_params(get_backend(backend).asarray(flat), hparams)


def check_hparams(hparams, path):
    """Return the sizes of a model; ValueError unless they are positive and fit together."""
    for name in ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer"):
        if type(hparams.get(name)) is not int or hparams[name] < 1:
            raise ValueError(f"need {name} to be a whole number >= 1 in {path}, "
                             f"got {str(hparams.get(name))[:80]}")
    if hparams["n_embd"] % hparams["n_head"]:
        raise ValueError(f"need n_head to divide n_embd in {path}, got {hparams['n_head']} and "
                         f"{hparams['n_embd']}")
    return hparams


def read_flat(hparams: dict[str, int], take: Take, where: object, dtype: Any) -> np.ndarray:
    """Return all weights as one flat array, cast to `dtype`; `where` is named in errors."""
    flat = np.empty(n_params(hparams), dtype)
    for name, weight in flatten(cut_params(flat, hparams)):  # views: filling them fills `flat`
        with np.errstate(over="ignore"):  # inf is refused below
            weight[...] = take(name, *weight.shape)
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {where}, got NaN or inf in {name}")
    return flat
