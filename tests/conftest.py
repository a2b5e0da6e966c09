"""Before NumPy loads in a test run: one BLAS thread, as in main.py."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
