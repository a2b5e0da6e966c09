"""Test exact/optimum.py: the optimum is the linear programme's, and no test exceeds it."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from exact.law import completed, expectation, text_law
from exact.optimum import best_accepted, guesses_law
from exact.rules import verifiers
from exact.toys import TOYS, X
from speculative import draft_and_verify, verify
from tests.toys import PAIRS, toy
from variants.block import block_verify

FIRST_ROWS = {name: [np.asarray(model(X)[-1], float) for model in pair]
              for name, pair in {**TOYS, **PAIRS}.items()}


def best_by_transport(guesses, p_target):
    """Return the optimum by a linear programme: the most mass that moves to a token guessed.

    Column i is the mass that moves from a set of guesses to one of its tokens. What leaves a set
    is at most its probability, and what reaches a token at most the target's.
    """
    linprog = pytest.importorskip("scipy.optimize").linprog
    moves = [(i, token) for i, tokens in enumerate(guesses) for token in {*tokens}]
    limits = np.zeros((len(guesses) + len(p_target), len(moves)))
    for column, (i, token) in enumerate(moves):
        limits[[i, len(guesses) + token], column] = 1
    return -linprog(-np.ones(len(moves)), limits, np.array([*guesses.values(), *p_target])).fun


@pytest.mark.parametrize("n, siblings", [(1, "independent"), (2, "independent"),
                                         (3, "independent"), (2, "distinct")])
@pytest.mark.parametrize("name", FIRST_ROWS)
def test_the_optimum_is_that_of_the_linear_programme(name, n, siblings):
    p_draft, p_target = FIRST_ROWS[name]
    guesses = guesses_law(p_draft, n, siblings)
    best = best_accepted(guesses, p_target)
    assert best_by_transport(guesses, p_target) == pytest.approx(best, abs=1e-9)


# ---- one chain

def best_chain(draft, target, K):
    """Return the most tokens per round of any exact rule for one chain of K drawn guesses.

    A move is (chain, accepted guesses, the token after them); the target completes it to a text
    of K + 1 tokens, as in every decoder here. A linear programme finds the moves' probabilities:
    every chain must occur as often as the draft draws it, and every text as often as the target
    writes it.
    """
    linprog = pytest.importorskip("scipy.optimize").linprog
    chains, texts = text_law(X, draft, K), text_law(X, target, K + 1)
    row_of = {ids: row for row, ids in enumerate([*chains, *texts])}  # no chain equals a text
    n_vocab = len(target([*X], 1)[-1])
    columns = []
    n_tokens = []
    for chain, n_accepted, token in product(chains, range(K + 1), range(n_vocab)):
        ids = (*chain[len(X) :][:n_accepted], token)
        completions = completed({ids: 1}, X, target, K + 1)
        if completions.keys() <= texts.keys():  # the target can write what the move writes
            column = np.zeros(len(row_of))
            column[row_of[chain]] = 1
            column[[row_of[text] for text in completions]] = [*completions.values()]
            columns.append(column)
            n_tokens.append(len(ids))
    needed = [float(p) for p in (*chains.values(), *texts.values())]
    return -linprog(-np.array(n_tokens), A_eq=np.transpose(columns), b_eq=needed).fun


def tokens_of_round(test, draft, target, K):
    """Return the mean tokens of a first round with this test."""
    step = draft_and_verify(draft, target, K, test)
    return expectation(lambda rng: step([*X], K + 1, rng), lambda result: len(result.ids))


@pytest.mark.parametrize("pair, K", [
    *((pair, K) for pair in TOYS.values() for K in (1, 2, 3)),
    *(((toy(3, 2 * seed), toy(3, 2 * seed + 1)), 2) for seed in range(3))])
def test_block_verification_is_the_optimum_of_one_chain(pair, K):
    """A rule that is not exact writes more: block with an uncapped last ratio."""
    uncapped_block = partial(verifiers.traversal, shares=verifiers.last_uncapped)
    block, ratio, uncapped = (float(tokens_of_round(test, *pair, K))
                              for test in (block_verify, verify, uncapped_block))
    # the tolerance is about the solver's own
    assert block == pytest.approx(best_chain(*pair, K), abs=1e-7)
    assert ratio <= block + 1e-12 and block <= uncapped + 1e-12
