"""Test exact/expected.py: each mean is that of all outcomes of its test."""

from fractions import Fraction
from functools import partial

import pytest

from exact import expected
from exact.expected import best_mean, chain_bound, chain_mean, match_tokens, mean_tokens, tree_mean
from exact.law import expectation, text_law
from exact.optimum import guesses_law
from exact.rules.register import BY_ID, tokens_per_round
from exact.rules.verifiers import q_is_one
from exact.toys import TOYS, X, best, markov
from speculative import guess, make_step, verify
from tests.distributions import round_law
from variants.block import block_verify
from variants.lenient import lenient_verify
from variants.match import match_verify
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
    draft, target = map(expected.along_paths, TOYS[toy])

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
    draft, target = map(expected.along_paths, TOYS[toy])
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
