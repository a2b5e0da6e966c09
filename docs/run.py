"""Make docs/run.html, the page of one recorded run. Its first round is in docs/learn.md."""

import shlex
from pathlib import Path

from main import both_decoders, decode, decoder_step
from page.page import raced_run, run_as_data, save_page, stored_run
from run.flags import parse_args, settings_for_json
from run.task import load_task

PAGE = Path(__file__).parent / "run.html"
FLAGS = ('--prompt "There was once an old woman who" --temperature 1 --K 4 --seed 16 '
         '--n_tokens_to_generate 44')
REPEATS = 21


def recorded_run():
    """Return the run without seconds; the seed determines everything else."""
    args = parse_args(shlex.split(FLAGS))
    task = load_task(args)
    rounds = []
    decode(task, decoder_step, rounds.append)
    # Seconds are removed, because they would differ in each recording.
    for round_data in rounds:
        round_data["seconds"] = {}
        del round_data["end"]
    return run_as_data(task.encoder.decode(task.x), rounds, settings_for_json(args))


def recorded_race(repeats=REPEATS):
    """Return the run with the median speed-up of several races, with the race's plain run."""
    args = parse_args(shlex.split(FLAGS))
    runs = []
    for _ in range(repeats):
        rounds = []
        task = load_task(args)
        # Every run has the same seed, so only the times differ.
        numbers = both_decoders(task, rounds.append) | {"settings": settings_for_json(args)}
        runs.append(raced_run(task, numbers, rounds))
    # The middle one of the sorted runs has the median speed-up.
    by_speedup = sorted(runs, key=lambda run: run["plain"]["speedup"])
    return by_speedup[repeats // 2]


def with_todays_code(run):
    """Return a stored run with today's counts and lines of code."""
    # run_as_data computes counts and code again. The stored rounds stay, and so do the entries
    # of a race, which run_as_data does not return.
    return run | run_as_data(run["prompt"], run["rounds"], run["settings"])


def write_page(record, seconds):
    """Write the page."""
    if seconds and not record:
        raise ValueError("--seconds needs --record")
    if seconds:
        run = recorded_race()
    elif record:
        run = recorded_run()
    else:
        run = with_todays_code(stored_run(PAGE))
    save_page(PAGE, run)
