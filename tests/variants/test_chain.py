"""Variants with a chain of guesses: lookup, assisted, block, lenient, big_little, staged."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import expectation
from speculative import draft_and_verify, generate, make_step, verify
from tests.small import of_probabilities
from tests.toys import PAIRS, context_free, mapped, one_hot, toy
from variants import assisted
from variants.assisted import guess_while_confident
from variants.big_little import big_little_verify, write_while_confident
from variants.block import block_verify
from variants.lenient import lenient_greedy_verify
from variants.lookup import find_source, lookup_guess
from variants.staged import ngram

EXACT = 1e-12


# ---- lookup

ids_lists = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(ids_lists, st.integers(1, 4))
def test_the_source_is_the_latest_of_the_longest(x, max_ngram):
    sources = [(n, end) for n in range(1, max_ngram + 1) for end in range(n, len(x))
               if x[end - n : end] == x[len(x) - n :]]
    assert find_source(x, max_ngram) == (max(sources)[1] if sources else None)


@given(ids_lists, st.integers(0, 20))
def test_copies_continue_as_the_text_did(x, k):
    source = find_source(x, 3)
    if source is not None:
        text = x + lookup_guess(x, k, None, n_vocab=3)[0]
        assert all(text[len(x) + i] == text[source + i] for i in range(k))
        assert len(text) == len(x) + k


# ---- assisted

RIGHT = mapped(PAIRS["equal"][0], one_hot)
WRONG = mapped(PAIRS["equal"][0], lambda row: one_hot(-row))


def right_after_odd_lengths(ids, n_last):
    lengths = range(len(ids) - n_last + 1, len(ids) + 1)
    return np.array([(RIGHT if n % 2 else WRONG)(ids[:n])[-1] for n in lengths])


@pytest.mark.parametrize("target, sizes", [
    (RIGHT, [3, 5, 7, 9]), (WRONG, [3, 2, 1, 1]), (right_after_odd_lengths, [3, 2, 1, 3])])
def test_the_heuristic_adds_two_or_takes_one(target, sizes):
    step = assisted.build(of_probabilities(RIGHT, target), 3, "heuristic", 0.0)
    x = [0]
    for size in sizes:
        result = step(x, 99, np.random.default_rng(0))
        assert len(result.guesses) == size
        x += result.ids


def test_a_guess_below_the_confidence_is_the_last_and_stays_in_the_round():
    draft = PAIRS["four tokens"][0]
    for seed in range(50):
        rng = np.random.default_rng(seed)
        guesses, p_draft = guess_while_confident([0], 6, rng, draft, 0.4)
        *earlier, last = (row[token] for token, row in zip(guesses, p_draft))
        assert all(p >= 0.4 for p in earlier) and (len(guesses) == 6 or last < 0.4)


# ---- block

@pytest.mark.parametrize("test, mean", [(verify, 10 / 9), (block_verify, 11 / 9)])
def test_the_papers_example(test, mean):
    """Sun et al. (2024) Sec. 2: 10/9 guesses accepted one by one, 11/9 as a block."""
    draft, target = context_free([2 / 3, 1 / 3]), context_free([1 / 3, 2 / 3])
    step = draft_and_verify(draft, target, 2, test)
    found = expectation(partial(step, [0], 3), lambda result: result.n_accepted)
    assert found == pytest.approx(mean, abs=EXACT)


# ---- lenient

@pytest.mark.parametrize("lenience, n_accepted", [(1.0, 0), (0.51, 0), (0.5, 2), (0.1, 2)])
def test_greedy_lenience_compares_with_the_best(lenience, n_accepted):
    step = draft_and_verify(context_free([1.0, 0, 0]), context_free([0.3, 0.6, 0.1]), 2,
                            partial(lenient_greedy_verify, lenience=lenience))
    result = step([0], 3, np.random.default_rng(0))
    assert result.ids == [0] * n_accepted + [1]


# ---- big little decoder

@given(st.integers(0, 99), st.floats(0, 1), st.floats(0, 4))
@settings(max_examples=60)
def test_a_guess_is_accepted_if_and_only_if_both_models_find_it_probable_enough(
        seed, fallback, rollback):
    small, large = toy(5, seed), toy(5, seed + 500)
    x = [0]
    guess = partial(write_while_confident, small=small, fallback=fallback)
    step = make_step(large, 4, guess, partial(big_little_verify, rollback=rollback))
    for result in generate(x, step, 10, np.random.default_rng(0)):
        n_left = 11 - len(x)
        *accepted, last = result.ids
        for token in accepted:
            assert -np.log(large(x)[0][token]) <= rollback
            assert small(x)[0].max() == small(x)[0][token] >= fallback
            x += [token]
        if len(accepted) < len(result.guesses):
            rejected = result.guesses[len(accepted)]
            assert large(x)[0][rejected] < np.exp(-rollback)
        elif len(result.guesses) < min(4, n_left - 1):  # the small model did not guess again
            assert small(x)[0].max() < fallback
        assert last == large(x)[0].argmax()
        x += [last]


# ---- staged

@given(ids_lists, st.integers(1, 4))
def test_ngram_rows_add_the_counts_after_longer_and_longer_runs_of_their_prefixes(text, order):
    rows = ngram(3, order)(text, len(text))
    for end, got in enumerate(rows, start=1):
        x = text[:end]
        row = np.full(3, 1 / 3)
        for n in range(min(order, end)):
            run = x[end - n :]  # the last n tokens
            followers = [x[i] for i in range(n, end) if x[i - n : i] == run]
            row = (np.bincount(followers, minlength=3) + row) / (len(followers) + 1)
        assert np.allclose(got, row) and (row > 0).all()
