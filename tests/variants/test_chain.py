"""Variants with a chain of guesses: lookup, assisted, block, lenient, big_little, staged."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exact.law import expectation, law, text_law
from speculative import complete, draft_and_verify, generate, make_step, verify
from tests.distributions import distance
from tests.small import lenient_law, of_probabilities
from tests.toys import PAIRS, mapped, one_hot, toy
from variants import assisted
from variants.assisted import guess_while_sure
from variants.big_little import big_little_verify, write_while_sure
from variants.block import block_verify
from variants.lenient import lenient_greedy_verify, lenient_verify
from variants.lookup import find_source, lookup_guess
from variants.staged import ngram, staged_guess

EXACT = 1e-12


def inner(draft, target, K=2):
    """Staged: a third toy under the draft."""
    return draft_and_verify(toy(len(draft([0])[0]), 77, zeros=0), draft, K)


def lenient(draft, target, K, lenience, test=lenient_verify):
    return draft_and_verify(draft, target, K, partial(test, lenience=lenience))


def staged(inner, target, K):
    return make_step(target, K, partial(staged_guess, inner=inner))


# ---- lookup

ids_lists = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(ids_lists, st.integers(1, 4))
def test_the_source_is_the_latest_of_the_longest(x, max_ngram):
    places = [(n, end) for n in range(1, max_ngram + 1) for end in range(n, len(x))
              if x[end - n : end] == x[len(x) - n :]]
    assert find_source(x, max_ngram) == (max(places)[1] if places else None)


@given(ids_lists, st.integers(0, 20))
def test_copies_go_on_as_the_text_did(x, k):
    source = find_source(x, 3)
    if source is not None:
        text = x + lookup_guess(x, k, None, n_vocab=3)[0]
        assert all(text[len(x) + i] == text[source + i] for i in range(k))
        assert len(text) == len(x) + k


# ---- assisted

def test_the_heuristic_adds_two_or_takes_one():
    model = PAIRS["equal"][0]
    right, wrong = mapped(model, one_hot), mapped(model, lambda row: one_hot(-row))

    def alternate(ids, n_last):  # right after an odd number of tokens
        rows = wrong(ids, n_last), right(ids, n_last)
        return np.array([rows[(len(ids) - n_last + 1 + i) % 2][i] for i in range(n_last)])

    for target, sizes in ((right, [3, 5, 7, 9]), (wrong, [3, 2, 1, 1]), (alternate, [3, 2, 1, 3])):
        step, x = assisted.build(of_probabilities(right, target), 3, "heuristic", 0.0), [0]
        for size in sizes:
            result = step(x, 99, np.random.default_rng(0))
            assert len(result.guesses) == size
            x += result.ids


def test_an_unsure_guess_is_the_last_and_is_kept_in_the_round():
    draft = PAIRS["four tokens"][0]
    for seed in range(50):
        guesses, p_draft = guess_while_sure([0], 6, np.random.default_rng(seed), draft, 0.4)
        sure = [row[token] >= 0.4 for token, row in zip(guesses, p_draft)]
        assert all(sure[:-1]) and (len(guesses) == 6 or not sure[-1])


# ---- block

def flat(*rows):
    """Context-free models with these rows."""
    return [lambda ids, n_last=1, row=row: np.array([row] * n_last) for row in rows]


def kept_on_average(test, draft, target, K):
    step = draft_and_verify(draft, target, K, test)
    return expectation(lambda rng: step([0], K + 1, rng), lambda result: len(result.ids) - 1)


def test_the_papers_example():
    """Sun et al. (2024) Sec. 2: 10/9 guesses kept one by one, 11/9 as a block."""
    draft, target = flat([2 / 3, 1 / 3], [1 / 3, 2 / 3])
    assert kept_on_average(verify, draft, target, 2) == pytest.approx(10 / 9, abs=EXACT)
    assert kept_on_average(block_verify, draft, target, 2) == pytest.approx(11 / 9, abs=EXACT)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("K", [1, 2, 3])
def test_a_block_keeps_never_fewer_than_one_by_one(K, seed):
    draft, target = toy(3, seed), toy(3, 100 + seed)
    single, block = (kept_on_average(test, draft, target, K) for test in (verify, block_verify))
    assert block == pytest.approx(single, abs=EXACT) if K == 1 else block >= single - EXACT


# ---- lenient

weights = st.lists(st.integers(0, 20), min_size=4, max_size=4).filter(any).map(
    lambda w: np.array(w) / sum(w))


@given(weights, weights, st.floats(0.05, 1))
@settings(deadline=None, max_examples=40)
def test_lenience_has_its_law_and_keeps_its_bound(p_draft, p_target, lenience):
    draft, target = flat(p_draft, p_target)
    got = law(lambda rng: lenient(draft, target, 1, lenience)([0], 2, rng).ids[0])
    row = np.array([got.get(token, 0) for token in range(4)])
    assert (row <= p_target / lenience + EXACT).all()
    assert np.allclose(row, lenient_law(p_draft, p_target, lenience), atol=EXACT)


@pytest.mark.parametrize("lenience, kept", [(1.0, 0), (0.51, 0), (0.5, 2), (0.1, 2)])
def test_greedy_lenience_compares_with_the_best(lenience, kept):
    draft, target = flat([1.0, 0, 0], [0.3, 0.6, 0.1])
    step = lenient(draft, target, 2, lenience, lenient_greedy_verify)
    result = step([0], 3, np.random.default_rng(0))
    assert result.ids == [0] * kept + [1]


# ---- big little decoder

def big_little(small, large, run, fallback, rollback):
    return make_step(large, run, partial(write_while_sure, small=small, fallback=fallback),
                     partial(big_little_verify, rollback=rollback))


@given(st.integers(0, 99), st.floats(0, 1), st.floats(0, 4))
@settings(deadline=None, max_examples=60)
def test_what_survives_is_near_enough_and_was_sure_enough_and_nothing_else(
        seed, fallback, rollback):
    small, large, x = toy(5, seed), toy(5, seed + 500), [0]
    step = big_little(small, large, 4, fallback, rollback)
    for result in generate(x, step, 10, np.random.default_rng(0)):
        n_left = 11 - len(x)
        for token in result.ids[:-1]:
            assert -np.log(large(x)[0][token]) <= rollback
            assert small(x)[0].max() == small(x)[0][token] >= fallback
            x += [token]
        if len(result.ids) <= len(result.guesses):
            assert large(x)[0][result.guesses[len(result.ids) - 1]] < np.exp(-rollback)
        elif len(result.guesses) < min(4, n_left - 1):
            assert small(x)[0].max() < fallback
        assert result.ids[-1] == large(x)[0].argmax()
        x += [result.ids[-1]]


def test_later_ids_too_far_off_are_not_skipped():
    """The first id too far off happens to be the large model's best: what follows goes too."""
    rows = {1: [0.1, 0.4, 0.5], 2: [0.9, 0.05, 0.05], 3: [0.1, 0.1, 0.8]}  # of `large`, by length
    large = lambda ids, n_last: np.array([rows[len(ids) - i] for i in reversed(range(n_last))])
    small = lambda ids, n_last: np.array([[0.1, 0.1, 0.8]])
    result = big_little(small, large, 5, 0.6, 0.6)([0], 3, None)
    assert result.guesses == [2, 2] and result.ids == [2]


# ---- staged

@pytest.mark.parametrize("K", [1, 2])
def test_staged_guesses_have_the_middle_models_law_and_its_rows(K):
    draft, target = PAIRS["four tokens"]

    def guesses(rng):
        ids, rows = staged_guess([0], K + 1, rng, inner(draft, target))
        for t, row in enumerate(rows):
            assert (row == draft([0] + ids[:t])[0]).all()
        return ids

    reference = {ids[1:]: p for ids, p in text_law([0], draft, K + 1).items()}
    assert distance(law(guesses), reference) < EXACT


def test_three_stages_keep_the_law():
    draft, target = PAIRS["sparse"]
    middle = staged(inner(toy(3, 41), None, 1), draft, 1)
    got = law(lambda rng: complete([0], staged(middle, target, 2), 4, rng))
    assert distance(got, text_law([0], target, 4)) < EXACT


@given(ids_lists, st.integers(1, 4))
def test_ngram_rows_are_laws_that_agree_with_counting(text, order):
    row = np.full(3, 1 / 3)
    for n in range(min(order, len(text))):
        counts = np.zeros(3)
        for i in range(n, len(text)):
            counts[text[i]] += text[i - n : i] == text[len(text) - n :]
        row = (counts + row) / (counts.sum() + 1)
    assert np.allclose(ngram(3, order)(text)[0], row) and (row > 0).all()


def test_ngram_rows_follow_their_own_prefixes():
    x, model = [0, 1, 0, 1, 2], ngram(3, 3)
    assert np.array_equal(model(x, 3), [model(x[:n])[0] for n in (3, 4, 5)])
    assert model([0, 1, 0, 1, 0])[0].argmax() == 1
