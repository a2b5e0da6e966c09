"""Before NumPy loads in a test run: one BLAS thread, as in main.py; no files of the user's."""

import os
import tempfile

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
CACHE = tempfile.TemporaryDirectory()
os.environ["SPECULATIVE_CACHE_DIR"] = CACHE.name


@pytest.fixture(scope="session", autouse=True)
def products_compiled():
    """Before any test, for Numba names its files by chance, which an enumeration forbids."""
    import numpy as np

    from lib.backend import products

    for dtype in (np.float32, np.float64):
        products.warm_up(products.GROUP, dtype)
