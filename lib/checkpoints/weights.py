"""A model's weights as a tree: its keys, its order, its checks.

    hparams        the sizes: n_vocab, n_ctx, n_embd, n_head, n_layer
    build_params   the tree whose keys are the argument names of gpt2.py's functions
    cut_params     the same tree as views of one flat array
    read_params    one flat array, filled from any source of named weights, and checked
"""

import math

import numpy as np

# Sizes that are believed, and the bytes that weights, cache and mask of them may take in float32.
MAX_SIZES = dict(n_vocab=2**20, n_ctx=2**14, n_embd=2**15, n_head=2**10, n_layer=2**10)
MAX_BYTES = 2**36


def build_params(hparams, take):
    """The tree of weights whose keys are the argument names of gpt2.py's functions.

    Parameters
    ----------
    hparams : dict
        n_vocab, n_ctx, n_embd, n_layer.
    take : callable `(name, *shape) -> array`
        Gives each weight; called in a fixed order, with OpenAI's variable names (without the
        leading "model/").

    Returns
    -------
    dict
        wte, wpe, blocks (a list of ln_1, attn, ln_2, mlp), ln_f.

    Examples
    --------
    Counting GPT-2 124M's weights:

    >>> hparams = dict(n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12)
    >>> sizes = []
    >>> tree = build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))
    >>> sum(sizes)
    124439808
    """
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


def cut_params(flat, hparams, fill=None):
    """The tree of weights as views of one flat array; with `fill`, set to `fill(name, *shape)`.

    A projection [n_in, n_out] lies transposed in memory, each output's weights side by side: one
    row times such a matrix reads memory in order, and lib/backend/products.py can cut it into blocks.
    """
    offset = 0

    def take(name, *shape):
        nonlocal offset
        part = flat[offset : offset + math.prod(shape)]
        offset += math.prod(shape)
        view = part.reshape(shape[::-1]).T if name.endswith("/w") else part.reshape(shape)
        if fill:
            view[...] = fill(name, *shape)
        return view

    return build_params(hparams, take)


def n_params(hparams):
    """How many weights a model of these sizes has."""
    sizes = []
    build_params(hparams, lambda name, *shape: sizes.append(math.prod(shape)))
    return sum(sizes)


def flatten(params, prefix=""):
    """(OpenAI's variable name, weight) for every weight in the tree."""
    for key, part in params.items():
        if key == "blocks":
            for i, block in enumerate(part):
                yield from flatten(block, f"h{i}/")
        elif isinstance(part, dict):
            yield from flatten(part, f"{prefix}{key}/")
        else:
            yield prefix + key, part


def random_params(hparams, rng, dtype=np.float32):
    """Weights of a true shape and of no meaning, for tests and timing: std 0.02, gains near 1."""

    def fill(name, *shape):
        noise = 0.02 * rng.standard_normal(shape[::-1], dtype=np.float32).T
        return 1 + noise if name.endswith("/g") else noise

    return cut_params(np.empty(n_params(hparams), dtype), hparams, fill)


def check_hparams(hparams, path):
    """The sizes of a model, or a ValueError before anything of an absurd size is allocated."""
    for name, most in MAX_SIZES.items():
        if type(hparams.get(name)) is not int or not 1 <= hparams[name] <= most:
            raise ValueError(f"need {name} to be a whole number in 1 .. {most} in {path}, "
                             f"got {str(hparams.get(name))[:80]}")
    n_ctx, n_embd, n_head = hparams["n_ctx"], hparams["n_embd"], hparams["n_head"]
    if n_embd % n_head:
        raise ValueError(f"need n_head to divide n_embd in {path}, got {n_head} and {n_embd}")
    n_cache = 2 * hparams["n_layer"] * n_ctx * n_embd + n_ctx**2  # and the mask
    if 4 * (n_params(hparams) + n_cache) > MAX_BYTES:
        raise ValueError(f"need at most {MAX_BYTES} bytes for weights and cache of the sizes in "
                         f"{path}, got {4 * n_params(hparams)} + {4 * n_cache}")
    return hparams


def read_params(hparams, get_tensor, folder, dtype):
    """All weights as one flat array; ValueError for one of another shape, or not finite."""
    def fill(name, *shape):
        weight = get_tensor(name)
        if weight.shape not in (shape, (1, *shape)):  # OpenAI's projections: a leading axis of 1
            raise ValueError(f"need shape {shape} for {name} in {folder}, got {weight.shape}")
        if weight.dtype.kind != "f":
            raise ValueError(f"need floating-point numbers for {name} in {folder}, "
                             f"got {weight.dtype}")
        with np.errstate(over="ignore"):
            weight = weight.astype(dtype, copy=False)
        if not is_finite(weight):
            raise ValueError(f"need finite weights in {folder}, got NaN or inf in {name}")
        return weight.reshape(shape)

    flat = np.empty(n_params(hparams), dtype)
    cut_params(flat, hparams, fill)
    return flat


def is_finite(array):
    """Whether no number is NaN or inf. The sum of squares tells, fast, unless it is too large."""
    flat = array.ravel(order="K")
    with np.errstate(all="ignore"):
        return bool(np.isfinite(np.dot(flat, flat)) or np.isfinite(flat).all())
