"""Kim et al. (2023), "Speculative Decoding with Big Little Decoder" (BiLD). Not lossless.

Adds to speculative.py: the small model decides when to ask the large one, and the large model
tolerates tokens that are not its own best. The method is greedy, so nothing is drawn.

    fallback    alpha_FB: the small model stops when its best token has a smaller probability
    distance    of a token from the large model: - log p_large (cross-entropy to a hard label)
    rollback    alpha_RB: the large model rejects the first token with a larger distance, and
                all tokens after it

Differs from the authors' code: a token of the small model, even a stop token, is final only
when the large model has scored it. Every guess is compared with the rollback, also a guess that
is the large model's best token. And --fallback 0 means a threshold of 0 instead of the default.
"""

from functools import partial
from typing import Annotated

import numpy as np

from speculative import Step, make_step
from variants.registry import Decoder, Flag, Models, number, whole


def write_while_confident(x, k, rng, small, fallback):
    """Return up to k tokens, each the best of its row, and the small model's rows."""
    guesses, rows = [], []
    while len(guesses) < k:
        row = small(x + guesses, 1)[-1]
        if row.max() < fallback:
            break  # the large model writes at this position
        rows.append(row)
        guesses.append(int(row.argmax()))
    return guesses, rows


def big_little_verify(guesses, p_small, p_large, rng, rollback):
    """Accept guesses up to the first distance above rollback; add the large model's best."""
    def distance(t):  # of guess t, in nats
        return -np.log(p_large[t][guesses[t]])

    n = 0  # guesses accepted so far
    # NumPy would warn of log 0. The distance is then infinite.
    with np.errstate(divide="ignore"):
        while n < len(guesses) and distance(n) <= rollback:
            n += 1
    # Row n of p_large is for the position after n guesses.
    return guesses[:n] + [int(p_large[n].argmax())]


def build(models: Models,
          run: Annotated[int, Flag(whole, "largest number of tokens that the draft "
              "generates in a row")] = 10,
          fallback: Annotated[float, Flag(number, "the draft stops if its most "
              "probable token has a probability below this")] = 0.6,
          rollback: Annotated[float, Flag(number, "the target rejects a token whose "
              "negative log probability, in nats, is above this")] = 5.0) -> Step:
    """Return the step. Both thresholds compare probabilities at temperature 1."""
    small = models.warm.draft_rows  # warm: at temperature 0 every row would be one-hot
    # Only temperature 0 tells two logits apart whose probabilities round to the same number.
    large = models.target_rows if fallback > 1 else models.warm.target_rows
    return make_step(large, run, partial(write_while_confident, small=small, fallback=fallback),
                     partial(big_little_verify, rollback=rollback))


DECODER = Decoder(
    "big_little", "Kim et al. (2023)", "https://arxiv.org/abs/2302.07863",
    idea="the draft generates while it is confident; the target corrects it",
    family="a lossy rule",
    guess=write_while_confident, test=big_little_verify, build=build, greedy=True,
    exact_words="with --fallback above 1", exact=lambda settings: settings["fallback"] > 1)
