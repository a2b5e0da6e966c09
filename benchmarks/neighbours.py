"""What a pass costs beside other busy processes: as users have it, with a browser open.

    busy    a process that keeps a core busy and does nothing else
    times   the median pass beside them / the median pass alone
"""

import contextlib
import subprocess
import sys
import time

import numpy as np

from lib.backend import products
from benchmarks.passes import rows_actions

SECONDS = 20  # at most, for one figure
COUNTS = (0, 1, 2)


@contextlib.contextmanager
def busy(n):
    """n processes beside this block that each want a core for themselves."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        time.sleep(0.5 if n else 0)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def seconds_of(action, repeats):
    """Seconds of some calls, as many as fit the time."""
    seconds, began = [], time.perf_counter()
    while len(seconds) < repeats and time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def neighbours_table(target, repeats):
    """{backend and rows: {busy processes: median ms, and how many times that is of it alone}}."""
    table = {}
    for backend in ("numba", "numpy"):
        actions = rows_actions(target, backend=backend)
        for rows in (1, 5):
            actions[rows]()
            table[f"{backend}, {rows} rows"] = row = {}
            for n in COUNTS:
                with busy(n):
                    ms = 1e3 * float(np.median(seconds_of(actions[rows], 4 * repeats)))
                row[str(n)] = {"ms": ms, "times": ms / row.get("0", {"ms": ms})["ms"]}
    products.choose("numba")
    return table
