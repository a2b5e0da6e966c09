"""Enumerate the figures that exact/oracle.py has in KNOWN, or search for its TOYS.

    python -m exact.rules.oracle_rows                      KNOWN, for the file's toys; seconds
    python -m exact.rules.oracle_rows --search 50 --V 3    try 50 random pairs of toys; an hour

KNOWN is computed by exact/law.py from the rules of the register, row by row and on fractions. No
code of the oracle is used. A search measures the distances of the wrong rules in batched.py and
of the wrong verifiers in faults.py, with 1, 2 and 3 guesses. It divides each distance by the
distance on the oracle's toys. A pair of toys is as good as its smallest quotient.
"""

from fractions import Fraction
from math import ceil, log

import numpy as np

from exact import oracle
from exact.law import completed, law, prefix_law, text_law, total_variation
from exact.rules.batched import WRONG
from exact.rules.faults import mutants
from exact.rules.register import BY_NAME, rule_step
from exact.toys import best
from lib.statistics import bisected, coin_divergence, surprise_limit
from lib.terminal import Parser, command
from speculative import guess

ERROR = 1e-6  # of not seeing a wrong rule
NOTHING = -1  # stands before the first token: row 1 + (-1) of a toy follows no token
SMALLEST = 1e-9  # a fault with a smaller distance is exact


# ---- KNOWN

def model_of(thousandths):
    """Return the model whose row after a text is row 1 + its last token."""
    rows = [np.array([Fraction(number, 1000) for number in row], dtype=object)
            for row in thousandths]
    return lambda ids, n_last=1: np.array([rows[1 + token] for token in list(ids)[-n_last:]])


def round_and_target(rule, toy, K):
    """Return the distributions of a round's tokens, of K + 1 tokens, and of the target's K + 1.

    One round has K guesses, and the target's rows complete it, as in the oracle.
    """
    draft, target = map(model_of, toy)
    step = rule_step(rule, draft, target, K)
    tokens = law(lambda rng: step([NOTHING], K + 1, rng).ids)
    texts = completed(tokens, [NOTHING], target, K + 1)
    return tokens, texts, text_law([NOTHING], target, K + 1)


def with_drawn_guesses(rule):
    """Return the rule as the oracle calls it: with drawn guesses instead of the best tokens."""
    return rule._replace(guess=guess) if rule.guess is best else rule


def known_figures(name, V=3, K=3):
    """Return a rule's distance on each toy, its tokens per round, and the rounds it needs."""
    rule = with_drawn_guesses(BY_NAME[name])
    distances = []
    lengths = []
    needed = []
    for toy in oracle.TOYS[V]:
        tokens, texts, wanted = round_and_target(rule, toy, K)
        distances.append(round(float(total_variation(texts, wanted)), 6))
        lengths.append(float(sum(len(ids) * p for ids, p in tokens.items())))
        needed.append(rounds_needed(texts, wanted, V, K, len(oracle.TOYS[V])))
    mean_length = round(sum(lengths) / len(lengths), 6)
    # each toy gets an equal part of the rounds, and one toy that shows the rule is enough
    n_rounds = len(needed) * min(needed)
    return *distances, mean_length, n_rounds


def known_line(name, figures):
    """Return a line, or two, of KNOWN as it is written in the oracle's file."""
    words = repr(name) if '"' in name else f'"{name}"'
    # a long line is broken after the name
    line = f"    {words}: {figures},"
    return line if len(line) < 100 else f"    {words}:\n        {figures},"


def known():
    """Return {rule: its figures} for K = V = 3."""
    return {name: known_figures(name) for name in WRONG}


# ---- the rounds after which check_by_sampling shows a rule

def rounds_needed(texts, wanted, V, K, n_toys, false_alarm=1e-9):
    """Return the number n of rounds on this toy that show the rule with probability 1 - ERROR.

    A start of a text has the target's probability p, and probability q under the rule. Let a be a
    frequency between p and q. It is enough for an alarm if n KL(a, p) >= log(events /
    false_alarm). By Hoeffding's bound the rule's frequency is beyond a, except with probability
    ERROR, if n KL(a, q) >= log(1 / ERROR). At the best a both need the same n.
    """
    texts = {text: float(p) for text, p in texts.items()}
    wanted = {text: float(p) for text, p in wanted.items()}
    pairs = []  # (q, p) of every start
    for m in range(1, K + 2):
        came = prefix_law(texts, 1 + m)  # NOTHING and m tokens
        should = prefix_law(wanted, 1 + m)
        pairs += [(came[start], should[start]) for start in {*came, *should}]
    q, p = np.array(pairs).T
    # starts at which a rule and the target differ, and both are possible and not certain
    is_clear = (abs(q - p) > 1e-9) & (p > 0) & (q > 0) & (q < 1) & (p < 1)
    if not is_clear.any():  # the rule is exact on this toy
        return np.inf
    q = q[is_clear]
    p = p[is_clear]
    alarm = surprise_limit(n_toys * sum(V**m for m in range(1, K + 2)), false_alarm)
    miss = log(1 / ERROR)

    def alarm_is_harder(a):
        # the rounds needed are alarm / KL(a, p) and miss / KL(a, q); a divergence may be 0
        return coin_divergence(a, p) / alarm < coin_divergence(a, q) / miss

    # near p the alarm needs more rounds, near q the rule's frequency does
    a, _ = bisected(p, q, alarm_is_harder)
    return ceil((alarm / coin_divergence(a, p)).min())


# ---- search

def random_row(V, rng, least=1):
    """Return thousandths that sum to 1000, each at least `least`."""
    shares = rng.dirichlet(np.ones(V))
    row = least + np.floor(shares * (1000 - V * least)).astype(int)
    row[row.argmax()] += 1000 - row.sum()  # what rounding down has left
    return row


def peaked_row(V, rng, token, rest):
    """Return a row in which all tokens but one share `rest` thousandths."""
    row = np.ones(V, dtype=int)  # every other token has at least 1
    row[token] = 0
    others = np.flatnonzero(row)
    equal = np.ones(len(others)) / len(others)
    row[others] += rng.multinomial(rest - len(others), equal)  # all but the 1 of each
    row[token] = 1000 - rest
    return row


def random_toys(V, rng):
    """Return two toys, (draft, target) each, that show the faults of most kinds.

    The toys have these rows: one-hot for the draft; equal in both; peaked, and nearly equal;
    peaked for the target alone; one with a token that only the target can write; and one with a
    token that only the draft can write.
    """
    toys = []
    for special in ("one-hot, equal, target's token", "near, draft's token, peak"):
        draft = np.array([random_row(V, rng, 30) for _ in range(V + 1)])
        target = np.array([random_row(V, rng, 30) for _ in range(V + 1)])
        # row 0 follows no token and stays as it is; each kind changes a row after a token
        for row, kind in zip(1 + rng.permutation(V), special.split(", ")):
            token, other = rng.permutation(V)[:2]
            if kind == "one-hot":
                draft[row] = 1000 * np.eye(V, dtype=int)[token]
            elif kind == "equal":
                draft[row] = target[row]
            elif kind == "target's token":  # the draft cannot write it
                draft[row, other] += draft[row, token]
                draft[row, token] = 0
            elif kind == "draft's token":  # the target cannot write it
                target[row, other] += target[row, token]
                target[row, token] = 0
            elif kind == "near":
                target[row] = peaked_row(V, rng, token, 60 + rng.integers(20))
                draft[row] = peaked_row(V, rng, token, 40 + rng.integers(20))
            else:  # "peak"
                target[row] = peaked_row(V, rng, token, 25)
        toys.append((draft.tolist(), target.tolist()))
    return tuple(toys)


def distance_on(toys, verify, V, K):
    """Return the distance that `check` finds on these toys: 1 if the verifier is refused."""
    own_toys = oracle.TOYS
    oracle.TOYS = {V: toys}  # not rows=, which take one toy
    try:
        report = oracle.check(verify, K, V)
    except Exception:  # a fault may raise anything
        return 1.0
    finally:
        oracle.TOYS = own_toys
    return 1.0 if report.exact is None else report.distance


def refused_verifiers(V):
    """Return {(name, K): (verify, distance)} of all that is wrong on the oracle's toys."""
    wrong = {}
    for name, verify in (WRONG | mutants()).items():
        for K in (1, 2, 3):
            distance = distance_on(oracle.TOYS[V], verify, V, K)
            # neither right with K guesses nor refused
            if SMALLEST < distance < 1:
                wrong[name, K] = verify, distance
    return wrong


def smallest_quotient(toys, wrong, V, limit):
    """Return the smallest quotient over all rules: distance here / distance on the oracle's toys.

    Stop at a quotient below the limit; its rule moves to the front, so the rules that are
    hardest to see are tried first.
    """
    least = np.inf
    for key in list(wrong):
        verify, distance = wrong[key]
        _, K = key
        least = min(least, distance_on(toys, verify, V, K) / distance)
        if least < limit:
            # a dict keeps its order: the key first, then all others
            rest = dict(wrong)
            wrong.clear()
            wrong[key] = rest.pop(key)
            wrong.update(rest)
            break
    return least


def search(V, n, wrong=None, seed=1):
    """Return the best of n random pairs of toys, and its smallest quotient."""
    rng = np.random.default_rng(seed)
    if wrong is None:
        wrong = refused_verifiers(V)
    best = None
    most = 0.0
    for _ in range(n):
        toys = random_toys(V, rng)
        quotient = smallest_quotient(toys, wrong, V, most)
        if best is None or quotient > most:
            best = toys
            most = quotient
    return best, most


# ---- the command

def natural(text):
    """Read a number of toys to try."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise ValueError(f"need a whole number >= 1, got {text!r}")
    return number


@command("exact.rules.oracle_rows")
def main(argv=None):
    """Print KNOWN, or the best toys of a search."""
    parser = Parser("python -m exact.rules.oracle_rows", description=__doc__.split("\n")[0])
    parser.add_argument("--search", type=natural, metavar="N",
                        help="try N random pairs of toys")
    parser.add_argument("--V", type=int, choices=[*oracle.TOYS],
                        help="tokens in the vocabulary of these toys (default: 3)")
    args = parser.parse_args(argv)
    if args.V and not args.search:
        parser.error("--V needs --search")
    if args.search:
        toys, quotient = search(args.V or 3, args.search)
        print(f"    {args.V or 3}: {toys},")
        print(f"smallest distance, as a part of the distance on the oracle's toys: {quotient:.4f}")
    else:
        print("\n".join(known_line(*item) for item in known().items()))


if __name__ == "__main__":
    raise SystemExit(main())
