"""Compute tokens per round and the speed-up for any pair, with the formulas of the papers.

    python -m theory.speedup --alpha 0.8 --c 0.1 --m 1.2
    python -m theory.speedup --accepted_per_drafted 0.59 --K 4 --c 0.1 --m 1 1.1 1.1 1.2
    python -m theory.speedup --accepted_by_position .805 .632 .483 --c 0.1

    alpha      the probability that a guess is accepted, averaged over texts   Leviathan: alpha
    K          guesses per round                             Chen: K           Leviathan: gamma
    c          time of one draft pass / time of one target row                 Leviathan: c
    pass_cost  time of K + 1 target rows in one pass / time of one row (the papers: 1); the
               command's --m has the values for K = 1, 2, ..

The formulas in alpha assume that guesses are accepted independently, each with probability
alpha. Real text has easy and hard stretches, so the formulas are predictions, not bounds.
docs/papers.md lists figures in the papers that differ from their own formulas.
"""

import sys
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lib.markdown import markdown_table
from lib.terminal import Help, Parser, command

STEPS = 2**50  # alphas from 0 to 1 that alpha_of_report can return


def acceptance_rate(p_target: ArrayLike, p_draft: ArrayLike) -> Any:  # each [.., n_vocab]
    """Return the probability that a drawn guess is accepted: sum(min(p_target, p_draft)), [..].

    The probability is 1 - TV, where the total variation distance TV is Leviathan's D_LK. The
    mean of the probability over the positions of a text is alpha; it has less variance than a
    count of accepted guesses. ValueError unless every row is >= 0 and sums to 1, up to 1e-6.
    Leviathan et al. (2023) Theorem 3.5, Corollary 3.6.

    >>> p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.75, 0.0])
    >>> float(acceptance_rate(p_target, p_draft))
    0.5
    >>> middle = (p_target + p_draft) / 2
    >>> float(1 - abs(p_target - middle).sum())  # 1 - D_LK
    0.5
    """
    p_target = np.asarray(p_target, np.float64)
    p_draft = np.asarray(p_draft, np.float64)
    if p_target.shape != p_draft.shape:
        raise ValueError("need two rows over the same tokens, got shapes "
                         f"{p_target.shape} and {p_draft.shape}")
    for row in (p_target, p_draft):
        sums = row.sum(axis=-1)
        if not ((row >= 0).all() and (abs(sums - 1) <= 1e-6).all()):
            raise ValueError("need probabilities >= 0 with sum 1, got smallest "
                             f"{row.min()} and sum {sums}")
    alpha = np.minimum(p_target, p_draft).sum(axis=-1)
    return np.minimum(1.0, alpha)  # a rounded sum can be 1 + 2e-16


def expected_tokens(alpha: float, K: int) -> float:
    """Return the mean tokens per round: 1 + alpha + .. + alpha**K.

    The resampled or bonus token is included. The paper prints the sum as
    (1 - alpha**(K + 1)) / (1 - alpha), which has a special case at alpha = 1. Leviathan
    et al. (2023) Eq. 1.

    >>> [round(expected_tokens(0.7, K), 4) for K in (1, 3, 5)]
    [1.7, 2.533, 2.9412]
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"need 0 <= alpha <= 1, got {alpha}")
    if not (K >= 0 and K % 1 == 0):
        raise ValueError(f"need K a whole number >= 0, got {K}")
    return sum(alpha**t for t in range(int(K) + 1))


def walltime_improvement(alpha: float, K: int, c: float, pass_cost: float = 1) -> float:
    """Return the speed-up over one target pass per token.

    The papers' pass_cost is 1, which holds if memory bandwidth alone limits a pass;
    docs/speed.md has measured values. If pass_cost is 1, some K has a speed-up above 1 if and
    only if alpha > c. K = 1 then has one too: (1 + alpha) / (1 + c). Leviathan et al. (2023)
    Theorem 3.8, Corollary 3.9. (Errata: three values of Table 4, and those of Appendix A.5 at
    temperature 1, differ from this formula.)

    >>> round(walltime_improvement(alpha=0.75, K=7, c=0.02), 1)  # Table 4, row 1
    3.2
    >>> round(walltime_improvement(alpha=0.75, K=7, c=0.02, pass_cost=2.1), 1)
    1.6
    """
    return expected_tokens(alpha, K) / round_time(K, c, pass_cost)


def round_time(K: int, c: float, pass_cost: float = 1) -> float:
    """Return the time of a round in target passes over one row: K c + pass_cost."""
    if not 0 <= c < np.inf:
        raise ValueError(f"need 0 <= c < inf, got {c}")
    if not 0 < pass_cost < np.inf:
        raise ValueError(f"need 0 < pass_cost < inf, got {pass_cost}")
    return K * c + pass_cost


def best_K(alpha: float, c: float, pass_cost: Sequence[float] | None = None) -> int:
    """Return the K of the largest `walltime_improvement`; 0 is plain decoding.

    Of several best K the smallest is returned. `pass_cost[K]` is the measured cost of K + 1
    rows in units of one row, so `pass_cost[0]` is 1. Every K of the list is tried; without the
    argument, every K up to 100 at cost 1. At equal costs one could stop at the first decrease,
    but the measured cost of 8 rows can be lower than the cost of 5 rows. Leviathan et al.
    (2023) Sec. 3.5.

    >>> best_K(0.8, 0.05), best_K(0.9, 0.2), best_K(0.2, 0.3)
    (8, 7, 0)
    >>> best_K(0.8, 0.05, pass_cost=[1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1])
    7
    """
    if pass_cost is None:
        pass_cost = [1] * 101
    speedups = [walltime_improvement(alpha, K, c, cost) for K, cost in enumerate(pass_cost)]
    # K = 0 has the speed-up 1, so it is returned if no K is faster
    return speedups.index(max(speedups))  # of equal maxima `index` returns the first


# ---- a calculator, for figures that were measured elsewhere

def alpha_of_report(accepted_per_drafted: float, K: int) -> float:
    """Return the alpha at which this share of all drafted guesses is accepted.

    Engines report this share. A round drafts K guesses, and accepts alpha + .. + alpha**K of
    them in the mean, so alpha is the solution of (alpha + .. + alpha**K) / K =
    accepted_per_drafted.

    >>> round(alpha_of_report((0.5 + 0.25 + 0.125) / 3, K=3), 6)
    0.5
    """
    if not (0 <= accepted_per_drafted <= 1 and 1 <= K <= 1000):
        raise ValueError("need 0 <= accepted per drafted <= 1 and 1 <= K <= 1000, got "
                         f"{accepted_per_drafted} and {K}")
    def share_at(step):
        """Return the share of all drafted guesses that is accepted at alpha = step / STEPS."""
        return (expected_tokens(step / STEPS, K) - 1) / K

    # bisection, because the share of accepted guesses grows with alpha
    return bisect_left(range(STEPS), accepted_per_drafted, key=share_at) / STEPS


def acceptance_by_position(accepted_by_position: Sequence[float]) -> list[float]:
    """Return the acceptance of each position, given that all guesses before it were accepted.

    Engines report accepted / drafted guesses at each position. Guess t is accepted only if the
    guesses before it are, so the reported rates are products of what is returned here.

    >>> [round(h, 3) for h in acceptance_by_position([0.805, 0.632, 0.483])]
    [0.805, 0.785, 0.764]
    """
    rates_before = [1.0, *accepted_by_position[:-1]]
    pairs = [*zip(accepted_by_position, rates_before)]
    if not all(0 <= rate <= before for rate, before in pairs):
        rates = " ".join(map(str, accepted_by_position))
        raise ValueError(f"need rates per position in 0 .. 1 that do not rise, got {rates}")
    # after a rate of 0 no guess is ever tested, and 0 stands for its acceptance
    return [rate / before if before else 0.0 for rate, before in pairs]


def tokens_of_rounds(acceptance: ArrayLike) -> np.ndarray:  # [.., K] -> [.., K]
    """Return the mean tokens of rounds of 1, 2, .. K guesses: 1 + a_1 + a_1 a_2 + ...

    a_t is the acceptance of position t. If all are equal, this is `expected_tokens`.

    >>> tokens_of_rounds([0.5, 0.5]).tolist()
    [1.5, 1.75]
    """
    # Entry 0 is a_1, entry 1 is a_1 a_2: the probability that the first two guesses are
    # accepted.
    all_accepted = np.asarray(acceptance).cumprod(axis=-1)
    return 1 + np.cumsum(all_accepted, axis=-1)


def needed_alpha(c: float, pass_cost: Sequence[float]) -> float | None:
    """Return the alpha above which some K has a speed-up; None if even alpha = 1 is too low.

    A round with K guesses costs K c + pass_cost[K] rows, and writes one token more than it
    accepts guesses. So it has a speed-up if the mean number of accepted guesses is above K c +
    pass_cost[K] - 1. In the example K = 1 has a speed-up if 1 + alpha > 0.2 + 1.1:

    >>> round(needed_alpha(0.2, [1, 1.1, 1.4]), 6)
    0.3
    """
    alphas = []
    for K, cost in enumerate(pass_cost[1:], 1):
        share = c + (cost - 1) / K
        if share >= 1:  # not even all of them are enough
            continue
        # a share is negative if K + 1 rows cost less than one row: then alpha = 0 is enough
        alphas.append(alpha_of_report(max(share, 0.0), K))
    return min(alphas, default=None)


def tokens_of_flags(args: Namespace, most: int) -> tuple[str, list[float]]:
    """Return in words what the flags give, and the tokens per round of K = 0 .. `most`."""
    share = args.accepted_per_drafted
    rates = args.accepted_by_position
    if [args.alpha, share, rates].count(None) != 2 or (args.K is None) != (share is None):
        raise ValueError("give either --alpha, or --accepted_per_drafted and --K, or "
                         "--accepted_by_position")
    if rates:
        acceptance = acceptance_by_position(rates)
        numbers = " ".join(f"{h:.3f}" for h in acceptance)
        given = (f"Acceptance by position, if the guesses before it were accepted: {numbers}\n"
                 f"After position {len(rates)}, the acceptance is taken to be the last one.\n")
        acceptance += [acceptance[-1]] * most
        return given, [1.0, *tokens_of_rounds(acceptance[:most])]
    alpha = args.alpha
    given = f"alpha = {alpha}. "
    if alpha is None:
        alpha = alpha_of_report(share, args.K)
        given = f"alpha = {alpha:.2f}. "
    return given, [expected_tokens(alpha, K) for K in range(most + 1)]


@command("theory.speedup")
def main(argv=None):
    """Print the best K, the alpha that is needed, and the speed-up of every K."""
    parser = Parser("python -m theory.speedup", description=__doc__.split("\n")[0],
                    formatter_class=Help)
    add = parser.add_argument
    add("--alpha", type=float, help="probability that a tested guess is accepted")
    add("--accepted_per_drafted", type=float, metavar="SHARE",
        help="share of the drafted guesses that is accepted, as vLLM, SGLang and llama.cpp "
        "report it (needs --K, replaces --alpha)")
    add("--K", type=int, help="number of drafted guesses per round in that report")
    add("--c", type=float, required=True, help="time of a draft pass divided by the time "
        "of a target pass over one token")
    add("--m", type=float, nargs="+", default=[1.0], help="times of target passes over 2, 3, .."
        " rows, each divided by the time of a pass over one row; one number is used for 2 to "
        "9 rows (default: 1)")
    add("--accepted_by_position", type=float, nargs="+", metavar="RATE",
        help="share of the drafted guesses at position 1, 2, .. that is accepted, as vLLM and "
        "llama.cpp report it (replaces --alpha)")
    args = parser.parse_args(argv)
    # the costs of passes over 1, 2, 3, .. rows; a single number holds for 2 to 9 rows
    pass_cost = [1.0, *(args.m * 8 if len(args.m) == 1 else args.m)]
    given, tokens = tokens_of_flags(args, len(pass_cost) - 1)
    speedups = [tokens[K] / round_time(K, args.c, cost) for K, cost in enumerate(pass_cost)]
    best = speedups.index(max(speedups))  # of equal ones the smallest K
    needed = needed_alpha(args.c, pass_cost)
    enough = "no alpha is enough" if needed is None else f"alpha must exceed {needed:.2f}"
    print(f"{given}The best K of 0 .. {len(tokens) - 1} is {best}: {speedups[best]:.2f} times "
          f"the speed of plain decoding (K = 0).\nTo gain at these costs, {enough}.\n")
    rows = [[K, cost, f"{n:.2f}", f"{speedup:.2f}"] for K, (cost, n, speedup) in
            enumerate(zip(pass_cost, tokens, speedups))]
    print(markdown_table(["K", "m, the pass", "tokens per round", "speed-up"], rows))


if __name__ == "__main__":
    sys.exit(main())
