"""Continue many prompts on all cores of a machine, or of several: main.py --prompts, on Dask.

    python -m tools.survey --prompts FILE --out FILE.jsonl --temperature 1
    python -m tools.survey --prompts FILE --out FILE.jsonl --scheduler tcp://HOST:8786

Flags, records, resuming and refusals are main.py's, because the code is (lib/demo/prompts.py).
Dask (requirements/cluster.txt) gives the prompts to workers, which write one text at a time, by
trees and heads too. The prompt of a worker that died is given to a different one.
"""

import hashlib
import platform
import sys
from collections import deque
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from lib.backend.arrays import in_one_line
from lib.demo.compare import without_rows
from lib.demo.prompts import check_costs, continue_prompts
from lib.demo.task import load_task
from lib.demo.terminal import Help, Parser, command, print_safely
from main import parse_args
from speculative import generate
from variants import Models, build

TIMEOUT, AHEAD = 10, 256  # seconds for a scheduler to answer; prompts that Dask has at a time


def make_step(task):
    """Return a step of the task's decoder, with models whose caches are empty."""
    models = Models(task.new_draft and task.new_draft(), task.new_target(), task.sampling,
                    task.folder, task.costs)
    return build(task.decoder, models, task.settings)


def fingerprint(task):
    """Return a hash of the code and of the models' embeddings."""
    total, root = hashlib.sha256(), Path(__file__).parents[1]
    for files in "*.py", "lib/**/*.py", "variants/**/*.py":
        for path in sorted(root.glob(files)):
            total.update(path.read_bytes())
    for new_model in filter(None, (task.new_draft, task.new_target)):
        total.update(new_model.args[0]["wte"].tobytes("A"))
    return total.hexdigest()


@lru_cache(maxsize=1)
def load_once(words, expected):
    """Return the Task of a command line; ValueError unless code and weights are the client's."""
    task = load_task(parse_args(words), prompt=".")
    if fingerprint(task) != expected:
        raise ValueError(f"need the client's code and weights, got others on {platform.node()}")
    return task


def write_text(words, expected, job):
    """Return a job with its text."""
    task = load_once(words, expected)
    if job.n_left:
        rng = np.random.default_rng(job.head["seed"])
        rounds = generate(job.x, make_step(task), job.n_left, rng, task.stop)
        job.rounds = [without_rows(round) for round in rounds]
    return job


def on_workers(words, scheduler, n_workers, task, args):
    """Return `write(jobs)`, which yields the jobs in their order, each when it is finished."""
    if args.batch is not None:
        raise ValueError("need no --batch: a worker writes one text at a time, got one")
    check_costs(task)
    make_step(task)  # refuse settings that do not fit before --out is opened
    work = partial(write_text, words, fingerprint(task))

    def write(jobs):
        for first in jobs:  # none: no worker is started
            with cluster(scheduler, n_workers) as client:
                yield from finished(client, work, chain([first], jobs))

    return write


def finished(client, work, jobs):
    """Yield the jobs in their order; a prompt that killed several workers is an error."""
    from distributed import KilledWorker  # optional: requirements/cluster.txt

    submitted = ((job, client.submit(work, job, pure=False)) for job in jobs)
    futures = deque(islice(submitted, AHEAD))
    while futures:
        job, future = futures.popleft()
        try:
            job = future.result()
        except KilledWorker as why:
            job.error = in_one_line(why)
        except Exception as why:
            raise OSError(f"need workers that can load the models, got {in_one_line(why)}") from why
        yield job
        futures.extend(islice(submitted, 1))


@contextmanager
def cluster(scheduler, n_workers):
    """Yield a client of the scheduler that was named, or of workers on this machine."""
    from distributed import Client, LocalCluster  # optional: requirements/cluster.txt

    if scheduler:
        with Client(scheduler, timeout=TIMEOUT) as client:
            client.wait_for_workers(1, timeout=TIMEOUT)
            try:
                client.run(exec, "import tools.survey")  # a worker without it would die of a prompt
            except ModuleNotFoundError as error:
                raise ValueError("need workers started in this repository's folder, got: "
                                 f"{error}") from None
            yield client
    else:  # without a limit of memory, close to which Dask stops a worker
        with LocalCluster(n_workers, threads_per_worker=1, host="127.0.0.1", memory_limit=0,
                          dashboard_address="127.0.0.1:0") as workers, Client(workers) as client:
            yield client


@command("survey", "requirements/cluster.txt")
def main(argv=None):
    """Write all records; print what was written."""
    parser = Parser("survey", description=__doc__, formatter_class=Help, allow_abbrev=False)
    parser.add_argument("--scheduler", help="Dask's address (default: workers on this machine)")
    parser.add_argument("--workers", type=int, help="how many on this machine (default: its cores)")
    own, words = parser.parse_known_args(argv)
    args = parse_args(words)
    if args.prompts is None:
        raise ValueError("need --prompts FILE and --out FILE.jsonl, got none")
    if own.workers is not None and (own.workers < 1 or own.scheduler):
        raise ValueError(f"need --workers >= 1 without --scheduler, got {own.workers}")
    writer = partial(on_workers, tuple(words), own.scheduler, own.workers)
    print_safely(continue_prompts(args, writer), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
