"""Test benchmarks/loops.py: figures by hand, and small runs to the end."""

import json
from argparse import Namespace

import pytest

torch = pytest.importorskip("torch", reason="needs requirements/peers.txt")
pytest.importorskip("transformers", reason="needs requirements/peers.txt")

import numpy as np  # noqa: E402

from benchmarks import loops  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from measure.models import random_model  # noqa: E402
from tests.commands import outcome  # noqa: E402

HPARAMS = dict(n_vocab=50, n_ctx=64, n_embd=8, n_head=2)


def small_pairs(size):
    """Return two prompts and one pair; the draft has the target's weights."""
    target = random_model(HPARAMS | {"n_layer": 2})
    return None, [[1, 2, 3], [4, 5, 6]], {"": (target.fresh(), target)}


def test_the_ratio_is_of_each_repeat_and_a_rounds_is_of_its_seconds():
    totals = {"here": np.array([[2.0, 10], [4.0, 10]]),  # seconds and rounds of each repeat
              "transformers": np.array([[5.0, 20], [6.0, 12]])}
    row = loops.loop_row(totals, n_tokens=60)
    assert row["rates"]["here"] == {"median": 22.5, "low": 15, "high": 30}
    assert row["tokens/pass"] == {"here": 6, "transformers": pytest.approx(120 / 32)}
    assert row["ratio"] == {"median": 2, "low": 1.5, "high": 2.5}  # 6 / 4 and 5 / 2
    assert row["ratio of a round"] == {"median": 1.25, "low": 1.25, "high": 1.25}


def test_both_loops_call_the_same_models_and_write_the_same_greedy_texts(monkeypatch, tmp_path):
    monkeypatch.setattr(loops, "texts_and_pairs", small_pairs)
    file = tmp_path / "figures.json"
    status, shown, err = outcome(main, "loops", "--N", 12, "--repeats", 2, "--json", file)
    assert status == 0, err
    assert outcome(main, "loops", "--show", file) == (0, shown, "")
    figures = json.loads(file.read_text("utf-8"))
    assert f"matrix products by PyTorch {torch.__version__}, NumPy" in figures["measured"]
    rows = figures["rows"]
    assert len(rows) == 4
    for name, row in rows.items():
        here, theirs = row["tokens/pass"].values()
        assert (here == 1) == name.startswith("plain")
        if "temperature 0" in name:
            assert here == theirs
    _, xs, pairs = small_pairs("")
    here, theirs = loops.loops_over(*pairs[""]).values()
    for speculative in (False, True):
        assert here(xs[0], 12, 0.0, 0, speculative) == theirs(xs[0], 12, 0.0, 0, speculative)


def test_the_loops_take_turns(monkeypatch):
    turns = []

    def loop(name):
        def write(x, N, temperature, seed, speculative):
            turns.append((name, x[0], seed))
            return [0] * N, N
        return write

    args = Namespace(N=4, repeats=2)
    totals = loops.totals_of_race({"a": loop("a"), "b": loop("b")}, [[1], [2]], 0.0, True, args)
    assert turns[2:] == [(name, x, seed) for seed, x in enumerate([1, 2, 1, 2])
                         for name in "ab"]
    assert totals["a"][:, 1].tolist() == [8, 8]
