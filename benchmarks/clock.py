"""Time what is compared in turns, repeat it, and give the median and the quartiles.

A machine has slow minutes: taking turns, all contestants get their share of them.
"""

import datetime
import os
import platform
import time

import numpy as np

from lib.backend import products


def interleaved(actions, repeats, warm=True):
    """Return {name: seconds of every repeat} of functions, in turns, after one call of each."""
    times = {name: [] for name in actions}
    for _ in range(repeats + warm):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: seconds[warm:] for name, seconds in times.items()}


def medians(actions, repeats):
    """Return {name: median seconds} of some functions, interleaved."""
    return {name: float(np.median(seconds))
            for name, seconds in interleaved(actions, repeats).items()}


def spread(values):
    """Return median and quartiles: half of all repeats lay between `low` and `high`."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "low": low, "high": high}


def machine():
    """Return what figures depend on."""
    from threadpoolctl import threadpool_info  # here: --help does without

    kernels = {library.get("architecture", "unknown") for library in threadpool_info()
               if library["user_api"] == "blas"}
    return {"date": f"{datetime.date.today()}", "cores": os.cpu_count(),
            "machine": platform.machine(), "python": platform.python_version(),
            "numpy": np.__version__, "product": products.describe(),
            "blas_kernels": " ".join(sorted(kernels))}


def reader(n_bytes=2**29):
    """Return a function that reads this many bytes of memory, as fast as all cores can.

    BLAS's product of a row and a matrix reads faster than a sum, and is what a pass consists of.
    """
    from threadpoolctl import ThreadpoolController

    matrix, row = np.ones((n_bytes // 2**14, 2**12), np.float32), np.ones((1, 2**12), np.float32)
    blas = ThreadpoolController().select(user_api="blas")

    def read():
        with blas.limit(limits=os.cpu_count()):
            return row @ matrix.T

    return read
