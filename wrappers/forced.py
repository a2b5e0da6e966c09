"""Write the tokens that a mask forces, without a pass of any model. Lossless.

A mask (sampling.warp's `allowed`) may leave a single token after a text, which then has all the
probability in every model's row. Several such tokens in a row, a forced run, are known before
any model is asked.

    allowed    ids -> [n_vocab] of bool: the tokens that may follow
    forced     the run of forced tokens after a text

A forced run is a round by itself. Its guesses are the forced tokens, and its rows are one-hot,
so `verify` accepts all of them.
"""

from collections.abc import Collection

import numpy as np

from sampling import Allowed, one_hot_rows
from speculative import Round, Step, verify


class ForcedRound(Round):
    """Hold a round that a mask decided: no model was asked, and acceptance was certain."""


def forced_run(x: list[int], most: int, allowed: Allowed,
               stop: Collection[int] = ()) -> list[int]:
    """Return the forced run after x: at most `most` tokens, and none after a stop token."""
    forced: list[int] = []
    while len(forced) < most:
        mask = allowed(x + forced)
        if np.count_nonzero(mask) != 1:
            break
        token = int(mask.argmax())  # the index of the only True
        forced.append(token)
        if token in stop:
            break
    return forced


def with_forced_runs(step: Step, allowed: Allowed, stop: Collection[int] = ()) -> Step:
    """Return the step that writes a forced run if there is one, and calls `step` if not."""
    def step_or_run(x, n_left, rng):
        forced = forced_run(x, n_left, allowed, stop)
        if not forced:
            return step(x, n_left, rng)
        rows = one_hot_rows(forced, n_vocab=len(allowed(x)))
        # `verify` draws one number per token. A step that has its own number for each position
        # (variants/coupled.py) gives those of the run.
        if hasattr(step, "numbers_of_next"):
            rng = step.numbers_of_next(len(forced), rng)
        # A round ends with a token that is no guess: here the last forced token, which `verify`
        # draws from the last row.
        guesses = forced[:-1]
        p_draft = rows[:-1]
        ids = verify(guesses, p_draft, rows, rng)
        return ForcedRound(ids, guesses, p_draft, rows, n_accepted=len(guesses))

    return step_or_run
