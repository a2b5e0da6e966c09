"""Continue many prompts, a line of JSON for each: main.py --prompts FILE --out FILE.jsonl --batch 8

    FILE       one prompt per line, or one JSON object per line: {"prompt": ..., "id": ...}; an id
               is copied and not checked: two records with one id are told apart by their index
    Job        one line of FILE, and what was written after its prompt
    record     its line in --out: index, id, prompt, seed, settings, then text, ids, acceptance and
               tokens_per_pass, or in place of these four an error
    seed       of a text: (--seed, index), so no text depends on the others (shared/batch.py)
    settings   the flags that decide the texts. Models are compared by name, so --models_dir may
               differ when a run resumes

Records are written in the order of the prompts, each as soon as all before it are finished. The
same command resumes an interrupted run: whole records stay, an unfinished last line is cut off.
"""

import argparse
import json
import os
import time
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count

import numpy as np
from tqdm import tqdm

from lib.backend.arrays import gpu_errors_in_one_line
from lib.demo.task import MAX_PROMPT, SAMPLING, load_task, without_newline
from variants import Models, build
from variants.shared.branches import Tree

SINGLE = ("prompt", "prompt_file", "json", "show", "trace", "window")  # flags of a single text
DECISIVE = ("n_tokens_to_generate", "target_model_size", "cut_vocab", "backend", "dtype", "costs",
            *SAMPLING)


# ---- flags

def add_flags(parser):
    """Add the flags of many prompts."""
    add = parser.add_argument_group("many prompts").add_argument
    add("--prompts", metavar="FILE", help="continue all of them: one prompt per line, or one JSON "
        'object per line, {"prompt": ..., "id": ...}; - reads standard input')
    add("--out", metavar="FILE.jsonl", help="one JSON record per prompt, in their order; an "
        "interrupted run resumes")
    add("--batch", type=int, metavar="B", help="texts per batch (default: 8)")


def check_flags(args, default_of):
    """Raise ValueError if the flags of many prompts and of a single one do not fit together."""
    given = [name for name in SINGLE if getattr(args, name) != default_of(name)]
    if args.prompts is None:
        for name in ("out", "batch"):
            if getattr(args, name) is not None:
                raise ValueError(f"need --prompts FILE with --{name}, got none")
        return
    for name in given:
        raise ValueError(f"need --prompts without --{name}, got both")
    if args.out is None:
        raise ValueError("need --out FILE.jsonl with --prompts, got none")
    if args.batch is not None and args.batch < 1:
        raise ValueError(f"need --batch >= 1 texts per batch, got {args.batch}")
    if args.settings.get("memory"):
        raise ValueError("need --prompts without --memory: no text depends on the others, got both")


def decisive_settings(args, task):
    """Return the flags that decide the texts, {name: value} as JSON reads them back."""
    stop = [task.encoder.decode([token]) for token in sorted(task.stop)]
    names = [*DECISIVE, *(["draft_model_size"] if task.new_draft else [])]
    flags = args.settings | {name: getattr(args, name) for name in names} | {"stop": stop}
    return json.loads(json.dumps({"decoder": args.decoder} | flags))


# ---- a line of the prompts

class Job:
    """One prompt, and what was written after it."""

    def __init__(self, head, x=(), n_left=0, error=None):
        self.head, self.x, self.n_left, self.error = head, x, n_left, error
        self.ids, self.n_rounds, self.n_accepted, self.n_tested = [], 0, 0, 0

    def add(self, round, entry):
        """Count one more round of a decoder; siblings in a tree compete, so they do not count."""
        self.ids += round.ids
        self.n_rounds += 1
        if not isinstance(round.guesses, Tree):
            self.n_accepted += round.n_accepted
            self.n_tested += round.n_tested if entry.one_by_one else len(round.guesses)

    def record(self, encoder):
        """Return the record, a dict."""
        if self.error:
            return self.head | {"error": self.error}
        return self.head | {
            "text": encoder.decode(self.x + self.ids), "ids": self.ids,
            "acceptance": self.n_accepted / self.n_tested if self.n_tested else None,
            "tokens_per_pass": len(self.ids) / self.n_rounds if self.n_rounds else None}


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
    try:
        text = line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text, got byte 0x{line[error.start]:02x} at position "
                         f"{error.start}; --errors replace reads it all the same") from None
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


def read_heads(lines, args, settings):
    """Yield, for every line, what its record begins with, and what is wrong with it or None."""
    for index, line in enumerate(lines):
        error = None
        try:
            given = read_prompt(line, args.errors)
        except ValueError as why:
            given, error = {"prompt": line.decode("utf-8", "replace")}, str(why)
        yield {"index": index, **given, "seed": [args.seed, index], "settings": settings}, error


def make_job(task, head, error):
    """Return the Job of a line: its prompt's tokens and how many are wanted, or its error."""
    x = []
    try:
        x = x if error else task.encoder.encode(head["prompt"])
    except ValueError as why:  # half a surrogate pair
        error = str(why)
    if not x:
        error = error or "need a prompt of at least one token, got an empty one"
    elif len(x) + min(task.N, 1) > task.n_ctx:
        error = (f"need a prompt that leaves a position for a new token in n_ctx = {task.n_ctx}, "
                 f"got {len(x)} tokens")
    return Job(head, x, 0 if error else min(task.N, task.n_ctx - len(x)), error)


# ---- texts that share passes

def check_costs(task):
    """Raise ValueError if costs are needed and not given: no text depends on a clock."""
    if task.needs_costs:
        raise ValueError(f"need --costs with --prompts for the decoder {task.decoder} with these "
                         "flags, got none")


def in_batches(task, args):
    """Return `write(jobs)`, which yields each job when it finishes.

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
    new_step = partial(build, task.decoder, models, task.settings)
    trial = [([0], min(2, task.n_ctx - 1), np.random.default_rng(0))]
    list(generate_batch(trial, new_step))  # refuse what does not fit before --out is opened
    run = partial(generate_batch, new_step=new_step, batch=args.batch or 8, stop=task.stop)
    return partial(write_batches, run, task)


def write_batches(run, task, jobs):
    """Yield each job when it finishes; those that want no token at once."""
    begun, finished, numbers = {}, [], count()

    def wanted():
        for job in jobs:
            if job.n_left:
                begun[next(numbers)] = job
                yield job.x, job.n_left, np.random.default_rng(job.head["seed"])
            else:
                finished.append(job)

    for i, round in run(wanted()):
        begun[i].add(round, task.entry)
        if len(begun[i].ids) == begun[i].n_left or round.ids[-1] in task.stop:
            finished.append(begun.pop(i))
        while finished:
            yield finished.pop()
    yield from finished


def in_order(jobs, index):
    """Yield the jobs from `index` on, each as soon as all before it are finished."""
    waiting = {}
    for job in jobs:
        waiting[job.head["index"]] = job
        while index in waiting:
            yield waiting.pop(index)
            index += 1


# ---- --out

@contextmanager
def opened_alone(path):
    """Open --out for reading and appending; ValueError if a different process writes it."""
    from filelock import FileLock, Timeout  # here: it may be missing

    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"need --out to be a file, got {path}, a folder, pipe or device")
    with open(path, "a+b") as file:
        lock = FileLock(f"{path}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(f"{path} is being written by another process") from None
        try:
            yield file
        finally:
            with suppress(OSError):  # on Windows filelock removes it
                os.remove(lock.lock_file)
            lock.release()


def skip_written(file, heads):
    """Return (how many records --out has, how many are errors); cut an unfinished last line.

    Their heads are taken from `heads`. ValueError, and nothing is changed, if one does not fit.
    """
    n_bytes = n_done = n_errors = 0
    file.seek(0)
    for line in file:
        start = json.dumps({"index": n_done})[:-1].encode()
        if not line.endswith(b"\n") and (line.startswith(start) or start.startswith(line)):
            break
        head, _ = next(heads, (None, None))
        record = check_record(line, head, f"line {n_done + 1} of {file.name}")
        n_bytes, n_done, n_errors = n_bytes + len(line), n_done + 1, n_errors + ("error" in record)
    file.truncate(n_bytes)
    return n_done, n_errors


def check_record(line, head, place):
    """Return the record in a line of --out; ValueError unless it is of this head."""
    try:
        record = json.loads(line)
        there = {"seed": record["seed"][0], **record["settings"]}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{place} is not a record of --prompts. Choose a new --out.") from None
    asked = {"seed": head["seed"][0], **head["settings"]} if head else there
    for name in asked | there:
        if there.get(name) != asked.get(name):
            raise ValueError(f"{place} was written with --{name} {shown(there.get(name))}, got "
                             f"--{name} {shown(asked.get(name))}. Choose a new --out.")
    known = ("index", "id", "prompt")
    if head is None or [record.get(name) for name in known] != [head.get(name) for name in known]:
        raise ValueError(f"{place} was written for a different prompt. Choose a new --out.")
    return record


def shown(value):
    """Return the value of a setting as it stands on a command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# ---- all of them

def load_placeholder(args):
    """Return the Task of the flags, with a placeholder prompt: the lines have their own."""
    return load_task(argparse.Namespace(**vars(args) | {"prompt": "."}))


@gpu_errors_in_one_line()
def continue_prompts(args, new_writer=in_batches):
    """Continue every prompt of --prompts into --out; return what was written as text.

    `new_writer(task, args)` returns what writes: a function of jobs that yields them finished.
    """
    is_stdin = args.prompts == "-"
    with open(0 if is_stdin else args.prompts, "rb", closefd=not is_stdin) as prompts:
        lines = read_lines(prompts, args.prompts)
        lines = chain([next(lines)], lines)  # an empty file is refused first
        task = load_placeholder(args)
        write = new_writer(task, args)
        heads = read_heads(lines, args, decisive_settings(args, task))
        with opened_alone(args.out) as out:
            if os.path.sameopenfile(prompts.fileno(), out.fileno()):
                raise ValueError(f"need two files for --prompts and --out, got {args.out} for both")
            n_done, n_errors = skip_written(out, heads)
            jobs = in_order(write(make_job(task, *head) for head in heads), n_done)
            try:
                return append_records(out, jobs, task.encoder, n_done, n_errors)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("Interrupted; run the same command to resume.") from None


def append_records(out, jobs, encoder, n_done, n_errors):
    """Append the record of every job, with a counter on a terminal; return what was written."""
    n_texts = n_tokens = n_rounds = 0
    start, n_before = time.perf_counter(), n_done - n_errors
    for job in tqdm(jobs, initial=n_done, unit="text", leave=False, disable=None):
        out.write(json.dumps(job.record(encoder)).encode() + b"\n")
        out.flush()
        n_tokens, n_rounds = n_tokens + len(job.ids), n_rounds + job.n_rounds
        n_texts, n_errors = n_texts + (not job.error), n_errors + bool(job.error)
    seconds, n_prompts = time.perf_counter() - start, n_before + n_texts + n_errors
    already = f" ({n_before} were already there)" if n_done else ""
    errors = (f'; {n_errors} of {n_prompts} prompts had errors, see "error" in their records'
              if n_errors else "")
    return (f"Wrote {n_texts} texts to {out.name}{already}{errors}.\n"
            f"{n_tokens} tokens in {seconds:.2f} s ({n_tokens / seconds:.1f} tokens/s), "
            f"{n_tokens / max(1, n_rounds):.2f} per pass.")
