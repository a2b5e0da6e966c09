"""A text longer than the context: the window's position, and that nothing else changes.

tests/test_laws.py has the distribution of every decoder's text in a window.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import Encoder, byte_characters
from lib.checkpoints.weights import flatten, random_params
from main import both_decoders, decode, plain_step
from run.compare import parting_of_texts
from run.describe import comparison_in_words
from run.flags import parse_args
from run.task import Task
from speculative import complete, draft_and_verify
from tests.toys import toy
from variants import DECODERS, Models
from variants.shared.tree_gpt2 import TreeGPT2
from wrappers.window import window, windowed

HPARAMS = dict(n_vocab=40, n_ctx=12, n_embd=12, n_head=3, n_layer=2)
GREEDY = dict(temperature=0)


def starts(n_prompt, n_ctx, n):
    """Yield each length from n_prompt to n and where its window starts, step by step."""
    start = 0 if n_prompt < n_ctx else n_prompt - n_ctx // 2
    for length in range(n_prompt, n + 1):
        if length - start == n_ctx:
            start = length - n_ctx // 2
        yield length, start


# ---- where the window is

@given(st.integers(1, 40), st.integers(2, 13), st.integers(0, 60))
def test_the_window_jumps_by_halves(n_prompt, n_ctx, n):
    for length, start in starts(n_prompt, n_ctx, n_prompt + n):
        assert window(list(range(length)), n_prompt, n_ctx) == list(range(start, length))


@given(st.integers(1, 40), st.integers(2, 13), st.integers(0, 60), st.integers(1, 5))
def test_no_step_exceeds_the_context_and_N_tokens_follow(n_prompt, n_ctx, N, most):
    def step(x, n_left, rng):
        assert 1 <= len(x) and 1 <= n_left <= n_ctx - len(x)
        return draft_and_verify(*[toy(2, 0)] * 2, most)(x, min(n_left, most), rng)

    x = complete([0] * n_prompt, windowed(step, n_prompt, n_ctx), N, np.random.default_rng(0))
    assert len(x) == n_prompt + N


@pytest.mark.parametrize("n_ctx", [1, 0])
def test_a_context_of_one_has_no_half(n_ctx):
    with pytest.raises(ValueError, match="n_ctx >= 2"):
        windowed(None, 1, n_ctx)


# ---- GPT-2, and all decoders

def model(seed, **sizes):
    """Return a random GPT-2 whose greedy texts are more than a repetition."""
    params = random_params(HPARAMS | sizes, np.random.default_rng(seed), np.float64)
    for name, weight in flatten(params):
        weight *= 1 if name.endswith(("/g", "/b")) else 25
    return TreeGPT2(params, HPARAMS["n_head"])


def greedy_in_windows(target, x, n_ctx, N):
    """Return the greedy text by its definition: each token from a pass over its window."""
    x = list(x)
    for _, start in starts(len(x), n_ctx, len(x) + N - 1):
        x.append(int(target(x[start:])[-1].argmax()))
    return x


# ---- main.py

ENCODER = Encoder({char: token for token, char in enumerate(byte_characters().values())}, [])


def task(N, x=(1, 2, 3), flags=(("K", 3),), n_ctx=12, moves=True):
    entry = DECODERS["speculative"]
    models = Models(model(10, n_ctx=n_ctx), model(0), GREEDY)
    return Task(ENCODER, models, entry, entry.settings(dict(flags)), set(), N=N, seed=5,
                n_ctx=n_ctx, window=moves, x=list(x))


@pytest.mark.parametrize("N, moves", [
    (9, False), (10, False), (10**9, False), (9, True), (10, True), (100, True)])
def test_one_below_at_and_above_the_context_without_and_with_a_window(N, moves):
    got = both_decoders(task(N, moves=moves))
    said = comparison_in_words(got, parse_args([]))
    n_new = N if moves else 9
    assert got["identical"] and got["window_moved"] == (moves and N > 9)
    assert got["speculative"]["ids"] == greedy_in_windows(model(0), [1, 2, 3], 12, n_new)[3:]
    for decoder in ("autoregressive", "speculative"):
        assert got[decoder]["ended_by"] == ("N" if n_new == N else "n_ctx")
    full = "n_ctx = 12 reached after 9 new tokens; --window continues"
    assert (full in said) == (n_new < N)
    assert ("the last 6-11 tokens" in said) == (moves and N > 9)


@pytest.mark.parametrize("n_ctx", [2, 3, 7])
def test_the_smaller_context_of_the_two_models_counts(n_ctx):
    got = both_decoders(task(50, n_ctx=n_ctx))
    assert got["identical"] and got["n_ctx"] == n_ctx
    assert got["speculative"]["ids"] == greedy_in_windows(model(0), [1, 2, 3], n_ctx, 50)[3:]


def test_K_auto_measures_within_the_context():
    job = task(60, x=[1] * 100, flags={"K": "auto"})  # the draft's n_ctx is 12
    got = both_decoders(job._replace(models=job.models._replace(target=model(0, n_ctx=40))))
    assert got["identical"] and got["speculative"]["tokens"] == 60


@pytest.mark.parametrize("position", [8, 9, 30])
def test_the_logits_at_the_first_difference_are_those_of_its_window(position):
    job = task(40)
    ids = decode(job, plain_step).ids
    other = ids[:position] + [(ids[position] + 1) % 40] + ids[position + 1 :]
    got = parting_of_texts(job, ids, other)
    start = dict(starts(3, 12, 3 + position))[3 + position]
    *_, second, best = np.sort(model(0)(([1, 2, 3] + ids[:position])[start:])[-1])
    gap = pytest.approx(best - second)
    assert got == {"token": position, "gap_of_the_two_best_logits": gap}
