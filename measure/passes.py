"""Time the passes of models and the rounds of a text; count what the rounds accepted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lib.around import Around
from speculative import Round
from variants.shared.branches import Tree
from wrappers.forced import ForcedRound


@dataclass(eq=False)
class Timed(Around):
    """Call a model; record the seconds of each pass and its rows of logits.

    Decoders with heads call `hidden` and `logits`, the two halves of a GPT2's pass. For the
    prompt they call `hidden` alone: this pass has no logits, so 0 rows, and is not among the
    passes that write the text.
    """

    seconds: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    n_prompt: int = 0  # passes that ended before the first new token: they read the prompt

    def __call__(self, ids, n_last=1):
        # A GPU's time counts too: the models return NumPy arrays, so a pass has ended here.
        start = time.perf_counter()
        logits = self.model(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(len(logits))
        return logits

    def hidden(self, ids, n_last=1):
        """Time the first half of a pass."""
        start = time.perf_counter()
        states = self.model.hidden(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(0)  # `logits` puts the number of rows here, if it is called
        return states

    def logits(self, states):
        """Time the second half; add it to the last pass."""
        start = time.perf_counter()
        logits = self.model.logits(states)
        self.seconds[-1] += time.perf_counter() - start
        self.rows[-1] = len(logits)
        return logits

    def writing(self) -> list[float]:
        """Return the seconds of each pass after those that read the prompt."""
        return self.seconds[self.n_prompt :]

    def n_passes(self) -> int:
        """Return how many passes gave logits."""
        return sum(n_rows > 0 for n_rows in self.rows)

    def ms(self) -> float | None:
        """Return the mean milliseconds of a pass that gave logits, or None if there was none.

        Passes that read the prompt do not count. The mean is returned because a run takes the
        mean time of a pass times the number of passes. The median would be smaller: a draft's
        pass after a target's pass finds the processor's caches cold and is slow.
        """
        passes = [*zip(self.seconds, self.rows)][self.n_prompt :]
        with_logits = [seconds for seconds, n_rows in passes if n_rows]
        return 1e3 * float(np.mean(with_logits)) if with_logits else None


@dataclass
class Run:
    """Hold one text of a decoder and its measurements."""

    draft: Timed | None
    target: Timed
    ids: list[int] = field(default_factory=list)  # the new tokens
    rounds: list[Round] = field(default_factory=list)  # without their rows, which are large
    seconds: float = 0.0
    prompt_s: float = 0.0  # of `seconds`: to the first token, so the prompt has been read
    n_first: int = 0  # of `ids`: the tokens of the round that read the prompt
    logprobs: list[float | None] = field(default_factory=list)  # of `ids`, if they are wanted

    def add(self, result: Round, seconds: float) -> None:
        """Add a round and its seconds.

        The prompt's round is the first one that a pattern has not forced: in it the models read
        the prompt.
        """
        self.seconds += seconds
        self.ids += result.ids
        self.rounds.append(without_rows(result))
        if not self.n_first and not isinstance(result, ForcedRound):
            self.prompt_s = self.seconds
            self.n_first = len(self.ids)
            for model in (self.target, self.draft):
                if model:
                    model.n_prompt = len(model.seconds)

    @property
    def n_written(self) -> int:
        """Return how many tokens follow the prompt's round."""
        return len(self.ids) - self.n_first

    @property
    def writing_s(self) -> float:
        """Return the seconds after the prompt's round; 0 if there is no other round."""
        return self.seconds - self.prompt_s if self.n_written else 0.0

    @property
    def rate(self) -> float | None:
        """Return the tokens per second of the writing, which follows the prompt's round."""
        return quotient(self.n_written, self.writing_s)


def without_rows(result: Round) -> Round:
    """Return the round without its rows of n_vocab numbers, which are large."""
    guesses = result.guesses
    if isinstance(guesses, Tree):
        guesses = replace(guesses, proposals=[])  # each has the row that it was drawn from
    return result._replace(guesses=guesses, p_draft=[], p_target=[])


def acceptance_figures(rounds: Sequence[Round]) -> dict:
    """Return how many rounds accepted 0, 1, .. guesses; then accepted and tested guesses.

    The numbers of accepted and of tested guesses are None for trees, because siblings compete
    for one position. Rounds that a pattern forced do not count.
    """
    # The guesses of a forced round are accepted without a test.
    rounds = [result for result in rounds if not isinstance(result, ForcedRound)]
    n_accepted = [result.n_accepted for result in rounds]
    # The list has an entry for each number up to `most`, even if no round accepted so many.
    most = max((n_guesses_in_a_row(result.guesses) for result in rounds), default=0)
    figures: dict = {"rounds_by_accepted": [n_accepted.count(n) for n in range(most + 1)]}
    if any(isinstance(result.guesses, Tree) for result in rounds):
        return figures | {"accepted": None, "tested": None, "acceptance": None}
    accepted = sum(n_accepted)
    tested = sum(result.n_tested for result in rounds)
    return figures | {"accepted": accepted, "tested": tested,
                      "acceptance": quotient(accepted, tested)}


def n_guesses_in_a_row(guesses: list | Tree) -> int:
    """Return how many guesses one round can accept: all of a chain, a tree's longest path."""
    if isinstance(guesses, Tree):
        return max(map(len, guesses.paths()), default=0)
    return len(guesses)


def quotient(a: float, b: float) -> float | None:
    """Return a / b, or None if b is 0."""
    return a / b if b else None
