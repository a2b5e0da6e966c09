"""main.py --prompts and tools/survey.py: files that are written, interrupted and resumed."""

import codecs
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import main
from lib.backend import products
from lib.pattern import DeadEnd
from lib.terminal import command
from measure.passes import Timed
from run import prompts
from run.flags import parse_args, settings_for_json
from run.prompts import (
    Job,
    Written,
    append_records,
    checked_record,
    jobs_of_lines,
    record_of,
    write_records,
)
from run.task import Task, load_task
from sampling import with_sampling
from speculative import Round, draft_and_verify, generate
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import json_of_run, refusal, run_main, until
from tools import survey
from utils import load_pair
from variants import Models
from wrappers.forced import ForcedRound

ROOT = Path(main.__file__).parent
SIZES = HPARAMS | dict(n_embd=16, n_head=2, n_ctx=32)
PROMPTS = ["A bear", "A bird who sang well", "b", "The end of it", "", "A bear", "Nobody"]
SMALL = "tales-small"  # the default names, for small models here
LARGE = "tales-large"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate((SMALL, LARGE)):
        write_converted(folder / name, SIZES, seed)
    return folder


def flags_of(models):
    """Return the flags of a run whose files are `prompts` and `out`."""
    # processes start faster with NumPy's products
    words = "--n_tokens_to_generate 9 --temperature 1 --dtype float64 --backend numpy"
    return ["--models_dir", str(models), *words.split(), "--prompts", "prompts", "--out", "out"]


@pytest.fixture
def flags(models, tmp_path, monkeypatch):
    """Yield the flags of a run in a folder that has its prompts only."""
    monkeypatch.chdir(tmp_path)
    write_prompts(PROMPTS)
    yield flags_of(models)
    products.set_backend("numba")


@pytest.fixture
def run(flags):
    """Return a function that runs main.py here: status, standard output, errors."""
    return lambda *more: run_main(*flags, *more)


def start_process(flags, *more, **rest):
    return subprocess.Popen([sys.executable, ROOT / "main.py", *flags, *more], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **rest)


def write_prompts(lines):
    """Write the file of prompts, of strings and bytes; the last has no newline."""
    lines = [line if isinstance(line, bytes) else line.encode() for line in lines]
    Path("prompts").write_bytes(b"\n".join(lines))


def out_bytes():
    return Path("out").read_bytes()


def untimed(data):
    """Return the records of a file's bytes, without what a clock says; texts take time."""
    every = [json.loads(line) for line in data.splitlines()]
    for record in every:
        if "ids" in record:
            assert 0 <= record.pop("prompt_s") <= record.pop("time_s")
            assert record.pop("tokens_per_second") is None or len(record["ids"]) > 1
    return every


def records(name="out"):
    return untimed(Path(name).read_bytes())


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    """Return what --out holds after a run of PROMPTS: six texts and an error."""
    with contextlib.chdir(tmp_path_factory.mktemp("whole")):
        write_prompts(PROMPTS)
        status, said, err = run_main(*flags_of(models))
        assert (status, err) == (3, "") and said.startswith("Wrote 6 texts and 1 error to out.\n")
        return out_bytes()


# ---- what is written

def test_a_record_is_that_of_its_prompt_alone(run, flags, models):
    """Every figure is counted again from the rounds of `generate`, with separate models."""
    settings = settings_for_json(parse_args(flags))
    assert settings["temperature"] == 1 and not {"out", "prompts", "models_dir"} & settings.keys()
    assert run("--batch", 3)[0] == 3
    for i, (prompt, record) in enumerate(zip(PROMPTS, records(), strict=True)):
        head = {"index": i, "prompt": prompt, "seed": [123, i], "settings": settings}
        if not prompt:
            why = "line 5: need a prompt of at least one token, got an empty one"
            assert record == head | {"error": why}
            continue
        encoder, *pair = load_pair(SMALL, LARGE, models, np.float64)
        draft, target = (with_sampling(model, temperature=1) for model in pair)
        x = encoder.encode(prompt)
        rng = np.random.default_rng((123, i))
        rounds = list(generate(x, draft_and_verify(draft, target, 4), 9, rng, {256}))
        ids = [token for done in rounds for token in done.ids]
        n_accepted = sum(done.n_accepted for done in rounds)
        n_tested = sum(done.n_tested for done in rounds)
        assert record == head | {
            "text": encoder.decode(x + ids), "ids": ids, "acceptance": n_accepted / n_tested,
            "tokens_per_pass": len(ids) / len(rounds)}


BAD = [(b"once \xff upon", "byte 0xff at position 5"), (b"", "at least one token"),
       (b"a" * 32, "the prompt has 32 tokens, and at most 31 fit (n_ctx = 32): shorten it"),
       (b'{"prompt": "b"', "a line that begins with { must be a JSON object"),
       (b'{"a":' * 10**5, "a JSON object"), (b'{"id": "b"}', '"prompt" that is text'),
       (b'{"prompt": ["b"]}', 'got ["b"]'), (b'{"prompt": "\\ud800"}', "surrogate"),
       (b'{"prompt": "b", "max_tokens": 3}', "did you mean n_tokens_to_generate?"),
       (b'{"prompt": "b", "seed": 1.0}', "\"seed\": need a whole number >= 0, got '1.0'"),
       (b'{"prompt": "b", "n_tokens_to_generate": true}', "number >= 0, got 'True'"),
       (b'{"prompt": "b", "temperature": -1}', "need 0 <= temperature < inf, got -1"),
       (b'{"prompt": "b", "temperature": "warm"}', "\"temperature\": need a number, got 'warm'"),
       *((f'{{"prompt": "b", "id": {value}}}'.encode(), "need a finite number, got ")
         for value in ("NaN", "1e999", '[{"a": -1.5e400}]')),
       (b'{"prompt": "b", "stop": "."}', '"stop" must be a list of texts, got "."'),
       (b'{"prompt": "b", "stop": [""]}', '"stop" needs a text, and an empty one'),
       (b'{"prompt": "b", "id":' + b"[" * 20_000 + b"]" * 20_000 + b"}", "a JSON object")]


def test_a_bad_line_becomes_its_error_and_the_others_are_written(run):
    write_prompts(["A bear", *(line for line, _ in BAD), "b"])
    status, said, _ = run()
    assert status == 3 and f"Wrote 2 texts and {len(BAD)} errors to out" in said
    first, *bad, last = records()
    assert len(first["ids"]) == len(last["ids"]) == 9
    assert [record["index"] for record in bad] == [*range(1, len(BAD) + 1)]
    for record, (_, words) in zip(bad, BAD):
        assert words in record["error"] and "text" not in record
        assert record["error"].startswith(f"line {record['index'] + 1}: ")
        assert "--window" not in record["error"]  # --prompts refuses it


OWN = [{"seed": 5}, {"temperature": 0}, {"n_tokens_to_generate": 3}, {"n_tokens_to_generate": 0},
       {"stop": ["b", "c", "e"]}, {"seed": 7, "temperature": 0.5, "n_tokens_to_generate": 30}]


def test_a_lines_own_settings_give_the_text_of_the_flags(run, flags):
    """Other texts of the batch, with other settings, do not change it."""
    # without its own seed a text has the seed (--seed, index)
    lines = [{"seed": 0, **entries} for entries in OWN]
    write_prompts(["A bear", *(json.dumps({"prompt": "A bird", "id": "x", **entries})
                               for entries in lines)])
    assert run()[0] == 0
    for entries, record in zip(lines, records()[1:], strict=True):
        words = []
        for name, value in entries.items():
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{name}", one]
        alone = json_of_run(*flags[:-4], "--prompt", "A bird", *words)
        assert record["ids"] == alone["speculative"]["ids"]
        assert record.items() >= (entries | {"id": "x"}).items()
    assert run("--out", "alone", "--batch", 1)[0] == 0 and records("alone") == records()
    before = out_bytes()
    assert run()[0] == 0 and out_bytes() == before  # resumed: nothing is written again


def test_a_temperature_at_which_the_decoder_does_not_work_is_the_lines_error(run):
    write_prompts(['{"prompt": "A bear", "temperature": 1}', "b"])
    assert run("--decoder", "big_little", "--temperature", 0)[0] == 3
    refused, written = records()
    assert refused["error"].startswith("line 1: --decoder big_little needs --temperature 0")
    assert len(written["ids"]) == 9


def test_errors_are_counted_again_until_they_are_tried_again(run):
    write_prompts(["A bear", "b", "", "The end of it", "", "b"])
    for said in (run()[1], run()[1]):  # the second run finds all records written
        assert said.endswith("\nErrors: 2 of 6 records, the first in line 3. To try again, correct "
                             "the prompts, delete line 3 of out and all lines after it, and run "
                             "the same command.\n")
    assert said.startswith("Wrote 0 texts and 0 errors to out, which already had 6 records.\n")


def test_dashes_are_standard_input_and_output_and_the_report_goes_to_errors(whole, flags):
    """Standard input is a pipe here, which is read once."""
    process = start_process(flags, "--prompts", "-", "--out", "-", stdin=subprocess.PIPE)
    said, err = process.communicate(Path("prompts").read_text("utf-8"), timeout=60)
    assert process.returncode == 3 and untimed(said) == untimed(whole)
    assert err.startswith("Wrote 6 texts and 1 error to standard output.\n")
    assert err.endswith("\nErrors: 1 of 7 records, the first in line 5.\n")
    assert not {"-", "-.lock"} & {*os.listdir()}


@pytest.mark.parametrize("more", [[], ["--out", "-"]])
def test_whole_records_stay_after_ctrl_c(flags, more, capfd):
    def interrupted_texts(jobs):
        next(jobs)
        yield Written()  # a text without a round
        raise KeyboardInterrupt

    args = parse_args([*flags, *more])
    main_of_test = command("main.py")(
        lambda argv: write_records(args, lambda task, args: interrupted_texts))
    assert main_of_test([]) == 130
    out, err = capfd.readouterr()
    assert err == "main.py: interrupted\n"
    lines = out if "--out" in more else out_bytes().decode()
    assert lines.count("\n") == 1 and json.loads(lines)["prompt"] == "A bear"


def test_marks_newlines_short_contexts_and_no_new_tokens(run):
    """A byte order mark and a newline are no part of a prompt; 32 tokens fit the context."""
    mark = codecs.BOM_UTF8
    write_prompts([mark + b'{"prompt": "A bear"}', mark + b"b", b"a" * 30 + b"\r", b"a" * 31, b""])
    assert run()[0] == 0
    assert [(record["prompt"], len(record["ids"])) for record in records()] == [
        ("A bear", 9), ("\ufeffb", 9), ("a" * 30, 2), ("a" * 31, 1)]
    assert run("--n_tokens_to_generate", 0, "--out", "none")[0] == 0
    record = json.loads(Path("none").read_text("utf-8").splitlines()[2])
    assert (record["text"], record["ids"], record["tokens_per_pass"]) == ("a" * 30, [], None)
    assert (record["time_s"], record["prompt_s"], record["tokens_per_second"]) == (0, 0, None)


def test_a_record_is_in_the_file_before_the_next_text_is_written(tmp_path):
    """So an interrupted run keeps it; a prompt with an error reaches no writer."""
    path = tmp_path / "out"
    n_records = []  # in the file, whenever the next text is wanted
    jobs = [Job({"index": 0}, {}, "a task"), Job({"index": 1, "error": "a reason"}, {}, None),
            *(Job({"index": i}, {}, "a task") for i in (2, 3))]

    def write_texts(jobs):
        for _ in jobs:
            n_records.append(path.read_bytes().count(b"\n"))
            yield Written(error="a dead end")

    with open(path, "a+b") as out:
        assert append_records(out, jobs, write_texts, 0) == ([True] * 4, 0)
    assert n_records == [0, 2, 3]
    assert [record["error"] for record in records(path)] == [
        "a dead end", "a reason", "a dead end", "a dead end"]


def task_of_toys(**fields):
    """Return a task whose texts are lists of ids."""
    return Task(SimpleNamespace(decode=str, end_of_text=9), Models(None, None, {}), None, {}, {9},
                N=4, seed=0, n_ctx=9, x=[1], **fields)


def test_a_forced_round_is_no_pass_and_the_prompt_is_read_after_it():
    """Two tokens are forced in 1 s; the prompt and a token take until 5 s, a token until 7 s."""
    rounds = [ForcedRound([2, 3], [2], None, None, 1), Round([4], [], None, None, 0),
              Round([5], [], None, None, 0)]
    record = record_of(Job({}, {}, task_of_toys()), Written(rounds, [1.0, 5.0, 7.0],
                                                               n_passes=2))
    assert (record["tokens_per_pass"], record["acceptance"]) == (2, None)
    assert (record["time_s"], record["prompt_s"], record["tokens_per_second"]) == (7, 5, 1 / 2)
    # the last logarithm belongs to a token after a stop token, which is not in the text
    written = Written(rounds, [1.0, 5.0, 7.0], [-1.0, -2.0, -3.0, -4.0, -5.0])
    record = record_of(Job({}, {}, task_of_toys(logprobs=True)), written)
    assert record["logprobs"] == [-1, -2, -3, -4]


def test_the_seconds_of_rounds_are_noted_and_a_dead_end_ends_the_text(monkeypatch):
    """The text begins at 10 s; a round ends at 13 s."""
    monkeypatch.setattr(prompts.time, "perf_counter", iter([10.0, 13.0]).__next__)
    step = mock.Mock(side_effect=[Round([4, 5], [], None, None, 0), DeadEnd("beyond 9 new")])
    monkeypatch.setattr(prompts, "build", lambda *args: step)
    written = Written()
    models = Models(None, Timed(None), {})
    note = prompts.noting_step(task_of_toys(), models, written, mock.Mock())
    rounds = [*generate([1], note, 4, np.random.default_rng(0), {9})]
    assert [result.ids for result in rounds] == [[4, 5], [9]] and written.seconds == [3.0]
    assert record_of(Job({"index": 0}, {}, task_of_toys()), written) == {
        "index": 0, "error": "beyond 9 new"}


# ---- resumed

def test_a_chat_is_resumed_on_a_later_day_than_its_template_wrote():
    days = [{"prompt": day, "messages": ["hi"], "settings": {}} for day in ("Monday", "Tuesday")]
    assert prompts.asked_of(days[0]) == prompts.asked_of(days[1])


@pytest.mark.parametrize("n_lines, n_more, had", [
    (0, 5, ""), (1, -1, ""),  # bytes beyond the whole lines
    (3, 40, ", which already had 3 records"),
    (6, 0, ", which already had 6 records")])
def test_a_file_cut_at_any_byte_is_resumed_to_the_same_texts(n_lines, n_more, had, whole, run):
    lines = whole.splitlines(keepends=True)
    kept = b"".join(lines[: n_lines + min(n_more, 0)])
    Path("out").write_bytes(whole[: len(b"".join(lines[:n_lines])) + n_more])
    status, said, _ = run("--batch", 2)
    assert status == 3 and f" to out{had}.\n" in said
    assert out_bytes().startswith(kept) and records() == untimed(whole)


@pytest.mark.parametrize("flag, value, there", [
    ("temperature", 0.5, 1.0), ("decoder", "lookup", "speculative"), ("K", 2, 4),
    ("n_tokens_to_generate", 8, 9), ("target_model_size", SMALL, LARGE)])
def test_a_file_of_different_flags_is_refused_and_kept(flag, value, there, whole, flags):
    Path("out").write_bytes(whole[:-9])
    why = refusal(main.main, *flags, f"--{flag}", value)
    assert (f"line 1 of out was written with {flag} {there!r}, but this run has {value!r}. "
            "Choose a new --out.\n") in why
    assert out_bytes() == whole[:-9] and not Path("out.lock").exists()


def test_a_record_of_a_different_line_is_refused(flags):
    pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
    args = parse_args(flags)
    task = load_task(args, prompt=".")
    job_of = lambda line: next(jobs_of_lines([json.dumps(line).encode()], args, task))
    for entry in ({"prompt": "A bee"}, {"id": "x"}, {"seed": 5}, {"temperature": 0.5},
                  {"stop": ["b"]}, {"n_tokens_to_generate": 3}, {"regex": "b+"}):
        jobs = [job_of({"prompt": "b"}), job_of({"prompt": "b"} | entry)]
        for written, asked in (jobs, reversed(jobs)):
            line = json.dumps(record_of(written, Written())).encode()
            with pytest.raises(ValueError, match=f"^here was written with {[*entry][0]} "):
                checked_record(line, asked, "here")
            assert checked_record(line, written, "here")


def test_more_records_than_prompts_are_refused(whole, flags):
    Path("out").write_bytes(whole)
    write_prompts(PROMPTS[:3])
    assert ("line 4 of out was written with prompt 'The end of it', but this run has None"
            in refusal(main.main, *flags))


@pytest.mark.parametrize("written", [
    b"notes\n", b"notes", b'{"index": 0, "seed": [123, 0]}\n'])
def test_a_file_of_something_else_is_refused_and_kept(written, flags):
    Path("out").write_bytes(written)
    assert "line 1 of out is not a record" in refusal(main.main, *flags)
    assert out_bytes() == written and not Path("out.lock").exists()


@pytest.mark.parametrize("flags_of_run", ["--decoder skip --skip 1", "--logprobs"])
def test_settings_that_a_record_shows_differently_are_resumed(flags_of_run, run):
    """JSON has lists where --skip has a tuple; the log-probabilities have the flag's name."""
    words = flags_of_run.split()
    assert run(*words)[0] == 3
    before = records()
    Path("out").write_bytes(out_bytes()[:-9])
    assert run(*words)[0] == 3 and records() == before


def test_one_process_writes_and_a_second_is_refused_until_it_has_ended(run, flags):
    """The first has written four records and waits for more prompts."""
    with start_process(flags, "--prompts", "-", "--batch", "1", stdin=subprocess.PIPE) as process:
        process.stdin.write("".join(f"{prompt}\n" for prompt in PROMPTS[:4]))
        process.stdin.flush()
        until(lambda: Path("out").exists() and out_bytes().count(b"\n") == 4)
        assert run() == (2, "", "main.py: --out out is being written by another process: wait for "
                                "it, or choose a new --out\n")
        process.kill()
    assert out_bytes().count(b"\n") == 4 and "to out, which already had 4 records.\n" in run()[1]
    assert len(records()) == 7 and not Path("out.lock").exists()


# ---- what is missing

def test_many_texts_name_greenlet_where_it_is_missing(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "wrappers.batch", raising=False)
    assert refusal(main.main, *flags) == (
        "main.py: the package greenlet is missing: pip install -r requirements.txt\n")


# ---- tools/survey.py: the same file, by workers of which one is killed

def workers_of(pid):
    """Return the ids of the processes that Dask has spawned for a survey."""
    import psutil  # comes with Dask

    return [child.pid for child in psutil.Process(pid).children(recursive=True)
            if any("spawn_main" in word for word in child.cmdline())]


def test_a_killed_worker_costs_no_prompt_and_changes_no_text(flags, run):
    """The run resumes the file of main.py, whose last line is unfinished."""
    pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    write_prompts(PROMPTS * 20)
    assert run()[0] == 3
    before = records()
    Path("out").write_bytes(out_bytes()[: out_bytes().index(b"\n") + 40])
    files = ("--prompts", Path("prompts").resolve(), "--out", Path("out").resolve())
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.survey", *flags, *files, "--workers", "2"], cwd=ROOT,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: out_bytes().count(b"\n") > 5 or process.poll() is not None)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        n_then = out_bytes().count(b"\n")
        said, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 3 and 5 < n_then < 140, err
    assert "Wrote 119 texts and 20 errors to" in said and "which already had 1 record.\n" in said
    assert records() == before


def texts_with_fault(fault, monkeypatch):
    """Return the texts of six jobs, the third of which raises an error."""
    monkeypatch.setattr(survey, "AHEAD", 3)
    futures = [mock.Mock(result=mock.Mock(return_value=Written(["a round"]))) for _ in range(6)]
    futures[2].result.side_effect = fault
    client = mock.Mock(submit=mock.Mock(side_effect=futures))
    return [*survey.finished_texts(client, None, (Job({"index": i}, {}, None) for i in range(6)))]


def test_a_prompt_that_kills_workers_is_an_error_and_other_faults_end_the_run(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    killed = distributed.KilledWorker("written_text", mock.Mock(address="tcp"), 3)
    texts = texts_with_fault(killed, monkeypatch)
    assert [text.rounds for text in texts] == [["a round"]] * 2 + [[]] + [["a round"]] * 3
    assert "KilledWorker" in texts[2].error and not texts[3].error
    with pytest.raises(OSError, match="a worker could not write a text: MemoryError: no room"):
        texts_with_fault(MemoryError("no room"), monkeypatch)


def test_a_worker_writes_trees_too_whose_guesses_are_rivals(flags):
    words = (*flags, "--decoder", "tree", "--logprobs")
    given = {"prompt": "A bear"}
    task = prompts.task_of_line(given, 0, survey.load_once(words))
    record = record_of(Job({}, given, task), survey.written_text(words, given, 0))
    assert len(record["ids"]) == len(record["logprobs"]) == 9 and record["acceptance"] is None
