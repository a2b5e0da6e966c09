"""Test exact/expected.py and benchmarks/rules.py: each mean is that of all outcomes of its test."""

from collections import defaultdict
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import rules
from exact import expected
from exact.expected import best_mean, chain_bound, chain_mean, match_tokens, mean_tokens, tree_mean
from exact.law import expectation, text_law
from exact.optimum import guesses_law
from exact.rules.register import BY_ID, tokens_per_round
from exact.rules.verifiers import q_is_one
from exact.toys import TOYS, X, best, markov
from speculative import guess, make_step, verify
from tests.distributions import round_law
from tests.pages import file_text, output
from tests.toys import path_by_path
from variants.block import block_verify
from variants.lenient import lenient_verify
from variants.match import match_verify
from variants.multipath import guess_paths, verify_best_path
from variants.shared.best_tree import uniform_shape
from variants.traversal import verify_traversal
from variants.tree import guess_shape, verify_tree

RATIO, BLOCK = (partial(mean_tokens, test) for test in (verify, block_verify))
LENIENT = partial(lenient_verify, lenience=0.5)
TESTS = [(partial(mean_tokens, test), test, guess) for test in (verify, block_verify, LENIENT)]
TESTS += [(match_tokens, match_verify, guess), (match_tokens, match_verify, best),
          (match_tokens, q_is_one, best), (match_tokens, q_is_one, guess)]


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("tokens, test, make_guesses", TESTS)
def test_the_tokens_of_a_chain_are_the_mean_of_its_test(tokens, test, make_guesses, toy):
    def difference(guesses, p_draft, p_target):
        enumerated = expectation(lambda rng: test(guesses, p_draft, p_target, rng), len)
        return abs(tokens(guesses, p_draft, p_target) - enumerated)

    for K in (1, 2):
        assert chain_mean(make_guesses, difference, toy, K) < 1e-14


@pytest.mark.parametrize("siblings", ["distinct", "independent", "top"])
@pytest.mark.parametrize("test", [verify_tree, verify_traversal])
@pytest.mark.parametrize("toy", TOYS)
def test_the_tokens_of_a_tree_are_the_mean_of_its_test(toy, test, siblings):
    draft, target = map(path_by_path, TOYS[toy])

    def make_tree(rng):
        return guess_shape(list(X), 2, rng, draft, uniform_shape((2, 1)), siblings)[0]

    def difference(tree):
        p_target = target(list(X) + tree, 1 + len(tree))
        enumerated = expectation(partial(test, tree, None, p_target), len)
        return abs(mean_tokens(test, tree, None, p_target) - enumerated)

    assert expectation(make_tree, difference) < 1e-14


@pytest.mark.parametrize("toy", TOYS)
def test_the_ladders_means_are_those_of_whole_rounds(toy):
    """Compare means level by level with those of trees, and of docs/proof.md's closed form."""
    draft, target = map(path_by_path, TOYS[toy])
    make_tree = partial(guess_shape, draft=draft, shape=uniform_shape((2, 1)))
    step = make_step(target, 2, make_tree, verify_tree)
    assert tree_mean((2, 1), toy) == expectation(lambda rng: step([*X], 3, rng).ids, len)
    ratio = sum(len(ids) * p for ids, p in round_law(list(X), 3, *TOYS[toy]).items())
    assert chain_mean(guess, RATIO, toy, 3) == ratio == tree_mean((1, 1, 1), toy)
    assert ratio == tokens_per_round(BY_ID["ratio"], toy, 3)
    assert best_mean((1, 1, 1), toy) == ratio  # for one guess no test is better


def test_the_best_test_of_siblings_prefers_the_tokens_with_more_below_them(monkeypatch):
    """Tokens 2 and 3 are in 11/45 of the pairs of guesses each, and together in 7/15 of them.

    The target has .4 of each, more than can be accepted. Below token 2 a guess is always accepted,
    below token 3 never, so token 2 gets all pairs that it is in, and token 3 the rest.
    """
    draft = markov(["4411", "4411", "1144", "5500"])
    target = markov(["1144", "4411", "1144", "0055"])
    monkeypatch.setitem(TOYS, "four tokens", (draft, target))
    pairs = guesses_law(draft([0])[0], 2)
    assert sum(p for pair, p in pairs.items() if 2 in pair) == Fraction(11, 45)
    assert sum(p for pair, p in pairs.items() if {2, 3} & {*pair}) == Fraction(7, 15)
    tokens_0_and_1 = Fraction(1, 10) * Fraction(14, 10) + Fraction(1, 10) * 2
    tokens_2_and_3 = Fraction(11, 45) * 2 + (Fraction(7, 15) - Fraction(11, 45))
    assert best_mean((2, 1), "four tokens") == 1 + tokens_0_and_1 + tokens_2_and_3


@pytest.mark.parametrize("toy", TOYS)
def test_the_bound_of_a_chain_is_1_TV_of_its_texts_and_nothing_exceeds_it(toy):
    laws = [[text_law(X, model, n) for model in TOYS[toy]] for n in (1, 2, 3)]
    bound = 1 + sum(min(p.get(ids, 0), d[ids]) for d, p in laws for ids in d)
    assert chain_mean(guess, chain_bound, toy, 3) == bound
    ratio = chain_mean(guess, RATIO, toy, 3)
    block = chain_mean(guess, BLOCK, toy, 3)
    assert ratio <= block <= bound
    assert tree_mean((2, 2, 2), toy) <= best_mean((2, 2, 2), toy) <= 4


# ---- benchmarks/rules.py: recorded rounds

@pytest.mark.parametrize("toy", TOYS)
def test_the_mean_over_recorded_rounds_is_that_of_each_test(toy, monkeypatch):
    monkeypatch.setattr(rules, "K", 2)
    monkeypatch.setattr(rules, "RECORDED_WIDTHS", (2, 1))
    draft, target = map(path_by_path, TOYS[toy])
    means = {"ratio": chain_mean(guess, RATIO, toy, 2),
             "block": chain_mean(guess, BLOCK, toy, 2),
             "match or one-hot, best guesses": chain_mean(best, match_tokens, toy, 2),
             "siblings 2,1,1,1, multi-step": tree_mean((2, 1), toy)}
    record = partial(rules.record, list(X), draft, target)
    for name, mean in means.items():
        recorded_mean = expectation(record, lambda place, name=name: rules.tests(place)[name])
        assert float(recorded_mean) == pytest.approx(float(mean))


@pytest.mark.parametrize("toy", TOYS)
def test_the_mean_over_two_recorded_paths_is_that_of_the_best_one(toy, monkeypatch):
    monkeypatch.setattr(rules, "K", 1)
    draft, target = map(path_by_path, TOYS[toy])
    x = list(X)

    def doubled(rng):
        one_guess, _ = guess_shape(x, 1, rng, draft, uniform_shape((1,)))
        place = rules.Place(one_guess, target(x + one_guess, 2), best=[], p_best=np.empty(0))
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
    draft, target = map(path_by_path, TOYS["A"])
    encoder = SimpleNamespace(encode=lambda prompt: [0])
    places = list(rules.places(draft, target, encoder, n_rounds=60))
    for each, (text, _) in zip(rounds, places, strict=True):
        each.text = text
    return rounds


def test_a_round_starts_after_what_the_test_of_the_chain_added_or_begins_the_next_text(rounds):
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


def test_the_page_quotes_what_the_command_prints():
    quoted = output(file_text("benchmarks/RESULTS.md"), "-m exact.expected")
    assert expected.ladder_table() == quoted
