"""The forward pass against its formulas, itself without a cache, and transformers."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from benchmarks.engines import to_transformers
from gpt2 import GPT2, PART, forward
from lib.checkpoints.weights import flatten, random_params

HPARAMS = dict(n_vocab=13, n_ctx=12, n_embd=8, n_head=2, n_layer=3)


def lively_params(dtype=np.float64):
    """Random weights large enough for attention and GELU to matter."""
    params = random_params(HPARAMS, np.random.default_rng(0), dtype)
    for _, weight in flatten(params):
        weight *= 15
    return params


@pytest.fixture(scope="module")
def params():
    return lively_params()


def twin_logits(ids, params, n_head):
    """Every head and every row by hand; row i sees rows 0 .. i. Nothing is shared with gpt2.py."""
    def norm(x, g, b):
        return (x - x.mean(axis=1)[:, None]) / np.sqrt(x.var(axis=1)[:, None] + 1e-5) * g + b

    x = params["wte"][ids] + params["wpe"][: len(ids)]
    n = x.shape[1] // n_head
    for block in params["blocks"]:
        c_attn, c_proj = block["attn"]["c_attn"], block["attn"]["c_proj"]
        q, k, v = np.split(norm(x, **block["ln_1"]) @ c_attn["w"] + c_attn["b"], 3, axis=1)
        mixed = np.zeros_like(x)
        for i in range(len(ids)):
            for head in (slice(h * n, h * n + n) for h in range(n_head)):
                scores = np.exp(k[: i + 1, head] @ q[i, head] / math.sqrt(n))
                mixed[i, head] = scores @ v[: i + 1, head] / scores.sum()
        x = x + mixed @ c_proj["w"] + c_proj["b"]
        c_fc, c_proj = block["mlp"]["c_fc"], block["mlp"]["c_proj"]
        wide = norm(x, **block["ln_2"]) @ c_fc["w"] + c_fc["b"]
        wide *= (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))) / 2
        x = x + wide @ c_proj["w"] + c_proj["b"]
    return norm(x, **params["ln_f"]) @ params["wte"].T


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_logits_equal_those_of_the_formulas_by_hand(params, dtype, tolerance):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    twin, logits = twin_logits(ids, params, 2), GPT2(lively_params(dtype), 2)(ids, n_last=8)
    assert np.abs(twin).max() > 1 and logits.dtype == dtype
    np.testing.assert_allclose(logits, twin, rtol=0, atol=tolerance)


# ---- the cache is a memo

sequences = st.lists(st.integers(0, 12), min_size=1, max_size=12)


@given(st.lists(st.tuples(st.integers(0, 12), sequences, st.integers(1, 12)), min_size=1,
                max_size=8))
@settings(deadline=None, max_examples=60)
def test_no_answer_depends_on_earlier_calls(steps):
    """Any walk of rewinds and extensions gives what a model gives that has read nothing before."""
    params = lively_params()
    used, ids = GPT2(params, 2), []
    for n_accepted, new, n_last in steps:
        ids = (ids[:n_accepted] + new)[:12]
        n_last = min(n_last, len(ids))
        got = used(ids, n_last)
        np.testing.assert_allclose(got, GPT2(params, 2)(ids, n_last), rtol=0, atol=1e-11)
        assert got.shape == (n_last, 13)


def count_rows(monkeypatch):
    """The number of new rows of every forward pass from here on."""
    rows = []

    def counting(ids, *args):
        rows.append(len(ids))
        return forward(ids, *args)

    monkeypatch.setattr(gpt2, "forward", counting)
    return rows


def test_only_what_was_not_read_is_computed(params, monkeypatch):
    rows, model = count_rows(monkeypatch), GPT2(params, 2)
    for ids, n_last in [([1, 2, 3], 1), ([1, 2, 3, 4], 1), ([1, 2, 3, 5, 6], 2), ([1, 2], 1),
                        ([1, 2, 3, 4, 5], 3)]:
        model(ids, n_last)
    assert rows == [3, 1, 2, 1, 3]


def test_an_interrupt_within_a_pass_leaves_the_model_true(params, monkeypatch):
    model = GPT2(params, 2)
    model([1, 2, 3, 4])
    blocks = []

    def interrupted(x, **kwargs):
        blocks.append(1)
        if len(blocks) == 2:
            raise KeyboardInterrupt
        return gpt2_block(x, **kwargs)

    gpt2_block = gpt2.transformer_block
    monkeypatch.setattr(gpt2, "transformer_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model([1, 2, 9, 9, 9])
    monkeypatch.undo()
    for ids in ([1, 2, 3, 4], [1, 2, 9, 9, 9]):
        np.testing.assert_allclose(model(ids), GPT2(params, 2)(ids), atol=1e-11)


def test_threads_that_share_a_model_get_its_logits(params, monkeypatch):
    """Without the lock each would overwrite the cache that another is reading."""
    model, texts = GPT2(params, 2), [[i, 1, 2 * i, 3] for i in range(6)]
    slow = threading.Event()  # set by nobody: a pass lets the other threads run
    monkeypatch.setattr(gpt2, "forward", lambda *args: (slow.wait(0.01), forward(*args))[1])

    def read(text, model=model):
        return [model(text[:n]) for n in (2, 3, 4)]

    with ThreadPoolExecutor(6) as threads:
        for text, rows in zip(texts, threads.map(read, texts)):
            np.testing.assert_allclose(rows, read(text, GPT2(params, 2)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("ids, n_last", [([], 1), ([1] * 13, 1), ([1, 2], 3), ([1, 2], 0),
                                         ([13], 1), ([-1], 1), ([1, 2, 99], 1)])
def test_a_sequence_that_does_not_fit_is_named(params, ids, n_last):
    model = GPT2(params, 2)
    model([1, 2])
    with pytest.raises(ValueError, match="need .* got"):
        model(ids, n_last)
    np.testing.assert_allclose(model([1, 2, 3]), GPT2(params, 2)([1, 2, 3]), atol=1e-11)
    assert model([1] * 12, 12).shape == (12, 13)


# ---- other people's models

def test_logits_agree_with_transformers(params):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model, ids = GPT2(params, 2), [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        theirs = to_transformers(model)(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(model(ids, 8), theirs, rtol=0, atol=1e-10)


LONG = dict(n_vocab=11, n_ctx=4 * PART, n_embd=6, n_head=2, n_layer=2)


def test_a_wrong_id_of_a_long_prompt_is_named_by_its_position_from_the_end():
    model = GPT2(random_params(LONG, np.random.default_rng(0), np.float64), 2)
    ids = [1] * (3 * PART)
    ids[5] = 99
    with pytest.raises(ValueError, match=f"got 99 at position {5 - 3 * PART} from the end"):
        model(ids)


@pytest.mark.parametrize("n_ids", [PART, PART + 1, 3 * PART - 1, 3 * PART + 5])
def test_a_long_prompt_read_in_parts_has_the_logits_of_one_pass(n_ids, monkeypatch):
    params = random_params(LONG, np.random.default_rng(0), np.float64)
    rows, ids = count_rows(monkeypatch), [7 * i % 11 for i in range(n_ids)]
    logits = GPT2(params, 2)(ids, 3)
    assert len(rows) == -(-(n_ids - 3) // PART) and sum(rows) == n_ids and max(rows) <= PART + 3
    monkeypatch.setattr(gpt2, "PART", 10**6)
    np.testing.assert_allclose(logits, GPT2(params, 2)(ids, 3), rtol=0, atol=1e-12)
