"""The figures of benchmarks/: the counts are right, and a file of them can be told and drawn."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import benchmarks.clock as clock
import benchmarks.speed as speed
from benchmarks.neighbours import neighbours_table
from benchmarks.passes import ROWS, guess_action, passes_times, rows_actions
from benchmarks.peers import agreeing
from benchmarks.race import (Result, chains, measure, predictions, race, simulated_table, sizes,
                             useless_table)
from benchmarks.race import speed as race_speed
from benchmarks.startup import drop_from_cache, observe, write_model
from lib.checkpoints.weights import random_params
from lib.demo.compare import Timed
from gpt2 import GPT2
from sampling import with_sampling
from speculative import Round, autoregressive_sampling, draft_and_verify, generate
from theory.speedup import walltime_improvement
from utils import MODELS_DIR, load_encoder_hparams_and_params

HPARAMS = dict(n_vocab=11, n_ctx=96, n_embd=8, n_head=2, n_layer=3)


def model(seed, **changes):
    hparams = HPARAMS | changes
    return GPT2(random_params(hparams, np.random.default_rng(seed)), hparams["n_head"])


# ---- clock

def test_interleaved_takes_turns_and_leaves_out_the_warm_up():
    calls = []
    times = clock.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4 and [len(seconds) for seconds in times.values()] == [3, 3]


def test_spread_is_the_median_and_the_quartiles():
    assert clock.spread([5, 1, 4, 2, 3]) == {"median": 3, "low": 2, "high": 4}


def test_reader_reads_every_number_once():
    sums = clock.reader(2**20)()  # of ones
    assert sums.sum() == 2**20 / 4 and clock.bandwidth(2**20) > 0


# ---- passes

def test_a_pass_of_M_rows_computes_M_rows_after_the_context(monkeypatch):
    seen, target = [], model(0)
    monkeypatch.setattr("gpt2.forward", lambda ids, *rest:
                        seen.append(len(ids)) or np.zeros((len(ids), 8), np.float32))
    for n, action in rows_actions(target, context=64).items():
        action()
        assert len(target.ids) == 64 + n
    assert seen == [65, *ROWS[1:]]


def test_guesses_are_read_one_by_one():
    lengths = []
    draft = lambda ids: lengths.append(len(ids))
    draft.n_ctx, draft.n_vocab = 96, 11
    guess_action(draft)()
    assert lengths == [65, 66, 67, 68]


def test_all_passes_are_timed():
    rows, draft_step = passes_times(model(0), model(1), repeats=2)
    assert {*rows} == {"numba", "numpy"} and len(draft_step) == 2
    for times in rows.values():
        assert [*times] == [*ROWS] and all(len(seconds) == 2 for seconds in times.values())


def test_neighbours_keep_a_core_busy_and_are_gone_afterwards(monkeypatch):
    monkeypatch.setattr("benchmarks.neighbours.time.sleep", lambda seconds: None)
    table = neighbours_table(model(0), repeats=1)
    assert {*table} == {f"{backend}, {n} rows" for backend in ("numba", "numpy") for n in (1, 5)}
    assert all(row["0"]["times"] == 1 and [*row] == ["0", "1", "2"] for row in table.values())


# ---- race

def test_a_race_counts_the_tokens_of_all_texts(monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr("benchmarks.race.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    clocks = [Timed(model(seed)) for seed in (0, 1)]
    models = [with_sampling(clock, temperature=1) for clock in clocks]
    results = race(chains(*models, [2]), clocks, [([1], 0), ([2], 1)], N=7, repeats=3)
    assert set(results) == {0, 2}
    for result in results.values():
        assert result.seconds == [2] * 3  # a tick a text
        assert sum(len(round.ids) for round in result.rounds) == 14
        assert all(round.p_target is None for round in result.rounds)
        assert len(result.target) == 3 * len(result.rounds)
        assert len(result.draft) == 3 * sum(len(round.guesses) for round in result.rounds)


def test_tokens_a_second_and_predictions_by_hand():
    rounds = [Round([1, 2, 3], [1, 2], None, None), Round([1, 5], [1, 2], None, None)]
    plain = Result([6.0, 5.0, 7.0], [], [], [9.0, 10.0, 10.0, 10.0, 21.0])
    result = Result([2.0, 4.0, 3.0], rounds, [1.0, 1.0, 1.0, 3.0], [20.0, 20.0, 50.0])
    row = race_speed(result, plain)
    assert row["tokens_per_s"]["median"] == pytest.approx(5 / 3)
    assert row["speedup"] == 7 / 3 and row["acceptance"] == 3 / 4 and row["tokens_per_pass"] == 2.5
    got = predictions(2, result, plain)
    assert (got["c"], got["pass_cost"]) == (0.1, 2.0)
    assert got["predicted"] == walltime_improvement(3 / 4, 2, 0.1, 2.0)
    assert got["counted"] == 60 / (6 + 90)


def test_simulated_runs_compare_K_at_equal_luck():
    """Tokens per pass never fall as K or alpha grows, and the acceptance is about what was set."""
    table = simulated_table(model(0), model(1), N=30, repeats=1)
    tokens = np.array([[row["tokens_per_pass"] for row in races.values()]
                       for races in table.values()])
    assert (np.diff(tokens, axis=0) >= 0).all() and (np.diff(tokens, axis=1) >= 0).all()
    for alpha, races in table.items():
        assert [*races] == [0, *range(1, 9)] and races[0]["speedup"] == 1
        tested = [row["acceptance"] for K, row in races.items() if K]
        assert np.mean(tested) == pytest.approx(alpha, abs=0.1)


def test_a_useless_draft_has_the_shape_of_the_draft():
    draft = model(0, n_layer=1)
    assert sizes(draft) == HPARAMS | {"n_layer": 1}
    table = useless_table(draft, model(1), repeats=1, N=20)
    assert [*table] == [0, "auto"] and table[0]["tokens_per_pass"] == 1


def test_costs_are_measured_in_units_of_one_row():
    ticks = [0.0]

    def model(seconds_a_row):
        read = [0]

        def wrapper(ids, n_last=1):
            ticks[0] += seconds_a_row * max(len(ids) - read[0], n_last)
            read[0] = len(ids)
            return np.ones((n_last, 3)) / 3

        return wrapper

    costs, seconds = measure(model(1.0), model(4.0), [0, 1, 2], clock=lambda: ticks[0])
    assert costs.c == 0.25 and costs.pass_cost == [K + 1 for K in range(9)]
    assert seconds == ticks[0]


# ---- startup

def test_a_fresh_process_tells_its_first_token_and_its_peak():
    seconds, peak = observe(MODELS_DIR, "tales-small", N=2)
    assert 0 < seconds < 60 and 2e7 < peak < 1e9


def test_a_written_model_loads(tmp_path):
    hparams = dict(n_vocab=50257, n_ctx=16, n_embd=4, n_head=1, n_layer=1)
    write_model(tmp_path / "tiny", hparams)
    assert drop_from_cache(tmp_path / "tiny" / "params.safetensors") == (sys.platform == "linux")
    encoder, got, params = load_encoder_hparams_and_params("tiny", tmp_path)
    assert got == hparams and encoder.n_vocab == 50257
    assert np.array_equal(params["wte"], random_params(hparams, np.random.default_rng(0))["wte"])


# ---- peers

def test_an_agreeing_pair_keeps_every_guess():
    draft, target = agreeing(model(0), n_layers=1)
    draft, target = (with_sampling(model, temperature=0) for model in (draft, target))
    rng = np.random.default_rng(0)
    rounds = list(generate([1, 2], draft_and_verify(draft, target, 4), 30, rng))
    text = [1, 2] + [token for round in rounds for token in round.ids]
    assert text == autoregressive_sampling([1, 2], target, 30, rng) and len(rounds) == 6


# ---- the command

@pytest.fixture(scope="module")
def figures_file(tmp_path_factory):
    """The figures of a tiny pair, as the command would write them."""
    path = tmp_path_factory.mktemp("speed") / "speed.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "load", lambda *args: (None, model(0, n_layer=1), model(1)))
        patch.setattr(speed, "startup_table", lambda *args: {
            "first_token_s": {"warm": clock.spread([0.5])}, "peak_MB": 600.0, "weights_MB": 498.0})
        patch.setattr(speed, "floor_times", lambda *args: {"row": [2.0, 2.0], "read": [1.0, 1.0]})
        speed.main(["--size", "124M", "--tokens", "4", "--runs", "2", "--repeats", "2",
                    "--json", str(path)])
    return path


def test_the_file_holds_every_part_and_its_figures(figures_file):
    figures = json.loads(figures_file.read_text())
    assert {*figures} == {"size", "hparams", "cores", "numpy", "python", "machine", "blas_kernels",
                          "product", "startup", "passes", "simulated", "useless"}
    assert [*figures["passes"]["rows_ms"]] == [str(n) for n in ROWS]
    assert set(figures["passes"]["rows_ms"]["1"]) == {"median", "low", "high"}
    assert set(figures["simulated"]) == {"0.6", "0.7", "0.8", "0.9"}
    row = figures["simulated"]["0.8"]["4"]
    assert [*row["tokens_per_s"]] == ["median", "low", "high"]
    assert {"speedup", "predicted", "counted", "acceptance", "tokens_per_pass"} <= {*row}


def test_a_file_is_told_without_measuring(figures_file, capsys):
    speed.main(["--show", str(figures_file)])
    out = capsys.readouterr().out
    for words in ("Peak 600 MB", "GB/s", "one row, from cold caches, takes",
                  "| rows in one pass |", "useless draft", "| 0.8: measured / predicted | - |"):
        assert words in out
    lengths = {len(row.split("|")) for row in out.split("\n") if row.startswith("| 0.")}
    assert lengths == {12}  # name, plain, K = 1 .. 8, and what is outside the bars


def test_only_some_parts_are_measured_beside_those_in_the_file(figures_file, monkeypatch):
    monkeypatch.setattr(speed, "startup_table", lambda *args: "new")
    monkeypatch.setattr(speed, "tell", lambda figures: [])
    monkeypatch.setattr(speed, "load", None)
    old = json.loads(figures_file.read_text())
    speed.main(["--size", "124M", "--only", "startup", "--json", str(figures_file)])
    assert json.loads(figures_file.read_text()) == old | {"startup": "new"}
    figures_file.write_text(json.dumps(old))


def test_the_picture_shows_rows_and_speed_ups(figures_file, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("benchmarks.plots.FOLDER", tmp_path)
    speed.main(["--show", str(figures_file), "--plot"])
    picture = (tmp_path / "speed-124M.svg").read_text()
    assert picture.startswith("<?xml") and len(picture) > 10_000
