"""Load what main.py's flags name, and check that it fits together: a Task."""

import codecs
import os
import sys
import time
from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

from lib.backend import products
from lib.pattern import KINDS, Pattern
from lib.terminal import notify, open_flag, try_to_write
from lib.tokenizer import Tokenizer
from measure.passes import Timed
from speculative import Step
from utils import find_folder, load_pair, runs_in_transformers
from variants import DECODERS, Models
from variants.registry import Decoder, LogitsModel, missing
from wrappers.forced import with_forced_runs
from wrappers.window import window

# ---- the prompt

def prompt_of_flags(args: Namespace) -> dict:
    """Return {"prompt": text} of --prompt, a file or standard input, or --chat's "messages".

    ValueError if a text is not UTF-8.
    """
    if args.chat is not None:
        content = utf8_text(os.fsencode(args.chat))
        return {"messages": [{"role": "user", "content": content}]}
    if args.prompt_file is not None:
        return {"prompt": text_of_file("prompt_file", args.prompt_file)}
    if args.prompt == "-":
        return {"prompt": text_of_file("prompt", "-")}
    # Python keeps bytes of the command line that are not UTF-8; fsencode restores them.
    return {"prompt": utf8_text(os.fsencode(args.prompt))}


def text_of_file(flag: str, path: str) -> str:
    """Return the text in the file of a flag, without the newline at its end."""
    opened, source = opened_input(flag, path)
    with opened as file:
        data = file.read()
    try:
        return utf8_text(without_newline(without_mark(data)))
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def opened_input(flag: str, path: str) -> tuple[AbstractContextManager[IO[bytes]], str]:
    """Return the open file of a flag, or standard input for "-", and its name in messages."""
    if path != "-":
        return open_flag(flag, path, "rb"), path
    if sys.stdin is None:
        raise ValueError(f"--{flag} - reads standard input, which is closed")
    return nullcontext(sys.stdin.buffer), "standard input"  # which stays open


def prompt_ids(given: dict, encoder: Any) -> list[int]:
    """Return the ids of a "prompt", or of the "messages" of a chat."""
    if "messages" not in given:
        return encoder.encode(given["prompt"])
    if not getattr(encoder, "has_chats", False):  # an Encoder has none
        raise ValueError("this tokenizer has no chat template: give a prompt, not messages, or "
                         "choose a chat model, such as --target smollm2")
    # encode_bytes adds no <s>: the template wrote it.
    return encoder.encode_bytes(encoder.chat_text(given["messages"]).encode())


def without_mark(data: bytes) -> bytes:
    """Return bytes without the byte order mark that some editors write before UTF-8."""
    return data.removeprefix(codecs.BOM_UTF8)


def without_newline(data: bytes) -> bytes:
    """Return bytes without the newline that every editor adds to the end of a file."""
    if not data.endswith(b"\n"):
        return data
    return data.removesuffix(b"\n").removesuffix(b"\r")  # "\r\n" on Windows


def utf8_text(data: bytes) -> str:
    """Return bytes as text; ValueError that names the first byte that is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text, got byte 0x{data[error.start]:02x} at position "
                         f"{error.start}") from None


# ---- a task

class Task(NamedTuple):
    """Hold what a run needs, loaded and checked."""

    encoder: Tokenizer
    models: Models  # that the decoder calls; with_settings adds a text's pattern
    entry: Decoder
    settings: dict  # the decoder's own flags
    stop: set[int]  # tokens that end a text
    N: int
    seed: Any  # what default_rng takes: a number, or [number, index] for a line of --prompts
    n_ctx: int  # the smaller n_ctx of the two models
    window: bool = False  # continue beyond n_ctx, with a window of the text
    stop_texts: tuple[str, ...] = ()  # a text ends right after one of them
    x: list[int] = []  # the prompt's tokens
    is_chat: bool = False  # the prompt is a chat, and the new text its answer
    logprobs: bool = False  # whether the records have the target's log-probabilities
    vocabularies: str | None = None  # how two vocabularies differ; None: the models have one
    grammar: str | None = None  # of the pattern that the new text has to fit
    pattern_asked: dict = {}  # that pattern as it was asked for, such as {"regex": "a+"}

    @property
    def decoder(self) -> str:
        """Return the decoder's name."""
        return self.entry.name

    @property
    def n_new(self) -> int:
        """Return how many tokens to write: N, or as many as the context has positions for."""
        return self.N if self.window else min(self.N, self.n_ctx - len(self.x))

    def new_models(self) -> Models:
        """Return models that have read nothing, timed, with the settings of a new text."""
        draft = self.models.draft and Timed(self.models.draft.fresh())
        return self.with_settings(draft, Timed(self.models.target.fresh()))

    def with_settings(self, draft, target) -> Models:
        """Return these two models with the settings of a new text."""
        sampling = self.models.sampling
        # A pattern is one more setting: which tokens may follow a text.
        if self.grammar:
            sampling = {**sampling, "allowed": self.pattern()}
        return self.models._replace(draft=draft, target=target, sampling=sampling)

    def with_forced(self, step: Step, models: Models) -> Step:
        """Return the step that writes without a pass what a pattern forces."""
        if not self.grammar:
            return step
        return with_forced_runs(step, models.sampling["allowed"], self.stop)

    def ended(self, new: list[int]) -> bool:
        """Return whether a text ends with its last new token; see `speculative.generate`."""
        return new[-1] in self.stop or self.after_stop(new) is not None

    def after_stop(self, new: list[int]) -> str | None:
        """Return the last token's text after the first stop text; None if no stop is complete.

        The end of a text depends on its tokens up to there alone: a stopping time.
        """
        if not self.stop_texts:
            return None
        stops = [text.encode() for text in self.stop_texts]
        # Only the end of the text is read: this is called for every token. An earlier stop text
        # would have ended the text, so the first one found here ends in the last token.
        end = self.encoder.decode_bytes(new[-1:])
        n_bytes = len(end) + max(map(len, stops))
        for token in reversed(new[:-1]):
            if len(end) >= n_bytes:
                break
            end = self.encoder.decode_bytes([token]) + end  # a special token has no bytes
        ends = [end.index(stop) + len(stop) for stop in stops if stop in end]
        return end[min(ends) :].decode("utf-8", "replace") if ends else None

    def text_of(self, new: list[int]) -> str:
        """Return the prompt and the new text; of a chat the new text, which is the answer."""
        text = self.encoder.decode(new if self.is_chat else self.x + new)
        return text.removesuffix(self.after_stop(new) or "")

    def pattern(self) -> Pattern | None:
        """Return which tokens may follow the prompt and a new text; None without a pattern."""
        return Pattern(self.grammar, self.encoder, len(self.x)) if self.grammar else None


def with_ids(task: Task, x: list[int], advice: str = "") -> Task:
    """Return the task with the tokens of a prompt; ValueError if there are none or too many.

    `advice` says what helps if the prompt cannot be shortened.
    """
    nonempty(x)
    # The last position is for a new token, unless N is 0.
    longest = task.n_ctx if task.N == 0 else task.n_ctx - 1
    if len(x) > longest and not task.window:
        raise ValueError(f"the prompt has {len(x)} tokens, and at most {longest} fit (n_ctx = "
                         f"{task.n_ctx}): shorten it{advice}")
    return task._replace(x=x)


def nonempty(ids: list[int]) -> list[int]:
    """Return the ids of a prompt; ValueError if there are none."""
    if not ids:
        raise ValueError("need a prompt of at least one token, got an empty one")
    return ids


def with_pattern(task: Task, grammar: str, asked: dict) -> Task:
    """Return the task with a grammar that the new text has to fit, until the end of text.

    `asked` contains the text of the pattern under its kind; other entries are left out.
    ValueError if the tokenizer cannot write the pattern.
    """
    # This pattern only checks the grammar and tells the end of text. `Task.pattern` makes that
    # of a run, because the prompt may still change.
    pattern = Pattern(grammar, task.encoder, len(task.x))
    pattern_asked = {kind: asked[kind] for kind in KINDS if asked.get(kind) is not None}
    # The pattern ends with the end of text, whatever --stop says.
    return task._replace(grammar=grammar, pattern_asked=pattern_asked,
                         stop={*task.stop, pattern.end_of_text})


# ---- loaded

def load_task(args: Namespace, prompt: str | None = None) -> Task:
    """Return the Task of the flags, and of their prompt unless one is given."""
    given = {"prompt": prompt} if prompt is not None else prompt_of_flags(args)
    folder = find_folder(args.target_model_size, args.models_dir)
    draft_size = args.draft_model_size if "draft" in args.needs else None
    draft_folder = find_folder(draft_size or args.target_model_size, args.models_dir)
    check_backend(args, [folder, draft_folder])
    encoder, draft, target = load_pair(draft_size, args.target_model_size, args.models_dir,
                                       args.dtype, args.backend)
    # The tokens that both models have, if the draft has a different vocabulary.
    common = getattr(draft, "common", None)
    draft, target = models_of_decoder(args.entry, args.settings, draft, target)
    if path := args.settings.get("memory"):
        import filelock  # noqa: F401  # optional, and needed after the run

        from lib.memory import read_memory
        # A bad file, or one that cannot be written, is an error before the run.
        try_to_write("memory", Path(path))
        read_memory(path, encoder.n_vocab)
    models = Models(draft, target, args.sampling, folder, args.costs)
    stop, stop_texts = stops(args.stop, encoder)
    task = Task(encoder, models, args.entry, args.settings, stop,
                N=args.n_tokens_to_generate, seed=args.seed, window=args.window,
                stop_texts=stop_texts, is_chat="messages" in given, logprobs=args.logprobs,
                n_ctx=min(draft.n_ctx, target.n_ctx) if draft else target.n_ctx,
                vocabularies=str(common) if common else None)
    if args.grammar:
        task = with_pattern(task, args.grammar, vars(args))
    # A pattern and a window exclude each other.
    advice = "" if args.grammar else " or add --window"
    return with_ids(task, prompt_ids(given, encoder), advice)


def models_of_decoder(entry: Decoder, settings: dict, draft: LogitsModel | None,
                      target: LogitsModel) -> tuple[LogitsModel | None, LogitsModel]:
    """Return the models that a decoder calls, made from the loaded ones if need be."""
    needs = entry.needs(settings)
    # A draft made from the target, and heads, need its weights, which not every model offers.
    # "tree" is left out, because tree_model below provides it.
    if lacking := missing(needs - {"tree"}, Models(draft, target, {})):
        raise ValueError(f"--decoder {entry.name} needs {lacking}")
    if make_draft := entry.draft_maker(settings):  # such as a copy of the target in int8
        draft = make_draft(target, notify)
    elif "draft" not in needs:
        draft = None
    # A file of the user's may guess trees, so its models read trees in any case.
    if "tree" in needs or entry.name not in DECODERS:
        from variants.shared.tree_gpt2 import tree_model
        draft = draft and tree_model(draft)
        target = tree_model(target)
    return draft, target


def with_costs(task: Task) -> tuple[Task, float]:
    """Return the task with the costs that its decoder needs, and the seconds this took."""
    if task.models.costs or "costs" not in task.entry.needs(task.settings):
        return task, 0.0
    from measure.costs import N_ROWS, measure_costs  # few decoders choose by costs
    compile_products(task.models.target)
    start = time.perf_counter()
    models = task.new_models()
    ids = window(task.x, len(task.x), task.n_ctx)  # if the prompt fills the context, its end
    # Without a draft the target is timed instead; eagle replaces this time by its head's share.
    draft = models.draft_rows if models.draft else models.target_rows
    costs = measure_costs(draft, models.target_rows, ids, min(N_ROWS, task.n_ctx))
    task = task._replace(models=task.models._replace(costs=costs))
    return task, time.perf_counter() - start


def compile_products(target: Any) -> None:
    """Compile or load all products, so that no measured run waits for Numba."""
    # Only models of ours, which have `params`, use these products.
    if hasattr(target, "params"):
        products.warm_up(target.dtype, notify)


def check_backend(args: Namespace, folders: list[Path]) -> None:
    """Set args.backend if transformers runs every model; ValueError if one was asked for."""
    if args.backend == "transformers":
        return
    for folder in folders:
        if not runs_in_transformers(folder, args.backend):
            return
    if "backend" in args.given:
        raise ValueError(f"--backend {args.backend} does not apply to {folders[0]}, because "
                         "transformers runs this model: leave out --backend")
    args.backend = "transformers"  # as --json and the records show it


def stops(names: list[str] | None, encoder: Tokenizer, flag: str = "--stop"
          ) -> tuple[set[int], tuple[str, ...]]:
    """Return the tokens of --stop, names of special tokens, and its texts, all other names.

    Without the flag, return the ends of text of the vocabulary.
    """
    if names is None:  # no --stop
        return encoder.end_tokens, ()
    tokens, texts = set(), []
    for name in names:
        if not name:
            raise ValueError(f"{flag} needs a text, and an empty one would end every text")
        if name in encoder.special:
            tokens.add(encoder.id_of(name))
        else:
            texts.append(utf8_text(os.fsencode(name)))
    return tokens, tuple(texts)
