"""The forward pass against its formulas, what it computes, threads and long prompts.

tests/plumbing/test_huggingface.py compares its logits with those of transformers.
"""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import cache
import gpt2
from cache import PART
from gpt2 import GPT2, forward
from tests.reuse import tokens_read
from tests.small import lively_params
from variants.shared.branches import Tree
from variants.shared.tree_gpt2 import TreeGPT2

HPARAMS = dict(n_vocab=13, n_ctx=12, n_embd=8, n_head=2, n_layer=3)
PARAMS = lively_params(HPARAMS)


def twin_logits(ids, params, n_head):
    """Compute every head and row by hand, without gpt2.py's code; row i sees rows 0 .. i."""
    def norm(x, g, b):
        return (x - x.mean(axis=1)[:, None]) / np.sqrt(x.var(axis=1)[:, None] + 1e-5) * g + b

    x = params["wte"][ids] + params["wpe"][: len(ids)]
    n = x.shape[1] // n_head
    for block in params["blocks"]:
        c_attn = block["attn"]["c_attn"]
        q, k, v = np.split(norm(x, **block["ln_1"]) @ c_attn["w"] + c_attn["b"], 3, axis=1)
        mixed = np.zeros_like(x)
        for i in range(len(ids)):
            for head in (slice(h * n, h * n + n) for h in range(n_head)):
                scores = np.exp(k[: i + 1, head] @ q[i, head] / math.sqrt(n))
                mixed[i, head] = scores @ v[: i + 1, head] / scores.sum()
        x = x + mixed @ block["attn"]["c_proj"]["w"] + block["attn"]["c_proj"]["b"]
        c_fc = block["mlp"]["c_fc"]
        wide = norm(x, **block["ln_2"]) @ c_fc["w"] + c_fc["b"]
        wide *= (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))) / 2
        x = x + wide @ block["mlp"]["c_proj"]["w"] + block["mlp"]["c_proj"]["b"]
    return norm(x, **params["ln_f"]) @ params["wte"].T


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_logits_equal_those_of_the_formulas_by_hand(dtype, tolerance):
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    twin = twin_logits(ids, PARAMS, 2)
    logits = GPT2(lively_params(HPARAMS, dtype=dtype), 2)(ids, n_last=8)
    assert np.abs(twin).max() > 1 and logits.dtype == dtype
    np.testing.assert_allclose(logits, twin, rtol=0, atol=tolerance)


@pytest.mark.parametrize("n_head", [0, -2, 3])
def test_a_number_of_heads_that_does_not_divide_the_width_is_refused(n_head):
    with pytest.raises(ValueError, match=f"need n_head to divide n_embd = 8, got {n_head}"):
        GPT2(PARAMS, n_head)


# ---- what is computed (tests/test_caches.py: no answer depends on earlier calls)

def test_only_tokens_that_were_not_read_are_computed():
    model = GPT2(PARAMS, 2)
    texts = [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2], np.array([1, 2, 3, 4, 5])
    with tokens_read() as numbers:
        for ids, n_last in zip(texts, (1, 1, 2, 1, 3)):
            model(ids, n_last)
    assert numbers == [3, 1, 2, 1, 3]


def test_the_memory_of_a_cache_follows_the_text_and_not_the_context(monkeypatch):
    monkeypatch.setattr(cache, "N_COLUMNS", 4)
    long = lively_params(HPARAMS | {"n_ctx": 4096})
    model = GPT2(long, 2)
    for n_ids in (1, 4, 5, 40, 7):
        ids = [*range(13)] * 4
        n_columns = model.cache.shape[-2]
        logits = model(ids[:n_ids])
        assert model.cache.shape[-2] in (n_columns, max(2 * n_columns, n_ids))
        np.testing.assert_allclose(logits, GPT2(long, 2)(ids[:n_ids]), rtol=0, atol=1e-11)
    assert model.cache.shape[-2] == 40


def test_threads_that_share_a_model_get_its_logits(monkeypatch):
    """Without the lock a thread would overwrite the cache that a different one is reading."""
    model = GPT2(PARAMS, 2)
    texts = [[i, 1, 2 * i, 3] for i in range(6)]
    never_set = threading.Event()  # waiting for it lets the other threads run

    def slow(*args):
        never_set.wait(0.01)
        return forward(*args)

    def logits_of(text, model=model):
        return [model(text[:n]) for n in (2, 3, 4)]

    monkeypatch.setattr(gpt2, "forward", slow)
    with ThreadPoolExecutor(6) as threads:
        for text, rows in zip(texts, threads.map(logits_of, texts)):
            expected = logits_of(text, GPT2(PARAMS, 2))
            np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-11)


# ---- long prompts

LONG = lively_params(dict(n_vocab=11, n_ctx=4 * PART, n_embd=6, n_head=2, n_layer=2))


def test_a_wrong_id_of_a_long_prompt_is_named_by_its_position_from_the_end():
    ids = [1] * (3 * PART)
    ids[5] = 99
    with pytest.raises(ValueError, match=f"got 99 at position {5 - 3 * PART} from the end"):
        GPT2(LONG, 2)(ids)


@pytest.mark.parametrize("n_ids", [PART, PART + 1, 3 * PART - 1, 3 * PART + 5])
def test_a_long_prompt_read_in_parts_has_the_logits_of_one_pass(n_ids, monkeypatch):
    ids = [7 * i % 11 for i in range(n_ids)]
    with tokens_read() as rows:
        logits = GPT2(LONG, 2)(ids, 3)
    assert len(rows) == math.ceil((n_ids - 3) / PART)
    assert sum(rows) == n_ids and max(rows) <= PART + 3
    monkeypatch.setattr(cache, "PART", 10**6)
    np.testing.assert_allclose(logits, GPT2(LONG, 2)(ids, 3), rtol=0, atol=1e-12)


def test_a_long_prompt_before_a_tree_is_read_in_parts():
    ids = [7 * i % 11 for i in range(3 * PART)]
    tree = Tree([1, 2, 3], [-1, -1, 0], [])
    with tokens_read() as rows:
        logits = TreeGPT2(LONG, 2)(ids + tree, 4)
    assert max(rows) <= PART + 4 and sum(rows) == len(ids) + 3
    for row, path in zip(logits, ([], [1], [2], [1, 3])):
        np.testing.assert_allclose(row, GPT2(LONG, 2)(ids + path)[0], rtol=0, atol=1e-12)
