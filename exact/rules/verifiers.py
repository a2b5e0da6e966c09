"""Test guesses, rightly or wrongly: the tests of exact/rules/register.py, each a few lines.

    verify(guesses, p_draft, p_target, rng) -> 1 .. k + 1 tokens     as speculative.verify
    p_draft[t]      the draft's row for the position of guess t, t = 0 .. k - 1
    p_target[t]     the target's row for this position; row k follows all k guesses

Most tests are a `chain` with up to three of these parts replaced:

    scaled(row)     the target's row as `p_accept` reads it, [.., n_vocab]
    p_accept(p_target, p_draft)
                    the probability of accepting a guess, from its two probabilities
    replace(token, p_target, p_draft, p_next)
                    the weights of the replacement if `token` is rejected, [.., n_vocab];
                    p_target and p_draft are the rows of its position, and p_next is the
                    target's row of the position after it

The parts compute with Fractions here, so that distances are exact. exact/rules/batched.py calls
the parts with arrays of floats.
"""

from functools import partial

import numpy as np

from exact.toys import one_hot
from sampling import accept, residual, sample, softmax
from speculative import verify
from variants.match import match_verify
from variants.multipath import best_path
from variants.shared.branches import row_after

# ---- p_accept: the probability of accepting a guess

ratio = lambda p_target, p_draft: np.minimum(p_target / p_draft, 1)
probability = lambda p_target, p_draft: p_target
doubled = lambda p_target, p_draft: np.minimum(2 * p_target, 1)
# 1 * makes a number of a comparison: probability 1 if it holds, else 0
if_not_less = lambda p_target, p_draft: 1 * (p_target >= p_draft)
half_or_more = lambda p_target, p_draft: 1 * (2 * p_target >= 1)
never = lambda p_target, p_draft: 0 * p_target


def ratio_with_epsilon(p_target, p_draft, n=100):
    """Return the ratio with epsilon = 1 / n added to p_draft."""
    # both sides of the fraction are multiplied by n
    return ratio(n * p_target, n * p_draft + 1)


def match_or_ratio(p_target, p_draft):
    """Return the probability that a draw from the target matches, or the ratio rule accepts."""
    p_only_ratio = (1 - p_target) * ratio(p_target, p_draft)  # the draw is a different token
    return p_target + p_only_ratio


# ---- scaled: the target's row as p_accept reads it

unscaled = lambda row: row


def by_the_best(row):
    """Return the row divided by its largest probability; return a row of zeros unchanged."""
    largest = row.max(axis=-1, keepdims=True)
    return row / np.where(largest > 0, largest, 1)


# ---- replace: the weights of the token that replaces a rejected guess

def surplus(p_target, p_draft):
    """Return max(0, p_target - p_draft), the residual's weights; p_target if all are 0."""
    weights = np.maximum(p_target - p_draft, 0)
    return np.where((weights > 0).any(axis=-1, keepdims=True), weights, p_target)


from_residual = lambda token, p_target, p_draft, p_next: surplus(p_target, p_draft)
from_target = lambda token, p_target, p_draft, p_next: p_target
from_next_row = lambda token, p_target, p_draft, p_next: p_next
# in floats, also for Fractions. The softmax gives tokens without a surplus a probability too
from_softmax = lambda token, p_target, p_draft, p_next: softmax(
    np.maximum(p_target - p_draft, 0).astype(float))


def from_residual_with_epsilon(token, p_target, p_draft, p_next, n=100):
    """Return the residual's weights with epsilon = 1 / n added, all multiplied by n."""
    return n * np.maximum(p_target - p_draft, 0) + 1


def from_others(token, p_target, p_draft, p_next):
    """Return the target's row without the guess: the residual of a one-hot p_draft."""
    one_hot_draft = np.eye(p_target.shape[-1], dtype=int)[token]
    return surplus(p_target, one_hot_draft)


def from_same_race(token, p_target, p_draft, p_next):
    """Return the distribution of a replacement that is drawn with the guess's random numbers.

    The random numbers E are standard exponentials, one per token (-log E are Gumbel numbers).
    The guess g is argmin E / p_draft, and the replacement is argmin E / residual. Call E[x] /
    residual[x] the arrival of token x: the first token to arrive is the replacement.

    1. T = E[g] / p_draft[g] is the smallest of all E / p_draft. So T is a standard exponential,
       because the rates p_draft sum to 1.
    2. Every other token x has E[x] > p_draft[x] T. An exponential has no memory, so E[x] is
       p_draft[x] T plus a new standard exponential.
    3. Divide by residual[x]: the arrival is start[x] T plus an exponential of rate residual[x],
       with start[x] = p_draft[x] / residual[x].
    4. The toys have three tokens, and the rejected g is not in the residual. So at most two
       tokens can arrive: `first`, which has the smaller start, and `later`. Let gap be the
       difference of their starts.
    5. `first` runs alone for a time of gap * T, at the rate residual[first]. It does not arrive
       in this time with probability exp(-residual[first] * gap * T). The mean of this
       probability over T is 1 / (1 + residual[first] * gap).
    6. If it has not arrived, both run, at the rates residual[first] and residual[later], which
       sum to 1. So `later` then arrives before `first` with probability residual[later].
    """
    rates = residual(p_target, p_draft)
    starts = sorted((p_draft[x] / rates[x], x) for x in np.flatnonzero(rates))
    first_start, first = starts[0]
    row = one_hot(first)
    if len(starts) > 1:
        later_start, later = starts[1]
        gap = later_start - first_start
        row[later] = rates[later] / (1 + rates[first] * gap)
        row[first] -= row[later]
    return row


# ---- tests that go from guess to guess

def chain(guesses, p_draft, p_target, rng, p_accept=ratio, replace=from_residual, bonus=-1,
          numbers="separate", scaled=unscaled):
    """Test as speculative.verify, but with other parts.

    bonus      the row that the bonus token is drawn from; -1 is the last row
    numbers    "separate": every test and every draw has its own uniform
               "one": the first uniform tests all guesses
               "twice": the uniform that rejected a guess also draws its replacement
    """
    for t, token in enumerate(guesses):
        if numbers != "one" or t == 0:
            u = rng.random()
        p_guess = scaled(p_target[t])[token]
        if u < p_accept(p_guess, p_draft[t][token]):
            continue

        weights = replace(token, p_target[t], p_draft[t], p_target[t + 1])
        if numbers == "twice":
            # token i has the interval from ends[i - 1] to ends[i]: the first end above u is
            # drawn
            ends = np.cumsum(weights) / weights.sum()
            replacement = int(np.argmax(u < ends))
        else:
            replacement = sample(weights, rng)
        return guesses[:t] + [replacement]

    # rows are counted from the end. A round without guesses has row -1 alone, so it takes row
    # -1 even if `bonus` is -2
    row = max(bonus, -len(p_target))
    return guesses + [sample(p_target[row], rng)]


# "q = 1": as if all rows of the draft were one-hot
q_is_one = partial(chain, p_accept=probability, replace=from_others)


def same_race(guesses, p_draft, p_target, rng):
    """Draw from the residual with the Gumbel numbers that drew the guess."""
    return chain(guesses, p_draft, p_target, rng, replace=from_same_race)


def same_number(guesses, p_draft, p_target, rng):
    """Test as "q = 1", but with the uniform that drew the guess: accept if u < p_target[token].

    The guess was drawn by inversion. So u is uniform in the guess's interval, from `low` to
    low + p_draft[token], and it is below p_target[token] with probability
    (p_target[token] - low) / p_draft[token], cut to [0, 1].
    """
    for t, token in enumerate(guesses):
        low = p_draft[t][:token].sum()  # the mass of the tokens before the guess
        p_below = max(p_target[t][token] - low, 0) / p_draft[t][token]
        # accept(p, rng) is always true for p above 1
        if not accept(p_below, rng):
            return guesses[:t] + [sample(residual(p_target[t], one_hot(token)), rng)]
    return guesses + [sample(p_target[-1], rng)]


# ---- arrays, for one round or for a batch: a batch has an axis of rounds in front

def as_arrays(guesses, p_draft, p_target):  # -> [.., k], [.., k, V], [.., k + 1, V]
    """Return lists or arrays as arrays; those of a round without guesses are empty."""
    p_target = np.asarray(p_target)
    *rounds, _, V = p_target.shape
    guesses = np.reshape(guesses, (*rounds, -1)).astype(int)
    return guesses, np.reshape(p_draft, (*rounds, -1, V)), p_target


def at(rows, tokens):  # [.., k, V], [.., k] -> [.., k]
    """Return the probabilities of the tokens."""
    return np.take_along_axis(rows, tokens[..., None], axis=-1)[..., 0]


def best_of(rows):  # [.., V] -> [.., V]
    """Return one-hot rows of the largest entries."""
    # row i of the identity matrix is the one-hot row of token i
    one_hot_rows = np.eye(rows.shape[-1], dtype=rows.dtype)
    return one_hot_rows[rows.argmax(axis=-1)]


def probabilities(guesses, p_draft, p_target):  # -> [.., k], [.., k]
    """Return the target's and the draft's probabilities of the guesses, to be divided.

    A draft's probability of 0 is returned as 1, so that nothing is divided by 0.
    """
    guesses, p_draft, p_target = as_arrays(guesses, p_draft, p_target)
    drafts = at(p_draft, guesses)
    return at(p_target[..., :-1, :], guesses), np.where(drafts > 0, drafts, 1)


# ---- right tests with other rows of the target, for one round or for a batch

def with_rows(guesses, p_draft, p_target, numbers, test, rows):
    """Test the guesses with rows(p_draft, p_target) as the target's rows.

    numbers    rng for the test of one round, or the uniforms of a batch
    """
    _, draft_rows, target_rows = as_arrays(guesses, p_draft, p_target)
    return test(guesses, p_draft, rows(draft_rows, target_rows), numbers)


def draft_first(p_draft, p_target):
    """Return the target's rows, but the draft's row first: the first ratio is then 1."""
    first = p_draft[..., :1, :]  # no row if there are no guesses
    return np.concatenate([first, p_target[..., first.shape[-2] :, :]], axis=-2)


# compare the guesses with the target's most probable tokens
best_tokens = partial(
    with_rows, test=match_verify, rows=lambda p_draft, p_target: best_of(p_target))
# test guess t with row t + 1 of the target
next_rows = partial(
    with_rows, test=verify, rows=lambda p_draft, p_target: np.concatenate(
        [p_target[..., 1:, :], p_target[..., -1:, :]], axis=-2))
# accept the first guess without a test
first_untested = partial(with_rows, test=verify, rows=draft_first)
# the bonus token is the target's most probable token
best_bonus = partial(
    with_rows, test=verify, rows=lambda p_draft, p_target: np.concatenate(
        [p_target[..., :-1, :], best_of(p_target[..., -1:, :])], axis=-2))


def no_bonus(guesses, p_draft, p_target, rng):
    """Test as speculative.verify, and draw no bonus token: return at most k tokens."""
    tokens = verify(guesses, p_draft, p_target, rng)
    # a round without guesses returns one token
    return tokens[: max(len(guesses), 1)]


# ---- shares: what block verification multiplies up, for one round or for a batch
#
# [.., k + 1]; share n is of the first n guesses, and share 0 is 1

def joint_ratios(guesses, p_draft, p_target):
    """Return the product of the first n ratios p_target / p_draft, for n = 0 .. k."""
    targets, drafts = probabilities(guesses, p_draft, p_target)
    one = np.asarray(p_target)[..., 0, :1] ** 0  # [.., 1], a 1 of the rows' type of numbers
    return np.concatenate([one, targets / drafts], axis=-1).cumprod(axis=-1)


def over_largest(joint):
    """Return each product over the largest product so far: 1 is the cap after each guess."""
    return joint / np.maximum.accumulate(joint, axis=-1)


def right_shares(guesses, p_draft, p_target):
    """Return the right shares of block verification, which are those of variants/block.py."""
    return over_largest(joint_ratios(guesses, p_draft, p_target))


def last_uncapped(guesses, p_draft, p_target):
    """Return the right shares, but as the last one the product of all ratios, capped once."""
    joint = joint_ratios(guesses, p_draft, p_target)
    share = over_largest(joint)
    share[..., -1] = np.minimum(joint[..., -1], 1)
    return share


def capped_at_maxima(guesses, p_draft, p_target):
    """Return shares that are 1 after a guess at which the product of ratios has a new maximum.

    All others are 1 / (the draft's probability of the first n guesses), except the last one:
    it is the product of all ratios, capped at 1.
    """
    joint = joint_ratios(guesses, p_draft, p_target)
    _, drafts = probabilities(guesses, p_draft, p_target)
    share = np.insert(1 / drafts.cumprod(axis=-1), 0, 1, axis=-1)
    # column n is about product n + 1, which is compared with the products 0 .. n
    is_maximum = joint[..., 1:] > np.maximum.accumulate(joint, axis=-1)[..., :-1]
    share[..., 1:][is_maximum] = 1
    share[..., -1] = np.minimum(joint[..., -1], 1)
    return share


# ---- tests of several guesses at once

def whole_rest(mass, share, p_guess):
    """Return the right divisor in `traversal`, which is mass + 1 - share.

    Right shares are at most 1. For a wrong share above 1 the divisor is the mass, so that the
    probability is 1.
    """
    # 1 - share is computed first, so that a share of 1 adds exactly 0
    return np.maximum(mass + (1 - share), mass)


def drafts_rest(mass, share, p_guess):
    """Return a wrong divisor: the draft's mass without the guess, and at least the mass."""
    return np.maximum(1 - p_guess, mass)


def block_tests(guesses, p_draft, p_target, share, rest=whole_rest):
    """Return the weights of the token after n guesses, and the probabilities of accepting n.

    For one round or for a batch: weights [.., k + 1, V] for n = 0 .. k, and p_accept [.., k]
    for n = 1 .. k. Entry n - 1 of p_accept is for n guesses, if no larger number was accepted.
    """
    guesses, p_draft, p_target = as_arrays(guesses, p_draft, p_target)
    k = guesses.shape[-1]
    # the draft has no row k. Zeros stand for it, so weights k are the target's row times the
    # share, and are divided by their sum when a token is drawn
    no_row = 0 * p_target[..., :1, :]
    draft_rows = np.concatenate([p_draft, no_row], axis=-2)
    weights = np.maximum(share[..., None] * p_target - draft_rows, 0)
    mass = weights[..., :k, :].sum(axis=-1)
    divisor = rest(mass, share[..., :k], at(p_draft, guesses))
    # without mass the divisor may be 0, and no token can be drawn after n guesses. In the right
    # rule n + 1 guesses are then always accepted
    p_fewer = np.where(mass > 0, mass / np.where(mass > 0, divisor, 1), 0)  # of n < k guesses
    # all k guesses pass with probability share[k]; n = 0 needs no test, so entry 0 is dropped
    return weights, np.concatenate([p_fewer, share[..., k:]], axis=-1)[..., 1:]


def most_passed(p_accept, rng):
    """Return the largest number n of guesses whose test passes; n = k is tested first."""
    n = len(p_accept)
    while n > 0 and not accept(p_accept[n - 1], rng):
        n -= 1
    return n


def traversal(guesses, p_draft, p_target, rng, rest=whole_rest, shares=right_shares):
    """Accept the largest number n of guesses whose test passes.

    With the default parts this is block verification: variants/block.py explains the shares.

    rest      (mass, share, p_guess) -> what the mass is divided by in the test of n < k guesses
    shares    (guesses, p_draft, p_target) -> share[0 .. k]
    """
    share = shares(guesses, p_draft, p_target)
    weights, p_accept = block_tests(guesses, p_draft, p_target, share, rest)
    n = most_passed(p_accept, rng)
    return guesses[:n] + [sample(weights[n], rng)]


def match_tree(tree, p_draft, p_target, rng):
    """Draw the target's tokens; write them up to the first token that is not in the tree."""
    ids = []
    node = -1  # the root
    while node is not None:
        ids.append(sample(row_after(p_target, node), rng))
        node = tree.child(node, ids[-1])
    return ids


def match_each_path(tree, p_draft, p_target, rng):
    """Match each path with its own draws from the target; return the longest result."""
    results = [match_verify(path, None, rows_along(tree, p_target, path), rng)
               for path in whole_paths(tree)]
    return max(results, key=len)  # the first one of equal length


def one_hot_paths(tree, p_draft, p_target, rng):
    """Test the paths of a tree in turn, each as one block with one-hot rows.

    A path is tested if it begins with all tokens that are accepted so far. Its other tokens are
    the block. After a rejection the rejected token is removed from the row of its position, and
    the next path is tested from there.

    The first share of a block is the probability of the tokens accepted so far, which is wrong:
    it would have to be 1.
    """
    accepted = []
    row = row_after(p_target, -1)  # for the next token: the root's row, as nothing is accepted
    share = 1
    for path in whole_paths(tree):
        if path[: len(accepted)] != accepted:
            continue

        # rows[t] is for guess t of the block, and the last row for the token after the block
        block = path[len(accepted) :]
        rows = [row, *rows_along(tree, p_target, path)[len(accepted) + 1 :]]

        one_hots = [one_hot(token) for token in block]
        joint = joint_ratios(block, one_hots, rows)
        # the test of the whole block does not use the first share
        block_share = np.append(share * joint[:-1], joint[-1])
        _, p_accept = block_tests(block, one_hots, rows, block_share)
        n = most_passed(p_accept, rng)
        accepted = accepted + block[:n]
        if n == len(block):
            return accepted + [sample(rows[n], rng)]
        share = block_share[n]
        row = residual(rows[n], one_hots[n])

    return accepted + [sample(row, rng)]


def better_path(tree, p_draft, p_target, rng):
    """Test the better of two drawn paths as one block, wrongly with the draft's rows.

    variants/multipath.py has the right rows: those of the better path.
    """
    guesses, _, target_rows = best_path(tree, p_target)
    draft_rows = [p_draft[tree.find(guesses[: n + 1])] for n in range(len(guesses))]
    return traversal(guesses, draft_rows, target_rows, rng)


def whole_paths(tree):
    """Return the paths that end at a leaf; of an empty tree, the empty path."""
    return [path for node, path in enumerate(tree.paths())
            if node not in tree.parents] or [[]]


def rows_along(tree, p_target, path):
    """Return the target's row at the root and after each token of the path."""
    return [row_after(p_target, tree.find(path[:n])) for n in range(len(path) + 1)]
