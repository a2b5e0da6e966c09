"""State verification rules as functions over arrays, as engines do: exact/rules.py in batches.

    guesses    [B, K]           p_draft   [B, K, V]        p_target   [B, K + 1, V]
    uniforms   [B, K + 1]       u_t tests guess t; the last one draws the token after the accepted
    tokens     [B, K + 1]       the accepted guesses and that token, then -1

exact/oracle.py is tested with them, and exact/power.py runs the tests of engines on them. They have
the names of exact/rules.py. A rule on how guesses are made is not such a function, so it is absent.
"""

from functools import partial
from typing import Callable, NamedTuple

import numpy as np

PAD_ROW = ((0, 0), (0, 1), (0, 0))  # one row of zeros after p_draft: its residual is the target
CONFIDENT = 0.4  # a draft is confident of a token from this probability on
COSTS = (10, 16, 17, 18)  # of a pass with 0 .. 3 guesses


# ---- parts

def at(rows, tokens):  # [B, k, V], [B, k] -> [B, k]
    """Return the probabilities of the tokens."""
    return np.take_along_axis(rows, tokens[..., None], axis=-1)[..., 0]


def draw(weights, uniforms):  # [.., V], [..] -> [..]
    """Return the token in whose interval the uniform is."""
    cumulative = weights.cumsum(axis=-1)
    total = np.where(cumulative[..., -1:] > 0, cumulative[..., -1:], 1)
    return (uniforms[..., None] >= cumulative / total).sum(axis=-1)


def surplus(p_target, p_draft):
    """Return the weights of the residual: p_target where no mass is left."""
    weights = np.maximum(p_target - p_draft, 0)
    return np.where(weights.any(axis=-1, keepdims=True), weights, p_target)


def written(guesses, n, token):  # [B, K], [B], [B] -> [B, K + 1]
    """Return the first n guesses and the token, then -1."""
    tokens = np.pad(guesses, ((0, 0), (0, 1)))
    tokens[np.arange(tokens.shape[1]) > n[:, None]] = -1
    tokens[np.arange(len(n)), n] = token
    return tokens


def first_rejected(accepted):  # [B, K] -> [B]
    return np.cumprod(accepted, axis=1).sum(axis=1)


# ---- the probability to accept each guess: (guesses, p_draft, p_target) -> [B, K]

def ratio(guesses, p_draft, p_target, epsilon=0):
    q = at(p_draft, guesses)
    return at(p_target[:, :-1], guesses) / (np.where(q > 0, q, 1) + epsilon)


def probability(guesses, p_draft, p_target):
    return at(p_target[:, :-1], guesses)


def match_or_ratio(guesses, p_draft, p_target):
    p = probability(guesses, p_draft, p_target)
    return p + (1 - p) * np.minimum(ratio(guesses, p_draft, p_target), 1)


def if_not_less(guesses, p_draft, p_target):
    return (at(p_target[:, :-1], guesses) >= at(p_draft, guesses)).astype(float)


def never(guesses, p_draft, p_target):
    return np.zeros(guesses.shape)


def doubled(guesses, p_draft, p_target):
    return 2 * at(p_target[:, :-1], guesses)


# ---- the weights of the token that replaces guess t: (guesses, p_draft, p_target) -> [B, K, V]

def from_residual(guesses, p_draft, p_target):
    return surplus(p_target[:, :-1], p_draft)


def from_residual_with_epsilon(guesses, p_draft, p_target, epsilon=0.01):
    return np.maximum(p_target[:, :-1] - p_draft, 0) + epsilon


def from_others(guesses, p_draft, p_target):
    return surplus(p_target[:, :-1], np.eye(p_target.shape[-1])[guesses])


def from_target(guesses, p_draft, p_target):
    return p_target[:, :-1]


def from_next_row(guesses, p_draft, p_target):
    return p_target[:, 1:]


# ---- how many guesses are tested: (guesses, p_draft) -> [B]

def all_of(guesses, p_draft):
    return (guesses >= 0).sum(axis=1)


def before_unsure_row(guesses, p_draft):
    return first_rejected(p_draft.max(axis=-1) > CONFIDENT)


def before_unsure_guess(guesses, p_draft, extra=0):
    n = first_rejected(at(p_draft, guesses) >= CONFIDENT)
    return np.minimum(n + extra, guesses.shape[1])


def before_token_2(guesses, p_draft):
    return first_rejected(guesses != 2)


def rates(p_draft, costs):  # -> [B, K + 1]
    """Return the expected tokens per cost of 0 .. K guesses, by the draft's confidence."""
    survival = np.cumprod(p_draft.max(axis=-1), axis=1).cumsum(axis=1)
    tokens = np.pad(1 + survival, ((0, 0), (1, 0)), constant_values=1)
    return tokens / np.array(costs)[: tokens.shape[1]]


def best_rate(guesses, p_draft, costs=COSTS):
    return rates(p_draft, costs).argmax(axis=1)


def first_descent(guesses, p_draft, costs=(10, 14, 17, 18)):
    each = rates(p_draft, costs)
    return first_rejected(each[:, 1:] > each[:, :-1])


# ---- tests

def chain(guesses, p_draft, p_target, uniforms, p_accept=ratio, replace=from_residual,
          n_tested=all_of, bonus_row=None, numbers="separate"):
    """Accept guess after guess; at the first rejection draw a replacement, else the bonus token.

    numbers    "separate"; "one": the first uniform tests all guesses; "twice": the uniform that
               rejected a guess also draws its replacement
    """
    B, K = guesses.shape
    each, last = np.arange(B), n_tested(guesses, p_draft)
    guess = np.maximum(guesses, 0)
    tests = uniforms[:, :1] if numbers == "one" else uniforms[:, :K]
    accepted = tests < p_accept(guess, p_draft, p_target)
    n = np.minimum(first_rejected(accepted), last)
    weights = np.concatenate([replace(guess, p_draft, p_target), p_target[:, K:]], axis=1)[each, n]
    bonus = p_target[each, last if bonus_row is None else np.maximum(last + bonus_row, 0)]
    weights = np.where((n == last)[:, None], bonus, weights)
    number = uniforms[each, n] if numbers == "twice" else uniforms[:, K]
    return written(guess, n, draw(weights, number))


def match(guesses, p_draft, p_target, uniforms, fresh=False, n_tested=all_of):
    """Draw the target's tokens and write them as long as they are the guesses; one draw more."""
    each, last = np.arange(len(guesses)), n_tested(guesses, p_draft)
    drawn = draw(p_target, uniforms)
    n = np.minimum(first_rejected(drawn[:, :-1] == guesses), last)
    token = draw(p_target[each, n], uniforms[:, -1]) if fresh else drawn[each, n]
    return written(guesses, n, token)


def with_next_rows(guesses, p_draft, p_target, uniforms):
    """Test guess t with row t + 1 of the target."""
    rows = np.concatenate([p_target[:, 1:], p_target[:, -1:]], axis=1)
    return chain(guesses, p_draft, rows, uniforms)


def best_tokens(guesses, p_draft, p_target, uniforms):
    """Write the target's most probable tokens as long as they are the guesses; one token more."""
    one_hot = np.eye(p_target.shape[-1])[p_target.argmax(axis=-1)]
    return match(guesses, p_draft, one_hot, uniforms)


def shares(guesses, p_draft, p_target):  # -> [B, K + 1]
    """Return what is left of the block's probability after each guess: variants/block.py."""
    ratios, out = ratio(guesses, p_draft, p_target), [np.ones(len(guesses))]
    for t in range(guesses.shape[1]):
        out.append(np.minimum(out[-1] * ratios[:, t], 1))
    return np.stack(out, axis=1)


def all_rest(mass, share, q):
    return mass + 1 - share


def drafts_rest(mass, share, q):
    return np.maximum(1 - q, mass)


def longest(guesses, p_draft, p_target, uniforms, rest=all_rest):
    """Accept the longest start that passes, tried from its end: block, and traversal of a chain."""
    each, K = np.arange(len(guesses)), guesses.shape[1]
    share = shares(guesses, p_draft, p_target)
    weights = np.maximum(share[..., None] * p_target - np.pad(p_draft, PAD_ROW), 0)  # [B, K + 1, V]
    mass = weights[:, :K].sum(axis=-1)
    whole = rest(mass, share[:, :K], at(p_draft, guesses))
    chance = np.where(mass > 0, mass / np.where(whole > 0, whole, 1), whole <= 0)
    chance = np.concatenate([np.ones((len(guesses), 1)), chance[:, 1:], share[:, K:]], axis=1)
    passed = np.pad(uniforms[:, :K], ((0, 0), (1, 0))) < chance  # no guess: always
    n = K - passed[:, ::-1].argmax(axis=1)
    return written(guesses, n, draw(weights[each, n], uniforms[:, K]))


def last_product(guesses, p_draft, p_target, uniforms):
    """Accept up to the last guess at which the product of ratios reaches that of the uniforms."""
    each, K = np.arange(len(guesses)), guesses.shape[1]
    ratios = np.minimum(ratio(guesses, p_draft, p_target), 1)
    passed = np.cumprod(ratios, axis=1) >= np.cumprod(uniforms[:, :K], axis=1)
    passed = np.pad(passed, ((0, 0), (1, 0)), constant_values=True)
    n = K - passed[:, ::-1].argmax(axis=1)
    weights = surplus(p_target, np.pad(p_draft, PAD_ROW))[each, n]
    return written(guesses, n, draw(weights, uniforms[:, K]))


# ---- the rules

class Kernel(NamedTuple):
    """Hold a test of all guesses of a batch, and whether it is exact."""

    verify: Callable
    exact: bool


q_is_one = partial(chain, p_accept=probability, replace=from_others)
KERNELS = {
    "ratio test, residual; guesses drawn": Kernel(chain, True),
    "argmax guesses, one-hot rows (\"q = 1\")": Kernel(q_is_one, True),
    "\"q = 1\"; guesses drawn": Kernel(q_is_one, True),
    "\"q = 1\"; argmax guesses, accepted from p_target = .5 on":
        Kernel(partial(chain, p_accept=doubled, replace=from_others), False),
    "\"q = 1\"; argmax guesses, always rejected":
        Kernel(partial(chain, p_accept=never, replace=from_others), False),
    "match; guesses drawn": Kernel(match, True),
    "match; argmax guesses": Kernel(match, True),
    "match with the target's best token, at any temperature": Kernel(best_tokens, False),
    "match, then a fresh draw": Kernel(partial(match, fresh=True), False),
    "match or the ratio test, then the residual":
        Kernel(partial(chain, p_accept=match_or_ratio), False),
    "accept if p_target >= p_draft": Kernel(partial(chain, p_accept=if_not_less), False),
    "accept if p_target >= p_draft, then a draw from the target":
        Kernel(partial(chain, p_accept=if_not_less, replace=from_target), False),
    "ratio test, then a draw from the target": Kernel(partial(chain, replace=from_target), False),
    "ratio test, then the target without the guess":
        Kernel(partial(chain, replace=from_others), False),
    "ratio test, then a draw from the next row":
        Kernel(partial(chain, replace=from_next_row), False),
    "ratio test with the target's next row": Kernel(with_next_rows, False),
    "ratio test, .01 added to p_draft and to the residual": Kernel(partial(
        chain, p_accept=partial(ratio, epsilon=0.01), replace=from_residual_with_epsilon), False),
    "bonus token from the last guess's row": Kernel(partial(chain, bonus_row=-1), False),
    "one uniform for all tests of a round": Kernel(partial(chain, numbers="one"), False),
    "one uniform for a test and its replacement": Kernel(partial(chain, numbers="twice"), False),
    "products of ratios and of uniforms, then the residual of one row":
        Kernel(last_product, False),
    "traversal": Kernel(longest, True),
    "traversal, divided by what the draft has left":
        Kernel(partial(longest, rest=drafts_rest), False),
    "stop before drawing from a low-confidence row":
        Kernel(partial(chain, n_tested=before_unsure_row), True),
    "stop after a low-confidence guess, which is tested":
        Kernel(partial(chain, n_tested=partial(before_unsure_guess, extra=1)), True),
    "drop a low-confidence guess; drawn, ratio test":
        Kernel(partial(chain, n_tested=before_unsure_guess), False),
    "drop a low-confidence guess; drawn, \"q = 1\"":
        Kernel(partial(q_is_one, n_tested=before_unsure_guess), True),
    "drop a low-confidence guess; drawn, match":
        Kernel(partial(match, n_tested=before_unsure_guess), True),
    "drop a low-confidence guess; argmax, one-hot rows":
        Kernel(partial(q_is_one, n_tested=before_token_2), True),
    "guesses up to the first that does not pay; ratio test":
        Kernel(partial(chain, n_tested=first_descent), True),
    "the number of guesses that pays best; ratio test":
        Kernel(partial(chain, n_tested=best_rate), False),
    "the number of guesses that pays best; match":
        Kernel(partial(match, n_tested=best_rate), True),
}
