"""Test guesses, rightly or wrongly: the tests of exact/rules/register.py, each a few lines.

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens     as speculative.verify
    p_draft[t], p_target[t]     the rows for the position of guess t; p_target has one row more

Most tests are a `chain` with up to three parts. All compute with Fractions, so distances are
exact, and with arrays of floats for exact/rules/batched.py.

    scaled(row)                     what p_accept is given of the target's row, [.., n_vocab]
    p_accept(p_target, p_draft)     the probability of accepting a guess, from its probabilities
    replace(token, p_target, p_draft, p_next)
                                    the weights of the token that replaces a guess, from its
                                    rows and the target's next row, [.., n_vocab]
"""

from functools import partial
from itertools import accumulate
from math import log
from operator import mul

import numpy as np

from exact.toys import one_hot
from sampling import accept, residual, sample
from speculative import verify
from variants.block import shares
from variants.match import match_verify
from variants.shared.branches import row_after

# ---- the probability to accept a guess

ratio = lambda p_target, p_draft: np.minimum(p_target / p_draft, 1)
probability = lambda p_target, p_draft: p_target
doubled = lambda p_target, p_draft: np.minimum(2 * p_target, 1)
if_not_less = lambda p_target, p_draft: 1 * (p_target >= p_draft)
half_or_more = lambda p_target, p_draft: 1 * (2 * p_target >= 1)
never = lambda p_target, p_draft: 0 * p_target
unscaled = lambda row: row


def by_the_best(row):
    """Return the row divided by its largest probability; a row of zeros stays."""
    largest = row.max(axis=-1, keepdims=True)
    return row / np.where(largest > 0, largest, 1)


def ratio_with_epsilon(p_target, p_draft, n=100):
    """Return the ratio with epsilon = 1 / n added to p_draft."""
    return ratio(n * p_target, n * p_draft + 1)


def match_or_ratio(p_target, p_draft):
    """Return P(the target's own draw is the guess, or else the ratio test passes)."""
    return p_target + (1 - p_target) * ratio(p_target, p_draft)


# ---- the weights of the token that replaces a rejected guess

def surplus(p_target, p_draft):
    """Return max(0, p_target - p_draft), the residual's weights; p_target if all are 0."""
    weights = np.maximum(p_target - p_draft, 0)
    return np.where((weights > 0).any(axis=-1, keepdims=True), weights, p_target)


from_residual = lambda token, p_target, p_draft, p_next: surplus(p_target, p_draft)
from_target = lambda token, p_target, p_draft, p_next: p_target
from_next_row = lambda token, p_target, p_draft, p_next: p_next


def from_residual_with_epsilon(token, p_target, p_draft, p_next, n=100):
    """Return n (surplus + epsilon) with epsilon = 1 / n; weights need not sum to 1."""
    return n * np.maximum(p_target - p_draft, 0) + 1


def from_others(token, p_target, p_draft, p_next):
    """Return the target's row without the guess: the residual for one-hot rows of the draft."""
    return surplus(p_target, np.eye(p_target.shape[-1], dtype=int)[token])


def from_same_race(token, p_target, p_draft, p_next):
    """Return the distribution of argmin E / residual, given that the guess was argmin E / p_draft.

    The E are standard exponentials, one per token (minus their logarithms are Gumbel numbers).
    Let T be E / p_draft of the guess: it is a standard exponential. Any other token x has E[x] =
    p_draft[x] T + a new standard exponential, so E[x] / residual[x] is p_draft[x] T / residual[x]
    (the start) plus an exponential time of rate residual[x]. The first to end wins, and T is
    integrated out. Of three tokens two can be in the residual: the rejected guess is not.
    """
    rest = residual(p_target, p_draft)
    # (start / T, token), the earliest first
    starts = sorted((p_draft[x] / rest[x], x) for x in np.flatnonzero(rest))
    start, first = starts[0]
    row = one_hot(first)
    for later_start, later in starts[1:]:  # one token at most
        # `first` has not ended at the start of `later` with probability
        # exp(-rest[first] (later_start - start) T), of mean 1 / (1 + rest[first] (..)) over T;
        # then `later` wins with probability rest[later]
        row[later] = rest[later] / (1 + rest[first] * (later_start - start))
        row[first] -= row[later]
    return row


# ---- ways to test

def chain(guesses, p_draft, p_target, rng, p_accept=ratio, replace=from_residual, bonus=-1,
          numbers="separate", scaled=unscaled):
    """Test as speculative.verify, with other parts.

    bonus      the row of the bonus token
    numbers    "separate"; "one": the first uniform tests all guesses; "twice": the uniform that
               rejected a guess also draws its replacement
    """
    for t, token in enumerate(guesses):
        if t == 0 or numbers != "one":
            u = rng.random()
        if not u < p_accept(scaled(p_target[t])[token], p_draft[t][token]):
            weights = replace(token, p_target[t], p_draft[t], p_target[t + 1])
            if numbers == "twice":  # the token whose interval of the weights contains u
                ends = np.cumsum(weights) / weights.sum()
                return guesses[:t] + [int(np.argmax(u < ends))]
            return guesses[:t] + [sample(weights, rng)]
    # bonus counts rows from the end; without guesses there is one row, and -2 would be no row
    row = max(bonus, -len(p_target))
    return guesses + [sample(p_target[row], rng)]


# "q = 1": as if all rows were one-hot
q_is_one = partial(chain, p_accept=probability, replace=from_others)


def same_number(guesses, p_draft, p_target, rng):
    """Test as "q = 1" with the number that drew the guess, uniform in the guess's interval."""
    for t, token in enumerate(guesses):
        low = p_draft[t][:token].sum()  # the guess's interval begins here
        # P(u < p_target[t][token]) for u uniform in [low, low + p_draft[t][token])
        if not accept(max(p_target[t][token] - low, 0) / p_draft[t][token], rng):
            return guesses[:t] + [sample(residual(p_target[t], one_hot(token)), rng)]
    return guesses + [sample(p_target[-1], rng)]


def best_tokens(guesses, p_draft, p_target, rng):
    """Compare the guesses with the target's most probable tokens."""
    return match_verify(guesses, p_draft, [one_hot(np.argmax(row)) for row in p_target], rng)


def next_rows(guesses, p_draft, p_target, rng):
    """Test guess t with row t + 1 of the target."""
    return verify(guesses, p_draft, [*p_target[1:], p_target[-1]], rng)


def first_untested(guesses, p_draft, p_target, rng):
    """Accept the first guess without a test; test the others."""
    # as if the target's row were the draft's: the ratio is 1
    first = p_draft[:1] if guesses else p_target[:1]
    return verify(guesses, p_draft, [*first, *p_target[1:]], rng)


def best_bonus(guesses, p_draft, p_target, rng):
    """Test as speculative.verify; the bonus token is the target's most probable token."""
    return verify(guesses, p_draft, [*p_target[:-1], one_hot(np.argmax(p_target[-1]))], rng)


def no_bonus(guesses, p_draft, p_target, rng):
    """Test as speculative.verify, and draw no bonus token."""
    tokens = verify(guesses, p_draft, p_target, rng)
    # a round without guesses has the last token alone
    return tokens[: max(len(guesses), 1)]


def same_race(guesses, p_draft, p_target, rng):
    """Draw from the residual with the Gumbel numbers that drew the guess."""
    return chain(guesses, p_draft, p_target, rng, replace=from_same_race)


def joint_ratios(guesses, p_draft, p_target):
    """Return the product of the first t ratios p_target / p_draft, for t = 0 .. k."""
    ratios = [p_target[t][token] / p_draft[t][token] for t, token in enumerate(guesses)]
    return [*accumulate(ratios, mul, initial=1)]


def last_uncapped(guesses, p_draft, p_target):
    """Return the shares of block verification, but the last one as if no other were capped."""
    joint = joint_ratios(guesses, p_draft, p_target)
    return [*shares(guesses, p_draft, p_target)[:-1], min(joint[-1], 1)]


def capped_at_maxima(guesses, p_draft, p_target):
    """Return shares that are 1 after a guess at which the product of ratios has a new maximum.

    All other shares are 1 over the draft's probability of the guesses, except the last one.
    """
    joint = joint_ratios(guesses, p_draft, p_target)
    drafts = [p_draft[t][token] for t, token in enumerate(guesses)]
    share = [1, *(1 / drawn for drawn in accumulate(drafts, mul))]
    for t in range(1, len(guesses)):
        if joint[t] > max(joint[:t]):
            share[t] = 1
    return [*share[:-1], min(joint[-1], 1)]


def whole_rest(mass, share, p_guess):
    """Return the right divisor: the mass and what the share lacks to 1; at least the mass."""
    # in this order, because a share of 1 then adds exactly 0
    return np.maximum(mass + (1 - share), mass)


def drafts_rest(mass, share, p_guess):
    """Return what the draft has left without the guess; at least the mass."""
    return np.maximum(1 - p_guess, mass)


def traversal(guesses, p_draft, p_target, rng, rest=whole_rest, shares=shares):
    """Accept the longest start that passes, tried from its end; share: variants/block.py."""
    share = shares(guesses, p_draft, p_target)  # share[n]: after n guesses
    weights = p_target[-1]
    p_accept = share[-1]
    for n in range(len(guesses), 0, -1):
        if accept(p_accept, rng):
            return guesses[:n] + [sample(weights, rng)]
        # the weights and the test after n - 1 guesses; guess n - 1, from this row, is rejected
        row = p_draft[n - 1]
        weights = np.maximum(share[n - 1] * p_target[n - 1] - row, 0)
        mass = weights.sum()
        p_guess = row[guesses[n - 1]]
        p_accept = mass / rest(mass, share[n - 1], p_guess) if mass else 0
    return [sample(weights, rng)]


def one_hot_paths(tree, p_draft, p_target, rng, kept=True):
    """Test the paths of a tree in turn, each as one block with one-hot rows.

    A path continues what the paths before it have accepted, without the guess that was rejected
    there. `kept`: a share begins with the probability of what is accepted, and not with 1.
    """
    accepted = []
    row = row_after(p_target, -1)  # of the next token
    share = 1
    for leaf, path in enumerate(tree.paths()):
        # a node with children is on the path to one of them
        if leaf in tree.parents or path[: len(accepted)] != accepted:
            continue
        rest = path[len(accepted) :]
        ends = [tree.find(path[:n]) for n in range(len(accepted) + 1, len(path) + 1)]
        rows = [row, *(row_after(p_target, end) for end in ends)]
        # one-hot rows of the draft: the ratio of a guess is its probability
        likely = [rows[t][token] for t, token in enumerate(rest)]
        share_at = [*accumulate(likely, mul, initial=share if kept else 1)]
        n = block_length([*accumulate(likely, mul)], share_at, rng)
        accepted = accepted + rest[:n]
        share = share_at[n]
        if n == len(rest):
            return accepted + [sample(rows[n], rng)]
        row = residual(rows[n], one_hot(rest[n]))
    return accepted + [sample(row, rng)]


def block_length(passed, share, rng):
    """Return how many one-hot guesses are accepted; all are with probability passed[-1]."""
    n = len(passed)
    p_accept = passed[-1]
    while n > 0 and not accept(p_accept, rng):
        n -= 1
        # share[n] of the target without guess n, and what the share lacks to 1
        mass = share[n] - share[n + 1]
        p_accept = mass / (mass + 1 - share[n]) if mass else 0
    return n


def one_product(guesses, p_draft, p_target, rng):
    """Accept the longest start whose product of ratios is not below its product of uniforms.

    The replacement is from the residual of the ratio test, one row at a time.
    """
    ratios = [ratio(p_target[t][token], p_draft[t][token]) for t, token in enumerate(guesses)]
    bounds = np.cumprod([1, *ratios])  # bounds[n]: the product of the first n ratios
    n = sample(longest(bounds), rng)
    if n == len(guesses):
        return guesses + [sample(p_target[-1], rng)]
    return guesses[:n] + [sample(residual(p_target[n], p_draft[n]), rng)]


def longest(bounds):
    """Return the distribution of the largest n whose product u_1 u_2 .. u_n is <= bounds[n].

    The bounds fall from bounds[0] = 1. The product of n uniforms has the density
    (-log u)^(n-1) / (n-1)!. The integrals are written out, for up to three uniforms; a, b and c
    are bounds[1], bounds[2] and bounds[3].
    """
    # a bound of 0 for a uniform that is not there: it never passes
    missing = [0.0] * (4 - len(bounds))
    a, b, c = [float(bound) for bound in bounds[1:]] + missing
    log_ab = log(a / b) if b else 0
    log_b = -log(b) if b else 0
    log_c = -log(c) if c else 0
    # P(u_1 u_2 u_3 <= c)
    p_3 = c * (1 + log_c + log_c**2 / 2)
    # P(two pass and three fail). Let v = u_1 u_2 <= b. Three pass if u_3 <= c / v: with
    # probability 1 if v <= c, and c / v if v is between c and b
    p_2 = b * (1 + log_b) - c * (1 + log_c) - c * (log_c**2 - log_b**2) / 2
    # P(one passes, two and three fail). Let u = u_1 <= a. Two pass with probability 1 if u <= b,
    # and b / u above; the last term is the part in which two fail and three pass
    p_1 = a - b - b * log_ab - c * log_ab**2 / 2
    return np.maximum([1 - p_1 - p_2 - p_3, p_1, p_2, p_3][: len(bounds)], 0)
