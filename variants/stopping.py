"""Huang et al. (2024), "SpecDec++": stop guessing by a threshold, here measured. Lossless.

Adds to assisted.py: it needs neither K nor a constant threshold. The draft guesses while the
probability that the next guess becomes text is worth its time; costs are measured as for `--K
auto` (speculative.py), probabilities are counted.

    s           the probability that all guesses of this round so far are accepted
    a           the probability that a guess is accepted if those before it are: a table over
                the draft's confidence, the largest probability of the row it is drawn from
    alpha       the mean of a over the draft's rows
    d, V        times in target rows: d of a draft step, V[k] of a pass with k guesses
    rho         tokens per unit of time so far, at least plain decoding's 1

A round with k guesses gives 1 + s_1 + .. + s_k tokens and takes the time k d + V[k]. The rule
with the best rate is the one whose rounds maximise tokens - rho time, at that rate (the
renewal-reward theorem). So m more guesses, the first from a row with a, the others with the
mean alpha, are worth

    gain  =  max over m >= 1 of  s a (1 + alpha + .. + alpha^(m-1)) - rho (m d + V[k+m] - V[k])

    (a) compute a draft row           while the mean of max(0, gain + rho d) is above rho d
    (b) draw a guess from that row    if gain + rho d > 0: its own step is paid already

If a is the same for all rows, this is best_K of theory/speedup.py. Otherwise it is the best
rule if V rises ever more steeply; if not, a costly row may lead to a cheap one, hence m.

Huang et al. (2024) Theorem 3.1 stops when 1 - s exceeds a constant, and trains a head to
predict s. Their released code evaluates the head after drawing a guess, which is tested. Here
the row is judged before a guess is drawn. Both are exact; dropping a drawn guess because of its
value, before the ratio test, is not (docs/wild.md).
"""

from functools import partial

import numpy as np

from sampling import sample
from speculative import Step, speculative_step, verify
from variants.assisted import greedy_row
from variants.registry import Decoder, Models

BUCKETS = 8  # of the draft's confidence
DECAY = 0.996  # multiplies a round's weight with every further round
# An optimistic start: of two guesses per bucket one was accepted, the other with the
# probability of the bucket.
START = np.array([1 + (np.arange(BUCKETS) + 0.5) / BUCKETS, np.full(BUCKETS, 2.0),
                  np.full(BUCKETS, 1 / BUCKETS)])


class History:
    """Count how often guesses were accepted, and how fast the text grew.

    Older rounds count less, and untested buckets decay back to START, so a bucket that did not
    pay is retried now and then.
    """

    def __init__(self, costs):
        self.costs = costs
        self.table = START  # [3, BUCKETS]: guesses accepted, guesses tested, rows of the draft
        self.tokens = 1.0  # with `time`: plain decoding's speed
        self.time = 1.0

    def estimates(self):
        """Return a [BUCKETS], the fraction of rows in each bucket [BUCKETS], and rho."""
        accepted, tested, rows = self.table
        return accepted / tested, rows / rows.sum(), max(1.0, self.tokens / self.time)

    def count(self, result, buckets):
        """Add a round, and the buckets of all rows that the draft computed in it."""
        self.table = START + DECAY * (self.table - START)
        accepted, tested, rows = self.table  # views
        for t, bucket in enumerate(buckets):
            accepted[bucket] += t < result.n_accepted
            tested[bucket] += t < result.n_tested
            rows[bucket] += 1
        cost = len(buckets) * self.costs.c + self.costs.pass_cost[len(result.guesses)]
        self.tokens = DECAY * self.tokens + len(result.ids)
        self.time = DECAY * self.time + cost


def gain(first, alpha, prices):  # [..] -> [..]
    """Return the largest gain of m >= 1 guesses; `first` is s a, prices[i] guess i's price."""
    accepted = np.multiply.outer(first, alpha ** np.arange(len(prices)))
    return np.cumsum(accepted - prices, axis=-1).max(axis=-1)


def guess_while_it_pays(x, k, rng, draft, seen, buckets, greedy=False):
    """Sample up to k tokens from the draft while they pay; append each row's bucket.

    With `greedy` the draft's rows are at temperature 1, but it guesses its best token.
    """
    guesses, p_draft = [], []
    s = 1.0
    a, shares, rho = seen.estimates()
    step = rho * seen.costs.c
    prices = step + rho * np.diff(seen.costs.pass_cost[: k + 1])  # [k]
    while len(guesses) < k:
        gains = step + gain(s * a, shares @ a, prices[len(guesses) :])  # [BUCKETS]
        if shares @ np.maximum(0, gains) <= step:  # (a)
            break
        row = draft(x + guesses, 1)[-1]
        buckets.append(min(int(BUCKETS * row.max()), BUCKETS - 1))
        if gains[buckets[-1]] <= 0:  # (b)
            break
        p_draft.append(greedy_row(row) if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        s *= a[buckets[-1]]
    return guesses, p_draft


def build(models: Models) -> Step:
    """Return the step of one text, which guesses while it pays, from the Costs."""
    assert models.costs is not None  # variants.build asks for them: `needs` names them
    seen = History(models.costs)
    target = models.target_rows
    most = len(models.costs.pass_cost) - 1
    guess = partial(guess_while_it_pays, draft=models.warm.draft_rows, seen=seen,
                    greedy=models.is_greedy)

    def step(x, n_left, rng):
        buckets = []
        result = speculative_step(x, n_left, rng, target, most, partial(guess, buckets=buckets))
        seen.count(result, buckets)
        return result

    return step


DECODER = Decoder(
    "stopping", "Huang et al. (2024)", "https://arxiv.org/abs/2405.19715",
    idea="draws one more guess only while its probability is worth its time",
    family="a cheaper draft, or a K that adapts",
    guess=guess_while_it_pays, test=verify, build=build, needs=("draft", "costs"))
