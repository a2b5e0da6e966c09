"""Continue many prompts, one line of JSON per prompt: main.py --prompts FILE --out FILE.jsonl

run/entries.py says what a line of FILE may be. A line with its own "seed" gives the text of
main.py --prompt with this --seed. A line of --out is a record, one JSON object per prompt:

    index, prompt, seed, settings           of every prompt; also the other entries of its line
    text                                    the prompt and its continuation
    ids, acceptance, tokens_per_pass        of the continuation
    time_s                                  seconds from the start of the text to its end
    prompt_s                                to its first token, after the prompt was read
    tokens_per_second                       of the tokens after it
    fits_pattern, forced                    with a pattern
    messages, answer                        of a chat; the answer is the new text alone
    logprobs                                with --logprobs: the target's, of each new token
    error                                   instead of a text, if the prompt failed

    seed       (--seed, index) unless the line has a seed, so no text depends on the others
               (wrappers/batch.py)
    settings   the flags that decide the texts. Models are compared by name, so --models_dir may
               differ when a run resumes
    writer     a function that gets the jobs and yields the text of each, in their order

The texts of a batch share passes, so the seconds of each contain those of the others. Records
are written in the order of the prompts, each record as soon as all records before it are
written. The same command resumes an interrupted run. It keeps whole records and removes an
unfinished last line. With --out - the records go to standard output, and nothing can be
resumed.
"""

import json
import os
import reprlib
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, tee
from typing import IO, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from lib import pattern
from lib.checkpoints.files import file_lock
from lib.terminal import open_flag, print_safely
from measure.passes import Run, Timed, acceptance_figures, quotient
from run.compare import pattern_figures
from run.entries import ENTRIES, entries_of_line, prompt_lines, task_of_entries
from run.flags import settings_for_json
from run.rounds import log_probabilities
from run.task import Task, load_task
from speculative import Round, Step
from variants import Models, build

START = b'{"index": '  # of every record


# ---- jobs and their texts

class Job(NamedTuple):
    """Hold one prompt. If the prompt has an error, `head` names it and there is no task."""

    head: dict  # the record without the text and its figures
    given: dict  # the entries of the line
    task: Task | None


@dataclass
class Written:
    """Hold the text of a job as its writer fills it in."""

    rounds: list[Round] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # from its start to each round's end
    logprobs: list[float | None] = field(default_factory=list)  # if they are wanted
    n_passes: int = 0  # of the target
    error: str = ""  # what ended the text


# A writer turns jobs without errors into their texts. A maker returns a writer for a task.
Writer = Callable[[Iterable[Job]], Iterator[Written]]
WriterMaker = Callable[[Task, Namespace], Writer]


def jobs_of_lines(lines: Iterable[bytes], args: Namespace, task: Task) -> Iterator[Job]:
    """Yield the Job of every line."""
    # Tuples become lists, so that settings are equal to those read back from --out.
    settings = json.loads(json.dumps(settings_for_json(args)))
    for index, line in enumerate(lines):
        head = {"index": index, "prompt": line.decode("utf-8", "replace"),
                "seed": [args.seed, index], "settings": settings}
        try:
            yield job_of_line(line, head, task)
        except ValueError as why:
            yield Job(head | {"error": f"line {index + 1}: {why}"}, {}, None)


def job_of_line(line: bytes, head: dict, task: Task) -> Job:
    """Return the Job of a line, whose entries are added to `head`; ValueError for an error."""
    # If this fails, the record of the error shows the whole line as its prompt.
    given = entries_of_line(line)
    head |= given
    own_task = task_of_line(given, head["index"], task)
    if own_task.is_chat:  # the record shows what the template made of messages
        encoder: Any = task.encoder  # a Tokenizer that has a template
        head["prompt"] = encoder.chat_text(given["messages"])
    # This raises ValueError if the decoder does not work at the line's temperature.
    if own_task.models.sampling != task.models.sampling:
        build(task.entry, own_task.new_models(), task.settings)
    return Job(head, given, own_task)


def task_of_line(given: dict, index: int, task: Task) -> Task:
    """Return the task of a line; a line without a seed gets [--seed, its index]."""
    return task_of_entries(given, task._replace(seed=[task.seed, index]))


def noting_step(task: Task, models: Models, written: Written, bar: tqdm) -> Step:
    """Return the task's step, which notes each round in `written`, and counts its tokens.

    It ends a text where its pattern cannot go on.
    """
    step = task.with_forced(build(task.entry, models, task.settings), models)
    start = time.perf_counter()

    def step_and_note(x, n_left, rng):
        try:
            result = step(x, n_left, rng)
        except pattern.DeadEnd as why:
            # The end of text stops `generate`. An error would stop the other texts too.
            written.error = str(why)
            end = [task.encoder.end_of_text]
            return Round(end, guesses=[], p_draft=[], p_target=[], n_accepted=0)
        written.seconds.append(time.perf_counter() - start)
        written.n_passes = models.target.n_passes()
        if task.logprobs:
            written.logprobs.extend(log_probabilities(result, task.models.is_greedy))
        bar.update(len(result.ids))
        return result

    return step_and_note


def record_of(job: Job, written: Written) -> dict:
    """Return the record of a prompt and of the text that continues it."""
    if written.error:
        return job.head | {"error": written.error}
    if job.task is None:  # the head names the error
        return job.head
    run = Run(None, Timed(None))
    for result, end in zip(written.rounds, written.seconds):
        run.add(result, end - run.seconds)
    # "text" begins with the prompt, also for a chat, whose "answer" does not.
    record = job.head | {"text": job.task._replace(is_chat=False).text_of(run.ids),
                         "ids": run.ids,
                         "acceptance": acceptance_figures(run.rounds)["acceptance"],
                         "tokens_per_pass": quotient(len(run.ids), written.n_passes),
                         "time_s": run.seconds, "prompt_s": run.prompt_s,
                         "tokens_per_second": run.rate}
    if job.task.is_chat:
        record["answer"] = job.task.text_of(run.ids)
    if job.task.logprobs:
        record["logprobs"] = written.logprobs[: len(run.ids)]  # without those after a stop
    if job.task.grammar:
        record |= pattern_figures(job.task, run.ids, run.rounds)
    return record


# ---- texts that share passes

def batch_writer(task: Task, args: Namespace) -> Writer:
    """Return a writer of texts that share their passes.

    ValueError if the decoder cannot share passes, or its settings do not fit.
    """
    from wrappers.batch import batch_model, generate_batch  # here: greenlet is optional

    # A pass over several texts returns neither the hidden states that heads read, nor the rows
    # of a tree.
    if task.entry.needs(task.settings) & {"heads", "tree"}:
        raise ValueError(f"--decoder {task.decoder} with these flags has heads or trees of "
                         "guesses, which do not work with --prompts: choose a decoder such as "
                         "speculative, block or lookup")
    # If some texts wait for the draft and some for the target, the model of turn 0 runs first.
    draft = task.models.draft and batch_model(task.models.draft, turn=0)
    target = batch_model(task.models.target, turn=1)

    def text_of(own_task, written, bar):
        """Return the (x, n_left, rng, new_step, stop) that generate_batch takes."""
        def new_step():
            models = own_task.with_settings(draft, Timed(target))  # counts this text's passes
            return noting_step(own_task, models, written, bar)

        rng = np.random.default_rng(own_task.seed)
        return own_task.x, own_task.n_new, rng, new_step, own_task.ended

    def write_texts(jobs):
        """Yield the text of each job."""
        begun: deque[Written] = deque()  # the batch begins several texts before one has ended
        # The first texts may end after minutes, so a second bar on a terminal counts tokens.
        with tqdm(unit="token", leave=False, disable=None, position=1) as bar:
            def begin(job):
                begun.append(Written())
                return text_of(job.task, begun[-1], bar)

            # new_step=None, because each text brings its own new_step.
            for rounds in generate_batch(map(begin, jobs), None, args.batch or 8):
                written = begun.popleft()
                written.rounds = rounds
                yield written

    # A trial text of two tokens: an error of the decoder comes before --out is opened.
    list(write_texts([Job({}, {}, task._replace(x=[0], N=2))]))
    return write_texts


# ---- --out

@contextmanager
def opened_alone(path: str) -> Iterator[IO[bytes]]:
    """Open --out for reading and appending; ValueError if a different process writes it.

    "-" is standard output, which can only be written.
    """
    if path == "-":
        with open(1, "wb", closefd=False) as file:  # descriptor 1, which stays open
            yield file
        return
    from filelock import Timeout  # imported here because it is optional

    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"--out {path} is a folder, pipe or device: choose a file, or - for "
                         "standard output")
    # "a+b" makes a file that is missing, keeps a file that exists, and allows to read it.
    try:
        with open_flag("out", path, "a+b") as file, file_lock(f"{path}.lock", blocking=False):
            yield file
    except Timeout:
        raise ValueError(f"--out {path} is being written by another process: wait for it, or "
                         "choose a new --out") from None


def skip_written(file: IO[bytes], jobs: Iterator[Job]) -> list[bool]:
    """Skip the jobs whose records are in --out, and cut off an unfinished last line.

    Returns whether each record is an error. ValueError, and nothing is changed, if a record
    does not fit its job.
    """
    are_errors = []
    n_bytes = 0  # of the whole records
    file.seek(0)
    for line in file:
        # An unfinished line may be shorter than START, so only their common length is compared.
        if not line.endswith(b"\n") and line.startswith(START[: len(line)]):
            break
        job = next(jobs, None)  # None if there are more records than prompts
        record = checked_record(line, job, f"line {len(are_errors) + 1} of {file.name}")
        are_errors.append("error" in record)
        n_bytes += len(line)
    file.truncate(n_bytes)
    return are_errors


def checked_record(line: bytes, job: Job | None, where: str) -> dict:
    """Return the record in a line of --out; ValueError unless it belongs to this job."""
    try:
        record = json.loads(line)
        written = asked_of(record)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{where} is not a record of --prompts. Choose a new --out.") from None
    asked = asked_of(job.head) if job else {}
    for name in written | asked:
        if written.get(name) != asked.get(name):
            raise ValueError(f"{where} was written with {name} "
                             f"{reprlib.repr(written.get(name))}, but this run has "
                             f"{reprlib.repr(asked.get(name))}. Choose a new --out.")
    return record


def asked_of(record: dict) -> dict:
    """Return what decides a record's text: the entries of its line, and the other settings."""
    entries = {name: record[name] for name in ENTRIES if name in record}
    if "messages" in entries:
        entries.pop("prompt", None)  # a template may write today's date into it
    # First, so that a difference in them is reported first; last, so that they replace the
    # flags' values.
    return entries | record["settings"] | entries


# ---- all of them

def write_records(args: Namespace, new_writer: WriterMaker = batch_writer) -> int:
    """Continue --prompts into --out; print the report. Return 3 if records are errors."""
    lines = prompt_lines(args.prompts)
    # The first line is read now, so that an empty file is an error before models are loaded.
    # Then it is put back.
    lines = chain([next(lines)], lines)
    task = load_task(args, prompt=".")  # a task needs a prompt; each job has its own
    write_texts = new_writer(task, args)
    with opened_alone(args.out) as out:
        jobs = jobs_of_lines(lines, args, task)  # makes a job when one is wanted
        old = [] if args.out == "-" else skip_written(out, jobs)
        start = time.perf_counter()
        new, n_tokens = append_records(out, jobs, write_texts, len(old))
        seconds = time.perf_counter() - start
    text = report_text(args.out, old, new, n_tokens, seconds)
    if task.vocabularies:
        text += f"\nVocabularies differ: {task.vocabularies}."
    print_safely(text, sys.stderr if args.out == "-" else sys.stdout)
    return 3 if any(old + new) else 0


def append_records(out: IO[bytes], jobs: Iterable[Job], write_texts: Writer,
                   n_done: int) -> tuple[list[bool], int]:
    """Append the record of every job, with a counter on a terminal.

    Returns whether each record is an error, and the number of new tokens.
    """
    are_errors = []
    n_tokens = 0
    # A writer reads several jobs before it yields the first text, and gets none with an error.
    # tee keeps the jobs that it has read.
    jobs, jobs_to_write = tee(jobs)
    texts = write_texts(job for job in jobs_to_write if job.task)
    for job in tqdm(jobs, initial=n_done, unit="text", leave=False, disable=None):
        record = record_of(job, next(texts) if job.task else Written())
        out.write(json.dumps(record).encode() + b"\n")
        out.flush()  # an interrupted run keeps this record
        are_errors.append("error" in record)
        n_tokens += len(record.get("ids", ()))
    return are_errors, n_tokens


# ---- the report

def report_text(path: str, old: list[bool], new: list[bool], n_tokens: int,
                seconds: float) -> str:
    """Return the report; `old` and `new` say of earlier and new records which are errors."""
    n_errors = sum(new)
    name = "standard output" if path == "-" else path
    text = (f"Wrote {counted(len(new) - n_errors, 'text')} and {counted(n_errors, 'error')} to "
            f"{name}")
    if old:
        text += f", which already had {counted(len(old), 'record')}"
    text += f".\n{n_tokens} tokens in {seconds:.2f} s ({n_tokens / seconds:.1f} tokens/s)"
    are_errors = old + new
    if any(are_errors):
        first = are_errors.index(True) + 1  # lines count from 1
        text += (f"\nErrors: {sum(are_errors)} of {len(are_errors)} records, the first in line "
                 f"{first}.")
        if path != "-":
            text += (f" To try again, correct the prompts, delete line {first} of {path} and "
                     "all lines after it, and run the same command.")
    return text


def counted(n: int, noun: str) -> str:
    """Return a number and its noun, which has an s unless the number is 1."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
