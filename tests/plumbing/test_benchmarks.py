"""The figures of benchmarks/: the counts are right, every command runs, and errors are one line."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import batch, clock, engines, speed, variants
from benchmarks.models import agreeing, random_model, sizes
from benchmarks.passes import ROWS, guess_action, passes_times, rows_actions
from benchmarks.race import (Written, acceptances_by_rank, builder, figures, predictions, race,
                             simulated_builder)
from gpt2 import GPT2
from sampling import with_sampling
from speculative import Round, autoregressive_sampling, draft_and_verify, generate
from theory.speedup import walltime_improvement
from variants import DECODERS
from variants.shared.tree_gpt2 import TreeGPT2

ROOT = Path(__file__).parents[2]
HPARAMS = dict(n_vocab=11, n_ctx=96, n_embd=8, n_head=2, n_layer=3)
COMMANDS = {"speed": speed, "batch": batch, "engines": engines, "variants": variants}


def model(seed, kind=GPT2, **changes):
    found = random_model(HPARAMS | changes, seed)
    return kind(found.params, found.n_head)


# ---- clock and passes

def test_contestants_take_turns_and_the_warm_up_does_not_count():
    calls = []
    times = clock.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4 and [len(seconds) for seconds in times.values()] == [3, 3]
    assert clock.spread([5, 1, 4, 2, 3]) == {"median": 3, "low": 2, "high": 4}
    assert clock.reader(2**20)().sum() == 2**20 / 4  # of ones: every number is read once


def test_a_pass_of_M_rows_computes_M_rows_after_the_context():
    class Seeing:
        n_ctx, n_vocab, seen = 96, 11, []

        def __call__(self, ids, n_last=1):
            self.seen.append((len(ids), n_last))

    for action in [*rows_actions(Seeing(), context=64).values(), guess_action(Seeing())]:
        action()
    assert Seeing.seen == [(64 + n, n) for n in ROWS] + [(64 + n, 1) for n in (1, 2, 3, 4)]
    rows, draft_step = passes_times(model(0), model(1), repeats=2)
    assert {*rows} == {"numba", "numpy"} and [*rows["numpy"]] == [*ROWS] and len(draft_step) == 2


# ---- race

def test_all_decoders_of_a_race_write_the_same_texts_by_the_same_seeds():
    names = {"plain": (None, {}), "match": ("match", {"K": 2}), "lookup": ("lookup", {})}
    turns = []
    results = race(model(0), model(1), {
        name: builder(*entry, temperature=0) for name, entry in names.items()}, [[1], [2, 3]],
        N=7, repeats=3, on_turn=lambda: turns.append(1))
    assert len(turns) == 6 and {*results} == {*names}
    for result in results.values():
        assert [len(texts) for texts in result] == [2, 2, 2]
        for texts, plain in zip(result, results["plain"]):
            assert [text.ids for text in texts] == [text.ids for text in plain]
        for text in sum(result, []):
            assert len(text.target) == len(text.rounds) and text.seconds >= sum(text.target)
            assert text.n_rows == sum(len(round.guesses) + 1 for round in text.rounds)
    assert all(len(text.draft) == sum(len(round.guesses) for round in text.rounds)
               for text in sum(results["match"], []))


def test_speed_and_predictions_by_hand():
    rounds = [Round([1, 2, 3], [1, 2], None, None), Round([1, 5], [1, 2], None, None)]
    plain = [[Written([Round([1], [], None, None)] * 5, 5, seconds, [], [10.0] * 5)]
             for seconds in (6.0, 5.0, 7.0)]
    ours = [[Written(rounds, 6, seconds, [1.0, 1.0, 1.0, 3.0], [20.0, 20.0])]
            for seconds in (2.0, 4.0, 3.0)]
    row = figures({0: plain, 2: ours})[2]
    assert row["tokens_per_s"]["median"] == pytest.approx(5 / 3)
    assert row["speedup"] == 7 / 3 and row["acceptance"] == 3 / 4 and row["tokens_per_pass"] == 2.5
    assert predictions(2, ours, plain) == {
        "c": 0.1, "pass_cost": 2.0, "predicted": walltime_improvement(3 / 4, 2, 0.1, 2.0),
        "counted": 150 / (3 * 46)}


def test_simulated_runs_compare_K_at_equal_luck():
    """Tokens per pass never fall as K or alpha grows, and the acceptance is about what was set."""
    alphas, tokens = (0.6, 0.9), []
    for alpha in alphas:
        rows = figures(race(model(0), model(1), {K: simulated_builder(K, alpha) for K in range(9)},
                            [[i] * 32 for i in range(3)], N=30, repeats=1))
        tokens.append([row["tokens_per_pass"] for row in rows.values()])
        tested = [row["acceptance"] for K, row in rows.items() if K]
        assert np.mean(tested) == pytest.approx(alpha, abs=0.1) and tokens[-1][0] == 1
    assert (np.diff(tokens, axis=0) >= 0).all() and (np.diff(tokens, axis=1) >= 0).all()


def test_acceptances_are_counted_by_rank():
    target = model(1, TreeGPT2)
    ranks, tried = acceptances_by_rank(target, target, 0.0, [[1], [2]], N=8)
    assert ranks == [1, 0, 0, 0] and tried == 2 * 8 - 2 * -(-8 // 5)  # bonus tokens had no guess
    ranks, _ = acceptances_by_rank(model(0, TreeGPT2), target, 1.0, [[1]], N=40)
    assert len(ranks) == 4 and 0 < ranks[0] < 1


def test_an_agreeing_pair_accepts_every_guess():
    pair = agreeing(model(0), n_layers=1)
    assert [sizes(each) for each in pair] == [HPARAMS | {"n_layer": 1}, HPARAMS]
    draft, target = (with_sampling(each, temperature=0) for each in pair)
    rng = np.random.default_rng(0)
    rounds = list(generate([1, 2], draft_and_verify(draft, target, 4), 30, rng))
    text = [1, 2] + [token for round in rounds for token in round.ids]
    assert text == autoregressive_sampling([1, 2], target, 30, rng) and len(rounds) == 6


# ---- the commands

@pytest.mark.parametrize("name, words", [
    ("speed", ["--N", 3, "--runs", 1, "--repeats", 1]),
    ("batch", ["--N", 3, "--texts", 2, "--batches", 1, 2, "--K", 0, 2, "--repeats", 1]),
    ("engines", ["--N", 3, "--seeds", 1, "--repeats", 1, "--only", "here", "here, no cache"]),
    ("variants", ["--N", 2, "--repeats", 1, "--rows", "stopping", "tree --widths 2,1"])])
def test_what_a_command_measures_it_shows_again(name, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(speed, "floor_times", lambda *args: {"row": [2.0], "read": [1.0]})
    path = str(tmp_path / "figures.json")
    assert COMMANDS[name].main([*map(str, words), "--json", path]) == 0
    measured = capsys.readouterr().out
    assert COMMANDS[name].main(["--show", path]) == 0
    assert capsys.readouterr().out == measured and f"{words[1]} new tokens" in measured
    assert "Measured on 20" in measured and measured.count("| --- |") >= 1
    if name == "speed":  # the other parts stay
        old = json.loads(Path(path).read_text())
        assert speed.main(["--only", "own", "--N", "2", "--runs", "1", "--json", path]) == 0
        new = json.loads(Path(path).read_text())
        assert new["passes"] == old["passes"] and new["own"] != old["own"]
        assert [*old["own"]["races"]["1"]] == ["0", *map(str, range(1, 9)), "auto"]


def test_every_decoder_that_can_run_has_a_row():
    for temperature in (0.0, 1.0):
        rows = [name for _, name, _ in variants.default_rows(temperature)]
        assert {*rows} == {name for name, entry in DECODERS.items()
                           if temperature == 0 or not entry.greedy} and len(rows) > len(DECODERS)
    assert variants.row_of("speculative --K 3") == ("speculative --K 3", "speculative", {"K": 3})
    for text in ("none", "speculative --K", "speculative --widths 2", "speculative --K x"):
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            variants.row_of(text)


HIDDEN = ("requests", "torch", "transformers", "matplotlib", "gguf", "xllamacpp", "greenlet",
          "threadpoolctl", "tensorflow")


@pytest.mark.parametrize("module", [*(f"benchmarks.{name}" for name in COMMANDS),
                                    "tools.will_it_pay"])
def test_help_needs_no_optional_package(module):
    code = ("import runpy, sys; sys.modules |= dict.fromkeys(sys.argv[2:]); module = sys.argv[1]; "
            "sys.argv[1:] = ['--help']; runpy.run_module(module, run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", code, module, *HIDDEN], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: "), done.stderr


@pytest.mark.parametrize("name, words, message", [
    ("variants", ["--N", "0"], "whole number >= 1"),
    ("speed", ["--repeats", "0"], "whole number >= 1"), ("batch", ["--show", "nofile"], "nofile"),
    ("variants", ["--show", os.devnull], "char 0"), ("engines", ["--only", "vllm"], "llama.cpp")])
def test_what_cannot_be_is_one_line(name, words, message, capsys):
    try:
        status = COMMANDS[name].main(words)
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2 and not out and err.count("\n") == 1 and message in err


def test_a_reader_that_leaves_is_no_error():
    show = "benchmarks.variants --show benchmarks/results/variants.json"
    done = subprocess.run(f"{sys.executable} -m {show} | head -1", shell=True, cwd=ROOT, text=True,
                          capture_output=True)
    assert not done.stderr and done.stdout.startswith("The bundled pair")


@pytest.mark.parametrize("engine", ["transformers", "llama.cpp"])
def test_an_engine_writes_our_greedy_texts(engine, tmp_path):
    for package in engines.NEEDS[engine]:
        pytest.importorskip(package)
    path = tmp_path / "a.json"  # in a process: llama.cpp logs to the file descriptors
    done = subprocess.run([sys.executable, "-m", "benchmarks.engines", "--only", engine, "--N", "20",
                           "--repeats", "1", "--seeds", "0", "--json", path], cwd=ROOT, text=True,
                          capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    row = json.loads(path.read_text())["rows"][engine]
    assert row["same"] == row["texts"] == 6 and row["tokens_per_pass_0"] > 1.5
