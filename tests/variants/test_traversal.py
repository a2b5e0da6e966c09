"""Traversal verification: at least as many tokens as tree.py's test, the same in two cases."""

from functools import partial

import pytest

from exact.law import expectation, law
from tests.distributions import assert_same_law
from tests.small import tree_step
from tests.toys import PAIRS, toy
from variants.traversal import verify_traversal
from variants.tree import verify_tree


def mean_tokens(step):
    """Return the mean number of tokens of a first round."""
    return expectation(partial(step, [0], 9), lambda result: len(result.ids))


@pytest.mark.parametrize("widths, siblings, n_toys", [
    ((1, 1), "distinct", 6), ((2, 1), "distinct", 6), ((1, 2), "distinct", 6),
    ((2, 2), "distinct", 2), ((2, 1), "independent", 2)])
def test_traversal_never_yields_fewer_tokens_than_the_walk_from_the_root(
        widths, siblings, n_toys):
    gains = []
    for seed in range(n_toys):
        draft, target = (toy(3, seed + more, zeros=0.2) for more in (0, 50))
        walk, traversal = (mean_tokens(tree_step(draft, target, widths, siblings, verify))
                           for verify in (verify_tree, verify_traversal))
        gains.append(traversal - walk)
    assert min(gains) > -1e-12 and max(gains) > 0.001


@pytest.mark.parametrize("pair, widths, siblings", [
    ("sparse", (2, 2), "top"), ("greedy target", (2, 2), "top"),
    ("four tokens", (3,), "distinct"), ("four tokens", (2,), "independent")])
def test_with_one_hot_rows_or_one_level_traversal_is_the_walk_from_the_root(
        pair, widths, siblings):
    steps = [tree_step(*PAIRS[pair], widths, siblings, verify)
             for verify in (verify_tree, verify_traversal)]
    assert_same_law(*(law(lambda rng, step=step: step([0], 9, rng).ids) for step in steps))
