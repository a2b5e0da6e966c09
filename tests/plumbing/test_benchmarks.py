"""Test benchmarks/: figures by hand and their units, every command, and errors in one line."""

import copy
import json
import re
from argparse import Namespace
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from unittest import mock

import numpy as np
import pytest

from benchmarks import acceptance, batch, engines, low_acceptance, patterns, rules, speed, variants
from benchmarks.__main__ import NAMES, main
from lib.prefix import common_prefix
from lib.terminal import try_to_write
from measure import clock, command, passes
from measure import race as race_module
from measure.clock import rows_actions
from measure.models import random_model
from measure.passes import Run, Timed
from measure.race import builder, race, race_figures, simulated_builder
from speculative import Round
from tests.commands import outcome
from tests.pages import ROOT
from tests.test_compare import Clock
from theory.hardware import pass_bytes
from theory.speedup import walltime_improvement
from variants import DECODERS
from wrappers.batch_gpt2 import BatchGPT2
from wrappers.forced import ForcedRound

HPARAMS = dict(n_vocab=12, n_ctx=96, n_embd=8, n_head=2, n_layer=3)
model = partial(random_model, HPARAMS)  # a GPT2 of a few thousand weights, by its seed
ONE_TEXT = dict(OPENINGS=["A fox"])
SMALL = {  # constants of the commands, which make them fast
    speed: dict(ONE_TEXT, KS=[2], RUNS=1, ROWS={"numba": [1]}, BLOCK={"numba": 2**20}),
    batch: dict(load_benchmark_pair=lambda size: (None, model(0), model(1)), BATCHES=[1, 2],
                KS=[0, 2]),
    engines: dict(ONE_TEXT, SEEDS=1),
    variants: ONE_TEXT,
    acceptance: dict(TEMPERATURES=[0.5, 1.0], LENGTH=12),
    rules: dict(LENGTH=12),
    low_acceptance: dict(OPENINGS=["A fox", "A bear"], FAULTS={"none": low_acceptance.Fault()}),
    patterns: dict(ONE_TEXT, PROPERTIES={"an age": {"age": {"enum": [4, 21, 30]}}})}


def greedy(name, **flags):
    return builder(name, flags, temperature=0)


def timed(seconds, rows=()):
    """Return the passes of a model after the prompt."""
    return Timed(None, list(seconds), list(rows))


def plain_text(ids, seconds):
    """Return one text as plain decoding writes it, in passes that are equally long."""
    rounds = [Round([token], [], None, None, 0) for token in ids]
    each = seconds / len(ids)
    target = timed([each] * len(ids), [1] * len(ids))
    return Run(timed([]), target, ids, rounds, seconds, prompt_s=each, n_first=1)


def set_all(monkeypatch, module, **values):
    for name, value in values.items():
        monkeypatch.setattr(module, name, value)


# ---- clocks

def test_a_pass_of_M_rows_computes_M_rows_after_the_context():
    """Two passes share the context and, of tokens drawn from 10**9, no other."""
    model = mock.Mock(n_ctx=96, n_vocab=10**9)
    times = clock.interleaved(rows_actions(model, (1, 4, 9)), repeats=2)
    calls = [call.args for call in model.call_args_list]
    assert [(len(ids), n_last) for ids, n_last in calls] == 3 * [(65, 1), (68, 4), (73, 9)]
    assert {common_prefix(a, b) for (a, _), (b, _) in pairwise(calls)} == {64}
    assert all(len(seconds) == 2 for seconds in times.values())


def test_a_spread_is_the_median_and_the_quartiles():
    assert command.ranged(clock.spread([1, 5, 2, 4, 3]), "{:.1f}") == "3.0 (2.0 - 4.0)"


# ---- race

def test_all_decoders_of_a_race_write_the_same_texts_by_the_same_seeds():
    draft, target = model(0), model(1)
    builders = {name: greedy(name) for name in (None, "match", "lookup")}
    results = race(draft, target, builders, [[1], [2, 3]], N=7, repeats=3)
    for runs in results.values():
        assert [len(texts) for texts in runs] == [2, 2, 2]
        for text, plain in zip(chain(*runs), chain(*results[None]), strict=True):
            assert text.ids == plain.ids
            assert len(text.target.writing()) == len(text.rounds) - 1
            assert text.writing_s >= sum(text.target.writing())
            assert 0 < text.prompt_s < text.seconds
            assert text.n_written == 7 - len(text.rounds[0].ids)
            assert text.target.rows == [len(done.guesses) + 1 for done in text.rounds]
    assert draft.ids == target.ids == []  # the race reads with models of its own


def test_a_texts_seconds_are_those_of_its_rounds_alone(monkeypatch):
    """A target pass takes 10 s, a draft pass 1 s; to build the step takes 100 s more."""
    clock = Clock()

    class Slow:
        def __init__(self, seconds):
            self.seconds_of_a_pass = seconds

        def __call__(self, ids, n_last):
            clock.now += self.seconds_of_a_pass
            return np.zeros((n_last, 3))

        def fresh(self):
            return Slow(self.seconds_of_a_pass)

    def build_step(draft, target):
        clock.now += 100
        return greedy("speculative", K=2)(draft, target)

    for module in (race_module, passes):
        monkeypatch.setattr(module, "time", clock)
    text = race_module.write_text(Slow(1.0), Slow(10.0), build_step, [1], N=5, seed=0)
    # 3 tokens by 2 draft passes, then 2 tokens by 1 draft pass
    assert (text.draft.writing(), text.target.writing()) == ([1.0], [10.0])
    assert (text.seconds, text.prompt_s, text.writing_s, text.n_written) == (23, 12, 11, 2)


def test_each_repeat_draws_new_texts():
    """Seeds are fixed, so that it raises no false alarm."""
    builders = {"plain": builder(None, {}, temperature=1)}
    (first,), (second,) = race(model(0), model(1), builders, [[1]], 32, 2)["plain"]
    assert first.ids != second.ids


def test_speed_and_predictions_by_hand():
    """Run i is compared with run i: 10 tokens in 6, 5, 7 s with 2 tokens in 2, 4, 3 s.

    These 2 are written after the first round, which takes 10 s and brings 3 tokens more.
    """
    rounds = [Round([1, 2, 3], [1, 2], None, None, 2), Round([1, 5], [1, 2], None, None, 1)]
    # Only the prediction uses the seconds of passes, so they need not add up to the seconds of a
    # text: a pass of one row takes 10, of three rows 20, and a draft pass 1.5 on average.
    plain = [[replace(plain_text([1] * 10, seconds), target=timed([10.0] * 10))]
             for seconds in (6.0, 5.0, 7.0)]
    ours = [[Run(timed([1.0, 2.0]), timed([20.0], [3, 3]), [1, 2, 3, 1, 5], rounds,
                 10.0 + seconds, 10.0, 3)] for seconds in (2.0, 4.0, 3.0)]
    row = race_figures(ours, plain, K=2)
    assert row.pop("tokens_per_s")["median"] == pytest.approx(2 / 3)
    assert row == pytest.approx({
        "low": 1 / 4, "speedup": 7 / 15, "high": 3 / 5, "acceptance": 3 / 4,
        "speedup_with_prompt": 1 / 4,  # of 3 / 12, 5 / 28 and 7 / 26
        "tokens_per_pass": 2.5, "rows_per_pass": 3.0,
        "predicted": walltime_improvement(3 / 4, 2, c=0.15, pass_cost=2.0)})


def test_speed_predicts_with_the_costs_of_its_table_of_passes():
    """One row takes 2 ms, three rows 3 ms, a draft pass 0.5 ms; four rows were not measured."""
    passes = {"draft_ms": {"median": 0.5}, "rows_ms": {1: {"median": 2}, 3: {"median": 3}}}
    of_K = {0: {"acceptance": None}, 2: {"acceptance": 0.5}, 3: {"acceptance": 0.5},
            "auto": {"acceptance": 0.5}}
    races = {"0": copy.deepcopy(of_K), "1": copy.deepcopy(of_K)}
    speed.add_predictions(races, passes)
    of_K[2]["predicted"] = (1 + 0.5 + 0.25) / (2 * 0.25 + 1.5)
    assert races == {"0": of_K, "1": of_K}


def test_simulated_runs_compare_K_at_equal_luck():
    """Tokens per pass never fall as K or alpha grows, and the acceptance is about what was set."""
    tokens = []  # [alpha, K]
    for alpha in (0.6, 0.9):
        builders = {K: simulated_builder(K, alpha) for K in (0, 1, 2, 4, 8)}
        results = race(model(0), model(1), builders, [[i] * 32 for i in range(3)], 30, 1)
        plain, *rows = [race_figures(runs, results[0]) for runs in results.values()]
        assert np.mean([row["acceptance"] for row in rows]) == pytest.approx(alpha, abs=0.1)
        assert plain["tokens_per_pass"] == 1
        tokens.append([row["tokens_per_pass"] for row in (plain, *rows)])
    assert (np.diff(tokens, axis=0) >= 0).all() and (np.diff(tokens, axis=1) >= 0).all()


# ---- figures of the commands, by hand

def test_a_batch_counts_tokens_per_second_and_per_pass(monkeypatch):
    """Plain decoding writes 30 tokens in 30 rounds, K = 2 in 10; a batch of n takes 6 / n s."""
    set_all(monkeypatch, batch, BATCHES=(1, 2), KS=(0, 2),
            load_benchmark_pair=lambda size: (None, None, None),
            written_counts=lambda draft, target, xs, N, n, K: (30, 10 if K else 30),
            interleaved=lambda actions, _: {(n, K): [6 / n] for n, K in actions})
    figures = batch.all_figures(Namespace(N=15, repeats=1))
    assert figures["tokens_per_pass"] == {0: 1, 2: 3}
    for run in figures["runs"].values():
        assert [cell["tokens_per_s"]["median"] for cell in run.values()] == [5, 10]


def test_a_batch_of_n_reads_n_texts_in_a_pass_and_writes_the_same_tokens():
    for n in (1, 3):
        with mock.patch.object(BatchGPT2, "__call__", autospec=True,
                               side_effect=BatchGPT2.__call__) as call:
            counts = batch.written_counts(model(0), model(1), [[1], [2], [3]], 4, n, 0)
        n_texts = [len(each.args[1]) for each in call.call_args_list]
        assert counts == (12, 12) and max(n_texts) == n


def test_the_floor_of_a_pass_is_its_bytes_over_the_bandwidth(monkeypatch):
    """2**20 bytes take 2 ms, a row 4 ms; four draft passes take 8 ms."""
    set_all(monkeypatch, speed, BLOCK={"numba": 2**20},
            floor_times=lambda args, target: ([0.004], [0.002]),
            interleaved=lambda actions, repeats: dict.fromkeys(actions, [0.008]))
    args = Namespace(backend="numba", repeats=1)
    figures = speed.pass_times(args, None, model(0), model(1))
    floor_ms = 2 * pass_bytes(HPARAMS) / 2**20
    assert figures["floor_ms"] == pytest.approx(floor_ms)
    assert figures["bandwidth_GB_per_s"] == pytest.approx(2**20 / 0.002 / 1e9)
    assert figures["row_over_floor"] == pytest.approx(4 / floor_ms)
    assert figures["draft_ms"] == pytest.approx({"median": 2, "low": 2, "high": 2})


def test_a_row_of_a_decoder_by_hand():
    """Two texts of two tokens, in 0.1 s each; plain decoding takes 0.3 s; one differs."""
    plain = [[plain_text([1, 2], 0.3), plain_text([3, 4], 0.3)]]
    ours = [[plain_text([1, 2], 0.1), plain_text([3, 5], 0.1)]]
    row = variants.decoder_row(ours, plain, temperature=0)
    assert row == {"tokens/pass": 1, "positions/pass": 1, "ms/token": pytest.approx(50),
                   **dict.fromkeys(("speedup", "low", "high"), pytest.approx(3)), "same": "1 of 2"}


def test_one_text_has_one_acceptance_at_its_own_temperature(monkeypatch):
    """The bundled pair's texts at temperature 1 are both kinds of texts there."""
    set_all(monkeypatch, acceptance, **SMALL[acceptance])
    half, one = acceptance.all_figures(Namespace(texts=2))["temperatures"].values()
    assert one["own"] == pytest.approx(one["same"])
    assert half["own"] != pytest.approx(half["same"])


def test_the_table_says_which_decoders_are_exact(monkeypatch):
    monkeypatch.setattr(variants, "OPENINGS", ["A fox"])
    rows = [variants.read_row(text) for text in ("lenient", "lenient --lenience 1")]
    args = Namespace(backend="numba", N=3, repeats=1)
    found = variants.rows_at(1.0, rows, args)
    assert [row["exact"] for row in found] == ["yes", "no", "yes"]  # plain decoding first


def test_an_engines_figures_by_hand(monkeypatch):
    """4 tokens take 2 s and 4 passes, with a draft 1 s and, at temperature 0 alone, 2 passes."""
    clock = Clock()

    def write(x, N, temperature, seed, speculative):
        clock.now += 1 if speculative else 2
        return x * N, 2 if speculative and temperature == 0 else 4

    engine = lambda encoder, draft, target: write
    set_all(monkeypatch, engines, our_engine=engine, time=clock, SEEDS=5)
    args = Namespace(N=4, repeats=3)
    row = engines.engine_row(engine, (None, None, None), [[1], [2]], args)
    assert row == {"same": "2 of 2", "tokens/pass at 0": 2, "tokens/pass at 1": 1, "tokens/s": 4,
                   "plain tokens/s": 2}


def test_a_forced_round_is_no_pass_of_a_race():
    rounds = [ForcedRound([1, 2], [1], None, None, 1), Round([3, 4], [3], None, None, 1)]
    runs = [[Run(timed([]), timed([1.0], [2]), [1, 2, 3, 4], rounds, 1.0)]]
    figures = race_figures(runs, runs)
    assert (figures["tokens_per_pass"], figures["rows_per_pass"]) == (4, 2)
    assert patterns.forced_share(runs) == 1 / 2


# ---- the commands

ONCE = "--N 3 --repeats 1"


@pytest.mark.parametrize("module, words, shown", [
    (speed, f"{ONCE} --copy --alpha .6", "alpha 0.6: speed-up"), (batch, ONCE, "3 new tokens"),
    (engines, f"{ONCE} --only here", "3 new tokens"),
    (variants, f"{ONCE} --rows stopping lookup", "3 new tokens"),
    (acceptance, "--texts 2", "2 texts of 12 tokens"),
    (rules, "--rounds 6", "Temperature 0.7: 6 rounds of"),
    (low_acceptance, "--N 8", " | 2 |\n"),  # identical texts at temperature 0
    (patterns, "--repeats 1", "An age, temperature 1:")])
def test_what_a_command_measures_it_shows_again(module, words, shown, tmp_path, monkeypatch):
    if module is patterns:
        pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
    set_all(monkeypatch, module, **SMALL[module])
    path = tmp_path / "figures.json"
    name = module.__name__.removeprefix("benchmarks.")
    status, measured, _ = outcome(main, name, *words.split(), "--json", path)
    assert (status, measured) == outcome(main, name, "--show", path)[:2]
    assert status == 0 and shown in measured and "| --- |" in measured
    is_timed = module not in (acceptance, rules, low_acceptance)
    assert ("Measured on 20" in measured) == is_timed


def fails(args):
    raise ValueError("a fault after minutes")


def run_command(all_figures, paragraphs=lambda figures, args: [str(figures)], **flags):
    """Run measure/command.py with these functions; return the status and what is printed."""
    benchmark = command.Benchmark("Measure.", all_figures, paragraphs)
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return outcome(partial(command.run, "bench", benchmark), *words)


def test_a_file_is_written_after_the_measurement_and_before_figures_are_shown(tmp_path):
    """A file that cannot be written is refused at once; a fault leaves a file as it was."""
    why = "bench: cannot write --json "
    assert run_command(fails, json=tmp_path)[2].startswith(why)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("earlier figures", encoding="utf-8")
    for path in (old, new):
        assert run_command(fails, json=path) == (2, "", "bench: a fault after minutes\n")
    assert old.read_text(encoding="utf-8") == "earlier figures" and not new.exists()
    # As if a reader such as `head` had stopped, or the paragraphs had a fault.
    status, _, err = run_command(lambda args: {"K": 4}, lambda figures, args: fails(args), json=new)
    assert status == 2 and "fault" in err
    assert json.loads(new.read_text(encoding="utf-8")) == {"K": 4}


@pytest.mark.parametrize("text, why", [
    *((text, "need a JSON object in {}, got")
      for text in (b"", b"{", b"\xff", b"[" * 100_000, b"[]", b"3")),
    *((text, "--show {} does not contain figures of this command\n")
      for text in (b"{}", b'{"K": "four"}'))])
def test_a_file_that_holds_no_figures_is_named(text, why, tmp_path):
    path = tmp_path / "figures"
    path.write_bytes(text)
    show_K = lambda figures, args: [f"K = {figures['K']:d}"]
    status, out, err = run_command(fails, show_K, show=path)
    assert (status, out) == (2, "") and err.startswith(f"bench: {why.format(path)}")


def test_every_table_has_a_name_and_shows_its_help():
    files = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert files - {"__init__", "__main__", "command", "models"} == {*NAMES}
    for name in NAMES:
        status, out, _ = outcome(main, name, "--help")
        assert status == 0 and out.startswith(f"usage: python -m benchmarks {name} ")


def test_every_decoder_that_can_run_has_a_row():
    for T in (0.0, 1.0):
        rows = {name for _, name, _ in variants.default_rows(T)}
        assert rows == {name for name, entry in DECODERS.items() if T == 0 or not entry.greedy}


def test_only_the_engines_that_are_asked_for_are_shown():
    stored = ROOT / "benchmarks/results/engines.json"
    _, out, _ = outcome(main, "engines", "--show", stored, "--only", "here", "transformers")
    assert re.findall(r"^\| (\w[^|]*) \|", out, re.MULTILINE) == ["engine", "here", "transformers"]


@pytest.mark.filterwarnings("default")  # those of the packages
@pytest.mark.parametrize("engine, package", [
    ("transformers", "transformers"), ("llama.cpp", "xllamacpp")])
def test_an_engine_writes_our_greedy_texts(engine, package, tmp_path, monkeypatch):
    pytest.importorskip(package)
    set_all(monkeypatch, engines, SEEDS=1, OPENINGS=engines.OPENINGS[:2])
    path = tmp_path / "a.json"
    status, _, err = outcome(main, "engines", "--only", engine, "--N", 20, "--repeats", 1,
                             "--json", path)
    assert status == 0, err
    row = json.loads(path.read_text("utf-8"))["rows"][engine]
    assert row["same"] == "2 of 2" and row["tokens/pass at 0"] > 1.5


def test_the_link_of_a_user_stays_though_it_leads_to_no_file_yet(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "figures.json")
    try_to_write("json", link)
    assert [*tmp_path.iterdir()] == [link] and link.is_symlink()
