"""Time functions in turns, several times; return the median and the quartiles.

A machine has slow minutes. Turns spread them evenly over all functions.
"""

import datetime
import platform
import time
from functools import partial

import numpy as np

from lib.backend import products


def interleaved(actions, repeats):
    """Call the functions in turns; return {name: the seconds of each repeat}."""
    times = {name: [] for name in actions}
    # There is one turn more than `repeats`, because the first call of a function may compile or
    # load something. Its seconds are left out at the end.
    for _ in range(1 + repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: seconds[1:] for name, seconds in times.items()}


def spread(values):
    """Return median and quartiles: half of all repeats lie between `low` and `high`."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "low": low, "high": high}


def machine(library=None):
    """Return when and where figures are measured: a sentence, and the number of cores.

    `library` names what computes the matrix products of the measured models, such as PyTorch.
    Without it they are the products of lib/backend.
    """
    from threadpoolctl import threadpool_info  # imported here because --help does not need it

    library = library or products.library_name()
    # NumPy and SciPy may bring a BLAS each, with kernels for different processors.
    every_blas = [loaded for loaded in threadpool_info() if loaded["user_api"] == "blas"]
    kernels = {blas.get("architecture", "unknown") for blas in every_blas}
    n_cores = products.n_cores()
    cores = "1 core" if n_cores == 1 else f"{n_cores} cores"
    sentence = (f"Measured on {datetime.date.today()}: {cores} ({processor()}), matrix "
                f"products by {library}, NumPy {np.__version__}, "
                f"BLAS kernels for {' '.join(sorted(kernels))}.")
    return {"cores": n_cores, "measured": sentence}


def processor():
    """Return the kind of processor as LLVM names it; without LLVM, its instruction set."""
    try:
        from llvmlite import binding  # comes with Numba
    except ImportError:
        return platform.machine()
    has_avx512 = binding.get_host_cpu_features().get("avx512f")
    name = binding.get_host_cpu_name()  # such as "znver4"
    return f"{name} with AVX-512" if has_avx512 else name


def rows_actions(model, rows, backend=None):
    """Return {n: a function that runs a pass over n rows} of a model, after a short context."""
    rng = np.random.default_rng(0)
    prompt = [1] * 64

    def read(n):
        """Run a pass over n new tokens."""
        # The backend is set before every pass, because passes of other backends may take turns.
        if backend:
            products.set_backend(backend)
        # The model computes only tokens that differ from those in its cache. Random tokens
        # differ, so all n rows are computed.
        new = rng.integers(0, model.n_vocab, n).tolist()
        return model(prompt + new, n)

    return {n: partial(read, n) for n in rows}
