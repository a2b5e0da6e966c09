"""Enumerate every outcome of a random function, with its exact probability.

    law(function)    {outcome: probability} of function(rng)

`law` runs the function once for every way its random decisions can turn out. The code under
test is the production code, unchanged. Only its `rng` is a replacement, whose uniforms are
intervals instead of numbers:

 1. A uniform starts as the interval [0, 1).
 2. A comparison `u < c` cuts the interval at c. This run continues with one piece, and other
    runs continue with the other pieces.
 3. The probability of a run is the product of the pieces' shares of their intervals.

A uniform keeps its piece, as a number keeps its value. So if faulty code uses one uniform for
two decisions, they are dependent, and the distribution shows the fault.

An error is raised if the code calls a method that the rng does not have (`choice`, `integers`,
...), uses the generators of NumPy, Python or PyTorch, does not end, or returns different
results for the same decisions.

Probabilities are exact Fractions if the rows are; otherwise floats, with errors near 1e-16.
"""

import contextlib
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from sampling import at_least_float64
from speculative import Model, Stop, has_ended

Experiment = Callable[[Any], Any]  # function(rng) -> outcome
# a state that is set or read draws nothing
STATES = {"seed", "get_state", "set_state", "getstate", "setstate"}
GENERATORS = {  # module: what draws random numbers in it
    "numpy.random": " ".join({*np.random.__all__} - STATES),
    "random": " ".join({*random.__all__} - STATES),
    "os": "urandom",
    "secrets": "choice randbelow randbits token_bytes token_hex token_urlsafe",
    "torch": "rand rand_like randn randn_like randint randint_like randperm multinomial "
             "bernoulli normal poisson binomial Tensor.multinomial Tensor.exponential_ "
             "Tensor.uniform_ Tensor.bernoulli Tensor.bernoulli_ Tensor.normal_ "
             "Tensor.random_ Tensor.cauchy_ Tensor.geometric_ Tensor.log_normal_",
}
MAX_DRAWS = 1000  # uniforms of one run
RERUNS = 8  # repetitions of the first run; different results show hidden randomness
ONLY_COMPARED = ("a number of rng is an interval here: it can only be compared, u < bound "
                 "(write u < p / q, not u * q < p or log(u) < log(p / q))")
NOT_DETERMINISTIC = ("not deterministic: the same random decisions gave a different result "
                     "(hidden randomness, or state kept from an earlier text or call)")


class Uniform:
    """Represent a number in [0, 1) by an interval that contains it."""

    # NumPy then leaves `array < uniform` to this class, which computes `uniform > array`
    __array_ufunc__ = None

    def __init__(self, rng, interval):
        self.rng = rng
        self.interval = interval  # [low, high]; comparisons replace it by a piece

    def __repr__(self):
        low, high = self.interval
        return f"u in [{float(low):.4g}, {float(high):.4g})"

    def __lt__(self, bounds):
        """Return `u < bounds` for a number or an array."""
        # no bound is inside the piece, so u is below a bound exactly if the whole piece is
        return self.cut_at(bounds) >= self.interval[1]

    def __gt__(self, bounds):
        """Return `u > bounds`, or `u >= bounds`, since a single point has probability 0."""
        # not the opposite of `<`, because both are False for a NaN
        return self.cut_at(bounds) <= self.interval[0]

    def cut_at(self, bounds):
        """Cut the interval at the bounds inside, continue with a piece; return the bounds."""
        if isinstance(bounds, Uniform):
            self.refuse()
        bounds = at_least_float64(bounds)
        low, high = self.interval
        # the bounds inside the interval cut it: [0, 1] and the bounds .2, .7, .7 and 2 have the
        # cuts .2 and .7, and the edges 0, .2, .7 and 1
        cuts = sorted({bound for bound in bounds.ravel().tolist() if low < bound < high})
        edges = [low, *cuts, high]
        weights = [end - start for start, end in zip(edges, edges[1:])]
        width = high - low
        if width != 1:  # 1 / 1 is a float, and would end the Fractions
            weights = [weight / width for weight in weights]  # shares of the interval
        # this run continues with one piece, and other runs with the other pieces
        branch = self.rng.fork(weights)
        self.interval[:] = edges[branch], edges[branch + 1]
        return bounds

    __ge__ = __gt__
    __le__ = __lt__

    def refuse(self, *args, **kwargs):
        raise TypeError(ONLY_COMPARED)

    __eq__ = __bool__ = __float__ = __int__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = refuse


class Uniforms(np.ndarray):
    """Hold Uniforms in an array that is compared elementwise, with tensors too."""

    # a higher priority than a PyTorch tensor's 1000, so that this class compares the two
    __array_priority__ = 2000


class Forking:
    """Generate the uniforms of one run: follow `forks`, then always the first branch.

    forks    the run's decisions in order, each (weights of its branches, number of the branch
             that is taken); a decision that is not in it yet is appended
    """

    def __init__(self, forks):
        self.forks = forks
        self.depth = 0  # decisions so far
        self.draws = 0  # uniforms so far

    def random(self, size=None, *others, **named):
        """Return one uniform, or an array of independent ones."""
        if others or named:
            raise AssertionError("rng.random(size) has no dtype or out here, because its "
                                 "numbers are intervals: use rng.random() or rng.random(size)")
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
        """Return the number of the branch that this run takes, one of len(weights) branches."""
        if self.depth == len(self.forks):  # a decision that no earlier run has met
            self.forks.append((weights, 0))
        # the run has followed `forks` so far, so it must now reach the next decision in `forks`
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
    """Return (name, owner, attribute, value) of the sources of randomness in loaded modules."""
    found = []
    for module, functions in GENERATORS.items():
        # a module that is not loaded cannot be called, and loading it would take time
        for function in functions.split() if module in sys.modules else []:
            *owners, attribute = function.split(".")
            owner = reduce(getattr, owners, sys.modules[module])
            found.append((f"{module}.{function}", owner, attribute, getattr(owner, attribute)))
    return found


@contextlib.contextmanager
def no_other_chance():
    """Make every other source of randomness raise within this block."""
    found = sources()
    try:
        for name, owner, attribute, _ in found:
            setattr(owner, attribute, Forbidden(name))
        yield
    finally:
        for _, owner, attribute, original in found:
            setattr(owner, attribute, original)


def forbid_in(namespaces):
    """Forbid the sources of randomness among modules' own names, for the rest of the process.

    A file has such names after `from torch import rand` or `draw = np.random.default_rng(0)`.
    """
    functions = [function for *_, function in sources()]
    kinds = (np.random.Generator, np.random.RandomState, random.Random)
    for namespace in namespaces:
        for name, value in namespace.items():
            # a method stands for its object: after `draw = generator.random` the owner is
            # generator
            owner = getattr(value, "__self__", value)
            if isinstance(owner, kinds) or any(value is function for function in functions):
                namespace[name] = Forbidden(name)


def run_once(function: Experiment, forks: list) -> tuple[Any, Any]:
    """Return outcome and probability of the run that takes the branches in `forks`.

    After these the run takes the first branch of every decision, and appends it to `forks`.
    """
    rng = Forking(forks)
    outcome = function(rng)
    if rng.depth != len(forks):  # fewer decisions than in an earlier run
        raise AssertionError(NOT_DETERMINISTIC)
    return outcome, math.prod(weights[branch] for weights, branch in forks)


def next_forks(forks: list) -> list | None:
    """Return the start of the run after the run with these forks; None after the last run.

    The last decision that has one more branch takes it, and later decisions are made anew.
    """
    for i in reversed(range(len(forks))):
        weights, branch = forks[i]
        if branch + 1 < len(weights):
            return [*forks[:i], (weights, branch + 1)]
    return None


def runs(function: Experiment) -> Generator[tuple[Any, Any, list], None, None]:
    """Yield (outcome, probability, forks) for every way that a run's decisions can turn out.

    The forks are the decisions in order: the weights of the branches, and the branch that was
    taken.
    """
    forks: list | None = []
    while forks is not None:
        outcome, probability = run_once(function, forks)
        yield outcome, probability, forks
        forks = next_forks(forks)


def paths(function: Experiment) -> Generator[tuple[Any, Any, list], None, None]:
    """Yield as `runs` does, but raise AssertionError if rng is not the only randomness.

    The first run is made 1 + RERUNS times in advance, and its results are compared.
    """
    with no_other_chance():
        first = repr(run_once(function, []))  # text, because arrays compare elementwise
        for _ in range(RERUNS):
            if repr(run_once(function, [])) != first:
                raise AssertionError(NOT_DETERMINISTIC)
        yield from runs(function)


def law(function: Experiment) -> dict[Any, Any]:
    """Return the distribution of `function(rng)`, {outcome: probability}; lists become tuples.

    >>> law(lambda rng: bool(rng.random() < 0.25))
    {True: 0.25, False: 0.75}
    """
    total = defaultdict(int)
    for outcome, probability, _ in paths(function):
        key = tuple(outcome) if isinstance(outcome, list) else outcome  # a list is no key
        total[key] += probability
    return dict(total)


def expectation(function: Experiment, value: Callable[[Any], Any]) -> Any:
    """Return the mean of `value(outcome)` over the distribution of `function(rng)`."""
    return sum(value(outcome) * probability for outcome, probability, _ in paths(function))


# ---- distributions that are multiplied out, without the code under test

def text_law(x: Sequence[int], model: Model, N: int, stop: Stop = ()) -> dict:
    """Return {text: p} of x and N more tokens, from the model's rows alone.

    A text that `stop` ends early (see `speculative.generate`) is shorter.
    """
    # Not by composed_law, whose faults would then be in both sides of a comparison.
    unfinished: dict[Any, Any] = {tuple(x): 1}
    stopped: dict[Any, Any] = {}
    for _ in range(N):
        longer: dict[Any, Any] = {}
        for ids, probability in unfinished.items():
            row = model(list(ids), 1)[-1]
            for token, p in enumerate(row):
                if p > 0:
                    text = (*ids, token)
                    texts = stopped if has_ended(text[len(x) :], stop) else longer
                    texts[text] = probability * p
        unfinished = longer
    return {**stopped, **unfinished}


def composed_law(x: Sequence[int], one_round: Callable, N: int, stop: Stop = (),
                 memory: Any = None) -> dict:
    """Return {(text, memory): p} of x and N new ids, from the laws of single rounds.

    one_round    (text, memory, n_left) -> {(ids, memory): p}, the ids of a round and what is
                 remembered after it

    Each round is enumerated alone, once for each text and memory before it. Whole texts have
    many more outcomes, because the numbers of outcomes of their rounds are multiplied. A text
    ends with the round that writes one of the tokens in `stop`.
    """
    ended: dict[Any, Any] = defaultdict(int)
    unfinished: dict[Any, Any] = {(tuple(x), memory): 1}
    while unfinished:
        longer: dict[Any, Any] = defaultdict(int)
        for (text, before), p in unfinished.items():
            new = text[len(x) :]
            n_left = N - len(new)
            # a round may write more tokens after a stop token
            is_stopped = any(has_ended(new[: n + 1], stop) for n in range(len(new)))
            if n_left == 0 or is_stopped:
                ended[text, before] += p
                continue
            for (ids, after), p_round in one_round(text, before, n_left).items():
                longer[(*text, *ids), after] += p * p_round
        unfinished = longer
    return dict(ended)


def completed(round_law: dict, x: Sequence[int], target: Model, N: int) -> dict:
    """Return {text: p} of x and N new ids: those of one round, then draws from the target.

    round_law    {ids of the round: probability}
    """
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
    """Return half the sum of all differences, which is the largest difference of any event."""
    # an outcome that is missing in one law has the probability 0 there
    outcomes = law_a.keys() | law_b.keys()
    return sum(abs(law_a.get(k, 0) - law_b.get(k, 0)) for k in outcomes) / 2
