"""Daliri et al. (2024), "Coupling without Communication ... Speculative Decoding". Lossless.

Adds to match.py: draft and target draw with the same random number at the same position. Models
that nearly agree then nearly always draw the same token. Every token of the text is the
target's own draw with the number of its position, for any draft and K. So with the same seed
the text equals the text of plain decoding, token for token, at every temperature.

    inverse    draw by the inverse distribution function, as sampling.sample does
    race       every token is a runner with speed p, and the first runner to arrive is drawn:
               argmin of E / p with exponential E (the Gumbel trick). The order of the
               vocabulary is irrelevant

Subtle: a number belongs to its position. The next round reuses the numbers of positions that
this round did not reach; new numbers would give a different text. A guess that is dropped
because of its value, and drawn with a new number, would bias the text: its numbers would be
selected by their outcome.
"""

from functools import lru_cache, partial
from typing import Annotated

import numpy as np

from sampling import sample
from speculative import Step, guess, speculative_step
from variants.match import match_verify
from variants.registry import GUESSES, Decoder, Flag, Models


@lru_cache(maxsize=32)  # draft and target need the same numbers at each position of a round
def exponentials(u, n):  # -> [n]
    """Return n independent exponential numbers, a function of the 53-bit number u in [0, 1)."""
    key = np.random.Philox(key=int(u * 2**53))
    # The race divides by these numbers, so none may be 0.
    numbers = np.maximum(np.random.Generator(key).standard_exponential(n), 1e-300)
    numbers.flags.writeable = False  # every later call with u returns this array
    return numbers


def race_sample(probs, rng):
    """Draw the first runner to arrive, by one uniform number; `probs` are their speeds."""
    probs = np.asarray(probs)
    if not 0 < probs.sum() < np.inf:
        raise ValueError(f"need probabilities with a finite sum > 0, got sum {probs.sum()}")
    # argmin of E / p is argmax of p / E, and p / E is finite if p is 0.
    return int(np.argmax(probs / exponentials(rng.random(), len(probs))))


SAMPLERS = {"race": race_sample, "inverse": sample}


class Replay:
    """A generator of the numbers in `drawn`, then of new ones from `rng`, which it appends."""

    def __init__(self, drawn, rng):
        self.drawn = drawn
        self.rng = rng
        self.t = 0  # numbers returned so far

    def random(self):
        """Return the next position's number."""
        if self.t == len(self.drawn):  # this position has no number yet
            self.drawn.append(self.rng.random())
        self.t += 1
        return self.drawn[self.t - 1]


def coupled(target, K, make_guesses, draw=sample):
    """Return the step of one text, for any guess that draws at most one number per position."""
    drawn = []  # drawn[t] is the number of the position t tokens after the end of x

    def step(x, n_left, rng):
        def replayed_match(guesses, p_draft, p_target, used_replay):
            # The test draws again with the numbers that `used_replay` returned to the guesses.
            return match_verify(guesses, p_draft, p_target, Replay(drawn, rng), draw)

        result = speculative_step(x, n_left, Replay(drawn, rng), target, K, make_guesses,
                                  replayed_match)
        # The positions of these numbers are text now, so drawn[0] is the next position's again.
        del drawn[: len(result.ids)]
        return result

    def numbers_of_next(n, rng):
        """Return a generator of the next n positions' numbers; the next round is after them."""
        replay = Replay(drawn, rng)
        numbers = [replay.random() for _ in range(n)]
        del drawn[:n]
        return Replay(numbers, rng)

    step.numbers_of_next = numbers_of_next  # wrappers/forced.py writes tokens without the step
    return step


def build(models: Models,
          K: GUESSES = 4,
          sampler: Annotated[str, Flag(str, "how tokens are drawn: race (the models agree "
              "more often) or inverse (as in all other decoders)",
              ("race", "inverse"))] = "race") -> Step:
    """Return the step: guesses of a draft, drawn with the numbers of their positions."""
    draw = SAMPLERS[sampler]
    make_guesses = partial(guess, draft=models.draft_rows, draw=draw)
    return coupled(models.target_rows, K, make_guesses, draw)


def plain_coupled(models, K, sampler):
    """Return the step of plain decoding with this sampler; its text equals the decoder's."""
    no_guesses = partial(guess, draft=None)  # K is 0: a round is one draw from the target
    return coupled(models.target_rows, 0, no_guesses, SAMPLERS[sampler])


DECODER = Decoder(
    "coupled", "Daliri et al. (2024)", "https://arxiv.org/abs/2408.07978",
    idea="draws each token in both models with the same random number",
    family="a different exact rule",
    guess=guess, test=match_verify, build=build, plain=plain_coupled)
