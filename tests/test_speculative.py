"""Theorem 1 (docs/proof.md): the joint distribution of the text is the target's.

It is enumerated, on Fractions and in floats; real draws are counted.
"""

import math
from collections import Counter, defaultdict
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import speculative
from exact.law import completed, composed_law, law, text_law
from gpt2 import GPT2
from sampling import with_sampling
from speculative import (
    autoregressive_sampling,
    complete,
    draft_and_verify,
    generate,
    guess,
    make_step,
    speculative_sampling,
    verify,
)
from tests import bundled
from tests.distributions import HIGHEST, LOWEST, Scripted, assert_same_law, round_law, surprise
from tests.toys import PAIRS, context_free, counted, remembered, toy

DRAFT, TARGET = PAIRS["dense"]


@pytest.mark.parametrize("pair, K, N", [
    *((pair, 2, 4) for pair in PAIRS if pair != "four tokens"),  # which takes long
    ("four tokens", 1, 3), ("sparse", 3, 5)])
def test_speculative_sampling_has_the_targets_joint_distribution(pair, K, N):
    """Text and target passes have, together, the distribution of docs/proof.md."""
    draft, target = PAIRS[pair]

    def text_and_passes(rng):
        model = counted(target)
        text = speculative_sampling([0], draft, model, N, K, rng)
        return tuple(text), len(model.calls)

    def one_round(x, n_rounds, n_left):
        ids_law = round_law(list(x), min(K, n_left - 1), draft, target)
        return {(ids, n_rounds + 1): p for ids, p in ids_law.items()}

    got = law(text_and_passes)
    assert_same_law(got, composed_law([0], one_round, N, memory=0))
    texts = defaultdict(float)
    for (text, _), p in got.items():
        texts[text] += p
    assert_same_law(texts, text_law([0], target, N))


def assert_lossless(draft, target, N, K, x=(0,), tolerance=1e-12):
    """Refuse texts of speculative sampling that are not distributed as the target's own."""
    got = law(lambda rng: speculative_sampling(x, draft, target, N, K, rng))
    assert_same_law(got, text_law(x, target, N), tolerance)


@pytest.mark.parametrize("K", [1, 2, 5])
@pytest.mark.parametrize("N", range(4))
def test_a_round_cut_by_N_keeps_the_distribution(K, N):
    assert_lossless(*PAIRS["sparse"], N, K, x=[1])


@pytest.mark.parametrize("pair", PAIRS)
def test_autoregressive_sampling_has_the_models_joint_distribution(pair):
    _, target = PAIRS[pair]
    got = law(lambda rng: autoregressive_sampling([0, 1], target, 4, rng))
    assert_same_law(got, text_law([0, 1], target, 4))


ON_FRACTIONS = toy(4, 23, exact=True), toy(4, 24, exact=True)


@pytest.mark.parametrize("pair, k, tolerance", [
    *((pair, 2, 1e-12) for pair in PAIRS.values()), *((ON_FRACTIONS, k, 0) for k in range(4))])
def test_verify_is_lossless(pair, k, tolerance):
    """A round has the proof's product; tokens of the target complete it to the distribution."""
    draft, target = pair
    x = [0]
    step = draft_and_verify(draft, target, K=9)
    got = law(lambda rng: step(x, k + 1, rng).ids)
    assert_same_law(got, round_law(x, k, draft, target), tolerance)
    assert_same_law(completed(got, x, target, k + 1), text_law(x, target, k + 1), tolerance)


@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 99))
def test_an_equal_draft_needs_the_fewest_target_passes(N, K, seed):
    x = [0]
    draft, target = (counted(TARGET) for _ in range(2))
    text = speculative_sampling(x, draft, target, N, K, np.random.default_rng(seed))
    assert len(target.calls) == math.ceil(N / (K + 1))
    assert x == [0] and len(text) == 1 + N
    assert draft.calls == [1] * (N - len(target.calls))  # one row per guess, and no other call


def test_plain_decoding_computes_one_row_per_token():
    target = counted(TARGET)
    text = autoregressive_sampling((0,), target, 5, np.random.default_rng(0))  # any sequence
    assert target.calls == [1] * 5 and len(text) == 6


@pytest.mark.parametrize("returned, k, stop, ids, n_accepted, n_tested", [
    ([1, 2, 3, 9], 3, (), [1, 2, 3, 9], 3, 3),
    ([1, 2, 5], 3, (), [1, 2, 5], 2, 3),
    ([4], 2, (), [4], 0, 1),
    ([5], 0, (), [5], 0, 0),
    ([1], 3, (), [1], 0, 1),  # the replacement equals the guess that was rejected
    ([1, 2, 3, 9], 3, (2,), [1, 2], 2, 2), ([1, 2, 5], 3, (1, 2), [1], 1, 1),
    ([1, 2, 5], 3, (5,), [1, 2, 5], 2, 3), ([1, 2, 3, 9], 3, (3,), [1, 2, 3], 3, 3)], ids=str)
def test_what_a_test_accepted_is_counted_whatever_the_tokens_are(returned, k, stop, ids,
                                                                 n_accepted, n_tested):
    """A test returns the accepted guesses and one token; no guess after a stop token counts."""
    def first_of_1_2_3(x, _, rng):
        return [1, 2, 3][:k], [None] * k

    step = make_step(context_free([1.0]), 3, first_of_1_2_3, lambda *_: returned)
    result = next(generate([0], step, 4, np.random.default_rng(0), stop))
    assert (result.ids, result.n_accepted, result.n_tested) == (ids, n_accepted, n_tested)


@pytest.mark.parametrize("sampling", [
    partial(speculative_sampling, draft=DRAFT, target=TARGET, K=2),
    partial(autoregressive_sampling, model=TARGET)])
def test_a_prompt_or_stop_that_can_be_read_once_only_is_not_lost(sampling):
    rng = partial(np.random.default_rng, 0)
    text = sampling([0, 1], N=6, rng=rng())
    assert sampling(iter([0, 1]), N=6, rng=rng()) == text and text[:2] == [0, 1]
    stop = text[3]
    cut = text[: text.index(stop, 2) + 1]
    assert sampling([0, 1], N=6, rng=rng(), stop={stop}) == cut
    assert sampling([0, 1], N=6, rng=rng(), stop=iter([stop])) == cut
    assert sampling(np.array([0, 1]), N=np.int64(6), rng=rng(), stop=np.array([stop])) == cut


# ---- numbers at the edge

EDGE_ROWS = [([0, 1, 0], [1, 0, 0]), ([0, 0, 1], [0, 1, 0]), ([0, 1, 0], [0, 1, 0]),
             ([0, 0.5, 0.5], [0, 0.25, 0.75]), ([0.5, 0.5, 0], [0.1, 0.9, 0]),
             ([0, 0.7, 0.3], [0, 0.3, 0.7]), ([0.3, 0.7], [0.3, 0.7])]


@pytest.mark.parametrize("rows", EDGE_ROWS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("uniforms", [*product((LOWEST, HIGHEST), repeat=2)], ids=str)
def test_the_outermost_uniforms_give_only_tokens_of_the_target(rows, dtype, uniforms):
    """And accept a guess whose two probabilities are equal."""
    p_draft, p_target = np.array(rows, dtype)
    for guessed in np.flatnonzero(p_draft).tolist():
        ids = verify([guessed], [p_draft], [p_target] * 2, Scripted(uniforms))
        assert all(p_target[token] > 0 for token in ids)
        if p_draft[guessed] == p_target[guessed]:
            assert len(ids) == 2 and ids[0] == guessed


def test_float32_rows_that_do_not_sum_to_1_keep_the_distribution_to_their_precision():
    p_draft, p_target = np.float32([DRAFT([0])[0], TARGET([0])[0]])
    assert_lossless(context_free(np.float32(0.9999) * p_draft),
                    context_free(np.float32(1.0001) * p_target), 2, 2, tolerance=1e-3)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("side", ["draft", "target"])
def test_a_row_of_nan_is_never_a_token(side, row):
    p_draft = np.full((2, 3), 1 / 3)
    p_target = np.full((3, 3), 1 / 3)
    rows = p_draft if side == "draft" else p_target
    rows[row] = np.nan
    with pytest.raises(ValueError, match="a row with sum nan"):
        verify([0, 1], p_draft, p_target, Scripted([LOWEST] * 3))


# ---- bad input

class Tensor:
    """Be an array of a different library: neither NumPy's nor a sequence."""


def with_batch_axis(ids, n_last):
    """Return rows of the shape that transformers returns, [1, n_last, n_vocab]."""
    return TARGET(ids, n_last)[None]


LOGITS = context_free([1.0, 2.0, 3.0])  # a common mistake: logits instead of probabilities
EVEN = [0.5, 0.5]
GOOD = {
    speculative_sampling: dict(x=[0], draft=DRAFT, target=TARGET, N=3, K=2),
    autoregressive_sampling: dict(x=[0], model=TARGET, N=3),
    verify: dict(guesses=[0], p_draft=[EVEN], p_target=[EVEN, EVEN])}
BAD = [(speculative_sampling, changed, message) for changed, message in [
    (dict(x=[]), "at least one token"), (dict(x=5), "x to be .*, got 5"),
    (dict(x=[1.5]), "whole numbers, got"), (dict(rng=5), "Generator, got 5"),
    (dict(N=-1), "N >= 0"), (dict(N=2.5), "a whole number N >= 0 of new tokens, got 2.5"),
    (dict(N="5"), "N >= 0 .*, got '5'"), (dict(N=True), "N >= 0 .*, got True"),
    (dict(stop=5), "stop to be a sequence of token ids.*, got 5"),
    (dict(stop={"2"}), "stop to be .*, got {'2'}"),
    (dict(K=0), "K >= 1"), (dict(K=True), "K >= 1 of guesses per round, got True"),
    (dict(K=2.0), "K >= 1 of guesses per round, got 2.0"),
    (dict(draft=toy(3, 0), target=toy(4, 0)), "sizes 3 and 4")]]
BAD += [(autoregressive_sampling, dict(model=model), message) for model, message in [
    (LOGITS, "with_sampling .* sum 6.0"), (with_batch_axis, r"a row of shape \(1, 3\)"),
    (lambda *_: np.ones(3) / 3, r"a row of shape \(\) instead of \[n_vocab\]"),
    (lambda *_: [Tensor()], r"NumPy arrays, got Tensor \(a tensor's .numpy\(\)")]]
BAD += [(verify, changed, message) for changed, message in [
    (dict(guesses=[-1]), "got -1 for guess 0"), (dict(guesses=[2]), "got 2 for guess 0"),
    (dict(guesses=[False]), "got False for guess 0"),
    (dict(guesses=[0.0]), "got 0.0 for guess 0"),
    (dict(guesses=np.array([0])), "a list of guesses"),
    (dict(p_target=[EVEN, [0.502, 0.5]]), "sum 1.002"),
    (dict(p_draft=[[2.0, 1.0]]), "sum 3.0"),
    (dict(p_draft=[EVEN] * 2), "k rows"),
    (dict(p_target=[EVEN]), "k rows .* k = 1 guesses, got 1 and 1"),
    (dict(guesses=[0, 0], p_draft=[EVEN] * 2, p_target=[EVEN, [1.0], [1.0]]), "sizes 2 and 1"),
    (dict(p_draft=[[0.0, 1.0]]), "the distribution of guess t")]]


@pytest.mark.parametrize("function, changed, message", BAD)
def test_bad_input_is_refused_by_name(function, changed, message):
    arguments = {"rng": np.random.default_rng(0)} | GOOD[function] | changed
    with pytest.raises(ValueError, match=message):
        function(**arguments)


@pytest.mark.parametrize("n_ids", [10, 0])
def test_a_step_with_more_tokens_than_are_wanted_or_none_is_refused(n_ids):
    too_many_guesses = lambda x, k, rng: guess(x, 9, rng, DRAFT)
    step = make_step(TARGET, 2, too_many_guesses, lambda *_: [0] * n_ids)
    message = f"appends 1 to n_left = 3 tokens .*at most.*, got {n_ids}"
    with pytest.raises(ValueError, match=message):
        complete([0], step, 3, np.random.default_rng(0))


# ---- one guess, for any two rows

tiny = st.floats(1e-300, 1) | st.sampled_from([0.0, 1.0, 1e-9, 0.5, np.nextafter(0.5, 1)])


@given(st.lists(st.tuples(tiny, tiny), min_size=3, max_size=6))
def test_in_floats_the_distribution_of_one_token_is_the_targets_too(weights):
    rows = np.array(weights).T
    assume(rows.any(axis=1).all())
    p_draft, p_target = rows / rows.sum(axis=1, keepdims=True)
    step = draft_and_verify(context_free(p_draft), context_free(p_target), 1)
    got = law(lambda rng: step([0], 2, rng).ids[0])
    assert_same_law(got, dict(enumerate(p_target)))


# ---- real draws

def fits(draws, expected, false_alarm=1e-12):
    """Return whether draws can be from a distribution.

    The answer is wrong for draws from the distribution with a probability of at most
    `false_alarm`.
    """
    counts = Counter(draws)
    n = len(draws)
    # Each outcome has its part of the false alarm.
    limit = math.log(2 * len(expected) / false_alarm)
    return all(surprise(n, counts[cell] / n, expected.get(cell, 0)) <= limit
               for cell in counts.keys() | expected.keys())


def test_real_draws_of_three_tokens_have_the_targets_joint_distribution(monkeypatch):
    draft, target = map(remembered, PAIRS["dense"])

    def texts():
        rng = np.random.default_rng(1)
        return [tuple(speculative_sampling([0], draft, target, 3, 2, rng)) for _ in range(4000)]

    right = text_law([0], target, 3)
    assert fits(texts(), right)
    monkeypatch.setattr(speculative, "residual", lambda p_target, p_draft: p_target)
    assert not fits(texts(), right)


# ---- GPT-2

@pytest.fixture(scope="module")
def pair():
    """Return draft and target as functions that give logits, in float64."""
    return [remembered(GPT2(*bundled.weights(size))) for size in ("tales-small", "tales-large")]


TOP_3 = dict(top_k=3)
ALL_SETTINGS = dict(top_k=4, top_p=0.8, temperature=0.7, repetition_penalty=1.3)


@pytest.mark.parametrize("prompt, settings", [
    ("Once upon a time there was a", (TOP_3, ALL_SETTINGS)),
    ("It was dark. The girl", (ALL_SETTINGS, TOP_3))])
def test_the_bundled_pairs_next_three_tokens_have_the_targets_joint_distribution(
        pair, prompt, settings):
    """Draft and target have different sampling settings."""
    x = bundled.encoder().encode(prompt)
    draft, target = (remembered(with_sampling(model, **of_model))
                     for model, of_model in zip(pair, settings))
    assert_lossless(draft, target, 3, 2, x)
