"""The product of few rows, compiled by Numba; imported only where it is used (products.py)."""

import functools
import sys

import numpy as np
from llvmlite.binding import get_host_cpu_features
from numba import from_dtype, njit, types

from lib.backend.vectors import BYTES, add, fetch, spread, store, zeros

AHEAD = 4096  # bytes: how early memory is asked for weights
REGISTERS = 32 if get_host_cpu_features().get("avx512vl") else 16  # of 32 bytes


@functools.cache
def product(n_rows, dtype):
    """Compile y[:, first:last] = x @ w.T[:, first:last] for exactly n_rows rows of one dtype.

    One loop over the weights; each is multiplied by every row while it is in a register. Every
    number of y is summed in the same order, whatever n_rows, first and last are.

    Subtle: several outputs are summed at a time, as many as the registers hold sums of, because
    this keeps a processor busier than one; and they lie far apart, a stretch of the range each,
    because weights that are side by side in memory are fetched more slowly. With more than two
    rows to multiply, the processor no longer fetches far enough ahead by itself.
    """
    n_at_a_time = max(1, min(4, (REGISTERS - 1) // (n_rows + 1)))  # sums, weights and a row
    n_sums = n_rows * n_at_a_time

    def product(x, w, y, first, last):  # [n_rows, n_in], [n_out, n_in], [n_rows, n_out]
        n, step, ahead = last - first, BYTES // w.itemsize, AHEAD // w.itemsize
        stretch = (n + n_at_a_time - 1) // n_at_a_time
        for o in range(first, first + stretch):
            os, sums = spread(o, stretch, n - stretch, n_at_a_time), zeros(w, n_sums)
            for i in range(0, w.shape[1], step):
                sums = add(sums, x, w, os, i)
                if n_rows > 2:
                    fetch(w, os, i + ahead)
            store(y, os, sums)

    compiled = functools.partial(njit, signature(dtype), nogil=True, error_model="numpy")
    try:
        return compiled(cache=True)(product)
    except (RuntimeError, OSError):  # no folder that can be written: compiled in every process
        return compiled()(product)


def signature(dtype):
    """Return the types of a product's arguments: one for all arrays, read-only ones too.

    With a signature Numba compiles at once, and nothing when the product is called.
    """
    number = from_dtype(np.dtype(dtype))
    array = functools.partial(types.Array, number, 2, "C")
    rows = weights = array(readonly=True, aligned=False)
    return types.void(rows, weights, array(), types.intp, types.intp)


@functools.cache
def compile_all(most_rows, dtype):
    """Compile, or load, the products of 1 .. most_rows rows; say so where somebody waits."""
    stats = product(1, dtype).stats
    if stats.cache_misses and sys.stderr.isatty():
        when = "once per machine" if stats.cache_path else "at each start: no cache can be written"
        print(f"Compiling matrix products ({when}) ...", file=sys.stderr, flush=True)
    for n_rows in range(2, 1 + most_rows):
        product(n_rows, dtype)
