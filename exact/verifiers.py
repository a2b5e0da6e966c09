"""Test guesses, rightly or wrongly: the tests of exact/rules.py, each a few lines.

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens     as speculative.verify
    p_draft[t], p_target[t]     the rows for the position of guess t; p_target has one row more

Most of them are a `chain`: at each position a probability to accept the guess, and the row that
replaces a rejected one. All compute with Fractions, so distances are exact; `one_product` needs
logarithms.
"""

from fractions import Fraction
from functools import partial
from math import log

import numpy as np

from sampling import accept, residual, sample
from speculative import verify

EPSILON = Fraction(1, 100)
THRESHOLD = Fraction(1, 2)


def one_hot(token, n_vocab=3):
    return np.array([Fraction(int(i == token)) for i in range(n_vocab)], dtype=object)


# ---- the probability to accept guess t: (t, token, p_draft, p_target) -> probability

def ratio(t, token, p_draft, p_target):
    return min(1, p_target[t][token] / p_draft[t][token])


def probability(t, token, p_draft, p_target):
    return p_target[t][token]


def if_not_less(t, token, p_draft, p_target):
    return Fraction(int(p_target[t][token] >= p_draft[t][token]))


def never(t, token, p_draft, p_target):
    return Fraction(0)


def raised(t, token, p_draft, p_target):
    """Return 1 from THRESHOLD on, and p_target / THRESHOLD below it."""
    return min(1, p_target[t][token] / THRESHOLD)


def match_or_ratio(t, token, p_draft, p_target):
    """Return P(the target's own draw is the guess, or else the ratio test passes)."""
    p = p_target[t][token]
    return p + (1 - p) * ratio(t, token, p_draft, p_target)


def ratio_with_epsilon(t, token, p_draft, p_target):
    return min(1, p_target[t][token] / (p_draft[t][token] + EPSILON))


def same_number(t, token, p_draft, p_target):
    """Return P(u < p_target) for the u that drew the guess: uniform in the token's interval."""
    low = p_draft[t][:token].sum()
    return max(p_target[t][token] - low, 0) / p_draft[t][token]


# ---- the row that replaces a rejected guess t: (t, token, p_draft, p_target) -> row

def from_residual(t, token, p_draft, p_target):
    return residual(p_target[t], p_draft[t])


def from_residual_with_epsilon(t, token, p_draft, p_target):
    row = np.maximum(p_target[t] - p_draft[t], 0) + EPSILON
    return row / row.sum()


def from_others(t, token, p_draft, p_target):
    return residual(p_target[t], one_hot(token))


def from_target(t, token, p_draft, p_target):
    return p_target[t]


def from_next_row(t, token, p_draft, p_target):
    return p_target[t + 1]


def from_same_race(t, token, p_draft, p_target):
    """Return the row of argmin E / residual if the guess was argmin E / p_draft, with the same E.

    The E are standard exponentials, one per token (minus their logarithms are Gumbel numbers). The
    guess has E / p_draft = T, a standard exponential; any other token has E = p_draft T + a fresh
    one. So token x runs from p_draft T / residual on, with speed residual: integrate over T. Of
    three tokens two can be in the residual, because the rejected guess is not.
    """
    rest = residual(p_target[t], p_draft[t])
    (start, first), *others = sorted((p_draft[t][x] / rest[x], x) for x in np.flatnonzero(rest))
    row = one_hot(first)
    for later_start, later in others:
        row[later] = rest[later] / (1 + rest[first] * (later_start - start))
        row[first] -= row[later]
    return row


# ---- ways to test

def chain(guesses, p_draft, p_target, rng, p_accept=ratio, replace=from_residual, bonus=-1):
    """Test as speculative.verify, with other parts; the bonus token is from row `bonus`."""
    for t, token in enumerate(guesses):
        if not accept(p_accept(t, token, p_draft, p_target), rng):
            return guesses[:t] + [sample(replace(t, token, p_draft, p_target), rng)]
    return guesses + [sample(p_target[max(bonus, -len(p_target))], rng)]


def one_uniform(guesses, p_draft, p_target, rng):
    """Compare one number u with all ratios of a round."""
    u = rng.random()
    for t, token in enumerate(guesses):
        if not u < ratio(t, token, p_draft, p_target):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def uniform_twice(guesses, p_draft, p_target, rng):
    """Draw from the residual with the number that rejected the guess."""
    for t, token in enumerate(guesses):
        u = rng.random()
        if not u < ratio(t, token, p_draft, p_target):
            cdf = np.cumsum(residual(p_target[t], p_draft[t]))
            return guesses[:t] + [int(np.argmax(u < cdf))]
    return guesses + [sample(p_target[-1], rng)]


def next_rows(guesses, p_draft, p_target, rng):
    """Test guess t with row t + 1 of the target."""
    return verify(guesses, p_draft, [*p_target[1:], p_target[-1]], rng)


def drafts_rest(S, alpha, q):
    return max(1 - q, S)


def traversal(guesses, p_draft, p_target, rng, rest=lambda S, alpha, q: S + 1 - alpha):
    """Accept the longest start that passes, tried from its end; alpha: probability of each."""
    alpha = [Fraction(1)]
    for t, token in enumerate(guesses):
        alpha.append(min(1, alpha[-1] * p_target[t][token] / p_draft[t][token]))
    row, p_accept = p_target[-1], alpha[-1]
    for n in range(len(guesses), 0, -1):
        if accept(p_accept, rng):
            return guesses[:n] + [sample(row, rng)]
        row = np.maximum(alpha[n - 1] * p_target[n - 1] - p_draft[n - 1], 0)
        S, q = row.sum(), p_draft[n - 1][guesses[n - 1]]
        p_accept = S / rest(S, alpha[n - 1], q) if S else 0
    return [sample(row, rng)]


def one_product(guesses, p_draft, p_target, rng):
    """Accept the longest start whose product of ratios is not below its product of uniforms.

    The replacement is from the residual of the ratio test, one row at a time.
    """
    products = np.cumprod([1, *(ratio(t, token, p_draft, p_target)
                                for t, token in enumerate(guesses))])
    n = sample(longest(products), rng)
    if n == len(guesses):
        return guesses + [sample(p_target[-1], rng)]
    return guesses[:n] + [sample(residual(p_target[n], p_draft[n]), rng)]


def longest(bounds):
    """Return P(n) for the last n with u_1 .. u_n <= bounds[n]; the bounds fall from 1.

    The product of n uniforms has the density (-log u)^(n-1) / (n-1)!. The integrals are written
    out, for up to three uniforms.
    """
    _, a, b, c = [*map(float, bounds), 0, 0, 0][:4]
    log_ab, log_b, log_c = log(a / b) if b else 0, -log(b) if b else 0, -log(c) if c else 0
    p_3 = c * (1 + log_c + log_c**2 / 2)
    p_2 = b * (1 + log_b) - c * (1 + log_c) - c * (log_c**2 - log_b**2) / 2
    p_1 = a - b - b * log_ab - c * log_ab**2 / 2
    return np.maximum([1 - p_1 - p_2 - p_3, p_1, p_2, p_3][: len(bounds)], 0)


# "q = 1": as if all rows were one-hot
q_is_one = partial(chain, p_accept=probability, replace=from_others)
