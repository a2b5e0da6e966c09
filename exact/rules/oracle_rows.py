"""Enumerate the figures that exact/oracle.py has in KNOWN, or search for its TOYS.

    python -m exact.rules.oracle_rows                      KNOWN, for the file's toys; seconds
    python -m exact.rules.oracle_rows --search 50 --V 3    try 50 random pairs of toys; an hour

KNOWN is computed by exact/law.py from the rules of the register, row by row and on Fractions.
No code of the oracle is used. A search measures the distances of wrong verifiers on random
toys: the wrong rules in batched.py and the mutants in faults.py, with 1, 2 and 3 guesses. Each
distance is divided by the same verifier's distance on the oracle's toys. A pair of toys is as
good as the smallest of these quotients.
"""

from fractions import Fraction
from math import ceil, log

import numpy as np

from exact import oracle
from exact.law import completed, law, prefix_law, text_law, total_variation
from exact.rules.batched import WRONG
from exact.rules.faults import mutants
from exact.rules.register import BY_ID, rule_step
from exact.toys import best
from lib.statistics import bisected, coin_divergence, surprise_limit
from lib.terminal import Parser, command
from speculative import guess

ERROR = 1e-6  # the probability that a wrong rule is not seen
NOTHING = -1  # the token before the first token; the row after it is row 1 + NOTHING = 0
SMALLEST = 1e-9  # a verifier with a smaller distance is exact


# ---- KNOWN

def model_of(thousandths):
    """Return the model with the given rows, in thousandths: row 0 follows the text [NOTHING].

    Row 1 + token follows every text that ends in this token.
    """
    def fractions(numbers):
        return np.array([Fraction(number, 1000) for number in numbers], dtype=object)

    rows = [fractions(row) for row in thousandths]

    def rows_after(ids, n_last=1):
        # row 1 + NOTHING is row 0
        last_tokens = list(ids)[-n_last:]
        return np.array([rows[1 + token] for token in last_tokens])

    return rows_after


def round_and_target(rule, toy, K):
    """Return the distributions of a round, of texts and of the target's texts after [NOTHING].

    The round has K guesses. A text is the round, completed to K + 1 tokens by draws from the
    target, as in the oracle.
    """
    draft, target = map(model_of, toy)
    step = rule_step(rule, draft, target, K)
    tokens = law(lambda rng: step([NOTHING], K + 1, rng).ids)
    texts = completed(tokens, [NOTHING], target, K + 1)
    return tokens, texts, text_law([NOTHING], target, K + 1)


def with_drawn_guesses(rule):
    """Return the rule as the oracle tests it: the oracle draws every guess, even for `best`."""
    if rule.guess is best:
        return rule._replace(guess=guess)
    return rule


def known_figures(rule_id, V=3, K=3):
    """Return a rule's distance on each toy, its tokens per round, and the rounds that show it.

    These are the figures of one line of KNOWN.
    """
    rule = with_drawn_guesses(BY_ID[rule_id])
    distances = []
    lengths = []
    needed = []
    for toy in oracle.TOYS[V]:
        one_round, texts, wanted = round_and_target(rule, toy, K)
        distance = float(total_variation(texts, wanted))
        distances.append(round(distance, 6))
        mean_length_on_toy = sum(len(ids) * p for ids, p in one_round.items())
        lengths.append(float(mean_length_on_toy))
        needed.append(rounds_needed(texts, wanted, V, K, len(oracle.TOYS[V])))
    mean_length = round(sum(lengths) / len(lengths), 6)
    # each toy gets an equal number of rounds. One toy that shows the rule is enough, so the
    # smallest number decides
    n_rounds = len(needed) * min(needed)
    return *distances, mean_length, n_rounds


def known_line(name, figures):
    """Return the line of KNOWN as it is in the oracle's file; a long line is two lines."""
    # repr writes single quotes around a name with double quotes in it
    words = repr(name) if '"' in name else f'"{name}"'
    line = f"    {words}: {figures},"
    if len(line) <= 96:
        return line
    return f"    {words}:\n        {figures},"


def known():
    """Return {rule: its figures} for K = V = 3."""
    return {BY_ID[rule_id].name: known_figures(rule_id) for rule_id in WRONG}


# ---- the rounds after which check_by_sampling shows a rule

def rounds_needed(texts, wanted, V, K, n_toys, false_alarm=1e-9):
    """Return the number n of rounds on this toy that show the rule with probability 1 - ERROR.

    1. The first m tokens of a text are a start. It has probability p under the target and q
       under the rule. In n rounds it has some frequency.
    2. Choose a number a between p and q. A frequency that is not on p's side of a is an alarm
       if n KL(a, p) >= log(2 events / false_alarm), which is `surprise_limit`.
    3. Under the rule the frequency is on p's side of a with a probability of at most ERROR, if
       n KL(a, q) >= log(1 / ERROR). This is Chernoff's bound.
    4. So n is the larger of two numbers, log(2 events / false_alarm) / KL(a, p) and
       log(1 / ERROR) / KL(a, q). It is smallest at the a for which they are equal.
    5. The start that needs the fewest rounds decides.
    """
    texts = {text: float(p) for text, p in texts.items()}
    wanted = {text: float(p) for text, p in wanted.items()}
    pairs = []  # (q, p) of every start
    lengths = range(1, K + 2)
    for m in lengths:
        q_of = prefix_law(texts, 1 + m)  # a start has NOTHING and m tokens
        p_of = prefix_law(wanted, 1 + m)
        pairs += [(q_of[start], p_of[start]) for start in {*q_of, *p_of}]
    q, p = np.array(pairs).T
    # only starts with different p and q, both above 0 and below 1
    is_clear = (abs(q - p) > 1e-9) & (p > 0) & (q > 0) & (q < 1) & (p < 1)
    if not is_clear.any():  # the rule is exact on this toy
        return np.inf
    q = q[is_clear]
    p = p[is_clear]
    n_starts = sum(V**m for m in lengths)  # there are V^m starts of m tokens
    alarm = surprise_limit(n_toys * n_starts, false_alarm)
    miss = log(1 / ERROR)

    def alarm_is_harder(a):
        # alarm / KL(a, p) > miss / KL(a, q). Both sides are inverted, because a KL can be 0
        return coin_divergence(a, p) / alarm < coin_divergence(a, q) / miss

    # for a near p step 2 needs more rounds than step 3, and for a near q it needs fewer. The a
    # of step 4 is between them
    a, _ = bisected(p, q, alarm_is_harder)
    rounds_of_start = alarm / coin_divergence(a, p)
    return ceil(rounds_of_start.min())


# ---- search

def random_row(V, rng, least=1):
    """Return thousandths that sum to 1000, each at least `least`."""
    shares = rng.dirichlet(np.ones(V))
    n_free = 1000 - V * least  # thousandths to share out
    row = least + np.floor(shares * n_free).astype(int)
    # the largest entry gets the thousandths that rounding down has left over
    row[row.argmax()] += 1000 - row.sum()
    return row


def peaked_row(V, rng, token, rest):
    """Return a row in which the token has all but `rest` of the thousandths."""
    others = np.delete(np.arange(V), token)
    n_others = len(others)
    # every other token gets 1 of the `rest` thousandths, and a random number of the remaining
    # ones
    equal = np.ones(n_others) / n_others
    row = np.zeros(V, dtype=int)
    row[others] = 1 + rng.multinomial(rest - n_others, equal)
    row[token] = 1000 - rest
    return row


def random_toys(V, rng):
    """Return two toys that show most kinds of faults; each is a pair (draft, target).

    All rows are random, except three rows of each toy. In the first toy the special rows are:
    one-hot for the draft; equal in both models; and a row with a token that only the target can
    write. In the second toy they are: nearly equal, and both peaked; a row with a token that
    only the draft can write; and peaked for the target alone.
    """
    toys = []
    first_toy = ("one-hot", "equal", "target's token")
    second_toy = ("near", "draft's token", "peak")
    for kinds in (first_toy, second_toy):
        draft = np.array([random_row(V, rng, 30) for _ in range(V + 1)])
        target = np.array([random_row(V, rng, 30) for _ in range(V + 1)])
        # row 0 follows NOTHING and stays random; each kind changes the row after a different
        # token
        for row, kind in zip(1 + rng.permutation(V), kinds):
            token, other = rng.permutation(V)[:2]
            if kind == "one-hot":
                draft[row] = 0
                draft[row, token] = 1000
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
    """Return the distance that oracle.check finds on these toys; 1 if it has no verdict."""
    own_toys = oracle.TOYS
    oracle.TOYS = {V: toys}  # the argument `rows` of `check` could hold one toy only
    try:
        cases = oracle.Cases(K, V, "float64", np.asarray, padding=False, rows=None)
        report = oracle.report_of_boxes(verify, cases)  # without FINE_TOYS
    except Exception:  # a fault may raise anything
        return 1.0
    finally:
        oracle.TOYS = own_toys
    return 1.0 if report is None or report.exact is None else report.distance


def refused_verifiers(V):
    """Return {(name, K): (verify, distance)} of the verifiers to be seen on new toys.

    They are wrong with K guesses, and the oracle measures their distance on its own toys.
    """
    wrong = {}
    for name, verify in (WRONG | mutants()).items():
        for K in (1, 2, 3):
            distance = distance_on(oracle.TOYS[V], verify, V, K)
            # below SMALLEST it is right with K guesses; 1 means that it was refused
            if SMALLEST < distance < 1:
                wrong[name, K] = verify, distance
    return wrong


def smallest_quotient(toys, wrong, V, limit):
    """Return the smallest quotient of two distances: on these toys / on the oracle's toys.

    Stop at a quotient below the limit, because these toys are then not the best ones. The
    verifier with this quotient moves to the front of `wrong`, so that the next call tries the
    verifiers that are hardest to see first.
    """
    least = np.inf
    for key in list(wrong):
        verify, own_distance = wrong[key]
        _, K = key
        least = min(least, distance_on(toys, verify, V, K) / own_distance)
        if least < limit:
            # a dict keeps its order: it is filled again, with this key first
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
    best_toys = None
    best_quotient = 0.0
    for _ in range(n):
        toys = random_toys(V, rng)
        quotient = smallest_quotient(toys, wrong, V, limit=best_quotient)
        if best_toys is None or quotient > best_quotient:
            best_toys = toys
            best_quotient = quotient
    return best_toys, best_quotient


# ---- the command

def natural(text):
    """Return the number in a text; ValueError unless it is a whole number >= 1."""
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
                        help="size of the vocabulary of these toys (default: 3)")
    args = parser.parse_args(argv)
    if args.V and not args.search:
        parser.error("--V needs --search")
    if args.search:
        V = args.V or 3
        toys, quotient = search(V, args.search)
        print(f"    {V}: {toys},")
        print("smallest distance, as a part of the distance on the oracle's toys: "
              f"{quotient:.4f}")
    else:
        lines = [known_line(name, figures) for name, figures in known().items()]
        print("\n".join(lines))


if __name__ == "__main__":
    raise SystemExit(main())
