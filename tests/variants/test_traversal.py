"""Traversal verification: exact, block verification on a chain, and never behind tree.py's test."""

from functools import partial

import numpy as np
import pytest

from exact.law import expectation, law
from speculative import draft_and_verify, generate
from tests.distributions import assert_same_law
from tests.small import tree_step
from tests.toys import PAIRS, toy
from variants.block import block_verify
from variants.traversal import verify_traversal
from variants.tree import verify_tree


def tokens(step):
    """Tokens of a first round with room for all."""
    return expectation(partial(step, [0], 9), lambda result: len(result.ids))


@pytest.mark.parametrize("pair", PAIRS)
def test_on_a_chain_it_is_block_verification_round_for_round(pair):
    draft, target = PAIRS[pair]
    for seed in range(20):
        steps = (draft_and_verify(draft, target, 3, block_verify),
                 tree_step(draft, target, (1, 1, 1), verify=verify_traversal))
        block, traversal = ([result.ids for result in generate([0], step, 12,
                                                             np.random.default_rng(seed))]
                            for step in steps)
        assert block == traversal


@pytest.mark.parametrize("widths, siblings, toys", [
    ((1, 1), "distinct", 6), ((2, 1), "distinct", 6), ((1, 2), "distinct", 6),
    ((2, 2), "distinct", 2), ((2, 1), "independent", 2)])
def test_it_never_gives_fewer_tokens_than_the_walk_from_the_root(widths, siblings, toys):
    gains = []
    for seed in range(toys):
        draft, target = toy(3, seed, zeros=0.2), toy(3, seed + 50, zeros=0.2)
        walk, traversal = (tokens(tree_step(draft, target, widths, siblings, verify))
                           for verify in (verify_tree, verify_traversal))
        gains.append(traversal - walk)
    assert min(gains) > -1e-12 and max(gains) > 0.001


@pytest.mark.parametrize("pair, widths, siblings", [
    ("sparse", (2, 2), "top"), ("greedy target", (2, 2), "top"), ("four tokens", (3,), "distinct"),
    ("four tokens", (2,), "independent")])
def test_with_one_hot_rows_or_one_level_it_is_the_walk_from_the_root(pair, widths, siblings):
    steps = [tree_step(*PAIRS[pair], widths, siblings, verify)
             for verify in (verify_tree, verify_traversal)]
    assert_same_law(*(law(lambda rng, step=step: step([0], 9, rng).ids) for step in steps))
