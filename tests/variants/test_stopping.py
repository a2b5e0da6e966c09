"""Stopping: the best rule of all that can be listed, and idle where nothing pays."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import expectation
from exact.toys import PAIRS, counted, toy
from speculative import generate
from tests.small import Logits
from theory.speedup import best_K
from variants import Models
from variants.registry import Costs
from variants.stopping import (
    BUCKETS,
    START,
    History,
    bucket_of,
    build,
    guess_while_it_pays,
    stopping,
)

K_MAX = 8

EVEN = Costs(0.1, [1.0] * (K_MAX + 1))
RISING = Costs(0.1, [1 + 0.1 * K for K in range(K_MAX + 1)])
TWO = Costs(0.1, [1.0, 1.1, 1.2])  # at most two guesses
# ---- lossless

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


def test_a_row_that_is_too_unsure_is_read_and_nothing_is_drawn_from_it():
    costs = Costs(0.01, [1.0, 1.5, 2.0])
    a, shares = np.linspace(0, 1, BUCKETS), np.full(BUCKETS, 1 / BUCKETS)
    for bucket, n in ((0, 0), (BUCKETS - 1, 1)):
        asked, draft = [], lambda ids, n_last, bucket=bucket: row_of(bucket)[None]
        guesses, rows = guess_while_it_pays([0], 1, np.random.default_rng(0), draft,
                                            fixed(a, shares, 1.2, costs), asked)
        assert len(guesses) == len(rows) == n and asked == [bucket]


def test_a_second_guess_that_would_pay_for_the_first_needs_room():
    draft, target = map(counted, PAIRS["equal"])
    step = stopping(draft, target, Costs(0.01, [1.0, 3.0, 1.1]))
    assert len(step([0], 3, np.random.default_rng(0)).guesses) == 2
    step = stopping(draft, target, Costs(0.01, [1.0, 3.0, 1.1]))
    assert len(step([0], 2, np.random.default_rng(0)).guesses) == 0


# ---- as the text grows

def fixed_acceptance(alpha):
    """Draft and target of context-free rows that share the mass alpha."""
    p_target, p_draft = np.array([1.0, 0.0]), np.array([alpha, 1 - alpha])
    return [lambda ids, n_last, row=row: np.array([row] * n_last) for row in (p_draft, p_target)]


def written(draft, target, costs, N=600, step=None, x=(0,)):
    """The rounds of one text."""
    step = step or stopping(draft, target, costs)
    return list(generate(list(x), step, N, np.random.default_rng(0)))


def test_a_perfect_draft_gets_every_guess_there_is():
    target = toy(5, 43)
    draft, target = counted(target), counted(target)
    rounds = written(draft, target, EVEN)
    assert [len(round.ids) for round in rounds[20:-1]] == [K_MAX + 1] * (len(rounds) - 21)
    assert len(draft.calls) == sum(len(round.guesses) for round in rounds)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("costs", [EVEN, RISING])
def test_the_guesses_settle_near_the_best_K_for_the_acceptance(alpha, costs):
    rounds = written(*fixed_acceptance(alpha), costs, N=1000)
    k = np.mean([len(round.guesses) for round in rounds[len(rounds) // 2 :]])
    assert abs(k - best_K(alpha, costs.c, costs.pass_cost)) <= 1


def test_a_useless_draft_is_hardly_called_and_never_forgotten():
    draft, target = map(counted, fixed_acceptance(0.0))
    rounds = written(draft, target, RISING._replace(draft=0.2), N=1000)
    assert len(draft.calls) < 60
    asked = np.flatnonzero([len(round.guesses) for round in rounds])
    assert asked[-1] > 900 and np.diff(asked).max() < 200


def test_a_draft_that_becomes_good_is_noticed():
    useless, target = fixed_acceptance(0.0)
    draft = lambda ids, n_last: (useless if len(ids) < 300 else target)(ids, n_last)
    rounds = written(draft, target, RISING, N=1500)
    assert len(rounds[100].guesses) == 0 and len(rounds[-2].guesses) >= 4


def test_sure_rows_get_more_guesses_than_unsure_ones():
    """Every third token is a toss-up; a guess for it is not drawn, where rows are expensive."""
    def row(ids):
        return [0.5, 0.5, 0.0] if len(ids) % 3 == 0 else [0.0, 0.0, 1.0]

    def target(ids, n_last):
        return np.array([row(ids[: len(ids) - i]) for i in reversed(range(n_last))])

    draft = lambda ids, n_last: np.array([
        [0.4, 0.0, 0.6] if len(ids) % 3 == 0 else [0.0, 0.0, 1.0]])
    costs = Costs(0.01, [1 + 0.45 * k for k in range(K_MAX + 1)])
    step, x, at = stopping(draft, target, costs), [0], []
    for round in generate(x, step, 900, np.random.default_rng(0)):
        at += [(len(x) + t) % 3 == 0 for t in range(len(round.guesses))]
        x = x + round.ids
    assert sum(at[:30]) > 0 and len(at) > 300 and np.mean(at[len(at) // 2 :]) < 0.02


def test_the_table_counts_the_guesses_that_were_tested_and_every_row():
    seen = History(TWO)
    rows = np.array([[0.9, 0.1]] * 3)
    round = SimpleNamespace(ids=[0, 1], guesses=[0, 0], p_draft=rows[:2], n_accepted=1, n_tested=2)
    seen.count(round, [7, 3])
    round = SimpleNamespace(ids=[1], guesses=[0, 0], p_draft=rows[:2], n_accepted=0, n_tested=1)
    seen.count(round, [2, 3, 5])
    kept, tested, rows = (seen.table - START).round(1)
    assert np.flatnonzero(kept).tolist() == [7]
    assert np.flatnonzero(tested).tolist() == [2, 3, 7]
    assert rows.tolist() == [0, 0, 1, 2, 0, 1, 0, 1]
    assert seen.tokens == pytest.approx(4, abs=0.05)
    assert seen.time == pytest.approx(1 + 2 * 0.1 + 1.2 + 3 * 0.1 + 1.2, abs=0.05)
    assert seen.estimates()[2] == seen.tokens / seen.time > 1
    seen.time = 99.0  # slower than plain decoding
    assert seen.estimates()[2] == 1
    assert START.sum(axis=1) == pytest.approx([1.5 * BUCKETS, 2 * BUCKETS, 1])


def test_another_text_begins_at_plain_speed_with_the_table_of_the_last():
    draft, target = fixed_acceptance(0.0)
    step, new = stopping(draft, target, RISING), stopping(draft, target, RISING)
    written(draft, target, RISING, 80, step)
    used, fresh = (written(draft, target, RISING, 60, s, (1, 2)) for s in (step, new))
    assert sum(len(round.guesses) for round in used) < len(fresh[0].guesses)
    seen = History(EVEN)
    for x, speed in (([1], 1), ([1, 2, 3], 3), ([1, 2, 3, 4], 3), ([1, 2, 4], 1)):
        seen.start_text(x)
        assert seen.estimates()[2] == (1 if x == [1] else speed)
        seen.tokens = 3.0


def test_two_steps_share_nothing():
    before = START.copy()
    draft, target = fixed_acceptance(0.0)
    alone = [round.guesses for round in written(draft, target, RISING)]
    assert [round.guesses for round in written(draft, target, RISING)] == alone
    assert (START == before).all()


# ---- confidence, costs, the entry

def test_the_bucket_is_of_the_largest_probability():
    rows = [np.array([p, 1 - p, 0.0]) for p in (0.5, 0.7, 0.99, 1.0)]
    assert [bucket_of(row) for row in rows] == [4, 5, 7, 7]
    assert bucket_of(np.full(100, 0.01)) == 0


def test_greedy_confidence_is_read_at_temperature_1_and_the_best_token_guessed():
    draft, target = toy(3, 41, zeros=0), toy(3, 42, zeros=0)
    models = Models(Logits(draft), Logits(target), dict(temperature=0.0),
                    costs=Costs(0.01, [1.0, 1.0, 1.0]))
    rows, step = [], build(models)
    round = step([0], 9, np.random.default_rng(0))
    for t, token in enumerate(round.guesses):
        rows.append(draft([0, *round.guesses[:t]])[-1])
        assert token == rows[-1].argmax() and (round.p_draft[t] == np.eye(3)[token]).all()
    assert len(rows) == 2


def test_a_greedy_draft_that_is_unsure_at_temperature_1_makes_no_guess_that_must_be_sure():
    flat = Logits(lambda ids, n_last=1: np.full((n_last, 3), 1 / 3))
    models = Models(flat, flat, dict(temperature=0.0), costs=Costs(0.05, [1.0, 1.7, 2.4]))
    assert build(models)([0], 9, np.random.default_rng(0)).guesses == []


def test_measured_costs_lead_to_guesses_that_are_worth_more():
    """On average over every outcome, from the start of a text, with a draft that is the target."""
    draft = target = PAIRS["equal"][0]
    tokens = [expectation(partial(stopping(draft, target, costs), [0], 4),
                          lambda round: len(round.ids))
              for costs in (Costs(0.1, [1.0, 9.0, 9.0]), TWO)]
    assert tokens == pytest.approx([1, 3])
