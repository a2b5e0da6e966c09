"""K chosen from what was measured: Leviathan et al. (2023) Sec. 3.5, with a clock. Lossless.

What it adds to speculative.py: nobody has to know K. The papers' formula for the best K wants two
numbers, the chance alpha that a guess is kept and the costs of draft and target. The costs are
measured once, before the first token; alpha is estimated as the text grows.

    c           time of one draft step / time of one target row
    pass_cost   pass_cost[K]: time of K + 1 target rows in one pass / time of one row
    alpha       kept / examined guesses, older rounds counting less

Lossless, for K depends on the past alone: on finished rounds and on a clock.
"""

import time
from typing import NamedTuple

from speculative import autoregressive_step, draft_and_verify
from theory.speedup import best_K

K_MAX = 8  # rows beyond one width of BLAS's inner loop
FORGET = 0.98  # what a round's weight is multiplied by with every further round
PRIOR = (3.0, 4.0)  # kept, examined at the start: alpha 0.75, soon outweighed by what is seen
PROBE = 32  # rounds after which a decoder that drafts nothing tries a guess; doubled if it fails


class Costs(NamedTuple):
    """What was measured, in units of one target row."""

    c: float
    pass_cost: list  # [K_MAX + 1]
    seconds: float  # that the measuring took


def measure(draft, target, x, repeats=3, clock=time.perf_counter):
    """The costs of both models after the text x, each the least of some repeats.

    draft and target are `(ids, n_last) -> rows`; x must leave room for K_MAX + 1 more ids. The
    repeats are interleaved, so that a slow moment of the machine falls on all alike.
    """
    start = clock()

    def seconds(model, lengths, n_last):  # n_last rows wanted, so that many are computed
        began = clock()
        for n in lengths:
            model(x + x[:1] * n, n_last)
        return clock() - began

    for model in (draft, target):
        model(x, 1)
    rounds = [(seconds(draft, range(1, K_MAX + 1), 1) / K_MAX,  # one after the other, as in a round
               [seconds(target, [K + 1], K + 1) for K in range(K_MAX + 1)]) for _ in range(repeats)]
    row = [min(column) for column in zip(*(costs for _, costs in rounds))]
    return Costs(min(step for step, _ in rounds) / row[0], [cost / row[0] for cost in row],
                 clock() - start)


def auto(draft, target, costs, on_choice=None):
    """Build the step of one text, which chooses its K anew for every round.

    Parameters
    ----------
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    costs : Costs
        From `measure`.
    on_choice : callable `(K, alpha) -> None`, optional
        Told every choice.

    Returns
    -------
    callable `(x, room, rng) -> Round`
        Where no K pays it decodes plainly, and tries one guess after 32 rounds, after 64 more, ...

    References
    ----------
    Leviathan et al. (2023) Sec. 3.5 (best K); Sec. 3.2 (alpha is a mean over the text).
    """
    kept, examined = PRIOR
    idle, wait = 0, PROBE  # rounds since the last guess, and until the next if no K pays
    best = best_K(kept / examined, costs.c, costs.pass_cost)

    def step(x, room, rng):
        nonlocal kept, examined, idle, wait, best
        K = best
        if K > 0:
            wait = PROBE
        elif idle >= wait:
            K, wait = 1, 2 * wait
        if on_choice:
            on_choice(K, kept / examined)
        kept, examined = FORGET * kept, FORGET * examined
        if K == 0:
            idle += 1
            return autoregressive_step(x, room, rng, target)
        round, idle = draft_and_verify(draft, target, K)(x, room, rng), 0
        kept, examined = kept + round.n_kept, examined + round.n_examined
        best = best_K(kept / examined, costs.c, costs.pass_cost)
        return round

    return step
