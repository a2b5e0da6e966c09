"""Make docs/run.html, the page of one recorded run; its first round is docs/learn.md's example.

    python -m docs.run                       # put the stored run into today's page
    python -m docs.run --record              # run the bundled pair again
    python -m docs.run --record --seconds    # on a quiet machine: race plain decoding too
"""

import shlex
import sys
from pathlib import Path

from demo.compare import compare, decoded_run
from demo.flags import parse_args, settings_for_json
from demo.page import raced_run, run_as_data, save_page, stored_run
from demo.task import load_task
from docs.pictures.record import ROUND
from lib.terminal import Parser, command

PAGE = Path(__file__).parent / "run.html"
FLAGS = f"{ROUND} --n_tokens_to_generate 44"
REPEATS = 21


def recorded_run():
    """Return the run without seconds; the seed determines everything else."""
    args = parse_args(shlex.split(FLAGS))
    task = load_task(args)
    rounds = []
    decoded_run(task, task.decoder, rounds.append)
    for round_data in rounds:  # seconds would differ in each recording
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
        numbers = compare(task, rounds.append) | {"settings": settings_for_json(args)}
        runs.append(raced_run(task, numbers, rounds))
    by_speedup = sorted(runs, key=lambda run: run["plain"]["speedup"])
    return by_speedup[repeats // 2]  # the median


def with_todays_code(run):
    """Return a stored run with today's counts and lines of code."""
    # The rounds and the seconds stay; run_as_data computes everything else again.
    return run | run_as_data(run["prompt"], run["rounds"], run["settings"])


@command("docs.run")
def main(argv=None):
    """Write the page."""
    parser = Parser("python -m docs.run", description=__doc__.split(";")[0] + ".")
    parser.add_argument("--record", action="store_true", help="run the bundled pair first")
    parser.add_argument("--seconds", action="store_true", help="record times and a race too")
    args = parser.parse_args(argv)
    if args.seconds and not args.record:
        raise ValueError("--seconds needs --record")
    if args.seconds:
        run = recorded_race()
    elif args.record:
        run = recorded_run()
    else:
        run = with_todays_code(stored_run(PAGE))
    save_page(PAGE, run)


if __name__ == "__main__":
    sys.exit(main())
