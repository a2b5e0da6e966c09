"""Measure the times of a draft step and of target passes, which choose K or a tree."""

import time

import numpy as np

from variants.registry import Costs

N_ROWS = 9  # of the longest pass that is measured: up to 8 guesses
LEAST = 3  # measurements of each pass, unless they take longer than SECONDS
SECONDS = 0.5


def measure_costs(draft, target, ids, n_rows=N_ROWS, clock=time.perf_counter):
    """Return the Costs of one draft step and of target passes over 1 .. n_rows rows, in seconds.

    The models give probabilities. All passes take turns, and the least time of each counts, since
    interference can only slow a pass down. `ids` has at most n_ctx tokens, which are repeated if
    they are fewer than n_rows.
    """
    ids = (list(ids) * n_rows)[: max(len(ids), n_rows)]
    passes = [(draft, 1), *((target, n) for n in range(1, n_rows + 1))]
    for model in (draft, target):
        model(ids, 1)  # reads the text before anything is measured
    start, times = clock(), []
    while len(times) < LEAST and (not times or clock() - start < SECONDS):
        times.append([timed(clock, model, ids, n) for model, n in passes])
    step, *passes = np.min(times, axis=0).tolist()
    return Costs(step, passes)


def timed(clock, model, ids, n_last):
    """Return the seconds of one pass."""
    start = clock()
    model(ids, n_last)
    return clock() - start
