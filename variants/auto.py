"""K chosen from what was measured: Leviathan et al. (2023) Sec. 3.5, with a clock. Lossless.

What it adds to speculative.py: nobody has to know K. The papers' formula for the best K wants two
numbers, the chance alpha that a guess is kept and the costs of draft and target. The costs are
measured in the first rounds, which are text as all others; alpha is estimated as the text grows.

    c           time of one draft step / time of one target row
    pass_cost   pass_cost[K]: time of K + 1 target rows in one pass / time of one row
    alpha       kept / examined guesses, older rounds counting less

Lossless, for K depends on the past alone: on finished rounds and on a clock.
"""

import math
import time
from functools import partial
from typing import NamedTuple

from speculative import autoregressive_step, draft_and_verify
from theory.speedup import best_K

K_MAX = 8  # its pass has 9 rows: the first number that is multiplied in two groups
FORGET = 0.98  # what a round's weight is multiplied by with every further round
PRIOR = (3.0, 4.0)  # kept, examined at the start: alpha 0.75, soon outweighed by what is seen
PROBE = 32  # rounds after which a decoder that drafts nothing tries a guess; doubled if it fails
LONG = 0.05  # seconds; a pass that takes longer is measured once, a shorter one at least twice
NEAR = 1.3  # a measurement up to so many times the least of its K agrees with it


class Costs(NamedTuple):
    """What was measured, in units of one target row."""

    c: float
    pass_cost: list  # [K_MAX + 1]


class Measuring:
    """The costs of both models, from rounds that are text as all others: every K has its turn.

    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    clock : callable `() -> seconds`

    Subtle: a round that reads more than its own tokens, a prompt or a window that has moved, is not
    counted: its text does not begin with that of the round before.
    """

    def __init__(self, draft, target, clock=time.perf_counter):
        self.clock, self.spent = clock, [0.0, 0.0]  # by draft and target in this round
        self.models = [self.timed(i, model) for i, model in enumerate((draft, target))]
        self.guess, self.passes = math.inf, [[] for _ in range(K_MAX + 1)]  # seconds
        self.kept, self.examined = PRIOR
        self.x, self.seconds = None, 0.0  # the last text; what all rounds took

    def timed(self, i, model):
        def wrapper(ids, n_last):
            start = self.clock()
            rows = model(ids, n_last)
            self.spent[i] += self.clock() - start
            return rows

        return wrapper

    def next_K(self):
        """The smallest of the K measured least; None once two agree for each, or four did not."""
        wanted = 1 if min(self.passes[0], default=0) > LONG else 2
        agree = lambda times: sum(time <= NEAR * min(times) for time in times)
        unsure = [K for K, times in enumerate(self.passes)
                  if agree(times) < wanted and len(times) < 2 * wanted]
        return min(unsure, key=lambda K: len(self.passes[K]), default=None)

    def round(self, x, n_left, rng, K):
        """One round with this K, measured."""
        start, self.spent = self.clock(), [0.0, 0.0]
        round = draft_and_verify(*self.models, K)(x, n_left, rng)
        k = len(round.guesses)
        if self.x is not None and x[: len(self.x)] == self.x:
            self.passes[k].append(self.spent[1])
            self.guess = min(self.guess, self.spent[0] / k) if k else self.guess
        self.kept, self.examined = self.kept + round.n_accepted, self.examined + round.n_tested
        self.x, self.seconds = list(x), self.seconds + self.clock() - start
        return round

    def costs(self):
        """The least of what was measured."""
        row = min(self.passes[0])
        return Costs(self.guess / row, [min(times) / row for times in self.passes])


def auto_measuring(measuring, on_choice=None, on_costs=None, choosing=None):
    """As `auto`, for costs that nobody knows: measured in the first rounds, told to `on_costs`.

    `choosing(costs, on_choice, seen)` builds the step then, if it is not `auto` (best_tree.py).
    """
    step, choosing = None, choosing or partial(auto, *measuring.models)

    def first_steps(x, n_left, rng):
        nonlocal step
        if step is None and (K := measuring.next_K()) is not None:
            if on_choice:
                on_choice(K, measuring.kept / measuring.examined)
            return measuring.round(x, n_left, rng, K)
        if step is None:
            costs, seen = measuring.costs(), (measuring.kept, measuring.examined)
            step = choosing(costs, on_choice, seen)
            if on_costs:
                on_costs(costs)
        return step(x, n_left, rng)

    return first_steps


def auto(draft, target, costs, on_choice=None, seen=PRIOR):
    """Build the step of one text, which chooses its K anew for every round.

    Parameters
    ----------
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
    costs : Costs
        From `Measuring`, now or in an earlier run.
    on_choice : callable `(K, alpha) -> None`, optional
        Told every choice.
    seen : (kept, examined)
        What is known of alpha at the start.

    Returns
    -------
    callable `(x, n_left, rng) -> Round`
        Where no K pays it decodes plainly, and tries one guess after 32 rounds, after 64 more, ...

    References
    ----------
    Leviathan et al. (2023) Sec. 3.5 (best K); Sec. 3.2 (alpha is a mean over the text).
    """
    kept, examined = seen
    idle, wait = 0, PROBE  # rounds since the last guess, and until the next if no K pays
    best = best_K(kept / examined, costs.c, costs.pass_cost)

    def step(x, n_left, rng):
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
            return autoregressive_step(x, n_left, rng, target)
        round, idle = draft_and_verify(draft, target, K)(x, n_left, rng), 0
        kept, examined = kept + round.n_accepted, examined + round.n_tested
        best = best_K(kept / examined, costs.c, costs.pass_cost)
        return round

    return step
