"""From logits to chance: what every decoder here, speculative or not, draws its tokens with.

    logits     what the model returns for one position, [n_vocab]
    probs      the law of the next token, [n_vocab], float64, sums to 1
    warp       logits -> probs: repetition penalty, temperature, top-k, top-p, softmax
    rng        a np.random.Generator: the only source of chance

Chance enters the project in two functions only, `sample` and `accept`. Each asks `rng` for one
uniform number in [0, 1) and compares it once, so a test can replace the generator by one that walks
through every outcome with its exact probability (tests/enumerating.py).
"""

import numpy as np


def softmax(logits):
    """The softmax over the last axis, in float64.

    Parameters
    ----------
    logits : array_like, [..., n_vocab]

    Returns
    -------
    ndarray of float64, [..., n_vocab]

    Notes
    -----
    `exp(l) / sum(exp(l))`, with the largest logit subtracted first: the law does not change (the
    doctest), and no exponential overflows.

    Examples
    --------
    >>> logits = np.array([-110.0, -35.0, -36.0])      # GPT-2's logits look like this
    >>> np.allclose(softmax(logits), softmax(logits + 110.0))
    True
    """
    logits = np.asarray(logits, dtype=np.float64)
    exps = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


def warp(logits, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0, ids=()):
    """The law that the next token is drawn from: logits after all sampling knobs.

    The target's law in every theorem here is the law *after* this function: a lossless decoder
    preserves exactly what `warp` returns for the target. In order: repetition penalty, temperature,
    top-k, top-p.

    Parameters
    ----------
    logits : array_like, [n_last, n_vocab] or [n_vocab]
    temperature : float, >= 0
        Logits are divided by it. 0 is greedy: a one-hot row at the largest logit (the lowest id of
        equal ones), so that greedy decoding runs through the same code as sampling.
    top_k : int, >= 0
        Keep the `top_k` most probable tokens; 0 keeps all.
    top_p : float, in (0, 1]
        Keep the smallest set of most probable tokens whose mass is at least `top_p`. Here and in
        top-k, of equally probable tokens at the border the lowest ids are kept.
    repetition_penalty : float, > 0
        The logit of a token that occurs before its row is divided by the penalty if positive and
        multiplied by it if not.
    ids : sequence of int
        The whole sequence, needed by the repetition penalty: the last row of `logits` follows
        `ids`, the row before it `ids[:-1]`, and so on. Every row is penalised for its own prefix.

    Returns
    -------
    ndarray of float64, the shape of `logits`

    Raises
    ------
    ValueError
        If a knob is out of its range, a row of `logits` holds a NaN or an infinity, or there is a
        repetition penalty and fewer ids than rows.

    References
    ----------
    Top-p: Holtzman et al. (2020) Sec. 3.1. Repetition penalty: Keskar et al. (2019) Sec. 4.1.

    Examples
    --------
    >>> warp([[2.0, 1.0, 2.0]], temperature=0)
    array([[1., 0., 0.]])
    >>> law = warp([0.0, 0.0, np.log(2.0)])
    >>> np.allclose(law, [0.25, 0.25, 0.5])
    True
    >>> warp([0.0, 0.0, np.log(2.0)], top_p=0.5)
    array([0., 0., 1.])
    """
    check_knobs(temperature, top_k, top_p, repetition_penalty)
    logits = np.asarray(logits, dtype=np.float64)
    rows = logits.reshape(-1, logits.shape[-1])  # [n_last, n_vocab]
    check_finite(rows)
    if repetition_penalty != 1.0:
        rows = penalize(rows, ids, repetition_penalty)
    if temperature == 0:
        return greedy(rows).reshape(logits.shape)
    # Subtle: one row's temporaries stay in the cache; those of five rows are new pages every time.
    probs = np.array([softmax(row / temperature) for row in rows])
    if top_k:
        probs = np.array([keep_top_k(row, top_k) for row in probs])
    if top_p < 1.0:
        probs = np.array([keep_top_p(row, top_p) for row in probs])
    return probs.reshape(logits.shape)


def warped(model, **knobs):
    """The callable `(ids, n_last) -> probs` that speculative.py wants, from one that gives logits.

    `knobs` are `warp`'s. Draft and target may have different ones: the target's decide the law.
    """
    return lambda ids, n_last=1: warp(model(ids, n_last), ids=ids, **knobs)


def check_knobs(temperature, top_k, top_p, repetition_penalty):
    """Raise the ValueError that `warp` promises for a knob out of its range."""
    if not 0 <= temperature < np.inf:
        raise ValueError(f"need 0 <= temperature < inf, got {temperature}")
    if top_k != int(top_k) or top_k < 0:
        raise ValueError(f"need top_k a whole number >= 0 (0 keeps all), got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"need 0 < top_p <= 1, got {top_p}")
    if not 0 < repetition_penalty < np.inf:
        raise ValueError(f"need 0 < repetition_penalty < inf, got {repetition_penalty}")


def check_finite(rows):  # [n_last, n_vocab]
    """Raise if a logit is NaN or infinite: a broken model must not become a silent token."""
    finite = np.isfinite(rows)
    if not finite.all():
        row, token = np.argwhere(~finite)[0]
        raise ValueError(f"need finite logits, got {rows[row, token]} in row {row} of {len(rows)}, "
                         f"token id {token}")


def penalize(rows, ids, penalty):  # [n_last, n_vocab] -> [n_last, n_vocab]
    """Make tokens less likely that stand in a row's own prefix. Keskar et al. (2019) Sec. 4.1."""
    if len(ids) < len(rows):
        raise ValueError(f"need the whole sequence for a repetition penalty, got {len(ids)} ids "
                         f"for {len(rows)} rows of logits")
    rows = rows.copy()
    for i, row in enumerate(rows):
        seen = sorted(set(ids[: len(ids) - len(rows) + 1 + i]))
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    return rows


def greedy(rows):  # [n_last, n_vocab] -> [n_last, n_vocab]
    """Temperature 0: all mass on each row's largest entry, the lowest id of equal ones."""
    probs = np.zeros(rows.shape)
    probs[np.arange(len(rows)), rows.argmax(axis=-1)] = 1.0
    return probs


def keep_largest(row, n):  # [n_vocab] -> [n_vocab]
    """Zero all but the n largest entries (lowest ids first among equals) and renormalise."""
    border = np.partition(row, -n)[-n]
    ties = np.flatnonzero(row == border)
    kept = np.where(row > border, row, 0.0)
    kept[ties[: n - np.count_nonzero(row > border)]] = border
    return kept / kept.sum()


def keep_top_k(row, top_k):  # [n_vocab] -> [n_vocab]
    """The row cut to its `top_k` most probable tokens."""
    return keep_largest(row, min(int(top_k), len(row)))


def keep_top_p(row, top_p):  # [n_vocab] -> [n_vocab]
    """The row cut to its smallest set of tokens with mass >= `top_p`. Holtzman et al. (2020)."""
    mass = np.cumsum(np.sort(row)[::-1])  # mass of the n + 1 most probable tokens
    n = 1 + np.count_nonzero(mass < top_p)
    return keep_largest(row, min(n, len(row)))  # rounding can leave even the whole row below top_p


def sample(probs, rng):
    """Draw one token id from `probs`, by inversion of the cumulative sum.

    Parameters
    ----------
    probs : array_like, [n_vocab]
        Weights >= 0; they are used relative to their sum, so a float32 row that sums to 0.9999 is
        no danger.
    rng : np.random.Generator
        Asked for one uniform.

    Returns
    -------
    int
        The first id whose cumulative sum exceeds `u * total`. An id of weight 0 is never drawn.

    Raises
    ------
    ValueError
        If a weight is negative or NaN, or their sum is zero or infinite.

    Examples
    --------
    >>> sample([0.0, 1.0, 0.0], np.random.default_rng(0))
    1
    """
    probs = np.asarray(probs)
    # Subtle: a float32 sum over 50,257 tokens drifts by 1e-6. (Fractions stay Fractions here.)
    cdf = np.cumsum(probs, dtype=np.result_type(probs, np.float64))
    if not 0 < cdf[-1] < np.inf or (probs < 0).any():
        raise ValueError(f"need probabilities >= 0 with a finite sum > 0, got sum {cdf[-1]}, "
                         f"smallest {probs.min()}")
    threshold = rng.random() * cdf[-1]
    return int(np.argmax(threshold < cdf))


def accept(prob, rng):
    """True with probability `prob` (at least 1: always; 0: never).

    Parameters
    ----------
    prob : float, >= 0
    rng : np.random.Generator
        Asked for one uniform u in [0, 1). The test is `u < prob`, strictly: with `<=` a u of 0
        would accept a token that the target gives no chance at all.

    Raises
    ------
    ValueError
        If `prob` is negative or NaN: a NaN is not a rejection.

    Examples
    --------
    >>> accept(1.0, np.random.default_rng(0)), accept(0.0, np.random.default_rng(0))
    (True, False)
    """
    if not prob >= 0:
        raise ValueError(f"need a probability >= 0, got {prob}")
    # Subtle: against a float32, NumPy rounds u to float32, and 1 - 2**-53 to 1.
    return bool(rng.random() < np.asarray(prob, dtype=np.result_type(np.asarray(prob), np.float64)))


def residual(p_target, p_draft):
    """The law of the token that replaces a rejected guess: what the draft left uncovered.

    Parameters
    ----------
    p_target, p_draft : ndarray, [n_vocab]

    Returns
    -------
    ndarray, [n_vocab]
        `max(0, p_target - p_draft)`, normalised. Where that has no mass, target and draft are the
        same law (a rejection is then possible by rounding alone): `p_target` itself.

    References
    ----------
    Chen et al. (2023) Eq. 2, written (.)_+; Leviathan et al. (2023) Sec. 2.3, norm(max(0, .)).

    Examples
    --------
    Accepted plus resampled mass is the target's law: Theorem 1 for one token.

    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.75, 0.0])
    >>> accepted = np.minimum(p_target, p_draft)
    >>> accepted + (1 - accepted.sum()) * residual(p_target, p_draft)
    array([0.5 , 0.25, 0.25])
    """
    surplus = np.maximum(p_target - p_draft, 0)
    mass = surplus.sum()
    return surplus / mass if mass > 0 else p_target
