"""Sun et al. (2024), "Block Verification Accelerates Speculative Decoding", Alg. 2. Lossless.

Adds to speculative.py: the guesses are tested as one block. If the target gives a guess more
probability than the draft does, this makes up for an earlier guess to which it gives less. On
average the block test accepts at least as many guesses as testing them one by one.

    here       Sun et al. (2024)
    share[t]   p_t        of the first t guesses: share[0] = 1, and each guess multiplies the
                          share by p_target / p_draft of this guess; a share above 1 becomes 1
    surplus    the sum of (p_t M_b - M_s)_+
                          mass that the target needs after t guesses: in our notation the sum of
                          (share[t] * p_target[t] - p_draft[t])_+
    p_accept   h_t^block  the probability of accepting t guesses, given that no larger number
                          was accepted
    n          tau        the number of accepted guesses: the largest t whose test succeeds

Subtle: n is the largest t whose test succeeds, not the first t whose test fails. And the token
after n guesses is drawn from the residual of share[n] * p_target, not of p_target.
"""

from typing import Annotated

import numpy as np

from sampling import accept, residual, sample
from speculative import Step, check_rows, guess
from variants.registry import (
    Decoder,
    Flag,
    Models,
    chain_decoder,
    inner_decoder,
    of_inner,
    whole,
)


def shares(guesses, p_draft, p_target):
    """Return share[0 .. k], the share of the first t guesses for each t."""
    share = [1]
    for t, token in enumerate(guesses):
        # share[-1] is share[t]. The minimum comes last, so a good guess, with a ratio above 1,
        # makes up for the guesses before it, but not for the guesses after it.
        share.append(min(share[-1] * p_target[t][token] / p_draft[t][token], 1))
    return share


def p_accept(t, share_t, p_draft, p_target):
    """Return h_t, the probability of accepting t guesses if no larger number was accepted."""
    if t == len(p_draft):  # t is the number of all guesses, so no larger number exists
        return share_t
    surplus = np.maximum(share_t * p_target[t] - p_draft[t], 0).sum()
    divisor = surplus + 1 - share_t
    if divisor <= 0:  # share_t is 1 and the rows are equal, so h_t is 0 / 0, up to rounding
        return 1
    return min(surplus / divisor, 1)  # above 1 only by rounding


def block_verify(guesses, p_draft, p_target, rng):
    """Accept as many guesses as the block test allows, then add one token, as `verify` does.

    Guesses 0 1 have the ratios 1/2 and 2: the second makes up for the first (Sec. 2).

    >>> p_draft, p_target = np.array([[2, 1]] * 2) / 3, np.array([[1, 2]] * 3) / 3
    >>> block_verify([0, 1], p_draft, p_target, np.random.default_rng(0))[:2]
    [0, 1]
    """
    check_rows(guesses, p_draft, p_target)
    share = shares(guesses, p_draft, p_target)
    k = len(guesses)
    n = k  # goes down, so the first test that succeeds is that of the largest t
    while n > 0 and not accept(p_accept(n, share[n], p_draft, p_target), rng):
        n -= 1
    if n == k:  # all guesses are accepted: the bonus token
        return guesses + [sample(p_target[k], rng)]
    return guesses[:n] + [sample(residual(share[n] * p_target[n], p_draft[n]), rng)]


def build(models: Models,
          K: Annotated[int | None, Flag(whole, "guesses per round (default: that of "
              "--guesser)")] = None,
          guesser: Annotated[str, Flag(chain_decoder, "the decoder that guesses, with its "
              "flags: quantized or 'eagle --K 3'")] = "speculative") -> Step:
    """Return the step of a decoder with the block test instead of its own."""
    entry, settings = inner_decoder(guesser, K)
    return entry.build(models._replace(test=block_verify), **settings)


DECODER = Decoder(
    "block", "Sun et al. (2024)", "https://arxiv.org/abs/2403.10444",
    idea="judges the guesses as one block, so that a good guess makes up for a bad one",
    family="a different exact rule",
    guess=guess, test=block_verify, build=build,
    **of_inner(lambda settings: inner_decoder(settings["guesser"], settings["K"])))
