"""Define a wrong test of guesses that writes more tokens than any lossless test of one chain.

Block verification accepts all guesses with probability share[k] (variants/block.py). The test
here takes the product of all ratios instead, which is not capped at 1 after each guess.
"""

from math import prod

import numpy as np

from exact.rules import batched
from sampling import accept, residual, sample
from variants.block import p_accept, shares


def uncapped_block(guesses, p_draft, p_target, rng):
    """Test the guesses of one chain."""
    share = shares(guesses, p_draft, p_target)
    k = len(guesses)
    ratios = [p_target[t][token] / p_draft[t][token] for t, token in enumerate(guesses)]
    if accept(min(prod(ratios), 1), rng):
        return guesses + [sample(p_target[k], rng)]
    n = k - 1
    while n > 0 and not accept(p_accept(n, share[n], p_draft, p_target), rng):
        n -= 1
    return guesses[:n] + [sample(residual(share[n] * p_target[n], p_draft[n]), rng)]


def uncapped_block_of_batch(guesses, p_draft, p_target, uniforms):
    """Test a batch of chains, as exact/oracle.py calls a verifier."""
    K = guesses.shape[1]
    target, draft = batched.probabilities(guesses, p_draft, p_target)
    accepts_all = uniforms[:, K - 1] < (target / draft).prod(axis=1)
    bonus = batched.draw(p_target[:, K], uniforms[:, K])
    all_accepted = np.concatenate([guesses, bonus[:, None]], axis=1)
    # block verification accepts all guesses only if this test does, because share <= product
    block = batched.traversal(guesses, p_draft, p_target, uniforms)
    return np.where(accepts_all[:, None], all_accepted, block)
