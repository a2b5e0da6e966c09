"""params.npy: a model's weights as one flat array, and after the numbers their checksum.

They lie in the order in which `weights.build_params` asks for them, so the sizes in hparams.json
say where each one is. It needs no TensorFlow, no parsing and no copy to load.
"""

import re

import numpy as np

from lib.backend.arrays import get_backend
from lib.checkpoints.download import atomic
from lib.checkpoints.weights import cut_params, is_finite, n_params

# The one header that np.save gives it, and what begins the 16 bytes after the numbers.
HEADER = re.compile(rb"{'descr': '(<f[248])', 'fortran_order': False, 'shape': \((\d+),\), } *\n")
CHECKSUM = b"checksum"


def checksum(flat):
    """The sum of an array's bytes, taken as 64-bit words, modulo 2**64: as fast as memory is."""
    data = flat.view(np.uint8)
    n_whole = len(data) // 8 * 8
    total = int(np.add.reduce(data[:n_whole].view("<u8"), dtype=np.uint64))
    return (total + int.from_bytes(data[n_whole:].tobytes(), "little")) % 2**64


def write_flat(path, flat):
    """Write params.npy: whole or not at all."""
    with atomic(path) as file:
        np.save(file, flat)
        file.write(CHECKSUM + checksum(flat).to_bytes(8, "little"))


def load_params(folder, hparams, dtype=np.float32, backend="numpy"):
    """The tree of weights from params.npy: one read, no copy where the file has that dtype."""
    with np.errstate(over="ignore"):
        flat = read_flat(folder / "params.npy", n_params(hparams)).astype(dtype, copy=False)
    if not is_finite(flat):
        raise ValueError(f"need finite weights in {folder / 'params.npy'}, got NaN or inf")
    return cut_params(get_backend(backend).asarray(flat), hparams)


def read_flat(path, n):
    """The n numbers of params.npy; ValueError if it is no such file, or its checksum differs.

    Nothing is allocated before header and length are what they must be. The numbers are read, not
    mapped. Subtle: in memory of our own they lie in huge pages, those of a mapped file do not.
    """
    if not path.is_file():
        raise ValueError(f"need a plain file in {path}")
    with open(path, "rb") as file:
        magic, length = file.read(8), int.from_bytes(file.read(2), "little")
        if magic != b"\x93NUMPY\x01\x00":
            raise ValueError(f"need a whole array file in {path}, got no NumPy array")
        header = file.read(length)
        match = HEADER.fullmatch(header)
        if not match or match[2] != str(n).encode():
            raise ValueError(f"need {n} floating-point numbers in {path} for the sizes in "
                             f"hparams.json, got {header[:90]!r}")
        dtype = np.dtype(match[1].decode())
        n_more = path.stat().st_size - file.tell() - n * dtype.itemsize
        if n_more not in (0, 16):  # without or with a checksum
            raise ValueError(f"need a whole array file in {path}, got {n_more:+} bytes; "
                             "remove it to have it made again from the checkpoint")
        flat = np.fromfile(file, dtype, n)
        if n_more and file.read() != CHECKSUM + checksum(flat).to_bytes(8, "little"):
            raise ValueError(f"need the numbers that were written to {path}, got another checksum; "
                             "remove it to have it made again from the checkpoint")
    return flat
