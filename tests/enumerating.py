"""Every outcome of a random function with its exact probability, and toy models to try it on.

`law(function)` runs `function(rng)` once for each way its random decisions can fall, with an `rng`
whose uniforms are not numbers but intervals: a uniform starts as [0, 1), a comparison `u < c` cuts
it at c, and the run goes on with one of the pieces; the other pieces get runs of their own. The
code under test is the production code, unchanged.

Because a uniform remembers the piece it is in, using one twice gives dependent decisions, as it
would in truth, and so a wrong law. What the rng does not have (`choice`, `integers`, ...) fails; so
do NumPy's global generators while a law is computed, runs that do not end, and functions that
decide differently when run again.

Probabilities are exact Fractions if the rows are, else floats (errors near 1e-16).
"""

import math
from collections import defaultdict
from fractions import Fraction
from unittest import mock

import numpy as np


class Fork:
    """One decision of a run: the weights of its branches, and which one is taken."""

    def __init__(self, weights):
        self.weights, self.branch = weights, 0


class Uniform:
    """A number in [0, 1) of which only an interval is known; scaled by `factor`."""

    __array_ufunc__ = None  # arrays leave comparisons to this class

    def __init__(self, rng, interval, factor=1):
        self.rng, self.interval, self.factor = rng, interval, factor

    def __mul__(self, factor):
        return Uniform(self.rng, self.interval, self.factor * factor)

    __rmul__ = __mul__

    def __lt__(self, bounds):
        """`u < bounds` for a number or an array: cuts the interval at every bound inside it."""
        bounds = np.asarray(bounds)
        low, high = self.interval
        cuts = [bound / self.factor for bound in bounds.ravel()]
        edges = [low, *sorted({cut for cut in cuts if low < cut < high}), high]
        width = high - low
        pieces = [b - a for a, b in zip(edges, edges[1:])]
        branch = self.rng.fork(pieces if width == 1 else [piece / width for piece in pieces])
        self.interval[:] = edges[branch : branch + 2]
        return np.array([self.interval[1] <= cut for cut in cuts]).reshape(bounds.shape)[()]

    def __gt__(self, bounds):  # for mutants and other people's functions: u >= or u > a bound
        return ~np.asarray(self < bounds)[()]

    __ge__ = __gt__
    __le__ = __lt__


class Forking:
    """The generator of one run: takes the branches that `forks` says, then always the first."""

    def __init__(self, forks, max_draws):
        self.forks, self.max_draws, self.depth, self.draws = forks, max_draws, 0, 0

    def random(self):
        self.draws += 1
        if self.draws > self.max_draws:
            raise AssertionError(f"more than {self.max_draws} draws: this run does not end")
        return Uniform(self, [0, 1])

    def fork(self, weights):
        """Which of the branches with these weights this run takes."""
        if self.depth == len(self.forks):
            self.forks.append(Fork(weights))
        fork = self.forks[self.depth]
        if fork.weights != weights:
            raise AssertionError("the same decisions led elsewhere when run again: hidden state")
        self.depth += 1
        return fork.branch

    def probability(self):
        return math.prod(fork.weights[fork.branch] for fork in self.forks)


def forbidden(*args, **kwargs):
    raise AssertionError("chance must come from rng alone: a hidden generator was used")


def branches(function, max_draws=10_000):
    """Yield (outcome, probability) for every way the decisions of `function(rng)` can fall."""
    forks = []
    hidden = [mock.patch.object(np.random, name, forbidden)
              for name in ("default_rng", "random", "rand", "choice", "uniform", "random_sample")]
    while True:
        rng = Forking(forks, max_draws)
        for patch in hidden:
            patch.start()
        try:
            outcome = function(rng)
        finally:
            for patch in hidden:
                patch.stop()
        if rng.depth != len(forks):
            raise AssertionError("the same decisions led elsewhere when run again: hidden state")
        yield outcome, rng.probability()
        while forks and forks[-1].branch == len(forks[-1].weights) - 1:
            forks.pop()
        if not forks:
            return
        forks[-1].branch += 1


def law(function, max_draws=10_000):
    """The law of `function(rng)`: {outcome: probability}. Lists become tuples."""
    total = defaultdict(int)
    for outcome, probability in branches(function, max_draws):
        total[tuple(outcome) if isinstance(outcome, list) else outcome] += probability
    return dict(total)


def expectation(function, value):
    """The mean of `value(outcome)` over the law of `function(rng)`."""
    return sum(value(outcome) * probability for outcome, probability in branches(function))


def text_law(x, model, N, stop=()):
    """The law of N tokens after x, multiplied out from the model's rows: no sampling code in it."""
    laws, done = {tuple(x): 1}, {}
    for _ in range(N):
        longer = defaultdict(int)
        for ids, probability in laws.items():
            for token, chance in enumerate(model(list(ids), 1)[-1]):
                if chance > 0:
                    (done if token in stop else longer)[(*ids, token)] = probability * chance
        laws = longer
    return {**done, **laws}


def distance(law_a, law_b):
    """Largest difference of the probabilities that two laws give to one outcome."""
    return max(abs(law_a.get(key, 0) - law_b.get(key, 0)) for key in law_a.keys() | law_b.keys())


def total_variation(law_a, law_b):
    """Half the sum of all differences."""
    return sum(abs(law_a.get(k, 0) - law_b.get(k, 0)) for k in law_a.keys() | law_b.keys()) / 2


# ---- toys

def toy(n_vocab, seed, zeros=0.3, exact=False):
    """A model whose row depends on the whole prefix: random weights, some of them zero.

    `exact` gives rows of Fractions. Rows are float64 otherwise, normalised.
    """
    rows = {}

    def row(ids):
        if ids not in rows:
            rng = np.random.Generator(np.random.PCG64([seed, len(ids), *ids]))
            weights = rng.integers(1, 10, n_vocab) * (rng.random(n_vocab) >= zeros)
            weights[rng.integers(n_vocab)] += 1  # at least one
            total = int(weights.sum())
            rows[ids] = (np.array([Fraction(int(w), total) for w in weights], dtype=object)
                         if exact else weights / total)
        return rows[ids]

    def model(ids, n_last=1):
        ids = tuple(ids)
        return np.array([row(ids[: len(ids) - i]) for i in reversed(range(n_last))])

    return model


def mapped(model, function):
    """The model with `function` applied to each of its rows."""
    return lambda ids, n_last=1: np.array([function(row) for row in model(ids, n_last)])


def one_hot(row):
    """All mass on the largest entry."""
    return np.eye(len(row))[np.argmax(row)]


def ulp_away(row):
    """The row with two entries moved by one unit in the last place, in opposite directions."""
    row, (a, b) = row.copy(), np.argsort(row)[-2:]
    row[a], row[b] = np.nextafter(row[a], 2), np.nextafter(row[b], 0)
    return row


def counted(model):
    """The model with an attribute `calls`: n_last of every call so far."""
    def wrapper(ids, n_last=1):
        wrapper.calls.append(n_last)
        return model(ids, n_last)

    wrapper.calls = []
    return wrapper
