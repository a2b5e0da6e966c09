"""Kim et al. (2023), "Speculative Decoding with Big Little Decoder" (BiLD). Not lossless.

What it adds to speculative.py: the small model decides when to ask, and the large one how much it
tolerates. A greedy method: nothing is drawn.

    small, large    callables `(ids, n_last) -> probabilities`, at temperature 1
    fallback        alpha_FB: the small model hands over where its best id has less than this
    rollback        alpha_RB: the large model takes back from the first id whose distance exceeds it
    distance        - log p_large of the small model's id (cross-entropy to a hard label)
    run             the most tokens that the small model writes in a row

Decided where the authors' code differs or leaves it open: an id of the small model's is final only
when the large one has seen it, a stop id included; every id is compared, none is skipped because
the large model would have written the same; a fallback threshold of 0 is 0, not the default.
"""

from functools import partial

import numpy as np

from speculative import make_step
from variants.registry import Decoder, Flag, number, whole


def write_while_sure(x, k, rng, small, fallback):
    """Up to k best tokens of the small model; the one that it is not sure of is not written."""
    guesses, rows = [], []
    while len(guesses) < k:
        row = small(x + guesses, 1)[-1]
        if row.max() < fallback:
            break
        rows.append(row)
        guesses.append(int(row.argmax()))
    return guesses, rows


def distance(token, row):
    """How far the large model is from a token, in nats; infinite for one that it excludes."""
    with np.errstate(divide="ignore"):
        return -np.log(row[token])


def big_little_verify(guesses, p_small, p_large, rng, rollback):
    """Keep the tokens before the first that is too far off, then add the large model's best.

    `rng` is not used. A rollback of 0 keeps what the large model is certain of, infinity all. Here
    the large model gives the guesses 1 / 4 each: they are 1.39 nats away.

    >>> rows = np.array([[0.25, 0.75]] * 3)
    >>> [big_little_verify([0, 0], None, rows, None, rollback) for rollback in (1.3, 1.4)]
    [[1], [0, 0, 1]]
    """
    n = 0
    while n < len(guesses) and distance(guesses[n], p_large[n]) <= rollback:
        n += 1
    return guesses[:n] + [int(p_large[n].argmax())]


def build(models, run: Flag(whole, "tokens that the small model writes in a row") = 10,
          fallback: Flag(number, "the small model hands over below this probability") = 0.6,
          rollback: Flag(number, "the large model takes back beyond this distance, in nats") = 5.0):
    """Return the step. Both thresholds look at rows at temperature 1."""
    small, large = (models.probabilities(name, temperature_1=True) for name in ("draft", "target"))
    return make_step(large, run, partial(write_while_sure, small=small, fallback=fallback),
                     partial(big_little_verify, rollback=rollback))


DECODER = Decoder(
    "big_little", "Kim et al. (2023)", "https://arxiv.org/abs/2302.07863",
    idea="lets the small model write until it is unsure, and the large one take back",
    guess=write_while_sure, test=big_little_verify, build=build, greedy=True,
    exact="with --fallback above 1", exact_if=lambda settings: settings["fallback"] > 1)
