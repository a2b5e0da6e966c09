"""Theorem 1 by enumeration: the joint distribution of the text is the target's, to 1e-12."""

from collections import defaultdict
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact.law import expectation, law, rounds_law, text_law
from sampling import warp, with_sampling
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
from tests.distributions import HIGHEST, LOWEST, Scripted, assert_same_law, round_law
from tests.toys import PAIRS, context_free, counted, mapped, toy

LARGE = {"dense", "disjoint", "one ulp away", "four tokens", "five tokens"}  # 10^6 branches
CASES = [(pair, K, K + 2) for pair in PAIRS for K in (1, 2, 3) if K < 3 or pair not in LARGE]


@pytest.mark.parametrize("pair, K, N", [*CASES, ("dense", 3, 4), ("disjoint", 3, 4)])
def test_speculative_sampling_has_the_targets_joint_distribution(pair, K, N):
    """And text and target passes have, together, the one of docs/proof.md."""
    draft, target = PAIRS[pair]

    def text_and_passes(rng):
        model = counted(target)
        text = speculative_sampling([0], draft, model, N, K, rng)
        return tuple(text), len(model.calls)

    got = law(text_and_passes)
    assert_same_law(got, rounds_law([0], partial(round_law, draft=draft, target=target), N, K))
    texts = defaultdict(float)
    for (text, _), p in got.items():
        texts[text] += p
    assert_same_law(texts, text_law([0], target, N))


@pytest.mark.parametrize("pair", PAIRS)
def test_autoregressive_sampling_has_the_models_joint_distribution(pair):
    _, target = PAIRS[pair]
    got = law(lambda rng: autoregressive_sampling([0, 1], target, 4, rng))
    assert_same_law(got, text_law([0, 1], target, 4))


@pytest.mark.parametrize("K", [1, 2, 3])
def test_the_distribution_is_exact_to_the_last_bit_on_fractions(K):
    draft, target = (toy(3, seed, exact=True) for seed in (21, 22))
    got = law(lambda rng: speculative_sampling([0], draft, target, K + 1, K, rng))
    assert_same_law(got, text_law([0], target, K + 1), tolerance=0)


@pytest.mark.parametrize("K, stop", [(1, {0}), (2, {0}), (2, {2}), (2, {0, 2}), (2, {0, 1, 2}),
                                     (3, {0, 2})])
def test_a_stop_token_anywhere_in_a_round_keeps_the_distribution(K, stop):
    draft, target = PAIRS["dense"]
    got = law(lambda rng: speculative_sampling([0], draft, target, 4, K, rng, stop=stop))
    assert_same_law(got, text_law([0], target, 4, stop))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_a_round_cut_by_N_keeps_the_distribution(K):
    draft, target = PAIRS["sparse"]
    for N in range(4):
        got = law(partial(speculative_sampling, [1], draft, target, N, K))
        assert_same_law(got, text_law([1], target, N))


SETTINGS = [
    dict(temperature=0.5), dict(top_k=2), dict(top_p=0.7), dict(repetition_penalty=1.8),
    dict(temperature=2.0, top_k=3, top_p=0.8, repetition_penalty=1.3), dict(temperature=0)]


@pytest.mark.parametrize("of_draft, of_target", [*zip(SETTINGS, SETTINGS[1:] + SETTINGS[:1])],
                         ids=str)
def test_different_sampling_settings_of_both_keep_the_warped_targets_distribution(
        of_draft, of_target):
    def warped(seed, sampling):  # the toy's rows, shifted, serve as logits
        return with_sampling(mapped(toy(4, seed), lambda row: 4 * row - 40), **sampling)

    draft, target = warped(31, of_draft), warped(32, of_target)
    got = law(lambda rng: speculative_sampling([0], draft, target, 3, 2, rng))
    assert_same_law(got, text_law([0], target, 3))


def test_a_K_that_depends_on_the_past_keeps_the_distribution():
    draft, target = PAIRS["dense"]

    def step(x, n_left, rng):
        return draft_and_verify(draft, target, 1 + (sum(x) + len(x)) % 3)(x, n_left, rng)

    got = law(lambda rng: complete([0], step, 4, rng))
    assert_same_law(got, text_law([0], target, 4))


@pytest.mark.parametrize("pair", PAIRS)
def test_verify_is_lossless(pair):
    """After one round and the target alone, k + 1 tokens have the target's distribution."""
    draft, target = PAIRS[pair]

    def two_guesses_then_target(rng):
        x = [0]
        guesses, p_draft = guess(x, 2, rng, draft)
        ids = verify(guesses, p_draft, target(x + guesses, 3), rng)
        return autoregressive_sampling(x + ids, target, 3 - len(ids), rng)

    assert_same_law(law(two_guesses_then_target), text_law([0], target, 3))


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_the_distribution_of_one_round_is_the_proofs_product(k):
    models = toy(4, 23, exact=True), toy(4, 24, exact=True)
    got = law(lambda rng: draft_and_verify(*models, 9)([1], k + 1, rng).ids)
    assert_same_law(got, round_law([1], k, *models), tolerance=0)


@given(st.integers(0, 30), st.integers(1, 8), st.integers(0, 99))
def test_an_equal_draft_needs_the_fewest_target_passes(N, K, seed):
    x = [0]
    draft, target = (counted(PAIRS["dense"][1]) for _ in range(2))
    speculative_sampling(x, draft, target, N, K, np.random.default_rng(seed))
    assert len(target.calls) == -(-N // (K + 1)) and x == [0]
    assert set(draft.calls) <= {1}  # one row per guess


@pytest.mark.parametrize("pair", ["dense", "equal"])
def test_no_model_is_called_beyond_the_last_token_wanted(pair):
    """So a prompt and N new tokens fit if len(x) + N <= n_ctx."""
    def bounded(model, N):
        def wrapper(ids, n_last):
            assert len(ids) < 2 + N
            return model(ids, n_last)
        return wrapper

    for N, K in product(range(1, 9), (1, 3, 8)):
        models = [bounded(model, N) for model in PAIRS[pair]]
        speculative_sampling([0, 1], *models, N, K, np.random.default_rng(N))


@given(st.integers(0, 6), st.integers(1, 4), st.integers(0, 99))
def test_the_rounds_joined_are_the_text_up_to_its_first_stop_token(N, K, seed):
    rng = partial(np.random.default_rng, seed)
    text = speculative_sampling([2], *PAIRS["dense"], N, K, rng(), stop={2})
    rounds = generate([2], draft_and_verify(*PAIRS["dense"], K), N, rng(), stop={2})
    assert text == [2] + [token for result in rounds for token in result.ids]
    assert len(text) == 1 + N or text[-1] == 2
    assert 2 not in text[1:-1]


def test_plain_decoding_computes_one_row_per_token():
    target = counted(PAIRS["dense"][1])
    text = autoregressive_sampling((0,), target, 5, np.random.default_rng(0))  # any sequence
    assert target.calls == [1] * 5 and len(text) == 6


@pytest.mark.parametrize("made, k, written, accepted, tested, stop", [
    ([1, 2, 5], 3, [1, 2, 5], 2, 3, ()), ([1, 2, 3, 9], 3, [1, 2, 3, 9], 3, 3, ()),
    ([4], 2, [4], 0, 1, ()), ([5], 0, [5], 0, 0, ()),
    ([1], 3, [1], 0, 1, ()),  # the replacement equals the guess that was rejected
    ([1, 2, 3, 9], 3, [1, 2], 3, 3, (2,)), ([1, 2, 5], 3, [1], 2, 3, (1,))], ids=str)
def test_what_a_test_accepted_is_counted_whatever_the_tokens_are(made, k, written, accepted,
                                                                 tested, stop):
    """A test returns the accepted guesses and one token; a stop token cuts only the text."""
    guesses = [1, 2, 3][:k]
    step = make_step(context_free([1.0]), 3, lambda x, k, rng: (guesses, [None] * len(guesses)),
                     lambda *_: made)
    result = next(generate([0], step, 4, np.random.default_rng(0), stop))
    assert (result.ids, result.n_accepted, result.n_tested) == (written, accepted, tested)


def test_a_prompt_or_stop_that_can_be_read_once_only_is_not_lost():
    draft, target = PAIRS["dense"]
    for sampling in (partial(speculative_sampling, draft=draft, target=target, K=2),
                     partial(autoregressive_sampling, model=target)):
        rng = partial(np.random.default_rng, 0)
        text = sampling([0, 1], N=6, rng=rng())
        assert sampling(iter([0, 1]), N=6, rng=rng()) == text and text[:2] == [0, 1]
        cut = sampling([0, 1], N=6, rng=rng(), stop={text[3]})
        assert sampling([0, 1], N=6, rng=rng(), stop=iter([text[3]])) == cut
        assert sampling(np.array([0, 1]), N=np.int64(6), rng=rng(), stop=np.array([text[3]])) == cut
        assert 3 <= len(cut) <= 4 and cut == text[: len(cut)]


def test_rows_of_a_round_are_fresh_calls_on_their_prefixes():
    draft, target = PAIRS["dense"]
    x = [0]
    for result in generate(x, draft_and_verify(draft, target, 3), 12, np.random.default_rng(0)):
        for t, row in enumerate(result.p_draft):
            assert (row == draft(x + result.guesses[:t], 1)[-1]).all()
        for t, row in enumerate(result.p_target):
            assert (row == target(x + result.guesses[:t], 1)[-1]).all()
        x = x + result.ids


def test_tokens_per_round_follow_from_the_acceptance_rate():
    """Without context their mean is (1 - alpha^(K+1)) / (1 - alpha). Leviathan Eq. 1."""
    p_draft, p_target = (model([0])[0] for model in PAIRS["dense"])
    alpha = np.minimum(p_draft, p_target).sum()
    step = draft_and_verify(context_free(p_draft), context_free(p_target), 3)
    mean = expectation(lambda rng: step([0], 9, rng).ids, len)
    assert mean == pytest.approx((1 - alpha**4) / (1 - alpha), abs=1e-12)


# ---- numbers at the edge

EDGE_ROWS = [([0, 1, 0], [1, 0, 0]), ([0, 0, 1], [0, 1, 0]), ([0, 1, 0], [0, 1, 0]),
             ([0, 0.5, 0.5], [0, 0.25, 0.75]), ([0.5, 0.5, 0], [0.1, 0.9, 0]),
             ([0, 0.7, 0.3], [0, 0.3, 0.7]), ([0.3, 0.7], [0.3, 0.7])]


@pytest.mark.parametrize("rows", EDGE_ROWS, ids=str)
def test_the_outermost_uniforms_give_only_tokens_of_the_target(rows):
    """And accept a guess whose two probabilities are equal."""
    for dtype, *uniforms in product((np.float32, np.float64), *[(LOWEST, HIGHEST)] * 2):
        p_draft, p_target = np.array(rows, dtype)
        for token in np.flatnonzero(p_draft).tolist():
            ids = verify([token], [p_draft], [p_target] * 2, Scripted(uniforms))
            assert all(p_target[token] > 0 for token in ids)
            assert p_draft[token] != p_target[token] or ids[0] == token and len(ids) == 2


def test_float32_rows_that_do_not_sum_to_1_keep_the_distribution_to_their_precision():
    draft, target = (context_free(np.float32(scale) * model([0])[0].astype(np.float32))
                     for model, scale in zip(PAIRS["dense"], (0.9999, 1.0001)))
    got = law(lambda rng: speculative_sampling([0], draft, target, 2, 2, rng))
    assert_same_law(got, text_law([0], target, 2), tolerance=1e-3)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("side", ["draft", "target"])
def test_a_row_of_nan_is_never_a_token(side, row):
    rows = {"draft": np.full((2, 3), 1 / 3), "target": np.full((3, 3), 1 / 3)}
    rows[side][row] = np.nan
    with pytest.raises(ValueError, match="a row with sum nan"):
        verify([0, 1], *rows.values(), Scripted([LOWEST] * 3))


@pytest.mark.parametrize("n_vocab", [1, 50257])
def test_a_vocabulary_of_one_and_of_GPT2(n_vocab):
    rows = np.random.default_rng(0).random((2, n_vocab)) ** 9
    draft, target = map(context_free, warp(rows))
    ids = speculative_sampling([0], draft, target, 9, 3, np.random.default_rng(1))
    assert len(ids) == 10 and all(0 <= token < n_vocab for token in ids)
    ids = verify([0], draft([0], 1), target([0], 2), Scripted([LOWEST, HIGHEST]))
    assert ids == [0, n_vocab - 1]


# ---- bad input

class Tensor:
    """Have a shape and entries, but none of NumPy's or a list's types."""

    shape = (3,)
    ndim = 1

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return [0.5, 0.25, 0.25][i]


def with_batch_axis(model):
    """Return a model whose rows have the shape that transformers returns, [1, n, n_vocab]."""
    return lambda ids, n_last: np.asarray(model(ids, n_last))[None]


def ignoring_k(x, k, rng):
    """Return nine guesses, however many are wanted."""
    return guess(x, 9, rng, PAIRS["dense"][0])


def by(step, N=3):
    """Return a call that writes N tokens by a step."""
    return lambda rng: complete([0], step, N, rng)


SPECULATE = partial(speculative_sampling, [0], *PAIRS["dense"])
PLAIN = partial(autoregressive_sampling, [0], PAIRS["dense"][1])
THREE_D = with_batch_axis(PAIRS["dense"][1])
LOGITS = context_free([1.0, 2.0, 3.0])  # a common mistake: logits instead of probabilities


@pytest.mark.parametrize("call, message", [
    (lambda rng: speculative_sampling([], *PAIRS["dense"], 3, 2, rng), "at least one token"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], 3, 0, rng), "K >= 1"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], 3, "auto", rng), "K >= 1 .*'auto'"),
    (lambda rng: speculative_sampling([1.5], *PAIRS["dense"], 3, 2, rng), "whole numbers, got"),
    (lambda rng: speculative_sampling("abc", *PAIRS["dense"], 3, 2, rng), "whole numbers, got"),
    (lambda rng: speculative_sampling([[0, 1]], *PAIRS["dense"], 3, 2, rng), "whole numbers"),
    (lambda rng: speculative_sampling([0], LOGITS, LOGITS, 3, 2, rng), "with_sampling .* 6.0"),
    (lambda rng: autoregressive_sampling([0], LOGITS, 3, rng), "with_sampling .* sum 6.0"),
    (lambda rng: verify([0], [[1.0, 0.0]], [[0.5, 0.5], [0.502, 0.5]], rng), "sum 1.002"),
    (lambda rng: verify([0], [[2.0, 1.0]], [[0.5, 0.5]] * 2, rng), "sum 3.0"),
    (lambda rng: verify([-1], [[0.5, 0.5]], [[0.5, 0.5]] * 2, rng), "got -1 for guess 0"),
    (lambda rng: verify([2], [[0.5, 0.5]], [[0.5, 0.5]] * 2, rng), "got 2 for guess 0"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], -1, 2, rng), "N >= 0"),
    (lambda rng: speculative_sampling([0], toy(3, 0), toy(4, 0), 3, 2, rng), "sizes 3 and 4"),
    (lambda rng: speculative_sampling([0], *PAIRS["dense"], 3, 2, 5), "Generator, got 5"),
    (lambda rng: verify(np.array([0]), [[1.0]], [[1.0]] * 2, rng), "a list of guesses"),
    (lambda rng: verify([0], [[1.0]], [[1.0]], rng), "k rows .* k = 1 guesses, got 1 and 1"),
    (lambda rng: verify([0], [[1.0]], [[1.0]] * 3, rng), "k rows .* k = 1 guesses, got 1 and 3"),
    (lambda rng: verify([0, 0], [[1.0, 0.0]] * 2, [[1.0, 0.0], [1.0], [1.0]], rng),
     "sizes 2 and 1"),
    (lambda rng: verify([0], [[1.0]] * 2, [[1.0]] * 2, rng), "k rows"),
    (lambda rng: verify([1], [[1.0, 0.0]], [[0.5, 0.5]] * 2, rng), "the distribution of guess t"),
    (lambda rng: autoregressive_sampling([], toy(3, 0), 3, rng), "at least one token"),
    (lambda rng: SPECULATE(2.5, 2, rng), "a whole number N >= 0 of new tokens, got 2.5"),
    (lambda rng: SPECULATE(np.nan, 2, rng), "N >= 0 of new tokens, got nan"),
    (lambda rng: SPECULATE("5", 2, rng), "N >= 0 of new tokens, got '5'"),
    (lambda rng: PLAIN(None, rng), "N >= 0 of new tokens, got None"),
    (lambda rng: PLAIN(True, rng), "N >= 0 of new tokens, got True"),
    (lambda rng: SPECULATE(3, True, rng), "K >= 1 of guesses per round, got True"),
    (lambda rng: SPECULATE(3, 2.0, rng), "K >= 1 of guesses per round, got 2.0"),
    (lambda rng: SPECULATE(3, 2, rng, stop=5), "stop to be a sequence of token ids.*, got 5"),
    (lambda rng: SPECULATE(3, 2, rng, stop=None), "stop to be .*, got None"),
    (lambda rng: SPECULATE(3, 2, rng, stop={"2"}), "stop to be .*, got {'2'}"),
    (lambda rng: PLAIN(3, rng, stop="a"), "stop to be .*, got 'a'"),
    (lambda rng: autoregressive_sampling(5, PAIRS["dense"][1], 3, rng), "x to be .*, got 5"),
    (lambda rng: autoregressive_sampling([0], THREE_D, 3, rng), r"a row of shape \(1, 3\)"),
    (lambda rng: speculative_sampling([0], PAIRS["dense"][0], THREE_D, 3, 2, rng),
     r"shape \[n_last, n_vocab\], got a row of shape \(3, 3\)"),
    (lambda rng: autoregressive_sampling([0], lambda *_: np.ones(3) / 3, 3, rng),
     "NumPy arrays, got float64"),
    (lambda rng: autoregressive_sampling([0], lambda *_: [Tensor()], 3, rng),
     r"NumPy arrays, got Tensor \(a tensor's .numpy\(\)"),
    (lambda rng: verify([0], [Tensor()], [[0.5, 0.5]] * 2, rng), "NumPy arrays, got Tensor"),
    (lambda rng: verify([False], [[0.5, 0.5]], [[0.5, 0.5]] * 2, rng), "got False for guess 0"),
    (lambda rng: verify([0.0], [[0.5, 0.5]], [[0.5, 0.5]] * 2, rng), "got 0.0 for guess 0"),
    (by(make_step(PAIRS["dense"][1], 2, ignoring_k, lambda guesses, *_: [*guesses, 0])),
     "appends 1 to n_left = 3 tokens .*at most.*, got 10"),
    (by(make_step(PAIRS["dense"][1], 2, ignoring_k, lambda *_: [])), "1 to n_left .*, got 0"),
])
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
