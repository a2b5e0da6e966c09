"""tools/survey.py: the file of main.py --prompts, by workers of which one is killed."""

# ruff: noqa: F811, fixtures are imported

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import main
from demo.prompts import Job, record_of
from demo.task import load_task
from tests.plumbing.test_prompts import (  # noqa: F401
    PROMPTS,
    ROOT,
    flags,
    models,
    out_bytes,
    run,
    wait_until,
    write_prompts,
)
from tools import survey

pytest.importorskip("distributed", reason="needs requirements/cluster.txt")


def workers_of(pid):
    """Return the ids of the processes that Dask has spawned for a survey."""
    import psutil  # comes with Dask

    return [child.pid for child in psutil.Process(pid).children(recursive=True)
            if any("spawn_main" in word for word in child.cmdline())]


def test_a_killed_worker_costs_no_prompt_and_changes_no_byte(flags, run):
    """The run resumes the file of main.py, whose last line is unfinished."""
    write_prompts(PROMPTS * 20)
    assert run()[0] == 3
    whole = out_bytes()
    Path("out").write_bytes(whole[: whole.index(b"\n") + 40])
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.survey", *flags, "--prompts", Path("prompts").resolve(),
         "--out", Path("out").resolve(), "--workers", "2"], cwd=ROOT, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: out_bytes().count(b"\n") > 5 or process.poll() is not None)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
        n_then = out_bytes().count(b"\n")
        said, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 3 and 5 < n_then < 140, err
    assert "Wrote 119 texts and 20 errors to" in said and "which already had 1 record.\n" in said
    assert out_bytes() == whole


def survey_main(capsys, *argv):
    """Run the survey; return its status, standard output and errors."""
    return (survey.main(list(map(str, argv))), *capsys.readouterr())


def finished_with_fault(fault, monkeypatch):
    """Run six jobs, the third of which raises; return what is yielded."""
    monkeypatch.setattr(survey, "AHEAD", 3)
    jobs = [Job({"index": i}) for i in range(6)]
    futures = [mock.Mock(result=lambda: [0]) for _ in jobs]
    futures[2].result = mock.Mock(side_effect=fault)
    return list(survey.finished_texts(mock.Mock(submit=mock.Mock(side_effect=futures)), None, jobs))


def test_a_prompt_that_workers_die_of_is_an_error_and_other_faults_end_the_run(monkeypatch):
    from distributed import KilledWorker

    fault = KilledWorker("rounds_of_text", type("", (), {"address": "tcp"}), 3)
    jobs, rounds = zip(*finished_with_fault(fault, monkeypatch))
    assert [job.head["index"] for job in jobs] == [*range(6)]
    assert list(rounds) == [[0], [0], [], [0], [0], [0]]
    assert "KilledWorker" in jobs[2].head["error"] and "error" not in jobs[3].head
    with pytest.raises(OSError, match="workers that can load the models, got MemoryError: no room"):
        finished_with_fault(MemoryError("no room"), monkeypatch)


def test_a_worker_writes_trees_too_whose_guesses_are_rivals(flags):
    words = (*flags, "--decoder", "tree")
    task = load_task(main.parse_args(words), prompt=".")
    job = Job({"seed": [123, 0]}, task.encoder.encode("A bear"), 9)
    record = record_of(job, survey.rounds_of_text(words, job), task)
    assert len(record["ids"]) == 9 and record["acceptance"] is None


@pytest.mark.parametrize("more, words", [
    (["--workers", 2, "--scheduler", "x"], "both given: choose one"),
    (["--batch", 2], "--batch does not apply to tools.survey"),
    (["--decoder", "big_little"], "--temperature 0"),
    (["--scheduler", "tcp://127.0.0.1:1"], "Timed out")])
def test_flags_that_do_not_fit_are_refused_in_one_line(flags, more, words, capsys, monkeypatch):
    monkeypatch.setattr(survey, "TIMEOUT", 1)
    status, said, err = survey_main(capsys, *flags, *more)
    assert (status, said, err.count("\n")) == (2, "", 1) and words in err


def test_without_dask_one_line_says_what_to_install(flags, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = survey_main(capsys, *flags)
    assert status == 2 and err.count("\n") == 1 and "requirements/cluster.txt" in err
