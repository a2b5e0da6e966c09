"""Every outcome of a random function with its exact probability.

`law(function)` runs `function(rng)` once for each way its random decisions can fall, with an `rng`
whose uniforms are not numbers but intervals: a uniform starts as [0, 1), a comparison `u < c` cuts
it at c, and the run goes on with one of the pieces; the other pieces get runs of their own. The
code under test is the production code, unchanged.

Because a uniform remembers the piece it is in, using one twice gives dependent decisions, as it
would in truth, and so a wrong law. What else could be chance fails loudly: methods that the rng
does not have (`choice`, `integers`, ...), NumPy's and Python's own generators while a law is
computed, runs that do not end, and functions that do not repeat themselves when their decisions do.

Probabilities are exact Fractions if the rows are, else floats (errors near 1e-16).
"""

import contextlib
import math
import os
import random
from collections import defaultdict
from unittest import mock

import numpy as np

GENERATORS = {np.random: "default_rng Generator PCG64 RandomState random rand randn randint choice "
                         "uniform random_sample permutation shuffle",
              random: "Random SystemRandom random randint randrange uniform choice choices sample",
              os: "urandom"}


class Fork:
    """One decision of a run: the weights of its branches, and which one is taken."""

    def __init__(self, weights):
        self.weights, self.branch = weights, 0


class Uniform:
    """A number in [0, 1) of which only an interval is known."""

    __array_ufunc__ = None  # arrays leave comparisons to this class
    __eq__ = __bool__ = None  # `u == c` and `if u` raise TypeError, as any use not written here

    def __init__(self, rng, interval):
        self.rng, self.interval = rng, interval

    def __lt__(self, bounds):
        """`u < bounds` for a number or an array: cuts the interval at every bound inside it."""
        cuts = np.asarray(bounds)
        low, high = self.interval
        inside = cuts[(low < cuts) & (cuts < high)]
        edges = [low, *sorted(set(inside.tolist())), high]
        width = high - low
        pieces = [b - a for a, b in zip(edges, edges[1:])]
        branch = self.rng.fork(pieces if width == 1 else [piece / width for piece in pieces])
        self.interval[:] = edges[branch : branch + 2]
        return (cuts >= self.interval[1])[()]

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


class Scripted:
    """A generator that returns these uniforms, in this order."""

    def __init__(self, uniforms):
        self.uniforms = iter(uniforms)

    def random(self):
        return next(self.uniforms)


def forbidden(*args, **kwargs):
    raise AssertionError("chance must come from rng alone: a hidden generator was used")


@contextlib.contextmanager
def no_other_chance():
    """Every other source of chance raises within this block."""
    with contextlib.ExitStack() as stack:
        for module, names in GENERATORS.items():
            for name in names.split():
                stack.enter_context(mock.patch.object(module, name, forbidden))
        yield


def run_once(function, forks, max_draws):
    """Outcome and probability of the run that takes the branches in `forks`."""
    rng = Forking(forks, max_draws)
    outcome = function(rng)
    if rng.depth != len(forks):
        raise AssertionError("the same decisions led elsewhere when run again: hidden state")
    return outcome, rng.probability()


def paths(function, max_draws=1000):
    """Yield (outcome, probability, forks) for every way the decisions of `function(rng)` can fall.

    The forks are its decisions in their order: the weights of the branches, and which was taken.
    """
    forks = []
    with no_other_chance():
        first = repr(run_once(function, forks, max_draws))
        if any(repr(run_once(function, forks, max_draws)) != first for _ in range(8)):
            raise AssertionError("the same decisions gave another outcome: hidden state or chance")
        while True:
            outcome, probability = run_once(function, forks, max_draws)
            yield outcome, probability, [(fork.weights, fork.branch) for fork in forks]
            while forks and forks[-1].branch == len(forks[-1].weights) - 1:
                forks.pop()
            if not forks:
                return
            forks[-1].branch += 1


def branches(function, max_draws=1000):
    """Yield (outcome, probability) of each path."""
    for outcome, probability, _ in paths(function, max_draws):
        yield outcome, probability


def law(function, max_draws=1000):
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


def round_law(x, draft, target, k):
    """The law of one round's ids as docs/theorem1.md writes it: no sampling code, no division.

    Each kept guess counts min(p_draft, p_target), the token in place of a rejected one
    max(0, p_target - p_draft), the bonus p_target.
    """
    p_target = target(x, 1)[-1]
    if k == 0:
        return {(token,): chance for token, chance in enumerate(p_target) if chance > 0}
    p_draft = draft(x, 1)[-1]
    kept, surplus = np.minimum(p_draft, p_target), np.maximum(p_target - p_draft, 0)
    total = {(token,): chance for token, chance in enumerate(surplus) if chance > 0}
    for token in np.flatnonzero(kept > 0).tolist():
        for ids, chance in round_law([*x, token], draft, target, k - 1).items():
            total[(token, *ids)] = kept[token] * chance
    return total


def rounds_law(x, draft, target, N, K):
    """The joint law of N new ids and of the number of rounds: {(x + new ids, rounds): p}."""
    if N == 0:
        return {(tuple(x), 0): 1}
    total = defaultdict(int)
    for ids, chance in round_law(x, draft, target, min(K, N - 1)).items():
        for (text, rounds), rest in rounds_law([*x, *ids], draft, target, N - len(ids), K).items():
            total[(text, rounds + 1)] += chance * rest
    return dict(total)


def distance(law_a, law_b):
    """Largest difference of the probabilities that two laws give to one outcome; NaN if any is."""
    found = [abs(law_a.get(key, 0) - law_b.get(key, 0)) for key in law_a.keys() | law_b.keys()]
    return next((size for size in found if size != size), max(found))


def total_variation(law_a, law_b):
    """Half the sum of all differences."""
    return sum(abs(law_a.get(k, 0) - law_b.get(k, 0)) for k in law_a.keys() | law_b.keys()) / 2


def assert_same_law(got, expected, tolerance=1e-12):
    """Refuse another law than the expected one, and show the outcomes where they differ most."""
    if not distance(got, expected) <= tolerance:
        worst = sorted(got.keys() | expected.keys(),
                       key=lambda key: -abs(got.get(key, 0) - expected.get(key, 0)))[:8]
        rows = [f"    {key}: {float(got.get(key, 0)):.6f}, not {float(expected.get(key, 0)):.6f}"
                for key in worst]
        raise AssertionError("\n".join([f"another law came out, total variation "
                             f"{float(total_variation(got, expected)):.6f} away:", *rows]))
