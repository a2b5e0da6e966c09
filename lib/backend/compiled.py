"""The product of few rows as Numba compiles it; imported only where it is used (products.py)."""

import functools

from llvmlite.binding import get_host_cpu_features
from numba import njit

from lib.backend.vectors import BYTES, add, fetch, spread, store, zeros

AHEAD = 4096  # bytes: how early memory is asked for weights
REGISTERS = 32 if get_host_cpu_features().get("avx512vl") else 16  # of 32 bytes


@functools.cache
def product(n_rows):
    """y[:, first:last] = x @ w.T[:, first:last] for exactly n_rows rows.

    One loop over the weights; each is multiplied by every row while it is in a register. Every
    number of y is summed in the same order, whatever n_rows, first and last are.

    Subtle: several outputs are summed at a time, as many as the registers hold sums of, which
    keeps a processor busier than one; and they lie far apart, a stretch of the range each, for
    weights that come from memory side by side are fetched more slowly. With more than two rows to
    multiply, it no longer fetches far enough ahead by itself.
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

    compiled = functools.partial(njit, nogil=True, error_model="numpy")
    try:
        return compiled(cache=True)(product)
    except RuntimeError:  # no folder that can be written: compiled anew in every process
        return compiled()(product)
