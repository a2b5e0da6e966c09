"""Read and write arrays in safetensors files.

A file consists of the header's length in 8 bytes, the header (JSON) and the numbers. The
library checks the header and writes files; NumPy reads the numbers, bfloat16 included.
"""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from lib.checkpoints.files import atomic

# {the file's type: NumPy's type}. NumPy has no bfloat16, whose bits are read as whole numbers.
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
Arrays = dict[str, np.ndarray]


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


def checked_array(arrays: Arrays, name: str, where: Path, *shape: int) -> np.ndarray:
    """Return an array by name, bfloat16 as float32; ValueError if it is absent or misshapen.

    Without `shape` any shape is allowed. An array mapped from a file is read-only.
    """
    array = arrays.get(name)
    if array is None or shape not in ((), array.shape):
        found_shape = "none" if array is None else array.shape
        raise ValueError(f"need {name} in {where}, floating-point numbers of shape "
                         f"{shape or 'any'}, got {found_shape}")
    # The bits of a bfloat16 are the upper half of the bits of a float32.
    if array.dtype == NUMPY["BF16"]:
        return (array.astype("<u4") << 16).view("<f4")
    return array


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    """Write {name: array} to a file: whole or not at all."""
    # The library writes the memory of an array as it lies, so a transposed array is copied
    # first.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic(path) as file:
        file.write(save(arrays, metadata))
