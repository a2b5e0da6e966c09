"""What a worker of tools/survey.py does: load the models once, then write one text after another.

    words      main.py's command line of one decoder: what the Task is made of, wherever it is
    record     a line of --out: as lib/demo/prompts.py has it, with the target's `passes` and, by place
               in the round, how many guesses were `examined` and `accepted` (null of a tree, whose
               guesses are rivals)

Nothing here knows of Dask.
"""

import argparse
import hashlib
import platform
from functools import lru_cache
from pathlib import Path

import numpy as np

import main as command
from lib.backend import products
from lib.backend.arrays import gpu_errors_in_one_line, in_one_line
from lib.demo.compare import Timed, ratio
from lib.demo.prompts import make_job
from lib.demo.task import load_task
from speculative import generate
from theory.checks import need
from variants import Models, build

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "lib/backend", "lib/checkpoints", "lib/demo", "variants", "variants/shared")  # what a text depends on


def load(words):
    """The Task of a command line; its prompt stands for those that are to come."""
    with gpu_errors_in_one_line():
        return load_task(argparse.Namespace(**vars(command.parse_args(words)) | {"prompt": "."}))


@lru_cache(maxsize=1)
def load_once(words, expected):
    """The Task, once a process; ValueError unless code and weights are those of the client."""
    task = load(words)
    need(fingerprint(task) == expected, "the same code and weights everywhere",
         f"others on {platform.node()}")
    products.start_threads = lambda: 0  # the same parts of a product as in main.py, on one core
    return task


def fingerprint(task):
    """A hash of the code and of the weights."""
    total, files = hashlib.sha256(), [Path(__file__), *task.files]
    for folder in FOLDERS:
        files += sorted((ROOT / folder).glob("*.py"))
    for path in files:
        with open(path, "rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def answer(words, expected, head, error):
    """The record of one prompt; what goes wrong with it alone is its error."""
    task = load_once(words, expected)
    try:
        return record_of(task, head, error)
    except Exception as why:  # whatever it is, the other prompts go on
        return head | {"error": in_one_line(why)}


def begin(task):
    """A step of the task's decoder with models that have read nothing, and its target."""
    draft, target = task.new_draft and task.new_draft(), Timed(task.new_target())
    models = Models(draft, target, task.sampling, task.heads)
    return build(task.decoder, models, task.settings), target


def record_of(task, head, error=None):
    """Continue one prompt, and count."""
    job, tested, kept = make_job(task, head, error), [], []
    if job.error:
        return job.record(task.encoder)
    (step, target), rng = begin(task), np.random.default_rng(head["seed"])
    for round in generate(job.x, step, job.n_left, rng, task.stop):
        job.add(round)
        tested.append(round.n_tested)
        kept.append(round.n_accepted)
    passes, places = len(target.rows), range(max(tested, default=0))
    record = job.record(task.encoder) | {
        "tokens_per_pass": ratio(len(job.ids), passes), "passes": passes,
        "examined": [sum(n > t for n in tested) for t in places],
        "accepted": [sum(n > t for n in kept) for t in places]}
    if task.is_tree:
        record |= {"acceptance": None, "examined": None, "accepted": None}
    return record
