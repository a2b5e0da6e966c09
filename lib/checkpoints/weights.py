"""Keep a model's weights as a tree: its keys, its order, its checks.

    hparams    the sizes: n_vocab, n_ctx, n_embd, n_head, n_layer
    params     the tree, whose keys are the argument names of gpt2.py's functions
    flat       one array of which all weights are views
"""

import math

import numpy as np

from lib.backend.arrays import get_backend


def build_params(hparams, take):
    """Return the tree of weights; `take(name, *shape)` gives each, by OpenAI's name for it."""
    n = hparams["n_embd"]

    def norm(name):
        return {"g": take(f"{name}/g", n), "b": take(f"{name}/b", n)}

    def linear(name, n_in, n_out):
        return {"w": take(f"{name}/w", n_in, n_out), "b": take(f"{name}/b", n_out)}

    def block(name):
        return {
            "ln_1": norm(f"{name}/ln_1"),
            "attn": {"c_attn": linear(f"{name}/attn/c_attn", n, 3 * n),
                     "c_proj": linear(f"{name}/attn/c_proj", n, n)},
            "ln_2": norm(f"{name}/ln_2"),
            "mlp": {"c_fc": linear(f"{name}/mlp/c_fc", n, 4 * n),
                    "c_proj": linear(f"{name}/mlp/c_proj", 4 * n, n)},
        }

    return {
        "wte": take("wte", hparams["n_vocab"], n),
        "wpe": take("wpe", hparams["n_ctx"], n),
        "blocks": [block(f"h{i}") for i in range(hparams["n_layer"])],
        "ln_f": norm("ln_f"),
    }


def cut_params(flat, hparams):
    """Return the tree as views of one flat array.

    A projection [n_in, n_out] lies transposed in memory, as lib/backend/products.py wants it.
    """
    offset = 0

    def take(name, *shape):
        nonlocal offset
        part = flat[offset : offset + math.prod(shape)]
        offset += math.prod(shape)
        return part.reshape(shape[::-1]).T if name.endswith("/w") else part.reshape(shape)

    return build_params(hparams, take)


def n_params(hparams):
    """Return the number of weights of a model of these sizes."""
    sizes = []
    build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))
    return sum(sizes)


def flatten(params, prefix=""):
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
    for name, weight in flatten(cut_params(flat, hparams)):
        noise = rng.standard_normal(weight.shape[::-1], dtype=np.float32).T
        weight[...] = 0.02 * noise + name.endswith("/g")
    return cut_params(get_backend(backend).asarray(flat), hparams)


def check_hparams(hparams, path):
    """Return the sizes of a model; ValueError unless they are positive and fit together."""
    for name in ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer"):
        if type(hparams.get(name)) is not int or hparams[name] < 1:
            raise ValueError(f"need {name} to be a whole number >= 1 in {path}, "
                             f"got {str(hparams.get(name))[:80]}")
    n_embd, n_head = hparams["n_embd"], hparams["n_head"]
    if n_embd % n_head:
        raise ValueError(f"need n_head to divide n_embd in {path}, got {n_head} and {n_embd}")
    return hparams


def read_flat(hparams, take, where, dtype):
    """Return all weights as one flat array, filled with what `take(name, shape)` returns."""
    flat = np.empty(n_params(hparams), dtype)
    for name, weight in flatten(cut_params(flat, hparams)):
        with np.errstate(over="ignore"):  # inf is refused below
            weight[...] = take(name, weight.shape)
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {where}, got NaN or inf in {name}")
    return flat
