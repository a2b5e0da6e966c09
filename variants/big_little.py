"""Kim et al. (2023), "Speculative Decoding with Big Little Decoder" (BiLD). Not lossless.

What it adds to speculative.py: the small model decides when to ask, and the large one how much it
tolerates. A greedy method: nothing is drawn.

    small, large    callables `(ids, n_last) -> probabilities`, at temperature 1
    fallback        alpha_FB: the small model hands over where its best id has less than this
    rollback        alpha_RB: the large model takes back from the first id whose distance exceeds it
    distance        - log p_large of the small model's id (cross-entropy to a hard label)
    run             the most ids that the small model writes in a row

Decided where the authors' code differs or leaves it open: an id of the small model's is final only
when the large one has seen it, a stop id included; every id is compared, none is skipped because
the large model would have written the same; a fallback threshold of 0 is 0, not the default.
"""

import numpy as np

from speculative import Round


def write_while_sure(x, small, k, fallback):
    """Up to k best ids of the small model; the one that it is not sure of is not written."""
    guesses, rows = [], []
    while len(guesses) < k:
        row = small(x + guesses, 1)[-1]
        if row.max() < fallback:
            break
        rows.append(row)
        guesses.append(int(row.argmax()))
    return guesses, rows


def distances(guesses, p_large):
    """How far the large model is from each guess, in nats; infinite for one it excludes."""
    with np.errstate(divide="ignore"):
        return [-np.log(p_large[t][token]) for t, token in enumerate(guesses)]


def big_little_verify(guesses, p_large, rollback):
    """Keep the ids before the first that is too far off, then add the large model's best id."""
    far = (t for t, distance in enumerate(distances(guesses, p_large)) if distance > rollback)
    n = next(far, len(guesses))
    return guesses[:n] + [int(p_large[n].argmax())]


def big_little_step(x, room, rng, small, large, run=10, fallback=0.6, rollback=5.0):
    """One hand-over: the small model's run, and the large model's look at it. `rng` is not used.

    Parameters
    ----------
    x, room, rng
        As for every step: speculative.py.
    small, large : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    run : int
    fallback : float
        Above 1 the large model writes everything; 0 never falls back within a run.
    rollback : float
        0 keeps what the large model is certain of; infinity keeps everything.

    Returns
    -------
    Round

    Examples
    --------
    The small model is sure, the large one gives its id 1 / 4: 1.39 nats away.

    >>> small, large = (lambda ids, n, row=row: np.array([row] * n)
    ...                 for row in ([0.9, 0.1], [0.25, 0.75]))
    >>> for rollback in (1.3, 1.4):
    ...     big_little_step([1], 9, None, small, large, run=2, rollback=rollback).ids
    [1]
    [0, 0, 1]
    """
    guesses, rows = write_while_sure(x, small, min(run, room - 1), fallback)
    p_large = large(x + guesses, len(guesses) + 1)
    return Round(big_little_verify(guesses, p_large, rollback), guesses, rows, p_large)
