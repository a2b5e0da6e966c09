"""tools/survey.py: two workers, one of them killed; files gone on with; figures counted by hand."""

import contextlib
import importlib.util
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import main
from safetensors.numpy import load_file, save_file
from lib.demo.prompts import head_of
from tests.checkpoints import HPARAMS, write_converted
from tests.small import SMALL, SMALLER, write_heads
from tools import survey, survey_worker
from tools.survey_summary import ratio_and_error, read_records, summarise, tell
from variants import DECODERS

HAS_DASK = importlib.util.find_spec("distributed") is not None
needs_dask = pytest.mark.skipif(not HAS_DASK, reason="needs requirements/cluster.txt")
PROMPTS = ["A bear", "A bird who sang well", "b", "", "The end of it"] * 16
N = 24


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with two small models, and heads for the larger."""
    folder = tmp_path_factory.mktemp("models")
    sizes = HPARAMS | dict(n_embd=16, n_head=2, n_ctx=64)
    for seed, name in enumerate(("small", "large")):
        write_converted(folder / name, sizes, seed)
    small, large = (load_file(folder / name / "params.safetensors") for name in ("small", "large"))
    close = {name: large[name] + np.float32(0.02) * small[name] for name in large}  # they agree
    save_file(close, folder / "small" / "params.safetensors")
    write_heads(folder / "large", sizes["n_embd"], n_vocab=sizes["n_vocab"])
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder, with the file of prompts."""
    monkeypatch.chdir(tmp_path)
    write(PROMPTS)


@pytest.fixture
def flags(models, here):
    return ["--models_dir", str(models), "--draft_model_size", "small", "--target_model_size",
            "large", "--n_tokens_to_generate", str(N), "--temperature", "1"]


def write(lines):
    Path("prompts").write_text("\n".join(lines), encoding="utf-8")


def records(path="out.jsonl"):
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def run(*argv, command=survey.main):
    """Status, standard output, standard error of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = command(list(map(str, argv)))
    return status, out.getvalue(), err.getvalue()


def task_and_heads(flags, *more):
    """A Task without a cluster, and what the records of all prompts begin with."""
    words = (*flags, *more)
    args = main.parse_args(words)
    with open("prompts", "rb") as lines:
        return survey_worker.load(words), [head_of(i, line, args) for i, line in enumerate(lines)]


# ---- workers

def wait_for(found, seconds=240):
    """What `found()` returns, as soon as that is anything."""
    for _ in range(20 * seconds):
        if result := found():
            return result
        time.sleep(0.05)
    raise TimeoutError("nothing came")


def workers_of(pid):
    """The processes that Dask has spawned for a survey."""
    import psutil  # comes with Dask

    return [child.pid for child in psutil.Process(pid).children(recursive=True)
            if any("spawn_main" in word for word in child.cmdline())]


@needs_dask
def test_a_killed_worker_costs_no_prompt_and_changes_no_text(flags):
    """And the file is gone on with: two records are kept, and a third, which is torn, is not."""
    assert run(*flags, "--prompts", "prompts", "--out", "alone", command=main.main)[0] == 0
    task, heads = task_and_heads(flags)
    told = {"decoder": "speculative", "settings": survey.Run(
        survey.parse_args(["--prompts", "prompts", "--out", "new"])[0], "speculative", flags
        ).told["settings"]}
    there = [survey_worker.record_of(task, head | told, error) for head, error in heads[:3]]
    there[1]["text"] = "as it was"
    Path("out.jsonl").write_text("".join(json.dumps(record) + "\n" for record in there)[:-9])

    process = subprocess.Popen(
        [sys.executable, "-m", "tools.survey", "--prompts", Path("prompts").resolve(), "--workers",
         "2", "--out", Path("out.jsonl").resolve(), *flags], cwd=survey_worker.ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        n_lines = lambda: Path("out.jsonl").read_bytes().count(b"\n")
        wait_for(lambda: n_lines() > 4 or process.poll() is not None)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        n_then = n_lines()
        said, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert n_then < len(PROMPTS), "all was over before the worker was killed"
    assert f"{len(PROMPTS)} prompts" in said and f"{len(PROMPTS) - 2} now, 2 before" in said

    got, alone = records(), records("alone")
    assert [record["index"] for record in got] == list(range(len(PROMPTS)))
    assert got[1].pop("text") == "as it was" and alone[1].pop("text") != "as it was"
    for record, other in zip(got, alone, strict=True):
        assert {name: record[name] for name in record if name in other} == other
    assert ["error" in record for record in got] == [not prompt for prompt in PROMPTS]


class Client:
    """In place of Dask's: what is submitted is done when it is asked for, the last first."""

    def __init__(self, fault=None):
        self.fault, self.keys = fault, []

    def submit(self, function, *args, pure):
        self.keys.append(len(self.keys))
        return type("Future", (), {"key": self.keys[-1], "result": lambda _: self.do(
            function, *args)})()

    def do(self, function, words, expected, head, error):
        if head["index"] == 2 and self.fault:
            raise self.fault
        return function(words, expected, head, error)


class Completed(list):
    """In place of Dask's as_completed."""

    add = list.append

    def __iter__(self):
        while self:
            yield self.pop()


def survey_with(client, flags, monkeypatch, **fields):
    """A Run that has written with a stand-in for the cluster."""
    monkeypatch.setattr("distributed.as_completed", Completed)
    args, rest = survey.parse_args(["--prompts", "prompts", "--out", "out.jsonl", *flags])
    a_run = survey.Run(args, "speculative", rest)
    for name, value in fields.items():
        setattr(a_run, name, value)
    a_run.write(client)


@needs_dask
def test_what_comes_out_of_order_is_written_in_order(flags, monkeypatch):
    monkeypatch.setattr(survey, "AHEAD", 7)
    write(PROMPTS[:20])
    survey_with(Client(), flags, monkeypatch)
    assert [record["index"] for record in records()] == list(range(20))


@needs_dask
def test_a_prompt_that_workers_die_of_has_an_error_and_the_others_go_on(flags, monkeypatch):
    from distributed import KilledWorker

    write(PROMPTS[:4] + ["b"])
    survey_with(Client(KilledWorker("answer", type("", (), {"address": "tcp"}), 3)), flags,
                monkeypatch)
    assert ["error" in record for record in records()] == [False, False, True, True, False]
    assert "KilledWorker" in records()[2]["error"]


@needs_dask
@pytest.mark.parametrize("fault", [MemoryError("no room"), ConnectionError("gone")])
def test_workers_that_cannot_work_end_the_run_with_one_sentence(flags, monkeypatch, fault):
    with pytest.raises(OSError, match="a scheduler, and workers that can load the models, got"):
        survey_with(Client(fault), flags, monkeypatch)


def test_workers_without_this_code_are_refused():
    class Elsewhere:
        def run(self, function, source):
            function(source.replace("tools.", "no_tools."))

    with pytest.raises(ValueError, match="started in this repository's folder, got ModuleNot"):
        survey.check_workers(Elsewhere())


@needs_dask
def test_a_worker_with_other_weights_or_code_is_refused(flags, monkeypatch):
    survey_worker.load_once.cache_clear()
    with pytest.raises(OSError, match="need the same code and weights everywhere, got others on"):
        survey_with(Client(), flags, monkeypatch, fingerprint="of something else")


@needs_dask
def test_a_scheduler_that_is_not_there_is_one_line(flags, monkeypatch):
    monkeypatch.setattr(survey, "TIMEOUT", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens
        status, said, err = run("--prompts", "prompts", "--out", "out.jsonl", *flags,
                                "--scheduler", "tcp://127.0.0.1:{}".format(free.getsockname()[1]))
    assert status == 2 and said == "" and err.count("\n") == 1 and "Timed out" in err


@needs_dask
def test_nothing_left_to_do_starts_no_worker(flags, monkeypatch):
    write(["A bear"])
    survey_with(Client(), flags, monkeypatch)
    monkeypatch.setattr(survey, "cluster", None)
    status, said, _ = run("--prompts", "prompts", "--out", "out.jsonl", *flags)
    assert status == 0 and "1 prompts in out.jsonl: 0 now, 1 before" in said


# ---- records

@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_is_counted(name, flags):
    write(["A bear who", "b"])
    small = {flag: value for flag, value in SMALL.items() if flag in DECODERS[name].flags}
    small |= SMALLER.get(name, {})
    words = [f"--{flag}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
             for flag, value in small.items()]
    task, heads = task_and_heads(flags, *words, "--decoder", name,
                                 *(["--temperature", 0] if DECODERS[name].greedy else []))
    for head, error in heads:
        record = survey_worker.record_of(task, head, error)
        assert len(record["ids"]) == N and N / record["passes"] == record["tokens_per_pass"]
        if task.is_tree:
            assert record["acceptance"] is record["examined"] is record["accepted"] is None
        elif sum(record["examined"]):
            ratio = sum(record["accepted"]) / sum(record["examined"])
            assert record["acceptance"] == ratio
            assert all(a <= b for a, b in zip(record["accepted"], record["examined"]))
            further = record["examined"][1:]  # only what was accepted goes further
            assert all(a >= b for a, b in zip(record["accepted"], further))


def test_one_prompt_that_fails_has_its_error(flags, monkeypatch):
    task, [(head, _), *_] = task_and_heads(flags)
    broken = task._replace(new_target=lambda: 1 / 0)
    monkeypatch.setattr(survey_worker, "load_once", lambda *_: broken)
    assert survey_worker.answer((), "", head, None) == head | {
        "error": "ZeroDivisionError: division by zero"}


@needs_dask
def test_several_decoders_have_a_file_each(flags):
    args, rest = survey.parse_args(["--prompts", "prompts", "--out", "out.jsonl", *flags,
                                    "--decoder", "tree --widths 3,2", "lookup"])
    tree, lookup = (survey.Run(args, decoder, rest) for decoder in args.decoder)
    assert [str(run.out) for run in (tree, lookup)] == ["out-tree-widths-3,2.jsonl",
                                                        "out-lookup.jsonl"]
    assert tree.told["decoder"] == "tree" and tree.told["settings"]["widths"] == [3, 2]
    assert lookup.told["settings"] == {name: value for name, value in tree.told["settings"].items()
                                       if name != "widths"}


# ---- the summary

def record(index, n_ids, passes, examined, accepted, decoder="speculative", **settings):
    return {"index": index, "decoder": decoder, "settings": settings, "ids": [0] * n_ids,
            "passes": passes, "examined": examined, "accepted": accepted}


def test_the_figures_are_those_counted_by_hand(here):
    """Places: 3 + 1 of 4 + 2, then 1 of 3 + 1; tokens: 6 + 3 in 4 + 2 passes."""
    bad = {"index": 2, "decoder": "speculative", "settings": {"K": 2}, "error": "no"}
    lines = [record(0, 6, 4, [4, 3], [3, 1], K=2), record(1, 3, 2, [2, 1], [1, 0], K=2), bad,
             record(3, 0, 0, [], [], K=2)]
    Path("out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    summary = summarise(read_records(["out.jsonl"]))
    row = summary["rows"]["speculative"]
    assert summary["settings"] == "--K 2"
    assert (row["prompts"], row["errors"], row["tokens"]) == (4, 1, 9)
    assert row["tokens_per_pass"] == (1.5, 0)  # both have 1.5
    first, second = row["acceptance"]
    # r = 4 / 6; a - r b = 3 - 8/3, 1 - 4/3 = 1/3, -1/3; se^2 = 2 / 1 * 2/9 / 36 = 1/81
    assert first == pytest.approx((4 / 6, 1.96 / 9))
    # r = 1 / 4; a - r b = 1/4, -1/4; se^2 = 2 * 1/8 / 16 = 1/64
    assert second == pytest.approx((1 / 4, 1.96 / 8))
    status, said, _ = run("--summary", "out.jsonl")
    assert status == 0 and "| acceptance at place 2 | 0.250 ± 0.245 |" in said
    assert "| tokens per pass | 1.500 ± 0.000 |" in said and "1.96 standard errors" in said


def test_an_interval_of_95_percent_holds_the_truth_that_often():
    """Texts with acceptances of their own: guesses are no independent trials. 1,500 surveys; by
    chance alone (a fixed seed) the share lies within 0.02 of what it is, at four deviations."""
    rng, inside = np.random.default_rng(1), 0
    for _ in range(1500):
        chance, b = rng.beta(6, 4, 100), rng.integers(1, 40, 100)
        r, error = ratio_and_error(rng.binomial(b, chance), b)
        inside += abs(r - 0.6) < error
    assert 0.92 < inside / 1500 < 0.97


def test_too_few_prompts_have_no_interval():
    assert ratio_and_error([], []) == ratio_and_error([0], [0]) == (None, None)
    assert ratio_and_error([1, 0], [2, 0]) == (0.5, None)


def test_a_name_has_what_differs(here):
    lines = [record(0, 6, 4, [4], [3], K=2, seed=1), record(0, 6, 4, [4], [3], K=4, seed=1),
             record(0, 6, 4, None, None, "tree", widths=[3, 2], seed=1)]
    Path("out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = summarise(read_records(["out.jsonl"]))
    assert list(summary["rows"]) == ["speculative --K 2", "speculative --K 4", "tree --widths 3,2"]
    assert summary["settings"] == "--seed 1"
    assert "| acceptance at place 1 | 0.750 ± - | 0.750 ± - | - |" in "\n".join(tell(summary))


def test_the_summary_is_drawn_twice_for_light_and_dark_pages(here):
    pytest.importorskip("matplotlib")
    lines = [record(i, 6 - i, 4, [4, 3], [3, 1 + i]) for i in range(2)]
    lines += [record(0, 6, 4, None, None, "tree")]
    Path("out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("--summary", "out.jsonl", "--plot", "p.svg")[0] == 0
    for name in ("p.svg", "p-dark.svg"):
        assert "place in the round" in Path(name).read_text(encoding="utf-8")


def test_no_records_are_no_error(here):
    Path("out.jsonl").write_text("")
    assert run("--summary", "out.jsonl")[0] == 0


# ---- flags

@pytest.mark.parametrize("line, words", [
    ("", "--prompts or --summary"), ("--prompts prompts --summary x", "--prompts or --summary"),
    ("--summary x --K 4", "no other flags with --summary, got --K 4"),
    ("--summary none.jsonl", "No such file"), ("--summary prompts", "records of tools.survey"),
    ("--summary x --plot x.png", "--plot to end in .svg"),
    *((f"--prompts prompts {line}", words) for line, words in [
        ("", "--out"), ("--out o --workers 0", "--workers >= 1"),
        ("--out o --workers 2 --scheduler x", "--workers or --scheduler"),
        ("--out o --decoder lookup lookup", "every decoder once"),
        ("--out o --batch 2", "no --batch"), ("--out o --K auto", "need a number for --K"),
        ("--out o --show", "without --show"), ("--out prompts", "need two files"),
        ("--out o --decoder tree --widths auto", "so that no text hangs on a clock"),
        ("--out o --decoder stopping", "so that no text hangs on a clock"),
        ("--out o --decoder big_little", "--temperature 0"),
        ("--out o --target_model_size none", "got none")])])
def test_flags_that_do_not_fit_are_refused_in_one_line(line, words, flags):
    if "--prompts" in line and not HAS_DASK:
        pytest.skip("needs requirements/cluster.txt")
    status, said, err = run(*(flags if "--out" in line else []), *line.split())
    assert status == 2 and said == "" and err.count("\n") == 1 and words in err
    assert not Path("o").exists()


def test_without_dask_the_line_says_what_to_install(flags, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name: None if name == "distributed" else find(name))
    status, _, err = run("--prompts", "prompts", "--out", "o", *flags)
    assert status == 2 and "pip install -r requirements/cluster.txt" in err
