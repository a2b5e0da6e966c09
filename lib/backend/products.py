"""Multiply a few rows for about the cost of one, which makes a pass over K + 1 tokens cheap.

BLAS packs a matrix before every product of more than one row, so five rows cost two to four
times as much as one row, although the weights have to be read only once. The compiled product
(compiled.py) reads each weight once, in its order in memory, and multiplies it by every row.

    x        [n_rows, n_in]
    w        [n_in, n_out], transposed in memory: each output's weights side by side
    work     a function of a range of outputs, which computes them for all rows

Our own threads share a large product; BLAS is limited to one thread meanwhile. BLAS's threads
spin while they wait for one another, up to a hundred times slower if a different process takes
their cores. Our threads take the next part when they are free: a late thread delays nothing.
"""

import functools
import os
import sys
import threading
from contextlib import contextmanager
from queue import SimpleQueue

import numpy as np

BACKENDS = ("numba", "numpy", "cupy")
MAX_ROWS = 32  # with more rows, BLAS's packing pays off
GROUP = 8  # rows multiplied at a time, at most: the sums of more do not fit the registers
SHARED = 2**20  # number of weights above which a second thread pays off
PART = 2**18  # weights that a thread takes at a time: some 40 microseconds
N_THREADS = min(8, os.cpu_count() or 1)  # a few threads use up the memory's bandwidth

# The one setting of the whole process: callers pass weights, which determine the product.
backend = "numba"


def set_backend(name):
    """Choose a backend for all products of this process from now on."""
    global backend
    if name not in BACKENDS:
        raise ValueError(f"need backend numba, numpy or cupy, got {name}")
    backend = name
    compiled_product.cache_clear()


def matmul(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """Return x @ w, fast for few rows."""
    if not isinstance(w, np.ndarray):  # on a GPU, or in int8 (int8.py)
        return x @ w
    is_transposed = w.flags.f_contiguous and x.dtype == w.dtype
    whole_vectors = len(w) * w.itemsize % 32 == 0
    few = 1 <= len(x) <= MAX_ROWS
    if few and is_transposed and whole_vectors and compiled_product():
        return few_rows(x, w.T)
    return many_rows(x, w)


def few_rows(x, w, scale=None):  # [n_rows, n_in], [n_out, n_in], [n_out] -> [n_rows, n_out]
    """Multiply by the compiled product: a part of the weights times all rows, group by group.

    `scale` belongs to int8 weights; four of them take as long as one float and count as one.
    """
    x = np.ascontiguousarray(x)
    y = np.empty((len(x), len(w)), x.dtype)
    is_int8 = scale is not None
    product = compiled_product()
    groups = [(product(b - a, x.dtype, is_int8), x[a:b], y[a:b])  # views of y
              for a, b in row_groups(len(x))]

    def work(first, last):
        for group_product, rows, out in groups:
            group_product(rows, w, scale, out, first, last)

    in_parallel(work, len(w), w.size // 4 if is_int8 else w.size)
    return y


@functools.cache
def row_groups(n_rows):
    """Return the (start, end) of the groups of rows, which are about as large as one another.

    >>> row_groups(5), row_groups(9)
    ([(0, 5)], [(0, 4), (4, 9)])
    """
    n_groups = -(-n_rows // GROUP)  # rounded up
    bounds = [n_rows * i // n_groups for i in range(n_groups + 1)]
    return [*zip(bounds, bounds[1:])]


def many_rows(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """Multiply by BLAS, for prompts, and for all products if Numba is missing.

    Subtle: two to five rows are multiplied one at a time, so that nothing is packed, and a part
    of the weights comes from the processor's cache for all rows but the first.
    """
    y = np.empty((len(x), w.shape[1]), np.result_type(x, w))

    def work(first, last):
        part = w[:, first:last]
        out = y[:, first:last]  # a view: writing to it writes to y
        if 2 <= len(x) <= 5:
            for row, row_out in zip(x, out):
                row_out[:] = row.dot(part)
        else:
            out[:] = x.dot(part)  # not matmul, which lets no other thread run

    with one_blas_thread():
        in_parallel(work, len(w.T), w.size, n_threads=N_THREADS if blas_libraries() else 1)
    return y


# ---- Numba

@functools.cache
def compiled_product():
    """Return compiled.product, or None if Numba is not wanted, is missing or does not work."""
    if backend != "numba":
        return None
    try:
        from lib.backend.compiled import product

        x, w, y = np.zeros((3, 1, 8), np.float32)
        product(1, w.dtype)(x, w, None, y, 0, 1)  # a broken one may fail only here
    except Exception:  # absent, broken, unknown to this Python: each fails in a different way
        return None
    return product


def library_name():
    """Return the library that multiplies small batches, with its version."""
    if backend == "cupy":
        cupy = sys.modules["cupy"]
        gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"CuPy {cupy.__version__} on {gpu}"
    numba = compiled_product() and sys.modules["numba"]
    return f"Numba {numba.__version__}" if numba else f"NumPy {np.__version__}"


def warm_up(dtype, notify=None, is_int8=False):
    """Compile or load all products of a dtype; if it compiles, call `notify` with a message."""
    product = compiled_product()
    dtype = np.dtype(dtype)
    if product is None:
        return
    stats = product(1, dtype, is_int8).stats
    if stats.cache_misses and notify:
        when = "once per machine" if stats.cache_path else "at each start: no cache is writable"
        kind = "int8 " if is_int8 else ""
        notify(f"Compiling {kind}matrix products ({when}) ...")
    for n_rows in range(2, 1 + GROUP):
        product(n_rows, dtype, is_int8)


# ---- threads

def in_parallel(work, n_out, size, n_threads=N_THREADS):
    """Run work(first, last) for all outputs: at once, or in parts by threads if it is large."""
    if size < SHARED:
        return work(0, n_out)
    starts = range(0, n_out, max(1, n_out * PART // size))
    left = iter(starts)  # shared by all threads: each takes the next part when it is free
    done = SimpleQueue()  # of each part: None, or its error

    def run_parts():
        for first in left:
            try:
                work(first, min(first + starts.step, n_out))
                done.put(None)
            except Exception as error:
                done.put(error)

    for _ in range(n_threads - 1):
        job_queue().put(run_parts)
    run_parts()
    errors = [done.get() for _ in starts]  # waits until all parts are done
    for error in errors:
        if error:
            raise error


@functools.cache
def job_queue():
    """Start the threads besides the caller's; return the queue from which they take jobs."""
    jobs = SimpleQueue()

    def serve():
        while True:
            jobs.get()()

    for _ in range(N_THREADS - 1):
        threading.Thread(target=serve, daemon=True).start()
    return jobs


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=job_queue.cache_clear)


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread inside the block; restore its number of threads afterwards.

    Subtle: a block that finds one thread sets and restores nothing, so blocks may overlap.
    """
    n_threads = [(library, library.get_num_threads()) for library in blas_libraries()]
    several = [(library, n) for library, n in n_threads if n > 1]
    for library, _ in several:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, n in several:
            library.set_num_threads(n)


@functools.cache
def blas_libraries():
    """Return the loaded BLAS libraries whose threads can be set: none without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController  # imported here because it is optional
    except ImportError:
        return []
    return ThreadpoolController().select(user_api="blas").lib_controllers
