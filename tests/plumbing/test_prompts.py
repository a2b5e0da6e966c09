"""main.py --prompts and tools/survey.py: files that are written, interrupted and resumed."""

import codecs
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import main
from demo.flags import parse_args, settings_for_json
from demo.prompts import Job, counted, record_of, repeated_ids, write_records
from demo.task import load_task
from lib.backend import products
from lib.pattern import DeadEnd
from lib.terminal import command
from sampling import with_sampling
from speculative import draft_and_verify, generate
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import refusal, run_main, until
from tools import survey
from utils import load_pair

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


def out_records():
    """Return the records of --out."""
    return [json.loads(line) for line in out_bytes().splitlines()]


# ---- what is written

def test_a_record_is_that_of_its_prompt_alone(run, flags, models):
    """Every figure is counted again from the rounds of `generate`, with separate models."""
    settings = settings_for_json(parse_args(flags))
    assert settings["temperature"] == 1 and not {"out", "prompts", "models_dir"} & settings.keys()
    status, said, err = run("--batch", 3)
    assert (status, err) == (3, "")
    assert said.startswith("Wrote 6 texts and 1 error to out.\n")
    for i, (prompt, record) in enumerate(zip(PROMPTS, out_records(), strict=True)):
        head = {"index": i, "prompt": prompt, "seed": [123, i], "settings": settings}
        if not prompt:
            why = "need a prompt of at least one token, got an empty one"
            assert record == head | {"error": why}
            continue
        encoder, *pair = load_pair(SMALL, LARGE, models, np.float64)
        draft, target = (with_sampling(model, temperature=1) for model in pair)
        x = encoder.encode(prompt)
        rng = np.random.default_rng((123, i))
        rounds = list(generate(x, draft_and_verify(draft, target, 4), 9, rng, {256}))
        ids = [token for result in rounds for token in result.ids]
        acceptance = (sum(result.n_accepted for result in rounds)
                      / sum(result.n_tested for result in rounds))
        assert record == head | {
            "text": encoder.decode(x + ids), "ids": ids, "acceptance": acceptance,
            "tokens_per_pass": len(ids) / len(rounds)}


def test_an_id_is_copied_and_named_if_several_prompts_have_it(run):
    write_prompts(['{"prompt": "A bear", "id": "x1"}', '{"id": "x1", "prompt": "b", "other": 0}',
                   "A bear", '{"prompt": "b", "id": "x2"}'])
    for _ in range(2):  # and again where all records are there
        status, said, _ = run()
        assert status == 0 and said.endswith('\nSeveral prompts have the id "x1".\n')
    assert [(r.get("id"), r["prompt"]) for r in out_records()] == [
        ("x1", "A bear"), ("x1", "b"), (None, "A bear"), ("x2", "b")]


def test_of_many_ids_that_are_repeated_five_are_named():
    n_of_id = {str(i): 1 + (i > 0) for i in range(8)}
    assert repeated_ids(n_of_id) == "\nSeveral prompts have the id 1, 2, 3, 4, 5 and 2 more."
    assert repeated_ids({"1": 1}) == ""


BAD = [(b"once \xff upon", "byte 0xff at position 5"), (b"", "at least one token"),
       (b"a" * 32, "the prompt has 32 tokens, and at most 31 fit (n_ctx = 32): shorten it"),
       (b'{"prompt": "b"', "a line that begins with { must be a JSON object"),
       (b'{"a":' * 10**5, "a JSON object"), (b'{"text": "b"}', '"prompt" that is text'),
       (b'{"prompt": ["b"]}', 'got ["b"]'), (b'{"prompt": "\\ud800"}', "surrogate")]


def test_a_bad_line_becomes_its_error_and_the_others_are_written(run):
    write_prompts(["A bear", *(line for line, _ in BAD), "b"])
    status, said, _ = run()
    assert status == 3 and f"Wrote 2 texts and {len(BAD)} errors to out" in said
    first, *bad, last = out_records()
    assert len(first["ids"]) == len(last["ids"]) == 9
    for i, (record, (_, words)) in enumerate(zip(bad, BAD, strict=True), 1):
        assert words in record["error"] and "text" not in record and record["index"] == i
        assert "--window" not in record["error"]  # --prompts refuses it


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
    whole = out_records()
    write_prompts(["A bear", "b", "Nobody", "The end of it", "b", "b"])
    Path("out").write_bytes(b"".join(out_bytes().splitlines(True)[:2]))
    status, said, _ = run()
    assert status == 0 and "Wrote 4 texts and 0 errors" in said and "Errors:" not in said
    assert len(out_records()) == 6 and out_records()[3] == whole[3]  # the same seed


def test_dashes_are_standard_input_and_output_and_the_report_goes_to_errors(run, flags):
    assert run()[0] == 3
    process = start_process(flags, "--prompts", "-", "--out", "-", stdin=subprocess.PIPE)
    said, err = process.communicate(Path("prompts").read_text("utf-8"), timeout=60)
    assert process.returncode == 3 and said.encode() == out_bytes()
    assert err.startswith("Wrote 6 texts and 1 error to standard output.\n")
    assert err.endswith("\nErrors: 1 of 7 records, the first in line 5.\n")
    assert not {"-", "-.lock"} & {*os.listdir()}


def test_prompts_in_a_pipe_are_read_once(run):
    assert run()[0] == 3
    whole = out_bytes()
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
    def texts(jobs):
        yield next(jobs), []
        raise KeyboardInterrupt

    monkeypatch.setattr("demo.prompts.opened_prompts", lambda path: open("prompts", "rb"))
    parsed = parse_args([*flags, *more])
    written = command("main.py")(lambda _: write_records(parsed, lambda task, args: texts))
    assert written() == 130
    said, err = capfd.readouterr()
    assert err == f"main.py: {words}\n"
    lines = said if "--out" in more else out_bytes().decode()
    assert lines.count("\n") == 1 and json.loads(lines)["prompt"] == "A bear"


def test_short_contexts_no_new_tokens_and_other_newlines(run):
    # the third line is not there: it would be an empty one after the last newline
    write_prompts([b"a" * 30 + b"\r", b"a" * 31 + b"\r", b""])
    assert run()[0] == 0
    assert [len(record["ids"]) for record in out_records()] == [2, 1]
    assert run("--n_tokens_to_generate", 0, "--out", "none")[0] == 0
    record = json.loads(Path("none").read_text("utf-8").splitlines()[0])
    assert (record["text"], record["ids"], record["tokens_per_pass"]) == ("a" * 30, [], None)


# ---- resumed

def test_a_file_cut_at_any_byte_is_resumed_to_the_same_bytes(run):
    assert run()[0] == 3
    whole = out_bytes()
    ends = list(accumulate(map(len, whole.splitlines(True))))
    for n_bytes in (0, 1, 5, ends[0] - 1, ends[0], ends[0] + 1, ends[2] + 40, ends[4], ends[-2]):
        Path("out").write_bytes(whole[:n_bytes])
        status, said, _ = run("--batch", 2)
        n_done = sum(end <= n_bytes for end in ends)
        n_errors = sum("error" in json.loads(line) for line in whole.splitlines()[:n_done])
        records_there = counted(n_done, "record") + (" (1 error)" if n_errors else "")
        had = f", which already had {records_there}" if n_done else ""
        assert status == 3 and f" to out{had}.\n" in said
        assert out_bytes() == whole


@pytest.mark.parametrize("more, prompts, written, words", [
    *(([f"--{flag}", value], PROMPTS, None, f"line 1 of out was written with {flag} {there!r}, "
       f"but this run has {value!r}. Choose a new --out.\n") for flag, value, there in (
        ("temperature", 0.5, 1.0), ("decoder", "lookup", "speculative"), ("K", 2, 4),
        ("top_k", 5, 0), ("n_tokens_to_generate", 8, 9), ("target_model_size", SMALL, LARGE),
        ("dtype", "float32", "float64"))),
    ([], ["A bee", *PROMPTS[1:]], None, "with prompt 'A bear', but this run has 'A bee'"),
    ([], PROMPTS[:3], None, "line 4 of out was written with prompt 'The end of it', but "
     "this run has None"),
    ([], PROMPTS, b"notes\n", "line 1 of out is not a record"),
    ([], PROMPTS, b"notes", "line 1 of out is not a record"),
    ([], PROMPTS, b'{"index": 0, "seed": [123, 0]}\n', "line 1 of out is not a record")])
def test_a_file_of_a_different_command_is_refused_and_kept(
        run, flags, more, prompts, written, words):
    assert run()[0] == 3
    write_prompts(prompts)
    Path("out").write_bytes(written or out_bytes()[:-9])
    before = out_bytes()
    assert words in refusal(main.main, *flags, *more)
    assert out_bytes() == before and not Path("out.lock").exists()


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
    assert len(out_records()) == 7 and not Path("out.lock").exists()


# ---- what is missing

def test_a_full_disk_is_one_line_and_whole_lines_stay(run, flags):
    resource = pytest.importorskip("resource")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
    _, err = start_process(flags, preexec_fn=limit).communicate(timeout=60)
    assert "File too large" in err and err.count("\n") == 1
    assert run()[0] == 3 and len(out_records()) == 7


def test_one_text_needs_no_greenlet_and_many_name_it(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "wrappers.batch", raising=False)
    status, said, _ = run_main(*flags[:-4], "--prompt", "A bear")
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
    whole = out_bytes()
    Path("out").write_bytes(whole[: whole.index(b"\n") + 40])
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
    assert out_bytes() == whole


def finished_with_fault(fault, monkeypatch):
    """Run six jobs, the third of which raises; return what is yielded."""
    monkeypatch.setattr(survey, "AHEAD", 3)
    jobs = [Job({"index": i}) for i in range(6)]
    futures = [mock.Mock(result=lambda: [0]) for _ in jobs]
    futures[2].result = mock.Mock(side_effect=fault)
    return list(survey.finished_texts(mock.Mock(submit=mock.Mock(side_effect=futures)), None, jobs))


def test_a_fault_of_one_prompt_is_its_error_and_other_faults_end_the_run(monkeypatch):
    """Workers die of a prompt, or a pattern cannot be written to its end."""
    distributed = pytest.importorskip("distributed", reason="needs requirements/cluster.txt")
    killed = distributed.KilledWorker("rounds_of_text", type("", (), {"address": "tcp"}), 3)
    for fault, words in ((killed, "KilledWorker"), (DeadEnd("beyond 9 new"), "beyond 9 new")):
        jobs, rounds = zip(*finished_with_fault(fault, monkeypatch))
        assert [job.head["index"] for job in jobs] == [*range(6)]
        assert list(rounds) == [[0], [0], [], [0], [0], [0]]
        assert words in jobs[2].head["error"] and "error" not in jobs[3].head
    with pytest.raises(OSError, match="workers that can load the models, got MemoryError: no room"):
        finished_with_fault(MemoryError("no room"), monkeypatch)


def test_a_worker_writes_trees_too_whose_guesses_are_rivals(flags):
    words = (*flags, "--decoder", "tree")
    task = load_task(parse_args(words), prompt=".")
    job = Job({"seed": [123, 0]}, task.encoder.encode("A bear"), 9)
    record = record_of(job, survey.rounds_of_text(words, job), task)
    assert len(record["ids"]) == 9 and record["acceptance"] is None


def test_without_dask_one_line_says_what_to_install(flags, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "requirements/cluster.txt" in refusal(survey.main, *flags)


def test_a_record_of_the_same_prompt_with_a_different_id_is_refused(run, flags):
    for name, status in (("first", 0), ("second", 2)):
        Path("prompts").write_text(json.dumps({"id": name, "prompt": "A bear"}) + "\n",
                                   encoding="utf-8")
        assert run_main(*flags)[0] == status
    assert out_records()[0]["id"] == "first"


def test_texts_of_prompts_end_at_a_stop_token(run, models):
    encoder = load_pair(SMALL, LARGE, models)[0]
    letters = {encoder.vocab[letter] for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM"}
    assert run("--out", "whole")[0] == 3
    records = [json.loads(line) for line in Path("whole").read_bytes().splitlines()]
    stop = next(token for record in records for token in record.get("ids", ())[:-1]
                if token in letters)
    assert run("--stop", encoder.decode([stop]))[0] == 3
    for record, ended in zip(records, out_records()):
        if stop in record.get("ids", ()):
            assert ended["ids"] == record["ids"][: record["ids"].index(stop) + 1]
        else:
            assert ended.get("ids") == record.get("ids")


def test_settings_that_json_writes_differently_are_resumed(run):
    """JSON has lists where --skip has a tuple."""
    skip = ("--decoder", "skip", "--skip", "1")
    assert run(*skip)[0] == 3
    whole = out_bytes()
    Path("out").write_bytes(whole[:-9])
    assert run(*skip)[0] == 3 and out_bytes() == whole


def test_a_byte_order_mark_is_no_part_of_the_first_prompt(run):
    write_prompts([codecs.BOM_UTF8 + b'{"prompt": "A bear"}', "b"])
    assert run()[0] == 0
    lines = out_bytes().splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == ["A bear", "b"]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_line_with_a_number_that_json_lacks_is_refused(run, number):
    write_prompts(['{"prompt": "b", "id": %s}' % number, "b"])
    assert run()[0] == 3
    first, _ = [json.loads(line) for line in out_bytes().splitlines()]
    assert first["error"].endswith(f"must be a JSON object: {number} is not JSON")


@pytest.mark.parametrize("entries", ['"id": 1e999', '"id": [{"a": -1.5e400}]', '"other": 1e999'])
def test_a_line_with_a_number_that_python_reads_as_infinity_is_refused(run, entries):
    write_prompts(['{"prompt": "b", %s}' % entries, "b"])
    assert run()[0] == 3
    first, _ = [json.loads(line) for line in out_bytes().splitlines()]
    assert "must be a JSON object: " in first["error"]
    assert first["error"].endswith(" is too large for a number")
    assert b"Infinity" not in out_bytes()
