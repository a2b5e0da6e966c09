"""Which arrays the weights are, and how many threads multiply them."""

import numpy as np
from threadpoolctl import threadpool_limits

BACKENDS = ("numpy", "cupy")


def get_backend(name):
    """The array module of that name, `numpy` or `cupy`.

    Raises
    ------
    ValueError
        If the name is another, or CuPy or a GPU for it is missing.
    """
    if name == "numpy":
        return np
    if name != "cupy":
        raise ValueError(f"need backend {' or '.join(BACKENDS)}, got {name}")
    try:
        import cupy  # here, for only this backend needs it

        cupy.zeros(1)  # fails where there is no GPU
    except Exception as error:
        raise ValueError("need CuPy >= 14 and a GPU for backend cupy (pip install cupy-cuda13x, or "
                         f"the package for your CUDA), got: {error}") from None
    return cupy


def limit_blas_threads(params):
    """One BLAS thread for weights that fit in a cache, all of them for larger ones.

    BLAS threads wait for each other by spinning. That pays where memory sets the pace; small
    products gain nothing from it, and beside another busy process become up to 70 times slower.
    """
    if params["wte"].size + params["wpe"].size < 2**23:
        threadpool_limits(limits=1, user_api="blas")
