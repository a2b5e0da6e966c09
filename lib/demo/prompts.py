"""Many prompts, a line of JSON for each: python main.py --prompts FILE --out FILE.jsonl --batch 8

    FILE       a prompt a line, or a JSON object a line: {"prompt": ...}, and "id" if it has one
    Job        one line of FILE, and what has been written after its prompt
    record     its line in --out: index, id, prompt, seed, then text, ids, acceptance and
               tokens_per_pass; or, in place of these, an error
    seed       of a text: (--seed, index), so no text depends on another (variants/shared/batch.py)

Records come in the order of the prompts. Each is written whole and at once, so a file that was cut
off can be gone on with by the same command: what is there is kept, a torn last line is not.
"""

import argparse
import json
import os
import time
from functools import partial
from itertools import count, islice

import numpy as np
from tqdm import tqdm

from lib.backend.arrays import gpu_errors_in_one_line
from lib.demo.task import MAX_PROMPT, load_task
from variants import Models, build
from variants.shared.batch import Shared, generate_batch
from variants.shared.batch_gpt2 import BatchGPT2

ALONE = ("prompt", "prompt_file", "json", "show", "trace", "window")  # flags of a single text


# ---- flags

def add_flags(parser):
    """Those of many prompts."""
    add = parser.add_argument_group("many prompts").add_argument
    add("--prompts", metavar="FILE", help="continue all of them: a prompt a line, or a JSON object "
        'a line, {"prompt": ..., "id": ...}')
    add("--out", metavar="FILE.jsonl", help="a line of JSON for each, in their order; a file that "
        "was cut off is gone on with")
    add("--batch", type=int, metavar="B", help="texts that are written at once (default: 8)")


def check_flags(args, default_of):
    """Raise ValueError if the flags of many prompts and of a single one do not fit together."""
    if args.prompts is None:
        for name in ("out", "batch"):
            if getattr(args, name) is not None:
                raise ValueError(f"need --prompts FILE with --{name}, got none")
        return
    for name in ALONE:
        if getattr(args, name) != default_of(name):
            raise ValueError(f"need --prompts without --{name}, got both")
    if args.out is None:
        raise ValueError("need --out FILE.jsonl with --prompts, got none")
    if os.path.exists(args.out) and os.path.samefile(args.out, args.prompts):
        raise ValueError(f"need two files for --prompts and --out, got {args.out} for both")
    if args.batch is not None and args.batch < 1:
        raise ValueError(f"need --batch >= 1 texts at once, got {args.batch}")
    if args.settings.get("K") == "auto":
        raise ValueError("need a number for --K with --prompts, got auto")
    if args.settings.get("memory"):
        raise ValueError("need --prompts without --memory: no text depends on another, got both")


# ---- a line of the prompts

class Job:
    """One prompt, and what has been written after it."""

    def __init__(self, head, x=(), n_left=0, error=None):
        self.head, self.x, self.n_left, self.error = head, x, n_left, error
        self.ids, self.n_rounds, self.n_accepted, self.n_tested = [], 0, 0, 0

    def add(self, round):
        """One more round."""
        self.ids += round.ids
        self.n_rounds += 1
        self.n_accepted += round.n_accepted
        self.n_tested += round.n_tested

    def record(self, encoder):
        """The line of this job, as a dict."""
        if self.error:
            return self.head | {"error": self.error}
        return self.head | {
            "text": encoder.decode(self.x + self.ids), "ids": self.ids,
            "acceptance": self.n_accepted / self.n_tested if self.n_tested else None,
            "tokens_per_pass": len(self.ids) / self.n_rounds if self.n_rounds else None}


def read_line(line, errors):
    """{"prompt": text} of a line, with its "id" if it has one; ValueError if it has no prompt."""
    if len(line) > MAX_PROMPT:
        raise ValueError(f"need a prompt of at most {MAX_PROMPT} bytes, got {len(line)}")
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


def head_of(index, line, args):
    """What a record begins with, and what is wrong with the line, or None."""
    error, line = None, line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        given = read_line(line, args.errors)
    except ValueError as why:
        given, error = {"prompt": line.decode("utf-8", "replace")}, str(why)
    return {"index": index, **given, "seed": [args.seed, index]}, error


def make_job(task, head, error):
    """The Job of a line: its prompt's tokens and the new ones that it has room for, or an error."""
    if error:
        return Job(head, error=error)
    try:
        x = tokens_of(task, head["prompt"])
    except ValueError as why:
        return Job(head, error=str(why))
    return Job(head, x, min(task.N, task.n_ctx - len(x)))


def tokens_of(task, prompt):
    """The tokens of a prompt; ValueError if it cannot be continued, or holds half a surrogate."""
    x = task.encoder.encode(prompt)
    if not x:
        raise ValueError("need a prompt of at least one token, got an empty one")
    if len(x) + min(task.N, 1) > task.n_ctx:
        raise ValueError(f"need a prompt that leaves room for a new token in n_ctx = {task.n_ctx}, "
                         f"got {len(x)} tokens")
    return x


# ---- all of them

def finished(jobs, new_step, batch, stop):
    """Every job as it ends: as soon as it is read if nothing is to be written after it."""
    begun, idle, numbers = {}, [], count()

    def wanted():
        for job in jobs:
            if job.n_left:
                begun[next(numbers)] = job
                yield job.x, job.n_left, np.random.default_rng(job.head["seed"])
            else:
                idle.append(job)

    for i, round in generate_batch(wanted(), new_step, batch, stop):
        begun[i].add(round)
        if len(begun[i].ids) == begun[i].n_left or round.ids[-1] in stop:
            idle.append(begun.pop(i))
        while idle:
            yield idle.pop()
    yield from idle


def in_order(jobs, index):
    """The jobs from `index` on, each as soon as all before it are there."""
    waiting = {}
    for job in jobs:
        waiting[job.head["index"]] = job
        while index in waiting:
            yield waiting.pop(index)
            index += 1


def open_out(path, heads):
    """The file to go on with, and how many records it has: those of the first of these heads.

    A last line without its end is cut off. ValueError, and nothing is changed, if any other line is
    not the record of its prompt and seed.
    """
    file, n_bytes, n_done = open(path, "a+b"), 0, 0
    file.seek(0)
    for line in file:
        head = next(heads, None)
        start = json.dumps({"index": n_done})[:-1].encode()
        if head is None or not (line.startswith(start) or start.startswith(line)):
            raise foreign(file, n_done)
        if line.endswith(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                raise foreign(file, n_done) from None
            if {name: record.get(name) for name in head} != head:
                raise foreign(file, n_done)
            n_bytes, n_done = n_bytes + len(line), n_done + 1
    file.truncate(n_bytes)
    return file, n_done


def foreign(file, n_done):
    """The error of a file that another command has written; closes it."""
    file.close()
    return ValueError(f"need --out to be new, or written for these prompts and this seed, got "
                      f"another line {n_done + 1} in {file.name}")


def batch_step(task):
    """What gives every text a step of the task's decoder; ValueError if that goes alone only."""
    if task.entry.branches or "heads" in task.entry.needs:
        raise ValueError("need a decoder whose guesses are a chain, and no head's, with --prompts "
                         f"(such as speculative, block, lookup), got {task.decoder}")
    if task.needs_costs:
        raise ValueError("need --costs with --prompts for this decoder, got none")
    shared = lambda new_model, turn: new_model and Shared(BatchGPT2(*new_model.args), turn)
    models = Models(shared(task.new_draft, 0), shared(task.new_target, 1), task.sampling,
                    costs=task.costs)
    new_step = partial(build, task.decoder, models, task.settings)
    new_step()  # so that a setting that does not fit is named before anything is written
    return new_step


@gpu_errors_in_one_line()
def continue_prompts(args):
    """Continue every prompt of the file into --out; what came of it, in a sentence or two."""
    with open(args.prompts, "rb") as lines:
        n_prompts = sum(1 for _ in lines)
    task = load_task(argparse.Namespace(**vars(args) | {"prompt": "."}))  # the lines have their own
    new_step, start = batch_step(task), time.perf_counter()
    heads = lambda lines: (head_of(i, line, args) for i, line in enumerate(lines))
    with open(args.prompts, "rb") as lines:
        out, n_done = open_out(args.out, (head for head, _ in heads(lines)))
    n_tokens = n_rounds = n_errors = 0
    with out, open(args.prompts, "rb") as lines, tqdm(
            total=n_prompts, initial=n_done, unit="text", leave=False, disable=None) as bar:
        jobs = (make_job(task, *head) for head in islice(heads(lines), n_done, None))
        for job in in_order(finished(jobs, new_step, args.batch or 8, task.stop), n_done):
            out.write(json.dumps(job.record(task.encoder)).encode() + b"\n")
            out.flush()
            bar.update()
            n_tokens, n_rounds = n_tokens + len(job.ids), n_rounds + job.n_rounds
            n_errors += job.error is not None
    seconds = time.perf_counter() - start
    return (f"{n_prompts} prompts in {args.out}: {n_prompts - n_done} now, {n_done} before, "
            f"{n_errors} with an error.\n{n_tokens} tokens in {seconds:.2f} s "
            f"({n_tokens / seconds:.1f} tokens/s), {n_tokens / max(1, n_rounds):.2f} per pass.")
