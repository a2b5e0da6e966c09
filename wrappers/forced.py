"""Write the tokens that a mask forces, without a pass of any model. Lossless.

A mask (sampling.warp's `allowed`) that leaves a single token after a text gives this token all
the probability, in the target's row as in the draft's. Several such tokens in a row, a forced
run, are known before any model is asked.

    allowed    ids -> [n_vocab] of bool: the tokens that may follow
    forced     the run of forced tokens after a text

A forced run is a separate round before the next round of any step. Its guesses are the forced
tokens, and its rows are one-hot, so `verify` accepts all of them.
"""

from collections.abc import Collection

import numpy as np

from sampling import Allowed, one_hot_rows
from speculative import Round, Step, verify


class ForcedRound(Round):
    """Hold a round that a mask decided: no model was asked, and no guess was tested by chance."""


def forced_run(x: list[int], most: int, allowed: Allowed,
               stop: Collection[int] = ()) -> list[int]:
    """Return the only tokens by which x can continue, at most `most` of these tokens.

    A stop token is the last.

    >>> counts_to_2 = lambda ids: (np.arange(4) == len(ids)) | (len(ids) > 2)
    >>> forced_run([0], 9, counts_to_2)
    [1, 2]
    """
    forced: list[int] = []
    while len(forced) < most and not (forced and forced[-1] in stop):
        mask = allowed(x + forced)
        if np.count_nonzero(mask) != 1:
            break
        forced.append(int(mask.argmax()))  # the index of the only True
    return forced


def with_forced_runs(step: Step, allowed: Allowed, stop: Collection[int] = ()) -> Step:
    """Return the step that writes a forced run by itself, and calls `step` where there is none."""
    def step_or_run(x, n_left, rng):
        forced = forced_run(x, n_left, allowed, stop)
        if not forced:
            return step(x, n_left, rng)
        rows = one_hot_rows(forced, n_vocab=len(allowed(x)))
        # all but the last token are guesses, and the last one takes the place of the bonus token
        guesses = forced[:-1]
        ids = verify(guesses, rows[:-1], rows, rng)
        return ForcedRound(ids, guesses, rows[:-1], rows, n_accepted=len(guesses))

    return step_or_run
