"""Which arrays the weights are, and how many threads BLAS has."""

import numpy as np
from threadpoolctl import threadpool_limits


def get_backend(name):
    """The array module of a backend: NumPy, for `numba` too, or CuPy.

    Raises
    ------
    ValueError
        If the name is another, or CuPy or a GPU for it is missing.
    """
    if name in ("numba", "numpy"):
        return np
    if name != "cupy":
        raise ValueError(f"need backend numba, numpy or cupy, got {name}")
    try:
        import cupy  # here, for only this backend needs it

        cupy.zeros(1)  # fails where there is no GPU
    except Exception as error:
        raise ValueError("need CuPy >= 14 and a GPU for backend cupy (pip install cupy-cuda13x, or "
                         f"the package for your CUDA), got: {error}") from None
    return cupy


def limit_blas_threads():
    """One thread for BLAS: its own wait for each other by spinning, ours (products.py) do not."""
    threadpool_limits(limits=1, user_api="blas")
