"""The product of a few rows for about the price of one: what makes a pass over K + 1 tokens cheap.

BLAS packs a matrix anew for every product of more than one row, so five rows cost it two to four
times one row, although the weights have to be read only once. The compiled product (compiled.py)
reads each weight once, in the order in which it lies in memory, and multiplies it by every row.

    x        [n_rows, n_in]
    w        [n_in, n_out], transposed in memory: each output's weights side by side
    work     a function of a range of outputs, which computes them for all rows

Large products are shared by a few threads of ours; BLAS itself gets one. Threads of BLAS wait for
each other by spinning: beside another busy process, which takes their cores, up to a hundred times
slower. Ours take the next part when they are free, so a late one holds up nobody.
"""

import functools
import os
import threading
from queue import SimpleQueue

import numpy as np

from lib.backend.arrays import limit_blas_threads

BACKENDS = ("numba", "numpy", "cupy")
CHOSEN = {"backend": "numba"}
MAX_ROWS = 32  # with more, BLAS's packing pays
GROUP = 8  # rows multiplied at a time, at most: the sums of more do not fit the registers
SHARED = 2**20  # weights from which waking another thread pays
PART = 2**18  # weights that a thread takes at a time: some 40 microseconds
N_THREADS = min(8, os.cpu_count() or 1)  # a few use up what the memory can give
JOBS = SimpleQueue()


def matmul(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """x @ w, fast for few rows."""
    if not isinstance(w, np.ndarray):  # on a GPU
        return x @ w
    if 1 <= len(x) <= MAX_ROWS and fits(x, w) and compiler():
        return few_rows(x, w.T)
    return many_rows(x, w)


def fits(x, w):
    """Is this what the compiled product can multiply: whole vectors, one after another?"""
    return w.flags.f_contiguous and x.dtype == w.dtype and x.shape[1] * x.itemsize % 32 == 0


def few_rows(x, w):  # [n_rows, n_in], [n_out, n_in] -> [n_rows, n_out]
    """By the compiled product: a part of the weights times all rows, in groups of about a size."""
    x, y = np.ascontiguousarray(x), np.empty((len(x), len(w)), w.dtype)
    n_groups = -(-len(x) // GROUP)
    bounds = [len(x) * i // n_groups for i in range(n_groups + 1)]
    groups = [(compiler()(b - a, w.dtype), x[a:b], y[a:b]) for a, b in zip(bounds, bounds[1:])]

    def work(first, last):
        for product, rows, out in groups:
            product(rows, w, out, first, last)

    share(work, len(w), w.size)
    return y


def many_rows(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """By BLAS: for a prompt, and for everything where Numba is missing.

    Subtle: two to five rows are multiplied one at a time, for so nothing is packed, and a part of
    the weights comes from the cache for all rows but the first.
    """
    y = np.empty((len(x), w.shape[1]), np.result_type(x, w))

    def work(first, last):
        part, out = w[:, first:last], y[:, first:last]
        if 2 <= len(x) <= 5:
            for row, row_out in zip(x, out):
                row_out[:] = row.dot(part)
        else:
            out[:] = x.dot(part)  # not matmul, which lets no other thread run

    share(work, len(w.T), w.size)
    return y


def by_heads(attention, q, k, v, mask):  # [n_head, n_new, d_head], .. as attention -> as q
    """attention(q, k, v, mask), the heads of a long prompt shared as large products are.

    With BLAS's one thread they would be over a third of the time of 512 rows of GPT-2 124M.
    """
    if not isinstance(q, np.ndarray) or q.shape[1] <= MAX_ROWS:
        return attention(q, k, v, mask)
    out = np.empty_like(q)

    def work(first, last):
        out[first:last] = attention(q[first:last], k[first:last], v[first:last], mask)

    share(work, len(q), q.shape[1] * k.size // 64)  # as much as weights times 64 rows
    return out


# ---- Numba

@functools.cache
def compiler():
    """n_rows -> the compiled product; None where there is no Numba, or one that does not work."""
    if CHOSEN["backend"] != "numba":
        return None
    try:
        from lib.backend.compiled import product

        x, w, y = np.zeros((3, 1, 8), np.float32)
        product(1, w.dtype)(x, w, y, 0, 1)  # a broken one may fail only here
    except Exception:  # absent, broken, unknown to this Python: each in a way of its own
        return None
    return product


def choose(backend):
    """Say which backend is wanted, before the first product."""
    CHOSEN["backend"] = backend
    compiler.cache_clear()


def describe():
    """Return the library that multiplies small batches, with its version."""
    if CHOSEN["backend"] == "cupy":
        return "CuPy"
    if compiler() is None:
        return f"NumPy {np.__version__}"
    import numba  # here, for it may be absent

    return f"Numba {numba.__version__}"


def warm_up(dtype):
    """Compile every product that a run in this dtype may need, so that no run waits for it."""
    if compiler():
        from lib.backend.compiled import compile_all

        compile_all(GROUP, np.dtype(dtype))


# ---- threads

def share(work, n_out, size):
    """work(first, last) for all outputs: at once, or, of large weights, in parts by all threads."""
    if size < SHARED or N_THREADS == 1:
        return work(0, n_out)
    bounds = range(0, n_out, max(1, n_out * PART // size))
    parts = list(zip(bounds, [*bounds[1:], n_out]))
    left, done = iter(parts), SimpleQueue()
    for _ in range(start_threads()):
        JOBS.put((work, left, done))
    take(work, left, done)
    errors = [done.get() for _ in parts]
    for error in filter(None, errors):
        raise error


def take(work, left, done):
    """Do one part after another until none is left; report each."""
    for part in left:
        try:
            work(*part)
            done.put(None)
        except Exception as error:
            done.put(error)


@functools.cache
def start_threads():
    """Start the threads beside this one, which wait for JOBS; how many they are."""
    def serve():
        while True:
            take(*JOBS.get())

    limit_blas_threads()
    for _ in range(N_THREADS - 1):
        threading.Thread(target=serve, daemon=True).start()
    return N_THREADS - 1


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=start_threads.cache_clear)
