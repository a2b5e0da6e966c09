"""Choose the array library, and translate GPU errors."""

import numpy as np


def get_backend(name):
    """Return the module of arrays: NumPy for the backends numba and numpy, or CuPy."""
    if name != "cupy":
        return np
    try:
        import cupy  # imported here because only this backend needs it

        # The arrays of older versions have no mT.
        if int(cupy.__version__.split(".")[0]) < 14:
            raise ImportError(f"CuPy {cupy.__version__}")
        # A product, a sum and a copy to the host need CUDA's libraries, its compiler and a GPU.
        # Each of them may be missing.
        ones = cupy.ones((2, 2), np.float32)
        (ones @ ones + ones).get()
    except Exception as error:  # each of these failures is of a different class
        raise ValueError("backend cupy needs CuPy >= 14 with CUDA's libraries (pip install "
                         "'cupy-cuda13x[ctk]', or the package for your CUDA), a GPU and its "
                         f"driver; got: {in_one_line(error)}") from None
    return cupy


def gpu_error(error):
    """Return what an error of CuPy or CUDA says, in one line; None for other errors."""
    # The package is compared by name, because its classes exist only if CuPy is installed.
    package = type(error).__module__.split(".")[0]
    if package not in ("cupy", "cupy_backends"):
        return None
    text = in_one_line(error)
    if isinstance(error, MemoryError) or "alloc" in text.lower():
        return f"need more free memory on the GPU, got: {text}"
    return f"need a working GPU, got: {text}"


def in_one_line(error, max_length=300):
    """Return the text of an error, which may be a page long, in one line."""
    words = f"{type(error).__name__}: {error}".split()
    return " ".join(words)[:max_length]
