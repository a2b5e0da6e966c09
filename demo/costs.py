"""Measure the times of a draft step and of target passes, which choose K or a tree."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from speculative import Model
from variants.registry import Costs

N_ROWS = 9  # of the longest pass that is measured: up to 8 guesses
LEAST = 3  # measurements of each pass, unless they take longer than SECONDS
SECONDS = 0.5


def measure_costs(draft: Model, target: Model, ids: Sequence[int], n_rows: int = N_ROWS,
                  clock: Callable[[], float] = time.perf_counter) -> Costs:
    """Return the Costs in seconds: of a draft step and of target passes over 1 .. n_rows rows.

    All passes take turns, and the least time of each counts, since interference can only slow a
    pass down. `ids` has at most n_ctx tokens; if it has fewer than n_rows, they are repeated.
    """
    n_ids = max(len(ids), n_rows)
    ids = (list(ids) * n_rows)[:n_ids]  # repeated, then cut
    passes = [(draft, 1), *((target, n) for n in range(1, n_rows + 1))]
    for model in (draft, target):
        model(ids, 1)  # reads the text before anything is measured
    start = clock()
    times = []  # [turns, passes]
    while len(times) < LEAST:
        if times and clock() - start >= SECONDS:  # slow passes: one turn is enough
            break
        times.append([seconds_of_pass(clock, model, ids, n) for model, n in passes])
    step, *rows = np.min(times, axis=0).tolist()
    return Costs(step, rows)


def seconds_of_pass(clock: Callable[[], float], model: Model, ids: list[int],
                    n_last: int) -> float:
    """Return the seconds of one pass over n_last rows."""
    start = clock()
    model(ids, n_last)
    return clock() - start
