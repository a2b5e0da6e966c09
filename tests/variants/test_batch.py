"""Many texts in shared passes: the distribution of all together, and each as if it were alone."""

import gc
import tracemalloc
from functools import partial
from itertools import product

import numpy as np
import pytest

from exact.law import assert_same_law, law, text_law
from exact.toys import PAIRS, toy
from gpt2 import GPT2
from lib.backend import products
from lib.checkpoints.weights import cut_params, n_params
from sampling import with_sampling
from speculative import (
    autoregressive_step,
    complete,
    draft_and_verify,
    generate,
    speculative_sampling,
    speculative_step,
)
from tests import bundled, fake_cupy
from variants import DECODERS, Models, build
from variants.block import block_verify
from variants.lookup import lookup_guess
from variants.match import match_verify
from variants.registry import settings_of
from variants.shared.batch import Shared, Text, generate_batch, one_by_one, speculative_batch
from variants.shared.batch_gpt2 import BatchGPT2, Part, groups

SIZES = dict(n_vocab=13, n_ctx=48, n_embd=32, n_head=2, n_layer=2)
XS = [[3, 1, 4], [1, 5, 9, 2, 6], [5], [3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3],
      [3, 1, 4, 1], [5, 9]]  # one of more rows than are multiplied together
needs_numba = pytest.mark.skipif(products.compiler() is None, reason="needs Numba")


def weights(seed, dtype=np.float64, **changes):
    """The arguments of a small model, with weights so large that its rows follow the whole text."""
    hparams = SIZES | changes
    flat = np.random.default_rng(seed).normal(0, 0.4, n_params(hparams)).astype(dtype)
    return cut_params(flat, hparams), hparams["n_head"]


def shared(draft, target, batch_model=one_by_one):
    """Draft and target as a step sees them."""
    return Shared(batch_model(draft)), Shared(batch_model(target), turn=1)


def rngs(seeds):
    return [np.random.default_rng(seed) for seed in seeds]


@pytest.fixture(params=["numpy", pytest.param("numba", marks=needs_numba)])
def backend(request):
    products.choose(request.param)
    yield request.param
    products.choose("numba")


# ---- the distribution of all texts together

def both(xs, N, new_step, stop=(), batch=2):
    """rng -> the texts of these prompts, as one outcome."""
    def texts(rng):
        out = [tuple(x) for x in xs]
        for i, round in generate_batch([(x, n, rng) for x, n in zip(xs, N)], new_step, batch, stop):
            out[i] += tuple(round.ids)
        return tuple(out)

    return texts


def product_law(xs, N, target, stop=()):
    """What independent texts of the target's have."""
    one, other = (text_law(x, target, n, stop) for x, n in zip(xs, N))
    return {(a, b): one[a] * other[b] for a, b in product(one, other)}


@pytest.mark.parametrize("pair", ["dense", "sparse", "greedy draft", "equal"])
@pytest.mark.parametrize("N, K, batch", [((2, 2), 1, 2), ((2, 2), 2, 2), ((3, 1), 2, 2),
                                         ((1, 3), 2, 2), ((2, 2), 1, 1)])
def test_the_distribution_of_two_texts_is_the_product_of_the_targets(pair, N, K, batch):
    draft, target = PAIRS[pair]
    step = partial(draft_and_verify, *shared(draft, target), K)
    got = law(both([[0, 1], [2]], N, step, batch=batch))
    assert_same_law(got, product_law([[0, 1], [2]], N, target))


@pytest.mark.parametrize("N, stop", [((2, 2), {1}), ((3, 1), {0, 2})])
def test_it_is_where_one_ends_early_at_a_stop_token(N, stop):
    draft, target = PAIRS["sparse"]
    step = partial(draft_and_verify, *shared(draft, target), 2)
    got = law(both([[0, 1], [2]], N, step, stop))
    assert_same_law(got, product_law([[0, 1], [2]], N, target, stop))


@pytest.mark.parametrize("test", [block_verify, match_verify])
def test_it_is_with_another_test(test):
    draft, target = PAIRS["sparse"]
    step = partial(draft_and_verify, *shared(draft, target), 2, test)
    got = law(both([[0, 1], [2]], (3, 1), step))
    assert_same_law(got, product_law([[0, 1], [2]], (3, 1), target))


def test_it_is_with_guesses_that_are_copied():
    target = PAIRS["dense"][1]
    step = partial(speculative_step, target=shared(None, target)[1], K=2,
                   make_guesses=partial(lookup_guess, n_vocab=3))
    got = law(both([[0, 1, 0], [2, 2]], (2, 2), lambda: step))
    assert_same_law(got, product_law([[0, 1, 0], [2, 2]], (2, 2), target))


# ---- each text as if it were alone

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_are_those_of_the_text_alone(backend, dtype):
    """With the compiled product to the last bit; BLAS sums in another order for other rows."""
    rng, params = np.random.default_rng(0), weights(1, dtype)
    model, texts = BatchGPT2(*params), {i: list(x) for i, x in enumerate(XS)}
    names, alone = {i: Name() for i in texts}, {i: GPT2(*params) for i in texts}
    for _ in range(12):
        asked = rng.permutation(len(XS))[: rng.integers(1, len(XS) + 1)].tolist()
        for i in asked:  # back a few tokens, as after a rejection, and on
            kept = max(1, len(texts[i]) - int(rng.integers(0, 4)))
            texts[i] = texts[i][:kept] + rng.integers(0, 13, rng.integers(0, 4)).tolist()
        calls = [(names[i], texts[i], int(rng.integers(1, min(6, len(texts[i])) + 1)))
                 for i in asked]
        for rows, (_, ids, n_last), i in zip(model(calls), calls, asked):
            expected = alone[i](ids, n_last)
            if backend == "numba":
                assert (rows == expected).all()
            else:
                tolerance = 1e-10 if dtype == np.float64 else 1e-3
                np.testing.assert_allclose(rows, expected, rtol=0, atol=tolerance)


class Name:
    """A text to a batch model."""


def test_the_same_formulas_run_on_a_gpus_arrays():
    params, n_head = weights(1)
    alone, names = GPT2(params, n_head), [Name(), Name()]
    with fake_cupy.installed() as cupy:
        flat = np.random.default_rng(1).normal(0, 0.4, n_params(SIZES))
        model = BatchGPT2(cut_params(cupy.asarray(flat), SIZES), n_head)
        for texts in (XS[0], XS[1]), (XS[4], XS[1] + [7, 7]):
            for x, rows in zip(texts, model([(name, x, 2) for name, x in zip(names, texts)])):
                assert isinstance(rows, np.ndarray)
                np.testing.assert_allclose(rows, alone(x, 2), rtol=0, atol=1e-10)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("temperature, K", [(0.9, 3), (0.9, 0), (0.0, 2)])
def test_a_text_depends_on_no_neighbour_and_no_batch_size(dtype, temperature, K):
    settings, small, large = dict(temperature=temperature), weights(1, dtype), weights(2, dtype)

    def write(indices, batch):
        models = [with_sampling(model, **settings) for model in
                  shared(small, large, lambda params: BatchGPT2(*params))]
        jobs = [(XS[i], 12, np.random.default_rng(i)) for i in indices]
        return texts_of(jobs, partial(draft_and_verify, *models, K), batch)

    alone = [complete(XS[i], alone_step(small, large, K, settings), 12, np.random.default_rng(i))
             for i in range(len(XS))]
    for batch in (1, 3, 6):
        assert write(range(6), batch) == alone
    assert write([5, 3, 0], 2) == [alone[i] for i in (5, 3, 0)]
    assert write([2, 4], 2) == [alone[i] for i in (2, 4)]


def texts_of(jobs, new_step, batch, stop=()):
    """All texts, finished."""
    texts = [list(x) for x, *_ in jobs]
    for i, round in generate_batch(jobs, new_step, batch, stop):
        texts[i] += round.ids
    return texts


def alone_step(small, large, K, settings):
    draft, target = (with_sampling(GPT2(*params), **settings) for params in (small, large))
    if K == 0:
        return partial(autoregressive_step, model=target)
    return draft_and_verify(draft, target, K)


def test_greedy_texts_of_the_bundled_pair_are_those_alone():
    """By NumPy: what holds of the texts although it does not of the last bits."""
    products.choose("numpy")
    x, settings = bundled.encoder().encode("Once upon a time"), dict(temperature=0.0)
    small, large = (bundled.weights(size) for size in ("tales-small", "tales-large"))
    xs = [x, x + x]
    models = [with_sampling(model, **settings) for model in
              shared(small, large, lambda params: BatchGPT2(*params))]
    models_alone = [with_sampling(GPT2(*params), **settings) for params in (small, large)]
    jobs = [(x, 6, rng) for x, rng in zip(xs, rngs(range(2)))]
    got = texts_of(jobs, partial(draft_and_verify, *models, 3), 2)
    expected = [speculative_sampling(x, *models_alone, 6, 3, np.random.default_rng(0)) for x in xs]
    products.choose("numba")
    assert got == expected


CHAINS = {"speculative": {"K": 2}, "block": {"K": 3}, "lookup": {"K": 4}, "lenient": {"K": 2},
          "match": {"K": 3}, "assisted": {"K": 4, "schedule": "heuristic"}, "suffix": {"K": 2},
          "stopping": {"costs": (2.0, 9.0, 10.0, 11.0, 12.0)}, "jacobi": {"K": 3},
          "coupled": {"K": 2}, "cascade": {"K": 2}, "staged": {}, "skip": {"K": 2},
          "big_little": {}}


@needs_numba
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("sampling", [dict(temperature=0.8, top_k=5, repetition_penalty=1.3),
                                      dict(temperature=0.0, repetition_penalty=1.3)])
def test_decoders_of_the_command_line_write_the_texts_that_they_write_alone(name, sampling):
    if DECODERS[name].greedy and sampling["temperature"] > 0:
        pytest.skip("a greedy method")
    small, large = weights(1), weights(2)
    flags = settings_of(DECODERS, name, CHAINS[name])
    models = Models(*shared(small, large, lambda params: BatchGPT2(*params)), sampling)
    jobs = [(x, 12, np.random.default_rng(i)) for i, x in enumerate(XS)]
    texts = texts_of(jobs, partial(build, name, models, flags), 3, stop={7})
    for i, x in enumerate(XS):
        step = build(name, Models(GPT2(*small), GPT2(*large), sampling), flags)
        assert texts[i] == complete(x, step, 12, np.random.default_rng(i), {7})


# ---- passes

def counting(model):
    """A batch model with `calls`: the lengths and n_last of every pass."""
    def wrapper(calls):
        wrapper.calls.append([(len(ids), n_last) for _, ids, n_last in calls])
        return one_by_one(model)(calls)

    wrapper.calls = []
    return wrapper


def test_equal_models_need_the_fewest_passes_and_the_draft_goes_level_by_level():
    draft, target = counting(PAIRS["equal"][0]), counting(PAIRS["equal"][1])
    texts = speculative_batch([[0], [1, 2]], draft, target, N=8, K=3, rngs=rngs((0, 1)))
    assert [len(text) for text in texts] == [9, 10]
    assert target.calls == [[(4, 4), (5, 4)], [(8, 4), (9, 4)]]
    assert draft.calls == [[(n, 1), (n + 1, 1)] for n in (1, 2, 3, 5, 6, 7)]


def test_a_text_that_wants_fewer_guesses_leaves_the_deeper_levels_to_others():
    draft, target = counting(PAIRS["equal"][0]), counting(PAIRS["equal"][1])
    jobs = [([0], 2, *rngs([0])), ([1], 4, *rngs([1])), ([2], 1, *rngs([2]))]
    new_step = partial(draft_and_verify, Shared(draft), Shared(target, turn=1), 5)
    list(generate_batch(jobs, new_step))
    assert [len(calls) for calls in draft.calls] == [2, 1, 1]
    assert target.calls == [[(2, 2), (4, 4), (1, 1)]]


def test_the_targets_pass_waits_for_all():
    """Also for texts that want more guesses than the first: as many passes as the longest has."""
    for seeds in np.arange(60).reshape(10, 6):
        models, xs = [counting(model) for model in PAIRS["dense"]], [[i % 3] for i in range(6)]
        speculative_batch(xs, *models, N=9, K=3, rngs=rngs(seeds))
        alone = [len(list(generate(x, draft_and_verify(*PAIRS["dense"], 3), 9, rng)))
                 for x, rng in zip(xs, rngs(seeds))]
        assert len(models[1].calls) == max(alone)


def test_a_text_that_ends_makes_room_in_the_next_round():
    target, taken = counting(toy(3, 1)), []

    def jobs():
        for i, N in enumerate([1, 5, 2, 0, 3]):
            taken.append(i)
            yield [i % 3], N, np.random.default_rng(i)

    rounds = generate_batch(jobs(), partial(draft_and_verify, None, Shared(target), 0), batch=2)
    seen = [(i, next(zip(range(9), [list(taken)]))[1]) for i, _ in rounds]
    assert [i for i, _ in seen] == [0, 1, 1, 2, 1, 2, 1, 4, 1, 4, 4]
    assert seen[0][1] == [0, 1] and seen[2][1] == [0, 1, 2]  # a job is read when there is room
    assert max(map(len, target.calls)) == 2


@pytest.mark.parametrize("N", [0, 1, 2, 7])
def test_exactly_N_tokens_come_and_none_after_a_stop_token(N):
    model = one_by_one(toy(4, 3))
    for stop in ((), {2}):
        for text in speculative_batch([[0]] * 6, model, model, N, 3, rngs(range(6)), 4, stop):
            new = text[1:]
            assert len(new) == N or new[-1] in stop
            assert not set(new[:-1]) & set(stop)


def test_passes_are_held_to_the_rows_that_keep_their_bits():
    part = lambda n_new: Part(None, [0] * n_new, 0, 1)
    sizes = lambda ns, most: [[p.n_new for p in group]
                              for group in groups(list(map(part, ns)), most)]
    assert sizes([5] * 8, 16) == [[5] * 3, [5] * 3, [5] * 2]
    assert sizes([40, 1, 17, 16, 1], 16) == [[40], [1, 1], [17], [16]]
    assert sizes([40, 1, 17, 16, 1], float("inf")) == [[40, 1, 17, 16, 1]]


# ---- memory

def test_memories_are_as_many_as_texts_and_go_with_them():
    memories, held = (batch_model := BatchGPT2(*weights(1))).memories, []
    model = with_sampling(Shared(batch_model))
    jobs = [(XS[i % 6], 3 + i % 4, np.random.default_rng(i)) for i in range(30)]
    for _ in generate_batch(jobs, partial(draft_and_verify, model, model, 2), batch=4):
        held.append(len(memories))
        assert all(memory.cache.shape[3] <= 48 for memory in memories.values())
    assert max(held) <= 5 and len(memories) == 0  # four, and the one that has just ended


def test_many_prompts_take_no_more_memory_than_a_few():
    models = [with_sampling(Shared(BatchGPT2(*weights(i, n_layer=1)), turn=i)) for i in (1, 2)]

    def write(n):
        jobs = ((XS[i % 6], 4, np.random.default_rng(i)) for i in range(n))
        for _ in generate_batch(jobs, partial(draft_and_verify, *models, 2), batch=4):
            pass
        gc.collect()
        return tracemalloc.get_traced_memory()

    write(4)
    tracemalloc.start()
    try:
        before, _ = write(4)
        tracemalloc.reset_peak()
        _, few = write(6)
        tracemalloc.reset_peak()
        after, many = write(18)
    finally:
        tracemalloc.stop()
    assert after - before < 20_000 and many < few + 100_000


def test_a_memory_has_the_columns_that_its_text_needs():
    model, name = BatchGPT2(*weights(1)), Name()
    seen = []
    for n in range(1, 49):
        model([(name, [1] * n, 1)])
        seen.append(model.memories[name].cache.shape[3])
    assert all(n <= columns <= min(48, 2 * n) for n, columns in enumerate(seen, 1))
    assert len(set(seen)) == 7  # 1 2 4 8 16 32 48


def test_an_interrupted_pass_leaves_memories_true(monkeypatch):
    model, names = BatchGPT2(*weights(1)), [Name(), Name()]
    calls = lambda *tails: [(name, XS[0] + tail, 1) for name, tail in zip(names, tails)]
    model(calls([1], [2]))
    with monkeypatch.context() as patch:
        patch.setattr("variants.shared.batch_gpt2.ffn", lambda *args, **rest: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(calls([5, 5], [6, 6]))
    for rows, (_, ids, _) in zip(model(calls([1, 7], [2, 8])), calls([1, 7], [2, 8])):
        np.testing.assert_allclose(rows, GPT2(*weights(1))(ids), rtol=0, atol=1e-10)


# ---- errors

@pytest.mark.parametrize("changes, words", [
    (dict(xs=[[0], []]), "at least one token"), (dict(N=-1), "N >= 0"), (dict(K=-1), "K = -1"),
    (dict(rngs=rngs([0])), "1 generators"), (dict(rngs=[0, 1]), "Generator"),
    (dict(batch=0), "batch >= 1")])
def test_bad_arguments_are_named(changes, words):
    model = one_by_one(toy(3, 1))
    arguments = dict(xs=[[0], [1]], draft=model, target=model, N=2, K=1, rngs=rngs([0, 1]))
    with pytest.raises(ValueError, match=words):
        speculative_batch(**arguments | changes)


def test_a_text_that_fails_ends_all_and_is_told():
    def broken(x, n_left, rng):
        raise OSError(f"at {x}")

    with pytest.raises(OSError, match="at .3."):
        list(generate_batch([([3], 2, *rngs([0]))], lambda: broken))


def test_texts_that_nobody_waits_for_any_more_are_left():
    target = counting(toy(3, 1))
    rounds = generate_batch([([0], 9, rng) for rng in rngs(range(4))],
                            partial(draft_and_verify, None, Shared(target), 0))
    next(rounds)
    rounds.close()
    gc.collect()
    assert len(target.calls) == 1 and not [each for each in gc.get_objects()
                                           if type(each) is Text]


def test_calls_are_checked_before_anything_is_computed():
    model, a, b = BatchGPT2(*weights(1)), Name(), Name()
    for calls, words in (([(a, [1], 1), (b, [], 1)], "n_last"), ([(a, [1], 1), (b, [99], 1)], "99"),
                         ([(a, [1] * 49, 1)], "n_ctx = 48"), ([(a, [1], 2)], "n_last = 2"),
                         ([(a, [1], 1), (a, [2], 1)], "each text once")):
        with pytest.raises(ValueError, match=words):
            model(calls)
        assert all(memory.ids == [] for memory in model.memories.values())
