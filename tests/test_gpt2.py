"""The forward pass against loops, against itself without a cache, and against transformers."""

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from benchmarks.engines import to_transformers
from gpt2 import GPT2, PART, attention, causal_mask, forward, gelu, layer_norm
from lib.checkpoints.weights import random_params

HPARAMS = dict(n_vocab=13, n_ctx=12, n_embd=8, n_head=2, n_layer=3)


def lively_params(dtype=np.float64, hparams=HPARAMS):
    """Random weights large enough for attention and GELU to matter."""
    params = random_params(hparams, np.random.default_rng(0), np.float64)
    scale = lambda tree: ({k: scale(v) for k, v in tree.items()} if isinstance(tree, dict) else
                          [scale(v) for v in tree] if isinstance(tree, list) else
                          np.asfortranarray(tree * 15).astype(dtype))
    return scale(params)


@pytest.fixture(scope="module")
def params():
    return lively_params()


# ---- a twin in plain loops over Python numbers: nothing shared with gpt2.py

def twin_norm(row, g, b):
    mean = sum(row) / len(row)
    variance = sum((v - mean) ** 2 for v in row) / len(row)
    return [(v - mean) / math.sqrt(variance + 1e-5) * g[i] + b[i] for i, v in enumerate(row)]


def twin_linear(row, w, b):
    return [sum(row[i] * w[i][j] for i in range(len(row))) + b[j] for j in range(len(b))]


def twin_gelu(v):
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


def twin_attention(qkv, n_head, n):
    """Every head, row and column by hand; row i sees columns 0 .. i."""
    d, out = n // n_head, []
    for i, row in enumerate(qkv):
        merged = []
        for h in range(n_head):
            query = row[h * d : (h + 1) * d]
            keys = [r[n + h * d : n + (h + 1) * d] for r in qkv[: i + 1]]
            values = [r[2 * n + h * d : 2 * n + (h + 1) * d] for r in qkv[: i + 1]]
            scores = [math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(d))
                      for key in keys]
            merged += [sum(s * v[c] for s, v in zip(scores, values)) / sum(scores)
                       for c in range(d)]
        out.append(merged)
    return out


def twin_logits(ids, params, n_head):
    p = lambda tree: ({k: p(v) for k, v in tree.items()} if isinstance(tree, dict) else
                      [p(v) for v in tree] if isinstance(tree, list) else tree.tolist())
    params = p(params)
    n = len(params["wte"][0])
    x = [[a + b for a, b in zip(params["wte"][t], params["wpe"][i])] for i, t in enumerate(ids)]
    for block in params["blocks"]:
        qkv = [twin_linear(twin_norm(r, **block["ln_1"]), **block["attn"]["c_attn"]) for r in x]
        mixed = [twin_linear(r, **block["attn"]["c_proj"]) for r in twin_attention(qkv, n_head, n)]
        x = [[a + b for a, b in zip(r, s)] for r, s in zip(x, mixed)]
        inner = [twin_linear(twin_norm(r, **block["ln_2"]), **block["mlp"]["c_fc"]) for r in x]
        wide = [twin_linear([twin_gelu(v) for v in r], **block["mlp"]["c_proj"]) for r in inner]
        x = [[a + b for a, b in zip(r, s)] for r, s in zip(x, wide)]
    x = [twin_norm(r, **params["ln_f"]) for r in x]
    return np.array([[sum(a * b for a, b in zip(r, e)) for e in params["wte"]] for r in x])


def test_logits_equal_those_of_plain_loops(params):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    twin = twin_logits(ids, params, 2)
    assert np.abs(twin).max() > 1
    np.testing.assert_allclose(GPT2(params, 2)(ids, n_last=8), twin, rtol=0, atol=1e-10)


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


def test_a_list_that_its_caller_changes_is_read_anew(params):
    model, ids = GPT2(params, 2), [1, 2, 3]
    model(ids)
    ids[1] = 4
    assert np.allclose(model(ids), GPT2(params, 2)(ids))


def test_row_minus_1_minus_i_follows_the_sequence_without_its_last_i_ids(params):
    ids = [3, 1, 4, 1, 5]
    rows = GPT2(params, 2)(ids, n_last=5)
    for i in range(5):
        np.testing.assert_allclose(rows[-1 - i], GPT2(params, 2)(ids[: 5 - i])[-1], atol=1e-11)


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
    model, texts, got = GPT2(params, 2), [[i, 1, 2 * i, 3] for i in range(6)], {}
    slow = threading.Event()  # set by nobody: a pass lets the other threads run
    monkeypatch.setattr(gpt2, "forward", lambda *args: (slow.wait(0.01), forward(*args))[1])

    def read(i):
        got[i] = [model(texts[i][:n]) for n in (2, 3, 4)]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(6)]
    for step in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            step(thread)
    for i, rows in got.items():
        expected = [GPT2(params, 2)(texts[i][:n]) for n in (2, 3, 4)]
        np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-11)


# ---- the parts

def test_layer_norm_gives_mean_0_and_variance_1():
    x = np.random.default_rng(0).normal(5, 3, (4, 50))
    y = layer_norm(x, np.ones(50), np.zeros(50))
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(-1), 1, atol=1e-5)


def test_gelu_is_x_times_the_normal_distribution_function_to_3_digits():
    x = np.linspace(-4, 4, 81)
    exact = [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x]
    np.testing.assert_allclose(gelu(x), exact, atol=1e-3)


def test_attention_with_equal_keys_is_the_mean_of_the_values_that_it_may_see():
    q, k = np.ones((1, 3, 4)), np.ones((1, 3, 4))
    v = np.random.default_rng(0).normal(size=(1, 3, 4))
    got = attention(q, k, v, causal_mask(3, like=q))
    np.testing.assert_allclose(got[0], [v[0, : i + 1].mean(0) for i in range(3)])


def test_float32_is_float64_to_its_precision(params):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    small = GPT2(lively_params(np.float32), 2)(ids, 8)
    assert small.dtype == np.float32
    np.testing.assert_allclose(small, GPT2(params, 2)(ids, 8), rtol=0, atol=1e-3)


@pytest.mark.parametrize("ids, n_last", [([], 1), ([1] * 13, 1), ([1, 2], 3), ([1, 2], 0),
                                         ([13], 1), ([-1], 1), ([1, 2, 99], 1)])
def test_a_sequence_that_does_not_fit_is_named(params, ids, n_last):
    model = GPT2(params, 2)
    model([1, 2])
    with pytest.raises(ValueError, match="need .* got"):
        model(ids, n_last)
    np.testing.assert_allclose(model([1, 2, 3]), GPT2(params, 2)([1, 2, 3]), atol=1e-11)


def test_exactly_n_ctx_ids_fit(params):
    assert GPT2(params, 2)([1] * 12, 12).shape == (12, 13)


# ---- other people's models

@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float64, 1e-10)])
def test_logits_agree_with_transformers(dtype, tolerance):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    hparams = dict(n_vocab=101, n_ctx=32, n_embd=48, n_head=4, n_layer=4)
    params = lively_params(dtype, hparams) if dtype == np.float64 else random_params(
        hparams, np.random.default_rng(1), dtype)
    model = GPT2(params, 4)
    ids = np.random.default_rng(2).integers(0, 101, 30).tolist()
    with torch.no_grad():
        theirs = to_transformers(model)(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(model(ids, 30), theirs, rtol=0, atol=tolerance)


def test_a_wrong_id_of_a_long_prompt_is_named_by_its_position_from_the_end():
    hparams = dict(n_vocab=11, n_ctx=4 * PART, n_embd=6, n_head=2, n_layer=1)
    model = GPT2(random_params(hparams, np.random.default_rng(0), np.float64), 2)
    ids = [1] * (3 * PART)
    ids[5] = 99
    with pytest.raises(ValueError, match=f"got 99 at position {5 - 3 * PART} from the end"):
        model(ids)


@pytest.mark.parametrize("n_ids", [PART, PART + 1, 3 * PART - 1, 3 * PART + 5])
def test_a_long_prompt_read_in_parts_has_the_logits_of_one_pass(n_ids, monkeypatch):
    hparams = dict(n_vocab=11, n_ctx=4 * PART, n_embd=6, n_head=2, n_layer=2)
    params = random_params(hparams, np.random.default_rng(0), np.float64)
    rows, ids = count_rows(monkeypatch), [7 * i % 11 for i in range(n_ids)]
    logits = GPT2(params, 2)(ids, 3)
    assert len(rows) == -(-(n_ids - 3) // PART) and sum(rows) == n_ids and max(rows) <= PART + 3
    monkeypatch.setattr(gpt2, "PART", 10**6)
    np.testing.assert_allclose(logits, GPT2(params, 2)(ids, 3), rtol=0, atol=1e-12)
