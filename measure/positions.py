"""Count how often the guess at each position of a round is accepted, with intervals.

    position    the number of a guess in its round: 1 .. K
    acceptance  of position t: the probability that guess t is accepted, given that guesses
                1 .. t - 1 were accepted

A guess that was not tested is not counted. A round can end before guess t because N tokens are
written, because of a stop token, or because the draft made fewer guesses.

The guesses of a text depend on each other, so an interval resamples prompts
(lib/statistics.py).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lib.statistics import interval, resamples
from measure.passes import Run
from speculative import Round
from theory.speedup import tokens_of_rounds
from variants.registry import Costs


class PositionCounts(NamedTuple):
    """Hold how many guesses were tested and accepted, each an array [n_prompts, K]."""

    tested: np.ndarray
    accepted: np.ndarray


# ---- counting

def counts_of_race(runs: Sequence[Sequence[Run]], K: int) -> PositionCounts:
    """Return the counts of a race's runs, [repeats, prompts]; a prompt's repeats are added."""
    per_run = [[counts_of_text(text.rounds, K) for text in texts] for texts in runs]
    per_prompt = np.sum(per_run, axis=0)  # over the repeats; [prompts, 2, K]
    return PositionCounts(tested=per_prompt[:, 0], accepted=per_prompt[:, 1])


def counts_of_text(rounds: Sequence[Round], K: int) -> np.ndarray:  # -> [2, K]
    """Return how many guesses of one text were tested and accepted, by position."""
    counts = np.zeros((2, K), int)  # counts[0]: tested, counts[1]: accepted
    for done in rounds:
        # The tested guesses of a round are its first ones, and so are the accepted guesses.
        counts[0, : done.n_tested] += 1
        counts[1, : done.n_accepted] += 1
    return counts


# ---- acceptance

def accepted_share(accepted: Any, tested: Any) -> np.ndarray:
    """Return accepted / tested, 0 where nothing was tested.

    >>> accepted_share([3, 0], [4, 0]).tolist()
    [0.75, 0.0]
    """
    # A divisor of 1 instead of 0 gives 0 / 1, because nothing was accepted either.
    divisor = np.where(np.asarray(tested) == 0, 1, tested)
    return np.asarray(accepted) / divisor


def resampled_acceptance(counts: PositionCounts) -> np.ndarray:  # -> [N_RESAMPLES, K]
    """Return the acceptance by position in each resample of the prompts."""
    # weights[i, j]: how often prompt j is in resample i
    weights = resamples(len(counts.tested))
    return accepted_share(weights @ counts.accepted, weights @ counts.tested)


def position_figures(counts: PositionCounts) -> list[dict]:
    """Return for each position: tested, acceptance, and the ends of its interval."""
    tested, accepted = (each.sum(axis=0) for each in counts)  # over the prompts; [K] each
    rates = accepted_share(accepted, tested)
    lows, highs = interval(resampled_acceptance(counts))
    figures = []
    for n, rate, low, high in zip(tested, rates, lows, highs):
        # json.dumps refuses NumPy's integers.
        figures.append({"tested": int(n), "acceptance": float(rate),
                        "low": float(low), "high": float(high)})
    return figures


# ---- what follows from it

def speedups_of_counts(counts: PositionCounts, costs: Costs) -> dict[int, dict]:
    """Return {K: speed-up and the ends of its interval} from acceptance by position and costs.

    A round of K guesses takes K draft passes and a pass over K + 1 rows; plain decoding takes a
    pass over one row for each token. This is Leviathan et al. (2023) Theorem 3.8 with
    acceptance by position instead of alpha. Sampling, the prompt and Python's own time are left
    out.
    """
    most = min(counts.tested.shape[-1], len(costs.passes) - 1)  # the largest K that is known
    Ks = np.arange(1, most + 1)
    # The time of a round in units of one target row; pass_cost[K] is the pass over K + 1 rows.
    round_time = Ks * costs.c + np.array(costs.pass_cost[1 : most + 1])
    tested, accepted = (each.sum(axis=0) for each in counts)
    acceptance = accepted_share(accepted, tested)[:most]
    speedups = tokens_of_rounds(acceptance) / round_time
    resampled = resampled_acceptance(counts)[:, :most]
    lows, highs = interval(tokens_of_rounds(resampled) / round_time)
    return {K: {"speedup": float(speedup), "low": float(low), "high": float(high)}
            for K, speedup, low, high in zip(Ks.tolist(), speedups, lows, highs)}
