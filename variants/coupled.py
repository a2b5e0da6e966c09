"""Daliri et al. (2024), "Coupling without Communication ... Speculative Decoding". Lossless.

Adds to match.py: draft and target draw with the same random number at the same position. Models
that nearly agree then nearly always draw the same token. The text is the target's own draw with
that number, for any draft, K and kind of guess: with the same seed it equals the text of plain
decoding, token for token, at every temperature.

    inverse    draw by the inverse distribution function, as sampling.sample does
    race       draw the first to arrive of n_vocab runners of speed p: argmin of E / p with
               exponential E (the Gumbel trick); the order of the vocabulary is irrelevant

Subtle: a number belongs to its position. The next round reuses the numbers of positions that
this round did not reach; new ones would give a different text. And no number may be replaced
once it has been used: dropping a guess because of its value, and drawing there with a fresh
number, would keep a number only when it suits us, and bias the text.
"""

from functools import lru_cache, partial
from typing import Annotated

import numpy as np

from sampling import sample
from speculative import Step, guess, speculative_step
from variants.match import match_verify
from variants.registry import GUESSES, Decoder, Flag, Models


@lru_cache(maxsize=32)  # draft and target need the same numbers
def exponentials(u, n):  # -> [n]
    """Return n independent exponential numbers, a function of u in [0, 1) (of 53 bits)."""
    key = np.random.Philox(key=int(u * 2**53))
    numbers = np.maximum(np.random.Generator(key).standard_exponential(n), 1e-300)  # none is 0
    numbers.flags.writeable = False  # every later call with u returns this array
    return numbers


def race(probs, rng):
    """Draw the first runner to arrive, of speeds `probs`; as in `sample`, from one uniform."""
    probs = np.asarray(probs)
    if not 0 < probs.sum() < np.inf:
        raise ValueError(f"need probabilities with a finite sum > 0, got sum {probs.sum()}")
    return int(np.argmax(probs / exponentials(rng.random(), len(probs))))


SAMPLERS = {"race": race, "inverse": sample}


class Replay:
    """Return the numbers in `drawn` first, then new ones of `rng`, appended to `drawn`."""

    def __init__(self, drawn, rng):
        self.drawn = drawn
        self.rng = rng
        self.t = 0

    def random(self):
        if self.t == len(self.drawn):
            self.drawn.append(self.rng.random())
        self.t += 1
        return self.drawn[self.t - 1]


def coupled(target, K, make_guesses, draw=sample):
    """Return the step of one text, for any guess that draws at most one number per position."""
    drawn = []  # for the positions from the end of x on

    def step(x, n_left, rng):
        def replayed_match(guesses, p_draft, p_target, rng_after_guesses):
            return match_verify(guesses, p_draft, p_target, Replay(drawn, rng), draw)

        result = speculative_step(x, n_left, Replay(drawn, rng), target, K, make_guesses,
                                  replayed_match)
        del drawn[: len(result.ids)]  # these positions are text now
        return result

    return step


def build(models: Models,
          K: GUESSES = 4,
          sampler: Annotated[str, Flag(str, "how a token is drawn: race agrees more often, "
              "inverse is what all other decoders do", ("race", "inverse"))] = "race") -> Step:
    """Return the step: guesses of a draft, drawn with the numbers of their positions."""
    draw = SAMPLERS[sampler]
    make_guesses = partial(guess, draft=models.draft_rows, draw=draw)
    return coupled(models.target_rows, K, make_guesses, draw)


def plain(models, K, sampler):
    """Return plain decoding with the same numbers: a round without guesses is one draw."""
    return coupled(models.target_rows, K, lambda x, k, rng: ([], []), SAMPLERS[sampler])


DECODER = Decoder(
    "coupled", "Daliri et al. (2024)", "https://arxiv.org/abs/2408.07978",
    idea="draws a position's token in both models with the same random number",
    family="a different lossless test",
    guess=guess, test=match_verify, build=build, plain=plain)
