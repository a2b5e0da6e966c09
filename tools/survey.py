"""Run main.py --prompts on all cores of one machine or several, with Dask.

    python -m tools.survey --prompts FILE --out FILE.jsonl --temperature 1

On several machines, start a scheduler on one of them, workers on each, and then the survey:

    python -m dask scheduler
    python -m dask worker tcp://HOST:8786 --nworkers auto --nthreads 1 --memory-limit 0
    python -m tools.survey --prompts FILE --out FILE.jsonl --scheduler tcp://HOST:8786

Flags, records, resuming and errors are as in main.py --prompts, because the code is the same
(run/prompts.py). Dask (requirements/cluster.txt) gives the prompts to the workers. Each worker
writes one text at a time, so decoders with trees and heads work too. A text is seeded by the
position of its prompt in the file, so every worker writes the same text for it. If a worker
dies, a different worker gets its prompt.

All workers need the same checkout of this repository and the same models. Dask runs any code
that it receives, so use it only on a network that you trust.
"""

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import chain, islice

import numpy as np
from tqdm import tqdm

from lib.backend.arrays import in_one_line
from lib.terminal import Help, Parser, command
from measure.passes import without_rows
from run.flags import parse_args
from run.prompts import Job, Writer, Written, noting_step, task_of_line, write_records
from run.task import Task, load_task
from speculative import generate
from variants import build
from variants.registry import whole

TIMEOUT = 10  # seconds that a scheduler may take to answer
AHEAD = 256  # prompts that are submitted to Dask before the first text is awaited


@lru_cache(maxsize=1)
def load_once(words: tuple[str, ...]) -> Task:
    """Return the Task of a command line; a worker loads its models once for all prompts."""
    # The prompt is a placeholder: task_of_line puts the tokens of a line's prompt in its place.
    return load_task(parse_args(words), prompt=".")


def written_text(words: tuple[str, ...], given: dict, index: int) -> Written:
    """Return the text of a line; its seed depends on the line or on its position alone."""
    task = task_of_line(given, index, load_once(words))
    models = task.new_models()
    written = Written()
    step = noting_step(task, models, written, tqdm(disable=True))
    rounds = generate(task.x, step, task.n_new, np.random.default_rng(task.seed), task.ended)
    written.rounds = [without_rows(result) for result in rounds]  # a worker sends them
    return written


def workers_writer(words: tuple[str, ...], scheduler: str | None, n_workers: int | None,
                   task: Task, args: Namespace) -> Writer:
    """Return a Writer (run/prompts.py) that has workers write the texts."""
    if args.batch is not None:
        raise ValueError("--batch does not apply to tools.survey: a worker writes one text at "
                         "a time")
    # Before --out is opened, `build` refuses flags that do not fit, and a client refuses a
    # scheduler that does not answer.
    build(task.entry, task.new_models(), task.settings)
    if scheduler:
        new_client(scheduler, n_workers).close()

    def write_texts(jobs):
        # No worker is started if all texts are written already.
        first = next(jobs, None)
        if first is None:
            return
        with new_client(scheduler, n_workers) as client:
            yield from finished_texts(client, partial(written_text, words),
                                      chain([first], jobs))

    return write_texts


def finished_texts(client, write: Callable, jobs: Iterable[Job]) -> Iterator[Written]:
    """Yield the texts of `jobs` in their order; one that kills workers becomes an error."""
    from distributed import KilledWorker  # optional: requirements/cluster.txt

    # A generator submits a job to Dask only when its next text is asked for. So AHEAD jobs are
    # submitted at first, and then one job for each finished text.
    # pure=False: Dask must not replace a job by the result of an earlier job with equal
    # arguments.
    submitted = (client.submit(write, job.given, job.head["index"], pure=False) for job in jobs)
    futures = deque(islice(submitted, AHEAD))
    while futures:
        try:
            yield futures.popleft().result()  # waits for the text
        # Dask gives up a job after several workers died while they ran it. The survey goes on.
        except KilledWorker as why:
            yield Written(error=in_one_line(why))
        except Exception as why:
            raise OSError(f"a worker could not write a text: {in_one_line(why)}. All workers "
                          "need the same checkout and the same models") from why
        futures.extend(islice(submitted, 1))


def new_client(scheduler: str | None, n_workers: int | None):
    """Return a client of the scheduler that was named, or of workers on this machine."""
    from distributed import Client  # optional: requirements/cluster.txt

    if scheduler:
        return Client(scheduler, timeout=TIMEOUT)
    # memory_limit=0 means no limit, because Dask stops a worker that comes close to a limit.
    # Port 0 lets the system choose a free port for the dashboard.
    return Client(n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", memory_limit=0,
                  dashboard_address="127.0.0.1:0")


@command("tools.survey", "requirements/cluster.txt")
def main(argv=None):
    """Write all records; print what was written."""
    parser = Parser("python -m tools.survey", description=__doc__, formatter_class=Help)
    parser.add_argument("--scheduler",
                        help="address of a Dask scheduler (default: workers on this machine)")
    parser.add_argument("--workers", type=whole,
                        help="number of workers on this machine (default: one per core)")
    # All words but the survey's own two flags are main.py's flags. Workers parse them again.
    own, words = parser.parse_known_args(argv)
    args = parse_args(words, "tools.survey")
    if args.prompts is None:
        raise ValueError("tools.survey needs --prompts FILE and --out FILE.jsonl")
    if own.workers and own.scheduler:
        raise ValueError("--workers and --scheduler are both given: choose one")
    # If Dask is missing, this import raises the error before --out is opened.
    import distributed  # noqa: F401
    new_writer = partial(workers_writer, tuple(words), own.scheduler, own.workers)
    return write_records(args, new_writer)


if __name__ == "__main__":
    sys.exit(main())
