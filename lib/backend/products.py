"""Multiply a few rows for about the cost of one, which makes a pass over K + 1 tokens cheap.

BLAS packs a matrix before every product of more than one row, so five rows cost two to four
times as much as one row, although the weights have to be read only once. The compiled product
(compiled.py) reads each weight once, in the order of memory, and multiplies it by every row.

    x        [n_rows, n_in]
    w        [n_in, n_out], transposed in memory: each output's weights side by side
    y        [n_rows, n_out]  x @ w

The outputs of a large product are cut into parts, which our own threads share. BLAS has one
thread meanwhile, because its threads spin while they wait for one another: a product takes up
to a hundred times as long if a different process uses their cores. Each of our threads starts
the next part when it is free, so a thread that is late delays none of the others.
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
GROUP = 8  # rows multiplied at a time, at most: more rows have more sums than registers
SHARED = 2**22  # number of multiplications from which on it pays to wake a second thread
PART_WEIGHTS = 2**18  # weights in a part, which takes a thread some 40 microseconds


def n_cores():
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # Linux: a container may give a process fewer cores
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


N_THREADS = min(8, n_cores())  # a few threads use up the memory's bandwidth

# The one setting of the whole process, because matmul(x, w) has no argument for it.
backend = "numba"


def set_backend(name):
    """Choose a backend for all products of this process from now on."""
    global backend
    if name not in BACKENDS:
        raise ValueError(f"need backend numba, numpy or cupy, got {name}")
    backend = name
    product_compiler.cache_clear()  # its result depends on the backend


def matmul(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """Return x @ w, fast for few rows."""
    if not isinstance(w, np.ndarray):  # on a GPU, or in int8 (int8.py)
        return x @ w
    has_few_rows = 1 <= len(x) <= MAX_ROWS
    is_as_compiled = w.flags.f_contiguous and x.dtype == w.dtype
    is_whole = has_whole_vectors(len(w), w.dtype)
    if has_few_rows and is_as_compiled and is_whole and product_compiler():
        return few_rows(x, w.T)
    return many_rows(x, w)


def has_whole_vectors(n_in, dtype):
    """Return whether n_in numbers are whole vectors of 32 bytes, as the compiled loop reads."""
    return n_in * dtype.itemsize % 32 == 0


def few_rows(x, w, scale=None):  # [n_rows, n_in], [n_out, n_in], [n_out] -> [n_rows, n_out]
    """Multiply by the compiled product: each part of the weights by one group after another."""
    x = np.ascontiguousarray(x)
    is_int8 = scale is not None  # weights in floats have no scale
    dtype = scale.dtype if is_int8 else x.dtype
    y = np.empty((len(x), len(w)), dtype)
    groups = compiled_groups(len(x), dtype, is_int8)

    def compute_outputs(first, last):
        for start, end, multiply in groups:
            # views: no row is copied
            multiply(x[start:end], w, scale, y[start:end], first, last)

    # Two int8 weights take as long as one float and count as one.
    size = w.size // 2 if is_int8 else w.size
    in_parallel(compute_outputs, len(w), size, len(x))
    return y


@functools.cache  # looked up 120 times in a pass
def compiled_groups(n_rows, dtype, is_int8):
    """Return (start, end, the compiled product) of each group of rows."""
    compile_product = product_compiler()
    return [(start, end, compile_product(end - start, dtype, is_int8))
            for start, end in row_groups(n_rows)]


def row_groups(n_rows):
    """Return the (start, end) of each group of rows; the groups' sizes differ by at most 1.

    >>> row_groups(5), row_groups(9)
    ([(0, 5)], [(0, 4), (4, 9)])
    """
    n_groups = -(-n_rows // GROUP)  # rounded up
    bounds = [n_rows * i // n_groups for i in range(n_groups + 1)]
    return [*zip(bounds, bounds[1:])]  # each group ends where the next one starts


def many_rows(x, w):  # [n_rows, n_in], [n_in, n_out] -> [n_rows, n_out]
    """Multiply by BLAS, for prompts, and for all products if Numba is missing.

    Subtle: two to five rows are multiplied one at a time, so that nothing is packed. The first
    row brings a part of the weights into the processor's cache, where the other rows find it.
    """
    y = np.empty((len(x), w.shape[1]), np.result_type(x, w))

    def compute_outputs(first, last):
        weights = w[:, first:last]
        out = y[:, first:last]  # a view: writing to it writes to y
        if 2 <= len(x) <= 5:
            for row, row_out in zip(x, out):
                row_out[:] = row.dot(weights)
        else:
            out[:] = x.dot(weights)  # np.matmul would keep other threads from running meanwhile

    with one_blas_thread():
        in_parallel(compute_outputs, w.shape[1], w.size, len(x), threads_beside_blas())
    return y


def threads_beside_blas():
    """Return how many threads may share BLAS's work: 1 if BLAS cannot be limited to one."""
    return N_THREADS if blas_libraries() else 1


def by_rows(attention, q, k, v, mask):  # q is [n_head, n_new, d_head] -> as q
    """Return attention(q, k, v, mask): that of many rows in parts, which the threads share.

    A row depends on no other row of q, and sees no column after its own. The scores of a part
    are few enough for a processor's cache.
    """
    n_new = q.shape[1]
    if n_new <= MAX_ROWS or not isinstance(q, np.ndarray):
        return attention(q, k, v, mask)
    y = np.empty_like(q)

    def compute_rows(first, last):
        n_later = n_new - last  # rows, and their columns
        seen = slice(k.shape[1] - n_later)
        y[:, first:last] = attention(q[:, first:last], k[:, seen], v[:, seen],
                                     mask[first:last, : mask.shape[1] - n_later])

    # Each number of a row is multiplied by one of each key, and then one of each value.
    n_weights = 2 * q[:, 0].size * k.shape[1]
    in_parallel(compute_rows, n_new, n_weights, n_new, threads_beside_blas())
    return y


def each_row_alone(attention, q, k, v, mask):  # as by_rows
    """Return attention(q, k, v, mask), each row with its bits in a pass over it alone.

    BLAS sums in a different order for a different number of rows or columns. A target in int8
    rounds its rows (int8.py), which makes a difference in the last bit a whole step.
    """
    if mask is None or not isinstance(q, np.ndarray):  # one row, or a GPU: floats, no Int8
        return attention(q, k, v, mask)
    y = np.empty_like(q)
    n_before = k.shape[1] - mask.shape[1]  # columns that every row sees
    for i, row in enumerate(mask):
        seen = n_before + np.flatnonzero(row == 0)
        end = n_before + len(seen)
        is_run = seen[-1] == end - 1  # not so below a tree's branches
        columns = slice(end) if is_run else np.concatenate([np.arange(n_before), seen])
        y[:, i : i + 1] = attention(q[:, i : i + 1], k[:, columns], v[:, columns], None)
    return y


# ---- Numba

@functools.cache
def product_compiler():
    """Return compiled.compile_product; None if Numba is not wanted, is missing or fails."""
    if backend != "numba":
        return None
    try:
        from lib.backend.compiled import compile_product  # imported here: Numba is optional

        # A broken Numba may fail only when a product runs, so one row is multiplied here.
        x = w = np.zeros((1, 8), np.float32)
        y = np.empty((1, 1), np.float32)
        compile_product(1, w.dtype, False)(x, w, None, y, 0, 1)
    except Exception:  # absent, broken, unknown to this Python: each fails in a different way
        return None
    return compile_product


def library_name():
    """Return the library that multiplies small batches, with its version."""
    if backend == "cupy":
        cupy = sys.modules["cupy"]
        gpu = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return f"CuPy {cupy.__version__} on {gpu}"
    if product_compiler():
        return f"Numba {sys.modules['numba'].__version__}"
    return f"NumPy {np.__version__}"


def warm_up(dtype, notify=None, is_int8=False):
    """Compile or load all products of a dtype; `notify` the user if Numba has to compile."""
    compile_product = product_compiler()
    dtype = np.dtype(dtype)
    if compile_product is None:
        return
    # A cache miss of the first product means that Numba has to compile: its cache on disk has
    # no products, or there is no cache, and then `cache_path` is empty.
    stats = compile_product(1, dtype, is_int8).stats
    if stats.cache_misses and notify:
        when = "once per machine" if stats.cache_path else "at each start: no cache is writable"
        weights = "int8 " if is_int8 else ""
        notify(f"Compiling {weights}matrix products ({when}) ...")
    for n_rows in range(2, GROUP + 1):
        compile_product(n_rows, dtype, is_int8)
    if is_int8:
        from lib.backend.compiled import compile_rounding

        compile_rounding(dtype)


# ---- threads

def in_parallel(compute_outputs, n_out, size, n_rows=1, n_threads=N_THREADS):
    """Run compute_outputs(first, last) for outputs 0 .. n_out - 1, a large product in parts.

    `size` is the number of weights, each multiplied n_rows times. Threads share the parts.
    """
    if size * n_rows < SHARED:
        compute_outputs(0, n_out)
        return
    n_parts = max(n_threads, size // PART_WEIGHTS)
    n_parts = -(-n_parts // n_threads) * n_threads  # rounded up, so all threads get as many
    outputs_per_part = -(-n_out // n_parts)  # rounded up
    starts = range(0, n_out, outputs_per_part)
    next_starts = iter(starts)  # shared by all threads, so that each part is computed once
    results = SimpleQueue()  # of each part: None, or its error

    def run_parts():
        for first in next_starts:
            try:
                compute_outputs(first, min(first + outputs_per_part, n_out))
                results.put(None)
            except Exception as error:
                results.put(error)

    # Ask the other threads to help. The caller computes parts too, so all parts are computed
    # even if the other threads are busy.
    for _ in range(n_threads - 1):
        job_queue().put(run_parts)
    run_parts()
    errors = [results.get() for _ in starts]  # waits until all parts are done
    for error in errors:
        if error:
            raise error


@functools.cache
def job_queue():
    """Start all threads but the caller's; return the queue of functions that they run."""
    jobs = SimpleQueue()

    def run_jobs():
        while True:
            run_parts = jobs.get()  # waits for one
            run_parts()

    for _ in range(N_THREADS - 1):
        threading.Thread(target=run_jobs, daemon=True).start()
    return jobs


# A child process has none of its parent's threads, so it must start its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=job_queue.cache_clear)


@contextmanager
def one_blas_thread():
    """Limit BLAS to one thread inside the block; restore its number of threads afterwards.

    Subtle: blocks of two threads may overlap, because a block restores only a number that it
    has changed. Let BLAS have 4 threads.
    (1) The first block sets 1. The second block finds 1, so it changes and restores nothing.
    (2) The first block ends and restores 4. If the second block is still running, its products
        have 4 threads from now on: they may be slower, and they are as correct.
    (3) The second block ends, and BLAS has 4 threads.
    """
    limited = []  # (library, its number of threads before)
    for library in blas_libraries():
        n_threads = library.get_num_threads()
        if n_threads > 1:
            library.set_num_threads(1)
            limited.append((library, n_threads))
    try:
        yield
    finally:
        for library, n_threads in limited:
            library.set_num_threads(n_threads)


@functools.cache
def blas_libraries():
    """Return the loaded BLAS libraries whose threads can be set: none without threadpoolctl."""
    try:
        from threadpoolctl import ThreadpoolController  # imported here because it is optional
    except ImportError:
        return []
    return ThreadpoolController().select(user_api="blas").lib_controllers
