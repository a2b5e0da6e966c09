"""Turn logits into tokens: how every decoder here, speculative or not, draws a token.

    logits     what the model returns for one position, [n_vocab]
    probs      the distribution of the next token, [n_vocab], float64, sums to 1
    warp       logits -> probs: repetition penalty, mask, temperature, softmax, top-k, top-p
    rng        a np.random.Generator: the only source of randomness

Randomness enters the project in `sample` and `accept`. Each draws one uniform number in [0, 1)
from `rng` and compares it once, so a test can replace the generator by one that enumerates
every outcome with its exact probability (exact/law.py). One decoder has a draw of its own:
`race_sample` in variants/coupled.py derives n_vocab numbers from one uniform number.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike


class HasRandom(Protocol):
    """Describe a source of uniform numbers in [0, 1), such as a np.random.Generator."""

    def random(self) -> float: ...


# ids -> [n_vocab] of bool: entry i is True if token i may follow the ids
Allowed = Callable[[Sequence[int]], np.ndarray]
NUMBER = (int, float, np.number)  # the types of Python's and NumPy's numbers


def softmax(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """Return exp(l / temperature) divided by its sum over the last axis, in float64.

    Subtracting the largest logit from all logits leaves the quotient as it is and keeps exp
    from overflowing. ValueError if the temperature is not > 0, or a row's largest logit is NaN
    or infinite. (cache.py has a softmax in the weights' dtype.)

    >>> logits = np.array([-110.0, -35.0, -36.0])      # GPT-2's logits look like this
    >>> np.allclose(softmax(logits), softmax(logits + 110.0))
    True
    """
    if not temperature > 0:
        raise ValueError(f"need temperature > 0, got {temperature!r}")
    probs = np.array(logits, dtype=np.float64)  # a copy, which the next lines overwrite
    largest = probs.max(axis=-1, keepdims=True)
    if not np.isfinite(largest).all():
        raise ValueError("need rows whose largest logit is finite, got NaN or infinity")
    probs -= largest
    with np.errstate(over="ignore"):  # a quotient may become -inf, whose exp is 0
        probs /= temperature
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=-1, keepdims=True)
    return probs


def warp(logits: ArrayLike, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
         repetition_penalty: float = 1.0, ids: Sequence[int] = (),
         allowed: Allowed | None = None) -> np.ndarray:
    """Return the distribution of the next token: logits after all sampling settings.

    "The target's distribution" in every theorem here is the one *after* this function. The
    settings, in the order of application:

    repetition_penalty  1e-99 to 1e99: for each token of the text so far, divide a positive
                        logit by it, multiply a negative one, as transformers does. (Keskar et
                        al. (2019) Sec. 4.1 divide both.)
    allowed             a function ids -> [n_vocab] of bool: the tokens that may follow the text
                        `ids`; all other tokens get probability 0 (lib/pattern.py).
    temperature         >= 0: divide the logits; 0 is greedy: the largest logit gets all mass.
    top_k               >= 0: keep the top_k most probable tokens; 0 keeps all.
    top_p               in (0, 1]: keep the smallest set of most probable tokens whose mass is
                        at least top_p, summed in float64. Holtzman et al. (2020) Sec. 3.1.

    Among equal logits the token with the lowest id comes first. `logits` is [n_last, n_vocab],
    or [n_vocab] for one row; the result has the same shape, in float64. The repetition penalty
    and the mask need `ids`, the whole sequence: the last row of logits follows `ids`, the row
    before it follows `ids[:-1]`, and so on. ValueError if the shape is different, a setting is
    out of range, a logit is NaN or infinite, a penalty or a mask comes with fewer ids than
    rows, or no token is allowed.

    >>> np.allclose(warp([0.0, 0.0, np.log(2.0)]), [0.25, 0.25, 0.5])
    True
    >>> warp([0.0, 0.0, np.log(2.0)], top_p=0.5), warp([2.0, 1.0, 2.0], temperature=0)
    (array([0., 0., 1.]), array([1., 0., 0.]))
    """
    check_sampling(temperature, top_k, top_p, repetition_penalty, allowed)
    shape = np.shape(logits)
    if len(shape) not in (1, 2) or shape[-1] == 0:
        raise ValueError("need logits of shape [n_last, n_vocab] or [n_vocab], got shape "
                         f"{list(shape)}")
    rows = np.atleast_2d(logits)  # still in the model's precision; softmax makes it float64
    check_finite(rows)
    rows = adjusted_logits(rows, ids, repetition_penalty, allowed)
    if temperature == 0:
        tokens = rows.argmax(axis=-1)  # of equal logits the lowest id
        return one_hot_rows(tokens, rows.shape[-1]).reshape(shape)
    probs = softmax(rows, temperature)
    if top_k:
        for row in probs:  # each row is a view, so this overwrites probs
            row[:] = keep_largest(row, int(top_k))  # int: 5.0 is a whole number too
    if top_p < 1.0:
        for row in probs:
            row[:] = keep_top_p(row, top_p)
    return probs.reshape(shape)


def with_sampling(model, **settings):
    """Return a callable `(ids, n_last) -> probs` from a model that gives logits.

    `settings` are the arguments of `warp`. Draft and target may have different settings; only
    the settings of the target affect the distribution of the text.
    """
    check_sampling(**settings)  # now, not in the first round

    def probabilities(ids, n_last=1):
        return warp(model(ids, n_last), ids=ids, **settings)

    return probabilities


def adjusted_logits(rows, ids, repetition_penalty=1.0, allowed=None):  # [n_last, n_vocab]
    """Return logits after the settings that depend on each row's own prefix."""
    if repetition_penalty == 1.0 and allowed is None:
        return rows
    if len(ids) < len(rows):
        raise ValueError("need the whole sequence for a repetition penalty or a mask, got "
                         f"{len(ids)} ids for {len(rows)} rows of logits")
    rows = np.array(rows, dtype=np.float64)  # a copy, which is changed in place
    for i, row in enumerate(rows):
        n_unseen = len(rows) - 1 - i  # later tokens, which row i must not see
        prefix = ids[: len(ids) - n_unseen]
        if repetition_penalty != 1.0:
            penalize(row, prefix, repetition_penalty)
        if allowed is not None:
            mask(row, prefix, allowed)
    return rows


def penalize(row, prefix, penalty):  # [n_vocab], changed in place
    """Make the tokens of the prefix less probable, or with a penalty below 1 more probable."""
    tokens = sorted(set(prefix))
    for token in tokens[:1] + tokens[-1:]:  # the smallest and the largest
        if not 0 <= token < len(row):
            raise ValueError(f"need ids in 0 .. n_vocab - 1 = {len(row) - 1}, got {token}")
    old = row[tokens]
    # A penalty above 1 makes the logit smaller in both cases.
    row[tokens] = np.where(old > 0, old / penalty, old * penalty)


def mask(row, prefix, allowed):  # [n_vocab], changed in place
    """Make the tokens impossible that are not allowed after the prefix."""
    may_follow = np.asarray(allowed(prefix), bool)
    if may_follow.shape != row.shape:
        raise ValueError(f"need a mask of {len(row)} tokens, got shape {may_follow.shape}")
    if not may_follow.any():
        raise ValueError(f"the mask allows no token after {len(prefix)} ids that end in "
                         f"{list(prefix[-8:])}")
    row[np.logical_not(may_follow)] = -np.inf


def one_hot_rows(ids, n_vocab):  # -> [len(ids), n_vocab]
    """Return one distribution per token, with all its mass on this token."""
    for token in ids:
        if not 0 <= token < n_vocab:
            raise ValueError(f"need ids in 0 .. n_vocab - 1 = {n_vocab - 1}, got {token}")
    rows = np.zeros((len(ids), n_vocab))
    rows[np.arange(len(ids)), ids] = 1.0  # row i, column ids[i]
    return rows


def keep_largest(row, n):  # [n_vocab] -> [n_vocab]
    """Zero all but the n largest entries (lowest ids first among equals) and renormalise."""
    n = min(n, len(row))
    border = np.partition(row, -n)[-n]  # the n-th largest entry
    ties = np.flatnonzero(row == border)
    larger = row > border
    n_larger = np.count_nonzero(larger)
    kept = np.where(larger, row, 0.0)
    # The ties with the lowest ids fill the places that are left.
    kept[ties[: n - n_larger]] = border
    return kept / kept.sum()


def keep_top_p(row, top_p):  # [n_vocab] -> [n_vocab]
    """Zero all tokens outside the smallest set with mass >= top_p. Holtzman et al. (2020)."""
    # The tokens below (1 - top_p) / n_vocab have less than 1 - top_p together, so the set needs
    # none of them: only the others are sorted.
    candidates = row[row >= (1 - top_p) / len(row)]
    mass = np.cumsum(np.sort(candidates)[::-1])  # mass[i]: of the i + 1 most probable tokens
    # The n_too_few most probable tokens have less than top_p; with one more they have enough.
    n_too_few = np.count_nonzero(mass < top_p)
    return keep_largest(row, n_too_few + 1)


def at_least_float64(numbers):
    """Return numbers in float64; an array of Fractions, of dtype object, stays as it is.

    With float32 numbers NumPy would round a uniform number to float32 before it compares.
    """
    numbers = np.asarray(numbers)
    return numbers.astype(np.result_type(numbers, np.float64), copy=False)


def sample(probs: ArrayLike, rng: HasRandom) -> int:
    """Draw one token from weights [n_vocab], by inversion of their cumulative sum.

    Returns the first token whose cumulative probability exceeds u, one uniform number. There is
    such a token: the last cumulative probability is exactly 1, and u < 1. A token of weight 0
    is never the first: the token before it (or 0) has the same cumulative probability.
    ValueError if `probs` is empty or has two axes, a weight is negative or NaN, or the weights'
    sum is 0 or infinite.

    >>> sample([0.0, 1.0, 0.0], np.random.default_rng(0))
    1
    """
    weights = at_least_float64(probs)
    if weights.ndim != 1 or len(weights) == 0:
        raise ValueError(f"need one row of probabilities, got shape {list(weights.shape)}")
    cdf = np.cumsum(weights)
    # A NaN weight makes the sum NaN, so that `0 < cdf[-1]` is False.
    if not 0 < cdf[-1] < np.inf or weights.min() < 0:
        raise ValueError("need probabilities >= 0 with a finite sum > 0, which with_sampling "
                         f"makes from logits, got sum {cdf[-1]}, smallest {weights.min()}")
    cdf /= cdf[-1]
    return int(np.argmax(rng.random() < cdf))


def accept(prob: float, rng: HasRandom) -> bool:
    """Return True with probability `prob`. ValueError if `prob` is negative or NaN.

    The comparison is u < prob and not u <= prob, because u can be 0, and a guess of
    probability 0 must be rejected even then.

    >>> accept(1.0, np.random.default_rng(0)), accept(0.0, np.random.default_rng(0))
    (True, False)
    """
    if not prob >= 0:
        raise ValueError(f"need a probability >= 0, got {prob}")
    return bool(rng.random() < at_least_float64(prob))


def residual(p_target: np.ndarray, p_draft: np.ndarray) -> np.ndarray:
    """Return norm(max(0, p_target - p_draft)), the distribution that replaces a rejected guess.

    If no probability is larger in p_target, no mass is left. Both rows sum to 1, so they are
    equal up to rounding, and the result is p_target. Chen et al. (2023) Eq. 2;
    Leviathan et al. (2023) Sec. 2.3.

    Theorem 1 for one token: accepted mass and resampled mass add up to the target's row.

    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.75, 0.0])
    >>> accepted = np.minimum(p_target, p_draft)
    >>> accepted + (1 - accepted.sum()) * residual(p_target, p_draft)
    array([0.5 , 0.25, 0.25])
    """
    surplus = np.maximum(np.subtract(p_target, p_draft), 0)  # lists have no "-"
    mass = surplus.sum()
    return surplus / mass if mass > 0 else p_target


# ---- checks of arguments

def check_sampling(temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0, allowed=None):
    """Raise ValueError for a sampling setting of a wrong type or out of its range."""
    for setting in (temperature, top_k, top_p, repetition_penalty):
        if not isinstance(setting, NUMBER):
            raise ValueError("need numbers for temperature, top_k, top_p and "
                             f"repetition_penalty, got {setting!r}")
    if not 0 <= temperature < np.inf:
        raise ValueError(f"need 0 <= temperature < inf, got {temperature}")
    if not (top_k >= 0 and top_k % 1 == 0):
        raise ValueError(f"need top_k a whole number >= 0 (0 keeps all), got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"need 0 < top_p <= 1, got {top_p}")
    if not 1e-99 <= repetition_penalty <= 1e99:  # times a float32 it fits in float64
        raise ValueError(f"need 1e-99 <= repetition_penalty <= 1e99, got {repetition_penalty}")
    if not (allowed is None or callable(allowed)):
        raise ValueError(f"need a function allowed(ids), got {allowed!r}")


def check_finite(rows):  # [n_last, n_vocab]
    """Raise ValueError if a logit is NaN or infinite, because argmax would hide it."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, token = np.argwhere(~finite)[0]
        raise ValueError(f"need finite logits, got {rows[row, token]} in row {row} of "
                         f"{len(rows)}, token {token}")
