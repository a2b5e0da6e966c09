"""Continue many prompts, one line of JSON per prompt: main.py --prompts FILE --out FILE.jsonl

A line of FILE is one of these:

    text                                    the prompt itself
    {"prompt": ..}                          a JSON object with the prompt
    {"messages": [{"role": .., "content": ..}]}
                                            a chat; the chat template of the target's tokenizer
                                            makes the prompt

An object may also have an "id", which is copied into the record, and its own "seed",
"temperature", "n_tokens_to_generate", "stop" (a list of texts) and pattern ("regex",
"json_schema" or "lark"). These replace the flags of the same names; with its own seed a prompt
has the text of main.py --prompt --seed. Any other entry is an error.

A line of --out is a record, one JSON object per prompt:

    index, prompt, seed, settings           of every prompt; also the other entries of its line
    text                                    the prompt and its continuation
    ids, acceptance, tokens_per_pass        of the continuation
    fits_pattern, forced                    with a pattern
    messages, answer                        of a chat; the answer is the new text alone
    logprobs                                with --logprobs: the target's, of each new token
    error                                   instead of a text, if the prompt failed

    seed       (--seed, index) unless the line has a seed, so no text depends on the others
               (wrappers/batch.py)
    settings   the flags that decide the texts. Models are compared by name, so --models_dir may
               differ when a run resumes
    writer     a function that gets the jobs and yields (job, rounds) for each, in the order of
               the jobs

Records are written in the order of the prompts, each record as soon as all records before it
are written. The same command resumes an interrupted run. It keeps whole records and removes an
unfinished last line. With --out - the records go to standard output, and nothing can be
resumed. At the end a report names ids that several prompts have.
"""

import json
import os
import reprlib
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, tee
from typing import IO, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from lib import pattern
from lib.checkpoints.files import file_lock
from lib.terminal import not_a_choice, open_flag, print_safely
from lib.tokenizer import Tokenizer
from measure.passes import acceptance_figures, quotient
from run.compare import pattern_figures
from run.flags import SAMPLING, SEED, TEXT, settings_for_json
from run.rounds import log_probabilities
from run.task import (
    MAX_PROMPT,
    Task,
    load_task,
    stops,
    text_and_ids,
    utf8_text,
    with_ids,
    with_pattern,
    without_mark,
    without_newline,
)
from sampling import check_sampling
from speculative import Round, Step
from variants import build
from variants.registry import number
from wrappers.forced import ForcedRound

START = b'{"index": '  # of every record
ENTRIES = ("prompt", "messages", "id", "seed", "temperature", "n_tokens_to_generate", "stop",
           *pattern.KINDS)  # of a line
N_NAMED = 5  # ids that the report names


# ---- lines and jobs

class Job(NamedTuple):
    """Hold one prompt.

    A prompt with an error is a job too, so that its record is written in its turn. Such a job
    has the defaults below: token 0 as its prompt, and no new tokens.
    """

    head: dict  # the record without the text and its figures
    x: Sequence[int] = (0,)  # the prompt's tokens
    n_left: int = 0  # new tokens
    logprobs: list = []  # of the new tokens, if they are wanted; it grows
    grammar: str | None = None  # of the prompt's own pattern, or else of the flags' pattern
    own: dict = {}  # fields of a Task that the line sets
    sampling: dict = {}  # settings of sampling.warp that the line sets

    def task(self, task: Task) -> Task:
        """Return the task of this prompt; `task` is the task of all prompts, from the flags."""
        models = task.models._replace(sampling=task.models.sampling | self.sampling)
        task = task._replace(models=models, x=[*self.x], N=self.n_left, **self.own)
        return with_pattern(task, self.grammar) if self.grammar else task


# A writer turns jobs into (job, the rounds of its text). A maker returns a writer for a task.
Writer = Callable[[Iterable[Job]], Iterable[tuple[Job, list[Round]]]]
WriterMaker = Callable[[Task, Namespace], Writer]


def prompt_lines(file: IO[bytes], path: str) -> Iterator[bytes]:
    """Yield the lines of a binary file; ValueError if there are none, or one is too long."""
    source = "standard input" if path == "-" else path
    n_lines = 0
    # readline with a limit, because a file without line ends would fill the memory.
    while line := file.readline(MAX_PROMPT + 1):
        n_lines += 1
        if len(line) > MAX_PROMPT:
            raise ValueError(f"need lines of at most {MAX_PROMPT} bytes in {source}, got a "
                             f"longer line {n_lines}")
        if n_lines == 1:
            line = without_mark(line)
        yield without_newline(line)
    if n_lines == 0:
        raise ValueError(f"need at least one prompt in {source}, got an empty file")


def prompt_of_line(line: bytes) -> dict:
    """Return {"prompt": text} or {"messages": list} of a line, with its other ENTRIES.

    ValueError if the line has no prompt or an entry that does not exist, or is not JSON
    although it begins with {.
    """
    text = utf8_text(line)
    if not text.startswith("{"):
        return {"prompt": text}
    try:
        given = json.loads(text, parse_constant=number, parse_float=number)
    except (ValueError, RecursionError) as error:  # not JSON, or nested too deeply
        raise ValueError("a line that begins with { must be a JSON object: "
                         f"{error}") from None
    for name in given:
        if name not in ENTRIES:
            raise ValueError(not_a_choice(name, ENTRIES))
    is_chat = "messages" in given
    if is_chat and "prompt" in given:
        raise ValueError('"messages" and "prompt" are both given: choose one')
    if not is_chat and not isinstance(given.get("prompt"), str):
        raise ValueError('need a "prompt" that is text in a JSON object, or "messages", got '
                         f'{json.dumps(given.get("prompt"))}')
    return given


def own_values(given: dict) -> dict:
    """Return the values of a line's own flags, each read as its flag; ValueError if wrong."""
    values = {}
    for name, flag in (TEXT | SAMPLING | SEED).items():
        if name in given and "type" in flag:
            try:
                values[name] = flag["type"](given[name])
            except ValueError as why:
                raise ValueError(f'"{name}": {why}') from None
    return values


def own_stop(names: Any, encoder: Tokenizer) -> tuple[set[int], tuple[str, ...]]:
    """Return the tokens and texts of a line's "stop"; ValueError unless it is a list."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f'"stop" must be a list of texts, got {json.dumps(names)}')
    return stops(names, encoder, '"stop"')


def grammar_of_line(given: dict) -> str | None:
    """Return the grammar of a line's own pattern, or None; ValueError if it is not valid."""
    kinds = [kind for kind in pattern.KINDS if kind in given]
    if not kinds:  # the text then has the flags' pattern, if any
        return None
    if len(kinds) > 1:
        raise ValueError(f'"{kinds[0]}" and "{kinds[1]}" are both given: choose one')
    kind = kinds[0]
    text = given[kind]
    # A schema may be an object of the line, or a text.
    if kind == "json_schema" and not isinstance(text, str):
        text = json.dumps(text)
    if not isinstance(text, str):
        raise ValueError(f'need a "{kind}" that is text, got {json.dumps(text)}')
    return pattern.grammar_of(kind, text, name=f'"{kind}"')


def jobs_of_lines(lines: Iterable[bytes], args: Namespace, task: Task,
                  n_of_id: Counter) -> Iterator[Job]:
    """Yield the Job of every line; count in `n_of_id` how many prompts have each id."""
    # Tuples become lists, so that settings are equal to those read back from --out.
    settings = json.loads(json.dumps(settings_for_json(args)))
    for index, line in enumerate(lines):
        head = {"index": index, "prompt": line.decode("utf-8", "replace"),
                "seed": [args.seed, index], "settings": settings}
        try:
            yield job_of_line(line, head, task, n_of_id)
        except ValueError as why:
            yield Job(head | {"error": f"line {index + 1}: {why}"})


def job_of_line(line: bytes, head: dict, task: Task, n_of_id: Counter) -> Job:
    """Return the Job of a line, whose entries are added to `head`; ValueError for an error."""
    # If this fails, the record of the error shows the whole line as its prompt.
    given = prompt_of_line(line)
    head |= given
    if "id" in given:
        n_of_id[json.dumps(given["id"])] += 1
    # The record shows what the template made of messages.
    head["prompt"], ids = text_and_ids(given, task.encoder)
    values = own_values(given)
    own = {"seed": values.get("seed", head["seed"])}
    if "stop" in given:
        own["stop"], own["stop_texts"] = own_stop(given["stop"], task.encoder)
    # Each text has its own prompt, and so its own number of new tokens.
    N = values.get("n_tokens_to_generate", task.N)
    n_left = with_ids(task._replace(N=N), ids).n_new
    sampling = {name: values[name] for name in SAMPLING if name in values}
    check_sampling(**task.models.sampling | sampling)
    job = Job(head, ids, n_left, [], grammar_of_line(head) or task.grammar, own, sampling)
    # This raises ValueError if the tokenizer cannot write the line's pattern, or the decoder
    # does not work at the line's temperature.
    own_task = job.task(task)
    if sampling:
        build(task.entry, own_task.new_models(), task.settings)
    return job


def record_of(job: Job, rounds: list[Round], task: Task) -> dict:
    """Return the record of a prompt and of the rounds that continue it."""
    if "error" in job.head:  # such a job has no text
        return job.head
    ids = [token for result in rounds for token in result.ids]
    acceptance = acceptance_figures(rounds)["acceptance"]
    # Every round has one pass of the target, but a forced round has none.
    n_passes = sum(not isinstance(result, ForcedRound) for result in rounds)
    own_task = job.task(task)
    record = job.head | {"text": own_task.text_of(ids), "ids": ids,
                         "acceptance": acceptance,
                         "tokens_per_pass": quotient(len(ids), n_passes)}
    if "messages" in job.head:
        record["answer"] = own_task._replace(is_chat=True).text_of(ids)
    if task.logprobs:
        record["logprobs"] = job.logprobs[: len(ids)]  # without those after a stop
    if job.grammar:
        record |= pattern_figures(own_task, ids, rounds)
    return record


def ends_at_dead_end(step: Step, job: Job, task: Task, bar: tqdm) -> Step:
    """Return the step that ends a text where its pattern cannot go on, and counts its tokens.

    The job's record is then an error record, so the token that ends the text is not in it.
    """
    def step_or_end(x, n_left, rng):
        try:
            result = step(x, n_left, rng)
        except pattern.DeadEnd as why:
            # The end of text stops `generate`. An error would stop the other texts too.
            job.head["error"] = str(why)
            end = [task.encoder.end_of_text]
            return Round(end, guesses=[], p_draft=[], p_target=[], n_accepted=0)
        bar.update(len(result.ids))
        if task.logprobs:
            job.logprobs.extend(log_probabilities(result, task.models.is_greedy))
        return result

    return step_or_end


# ---- texts that share passes

def batch_writer(task: Task, args: Namespace) -> Writer:
    """Return a writer of texts that share their passes.

    ValueError if the decoder cannot share passes, or its settings do not fit.
    """
    from wrappers.batch import batch_model, generate_batch  # here: greenlet is optional

    needs = task.entry.needs(task.settings)
    # A pass over several texts returns neither the hidden states that heads read, nor the rows
    # of a tree.
    for need, what in (("heads", "heads"), ("tree", "trees of guesses")):
        if need in needs:
            raise ValueError(f"--decoder {task.decoder} has {what}, which do not work "
                             "with --prompts: choose a decoder such as speculative, block or "
                             "lookup")
    # If some texts wait for the draft and some for the target, the model of turn 0 runs first.
    draft = task.models.draft and batch_model(task.models.draft, turn=0)
    target = batch_model(task.models.target, turn=1)

    def text_of(bar, job):
        """Return the (x, n_left, rng, new_step, stop) that generate_batch takes."""
        own_task = job.task(task)
        rng = np.random.default_rng(own_task.seed)

        def new_step():
            models = own_task.with_settings(draft, target)
            step = build(own_task.entry, models, own_task.settings)
            step = own_task.with_forced(step, models)
            return ends_at_dead_end(step, job, own_task, bar)

        return job.x, job.n_left, rng, new_step, own_task.ended

    # new_step=None, because each text brings its own new_step.
    texts_of = partial(generate_batch, new_step=None, batch=args.batch or 8)
    # A trial text of two tokens: an error of the decoder comes before --out is opened.
    trial = Job({}, x=[0], n_left=min(2, task.n_ctx - 1), grammar=task.grammar)
    list(texts_of([text_of(tqdm(disable=True), trial)]))

    def write_texts(jobs):
        """Yield (job, rounds) in the order of the jobs."""
        # The batch reads several jobs before it yields the first text. tee keeps the jobs that
        # the batch has read and whose texts are not finished.
        jobs_of_texts, jobs_to_begin = tee(jobs)
        # The first texts may end after minutes, so a second bar on a terminal counts tokens.
        with tqdm(unit="token", leave=False, disable=None, position=1) as bar:
            texts = texts_of(map(partial(text_of, bar), jobs_to_begin))
            yield from zip(jobs_of_texts, texts)

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
        is_whole = line.endswith(b"\n")
        # An unfinished line may be shorter than START, so only their common length is compared.
        begins_like_record = line.startswith(START[: len(line)])
        if not is_whole and begins_like_record:
            break
        where = f"line {len(are_errors) + 1} of {file.name}"
        job = next(jobs, None)  # None if there are more records than prompts
        record = checked_record(line, job, where)
        are_errors.append("error" in record)
        n_bytes += len(line)
    file.truncate(n_bytes)
    return are_errors


def checked_record(line: bytes, job: Job | None, where: str) -> dict:
    """Return the record in a line of --out; ValueError unless it belongs to this job."""
    try:
        record = json.loads(line)
        # The settings are put beside the other entries, so that an error can name one of them.
        written = record["settings"] | record
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"{where} is not a record of --prompts. Choose a new --out.") from None
    # What the record must have: no pattern that the job lacks. Without a job no record fits,
    # because every record has a prompt.
    asked = {"prompt": None}
    if job:
        asked = dict.fromkeys(pattern.KINDS) | job.head["settings"] | job.head
    for name, value in asked.items():
        if written.get(name) != value:
            raise ValueError(f"{where} was written with {name} "
                             f"{reprlib.repr(written.get(name))}, but this run has "
                             f"{reprlib.repr(value)}. Choose a new --out.")
    return record


# ---- all of them

def write_records(args: Namespace, new_writer: WriterMaker = batch_writer) -> int:
    """Continue --prompts into --out; print the report. Return 3 if records are errors."""
    n_of_id = Counter()
    with opened_prompts(args.prompts) as prompts:
        lines = prompt_lines(prompts, args.prompts)
        # The first line is read now, so that an empty file is an error before models are
        # loaded. Then it is put back.
        lines = chain([next(lines)], lines)
        task = load_task(args, prompt=".")  # a task needs a prompt; each job has its own
        write_texts = new_writer(task, args)
        with opened_alone(args.out) as out, advice_how_to_resume(args):
            # This generator makes a job when one is wanted. It counts ids in `n_of_id`, which
            # is complete after the last job.
            jobs = jobs_of_lines(lines, args, task, n_of_id)
            old = [] if args.out == "-" else skip_written(out, jobs)
            start = time.perf_counter()
            new, n_tokens = append_records(out, write_texts(jobs), task, len(old))
            seconds = time.perf_counter() - start
    text = report_text(args.out, old, new, n_tokens, seconds) + repeated_ids(n_of_id)
    if task.vocabularies:
        text += f"\nVocabularies differ: {task.vocabularies}."
    print_safely(text, sys.stderr if args.out == "-" else sys.stdout)
    return 3 if any(old + new) else 0


def opened_prompts(path: str) -> IO[bytes]:
    """Return the binary file of --prompts; "-" is standard input."""
    return open(0, "rb", closefd=False) if path == "-" else open_flag("prompts", path, "rb")


@contextmanager
def advice_how_to_resume(args: Namespace) -> Iterator[None]:
    """Add to the message after Ctrl-C how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        advice = "interrupted: the same command resumes"
        if args.prompts == "-":
            advice += " if standard input has the same prompts"
        if args.out == "-":  # nothing can be resumed
            advice = "interrupted"
        raise KeyboardInterrupt(advice) from None


def append_records(out: IO[bytes], texts: Iterable[tuple[Job, list[Round]]], task: Task,
                   n_done: int) -> tuple[list[bool], int]:
    """Append the record of every job, with a counter on a terminal.

    Returns whether each record is an error, and the number of new tokens.
    """
    are_errors = []
    n_tokens = 0
    for job, rounds in tqdm(texts, initial=n_done, unit="text", leave=False, disable=None):
        record = record_of(job, rounds, task)
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
    if any(old):
        text += f" ({counted(sum(old), 'error')})"
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


def repeated_ids(n_of_id: Counter) -> str:
    """Return a sentence that names the ids that several prompts have, or nothing."""
    # Not an error, because nothing here depends on ids.
    repeated = [name for name, n in n_of_id.items() if n > 1]
    if not repeated:
        return ""
    more = f" and {len(repeated) - N_NAMED} more" if len(repeated) > N_NAMED else ""
    return f"\nSeveral prompts have the id {', '.join(repeated[:N_NAMED])}{more}."


def counted(n: int, noun: str) -> str:
    """Return a number and its noun, which has an s unless the number is 1."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
