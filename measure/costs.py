"""Measure the times of a draft pass and of target passes, which choose K or a tree.

A pass may cost less than a pass over fewer rows: PyTorch's products of two to four rows are
slower than its products of five. So the times are not made to rise with the rows. Times are
disturbed if they do not repeat.
"""

import time
from collections.abc import Sequence

import numpy as np

from speculative import Model
from variants.registry import Costs

N_ROWS = 9  # of the longest pass that is measured: up to 8 guesses
N_TURNS = 3  # measurements of each pass, fewer if they take longer than SECONDS
SECONDS = 0.5
# Times repeat if the halves of a measurement differ by at most this share. On idle machines
# even the quartiles of single passes differ by less (benchmarks/results/speed-*.json).
SPREAD = 0.15


def measure_costs(draft: Model, target: Model, ids: Sequence[int],
                  n_rows: int = N_ROWS) -> Costs:
    """Return the Costs in seconds: of a draft pass and of target passes over 1 .. n_rows rows.

    There are N_TURNS turns, or fewer if passes are slow, but at least one.
    """
    return least_costs(timed_turns(draft, target, ids, n_rows, N_TURNS, SECONDS))


def timed_turns(draft: Model, target: Model, ids: Sequence[int], n_rows: int, n_turns: int,
                seconds: float = np.inf) -> list[list[float]]:
    """Return the seconds of a draft pass and of each target pass, [turns, 1 + n_rows].

    All passes take turns; no turn begins after `seconds`. `ids` has at most n_ctx tokens; if it
    has fewer than n_rows, they are repeated.
    """
    # A pass over n_rows rows needs n_rows ids. Even a single id is enough after n_rows copies.
    n_ids = max(len(ids), n_rows)
    copies = list(ids) * n_rows
    ids = copies[:n_ids]
    passes = [(draft, 1), *((target, n) for n in range(1, n_rows + 1))]  # (model, rows)
    # Both models read the text before anything is measured.
    for model in (draft, target):
        model(ids, 1)
    start = time.perf_counter()
    turns: list[list[float]] = []
    while len(turns) < n_turns:
        if turns and time.perf_counter() - start >= seconds:
            break
        turns.append([seconds_of_pass(model, ids, n) for model, n in passes])
    return turns


def seconds_of_pass(model: Model, ids: list[int], n_last: int) -> float:
    """Return the seconds of one pass over n_last rows."""
    start = time.perf_counter()
    model(ids, n_last)
    return time.perf_counter() - start


def least_costs(turns: Sequence[Sequence[float]]) -> Costs:
    """Return the least time of each pass, because interference can only slow a pass down."""
    draft_step, *target_passes = np.min(turns, axis=0).tolist()
    return Costs(draft_step, target_passes)


def disturbance(turns: Sequence[Sequence[float]]) -> str:
    """Return which pass took a different time in every second turn, or "" if all repeat.

    >>> disturbance([[1, 10, 12], [1, 11, 15]])
    'a pass over 2 rows took 1.25 times as long in one half of the turns as in the other'
    >>> disturbance([[1, 54, 94, 87], [1, 57, 90, 89]])
    ''
    """
    # The least times of the even and of the odd turns, which a slow minute slows alike.
    even, odd = (np.min(turns[first::2], axis=0) for first in (0, 1))
    ratios = np.maximum(even, odd) / np.minimum(even, odd)
    n_rows = int(ratios.argmax())  # 0 is the draft pass
    if ratios[n_rows] <= 1 + SPREAD:
        return ""
    name = f"a pass over {n_rows} row{'s' * (n_rows > 1)}" if n_rows else "a draft pass"
    return (f"{name} took {ratios[n_rows]:.2f} times as long in one half of the turns as in "
            "the other")
