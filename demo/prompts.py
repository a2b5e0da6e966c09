"""Continue many prompts, a line of JSON for each: main.py --prompts FILE --out FILE.jsonl --batch 8

    FILE       one prompt per line, or one JSON object per line: {"prompt": ..., "id": ...}; an id
               is copied and not checked: two records with one id are told apart by their index
    record     a line of --out: index, prompt, seed, settings, id, then text, ids, acceptance and
               tokens_per_pass, or in place of these four an error
    seed       of a text: (--seed, index), so no text depends on the others (shared/batch.py)
    settings   the flags that decide the texts. Models are compared by name, so --models_dir may
               differ when a run resumes

Records are written in the order of the prompts, each as soon as all before it are finished. The
same command resumes an interrupted run: whole records stay, an unfinished last line is cut off.
"""

import json
import os
import reprlib
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, tee
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from demo.compare import acceptance_figures, ratio
from demo.task import MAX_PROMPT, decode, load_task, settings_for_json, with_prompt, without_newline
from lib.backend.arrays import gpu_errors_in_one_line
from variants import Models, build

START = b'{"index": '  # of every record


# ---- lines and jobs

class Job(NamedTuple):
    """Hold one prompt; one with an error wants no tokens."""

    head: dict  # of its record
    x: list = (0,)
    n_left: int = 0


def record_of(job, rounds, task):
    """Return the record of a prompt and of the rounds that were written after it."""
    if "error" in job.head:
        return job.head
    ids = [token for result in rounds for token in result.ids]
    acceptance = acceptance_figures(rounds, task.entry.one_by_one)["acceptance"]
    return job.head | {"text": task.encoder.decode(job.x + ids), "ids": ids,
                       "acceptance": acceptance,
                       "tokens_per_pass": ratio(len(ids), len(rounds))}


def read_lines(file, path):
    """Yield the lines of a binary file; ValueError if there are none, or one that is too long."""
    n_lines = 0
    while line := file.readline(MAX_PROMPT + 1):
        n_lines += 1
        if len(line) > MAX_PROMPT:
            raise ValueError(f"need lines of at most {MAX_PROMPT} bytes in {path}, got a longer "
                             f"line {n_lines}")
        yield without_newline(line)
    if n_lines == 0:
        raise ValueError(f"need at least one prompt in {path}, got an empty file")


def read_prompt(line):
    """Return {"prompt": text} of a line, with its "id" if it has one; ValueError if it is bad."""
    text = decode(line)
    if not text.startswith("{"):
        return {"prompt": text}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"need a JSON object where a line begins with {{, got: {error}") from None
    if not isinstance(given.get("prompt"), str):
        raise ValueError('need a "prompt" that is text in a JSON object, got '
                         f'{json.dumps(given.get("prompt"))}')
    return {name: given[name] for name in ("id", "prompt") if name in given}


def read_jobs(lines, args, task):
    """Yield the Job of every line."""
    settings = json.loads(json.dumps(settings_for_json(args)))  # as they are read back
    for index, line in enumerate(lines):
        head = {"index": index, "prompt": line.decode("utf-8", "replace"),
                "seed": [args.seed, index], "settings": settings}
        try:
            head |= read_prompt(line)
            own = with_prompt(task, head["prompt"])
            yield Job(head, own.x, own.n_new)
        except ValueError as why:
            yield Job(head | {"error": str(why)})


# ---- texts that share passes

def in_batches(task, args):
    """Return `write(jobs)`, which yields (job, rounds) in their order, each when it is finished.

    ValueError if the decoder cannot share passes, or its settings do not fit.
    """
    from variants.shared.batch import Shared, generate_batch  # here: greenlet may be missing
    from variants.shared.batch_gpt2 import BatchGPT2

    if "heads" in task.entry.needs:
        raise ValueError("need a decoder without heads for texts in batches (such as speculative, "
                         f"block, lookup), got {task.decoder}")
    draft, target = (new_model and Shared(BatchGPT2(*new_model.args), turn)
                     for turn, new_model in enumerate((task.new_draft, task.new_target)))
    models = Models(draft and task.over_target_ids(draft), target, task.sampling, costs=task.costs)
    run = partial(generate_batch, new_step=partial(build, task.decoder, models, task.settings),
                  batch=args.batch or 8, stop=task.stop)
    trial = [([0], min(2, task.n_ctx - 1), np.random.default_rng(0))]
    list(run(trial))  # refuse what does not fit before --out is opened

    def write(jobs):
        jobs, begun = tee(jobs)
        return zip(jobs, run((job.x, job.n_left, np.random.default_rng(job.head["seed"]))
                             for job in begun))

    return write


# ---- --out

@contextmanager
def opened_alone(path):
    """Open --out for reading and appending; ValueError if a different process writes it."""
    from filelock import FileLock, Timeout  # here: it may be missing

    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"need --out to be a file, got {path}, a folder, pipe or device")
    try:
        with open(path, "a+b") as file, FileLock(f"{path}.lock", blocking=False) as lock:
            try:
                yield file
            finally:
                with suppress(OSError):  # on Windows filelock removes it
                    os.remove(lock.lock_file)
    except Timeout:
        raise ValueError(f"{path} is being written by another process") from None


def skip_written(file, jobs):
    """Skip the jobs that --out has records of, cut off an unfinished last line; return how many.

    ValueError, and nothing is changed, if a record does not fit its job.
    """
    n_done = n_bytes = 0
    file.seek(0)
    for line in file:
        if not line.endswith(b"\n") and line.startswith(START[: len(line)]):
            break
        n_done, n_bytes = n_done + 1, n_bytes + len(line)
        check_record(line, next(jobs, None), f"line {n_done} of {file.name}")
    file.truncate(n_bytes)
    return n_done


def check_record(line, job, place):
    """Raise ValueError unless a line of --out is the record of this job and these settings."""
    try:
        record = json.loads(line)
        there = record["settings"] | record
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{place} is not a record of --prompts. Choose a new --out.") from None
    asked = job.head["settings"] | job.head if job else {"prompt": None}
    for name, value in asked.items():
        if there.get(name) != value:
            raise ValueError(f"{place} was written with {name} {reprlib.repr(there.get(name))}, "
                             f"got {reprlib.repr(value)}. Choose a new --out.")


# ---- all of them

@gpu_errors_in_one_line()
def continue_prompts(args, new_writer=in_batches):
    """Continue every prompt of --prompts into --out; return what was written as text.

    `new_writer(task, args)` returns a function of jobs such as that of `in_batches`.
    """
    is_stdin = args.prompts == "-"
    with open(0 if is_stdin else args.prompts, "rb", closefd=not is_stdin) as prompts:
        lines = read_lines(prompts, args.prompts)
        lines = chain([next(lines)], lines)  # an empty file is refused first
        task = load_task(args, prompt=".")  # a placeholder
        if task.needs_costs:
            raise ValueError("need --costs with --prompts for the decoder "
                             f"{task.decoder} with these flags, got none")
        write = new_writer(task, args)
        with opened_alone(args.out) as out:
            jobs = read_jobs(lines, args, task)
            n_done = skip_written(out, jobs)
            return append_records(out, write(jobs), task, n_done)


def append_records(out, jobs, task, n_done):
    """Append the record of every job, with a counter on a terminal; return what was written."""
    start, n_texts, n_errors, n_tokens = time.perf_counter(), 0, 0, 0
    for job, rounds in tqdm(jobs, initial=n_done, unit="text", leave=False, disable=None):
        record = record_of(job, rounds, task)
        out.write(json.dumps(record).encode() + b"\n")
        out.flush()
        n_errors += "error" in record
        n_texts += "ids" in record
        n_tokens += len(record.get("ids", ()))
    seconds = time.perf_counter() - start
    vocabularies = f"\nVocabularies differ: {task.common}." if task.common else ""
    return (f"Wrote {n_texts} texts and {n_errors} errors to {out.name} ({n_done} records were "
            f"already there).\n{n_tokens} tokens in {seconds:.2f} s "
            f"({n_tokens / seconds:.1f} tokens/s){vocabularies}")
