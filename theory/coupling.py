"""Probabilities that draft and target draw the same token: one function per coupling.

    p_target, p_draft   the two distributions at one position, [n_vocab]
    TV                  their total variation distance, 1 - sum(min(p_target, p_draft))
    match               independent draws                     variants/match.py, with drawn guesses
    inverse             one uniform, two inverse functions    variants/coupled.py, with inverse
    race                one race at two vectors of speeds     variants/coupled.py, with race

The ratio test reaches 1 - TV, which no coupling exceeds (theory/speedup.py, acceptance_rate).
The race reaches at least (1 - TV) / (1 + TV) for all rows, and no coupling that draws without
seeing the other row guarantees more: Daliri, Musco and Suresh (2024), arXiv 2408.07978.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from theory.speedup import acceptance_rate


def match_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:  # 2 x [n_vocab]
    """Return the probability that two independent draws agree: sum(p_target * p_draft).

    A draft that always guesses its best token is a one-hot row. The probability that the draws
    agree is then the target's probability of this token, which can be larger than with p_draft:

    >>> row, best = np.array([0.5, 0.25, 0.25]), np.array([1, 0, 0])
    >>> float(match_agreement(row, row)), float(match_agreement(row, best))
    (0.375, 0.5)
    """
    return (np.asarray(p_target) * np.asarray(p_draft)).sum()


def inverse_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:
    """Return the length of the part of [0, 1) where both inverse functions give the same token.

    The length depends on the order of the tokens: rows that differ by mass moved between
    neighbours agree more than rows that differ by the same mass moved further.

    >>> row = np.array([0.4, 0.3, 0.3])
    >>> [round(float(inverse_agreement(row, other)), 4)
    ...  for other in (np.array([0.3, 0.4, 0.3]), np.array([0.3, 0.3, 0.4]))]
    [0.9, 0.8]
    """
    # a row's inverse function gives token i on the interval from start[i] to end[i]
    end_target, end_draft = np.cumsum(p_target), np.cumsum(p_draft)
    start_target, start_draft = end_target - p_target, end_draft - p_draft
    # negative for a token whose two intervals do not meet
    overlap = np.minimum(end_target, end_draft) - np.maximum(start_target, start_draft)
    return np.maximum(overlap, 0).sum()


def race_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:
    """Return the probability that one race has the same winner at both vectors of speeds.

    With p = p_target and q = p_draft, runner i arrives at time E_i / p_i in the target's race
    and at E_i / q_i in the draft's; the E_i are exponential numbers that both races share.
    Runner i wins the target's race if E_j / p_j >= E_i / p_i for all j, which is E_j >= E_i p_j /
    p_i. It wins both races if E_j >= E_i max(p_j / p_i, q_j / q_i) for all j, which has the
    probability 1 / sum_j max(p_j / p_i, q_j / q_i). Sort the runners so that p / q falls. If j
    comes before i, then p_j / q_j >= p_i / q_i, so p_j / p_i >= q_j / q_i, and the maximum is
    p_j / p_i; if j comes after i, the maximum is q_j / q_i.

    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])  # TV 0.25
    >>> round(float(race_agreement(p_target, p_draft)), 4), (1 - 0.25) / (1 + 0.25)
    (0.7, 0.6)
    """
    p, q = (np.asarray(row, dtype=np.float64) for row in (p_target, p_draft))
    ratios = np.divide(q, p, out=np.full(len(p), np.inf), where=p > 0)  # inf where p is 0
    order = np.argsort(ratios)  # q / p rises, so p / q falls
    p = p[order]
    q = q[order]
    p_up_to = np.cumsum(p)  # p_up_to[i]: the sum of p[0] .. p[i]
    q_after = np.cumsum(q[::-1])[::-1] - q  # q_after[i]: the sum of q[i + 1] and on
    both = (p > 0) & (q > 0)  # a runner of speed 0 wins no race
    sums = p_up_to[both] / p[both] + q_after[both] / q[both]
    return (1 / sums).sum()


def agreement_bound(p_target: ArrayLike, p_draft: ArrayLike) -> Any:
    """Return (1 - TV) / (1 + TV): a race agrees with at least this probability."""
    alpha = acceptance_rate(p_target, p_draft)  # 1 - TV
    return alpha / (2 - alpha)
