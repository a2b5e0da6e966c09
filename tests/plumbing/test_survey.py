"""tools/survey.py: the file of main.py --prompts, by workers of which one is killed."""

# ruff: noqa: F811, fixtures are imported

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import main
from lib.demo.prompts import Job
from lib.demo.task import load_task
from tests.plumbing.test_prompts import PROMPTS, ROOT, flags, models, out, run, wait_until, write  # noqa: F401
from tools import survey

pytest.importorskip("distributed", reason="needs requirements/cluster.txt")


def workers_of(pid):
    """The processes that Dask has spawned for a survey."""
    import psutil  # comes with Dask

    return [child.pid for child in psutil.Process(pid).children(recursive=True)
            if any("spawn_main" in word for word in child.cmdline())]


def test_a_killed_worker_costs_no_prompt_and_changes_no_byte(flags, run):
    """The run resumes the file of main.py, whose last line is unfinished."""
    write(PROMPTS * 40)
    assert run()[0] == 0
    whole = out()
    Path("out").write_bytes(whole[: whole.index(b"\n") + 40])
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.survey", *flags, "--prompts", Path("prompts").resolve(),
         "--out", Path("out").resolve(), "--workers", "2"], cwd=ROOT, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: out().count(b"\n") > 5 or process.poll() is not None)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        n_then = out().count(b"\n")
        said, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0 and 5 < n_then < 280, err
    assert "Wrote 239 texts to" in said and "(1 were already there); 40 of 280 prompts had" in said
    assert out() == whole


def survey_main(capsys, *argv):
    return (survey.main(list(map(str, argv))), *capsys.readouterr())


class Client:
    """In place of Dask's: a result is computed when it is asked for."""

    def __init__(self, fault):
        self.fault = fault

    def submit(self, work, job, pure):
        return type("Future", (), {"result": lambda _: self.result(work, job)})()

    def result(self, work, job):
        if job.head["index"] == 2:
            raise self.fault
        return work(job)


def finished(fault, monkeypatch):
    monkeypatch.setattr(survey, "AHEAD", 3)
    jobs = (Job({"index": i}) for i in range(6))
    return list(survey.finished(Client(fault), lambda job: job, jobs))


def test_a_prompt_that_workers_die_of_is_an_error_and_other_faults_end_the_run(monkeypatch):
    from distributed import KilledWorker

    fault = KilledWorker("write_text", type("", (), {"address": "tcp"}), 3)
    jobs = finished(fault, monkeypatch)
    assert [job.head["index"] for job in jobs] == [*range(6)]
    assert [bool(job.error) for job in jobs] == [False, False, True, False, False, False]
    assert "KilledWorker" in jobs[2].error
    with pytest.raises(OSError, match="workers that can load the models, got MemoryError: no room"):
        finished(MemoryError("no room"), monkeypatch)


def test_a_worker_with_other_weights_or_code_is_refused(flags):
    with pytest.raises(ValueError, match="need the client's code and weights, got others on"):
        survey.write_text(tuple(flags), "of something else", Job({"index": 0}))


@pytest.mark.parametrize("decoder", ["speculative", "tree"])
def test_a_worker_writes_trees_too_whose_guesses_are_rivals(flags, decoder):
    words = (*flags, "--decoder", decoder)
    task = load_task(main.parse_args(words), prompt=".")
    job = Job({"seed": [123, 0]}, task.encoder.encode("A bear"), 9)
    record = survey.write_text(words, survey.fingerprint(task), job).record(task)
    assert len(record["ids"]) == 9 and (record["acceptance"] is None) == (decoder == "tree")


@pytest.mark.parametrize("more, words", [
    (["--workers", 0], "--workers >= 1"), (["--workers", 2, "--scheduler", "x"], "--workers >= 1"),
    (["--batch", 2], "no --batch"), (["--K", "auto"], "need --costs"), (["--show"], "--show"),
    (["--decoder", "big_little"], "--temperature 0"), (["--out", "/dev/full"], "to be a file"),
    (["--scheduler", "tcp://127.0.0.1:1"], "Timed out")])
def test_flags_that_do_not_fit_are_refused_in_one_line(flags, more, words, capsys, monkeypatch):
    monkeypatch.setattr(survey, "TIMEOUT", 1)
    status, said, err = survey_main(capsys, *flags, *more)
    assert (status, said, err.count("\n")) == (2, "", 1) and words in err


def test_without_dask_one_line_says_what_to_install(flags, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = survey_main(capsys, *flags)
    assert status == 2 and err.count("\n") == 1 and "requirements/cluster.txt" in err
