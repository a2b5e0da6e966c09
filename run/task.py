"""Load and check what a run needs, from main.py's flags."""

import codecs
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, NamedTuple

from lib.checkpoints import huggingface
from lib.pattern import KINDS, Pattern
from lib.terminal import notify, open_flag, try_to_write
from lib.tokenizer import Tokenizer
from speculative import Step
from utils import find_folder, load_pair, read_encoder, runs_in_transformers
from variants import DECODERS, Costs, Models, build
from variants.registry import Decoder, LogitsModel, Target
from wrappers.forced import with_forced_runs

MAX_PROMPT = 2**22  # bytes; far more than any context holds


class Task(NamedTuple):
    """Hold what a run needs, loaded and checked."""

    encoder: Tokenizer
    x: list[int]  # the prompt's tokens
    stop: set[int]
    # Each call returns a model with an empty cache.
    new_draft: Callable[[], LogitsModel] | None  # None: the decoder needs no draft
    new_target: Callable[[], Target]
    folder: Path  # the target's
    sampling: dict  # sampling.warp's settings
    decoder: str
    settings: dict  # the decoder's own flags
    N: int
    seed: int
    n_ctx: int  # the smaller n_ctx of the two models
    window: bool  # continue beyond n_ctx, with a window of the text (wrappers/window.py)
    costs: Costs | None = None  # --costs; None: measured if the decoder needs them
    vocabularies: str | None = None  # how two vocabularies differ; None: the models have one
    own: Decoder | None = None  # the entry of --decoder FILE.py
    grammar: str | None = None  # of the pattern that the new text has to fit
    pattern_asked: dict = {}  # that pattern as it was asked for, such as {"regex": "a+"}

    @property
    def entry(self) -> Decoder:
        """Return the decoder's entry."""
        return self.own or DECODERS[self.decoder]

    @property
    def needs_costs(self) -> bool:
        """Return whether the costs still have to be measured."""
        return self.costs is None and self.entry.needs_costs(self.settings)

    @property
    def n_new(self) -> int:
        """Return how many tokens to write: N, or as many as the context has positions for."""
        return self.N if self.window else min(self.N, self.n_ctx - len(self.x))

    def models(self) -> Models:
        """Return fresh models, which have read nothing; they read trees if the decoder does."""
        draft = self.new_draft() if self.new_draft else None
        target = self.new_target()
        # A file of the user's may guess trees, so its models read trees in any case.
        if self.own or "tree" in self.entry.needs_with(self.settings):
            from variants.shared.tree_gpt2 import tree_model
            draft = tree_model(draft) if draft else None
            target = tree_model(target)
        return self.with_settings(draft, target)

    def with_settings(self, draft, target) -> Models:
        """Return these two models with the settings of a new text."""
        sampling = self.sampling
        # A pattern is one more setting: which tokens may follow a text.
        if self.grammar:
            sampling = {**sampling, "allowed": self.pattern()}
        return Models(draft, target, sampling, self.folder, self.costs)

    def step(self, models: Models) -> Step:
        """Return the decoder's step; what a pattern forces is written without a pass."""
        step = build(self.entry, models, self.settings)
        if self.grammar:
            step = with_forced_runs(step, models.sampling["allowed"], self.stop)
        return step

    def pattern(self) -> Pattern | None:
        """Return which tokens may follow the prompt and a new text; None without a pattern."""
        return Pattern(self.grammar, self.encoder, len(self.x)) if self.grammar else None


# ---- the prompt

def prompt_of_flags(args: Namespace) -> str:
    """Return the prompt of --prompt, a file or standard input; ValueError if not UTF-8."""
    opened: AbstractContextManager[IO[bytes]]
    if args.prompt_file:
        source = args.prompt_file
        opened = open_flag("prompt_file", source, "rb")
    elif args.prompt == "-":
        source = "standard input"
        opened = nullcontext(sys.stdin.buffer)
    else:
        # Python keeps bytes of the command line that are not UTF-8; fsencode restores them.
        return utf8_text(os.fsencode(args.prompt))
    with opened as file:
        # A byte after the first MAX_PROMPT bytes shows that the prompt is too long.
        data = file.read(MAX_PROMPT + 1)
    if len(data) > MAX_PROMPT:
        raise ValueError(f"need a prompt of at most {MAX_PROMPT} bytes from {source}, got more")
    return utf8_text(without_newline(without_mark(data)))


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


def with_prompt(task: Task, prompt: str, advice: str = "") -> Task:
    """Return the task with a prompt, which has tokens and leaves a position for a new one.

    `advice` says what helps if the prompt cannot be shortened.
    """
    # The checks need the tokens, so they come after the models are loaded.
    return with_ids(task, task.encoder.encode(prompt), advice)


def with_ids(task: Task, x: list[int], advice: str = "") -> Task:
    """Return the task with the tokens of a prompt; ValueError if there are none or too many."""
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


def with_pattern(task: Task, grammar: str, asked: dict | None = None) -> Task:
    """Return the task with a grammar that the new text has to fit, until the end of text.

    `asked` may contain the text of the pattern under its kind; other entries are left out.
    ValueError if the tokenizer cannot write the pattern.
    """
    # This pattern is only a check, and has the end of text. `Task.pattern` makes the pattern of
    # a run, because the prompt may still change.
    pattern = Pattern(grammar, task.encoder, len(task.x))
    asked = asked or {}
    pattern_asked = {kind: asked[kind] for kind in KINDS if asked.get(kind) is not None}
    # The pattern ends with the end of text, whatever --stop says.
    return task._replace(grammar=grammar, pattern_asked=pattern_asked,
                         stop={*task.stop, pattern.end_of_text})


# ---- the models

def load_task(args: Namespace, prompt: str | None = None) -> Task:
    """Return the Task of the flags, and of their prompt unless one is given."""
    prompt = prompt_of_flags(args) if prompt is None else prompt
    entry = args.entry
    folder = find_folder(args.target_model_size, args.models_dir)
    check_without_weights(args, folder)
    draft_size = args.draft_model_size if entry.needs_draft(args.settings) else None
    draft_folder = find_folder(draft_size or args.target_model_size, args.models_dir)
    check_backend(args, [folder, draft_folder])
    encoder, draft, target = load_pair(draft_size, args.target_model_size, args.models_dir,
                                       args.dtype, args.backend, args.cut_vocab)
    draft = draft_of(entry, args.settings, draft, target)
    if path := args.settings.get("memory"):
        from lib.memory import read_memory
        # A bad file, or one that cannot be written, is an error before the run.
        try_to_write("memory", Path(path))
        read_memory(path, encoder.n_vocab)
    # The tokens that both models have, if the draft has a different vocabulary.
    common = getattr(draft, "common", None)
    models = [target, draft] if draft else [target]
    task = Task(encoder=encoder, x=[], stop=stop_tokens(args.stop, encoder),
                new_draft=draft.fresh if draft else None, new_target=target.fresh,
                folder=folder, sampling=args.sampling, decoder=args.decoder,
                settings=args.settings,
                N=args.n_tokens_to_generate, seed=args.seed, window=args.window,
                costs=args.costs, vocabularies=str(common) if common else None,
                own=None if args.decoder in DECODERS else entry,
                n_ctx=min(model.n_ctx for model in models))
    if args.grammar:
        task = with_pattern(task, args.grammar, vars(args))
    return with_prompt(task, prompt, advice=" or add --window")


def draft_of(entry: Decoder, settings: dict, loaded: LogitsModel | None,
             target: Target) -> LogitsModel | None:
    """Return the draft that a decoder calls: made from the target, the loaded one, or none."""
    if entry.make_draft:  # such as a copy of the target in int8
        return entry.make_draft(target, notify)
    return loaded if entry.needs_draft(settings) else None


def check_without_weights(args: Namespace, folder: Path) -> None:
    """Raise ValueError for what can be refused before weights are read, which takes long."""
    # Models of transformers read trees, but lack other things that a decoder may need: heads.
    if runs_in_transformers(folder, args.backend):
        args.entry.check_needs(args.settings, {"tree"},
                               f"{folder} is a model of transformers here")
    # Pattern raises ValueError if the tokenizer cannot write the pattern.
    tokenizer = tokenizer_of_folder(folder, args) if args.grammar else None
    if tokenizer:
        Pattern(args.grammar, tokenizer, n_prompt=0)


def check_backend(args: Namespace, folders: list[Path]) -> None:
    """Note in `args` if transformers runs all models; ValueError if a given one runs none."""
    if args.backend == "transformers" or not all(
            runs_in_transformers(folder, args.backend) for folder in folders):
        return
    if "backend" in args.given:
        raise ValueError(f"--backend {args.backend} does not apply to {folders[0]}, because "
                         "transformers runs this model: leave out --backend")
    args.backend = "transformers"  # as --json and the records show it


def tokenizer_of_folder(folder: Path, args: Namespace) -> Tokenizer | None:
    """Return the tokenizer of a Hugging Face folder, without its weights; None for OpenAI's.

    OpenAI's tokenizer can write every text, and its files may not be there yet.
    """
    if runs_in_transformers(folder, args.backend):
        # PyTorch is imported for such models only.
        from wrappers.transformers_tokenizer import transformers_tokenizer
        return transformers_tokenizer(folder)
    if not huggingface.is_model(folder):
        return None
    return read_encoder(folder, huggingface.read_hparams(folder)["n_vocab"], args.cut_vocab)


def stop_tokens(names: list[str] | None, encoder: Tokenizer, flag: str = "--stop"
                ) -> set[int]:
    """Return the ids of --stop; without the flag, the end of text if the vocabulary has one."""
    if names is None:  # no --stop
        return encoder.end_tokens
    try:
        return {encoder.id_of(name) for name in names}
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None
