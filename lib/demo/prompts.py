"""Continue many prompts, a line of JSON for each: main.py --prompts FILE --out FILE.jsonl --batch 8

    FILE       one prompt per line, or one JSON object per line: {"prompt": ..., "id": ...}; an id
               is copied and not checked: two records with one id are told apart by their index
    Job        one line of FILE, and the rounds that were written after its prompt
    record     its line in --out: index, id, prompt, seed, settings, then text, ids, acceptance and
               tokens_per_pass, or in place of these four an error
    seed       of a text: (--seed, index), so no text depends on the others (shared/batch.py)
    settings   the flags that decide the texts. Models are compared by name, so --models_dir may
               differ when a run resumes

Records are written in the order of the prompts, each as soon as all before it are finished. The
same command resumes an interrupted run: whole records stay, an unfinished last line is cut off.
"""

import json
import os
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain

import numpy as np
from tqdm import tqdm

from lib.backend.arrays import gpu_errors_in_one_line
from lib.demo.compare import acceptance_figures, ratio, without_rows
from lib.demo.task import (MAX_PROMPT, SAMPLING, check_prompt, decode, load_task,
                           without_newline)
from variants import Models, build

SINGLE = ("prompt", "prompt_file", "json", "show", "trace", "window")  # flags of a single text
DECISIVE = ("n_tokens_to_generate", "target_model_size", "cut_vocab", "backend", "dtype", "costs",
            *SAMPLING)


def check_flags(args, default_of):
    """Raise ValueError if the flags of many prompts and of a single one do not fit together."""
    if args.prompts is None:
        for name in ("out", "batch"):
            if getattr(args, name) is not None:
                raise ValueError(f"need --prompts FILE with --{name}, got none")
        return
    for name in SINGLE:
        if getattr(args, name) != default_of(name):
            raise ValueError(f"need --prompts without --{name}, got both")
    if args.out is None:
        raise ValueError("need --out FILE.jsonl with --prompts, got none")
    if args.settings.get("memory"):
        raise ValueError("need --prompts without --memory: no text depends on the others, got both")


def decisive_settings(args, task):
    """Return the flags that decide the texts, {name: value} as JSON reads them back."""
    stop = [task.encoder.decode([token]) for token in sorted(task.stop)]
    names = [*DECISIVE, *(["draft_model_size"] if task.new_draft else [])]
    flags = args.settings | {name: getattr(args, name) for name in names} | {"stop": stop}
    return json.loads(json.dumps({"decoder": args.decoder} | flags))


# ---- lines and jobs

class Job:
    """One prompt, and the rounds that were written after it."""

    def __init__(self, head, x=(0,), n_left=0, error=None):
        self.head, self.x, self.n_left, self.error, self.rounds = head, list(x), n_left, error, []

    @property
    def ids(self):
        """Return the new tokens."""
        return [token for round in self.rounds for token in round.ids]

    def is_finished(self, stop):
        """Return whether all tokens are written, or a stop token."""
        ids = self.ids
        return len(ids) == self.n_left or bool(ids) and ids[-1] in stop

    def record(self, task):
        """Return the record, a dict."""
        if self.error:
            return self.head | {"error": self.error}
        return self.head | {
            "text": task.encoder.decode(self.x + self.ids), "ids": self.ids,
            "acceptance": acceptance_figures(task.entry, self.rounds)["acceptance"],
            "tokens_per_pass": ratio(len(self.ids), len(self.rounds))}


def read_lines(file, path):
    """Yield the lines of a binary file; ValueError if there are none, or one that is too long."""
    n_lines = 0
    while line := file.readline(MAX_PROMPT + 1):
        if len(line) > MAX_PROMPT:
            raise ValueError(f"need lines of at most {MAX_PROMPT} bytes in {path}, got a longer "
                             f"line {n_lines + 1}")
        yield without_newline(line)
        n_lines += 1
    if n_lines == 0:
        raise ValueError(f"need at least one prompt in {path}, got an empty file")


def read_prompt(line, errors):
    """Return {"prompt": text} of a line, with its "id" if it has one; ValueError if it is bad."""
    text = decode(line, errors)
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
    """Yield the Job of every line; one with an error writes no tokens."""
    settings = decisive_settings(args, task)
    for index, line in enumerate(lines):
        given, x, n_left, error = {"prompt": line.decode("utf-8", "replace")}, [0], 0, None
        try:
            given = read_prompt(line, args.errors)
            x = task.encoder.encode(given["prompt"])
            check_prompt(x, task.N, task.n_ctx)
            n_left = min(task.N, task.n_ctx - len(x))
        except ValueError as why:
            error = str(why)
        head = {"index": index, **given, "seed": [args.seed, index], "settings": settings}
        yield Job(head, x or [0], n_left, error)


# ---- texts that share passes

def check_costs(task):
    """Raise ValueError if costs are needed and not given: no text depends on a clock."""
    if task.needs_costs:
        raise ValueError(f"need --costs with --prompts for the decoder {task.decoder} with these "
                         "flags, got none")


def in_batches(task, args):
    """Return `write(jobs)`, which yields the jobs in their order, each when it is finished.

    ValueError if the decoder cannot share passes, or its settings do not fit.
    """
    from variants.shared.batch import Shared, generate_batch  # here: greenlet may be missing
    from variants.shared.batch_gpt2 import BatchGPT2

    check_costs(task)
    if "heads" in task.entry.needs:
        raise ValueError("need a decoder without heads for texts in batches (such as speculative, "
                         f"block, lookup), got {task.decoder}")
    shared = lambda new_model, turn: new_model and Shared(BatchGPT2(*new_model.args), turn)
    models = Models(shared(task.new_draft, 0), shared(task.new_target, 1), task.sampling,
                    costs=task.costs)
    run = partial(generate_batch, new_step=partial(build, task.decoder, models, task.settings),
                  batch=args.batch or 8, stop=task.stop)
    trial = [([0], min(2, task.n_ctx - 1), np.random.default_rng(0))]
    list(run(trial))  # refuse what does not fit before --out is opened
    return partial(write_batches, run, task.stop)


def write_batches(run, stop, jobs):
    """Yield the jobs in their order, each when it and all before it are finished."""
    begun = {}  # by number, the lowest first

    def begin():
        for i, job in enumerate(jobs):
            begun[i] = job
            yield job.x, job.n_left, np.random.default_rng(job.head["seed"])

    for i, round in run(begin()):
        begun[i].rounds.append(without_rows(round))
        while begun and begun[first := min(begun)].is_finished(stop):
            yield begun.pop(first)
    yield from begun.values()


# ---- --out

@contextmanager
def opened_alone(path):
    """Open --out for reading and appending; ValueError if a different process writes it."""
    from filelock import FileLock, Timeout  # here: it may be missing

    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"need --out to be a file, got {path}, a folder, pipe or device")
    with open(path, "a+b") as file:
        lock = FileLock(f"{path}.lock", blocking=False)
        try:
            lock.acquire()
        except Timeout:
            raise ValueError(f"{path} is being written by another process") from None
        try:
            yield file
        finally:
            with suppress(OSError):  # on Windows filelock removes it
                os.remove(lock.lock_file)
            lock.release()


def skip_written(file, jobs):
    """Skip the jobs that --out has records of; return how many, and how many of them are errors.

    An unfinished last line is cut off. ValueError, and nothing is changed, if a record does not
    fit its job.
    """
    n_bytes, are_errors = 0, []
    file.seek(0)
    for index, line in enumerate(file):
        start = json.dumps({"index": index})[:-1].encode()
        if not line.endswith(b"\n") and (line.startswith(start) or start.startswith(line)):
            break
        record = check_record(line, next(jobs, None), f"line {index + 1} of {file.name}")
        are_errors.append("error" in record)
        n_bytes += len(line)
    file.truncate(n_bytes)
    return len(are_errors), sum(are_errors)


def check_record(line, job, place):
    """Return the record in a line of --out; ValueError unless it is this job's."""
    try:
        record = json.loads(line)
        there = {"seed": record["seed"][0], **record["settings"]}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{place} is not a record of --prompts. Choose a new --out.") from None
    head = job.head if job else {}
    asked = {"seed": head["seed"][0], **head["settings"]} if job else there
    for name in asked | there:
        if there.get(name) != asked.get(name):
            raise ValueError(f"{place} was written with --{name} {shown(there.get(name))}, got "
                             f"--{name} {shown(asked.get(name))}. Choose a new --out.")
    if any(record.get(name) != head.get(name) for name in ("index", "id", "prompt")):
        raise ValueError(f"{place} was written for a different prompt. Choose a new --out.")
    return record


def shown(value):
    """Return the value of a setting as it stands on a command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# ---- all of them

@gpu_errors_in_one_line()
def continue_prompts(args, new_writer=in_batches):
    """Continue every prompt of --prompts into --out; return what was written as text.

    `new_writer(task, args)` returns a function of jobs that yields them finished, in their order.
    """
    is_stdin = args.prompts == "-"
    with open(0 if is_stdin else args.prompts, "rb", closefd=not is_stdin) as prompts:
        lines = read_lines(prompts, args.prompts)
        lines = chain([next(lines)], lines)  # an empty file is refused first
        task = load_task(args, prompt=".")  # a placeholder
        write = new_writer(task, args)
        with opened_alone(args.out) as out:
            if os.path.sameopenfile(prompts.fileno(), out.fileno()):
                raise ValueError(f"need two files for --prompts and --out, got {args.out} for both")
            jobs = read_jobs(lines, args, task)
            n_done, n_errors = skip_written(out, jobs)
            try:
                return append_records(out, write(jobs), task, n_done, n_errors)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("Interrupted; run the same command to resume.") from None


def append_records(out, jobs, task, n_done, n_errors):
    """Append the record of every job, with a counter on a terminal; return what was written."""
    n_texts = n_tokens = n_rounds = 0
    start, n_before = time.perf_counter(), n_done - n_errors
    for job in tqdm(jobs, initial=n_done, unit="text", leave=False, disable=None):
        out.write(json.dumps(job.record(task)).encode() + b"\n")
        out.flush()
        n_tokens, n_rounds = n_tokens + len(job.ids), n_rounds + len(job.rounds)
        n_texts, n_errors = n_texts + (not job.error), n_errors + bool(job.error)
    seconds, n_prompts = time.perf_counter() - start, n_before + n_texts + n_errors
    already = f" ({n_before} were already there)" if n_done else ""
    errors = (f'; {n_errors} of {n_prompts} prompts had errors, see "error" in their records'
              if n_errors else "")
    return (f"Wrote {n_texts} texts to {out.name}{already}{errors}.\n"
            f"{n_tokens} tokens in {seconds:.2f} s ({n_tokens / seconds:.1f} tokens/s), "
            f"{n_tokens / max(1, n_rounds):.2f} per pass.")
