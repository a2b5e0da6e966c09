"""Huang et al. (2024), "SpecDec++": stop guessing by a threshold, here measured. Lossless.

Adds to assisted.py: it needs neither K nor a constant threshold. The draft guesses while the
probability that the next guess becomes text is worth its time. Costs are measured as for `--K
auto` (speculative.py), and probabilities are counted.

    bucket      one of 8 ranges of the draft's confidence, the largest probability of a row
    a[bucket]   the probability that a guess from such a row is accepted, if all guesses before
                it are
    s           the probability that all guesses of this round so far are accepted
    alpha       the mean of a over the draft's rows
    d, V        times in target rows: d of a draft step, V[k] of a pass with k guesses
    rho         tokens per unit of time so far, at least plain decoding's 1

At the rate rho, one unit of time is worth rho tokens. A round with k guesses gives 1 + s_1 + ..
+ s_k tokens and takes the time k d + V[k]. Let rho be the best rate that any rule has. A rule has
this rate if its rounds maximise the difference tokens - rho * time (the renewal-reward theorem).
So m more guesses after k guesses are worth `net` tokens. The first of them is accepted with
probability a[bucket] of its row, and the others with the mean alpha:

    net  =  max over m >= 1 of  s a (1 + alpha + .. + alpha^(m-1)) - rho (m d + V[k+m] - V[k])

Two tests decide whether the draft's next row is computed, and whether a guess is drawn from it.
The row costs rho d, which is subtracted in `net`. In (b) the row is computed already, so its cost
is added again.

    (a) compute a draft row           if the mean over rows of max(0, net + rho d) is above rho d
    (b) draw a guess from that row    if net + rho d > 0

If a is equal for all rows, this is best_K of theory/speedup.py. Otherwise it is the best rule if
each guess raises V by at least as much as the guess before it. If a guess raises V by more than
the guess after it, only both together may pay, which is why m can be more than 1.

Huang et al. (2024) Theorem 3.1 stops when 1 - s exceeds a constant, and trains a head to
predict s. Their released code draws a guess, evaluates the head, and tests the guess in any case.
Here the decision comes before the draw. Both are exact. It would not be exact to drop a drawn
guess because of its value, before the ratio test (docs/wild.md).
"""

from functools import partial

import numpy as np

from sampling import sample
from speculative import Step, speculative_step, verify
from variants.assisted import greedy_row
from variants.registry import Decoder, Models
from variants.shared.acceptance import Acceptance

BUCKETS = 8  # of the draft's confidence
DECAY = 0.996  # multiplies a round's weight after every further round
# An optimistic start: in each bucket two guesses were tested. One was accepted for sure, the
# other with the mean confidence of the bucket.
START_TESTED = np.full(BUCKETS, 2.0)
START_ACCEPTED = 1 + (np.arange(BUCKETS) + 0.5) / BUCKETS
START_ROWS = np.full(BUCKETS, 1 / BUCKETS)  # one row of the draft, in equal parts


class History:
    """Count how often guesses were accepted, and how fast the text grew.

    Older rounds count less. The counts of a bucket without tested guesses approach those of the
    start, so a bucket that did not pay is retried now and then.
    """

    def __init__(self, costs):
        self.costs = costs
        self.acceptance = Acceptance(START_ACCEPTED, START_TESTED, DECAY,
                                     at_rest=(START_ACCEPTED, START_TESTED))
        self.rows = START_ROWS  # rows of the draft, tested or not
        self.tokens = 1.0  # with `time`: plain decoding's speed
        self.time = 1.0

    def estimates(self):
        """Return `a` and the fraction of rows for each bucket, both [BUCKETS], and rho."""
        bucket_fractions = self.rows / self.rows.sum()
        return self.acceptance.rate(), bucket_fractions, max(1.0, self.tokens / self.time)

    def count(self, result, buckets):
        """Add a round, and the buckets of all rows that the draft computed in it."""
        self.acceptance.fade()
        self.rows = START_ROWS + DECAY * (self.rows - START_ROWS)
        for t, bucket in enumerate(buckets):  # row t gave guess t; the last row may have none
            self.rows[bucket] += 1
            if t < result.n_tested:
                self.acceptance.tested[bucket] += 1
            if t < result.n_accepted:
                self.acceptance.accepted[bucket] += 1
        cost = len(buckets) * self.costs.c + self.costs.pass_cost[len(result.guesses)]
        self.tokens = DECAY * self.tokens + len(result.ids)
        self.time = DECAY * self.time + cost


def net_tokens(first, alpha, prices):  # [..] -> [..]
    """Return what m >= 1 more guesses are worth for the best m: tokens minus prices.

    `first` is s a, the probability that the next guess becomes text. prices[0] is the price of
    the next guess, prices[1] of the guess after it, and so on.
    """
    # The guess after i more guesses becomes text with probability first * alpha^i.
    tokens = np.multiply.outer(first, alpha ** np.arange(len(prices)))  # [.., guess]
    return np.cumsum(tokens - prices, axis=-1).max(axis=-1)


def bucket_of(row):
    """Return the bucket of a row's confidence; a confidence of 1 is in the last bucket."""
    return min(int(BUCKETS * row.max()), BUCKETS - 1)


def guess_while_it_pays(x, k, rng, draft, history, buckets, greedy=False):
    """Sample up to k tokens from the draft while they pay; append each row's bucket.

    With `greedy` each guess is the draft's best token, but `draft` returns rows at temperature
    1, which show its confidence.
    """
    guesses, p_draft = [], []
    s = 1.0
    a, bucket_fractions, rho = history.estimates()
    alpha = bucket_fractions @ a
    # Prices in tokens: of a draft row; of each guess, which needs a draft row and a longer pass.
    row_price = rho * history.costs.c
    prices = row_price + rho * np.diff(history.costs.pass_cost[: k + 1])  # [k]
    while len(guesses) < k:
        # gains[b]: the worth of guessing on from a row in bucket b, when the row is paid already
        gains = row_price + net_tokens(s * a, alpha, prices[len(guesses) :])
        if bucket_fractions @ np.maximum(0, gains) <= row_price:  # (a)
            break
        row = draft(x + guesses, 1)[-1]
        bucket = bucket_of(row)
        buckets.append(bucket)
        if gains[bucket] <= 0:  # (b)
            break
        # The guess is drawn from the row in p_draft; the draft's confidence is read from `row`.
        p_draft.append(greedy_row(row) if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        s *= a[bucket]
    return guesses, p_draft


def build(models: Models) -> Step:
    """Return the step of one text, which guesses while it pays, from the Costs."""
    assert models.costs is not None  # variants.build asks for them: `needs` names them
    history = History(models.costs)
    target = models.target_rows
    most = len(models.costs.pass_cost) - 1  # guesses of the largest pass with a known cost
    make_guesses = partial(guess_while_it_pays, draft=models.warm.draft_rows, history=history,
                           greedy=models.is_greedy)

    def step(x, n_left, rng):
        buckets = []  # of this round's rows
        result = speculative_step(x, n_left, rng, target, most,
                                  partial(make_guesses, buckets=buckets))
        history.count(result, buckets)
        return result

    return step


DECODER = Decoder(
    "stopping", "Huang et al. (2024)", "https://arxiv.org/abs/2405.19715",
    idea="draws one more guess as long as its expected gain is worth its time",
    family="a cheaper draft, or a K that adapts",
    guess=guess_while_it_pays, test=verify, build=build, needs=("draft", "costs"))
