"""The product of few rows: the one place where speed depends on how many rows there are."""

import functools
import math

import numpy as np
from threadpoolctl import threadpool_info


@functools.cache
def has_small_kernels():
    """Does NumPy's BLAS multiply small matrices without packing them? OpenBLAS on AVX-512 does.

    OpenBLAS calls its AVX-512 kernels by the first processor that had them.
    """
    return any(library.get("architecture") in ("SkylakeX", "Cooperlake", "SapphireRapids")
               for library in threadpool_info() if library["internal_api"] == "openblas")


def matmul(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """x @ w, and the one place where speed depends on how many rows there are.

    One row costs one reading of w. For more, BLAS first repacks w, so that the few rows of a target
    pass cost two to four times as much. With w transposed in memory (checkpoints/weights.py) there are
    three ways around that. What 5 rows cost, in units of one row, on two cores:

    * A w that fits the cache, where BLAS has kernels for small products that pack nothing: cut into
      blocks small enough for them. The bundled target 1.5, with plain products 3.5.
    * A matrix-vector product for each row and block of w, the block read from memory once and then
      from the caches: half a core's own, or, for a large w, 2**19 numbers, for OpenBLAS gives fewer
      to one thread only. The bundled target 1.8; products of 124M's size 2.0, plain ones 3.4.
    * Zero rows up to the 8 that BLAS's inner loop is wide. Products of 124M's size 2.3.
    """
    n_rows, (n_in, n_out) = x.shape[0], w.shape
    if n_rows == 1 or not isinstance(w, np.ndarray) or not w.T.flags.c_contiguous:
        return x @ w
    fits, small = w.size < 2**20, has_small_kernels()
    if n_rows <= 16 and fits and small:
        n_most = min(1200 // n_rows, 10**6 // (n_rows * n_in))  # outputs, by OpenBLAS's own limits
        return in_blocks(lambda block: x @ block.mT, w.T, math.ceil(n_out / max(1, n_most)))
    if n_rows <= (8 if small else 5):
        n_blocks = max(1, w.size // (2**17 if fits else 2**19))
        return in_blocks(lambda block: np.matvec(block[..., None, :, :], x), w.T, n_blocks)
    if n_rows >= 8:
        return x @ w
    padded = np.zeros((8, n_in), x.dtype)
    padded[:n_rows] = x
    return (padded @ w)[:n_rows]


def in_blocks(product, w, n_blocks):  # w [n_out, n_in] -> [n_rows, n_out]
    """A product with w, taken n_out // n_blocks of its rows at a time; what is left over, last.

    `product` maps a block [.., n_block, n_in] to its outputs [.., n_rows, n_block].
    """
    if n_blocks == 1:
        return product(w)
    n_out, n_in = w.shape
    n_block = n_out // n_blocks
    end = n_blocks * n_block
    y = product(w[:end].reshape(n_blocks, n_block, n_in)).transpose(1, 0, 2)
    y = y.reshape(len(y), end)
    return y if end == n_out else np.concatenate([y, product(w[end:])], axis=1)
