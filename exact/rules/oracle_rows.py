"""Enumerate the figures that exact/oracle.py has in KNOWN, for its toys.

    python -m exact.rules.oracle_rows     print them; seconds

They are computed by exact/law.py from the rules of the register, row by row and on Fractions.
No code of the oracle is used.
"""

from fractions import Fraction
from math import ceil, log

import numpy as np

from exact import oracle
from exact.law import completed, law, prefix_law, text_law, total_variation
from exact.rules.batched import WRONG
from exact.rules.register import BY_NAME, rule_step
from exact.toys import best
from lib.statistics import bisected, coin_divergence, surprise_limit
from lib.terminal import Parser, command
from speculative import guess

ERROR = 1e-6  # the probability that a wrong rule is not seen
NOTHING = -1  # the token before the first token; the row after it is row 1 + NOTHING = 0


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


def known_figures(name, V=3, K=3):
    """Return a rule's distance on each toy, its tokens per round, and the rounds that show it.

    These are the figures of one line of KNOWN.
    """
    rule = with_drawn_guesses(BY_NAME[name])
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
    return {name: known_figures(name) for name in WRONG}


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


# ---- the command

@command("exact.rules.oracle_rows")
def main(argv=None):
    """Print KNOWN."""
    parser = Parser("python -m exact.rules.oracle_rows", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    lines = [known_line(name, figures) for name, figures in known().items()]
    print("\n".join(lines))


if __name__ == "__main__":
    raise SystemExit(main())
