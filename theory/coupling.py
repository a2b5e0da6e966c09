"""Compute the probability that draft and target draw the same token, for each coupling.

    p_target, p_draft   the two distributions at one position, [n_vocab]
    TV                  their total variation distance, 1 - sum(min(p_target, p_draft))
    match               independent draws               variants/match.py, with drawn guesses
    inverse             one uniform, two inverses       variants/coupled.py, with inverse
    race                one race at two speed vectors   variants/coupled.py, with race

The ratio test reaches 1 - TV, which no coupling exceeds (theory/speedup.py, acceptance_rate).
The race reaches at least (1 - TV) / (1 + TV) for all rows. If each model draws without the
other model's row, then no coupling guarantees more than this probability for all rows: Daliri,
Musco and Suresh (2024), arXiv 2408.07978.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from theory.speedup import acceptance_rate


def match_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:  # 2 x [n_vocab]
    """Return the probability that two independent draws agree: sum(p_target * p_draft).

    A draft that always guesses its best token has a one-hot row. The draws then agree with the
    target's probability of this token, which can be larger than with a drawn guess:

    >>> row = np.array([0.5, 0.25, 0.25])
    >>> float(match_agreement(row, row))  # the guess is drawn from row
    0.375
    >>> float(match_agreement(row, np.array([1, 0, 0])))  # the guess is the best token
    0.5
    """
    return (np.asarray(p_target) * np.asarray(p_draft)).sum()


def inverse_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:
    """Return the probability that one uniform draws the same token by both inverse functions.

    This probability depends on the order of the tokens. Rows agree more if they differ by mass
    that is moved to a neighbour than if they differ by equal mass that is moved further:

    >>> row = np.array([0.4, 0.3, 0.3])
    >>> moved_by_one = np.array([0.3, 0.4, 0.3])  # .1 of the mass
    >>> round(float(inverse_agreement(row, moved_by_one)), 4)
    0.9
    >>> moved_by_two = np.array([0.3, 0.3, 0.4])
    >>> round(float(inverse_agreement(row, moved_by_two)), 4)
    0.8
    """
    # a uniform between start[i] and end[i] draws token i
    end_target = np.cumsum(p_target)
    end_draft = np.cumsum(p_draft)
    start_target = end_target - p_target
    start_draft = end_draft - p_draft
    # the common part of a token's two intervals; negative if they do not meet
    overlap = np.minimum(end_target, end_draft) - np.maximum(start_target, start_draft)
    return np.maximum(overlap, 0).sum()


def race_agreement(p_target: ArrayLike, p_draft: ArrayLike) -> float:
    """Return the probability that one race has the same winner at both vectors of speeds.

    Write p = p_target and q = p_draft. Every token is a runner, in two races that share the
    exponential numbers E: runner i arrives at E_i / p_i in the target's race, and at E_i / q_i
    in the draft's race.

    1. Runner i wins the target's race if E_j / p_j >= E_i / p_i for all j, which means
       E_j >= E_i p_j / p_i.
    2. Runner i wins both races if E_j >= E_i m_ij for all j, where m_ij is the larger of
       p_j / p_i and q_j / q_i.
    3. Let S be the sum of m_ij over all j except i. Given E_i, step 2 has probability
       exp(-E_i S). The mean of this probability over E_i is 1 / (1 + S). It is 1 / sum_j m_ij
       over all j, because m_ii is 1.
    4. Sort the runners so that p / q falls. If j comes before i, then p_j / q_j >= p_i / q_i.
       So p_j / p_i >= q_j / q_i, and m_ij is p_j / p_i. If j comes after i, m_ij is q_j / q_i.
    5. So sum_j m_ij = (p_1 + .. + p_i) / p_i + (q_(i + 1) + .. + q_n) / q_i.

    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])  # TV 0.25
    >>> round(float(race_agreement(p_target, p_draft)), 4)
    0.7
    >>> float(agreement_bound(p_target, p_draft))  # (1 - 0.25) / (1 + 0.25)
    0.6
    """
    p = np.asarray(p_target, dtype=np.float64)
    q = np.asarray(p_draft, dtype=np.float64)

    # step 4: sorted by rising q / p, which is infinite where p is 0
    ratios = np.divide(q, p, out=np.full(len(p), np.inf), where=p > 0)
    order = np.argsort(ratios)
    p = p[order]
    q = q[order]

    # step 5, for the runners that can win both races, which are those without a speed of 0
    p_up_to = np.cumsum(p)  # p_up_to[i] is p[0] + .. + p[i]
    q_from = np.cumsum(q[::-1])[::-1]  # q_from[i] is q[i] + .. + q[-1]
    q_after = q_from - q
    both = (p > 0) & (q > 0)
    sums = p_up_to[both] / p[both] + q_after[both] / q[both]
    return (1 / sums).sum()


def agreement_bound(p_target: ArrayLike, p_draft: ArrayLike) -> Any:
    """Return (1 - TV) / (1 + TV): a race agrees with at least this probability."""
    alpha = acceptance_rate(p_target, p_draft)  # 1 - TV, so TV is 1 - alpha
    return alpha / (2 - alpha)
