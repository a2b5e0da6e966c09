"""Before NumPy loads in a test run: one BLAS thread, as in main.py; no files of the user's."""

import os
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
CACHE = tempfile.TemporaryDirectory()
os.environ["SPECULATIVE_CACHE_DIR"] = CACHE.name
