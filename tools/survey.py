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
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

import main as command
from lib.backend.arrays import in_one_line
from lib.demo.prompts import check_costs, continue_prompts, load_placeholder
from lib.demo.terminal import Help, Parser, complain, print_safely
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
    total, root = hashlib.sha256(), Path(command.__file__).parent
    for files in "*.py", "lib/**/*.py", "variants/**/*.py":
        for path in sorted(root.glob(files)):
            total.update(path.read_bytes())
    for new_model in filter(None, (task.new_draft, task.new_target)):
        total.update(new_model.args[0]["wte"].tobytes("A"))
    return total.hexdigest()


@lru_cache(maxsize=1)
def load_once(words, expected):
    """Return the Task of a command line; ValueError unless code and weights are the client's."""
    task = load_placeholder(command.parse_args(words))
    if fingerprint(task) != expected:
        raise ValueError(f"need the client's code and weights, got others on {platform.node()}")
    return task


def write_text(words, expected, job):
    """Return a job with its text."""
    task = load_once(words, expected)
    if job.n_left:
        rng = np.random.default_rng(job.head["seed"])
        for round in generate(job.x, make_step(task), job.n_left, rng, task.stop):
            job.add(round, task.entry)
    return job

def on_workers(words, scheduler, n_workers, task, args):
    """Return `write(jobs)`, which yields each job when a worker has finished it."""
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
    """Yield each job when a worker has finished it; a prompt that killed several is an error."""
    from distributed import KilledWorker, as_completed  # optional: requirements/cluster.txt
    given, futures = {}, as_completed()

    def give(n):
        for job in islice(jobs, n):
            future = client.submit(work, job, pure=False)
            given[future.key] = job
            futures.add(future)

    give(AHEAD)
    for future in futures:
        job = given.pop(future.key)
        try:
            job = future.result()
        except KilledWorker as why:
            job.error = in_one_line(why)
        except Exception as why:
            raise OSError(f"need workers that can load the models, got {in_one_line(why)}") from why
        yield job
        give(1)


@contextmanager
def cluster(scheduler, n_workers):
    """Yield a client of the scheduler that was named, or of workers on this machine."""
    from distributed import Client, LocalCluster  # optional: requirements/cluster.txt
    if scheduler:
        with Client(scheduler, timeout=TIMEOUT) as client:
            client.wait_for_workers(1, timeout=TIMEOUT)
            client.run(exec, "import tools.survey")  # a worker without it would die of a prompt
            yield client
    else:  # without a limit of memory, close to which Dask stops a worker
        with LocalCluster(n_workers, threads_per_worker=1, host="127.0.0.1", memory_limit=0,
                          dashboard_address="127.0.0.1:0") as workers, Client(workers) as client:
            yield client

def run(argv):
    """Write all records; return what was written as text."""
    parser = Parser("survey", description=__doc__, formatter_class=Help, allow_abbrev=False)
    parser.add_argument("--scheduler", help="Dask's address (default: workers on this machine)")
    parser.add_argument("--workers", type=int, help="how many on this machine (default: its cores)")
    own, words = parser.parse_known_args(argv)
    args = command.parse_args(words)
    if args.prompts is None:
        raise ValueError("need --prompts FILE and --out FILE.jsonl, got none")
    if own.workers is not None and (own.workers < 1 or own.scheduler):
        raise ValueError(f"need --workers >= 1 without --scheduler, got {own.workers}")
    return continue_prompts(args, partial(on_workers, tuple(words), own.scheduler, own.workers))


def main(argv=None):
    """Return the exit status."""
    try:
        print_safely(run(sys.argv[1:] if argv is None else argv), sys.stdout)
        return 0
    except ModuleNotFoundError as error:  # no Dask, or a worker outside this repository
        return complain("survey", f"{error}; need Dask (pip install -r requirements/cluster.txt), "
                        "and workers started in this repository's folder")
    except (ValueError, OSError, MemoryError) as error:
        return complain("survey", error)
    except KeyboardInterrupt as error:
        print(f"survey: {error or 'interrupted'}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
