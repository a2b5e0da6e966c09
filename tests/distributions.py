"""Compare distributions in tests: scripted uniforms, Theorem 1's closed form, comparisons.

exact/law.py enumerates a distribution; the functions here state what it must be equal to.
"""

import numpy as np

from exact.law import total_variation
from exact.oracle import kl

LOWEST = 0.0  # the uniforms that random() can return are between these two
HIGHEST = 1 - 2**-53


class Scripted:
    """Return these uniforms, in this order, as a generator would."""

    def __init__(self, uniforms):
        self.uniforms = iter(uniforms)

    def random(self):
        return next(self.uniforms)


def round_law(x, k, draft, target):
    """Return the distribution of one round's ids as docs/proof.md states it, without division.

    Each accepted guess contributes min(p_draft, p_target), the token that replaces a rejected
    one max(0, p_target - p_draft), the bonus token p_target.
    """
    p_target = target(x, 1)[-1]
    if k == 0:
        return {(token,): p for token, p in enumerate(p_target) if p > 0}
    p_draft = draft(x, 1)[-1]
    accepted = np.minimum(p_draft, p_target)
    surplus = np.maximum(p_target - p_draft, 0)
    total = {(token,): p for token, p in enumerate(surplus) if p > 0}
    for token in np.flatnonzero(accepted > 0).tolist():
        for ids, p in round_law([*x, token], k - 1, draft, target).items():
            total[(token, *ids)] = accepted[token] * p
    return total


def distance(law_a, law_b):
    """Return the largest difference of an outcome's two probabilities; NaN if any is NaN."""
    found = [abs(law_a.get(key, 0) - law_b.get(key, 0)) for key in law_a.keys() | law_b.keys()]
    return next((size for size in found if size != size), max(found))


def assert_same_law(got, expected, tolerance=1e-12):
    """Raise AssertionError if the distributions differ, and show where they differ most."""
    if not distance(got, expected) <= tolerance:
        worst = sorted(got.keys() | expected.keys(),
                       key=lambda key: -abs(got.get(key, 0) - expected.get(key, 0)))[:8]
        rows = [f"    {key}: {float(got.get(key, 0)):.6f}, "
                f"not {float(expected.get(key, 0)):.6f}" for key in worst]
        raise AssertionError("\n".join([f"a different distribution came out, total variation "
                             f"{float(total_variation(got, expected)):.6f} away:", *rows]))


def surprise(n, frequency, p):
    """Return n KL(frequency, p) of coins.

    In n draws of an event of probability p it exceeds log(2 / a) with a probability of at most a:
    a / 2 above p, and a / 2 below (Hoeffding 1963 Theorem 1).
    """
    return n * kl(np.float64(frequency), np.float64(p))
