"""Leviathan et al. (2023) Appendix A.5, lenience. Not lossless.

What it adds to speculative.py: one factor. The draft's probability is multiplied by the lenience
before the test, so that more guesses are kept, and the text leans towards the draft's.

    lenience   l in (0, 1]: 1 is lossless, small values keep nearly every guess
    beta       the mass of the guesses that are kept: sum of min(p_draft, p_target / l)

The law of a token is min(p_draft, p_target / l) + (1 - beta) residual(p_target, p_draft). So no
token becomes more than 1 / l times as probable as the target would have it; but it may become as
improbable as the draft has it, which can be not at all.
"""

from functools import partial

import numpy as np

from sampling import accept, residual, sample
from speculative import check_rows, speculative_step


def lenient_verify(guesses, p_draft, p_target, rng, lenience):
    """As `verify`, with the test min(p_target / (lenience * p_draft), 1)."""
    check_rows(guesses, p_draft, p_target)
    for t, token in enumerate(guesses):
        if not accept(min(p_target[t][token] / (lenience * p_draft[t][token]), 1), rng):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def lenient_greedy_verify(guesses, p_draft, p_target, rng, lenience):
    """The same for temperature 0: keep a guess that the target likes nearly as well as its best.

    `p_target` is the target's law at temperature 1; the test is p_target >= lenience * its largest.
    """
    for t, token in enumerate(guesses):
        if p_target[t][token] < lenience * p_target[t].max():
            return guesses[:t] + [int(p_target[t].argmax())]
    return guesses + [int(p_target[-1].argmax())]


def lenient_law(p_draft, p_target, lenience):  # [n_vocab], [n_vocab] -> [n_vocab]
    """The law of one token under lenience, in closed form."""
    kept = np.minimum(p_draft, p_target / lenience)
    return kept + (1 - kept.sum()) * residual(p_target, p_draft)


def lenient_step(x, room, rng, draft, target, K, lenience, greedy=False):
    """One round.

    Parameters
    ----------
    x, room, rng
        As for every step: speculative.py.
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    K : int
    lenience : float, in (0, 1]
    greedy : bool
        Temperature 0; the target must then give its law at temperature 1.

    Returns
    -------
    Round

    Raises
    ------
    ValueError
        If not 0 < lenience <= 1.

    Examples
    --------
    The target gives the draft's only guess 0.3 of its mass: kept for certain at lenience 0.3.

    >>> draft, target = (lambda ids, n, row=row: np.array([row] * n)
    ...                  for row in ([1.0, 0.0], [0.3, 0.7]))
    >>> lenient_step([0], 3, np.random.default_rng(0), draft, target, 2, lenience=0.3).ids[:2]
    [0, 0]
    """
    if not 0 < lenience <= 1:
        raise ValueError(f"need 0 < lenience <= 1, got {lenience}")
    test = lenient_greedy_verify if greedy else lenient_verify
    return speculative_step(x, room, rng, draft, target, K, partial(test, lenience=lenience))
