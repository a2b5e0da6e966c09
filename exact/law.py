"""Enumerate every outcome of a random function, with its exact probability.

`law(function)` runs `function(rng)` once for every way its random decisions can turn out. The
uniforms of that `rng` are not numbers but intervals: a uniform starts as [0, 1), a comparison
`u < c` cuts it at c, this run continues with one piece, and other runs with the other pieces.
The code under test is the production code, unchanged.

A uniform keeps its piece, so two comparisons of one uniform are dependent, as with a real number.
Code that uses a number twice therefore has a wrong distribution. An error is raised if the code
calls a method that the rng does not have (`choice`, `integers`, ...), uses the generators of
NumPy, Python or PyTorch, does not end, or returns different results for the same decisions.

Probabilities are exact Fractions if the rows are; otherwise floats, with errors near 1e-16.
"""

import contextlib
import math
import pkgutil
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from speculative import Model

Experiment = Callable[[Any], Any]  # function(rng) -> outcome
RoundLaw = Callable[[Any, int], dict]  # (x, k) -> {the ids of a round: probability}
GENERATORS = {  # module: what draws random numbers in it
    "numpy.random": "default_rng Generator PCG64 RandomState random rand randn randint choice "
                    "uniform random_sample permutation shuffle exponential gumbel multinomial",
    "random": "Random SystemRandom random randint randrange uniform choice choices sample "
              "shuffle",
    "os": "urandom",
    "torch": "rand rand_like randn randn_like randint randint_like randperm multinomial "
             "bernoulli Tensor.multinomial Tensor.exponential_ Tensor.uniform_ "
             "Tensor.bernoulli Tensor.bernoulli_ Tensor.normal_ Tensor.random_",
}
MAX_DRAWS = 1000  # of one run
RERUNS = 8  # of the first run: if their results differ, there is hidden randomness
ONLY_COMPARED = "a number of rng is an interval here: it can only be compared, u < bound"
NOT_DETERMINISTIC = ("not deterministic: the same random decisions gave a different result "
                     "(hidden state or randomness)")


class Uniform:
    """Represent a number in [0, 1) by an interval that contains it."""

    __array_ufunc__ = None  # arrays leave comparisons to this class

    def __init__(self, rng, interval):
        self.rng = rng
        self.interval = interval  # [low, high], cut by comparisons

    def __repr__(self):
        low, high = self.interval
        return f"u in [{float(low):.4g}, {float(high):.4g})"

    def __lt__(self, bounds):
        """Return `u < bounds` for a number or an array; cut the interval at bounds inside."""
        if isinstance(bounds, Uniform):
            self.refuse()
        cuts = np.asarray(bounds)
        low, high = self.interval
        # bounds inside the interval cut it; this run takes one piece, and later runs the others
        inside = cuts[(low < cuts) & (cuts < high)]
        edges = [low, *sorted(set(inside.tolist())), high]
        width = high - low
        pieces = [b - a for a, b in zip(edges, edges[1:])]
        # a uniform that was not cut has width 1; 1 / 1 would be a float, even with Fractions
        branch = self.rng.fork(pieces if width == 1 else [piece / width for piece in pieces])
        # piece i lies between edges i and i + 1
        self.interval[:] = edges[branch : branch + 2]
        return (cuts >= self.interval[1])[()]  # [()]: a single bool for a single bound

    def __gt__(self, bounds):  # a point has no probability: `>` is `>=`, and `<=` is `<`
        return ~np.asarray(self < bounds)[()]  # the opposite of (self < bounds)

    __ge__ = __gt__
    __le__ = __lt__

    def refuse(self, *args, **kwargs):
        raise TypeError(ONLY_COMPARED)

    __eq__ = __bool__ = __float__ = __int__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = refuse


class Uniforms(np.ndarray):
    """Hold Uniforms in an array that is compared elementwise, with tensors too."""

    __array_priority__ = 2000  # PyTorch's tensors have 1000


class Forking:
    """Generate the uniforms of one run: follow `forks`, then always the first branch.

    forks    the decisions in order: (the weights of the branches, the number of the one taken)
    """

    def __init__(self, forks):
        self.forks = forks
        self.depth = 0  # decisions so far
        self.draws = 0

    def random(self, size=None):
        """Return one uniform, or an array of independent ones."""
        if size is not None:
            uniforms = np.empty(size, dtype=object).view(Uniforms)
            # element by element, because NumPy would look for axes in a list
            uniforms.flat = [self.random() for _ in range(uniforms.size)]
            return uniforms
        self.draws += 1
        if self.draws > MAX_DRAWS:
            raise AssertionError(f"more than {MAX_DRAWS} draws: this run does not end")
        return Uniform(self, [0, 1])

    def __getattr__(self, name):
        raise AttributeError(f"rng.{name} cannot be enumerated; use rng.random(), accept or "
                             "sample")

    def fork(self, weights):
        """Return which of the branches with these weights this run takes."""
        if self.depth == len(self.forks):  # a decision that no earlier run has met
            self.forks.append((weights, 0))
        earlier_weights, branch = self.forks[self.depth]
        if earlier_weights != weights:
            raise AssertionError(NOT_DETERMINISTIC)
        self.depth += 1
        return branch


class Forbidden:
    """Replace a source of randomness; raise AssertionError if it is used."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *args, **kwargs):
        raise AssertionError(f"randomness must come from rng alone, but {self.name} has a "
                             "hidden generator")

    def __getattr__(self, attribute):
        self()  # reading an attribute raises as a call does


def sources():
    """Return the names of the sources of randomness in all modules that are loaded."""
    # a module that is not loaded cannot be called, and loading it would take time
    return [f"{module}.{name}" for module in GENERATORS if module in sys.modules
            for name in GENERATORS[module].split()]


@contextlib.contextmanager
def no_other_chance():
    """Make every other source of randomness raise within this block."""
    with contextlib.ExitStack() as stack:
        for name in sources():
            stack.enter_context(mock.patch(name, Forbidden(name)))
        yield


def forbid_in(namespace):
    """Forbid the sources of randomness among a module's own names, for the rest of the process.

    `from torch import rand` and `draw = np.random.default_rng(0)` leave such names.
    """
    functions = [pkgutil.resolve_name(name) for name in sources()]
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    for name, value in namespace.items():
        # the object that a method belongs to, such as the generator of `draw = generator.random`
        owner = getattr(value, "__self__", value)
        if isinstance(owner, kinds) or any(value is function for function in functions):
            namespace[name] = Forbidden(name)


def run_once(function: Experiment, forks: list) -> tuple[Any, Any]:
    """Return outcome and probability of the run that takes the branches in `forks`."""
    rng = Forking(forks)
    outcome = function(rng)
    if rng.depth != len(forks):  # it made fewer decisions than an earlier run
        raise AssertionError(NOT_DETERMINISTIC)
    return outcome, math.prod(weights[branch] for weights, branch in forks)


def paths(function: Experiment) -> Generator[tuple[Any, Any, list], None, None]:
    """Yield (outcome, probability, forks) for every way that a run's decisions can turn out.

    The forks are the decisions in order: the weights of the branches, and the branch that was
    taken. The first run is made 1 + RERUNS times in advance, and its results are compared.
    """
    with no_other_chance():
        first = repr(run_once(function, []))  # text, because arrays compare elementwise
        for _ in range(RERUNS):
            if repr(run_once(function, [])) != first:
                raise AssertionError(NOT_DETERMINISTIC)
        starts = [[]]  # of paths not walked yet; the next one is last
        while starts:
            forks = starts.pop()
            n_known = len(forks)  # the run appends the decisions that come after these
            yield *run_once(function, forks), forks
            # this run took branch 0 of each decision that it added: the other branches are left
            for i, (weights, _) in enumerate(forks[n_known:], n_known):
                earlier = forks[:i]
                # downwards, because the last one is walked first
                for branch in range(len(weights) - 1, 0, -1):
                    starts.append([*earlier, (weights, branch)])


def law(function: Experiment) -> dict[Any, Any]:
    """Return the distribution of `function(rng)`, {outcome: probability}; lists become tuples."""
    total = defaultdict(int)
    for outcome, probability, _ in paths(function):
        key = tuple(outcome) if isinstance(outcome, list) else outcome  # a list is no key
        total[key] += probability
    return dict(total)


def expectation(function: Experiment, value: Callable[[Any], Any]) -> Any:
    """Return the mean of `value(outcome)` over the distribution of `function(rng)`."""
    return sum(value(outcome) * probability for outcome, probability, _ in paths(function))


# ---- distributions that are multiplied out, without the code under test

def text_law(x: Sequence[int], model: Model, N: int, stop: Collection[int] = ()) -> dict:
    """Return the distribution of N tokens after x from the model's rows alone: {text: p}."""
    unfinished: dict[Any, Any] = {tuple(x): 1}
    stopped: dict[Any, Any] = {}
    for _ in range(N):
        longer: dict[Any, Any] = {}
        for ids, probability in unfinished.items():
            for token, p in enumerate(model(list(ids), 1)[-1]):
                if p > 0:
                    texts = stopped if token in stop else longer
                    texts[(*ids, token)] = probability * p
        unfinished = longer
    return {**stopped, **unfinished}


def rounds_law(x: Sequence[int], one_round: RoundLaw, N: int, K: int) -> dict:
    """Return {(text, rounds): p} of N new ids, given `one_round(x, k)`, the law of a round."""
    if N == 0:
        return {(tuple(x), 0): 1}
    total = defaultdict(int)
    # a round writes one token more than it has guesses at most
    for ids, p in one_round(x, min(K, N - 1)).items():
        later_rounds = rounds_law([*x, *ids], one_round, N - len(ids), K)
        for (text, n_later), p_later in later_rounds.items():
            total[(text, 1 + n_later)] += p * p_later
    return dict(total)


def composed_law(x: Sequence[int], one_round: RoundLaw, N: int, K: int) -> dict:
    """Return {text: p} of N new ids, from the law `one_round(x, k)` of a round's ids.

    Outcomes are enumerated round by round. The number of outcomes of whole texts would be a
    product over their rounds.
    """
    total = defaultdict(int)
    for (text, _), p in rounds_law(x, one_round, N, K).items():
        total[text] += p
    return dict(total)


def completed(round_law: dict, x: Sequence[int], target: Model, N: int) -> dict:
    """Return {text: p} of N new ids: one round's, {ids: p}, and then draws from the target."""
    texts = defaultdict(int)
    for ids, p in round_law.items():
        for text, p_rest in text_law((*x, *ids), target, N - len(ids)).items():
            texts[text] += p * p_rest
    return dict(texts)


# ---- comparisons

def prefix_law(texts: dict, n: int) -> dict:
    """Return {first n ids: probability}, a dict that gives 0 for all other ids."""
    total: dict = defaultdict(int)
    for text, p in texts.items():
        total[text[:n]] += p
    return total


def total_variation(law_a: dict, law_b: dict) -> Any:
    """Return half the sum of all differences: the largest difference of any event."""
    return sum(abs(law_a.get(k, 0) - law_b.get(k, 0)) for k in law_a.keys() | law_b.keys()) / 2
