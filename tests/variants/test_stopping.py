"""Stopping: the best rule of all that can be listed, and idle where nothing pays."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculative import Round, generate
from tests.small import Logits, fixed_acceptance, of_probabilities
from tests.toys import PAIRS, counted, toy
from theory.speedup import best_K
from variants import Models
from variants.registry import Costs
from variants.stopping import BUCKETS, START, History, build, guess_while_it_pays

K_MAX = 8

EVEN = Costs(0.1, [1.0] * (K_MAX + 1))
RISING = Costs(0.1, [1 + 0.1 * K for K in range(K_MAX + 1)])


# ---- the best rule

def policies(k, s, a, shares, costs):
    """(tokens, time) that each rule there is adds to a round with k guesses, by listing them all.

    A rule says after which rows another is asked for, and from which of them a guess is drawn.
    """
    stop = [(0.0, 0.0)]
    if k + 1 == len(costs.pass_cost):
        return stop
    looks = [(0.0, costs.c)]
    for chance, share in zip(a, shares):
        price = costs.pass_cost[k + 1] - costs.pass_cost[k]
        drawn = [(s * chance + tokens, price + time)
                 for tokens, time in policies(k + 1, s * chance, a, shares, costs)]
        looks = [(tokens + share * more, time + share * longer)
                 for tokens, time in looks for more, longer in stop + drawn]
    return stop + looks


def fixed(a, shares, rho, costs):
    """A `History` that knows all there is to know."""
    return SimpleNamespace(costs=costs, estimates=lambda: (np.array(a), np.array(shares), rho))


def row_of(bucket):
    """A row of this bucket's confidence."""
    sure = (bucket + 0.5) / BUCKETS
    row = np.full(40, (1 - sure) / 39)
    row[0] = sure
    return row


def rate_of_the_rule(a, shares, rho, costs):
    """Tokens per time of the rule of this file at this rho: every sequence of rows, weighted."""
    tokens, time, K = 1.0, costs.pass_cost[0], len(costs.pass_cost) - 1

    def walk(buckets, weight):  # the rule after these rows, found by giving them
        nonlocal tokens, time
        asked = []
        draft = lambda ids, n_last: row_of([*buckets, *[0] * K][len(asked)])[None]
        guesses, _ = guess_while_it_pays([0], K, np.random.default_rng(0), draft,
                                         fixed(a, shares, rho, costs), asked)
        if len(asked) <= len(buckets):
            k = len(guesses)
            tokens += weight * sum(np.prod([a[b] for b in asked[: i + 1]]) for i in range(k))
            time += weight * (len(asked) * costs.c + costs.pass_cost[k] - costs.pass_cost[0])
            return
        for bucket, share in enumerate(shares):
            if share:
                walk([*buckets, bucket], weight * share)

    walk([], 1.0)
    return tokens / time


@pytest.mark.parametrize("seed", range(12))
def test_no_rule_is_better_where_rows_cost_ever_more(seed):
    """Of 1445 rules for two kinds of rows and up to three guesses."""
    rng = np.random.default_rng(seed)
    costs = Costs(rng.uniform(0.01, 0.4), [1.0, *(1 + np.cumsum(np.sort(rng.uniform(0, 0.5, 3))))])
    a = [*rng.uniform(0.1, 1, 2), *[0.5] * (BUCKETS - 2)]
    share = rng.uniform(0.1, 0.9)
    shares = [share, 1 - share, *[0.0] * (BUCKETS - 2)]
    rules = policies(0, 1.0, a[:2], shares[:2], costs)
    best = max((1 + tokens) / (1 + time) for tokens, time in rules)
    assert len(rules) == 1445
    assert rate_of_the_rule(a, shares, best, costs) == pytest.approx(best, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 0.95), st.floats(0.01, 0.6),
       st.lists(st.floats(0.7, 4), min_size=1, max_size=8))
def test_with_one_chance_for_all_rows_it_is_the_best_K(alpha, c, pass_cost):
    """Whatever the costs: rows may be expensive and the next ones cheap."""
    costs, rho, k = Costs(c, [1.0, *pass_cost]), 1.0, 0
    draft = lambda ids, n_last: row_of(3)[None]
    for _ in range(20):  # to the best rate, by the rate of the rule at the last one
        asked = []
        seen = fixed([alpha] * BUCKETS, [1 / BUCKETS] * BUCKETS, rho, costs)
        guesses, _ = guess_while_it_pays([0], len(pass_cost), np.random.default_rng(0), draft,
                                         seen, asked)
        k, before = len(guesses), rho
        assert len(asked) == k  # and no draft step is for nothing
        rho = max(1.0, sum(alpha**t for t in range(k + 1)) / (k * c + costs.pass_cost[k]))
        if rho == before:
            break
    assert k == best_K(alpha, c, costs.pass_cost)


def test_a_second_guess_that_would_pay_for_the_first_needs_room():
    for n_left, n in ((3, 2), (2, 0)):
        step = build(of_probabilities(*PAIRS["equal"], Costs(0.01, [1.0, 3.0, 1.1])))
        assert len(step([0], n_left, np.random.default_rng(0)).guesses) == n


# ---- as the text grows

def written(draft, target, costs, N=600):
    """The rounds of one text."""
    step = build(of_probabilities(draft, target, costs))
    return list(generate([0], step, N, np.random.default_rng(0)))


def test_a_perfect_draft_gets_every_guess_there_is():
    target = toy(5, 43)
    draft, target = counted(target), counted(target)
    rounds = written(draft, target, EVEN)
    assert [len(result.ids) for result in rounds[20:-1]] == [K_MAX + 1] * (len(rounds) - 21)
    assert len(draft.calls) == sum(len(result.guesses) for result in rounds)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("costs", [EVEN, RISING])
def test_the_guesses_settle_near_the_best_K_for_the_acceptance(alpha, costs):
    rounds = written(*fixed_acceptance(alpha), costs, N=1000)
    k = np.mean([len(result.guesses) for result in rounds[len(rounds) // 2 :]])
    assert abs(k - best_K(alpha, costs.c, costs.pass_cost)) <= 1


def test_a_useless_draft_is_hardly_called_and_never_forgotten():
    draft, target = map(counted, fixed_acceptance(0.0))
    rounds = written(draft, target, RISING._replace(draft=0.2), N=1000)
    assert len(draft.calls) < 60
    asked = np.flatnonzero([len(result.guesses) for result in rounds])
    assert asked[-1] > 900 and np.diff(asked).max() < 200


def test_the_table_counts_the_guesses_that_were_tested_and_every_row():
    seen = History(Costs(0.1, [1.0, 1.1, 1.2]))
    seen.count(Round([0, 1], [0, 0], None, None), [7, 3])
    seen.count(Round([1], [0, 0], None, None), [2, 3, 5])
    kept, tested, rows = (seen.table - START).round(1)
    assert np.flatnonzero(kept).tolist() == [7]
    assert np.flatnonzero(tested).tolist() == [2, 3, 7]
    assert rows.tolist() == [0, 0, 1, 2, 0, 1, 0, 1]
    assert seen.tokens == pytest.approx(4, abs=0.05)
    assert seen.time == pytest.approx(1 + 2 * 0.1 + 1.2 + 3 * 0.1 + 1.2, abs=0.05)
    assert seen.estimates()[2] == seen.tokens / seen.time > 1
    seen.time = 99.0  # slower than plain decoding
    assert seen.estimates()[2] == 1


def test_a_greedy_draft_that_is_unsure_at_temperature_1_makes_no_guess_that_must_be_sure():
    flat = Logits(lambda ids, n_last=1: np.full((n_last, 3), 1 / 3))
    models = Models(flat, flat, dict(temperature=0.0), costs=Costs(0.05, [1.0, 1.7, 2.4]))
    assert build(models)([0], 9, np.random.default_rng(0)).guesses == []
