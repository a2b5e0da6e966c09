"""Huang et al. (2024), "SpecDec++": stop guessing by a threshold; here a measured one. Lossless.

What it adds to assisted.py: no K and no constant. Another guess is drawn while the chance that it
becomes text is worth its time; the costs are those of auto.py, the chances are counted.

    k           guesses in this round so far
    s           the chance that all of them are kept
    a           the chance that a guess is kept if those before it are: a table over the draft's
                confidence, the largest probability of the row that the guess is drawn from
    alpha       the mean of a over the rows that the draft gave
    d, V        Costs in units of one target row: d = costs.c of a draft step, V[k] =
                costs.pass_cost[k] of a pass with k guesses
    rho         tokens per unit of time so far, at least plain decoding's 1

A round with k guesses brings 1 + s_1 + .. + s_k tokens for the time k d + V[k]. The rule with the
best rate is the one whose rounds maximise tokens - rho time, at that rate: time is worth what it
brings elsewhere (the renewal-reward theorem). So m more guesses, the first from a row of chance a,
and the others of the mean chance, are worth

    gain  =  max over m >= 1 of  s a (1 + alpha + .. + alpha^(m-1)) - rho (m d + V[k+m] - V[k])

    [1] ask the draft for a row       while the mean of max(0, gain + rho d) is above rho d
    [2] draw a guess from that row    if gain + rho d > 0: its own step is paid already

With one chance for all rows this is the K of theory/speedup.py, best_K. With several it is the best
rule if V rises ever more steeply: what does not pay now then never will. (If V does not, a costly
row may lead to a cheap one: that is what m is for.)

Huang et al. (2024) Theorem 3.1 stops where the chance 1 - s of a rejection exceeds a constant of
the costs, and trains a head on the draft to predict s. Unlike it: their released code draws a
guess, evaluates the head and stops after that guess, which is tested. Here the row is judged before
a guess is drawn from it. Both are exact; dropping a drawn guess for what it is, before the ratio
test, is not (docs/wild.md).
"""

from functools import partial

import numpy as np

from sampling import one_hot_rows, sample
from speculative import speculative_step, verify
from variants.registry import Decoder

BUCKETS = 8  # of the draft's confidence
DECAY = 0.996  # what a round's weight is multiplied by with every further round
SURE = (np.arange(BUCKETS) + 0.5) / BUCKETS  # the confidence in the middle of each bucket
START = np.array([1 + SURE, np.full(BUCKETS, 2.0), np.full(BUCKETS, 1 / BUCKETS)])  # optimistic:
# of two guesses one was kept, and the other with the chance that the draft itself gives it


class History:
    """What the text so far has shown: the chance of a guess, and the speed.

    Older rounds count less, and where nothing is tried the table returns to its optimistic start:
    so what once did not pay is tried again now and then.
    """

    def __init__(self, costs):
        self.costs, self.table = costs, START  # [3, BUCKETS]: guesses kept, and tested; rows
        self.x, self.tokens, self.time = [], 1.0, 1.0

    def start_text(self, x):
        """Another text than the last one begins at plain decoding's speed; the table stays."""
        if x[: len(self.x)] != self.x:
            self.tokens = self.time = 1.0
        self.x = list(x)

    def estimates(self):
        """(a, the shares of the rows that have it, rho), the first two [BUCKETS]."""
        kept, tested, rows = self.table
        return kept / tested, rows / rows.sum(), max(1.0, self.tokens / self.time)

    def count(self, round, buckets):
        """Add a round, and the buckets of all rows that the draft gave in it."""
        self.table = START + DECAY * (self.table - START)
        for t, bucket in enumerate(buckets):
            self.table[:, bucket] += t < round.n_accepted, t < round.n_tested, 1
        cost = len(buckets) * self.costs.c + self.costs.pass_cost[len(round.guesses)]
        self.tokens = DECAY * self.tokens + len(round.ids)
        self.time = DECAY * self.time + cost


# ---- guess

def gain(first, alpha, prices):  # [..] -> [..]
    """The most that m >= 1 guesses bring: `first` is s a, and each guess has its price."""
    kept = np.multiply.outer(first, alpha ** np.arange(len(prices)))
    return np.cumsum(kept - prices, axis=-1).max(axis=-1)


def bucket_of(row):
    """How sure the draft is, as an index of the table."""
    return min(int(BUCKETS * row.max()), BUCKETS - 1)


def guess_while_it_pays(x, k, rng, draft, seen, buckets, greedy=False):
    """Up to k tokens from the draft, and the rows that they were drawn from.

    Every row's bucket is put in `buckets`, that of a last one which no guess was drawn from too.
    """
    guesses, p_draft, s = [], [], 1.0
    a, shares, rho = seen.estimates()
    step = rho * seen.costs.c
    prices = step + rho * np.diff(seen.costs.pass_cost[: k + 1])  # [k]
    while len(guesses) < k:
        gains = step + gain(s * a, shares @ a, prices[len(guesses) :])  # [BUCKETS]
        if shares @ np.maximum(0, gains) <= step:  # [1]
            break
        row = draft(x + guesses, 1)[-1]
        buckets.append(bucket_of(row))
        if gains[buckets[-1]] <= 0:  # [2]
            break
        p_draft.append(one_hot_rows([row.argmax()], len(row))[0] if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        s *= a[buckets[-1]]
    return guesses, p_draft


def stopping(draft, target, costs, greedy=False):
    """Build the step of one text, which guesses while it pays.

    Parameters
    ----------
    draft, target : callables `(ids, n_last) -> [n_last, n_vocab]` of probabilities
        With `greedy` the draft's are at temperature 1, but it guesses its best token.
    costs : Costs
        Given or measured before the run. They never change, so equal seeds give equal texts.

    ValueError if `costs` has no second row, or a number that no cost can be.
    """
    if len(costs.passes) < 2 or not all(0 < time < np.inf for time in (costs.draft, *costs.passes)):
        raise ValueError(f"need costs > 0 of a draft step and of two rows at least, got {costs}")
    seen = History(costs)

    def step(x, n_left, rng):
        seen.start_text(x)
        buckets = []
        guess = partial(guess_while_it_pays, draft=draft, seen=seen, buckets=buckets, greedy=greedy)
        round = speculative_step(x, n_left, rng, target, len(costs.pass_cost) - 1, guess)
        seen.count(round, buckets)
        return round

    return step


# ---- the entry

def build(models):
    """Return the step. At temperature 0 the draft's confidence is read at temperature 1."""
    draft = models.probabilities("draft", temperature_1=models.is_greedy)
    return stopping(draft, models.probabilities("target"), models.costs, models.is_greedy)


DECODER = Decoder(
    "stopping", "Huang et al. (2024)", "https://arxiv.org/abs/2405.19715",
    idea="draws another guess only while its chance is worth its time",
    guess=guess_while_it_pays, test=verify, build=build, needs=("draft", "costs"))
