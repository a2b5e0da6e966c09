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
    # A pass over n_rows rows needs n_rows ids. Even a single id is enough after n_rows copies.
    n_ids = max(len(ids), n_rows)
    copies = list(ids) * n_rows
    ids = copies[:n_ids]
    passes = [(draft, 1), *((target, n) for n in range(1, n_rows + 1))]  # (model, rows)
    # Both models read the text before anything is measured.
    for model in (draft, target):
        model(ids, 1)
    start = clock()
    times = []  # [turns, passes]
    # There are LEAST turns, or fewer if passes are slow, but at least one.
    while len(times) < LEAST:
        if times and clock() - start >= SECONDS:
            break
        times.append([seconds_of_pass(clock, model, ids, n) for model, n in passes])
    # The least time of each pass; the draft step is the first of `passes`.
    draft_step, *target_passes = np.min(times, axis=0).tolist()
    return Costs(draft_step, target_passes)


def seconds_of_pass(clock: Callable[[], float], model: Model, ids: list[int],
                    n_last: int) -> float:
    """Return the seconds of one pass over n_last rows."""
    start = clock()
    model(ids, n_last)
    return clock() - start
