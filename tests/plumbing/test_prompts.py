"""main.py --prompts and tools/survey.py: files that are written, interrupted and resumed."""

import codecs
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import main
from lib.backend import products
from lib.pattern import DeadEnd
from lib.terminal import command
from run.flags import parse_args, settings_for_json
from run.prompts import (
    Job,
    append_records,
    prompt_lines,
    record_of,
    repeated_ids,
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
    """Return a folder with two small models."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate((SMALL, LARGE)):
        write_converted(folder / name, SIZES, seed)
    return folder


@pytest.fixture
def flags(models, tmp_path, monkeypatch):
    """Yield the flags of a run in an empty folder; its files are `prompts` and `out`."""
    monkeypatch.chdir(tmp_path)
    write_prompts(PROMPTS)
    # processes start faster with NumPy's products
    words = "--n_tokens_to_generate 9 --temperature 1 --dtype float64 --backend numpy"
    yield ["--models_dir", str(models), *words.split(), "--prompts", "prompts", "--out", "out"]
    products.set_backend("numba")


@pytest.fixture
def run(flags):
    """Return a function that runs main.py here: status, standard output, errors."""
    return lambda *more: run_main(*flags, *more)


def start_process(flags, *more, **rest):
    """Start main.py in a separate process."""
    return subprocess.Popen([sys.executable, ROOT / "main.py", *flags, *more], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **rest)


def write_prompts(lines):
    """Write the file of prompts, of strings and bytes; the last has no newline."""
    lines = [line if isinstance(line, bytes) else line.encode() for line in lines]
    Path("prompts").write_bytes(b"\n".join(lines))


def out_bytes():
    """Return what --out holds."""
    return Path("out").read_bytes()


def records(name="out"):
    """Return the records of a file."""
    return [json.loads(line) for line in Path(name).read_bytes().splitlines()]


@pytest.fixture
def whole(run):
    """Return what --out holds after a run of PROMPTS: six texts and an error."""
    status, said, err = run()
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


def test_an_id_is_copied_and_named_if_several_prompts_have_it(run):
    write_prompts(['{"prompt": "A bear", "id": "x1"}', '{"id": "x1", "prompt": "b", "seed": 0}',
                   "A bear", '{"prompt": "b", "id": "x2"}'])
    for _ in range(2):  # the second time all records are there
        status, said, _ = run()
        assert status == 0 and said.endswith('\nSeveral prompts have the id "x1".\n')
    assert [(record.get("id"), record["prompt"]) for record in records()] == [
        ("x1", "A bear"), ("x1", "b"), (None, "A bear"), ("x2", "b")]
    assert repeated_ids({"0": 1, **dict.fromkeys("1234567", 2)}) == (
        "\nSeveral prompts have the id 1, 2, 3, 4, 5 and 2 more.")


BAD = [(b"once \xff upon", "byte 0xff at position 5"), (b"", "at least one token"),
       (b"a" * 32, "the prompt has 32 tokens, and at most 31 fit (n_ctx = 32): shorten it"),
       (b'{"prompt": "b"', "a line that begins with { must be a JSON object"),
       (b'{"a":' * 10**5, "a JSON object"), (b'{"id": "b"}', '"prompt" that is text'),
       (b'{"prompt": ["b"]}', 'got ["b"]'), (b'{"prompt": "\\ud800"}', "surrogate"),
       (b'{"prompt": "b", "max_tokens": 3}', "line 10: 'max_tokens' is not a choice: did you "
        "mean n_tokens_to_generate?"),
       (b'{"prompt": "b", "user": 3}', "line 11: 'user' is not a choice: choose from prompt, "),
       (b'{"prompt": "b", "seed": -1}', "\"seed\": need a whole number >= 0, got '-1'"),
       (b'{"prompt": "b", "seed": 1.0}', "\"seed\": need a whole number >= 0, got '1.0'"),
       (b'{"prompt": "b", "n_tokens_to_generate": true}', "number >= 0, got 'True'"),
       (b'{"prompt": "b", "temperature": -1}', "need 0 <= temperature < inf, got -1"),
       (b'{"prompt": "b", "temperature": "warm"}', "\"temperature\": need a number, got 'warm'"),
       *((f'{{"prompt": "b", {entries}}}'.encode(), "a JSON object: need a finite number, got ")
         for entries in ('"id": NaN', '"id": -Infinity', '"id": 1e999', '"id": [{"a": -1.5e400}]',
                         '"other": 1e999')),
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


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(run):
    write_prompts([codecs.BOM_UTF8 + b'{"prompt": "A bear"}', "b", codecs.BOM_UTF8 + b"b"])
    assert run()[0] == 0
    assert [record["prompt"] for record in records()] == ["A bear", "b", "\ufeffb"]


@pytest.mark.parametrize("entries", [
    {"seed": 5}, {"temperature": 0}, {"n_tokens_to_generate": 3}, {"n_tokens_to_generate": 0},
    {"stop": ["b", "c", "e"]}, {"seed": 7, "temperature": 0.5, "n_tokens_to_generate": 30}])
def test_a_lines_own_settings_give_the_text_of_the_flags(run, flags, entries):
    """Other texts of the batch, with other settings, do not change it."""
    entries = {"seed": 0, **entries}  # without its own a text has the seed (--seed, index)
    write_prompts(["A bear", json.dumps({"prompt": "A bird", **entries}), "b",
                   json.dumps({"prompt": "A bird", "temperature": 0.1})])
    assert run()[0] == 0
    words = []
    for name, value in entries.items():
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{name}", one]
    alone = json_of_run(*flags[:-4], "--prompt", "A bird", *words)
    record = records()[1]
    assert record["ids"] == alone["speculative"]["ids"]
    assert {name: record[name] for name in entries} == entries
    before = out_bytes()
    assert run("--out", "alone", "--batch", 1)[0] == 0
    assert Path("alone").read_bytes() == before
    assert run()[0] == 0 and out_bytes() == before  # resumed: nothing is written again


@pytest.mark.parametrize("entries", [{"seed": 5}, {"temperature": 0.5}, {"stop": ["b"]},
                                     {"n_tokens_to_generate": 3}, {"regex": "b+"}])
def test_a_record_with_different_settings_of_its_line_is_refused(run, flags, entries):
    if "regex" in entries:
        pytest.importorskip("llguidance", reason="needs requirements/pattern.txt")
    for first, second in ([entries, {}], [{}, entries]):
        write_prompts([json.dumps({"prompt": "A bear", **first})])
        assert run()[0] == 0
        write_prompts([json.dumps({"prompt": "A bear", **second})])
        assert f"line 1 of out was written with {[*entries][0]} " in refusal(main.main, *flags)
        os.remove("out")


def test_a_temperature_at_which_the_decoder_does_not_work_is_the_lines_error(run):
    write_prompts(['{"prompt": "A bear", "temperature": 1}', "b"])
    assert run("--decoder", "big_little", "--temperature", 0)[0] == 3
    refused, written = records()
    assert refused["error"].startswith("line 1: --decoder big_little needs --temperature 0")
    assert len(written["ids"]) == 9


def test_the_longest_line_is_one_prompt_and_a_longer_one_is_refused(flags, monkeypatch):
    monkeypatch.setattr("run.prompts.MAX_PROMPT", 8)
    write_prompts(["A bear.", "b" * 7])  # with its newline the first line has 8 bytes
    with open("prompts", "rb") as file:
        assert [*prompt_lines(file, "prompts")] == [b"A bear.", b"b" * 7]
    write_prompts(["A bear", "b" * 9])
    assert ("need lines of at most 8 bytes in prompts, got a longer line 2"
            in refusal(main.main, *flags))


def test_errors_are_counted_again_until_they_are_corrected_and_tried_again(run):
    """The advice is followed: line 3 is corrected, it and all lines after it are deleted."""
    write_prompts(["A bear", "b", "", "The end of it", "", "b"])
    advice = ("Errors: 2 of 6 records, the first in line 3. To try again, correct the prompts, "
              "delete line 3 of out and all lines after it, and run the same command.\n")
    status, said, _ = run()
    assert status == 3 and "Wrote 4 texts and 2 errors" in said and said.endswith(advice)
    status, said, _ = run()
    assert status == 3 and "to out, which already had 6 records (2 errors).\n" in said
    assert said.endswith(advice)
    before = records()
    write_prompts(["A bear", "b", "Nobody", "The end of it", "b", "b"])
    first_two = out_bytes().splitlines(keepends=True)[:2]
    Path("out").write_bytes(b"".join(first_two))
    status, said, _ = run()
    assert status == 0 and "Wrote 4 texts and 0 errors" in said and "Errors:" not in said
    assert len(records()) == 6 and records()[3] == before[3]  # the same seed


def test_dashes_are_standard_input_and_output_and_the_report_goes_to_errors(whole, flags):
    process = start_process(flags, "--prompts", "-", "--out", "-", stdin=subprocess.PIPE)
    said, err = process.communicate(Path("prompts").read_text("utf-8"), timeout=60)
    assert process.returncode == 3 and said.encode() == whole
    assert err.startswith("Wrote 6 texts and 1 error to standard output.\n")
    assert err.endswith("\nErrors: 1 of 7 records, the first in line 5.\n")
    assert not {"-", "-.lock"} & {*os.listdir()}


def test_prompts_in_a_pipe_are_read_once(whole, run):
    os.remove("out")
    os.mkfifo("pipe")
    with ThreadPoolExecutor(1) as writer:
        writer.submit(Path("pipe").write_bytes, Path("prompts").read_bytes())
        assert run("--prompts", "pipe")[0] == 3
    assert out_bytes() == whole


@pytest.mark.parametrize("more, words", [
    ([], "interrupted: the same command resumes"), (["--out", "-"], "interrupted"),
    (["--prompts", "-"],
     "interrupted: the same command resumes if standard input has the same prompts")])
def test_ctrl_c_says_how_to_resume_and_whole_records_stay(flags, more, words, monkeypatch, capfd):
    def interrupted_texts(jobs):
        yield next(jobs), []  # a text without a round
        raise KeyboardInterrupt

    monkeypatch.setattr("run.prompts.opened_prompts", lambda path: open("prompts", "rb"))
    args = parse_args([*flags, *more])
    main_of_test = command("main.py")(
        lambda argv: write_records(args, lambda task, args: interrupted_texts))
    assert main_of_test() == 130
    out, err = capfd.readouterr()
    assert err == f"main.py: {words}\n"
    lines = out if "--out" in more else out_bytes().decode()
    assert lines.count("\n") == 1 and json.loads(lines)["prompt"] == "A bear"


def test_short_contexts_no_new_tokens_and_other_newlines(run):
    # the third line is not there: it would be an empty one after the last newline
    write_prompts([b"a" * 30 + b"\r", b"a" * 31 + b"\r", b""])
    assert run()[0] == 0
    assert [len(record["ids"]) for record in records()] == [2, 1]
    assert run("--n_tokens_to_generate", 0, "--out", "none")[0] == 0
    record = json.loads(Path("none").read_text("utf-8").splitlines()[0])
    assert (record["text"], record["ids"], record["tokens_per_pass"]) == ("a" * 30, [], None)


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_shows_how_many_texts_and_tokens_there_are(flags, whole):
    """`whole` had no terminal, and nothing on standard error."""
    os.remove("out")
    with contextlib.redirect_stderr(Terminal()) as terminal:
        assert main.main(flags) == 3
    shown = terminal.getvalue()
    assert "0token" in shown and "0text" in shown and out_bytes() == whole


def test_a_record_is_in_the_file_before_the_next_text_is_written(tmp_path):
    """So an interrupted run keeps it."""
    path = tmp_path / "out"
    n_records = []  # in the file, whenever the next text is wanted

    def texts():
        for i in range(3):
            yield Job({"index": i, "error": "a reason"}), []
            n_records.append(path.read_bytes().count(b"\n"))

    with open(path, "a+b") as out:
        append_records(out, texts(), None, 0)
    assert n_records == [1, 2, 3]


def test_a_forced_round_is_no_pass_of_a_record():
    rounds = [ForcedRound([2, 3], [2], None, None, 1), Round([4], [], None, None, 0)]
    task = Task(SimpleNamespace(decode=str), Models(None, None, {}), None, {}, set(), N=3,
                seed=0, n_ctx=9)
    record = record_of(Job({}, [1], 3), rounds, task)
    assert (record["tokens_per_pass"], record["acceptance"]) == (3, None)


def test_texts_of_prompts_end_at_a_stop_token(run, models):
    encoder = load_pair(SMALL, LARGE, models)[0]
    assert run("--out", "whole")[0] == 3
    # The stop token is the first letter that is not the end of its text.
    stop = next(token for record in records("whole") for token in record.get("ids", [])[:-1]
                if encoder.decode([token]).isalpha())
    assert run("--stop", encoder.decode([stop]))[0] == 3
    for record, ended in zip(records("whole"), records(), strict=True):
        ids = record.get("ids", [])
        if stop in ids:
            ids = ids[: ids.index(stop) + 1]
        assert ended.get("ids", []) == ids


# ---- resumed

@pytest.mark.parametrize("n_lines, n_more, had", [
    (0, 0, ""), (0, 1, ""), (0, 5, ""), (1, -1, ""),  # bytes beyond the whole lines
    (1, 0, ", which already had 1 record"), (1, 1, ", which already had 1 record"),
    (3, 40, ", which already had 3 records"), (5, 0, ", which already had 5 records (1 error)"),
    (6, 0, ", which already had 6 records (1 error)")])
def test_a_file_cut_at_any_byte_is_resumed_to_the_same_bytes(n_lines, n_more, had, whole, run):
    n_bytes = sum(map(len, whole.splitlines(keepends=True)[:n_lines])) + n_more
    Path("out").write_bytes(whole[:n_bytes])
    status, said, _ = run("--batch", 2)
    assert status == 3 and f" to out{had}.\n" in said
    assert out_bytes() == whole


@pytest.mark.parametrize("flag, value, there", [
    ("temperature", 0.5, 1.0), ("decoder", "lookup", "speculative"), ("K", 2, 4),
    ("top_k", 5, 0), ("n_tokens_to_generate", 8, 9), ("target_model_size", SMALL, LARGE),
    ("dtype", "float32", "float64")])
def test_a_file_of_different_flags_is_refused_and_kept(flag, value, there, whole, flags):
    Path("out").write_bytes(whole[:-9])
    why = refusal(main.main, *flags, f"--{flag}", value)
    assert (f"line 1 of out was written with {flag} {there!r}, but this run has {value!r}. "
            "Choose a new --out.\n") in why
    assert out_bytes() == whole[:-9] and not Path("out.lock").exists()


@pytest.mark.parametrize("prompts, words", [
    (["A bee", *PROMPTS[1:]], "with prompt 'A bear', but this run has 'A bee'"),
    (PROMPTS[:3], "line 4 of out was written with prompt 'The end of it', but this run has None")])
def test_a_file_of_different_prompts_is_refused_and_kept(prompts, words, whole, flags):
    write_prompts(prompts)
    assert words in refusal(main.main, *flags)
    assert out_bytes() == whole


@pytest.mark.parametrize("written", [
    b"notes\n", b"notes", b'{"index": 0, "seed": [123, 0]}\n'])
def test_a_file_of_something_else_is_refused_and_kept(written, flags):
    Path("out").write_bytes(written)
    assert "line 1 of out is not a record" in refusal(main.main, *flags)
    assert out_bytes() == written and not Path("out.lock").exists()


def test_settings_that_json_writes_differently_are_resumed(run):
    """JSON has lists where --skip has a tuple."""
    skip = ("--decoder", "skip", "--skip", "1")
    assert run(*skip)[0] == 3
    before = out_bytes()
    Path("out").write_bytes(before[:-9])
    assert run(*skip)[0] == 3 and out_bytes() == before


def test_a_record_of_the_same_prompt_with_a_different_id_is_refused(run):
    for name, status in (("first", 0), ("second", 2)):
        write_prompts([json.dumps({"id": name, "prompt": "A bear"})])
        assert run()[0] == status
    assert records()[0]["id"] == "first"


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

def test_a_full_disk_is_one_line_and_whole_lines_stay(run, flags):
    resource = pytest.importorskip("resource")
    small_disk = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    _, err = start_process(flags, preexec_fn=small_disk).communicate(timeout=60)
    assert "File too large" in err and err.count("\n") == 1
    assert run()[0] == 3 and len(records()) == 7


def test_one_text_needs_no_greenlet_and_many_name_it(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "wrappers.batch", raising=False)
    status, said, _ = run_main(*flags[:-4], "--prompt", "A bear")  # without --prompts and --out
    assert status == 0 and said
    assert refusal(main.main, *flags) == (
        "main.py: the package greenlet is missing: pip install -r requirements.txt\n")


# ---- tools/survey.py: the same file, by workers of which one is killed

def workers_of(pid):
    """Return the ids of the processes that Dask has spawned for a survey."""
    import psutil  # comes with Dask

    return [child.pid for child in psutil.Process(pid).children(recursive=True)
            if any("spawn_main" in word for word in child.cmdline())]


def test_a_killed_worker_costs_no_prompt_and_changes_no_byte(flags, run):
    """The run resumes the file of main.py, whose last line is unfinished."""
    pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    write_prompts(PROMPTS * 20)
    assert run()[0] == 3
    before = out_bytes()
    Path("out").write_bytes(before[: before.index(b"\n") + 40])
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
    assert out_bytes() == before


def finished_with_fault(fault, monkeypatch):
    """Run six jobs, the third of which raises; return the jobs and the rounds of each."""
    monkeypatch.setattr(survey, "AHEAD", 3)
    jobs = [Job({"index": i}) for i in range(6)]
    futures = [mock.Mock(result=mock.Mock(return_value=[0])) for _ in jobs]
    futures[2].result.side_effect = fault
    client = mock.Mock(submit=mock.Mock(side_effect=futures))
    return zip(*survey.finished_texts(client, None, jobs))


def test_a_fault_of_one_prompt_is_its_error_and_other_faults_end_the_run(monkeypatch):
    """Workers die of a prompt, or a pattern cannot be written to its end."""
    distributed = pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    worker = mock.Mock(address="tcp")
    killed = distributed.KilledWorker("rounds_of_text", worker, 3)
    for fault, words in ((killed, "KilledWorker"), (DeadEnd("beyond 9 new"), "beyond 9 new")):
        jobs, rounds = finished_with_fault(fault, monkeypatch)
        assert [job.head["index"] for job in jobs] == [*range(6)]
        assert list(rounds) == [[0], [0], [], [0], [0], [0]]
        assert words in jobs[2].head["error"] and "error" not in jobs[3].head
    with pytest.raises(OSError, match="workers that can load the models, got MemoryError: no room"):
        finished_with_fault(MemoryError("no room"), monkeypatch)


def test_a_worker_writes_trees_too_whose_guesses_are_rivals(flags):
    words = (*flags, "--decoder", "tree")
    task = load_task(parse_args(words), prompt=".")
    job = Job({}, task.encoder.encode("A bear"), 9, own={"seed": [123, 0]})
    record = record_of(job, survey.rounds_of_text(words, job), task)
    assert len(record["ids"]) == 9 and record["acceptance"] is None


def test_without_dask_one_line_says_what_to_install(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "requirements/cluster.txt" in refusal(survey.main, *flags)
