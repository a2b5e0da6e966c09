"""Read the entries of one prompt: a line of --prompts, or a request of a page (page/live.py).

    text                                    the prompt itself
    {"prompt": ..}                          a JSON object with the prompt
    {"messages": [{"role": .., "content": ..}]}
                                            a chat; the chat template of the target's tokenizer
                                            makes the prompt

An object may also have an "id", and its own "seed", "temperature", "n_tokens_to_generate",
"stop" (a list of texts) and pattern ("regex", "json_schema" or "lark"). These replace the flags
of the same names. Any other entry is an error.
"""

import json
from collections.abc import Iterable, Iterator

from lib import pattern
from lib.terminal import not_a_choice
from run.flags import SAMPLING, SEED, TEXT
from run.task import (
    Task,
    opened_input,
    prompt_ids,
    stops,
    utf8_text,
    with_ids,
    with_pattern,
    without_mark,
    without_newline,
)
from sampling import check_sampling
from variants.registry import number

ENTRIES = ("prompt", "messages", "id", "seed", "temperature", "n_tokens_to_generate", "stop",
           *pattern.KINDS)


# ---- lines

def prompt_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of --prompts, where "-" is standard input; ValueError if it has none."""
    opened, source = opened_input("prompts", path)
    n_lines = 0
    with opened as file:
        for n_lines, line in enumerate(file, 1):
            yield without_newline(without_mark(line) if n_lines == 1 else line)
    if n_lines == 0:
        raise ValueError(f"need at least one prompt in {source}, got an empty file")


def entries_of_line(line: bytes, names: Iterable[str] = ENTRIES) -> dict:
    """Return {"prompt": text}, or the entries of a line that begins with {.

    ValueError unless all entries are among the names.
    """
    text = utf8_text(line)
    if not text.startswith("{"):
        return {"prompt": text}
    try:
        # `number` refuses NaN, Infinity and 1e999.
        given = json.loads(text, parse_constant=number, parse_float=number)
    except (ValueError, RecursionError) as error:  # not JSON, or nested too deeply
        raise ValueError("a line that begins with { must be a JSON object: "
                         f"{error}") from None
    check_entries(given, names)
    return given


def check_entries(given: dict, names: Iterable[str] = ENTRIES) -> None:
    """Raise ValueError unless there is one prompt, and every entry is one of the names."""
    for name in given:
        if name not in names:
            raise ValueError(not_a_choice(name, names))
    is_chat = "messages" in given
    if is_chat and "prompt" in given:
        raise ValueError('"messages" and "prompt" are both given: choose one')
    if not is_chat and not isinstance(given.get("prompt"), str):
        raise ValueError('need a "prompt" that is text in a JSON object, or "messages", got '
                         f'{json.dumps(given.get("prompt"))}')


# ---- a task

def task_of_entries(given: dict, task: Task) -> Task:
    """Return the task of one prompt: its entries replace what the flags say in `task`."""
    values = own_values(given)
    own = {name: values[name] for name in SAMPLING if name in values}
    sampling = task.models.sampling | own
    check_sampling(**sampling)
    task = task._replace(models=task.models._replace(sampling=sampling),
                         N=values.get("n_tokens_to_generate", task.N),
                         seed=values.get("seed", task.seed), is_chat="messages" in given)
    if "stop" in given:
        names = given["stop"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f'"stop" must be a list of texts, got {json.dumps(names)}')
        stop, stop_texts = stops(names, task.encoder, '"stop"')
        task = task._replace(stop=stop, stop_texts=stop_texts)
    task = with_ids(task, prompt_ids(given, task.encoder))
    if grammar := own_grammar(given):
        return with_pattern(task, grammar, given)
    # An entry "stop" has replaced task.stop, to which with_pattern adds the end of text again.
    return with_pattern(task, task.grammar, task.pattern_asked) if task.grammar else task


def own_values(given: dict) -> dict:
    """Return the values of the flags among the entries, each read as its flag."""
    values = {}
    for name, flag in (TEXT | SAMPLING | SEED).items():
        if name in given and "type" in flag:  # "stop" and patterns have none: see above
            try:
                values[name] = flag["type"](given[name])
            except ValueError as why:
                raise ValueError(f'"{name}": {why}') from None
    return values


def own_grammar(given: dict) -> str | None:
    """Return the grammar of the entries' pattern, or None; ValueError if it is not valid."""
    kinds = [kind for kind in pattern.KINDS if kind in given]
    if not kinds:
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
