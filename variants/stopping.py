"""Huang et al. (2024), "SpecDec++": stop guessing by a threshold, here measured. Lossless.

Adds to assisted.py: neither K nor a constant threshold is needed. The draft guesses while the
probability that the next guess becomes text is worth its time. Costs are measured as for `--K
auto` (speculative.py), and probabilities are counted.

    bucket      one of 8 ranges of the draft's confidence, the largest probability of a row
    a[bucket]   the probability that a guess from such a row is accepted, if all guesses before
                it are
    s           the probability that all guesses of this round so far are accepted; s_k after k
    alpha       the mean of a over the draft's rows
    d           the time of a draft pass, in target rows
    V[k]        the time of a target pass over k guesses, in target rows
    rho         the best rate, in tokens per unit of time; estimated by the rate so far, and at
                least plain decoding's 1

1. A round with k guesses gives 1 + s_1 + .. + s_k tokens on average, in the time k d + V[k].
2. The rate of a rule is its mean tokens per round divided by its mean time per round (the
   renewal-reward theorem). Let rho be the best rate that any rule has. Then tokens - rho * time
   has a mean of at most 0 for every rule, and of 0 for the best rule. So the best rule
   maximises this difference: a unit of time is worth rho tokens.
3. After k guesses, the next guess becomes text with probability s a, where a is its row's.
   The guesses after it are accepted with the mean alpha, because their rows are not known yet.
4. So m more guesses after k guesses are worth `net` tokens, for the best m:

    net  =  max over m >= 1 of  s a (1 + alpha + .. + alpha^(m-1)) - rho (m d + V[k+m] - V[k])

Two tests decide whether the draft's next row is computed, and whether a guess is drawn from it.
In `net` the row still has to be paid, with rho d tokens. When the row is computed already, the
worth of going on is `gain` = net + rho d.

    (a) compute a draft row           if the mean over rows of max(0, gain) is above rho d
    (b) draw a guess from that row    if gain > 0

By (b) a row is worth max(0, gain). Its bucket is not known before, so (a) takes the mean.

If a is equal for all rows, this rule is best_K of theory/speedup.py. If the rows differ, it is
the best rule provided that V[k+1] - V[k] never falls as k grows. Where it falls, two guesses
together can pay although the first guess alone does not. So `net` tries every m.

Huang et al. (2024) Theorem 3.1 stops when 1 - s exceeds a constant, and trains a head to
predict s. Their released code evaluates the head on a drawn guess, and then tests it in any
case. Here the decision comes before the draw. Both ways are exact, but dropping a drawn guess
because of its value would bias the text (docs/wild.md).
"""

from functools import partial

import numpy as np

from sampling import sample, warp
from speculative import Step, speculative_step, verify
from variants.registry import Decoder, Models, needing

BUCKETS = 8  # of the draft's confidence
DECAY = 0.996  # after every further round, a round's weight is multiplied by this
# An optimistic start: of two guesses in each bucket one was accepted, and the other counts as
# accepted with the mean confidence of the bucket, 1/16 in the first bucket.
START = np.array([1 + (np.arange(BUCKETS) + 0.5) / BUCKETS,  # accepted guesses
                  np.full(BUCKETS, 2.0),  # tested guesses
                  np.full(BUCKETS, 1 / BUCKETS)])  # one row of the draft, in equal parts


class History:
    """Count how often guesses were accepted, and how fast the text grew.

    Older rounds count less. The counts of a bucket without tested guesses approach those of the
    start, so a bucket that did not pay is retried now and then.
    """

    def __init__(self, costs):
        self.costs = costs
        # [3, BUCKETS]: guesses accepted and tested, and rows of the draft, tested or not
        self.counts = START
        # One token per unit of time is the speed of plain decoding.
        self.tokens = 1.0
        self.time = 1.0

    def estimates(self):
        """Return `a` and the fraction of rows for each bucket, both [BUCKETS], and rho."""
        accepted, tested, rows = self.counts
        rho = max(1.0, self.tokens / self.time)
        return accepted / tested, rows / rows.sum(), rho

    def count(self, result, buckets):
        """Add a round, and the buckets of all rows that the draft computed in it."""
        self.counts = START + DECAY * (self.counts - START)
        accepted, tested, rows = self.counts  # views
        # Guess t was drawn from row t. From the last row perhaps no guess was drawn.
        for t, bucket in enumerate(buckets):
            rows[bucket] += 1
            if t < result.n_tested:
                tested[bucket] += 1
            if t < result.n_accepted:
                accepted[bucket] += 1
        cost = len(buckets) * self.costs.c + self.costs.pass_cost[len(result.guesses)]
        self.tokens = DECAY * self.tokens + len(result.ids)
        self.time = DECAY * self.time + cost


def net_tokens(first, alpha, prices):  # [..] -> [..]
    """Return what m >= 1 more guesses are worth for the best m: tokens minus prices.

    `first` is s a, the probability that the next guess becomes text, as a number or for each
    bucket. prices[0] is the price of the next guess, prices[1] of the guess after it, ..
    """
    # Guess i of the further guesses, counted from 0, becomes text with probability first
    # alpha^i.
    tokens = np.multiply.outer(first, alpha ** np.arange(len(prices)))  # [.., guess]
    net_of_m = np.cumsum(tokens - prices, axis=-1)  # [.., m - 1]
    return net_of_m.max(axis=-1)


def bucket_of(row):
    """Return the bucket of a row's confidence; a confidence of 1 is in the last bucket."""
    return min(int(BUCKETS * row.max()), BUCKETS - 1)


def guess_while_it_pays(x, k, rng, draft, history, buckets, greedy=False):
    """Sample up to k tokens from the draft while they pay; append each row's bucket."""
    guesses, p_draft = [], []
    s = 1.0
    a, bucket_fractions, rho = history.estimates()
    alpha = bucket_fractions @ a
    # Prices are in tokens. A guess needs a draft row and makes the target's pass longer.
    row_price = rho * history.costs.c
    prices = row_price + rho * np.diff(history.costs.pass_cost[: k + 1])  # [k]
    while len(guesses) < k:
        # gains[b] is the gain if the next row is in bucket b.
        gains = row_price + net_tokens(s * a, alpha, prices[len(guesses) :])
        if bucket_fractions @ np.maximum(0, gains) <= row_price:  # (a)
            break
        row = draft(x + guesses, 1)[-1]
        bucket = bucket_of(row)
        buckets.append(bucket)
        if gains[bucket] <= 0:  # (b)
            break
        # A greedy draft's confidence is read from its row at temperature 1 (assisted.py).
        p_draft.append(warp(row, temperature=0) if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        s *= a[bucket]
    return guesses, p_draft


def build(models: Models) -> Step:
    """Return the step of one text, which guesses while it pays, from the Costs."""
    assert models.costs is not None  # variants.build checks it, because `needs` has "costs"
    history = History(models.costs)
    target = models.target_rows
    # No round has more guesses than the largest pass with a known cost.
    most = len(models.costs.pass_cost) - 1
    make_guesses = partial(guess_while_it_pays, draft=models.warm.draft_rows, history=history,
                           greedy=models.is_greedy)

    def step(x, n_left, rng):
        buckets = []  # the guess appends the buckets of this round's rows
        guess = partial(make_guesses, buckets=buckets)
        result = speculative_step(x, n_left, rng, target, most, guess, models.test)
        history.count(result, buckets)
        return result

    return step


DECODER = Decoder(
    "stopping", "Huang et al. (2024)", "https://arxiv.org/abs/2405.19715",
    idea="draws one more guess as long as its expected gain is worth its time",
    family="a cheaper draft, or a K that adapts",
    guess=guess_while_it_pays, test=verify, build=build, needs=needing("draft", "costs"))
