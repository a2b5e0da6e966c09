"""Stopping: the best of all rules that can be listed, at rest where no guess pays."""

from itertools import repeat
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative import Round
from tests.distributions import Scripted
from tests.small import Logits, of_probabilities
from tests.toys import PAIRS, context_free
from theory.speedup import best_K
from variants import Models
from variants.registry import Costs
from variants.stopping import BUCKETS, DECAY, START, History, bucket_of, build, guess_while_it_pays

# ---- the best rule

def policies(k, s, a, shares, costs):
    """Return what every rule adds to a round with k guesses, as a list of (tokens, time).

    A rule decides after which rows the draft is called again, and from which a guess is drawn.
    """
    stop = (0.0, 0.0)
    if k + 1 == len(costs.pass_cost):
        return [stop]
    price = costs.pass_cost[k + 1] - costs.pass_cost[k]
    calls = [(0.0, costs.c)]
    for acceptance, share in zip(a, shares):
        # after a row of this kind a rule stops, or draws a guess and goes on by any other rule
        drawn = [(s * acceptance + tokens, price + time)
                 for tokens, time in policies(k + 1, s * acceptance, a, shares, costs)]
        calls = [(tokens + share * more, time + share * longer)
                 for tokens, time in calls for more, longer in [stop, *drawn]]
    return [stop, *calls]


def fixed(a, shares, rho, costs):
    """Return a `History` with these estimates."""
    return SimpleNamespace(costs=costs, estimates=lambda: (np.array(a), np.array(shares), rho))


def row_of(bucket):
    """Return a row of this bucket's confidence."""
    confidence = (bucket + 0.5) / BUCKETS
    row = np.full(40, (1 - confidence) / 39)
    row[0] = confidence
    return row


def guesses_and_rows(draft, history):
    """Return how many guesses our rule makes, and the buckets of the rows that it asks for."""
    asked = []
    K = len(history.costs.pass_cost) - 1
    guesses, _ = guess_while_it_pays([0], K, np.random.default_rng(0), draft, history, asked)
    return len(guesses), asked


def rate_of_the_rule(a, shares, rho, costs):
    """Return the tokens per time of our rule at this rho: every sequence of rows, weighted."""
    tokens = 1.0
    time = costs.pass_cost[0]
    K = len(costs.pass_cost) - 1
    starts = [((), 1.0)]  # the buckets of a round's first rows, and their probability
    while starts:
        buckets, weight = starts.pop()
        rows = [row_of(bucket) for bucket in [*buckets, *[0] * K]]
        draft = lambda ids, n_last: rows[len(ids) - 1][None]  # noqa: B023  used at once
        k, asked = guesses_and_rows(draft, fixed(a, shares, rho, costs))
        if len(asked) > len(buckets):  # our rule asks for one more row, of any bucket
            starts += [((*buckets, bucket), weight * share)
                       for bucket, share in enumerate(shares) if share]
        else:
            tokens += weight * np.cumprod([a[bucket] for bucket in asked[:k]]).sum()
            time += weight * (len(asked) * costs.c + costs.pass_cost[k] - costs.pass_cost[0])
    return tokens / time


@pytest.mark.parametrize("seed", range(12))
def test_no_rule_is_better_if_each_row_costs_more_than_the_one_before(seed):
    """Of 1445 rules for two kinds of rows and up to three guesses."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.01, 0.4)
    costs = Costs(c, [1.0, *(1 + np.cumsum(np.sort(rng.uniform(0, 0.5, 3))))])
    a = [*rng.uniform(0.1, 1, 2), *[0.5] * (BUCKETS - 2)]
    share = rng.uniform(0.1, 0.9)
    shares = [share, 1 - share, *[0.0] * (BUCKETS - 2)]
    rules = policies(0, 1.0, a[:2], shares[:2], costs)
    best = max((1 + tokens) / (1 + time) for tokens, time in rules)
    assert len(rules) == 1445
    assert rate_of_the_rule(a, shares, best, costs) == pytest.approx(best, rel=1e-12)


@settings(max_examples=60)
@given(st.floats(0.05, 0.95), st.floats(0.01, 0.6),
       st.lists(st.floats(0.7, 4), min_size=1, max_size=8))
def test_with_equal_acceptances_the_rule_is_the_best_K(alpha, c, pass_cost):
    costs = Costs(c, [1.0, *pass_cost])
    rho = 1.0
    for _ in range(20):  # each rho is the rule's rate at the rho before, up to the best rate
        history = fixed([alpha] * BUCKETS, [1 / BUCKETS] * BUCKETS, rho, costs)
        k, asked = guesses_and_rows(context_free(row_of(3)), history)
        assert len(asked) == k  # no draft pass is wasted
        rate = max(1.0, sum(alpha**t for t in range(k + 1)) / (k * c + costs.pass_cost[k]))
        if rate == rho:
            break
        rho = rate
    assert k == best_K(alpha, c, costs.pass_cost)


def test_a_first_guess_that_pays_only_with_a_second_is_not_made_alone():
    for n_left, n in ((3, 2), (2, 0)):
        step = build(of_probabilities(*PAIRS["equal"], Costs(0.01, [1.0, 3.0, 1.1])))
        assert len(step([0], n_left, np.random.default_rng(0)).guesses) == n


# ---- as the text grows (tests/variants/test_speculative.py: what it chooses)

def test_the_table_counts_the_guesses_that_were_tested_and_every_row():
    assert [bucket_of(np.array([p])) for p in (0, 0.124, 0.125, 1)] == [0, 0, 1, BUCKETS - 1]
    history = History(Costs(0.1, [1.0, 1.1, 1.2]))
    history.count(Round([0, 1], [0, 0], None, None, 1), [7, 3])
    history.count(Round([1], [0, 0], None, None, 0), [2, 3, 5])
    before, now = DECAY * np.eye(BUCKETS), np.eye(BUCKETS)  # what the two rounds add
    accepted, tested, rows = history.counts - START
    assert accepted == pytest.approx(before[7])
    assert tested == pytest.approx(before[7] + before[3] + now[2])
    assert rows == pytest.approx(before[7] + before[3] + now[2] + now[3] + now[5])
    assert history.tokens == pytest.approx(DECAY * (DECAY + 2) + 1, rel=1e-12)
    first, second = 2 * 0.1 + 1.2, 3 * 0.1 + 1.2  # the time of each round
    assert history.time == pytest.approx(DECAY * (DECAY + first) + second, rel=1e-12)
    assert history.estimates()[2] == history.tokens / history.time > 1
    history.time = 99.0  # slower than plain decoding
    assert history.estimates()[2] == 1


def test_a_greedy_drafts_confidence_is_read_at_temperature_1():
    even = Logits(context_free([1 / 3] * 3))
    models = Models(even, even, dict(temperature=0.0), costs=Costs(0.05, [1.0, 1.7, 2.4]))
    assert build(models)([0], 9, np.random.default_rng(0)).guesses == []
    sharp = Logits(context_free([0.6, 0.3, 0.1]))  # a number of .99 would draw token 2
    models = Models(sharp, sharp, dict(temperature=0.0), costs=Costs(0.01, [1.0, 1.01, 1.02]))
    assert build(models)([0], 9, Scripted(repeat(0.99))).guesses == [0, 0]
