"""Test benchmarks/rules.py: a recorded round gives each test its mean."""

from collections import defaultdict
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import rules
from exact.expected import along_paths, chain_mean
from exact.law import expectation
from exact.toys import TOYS, X
from speculative import guess, make_step, verify
from tests.test_expected import BLOCK, RATIO
from variants.multipath import guess_paths, verify_best_path
from variants.shared.best_tree import uniform_shape
from variants.traversal import verify_traversal
from variants.tree import guess_shape


@pytest.mark.parametrize("toy", TOYS)
def test_the_mean_over_recorded_rounds_is_that_of_each_test(toy, monkeypatch):
    monkeypatch.setattr(rules, "K", 2)
    monkeypatch.setattr(rules, "RECORDED_WIDTHS", (2, 1))
    draft, target = map(along_paths, TOYS[toy])
    siblings = partial(guess_shape, draft=draft, shape=uniform_shape((2, 1)))
    step = make_step(target, 2, siblings, verify_traversal)
    means = {"ratio": chain_mean(guess, RATIO, toy, 2),
             "block": chain_mean(guess, BLOCK, toy, 2),
             "siblings 2,1,1,1, traversal": expectation(lambda rng: step([*X], 3, rng).ids, len)}
    record = partial(rules.record, list(X), draft, target)
    for name, mean in means.items():
        recorded_mean = expectation(record, lambda place, name=name: rules.tests(place)[name])
        assert float(recorded_mean) == pytest.approx(float(mean))


@pytest.mark.parametrize("toy", TOYS)
def test_the_mean_over_two_recorded_paths_is_that_of_the_best_one(toy, monkeypatch):
    monkeypatch.setattr(rules, "K", 1)
    draft, target = map(along_paths, TOYS[toy])
    x = list(X)

    def doubled(rng):
        one_guess, _ = guess_shape(x, 1, rng, draft, uniform_shape((1,)))
        place = rules.Place(one_guess, target(x + one_guess, 2))
        return rules.tests_of_doubled(x, place, draft, target, rng)

    paths = partial(guess_paths, draft=draft, paths=2)
    step = make_step(target, 1, paths, verify_best_path)
    # `rules` names its tests for K = 4
    means = {"block, 8 guesses": chain_mean(guess, BLOCK, toy, 2),
             "multipath, 2 paths of 4": expectation(lambda rng: step(x, 2, rng).ids, len)}
    for name, mean in means.items():
        recorded_mean = expectation(doubled, lambda tokens, name=name: tokens[name])
        assert float(recorded_mean) == pytest.approx(float(mean))


@pytest.fixture
def rounds(monkeypatch):
    """Return 60 recorded rounds of toy A, with what the ratio rule got and returned.

    A text is the token 0 and ten new tokens.
    """
    rounds = []

    def watched_record(x, *others, record=rules.record):
        rounds.append(SimpleNamespace(x=x, place=record(x, *others)))
        return rounds[-1].place

    def watched_verify(guesses, p_draft, p_target, rng):
        rounds[-1].chain = guesses, p_draft, p_target
        rounds[-1].ids = verify(guesses, p_draft, p_target, rng)
        return rounds[-1].ids

    monkeypatch.setattr(rules, "record", watched_record)
    monkeypatch.setattr(rules, "verify", watched_verify)
    monkeypatch.setattr(rules, "LENGTH", 10)
    draft, target = map(along_paths, TOYS["A"])
    encoder = SimpleNamespace(encode=lambda prompt: [0])
    recorded = list(rules.recorded_rounds(draft, target, encoder, n_rounds=60))
    for each, (text, _) in zip(rounds, recorded, strict=True):
        each.text = text
    return rounds


def test_a_round_of_the_ratio_rule_has_its_places_chain_and_starts_after_the_round_before(rounds):
    """Or it begins the next text."""
    for this, after in pairwise(rounds):
        assert all(map(np.array_equal, this.chain, this.place.chain()))
        x = this.x + this.ids
        is_complete = len(x) >= 11
        assert after.x == ([0] if is_complete else x)
        assert after.text == this.text + is_complete
    assert len(rounds) == 60 and rounds[-1].text > 10


def test_each_text_has_its_own_random_numbers(rounds):
    """All texts have the same prompt and different guesses. Seeds are fixed: no false alarm."""
    guesses = defaultdict(list)
    for each in rounds:
        guesses[each.text] += each.place.tree.tokens
    beginnings = [tuple(tokens[:15]) for tokens in guesses.values() if len(tokens) >= 15]
    assert len(set(beginnings)) == len(beginnings) > 5
