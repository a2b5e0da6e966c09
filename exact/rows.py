"""Search for the ROWS of exact/oracle.py, and print its KNOWN.

    python -m exact.rows                       KNOWN, for the rows that are there
    python -m exact.rows --search 500          the best of 500 random rows for V = 3; minutes
    python -m exact.rows --search 150 --V 4    a minute; the best of 1000 is the same

The best rows are those on which the smallest distance of all wrong rules of exact/kernels.py is
largest. In the row after no token the draft prefers other tokens than the target. Of the rows
after a token one is equal in both, one is one-hot in the draft, and one has a token that only
the target can write.
"""

import argparse
import json
from math import ceil, log

import numpy as np

from exact.kernels import EXACT, WRONG
from exact.oracle import check

ERROR = 1e-6  # of not seeing a wrong rule
EPSILON = "ratio test, .01 added to p_draft and to the residual"  # as near as its .01 is small:
SMALL = {EPSILON: 10}  # its distance counts ten times


def random_row(V, rng):
    """Return positive sixteenths that sum to 16."""
    cuts = np.sort(rng.choice(np.arange(1, 16), V - 1, replace=False))
    return np.diff([0, *cuts, 16])


def random_rows(V, rng):
    """Return the rows of draft and target, [V + 1, V] each, in sixteenths."""
    draft, target = (np.array([random_row(V, rng) for _ in range(V + 1)]) for _ in range(2))
    draft[0], target[0] = np.sort(draft[0]), np.sort(target[0])[::-1]
    equal, one_hot, zero, *_ = 1 + rng.permutation(V)
    draft[equal] = target[equal]
    draft[one_hot] = 16 * np.eye(V, dtype=int)[rng.integers(V)]
    donor, receiver = rng.permutation(V)[:2]
    draft[zero, receiver] += draft[zero, donor]
    draft[zero, donor] = 0
    order = rng.permutation(V)
    return draft[:, order], target[:, order]


def smallest(rows, wrong, V, K, limit):
    """Return the smallest distance of these rules; stop at one below the limit.

    That one moves to the front, so the rules that are hardest to see are tried first.
    """
    least = np.inf
    probabilities = tuple(part / 16 for part in rows)
    for name in list(wrong):
        report = check(WRONG[name], K, V, rows=probabilities)
        distance = report.distance * SMALL.get(name, 1)
        least = min(least, distance)
        if least < limit:
            wrong.remove(name)
            wrong.insert(0, name)
            break
    return least


def search(V, n, K=3, seed=1):
    """Return the best of n random pairs of rows, and its smallest distance."""
    rng = np.random.default_rng(seed)
    wrong = sorted(WRONG, key=lambda name: "product" in name)  # the slow ones are last
    best = None
    least = 0
    for _ in range(n):
        rows = random_rows(V, rng)
        found = smallest(rows, wrong, V, K, least)
        if found > least:
            best = rows
            least = found
    return best, least


# ---- from how many rounds on check_by_sampling sees a rule

def kl(a, b):
    """Return the divergence of two Bernoulli distributions."""
    return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))


def rounds_needed(came, should, V, false_alarm=1e-9):
    """Return the number of rounds that show the rule, except with probability ERROR.

    A start of a text has the probability p, and q under the rule. Between them is the frequency
    a with n KL(a, p) = log(events / false_alarm) and n KL(a, q) = log(1 / ERROR): by Hoeffding's
    bound the rule shows a frequency beyond a, which is enough for an alarm.
    """
    starts = [[part.reshape(V**m, -1).sum(axis=1) for part in (came, should)]
              for m in range(1, round(log(len(came), V)) + 1)]
    q, p = (np.concatenate(part) for part in zip(*starts))
    alarm = log(2 * len(p) / false_alarm)
    miss = log(1 / ERROR)
    some = (abs(q - p) > 1e-9) & (p > 0) & (q > 0) & (q < 1) & (p < 1)
    p = p[some]
    q = q[some]
    near = p
    far = q
    for _ in range(60):  # a moves away from p as long as the alarm is the harder condition
        a = (near + far) / 2
        harder = kl(a, p) / alarm < kl(a, q) / miss
        near = np.where(harder, a, near)
        far = np.where(harder, far, a)
    return ceil((alarm / kl(near, p)).min())


def known():
    """Return {rule: (distance, tokens per round, rounds needed)} for K = V = 3."""
    exact = check(EXACT["ratio test, residual; guesses drawn"]).texts
    reports = {name: check(verify) for name, verify in WRONG.items()}
    return {name: (round(report.distance, 6), round(report.tokens_per_round, 6),
                   rounds_needed(report.texts, exact, V=3)) for name, report in reports.items()}


def main():
    parser = argparse.ArgumentParser("python -m exact.rows", description=__doc__.split("\n")[0])
    parser.add_argument("--search", type=int, metavar="N", help="try N random pairs of rows")
    parser.add_argument("--V", type=int, default=3, help="tokens in the vocabulary (3)")
    args = parser.parse_args()
    if args.search:
        (draft, target), least = search(args.V, args.search)
        print(f"    {args.V}: ({draft.tolist()},\n        {target.tolist()}),")
        print(f"smallest distance: {least:.4f}")
    else:
        for name, figures in known().items():
            print(f"    {json.dumps(name)}: {figures},")


if __name__ == "__main__":
    main()
