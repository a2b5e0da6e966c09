"""Read and write arrays in safetensors files; build the tree of a model's weights.

    hparams    the sizes: n_vocab, n_ctx, n_embd, n_head, n_layer
    params     the tree, whose keys are the argument names of gpt2.py's functions
    flat       an array of one dimension; all weights are views of it
    weight_of  a function `weight_of(name, *shape)`, which returns one weight by OpenAI's name

A safetensors file consists of the header's length in 8 bytes, the header (JSON) and the
numbers. The library checks the header and writes files; NumPy reads the numbers, bfloat16
included.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from lib.backend.arrays import get_backend
from lib.checkpoints.files import atomic

# {a safetensors file's type: NumPy's}. NumPy has no bfloat16, whose bits are read as whole
# numbers.
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
Arrays = dict[str, np.ndarray]
WeightOf = Callable[..., Any]  # (name, *shape) -> the weight of this name
# The sizes and the largest of each, far beyond every known model. All weights are listed before
# the first is read, and a file of a few bytes must not ask for a list that fills the memory.
LARGEST_SIZES = {"n_vocab": 10**8, "n_ctx": 10**8, "n_embd": 10**6, "n_head": 10**6,
                 "n_layer": 10**3}


def build_params(hparams: dict[str, int], weight_of: WeightOf) -> dict:
    """Return the tree of weights that `weight_of` returns."""
    n = hparams["n_embd"]
    return {
        "wte": weight_of("wte", hparams["n_vocab"], n),
        "wpe": weight_of("wpe", hparams["n_ctx"], n),
        "blocks": [block_weights(weight_of, f"h{i}", n) for i in range(hparams["n_layer"])],
        "ln_f": norm_weights(weight_of, "ln_f", n),
    }


def block_weights(weight_of: WeightOf, name: str, n: int) -> dict:
    """Return the weights of one transformer block on rows of n numbers."""
    return {
        "ln_1": norm_weights(weight_of, f"{name}/ln_1", n),
        "attn": {"c_attn": linear_weights(weight_of, f"{name}/attn/c_attn", n, 3 * n),
                 "c_proj": linear_weights(weight_of, f"{name}/attn/c_proj", n, n)},
        "ln_2": norm_weights(weight_of, f"{name}/ln_2", n),
        "mlp": {"c_fc": linear_weights(weight_of, f"{name}/mlp/c_fc", n, 4 * n),
                "c_proj": linear_weights(weight_of, f"{name}/mlp/c_proj", 4 * n, n)},
    }


def norm_weights(weight_of: WeightOf, name: str, n: int) -> dict:
    """Return gain and bias of one layer normalisation."""
    return {"g": weight_of(f"{name}/g", n), "b": weight_of(f"{name}/b", n)}


def linear_weights(weight_of: WeightOf, name: str, n_in: int, n_out: int) -> dict:
    """Return the matrix and the bias of one affine map."""
    return {"w": weight_of(f"{name}/w", n_in, n_out), "b": weight_of(f"{name}/b", n_out)}


def cut_params(flat: Any, hparams: dict[str, int]) -> dict:
    """Return the tree of weights as views of one flat array."""
    end = 0  # the end of the numbers that are cut so far

    def next_weight(name, *shape):
        nonlocal end
        start = end
        end += math.prod(shape)
        numbers = flat[start:end]
        # shape is [n_in, n_out]. In memory it is reversed: each output's weights side by side,
        # as lib/backend/products.py needs them.
        if name.endswith("/w"):
            return numbers.reshape(shape[::-1]).T
        return numbers.reshape(shape)

    return build_params(hparams, next_weight)


def n_params(hparams: dict[str, int]) -> int:
    """Return the number of weights of a model of these sizes."""
    tree_of_sizes = build_params(hparams, lambda name, *shape: math.prod(shape))
    return sum(size for _, size in flatten(tree_of_sizes))


def flatten(params: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (OpenAI's variable name, weight) for every weight in the tree."""
    for key, subtree in params.items():
        if key == "blocks":
            for i, block in enumerate(subtree):
                yield from flatten(block, f"h{i}/")
        elif isinstance(subtree, dict):
            yield from flatten(subtree, f"{prefix}{key}/")
        else:  # a weight
            yield prefix + key, subtree


def random_params(hparams, rng, dtype=np.float32, backend="numpy"):
    """Return random weights, for tests and timing: standard deviation 0.02, gains near 1."""
    def weight_of(name, *shape):
        # Every matrix is drawn in the reversed shape, and then transposed. For projections,
        # which are transposed in memory, this is the order of memory.
        noise = rng.standard_normal(shape[::-1], dtype=np.float32).T
        mean = 1 if name.endswith("/g") else 0  # a gain is near 1
        return 0.02 * noise + mean

    flat = read_all_weights(hparams, weight_of, "random weights", dtype)
    return cut_params(get_backend(backend).asarray(flat), hparams)


class Weights:
    """Return the weights of a file by their names; know which were never asked for.

    `arrays` has them by the file's own names, which `own_name` finds. `change(name, array)`
    returns an array as the model has it: in its dtype, on its device. Without it arrays stay as
    they are: those of a mapped file are read-only.
    """

    def __init__(self, arrays, where, change=None, own_name=str):
        self.arrays = arrays
        self.where = where
        self.change = change
        self.own_name = own_name
        self.unread = set(arrays)

    def __contains__(self, name):
        return self.own_name(name) in self.arrays

    def __call__(self, name, *shape):
        """Return a weight, bfloat16 as float32; without `shape` it may have any shape."""
        own_name = self.own_name(name)
        array = self.arrays.get(own_name)
        if array is None or shape not in ((), array.shape):
            found_shape = "none" if array is None else array.shape
            raise ValueError(f"need {own_name} in {self.where}, floating-point numbers of "
                             f"shape {shape or 'any'}, got {found_shape}")
        # The bits of a bfloat16 are the upper half of the bits of a float32.
        if array.dtype == NUMPY["BF16"]:
            array = (array.astype("<u4") << 16).view("<f4")
        if not np.isfinite(array).all():
            raise ValueError(f"need finite weights in {self.where}, got NaN or inf in {name}")
        self.unread.discard(own_name)
        return self.change(name, array) if self.change else array

    def refuse_unread(self):
        """Raise ValueError if the file has a further weight, as a different kind of model."""
        if self.unread:
            raise ValueError(f"{self.where} has a weight that a model of its kind and sizes "
                             f"does not have: {min(self.unread)!r:.80}")


def check_hparams(hparams, path):
    """Return the sizes of a model; ValueError unless they are in range and fit together."""
    for name, largest in LARGEST_SIZES.items():
        size = hparams.get(name)
        # `type`, because isinstance(True, int) is true.
        if type(size) is not int or not 1 <= size <= largest:
            raise ValueError(f"need {name} to be a whole number in 1 .. {largest} in {path}, "
                             f"got {str(size)[:80]}")
    if hparams["n_embd"] % hparams["n_head"]:
        raise ValueError(f"need n_head to divide n_embd in {path}, got {hparams['n_head']} and "
                         f"{hparams['n_embd']}")
    return hparams


def read_all_weights(hparams: dict[str, int], weight_of: WeightOf, where: object,
                     dtype: Any) -> np.ndarray:
    """Return all weights as one flat array, cast to `dtype`; errors name `where`."""
    flat = np.empty(n_params(hparams), dtype)
    # The weights are views: filling them fills `flat`.
    for name, weight in flatten(cut_params(flat, hparams)):
        # A number that is too large for `dtype` becomes inf, which is refused below.
        with np.errstate(over="ignore"):
            weight[...] = weight_of(name, *weight.shape)
        if not np.isfinite(weight).all():
            raise ValueError(f"need finite weights in {where}, got NaN or inf in {name}")
    return flat


def as_stored(array_of: WeightOf) -> WeightOf:
    """Return the `weight_of` of arrays in which a projection is stored as [n_out, n_in]."""
    def weight_of(name, *shape):
        if name.endswith("/w"):
            return array_of(name, *shape[::-1]).T
        return array_of(name, *shape)

    return weight_of


# ---- safetensors files

def open_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Return {name: array}, mapped from a file, and its metadata; ValueError if broken."""
    try:
        with safe_open(path, framework="numpy"):  # checks the header
            data = np.memmap(path, np.uint8, "r")
    except SafetensorError as error:
        raise ValueError(f"need a whole safetensors file in {path}, got: {str(error)[:200]!r}"
                         ) from None
    header_length = int.from_bytes(data[:8].tobytes(), "little")
    start = 8 + header_length  # the first byte of the numbers
    header = json.loads(data[8:start].tobytes())
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, entry in header.items():
        # An array of a different type, such as whole numbers, is not a weight, and is left out.
        if entry["dtype"] in NUMPY:
            first, end = entry["data_offsets"]  # in bytes, counted from `start`
            numbers = data[start + first : start + end].view(NUMPY[entry["dtype"]])
            arrays[name] = numbers.reshape(entry["shape"])
    return arrays, metadata


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write {name: array} to a file: whole or not at all."""
    # The library writes the memory of an array as it lies, so a transposed array is copied
    # first.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic(path) as file:
        file.write(save(arrays, metadata))
