"""Many texts in shared passes: each has the logits that it has alone, and memory is freed."""

import gc
from functools import partial
from unittest import mock

import numpy as np
import pytest
from greenlet import greenlet

from cache import PART
from gpt2 import GPT2
from lib.backend.products import product_compiler
from sampling import with_sampling
from speculative import draft_and_verify
from tests.small import lively_params
from tests.test_caches import Name
from tests.toys import PAIRS, toy
from wrappers.batch import Shared, generate_batch
from wrappers.batch_gpt2 import BatchGPT2, Part, groups

HPARAMS = dict(n_vocab=13, n_ctx=48, n_embd=32, n_head=2, n_layer=2)
XS = [[3, 1, 4], [1, 5, 9, 2, 6], [5], [3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8],
      [3, 1, 4, 1], [5, 9]]  # the fourth has more rows than are multiplied together


def jobs_of(xs, N):
    return [(x, N, np.random.default_rng(i)) for i, x in enumerate(xs)]


# ---- each text as if it were alone (tests/test_laws.py: with every decoder)

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_are_those_of_the_text_alone(backend, dtype):
    """With the compiled product to the last bit; BLAS sums in a different order."""
    rng = np.random.default_rng(0)
    params = lively_params(HPARAMS, dtype=dtype)
    model = BatchGPT2(params, 2)
    alone = [GPT2(params, 2) for _ in XS]
    names = [Name() for _ in XS]
    texts = XS[:]
    tolerance = 0 if backend == "numba" else 1e-10 if dtype == np.float64 else 1e-3
    for _ in range(12):
        chosen = rng.permutation(len(XS))[: rng.integers(1, len(XS) + 1)].tolist()
        calls = []
        for i in chosen:  # back a few tokens, as after a rejection, and on
            n_kept = max(1, len(texts[i]) - int(rng.integers(0, 4)))
            texts[i] = texts[i][:n_kept] + rng.integers(0, 13, rng.integers(0, 4)).tolist()
            n_last = int(rng.integers(1, min(6, len(texts[i])) + 1))
            calls.append((names[i], texts[i], n_last))
        for i, rows, (_, ids, n_last) in zip(chosen, model(calls), calls):
            np.testing.assert_allclose(rows, alone[i](ids, n_last), rtol=0, atol=tolerance)


@pytest.mark.parametrize("n_ids", [PART, PART + 2, 3 * PART])
def test_a_long_prompt_is_read_in_the_parts_of_the_text_alone(n_ids):
    params = lively_params(HPARAMS | dict(n_ctx=4 * PART), dtype=np.float32)
    ids = np.random.default_rng(0).integers(0, 13, n_ids).tolist()
    for n_last in (1, 3):
        rows, = BatchGPT2(params, 2)([(Name(), ids, n_last)])
        np.testing.assert_array_equal(rows, GPT2(params, 2)(ids, n_last))


# ---- passes

def counting(model):
    """Return a batch model with `calls`: the lengths and n_last of every pass."""
    def wrapper(calls):
        wrapper.calls.append([(len(ids), n_last) for _, ids, n_last in calls])
        return [model(ids, n_last) for _, ids, n_last in calls]

    wrapper.calls = []
    return wrapper


def test_equal_models_need_the_fewest_passes_and_the_draft_goes_level_by_level():
    """A text with fewer guesses takes no part in the deeper levels."""
    draft, target = map(counting, PAIRS["equal"])
    new_step = partial(draft_and_verify, Shared(draft), Shared(target, turn=1), 3)
    jobs = [([0], 8, np.random.default_rng(0)), ([1, 2], 6, np.random.default_rng(1))]
    texts = [*generate_batch(jobs, new_step)]
    assert [sum(len(result.ids) for result in rounds) for rounds in texts] == [8, 6]
    assert target.calls == [[(4, 4), (5, 4)], [(8, 4), (7, 2)]]
    assert draft.calls == [*([(n, 1), (n + 1, 1)] for n in (1, 2, 3)),
                           [(5, 1), (6, 1)], [(6, 1)], [(7, 1)]]


def test_the_next_job_is_taken_when_a_text_has_ended():
    target = counting(toy(3, 1))
    taken = []

    def jobs():
        for i, N in enumerate([1, 5, 2, 0, 3]):
            taken.append(i)
            yield [i % 3], N, np.random.default_rng(i)

    texts = generate_batch(jobs(), partial(draft_and_verify, None, Shared(target), 0), batch=2)
    numbers = [(len(rounds), len(taken)) for rounds in texts]
    assert numbers == [(1, 2), (5, 5), (2, 5), (0, 5), (3, 5)]
    assert [len(calls) for calls in target.calls] == [2, 2, 2, 2, 2, 1]


def test_a_pass_has_at_most_the_rows_whose_bits_do_not_change():
    part = lambda n_new: Part(None, [0] * n_new, 0, 1)
    sizes = lambda ns, most: [[p.n_new for p in group]
                              for group in groups(list(map(part, ns)), most)]
    assert sizes([5] * 8, 16) == [[5] * 3, [5] * 3, [5] * 2]
    assert sizes([40, 1, 17, 16, 1], 16) == [[1, 1], [16], [17], [40]]
    assert sizes([40, 1, 17], float("inf")) == [[1, 17, 40]]


# ---- caches, errors

def test_a_text_that_has_ended_takes_no_memory():
    models = [BatchGPT2(lively_params(HPARAMS, seed), 2) for seed in (1, 2)]
    n_cached = []

    def jobs():
        for job in jobs_of(XS * 2, 4):
            n_cached.append(max(len(model.texts) for model in models))
            yield job

    steps = partial(draft_and_verify, *(with_sampling(Shared(model, i))
                                        for i, model in enumerate(models)), 2)
    assert len(list(generate_batch(jobs(), steps, 4))) == 12
    assert max(n_cached) <= 4 and not any(model.texts for model in models)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_without_a_text_is_refused(batch):
    with pytest.raises(ValueError, match=f"need batch >= 1 texts at once, got {batch}"):
        list(generate_batch(jobs_of(XS, 2), None, batch))


def test_an_error_in_one_text_ends_the_batch():
    def broken(x, n_left, rng):
        raise OSError(f"at {x}")

    with pytest.raises(OSError, match="at .3."):
        list(generate_batch(jobs_of([[3]], 2), lambda: broken))


def test_a_closed_batch_closes_its_texts():
    def n_greenlets():
        gc.collect()
        return sum(issubclass(type(each), greenlet) for each in gc.get_objects())

    n_before = n_greenlets()
    target = counting(toy(3, 1))
    step = partial(draft_and_verify, None, Shared(target), 0)
    jobs = [([0], N, np.random.default_rng(N)) for N in (1, 9, 9, 9)]
    texts = generate_batch(jobs, step)
    next(texts)
    texts.close()
    assert len(target.calls) == 1 and n_greenlets() == n_before


@pytest.mark.parametrize("n_embd, dtype, is_shared", [
    (32, np.float32, True), (28, np.float32, False), (28, np.float64, True),
    (30, np.float64, False)])
def test_texts_share_a_pass_only_if_the_compiled_product_fits_their_width(
        n_embd, dtype, is_shared):
    """BLAS would give a text other last bits in a pass with more rows."""
    if product_compiler() is None:
        pytest.skip("needs Numba")
    params = lively_params(HPARAMS | {"n_embd": n_embd}, dtype=dtype)
    model = BatchGPT2(params, 2)
    model.read_parts = mock.Mock(side_effect=model.read_parts)
    names = [Name() for _ in XS]
    rows = model([(name, x, 1) for name, x in zip(names, XS)])
    for x, row in zip(XS, rows):
        np.testing.assert_array_equal(row, GPT2(params, 2)(x))
    assert (model.read_parts.call_count < len(XS)) == is_shared
