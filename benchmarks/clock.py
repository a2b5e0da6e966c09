"""Times that can be compared: interleaved, repeated, told as a median and a spread.

A machine has slow minutes. What is compared runs by turns, so that they fall on all alike, and the
spread says how far apart the repeats lay.
"""

import os
import platform
import time

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_info

from lib.backend import products


def interleaved(actions, repeats, warm=True):
    """{name: seconds of every repeat} of some functions, by turns, after one call of each."""
    times = {name: [] for name in actions}
    for _ in range(repeats + warm):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: seconds[warm:] for name, seconds in times.items()}


def medians(actions, repeats):
    """{name: median seconds} of some functions, interleaved."""
    return {name: float(np.median(seconds))
            for name, seconds in interleaved(actions, repeats).items()}


def spread(values):
    """Median and quartiles: half of all repeats lay between `low` and `high`."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return {"median": median, "low": low, "high": high}


def machine():
    """What figures depend on."""
    kernels = {library.get("architecture", "unknown") for library in threadpool_info()
               if library["user_api"] == "blas"}
    return {"cores": os.cpu_count(), "numpy": np.__version__, "python": platform.python_version(),
            "machine": platform.machine(), "product": products.describe(),
            "blas_kernels": " ".join(sorted(kernels))}


def reader(n_bytes=2**29):
    """A function that reads so many bytes from memory, as fast as the cores together can.

    BLAS's product of a row and a matrix reads faster than a sum, and is what a pass consists of.
    """
    matrix, row = np.ones((n_bytes // 2**14, 2**12), np.float32), np.ones((1, 2**12), np.float32)
    blas = ThreadpoolController().select(user_api="blas")

    def read():
        with blas.limit(limits=os.cpu_count()):
            return row @ matrix.T

    return read


def bandwidth(n_bytes=2**29):
    """Bytes a second that the cores together can read: the best of some times."""
    return n_bytes / min(interleaved({"read": reader(n_bytes)}, 9)["read"])
