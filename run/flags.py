"""Declare main.py's flags in tables, {flag: its settings for argparse}; parse and check them.

FIRST decides, by --decoder, which other flags there are: COMMON, and the parameters of the
decoder's `build` (variants/registry.py). The command line is therefore parsed twice. Readers
such as `whole` take a text or the value itself, so a page's request (page/live.py) and a line
of --prompts are read as the flags are.
"""

import argparse
import re
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from lib.backend.products import BACKENDS
from lib.pattern import KINDS, grammar_of
from lib.terminal import Help, Parser, check_page_path, flags_given, not_a_choice
from run.task import text_of_file
from sampling import check_sampling
from utils import MODELS_DIR
from variants import DECODERS
from variants.registry import Decoder, costs, number, whole, whole_from_0
from variants.speculative import DECODER as DEFAULT

Flags = dict[str, dict[str, Any]]  # {flag: its settings for argparse}

PROMPT = "One day a merchant who"
DESCRIPTION = ("Continue a prompt with plain decoding, then with speculative decoding, and "
               "compare them.")
EXAMPLES = """examples:
  python main.py --K 4 --temperature 0
  python main.py --decoder lookup --prompt_file notes.txt --trace run.html
  python main.py --prompts prompts.txt --out texts.jsonl --temperature 1
  python main.py --target smollm2 --decoder quantized --chat "What is NumPy?" --temperature 0.7

--decoder NAME --help shows the flags of that decoder. Decoders (docs/methods.md):
"""

FIRST: Flags = {
    "decoder": dict(
        default=DEFAULT.name, metavar="NAME", help="the method to compare with plain "
        "decoding: a name, or FILE.py with your own rule"),
    "costs": dict(
        type=costs, metavar="D,T1,T2", help="only for decoders that use costs: the time of a "
        "draft pass, then of target passes over 1, 2, .. positions, in any unit (default: "
        "measured first)")}
TEXT: Flags = {
    "prompt": dict(
        default=PROMPT, help="the text to continue; - reads it from standard input"),
    "prompt_file": dict(
        metavar="FILE", help="read the prompt from a file instead, without the newline at its "
        "end"),
    "chat": dict(
        metavar="TEXT", help="ask a chat model instead: its chat template makes the prompt"),
    "n_tokens_to_generate": dict(
        type=whole_from_0, default=100, metavar="N", help="number of new tokens"),
    # "append": a list of texts, or None without the flag
    "stop": dict(
        action="append", metavar="TEXT", help="end the text right after this text, or at this "
        "special token, such as <|im_end|>; may be repeated (default: the target's end of "
        "text)"),
    "regex": dict(
        metavar="TEXT", help="write only text that matches this regular expression, then stop"),
    "json_schema": dict(
        metavar="FILE", help="write only JSON that fits the schema in FILE, then stop"),
    "lark": dict(
        metavar="FILE", help="write only text that fits the Lark grammar in FILE, then stop"),
    "window": dict(
        action="store_true", help="when the context is full, continue with only its last half "
        "(exact for a target with the same window)")}
# How a model's folder is found and read, and the backend of its products; tools.will_it_pay
# has these flags too.
LOADING: Flags = {
    "models_dir": dict(
        default=str(MODELS_DIR), metavar="DIR", help="folder for models and downloads "
        "(default: the repository's models/)"),
    "backend": dict(
        choices=(*BACKENDS, "transformers"), default="numba", metavar="NAME",
        help="numba (compiled products, if Numba is installed), numpy, cupy (GPU), or "
        "transformers (PyTorch; for models other than GPT-2)")}
MODELS: Flags = {
    "draft_model_size": dict(
        default="tales-small", metavar="SIZE", help="as --target_model_size (short: --draft)"),
    "target_model_size": dict(
        default="tales-large", metavar="SIZE", help="124M, 355M, 774M, 1558M, smollm2, a "
        "folder in --models_dir, the path of a Hugging Face folder or .gguf file, or "
        "owner/name on its hub (short: --target)"),
    **LOADING,
    "dtype": dict(
        choices=("float32", "float64", "int8", "bfloat16", "auto"), default="float32",
        metavar="NAME",
        help="float32, float64, or int8, which rounds the matrices and so changes the "
        "distribution; in transformers also bfloat16 or auto")}
SAMPLING: Flags = {  # the settings of sampling.warp
    "temperature": dict(
        type=number, default=0.0, metavar="T",
        help="sampling temperature; 0 takes the most probable token"),
    "top_k": dict(
        type=int, default=0, metavar="K",
        help="keep the K most probable tokens; 0 keeps all"),
    "top_p": dict(
        type=number, default=1.0, metavar="P",
        help="keep the fewest tokens with total probability P or more"),
    "repetition_penalty": dict(
        type=number, default=1.0, metavar="R",
        help="values above 1 make earlier tokens less probable")}
SEED: Flags = {
    "seed": dict(
        type=whole_from_0, default=123, help="random seed, the same for both runs")}
OUTPUT: Flags = {
    "show": dict(
        action="store_true", help="print every round: accepted, [-rejected-]"
        "{+replacement+} or {+bonus+}"),
    "trace": dict(metavar="FILE.html", help="write a page that shows every round"),
    "json": dict(action="store_true", help="print one JSON object instead of text")}
LOGPROBS: Flags = {
    "logprobs": dict(
        action="store_true", help="add each token's log-probability to --json or --prompts")}
PROMPTS: Flags = {
    "prompts": dict(
        metavar="FILE", help="continue every prompt in a file or in standard input (-): one "
        'per line, as text or as a JSON object with "prompt" or "messages" (a chat), and '
        'optionally "id", "seed", "temperature", "stop" or "regex"'),
    "out": dict(
        metavar="FILE.jsonl", help="write one JSON record per prompt to this file, or to "
        "standard output (-); the same command resumes; exit status 3 if a prompt failed"),
    "batch": dict(type=whole, metavar="B", help="number of texts per batch (default: 8)")}

COMMON = {"text": TEXT, "models": MODELS, "sampling": SAMPLING | SEED,
          "output": OUTPUT | LOGPROBS, "many prompts": PROMPTS}  # {title in --help: its flags}
ONE_TEXT = ("prompt", "prompt_file", "chat", *OUTPUT)  # flags of a single text


# ---- flags that cannot be together

def when_given(flag, condition):
    """Return the condition of a row: the flag is given, and `condition` holds."""
    return lambda args: flag in args.given and condition(args)


# Rows (condition, sentence): flags that meet the condition are refused with the sentence. A
# flag without an effect is an error, because the user expects one.
REFUSED: list[tuple[Callable, str]] = [
    *((lambda args, pair=pair: {*pair} <= args.given,
       f"--{pair[0]} and --{pair[1]} are both given: choose one")
      for names in (("prompt", "prompt_file", "chat"), KINDS)
      for pair in combinations(names, 2)),
    (lambda args: args.logprobs and not args.json and args.prompts is None,
     "--logprobs needs --json or --prompts"),
    (lambda args: args.logprobs and args.entry.exact(args.settings) is False,
     "--logprobs does not apply to --decoder {entry.name} with these flags, which are not "
     "exact: its distributions are not the target's"),
    (lambda args: args.costs and "costs" not in args.needs,
     "--costs does not apply to --decoder {entry.name} with these flags (only to stopping, "
     "--K auto and --widths auto)"),
    (lambda args: "draft_model_size" in args.given and "draft" not in args.needs,
     "--draft_model_size does not apply to --decoder {entry.name} with these flags: no draft "
     "model is used"),
    *((when_given(kind, lambda args: args.window),
       f"--window does not apply to --{kind}: the pattern begins at the end of the prompt, "
       "which a window drops") for kind in sorted(KINDS)),
    *((when_given(flag, lambda args: args.prompts is None), f"--{flag} needs --prompts")
      for flag in sorted(PROMPTS)),
    *((when_given(flag, lambda args: args.prompts is not None),
       f"--{flag} does not apply to --prompts") for flag in sorted((*ONE_TEXT, "window"))),
    (lambda args: args.prompts is not None and args.out is None,
     "--prompts needs --out FILE.jsonl"),
    (lambda args: args.prompts is not None and args.settings.get("memory"),
     "--memory does not apply to --prompts, whose texts do not depend on each other"),
    (lambda args: args.prompts is not None and "costs" in args.needs and not args.costs,
     "--prompts needs --costs with --decoder {entry.name} and these flags")]

# ---- parsed

def parse_args(argv: Sequence[str] | None = None, program: str = "main.py") -> Namespace:
    """Return the checked flags; the decoder's own flags are in `settings`.

    Messages begin with the name of the program.
    """
    words = [*map(full_name, sys.argv[1:] if argv is None else argv)]
    # The first parser reads --decoder; the second one, which knows all flags, has the --help.
    first = Parser(prog=program, add_help=False)
    first.add_flags("decoder", FIRST)
    entry = entry_of_flag(first.parse_known_args(words)[0].decoder)
    parser = make_parser(first, entry)
    # Not parse_args, because a flag of a different decoder needs a better message.
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(why_no_flag(unknown[0], entry, parser))
    given = flags_given(words)
    settings = settings_of(args, entry, given)  # first, because it removes the decoder's flags
    args.entry, args.given, args.settings = entry, given, settings
    args.needs = entry.needs(args.settings)
    args.sampling = {name: getattr(args, name) for name in SAMPLING}
    check_sampling(**args.sampling)
    for is_refused, sentence in REFUSED:
        if is_refused(args):
            raise ValueError(sentence.format(**vars(args)))
    if args.trace:
        check_page_path(args.trace)
    args.grammar = grammar_of_flags(args)
    return args


def full_name(word: str) -> str:
    """Return --target and --draft, as tools.will_it_pay has them, by their full names.

    >>> full_name("--draft=124M"), full_name("--draft_model_size")
    ('--draft_model_size=124M', '--draft_model_size')
    """
    return re.sub(r"^--(target|draft)(?=$|=)", r"--\1_model_size", word)


def entry_of_flag(name: str) -> Decoder:
    """Return the entry of --decoder, a registered name or FILE.py; ValueError if it is bad."""
    if name in DECODERS:
        return DECODERS[name]
    if not name.endswith(".py"):
        raise ValueError(f"--decoder: {not_a_choice(name, DECODERS)}")
    from run.own import read_entry  # here, because it loads exact/, which others do not need

    return read_entry(name)


def make_parser(first: Parser, entry: Decoder) -> Parser:
    """Return the parser of the common flags and of one decoder's flags."""
    # The help keeps line breaks, for the examples, so the names are broken into lines here.
    names = textwrap.fill(" ".join(DECODERS), 98, initial_indent="  ", subsequent_indent="  ")
    parser = Parser(prog=first.prog, usage="main.py [--decoder NAME] [flags]", parents=[first],
                    description=DESCRIPTION, epilog=EXAMPLES + names, formatter_class=Help)
    for title, flags in COMMON.items():
        parser.add_flags(title, flags)
    own = {}
    taken = {"help", "draft", "target", *FIRST}.union(*COMMON.values())
    for name, (default, flag) in entry.flags.items():
        # main.py reads and writes the file of suffix's --memory.
        is_other = name == "memory" and flag != DECODERS["suffix"].flags[name][1]
        if name in taken or is_other:
            raise ValueError(f"--decoder {entry.name}: `build` has a parameter {name}, and "
                             f"--{name} is a flag of main.py: rename the parameter")
        text = flag.help
        # A tuple is shown as it is typed: 2,2,1.
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        if default not in (None, ""):
            text += f" (default: {default})"
        # argparse formats help texts by %, and shows choices without a metavar.
        own[name] = dict(type=flag.type, help=text.replace("%", "%%"), choices=flag.choices,
                         default=argparse.SUPPRESS,  # `Decoder.settings` fills in the default
                         metavar=None if flag.choices else name.upper())
    parser.add_flags(f"--decoder {entry.name} ({entry.source})", own, entry.idea)
    return parser


def settings_of(args: Namespace, entry: Decoder, given: set[str]) -> dict:
    """Move the decoder's own flags out of `args`; return them with all defaults."""
    own = {name: vars(args).pop(name) for name in entry.flags if name in args}
    settings = entry.settings(own)
    # The default draft is made for the default target. A decoder that can do without a draft
    # does so with any other target, unless a draft is given.
    is_default_pair = args.target_model_size == MODELS["target_model_size"]["default"]
    has_draft = is_default_pair or "draft_model_size" in given
    if entry.without_draft and "draft" in entry.needs(settings) and not has_draft:
        return entry.settings(entry.without_draft | own)
    return settings


def grammar_of_flags(args: Namespace) -> str | None:
    """Return the grammar of --regex, --json_schema or --lark, or None; read the flag's file.

    ValueError if the pattern is not valid.
    """
    # The flags are named as the kinds of patterns, and REFUSED allows one of them.
    kind = next(filter(args.given.__contains__, KINDS), None)
    if kind is None:
        return None
    text = getattr(args, kind)
    if kind != "regex":  # the flag names a file
        text = text_of_file(kind, text)
        # --json prints the settings. They show the pattern itself, because the file may change.
        setattr(args, kind, text)
    return grammar_of(kind, text)


def why_no_flag(word: str, entry: Decoder, parser: Parser) -> str:
    """Return why a word of the command line is not a flag of this decoder."""
    name = word.partition("=")[0].removeprefix("--")
    # If the flag belongs to other decoders, the message names them.
    users = [other.name for other in DECODERS.values() if name in other.flags]
    if users:
        return (f"--{name} does not apply to --decoder {entry.name} "
                f"(only to {', '.join(users)})")
    return parser.why_unknown(word)


def settings_for_json(args: Namespace) -> dict:
    """Return the flags that decide the text or its speed, with the decoder's own flags."""
    # Prompts, files and the way a text is shown are not settings.
    hidden = {*ONE_TEXT, *PROMPTS, "models_dir", "sampling", "settings", "grammar", "entry",
              "given", "needs"}
    # A pattern is shown only if it is given, and so is --logprobs.
    hidden |= {name for name in (*KINDS, *LOGPROBS) if not getattr(args, name)}
    if "draft" not in args.needs:
        hidden.add("draft_model_size")  # not loaded
    shown = {name: value for name, value in vars(args).items() if name not in hidden}
    return shown | args.settings
