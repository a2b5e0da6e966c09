"""Read arrays from safetensors files, each straight to its place in memory.

A file has the header's length in 8 bytes, the header (JSON) and the numbers. The library checks the
header and writes files; NumPy reads the numbers, bfloat16 too.
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib.checkpoints.files import atomic
from lib.packages import need_package

NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # no bfloat16 in NumPy


class Stored(NamedTuple):
    """Where an array is."""

    path: Path
    dtype: str
    shape: tuple
    offset: int  # bytes from the start of the file


def open_file(path):
    """Return {name: Stored} and the metadata of a file; ValueError if it is not whole."""
    library = need_package("safetensors", "read weights")
    try:
        with library.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except library.SafetensorError as error:
        raise ValueError(f"need a whole safetensors file in {path}, got: {str(error)[:200]!r}"
                         ) from None
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return {name: Stored(path, entry["dtype"], tuple(entry["shape"]),
                         8 + length + entry["data_offsets"][0])
            for name, entry in header.items()}, metadata


def read_array(stored):
    """Return an array as it is in the file; ValueError unless it has floating-point numbers."""
    path, dtype, shape, offset = stored
    if dtype not in NUMPY:
        raise ValueError(f"need floating-point numbers ({', '.join(NUMPY)}) in {path}, got {dtype}")
    numbers = np.fromfile(path, NUMPY[dtype], math.prod(shape), offset=offset).reshape(shape)
    if dtype == "BF16":  # the upper half of a float32
        return (numbers.astype("<u4") << 16).view("<f4")
    return numbers


def read_into(out, stored, name, where):
    """Fill `out` with an array, or raise a ValueError; no copy where dtype and order agree."""
    if stored is None or stored.shape != out.shape:
        raise ValueError(f"need {name} of shape {out.shape} in {where}, got "
                         f"{stored.shape if stored else 'none'}")
    if out.flags.c_contiguous and out.dtype.str == NUMPY.get(stored.dtype):
        with open(stored.path, "rb") as file:
            file.seek(stored.offset)
            file.readinto(out)
    else:
        with np.errstate(over="ignore"):  # the caller looks for inf
            out[...] = read_array(stored)


def write_file(path, arrays, metadata=None):
    """Write {name: array} to a file: whole or not at all."""
    library = need_package("safetensors.numpy", "write weights")
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic(path) as file:
        file.write(library.save(arrays, metadata))
