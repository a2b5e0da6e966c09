"""Declare, parse and check the flags of main.py: those of every run, then one decoder's own.

The flags of a decoder are the parameters of its `build` (variants/registry.py), so that
--decoder decides which other flags there are. The command line is therefore parsed twice.
"""

import argparse
import re
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from lib import pattern
from lib.backend.products import BACKENDS
from lib.terminal import Help, Parser, check_page_path, flags_given, not_a_choice, open_flag
from sampling import check_sampling
from utils import MODELS_DIR
from variants import DECODERS
from variants.registry import Decoder, costs, whole, whole_from_0  # readers of a flag's text

PROMPT = "One day a merchant who"
DESCRIPTION = ("Continue a prompt with plain decoding, then with speculative decoding, and "
               "compare them.")
EXAMPLES = """examples:
  python main.py --K 4 --temperature 0
  python main.py --decoder lookup --prompt_file notes.txt --trace run.html
  python main.py --prompts prompts.txt --out texts.jsonl --temperature 1
  python main.py --draft_model_size 124M --target_model_size 1558M --n_tokens_to_generate 40

--decoder NAME --help shows the flags of that decoder. Decoders (docs/methods.md):
"""
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
ONE_TEXT = ("prompt", "prompt_file", "show", "trace", "json")  # flags of a single text
MANY_TEXTS = ("prompts", "out", "batch")


# ---- declared

def make_first_parser() -> ArgumentParser:
    """Return the parser of the flags that decide which other flags there are."""
    # Without --help: the second parser answers it, because it knows all flags.
    parser = Parser(prog="main.py", add_help=False)
    add = parser.add_argument_group("decoder").add_argument
    add("--decoder", default="speculative", type=decoder_name, metavar="NAME",
        help="the method to compare with plain decoding: a name, or FILE.py with your own rule")
    add("--costs", type=costs, metavar="D,T1,T2", help="only for decoders that use costs: the "
        "time of a draft step, then of target passes over 1, 2, .. rows, in any unit (default: "
        "measured first)")
    return parser


def decoder_name(text: str) -> str:
    """Return the name of a decoder or of a file; ValueError for any other text."""
    if text not in DECODERS and not text.endswith(".py"):
        raise ValueError(not_a_choice(text, DECODERS))
    return text


def entry_of_flag(name: str) -> Decoder:
    """Return the entry of --decoder, a registered name or FILE.py; ValueError if it is bad."""
    if not name.endswith(".py"):
        return DECODERS[name]
    from run.own import read_entry  # here, because it loads exact/, which others do not need

    return read_entry(Path(name))


def make_parser(first: ArgumentParser, entry: Decoder) -> Parser:
    """Return the parser of the common flags and of one decoder's flags."""
    # The help keeps line breaks because of the examples, so the list of names must have its
    # own.
    names = textwrap.fill(" ".join(DECODERS), 98, initial_indent="  ", subsequent_indent="  ")
    parser = Parser(prog="main.py", usage="main.py [--decoder NAME] [flags]", parents=[first],
                    description=DESCRIPTION, epilog=EXAMPLES + names,
                    formatter_class=Help)
    # Each function below gets the method that adds one flag to its group.
    add_text_flags(parser.add_argument_group("text").add_argument)
    add_model_flags(parser.add_argument_group("models").add_argument)
    add_sampling_flags(parser.add_argument_group("sampling").add_argument)
    add_output_flags(parser.add_argument_group("output").add_argument)
    add_prompts_flags(parser.add_argument_group("many prompts").add_argument)
    add_decoder_flags(parser, entry)
    return parser


def add_text_flags(add: Callable) -> None:
    """Add the flags of the prompt and its continuation."""
    add("--prompt", default=PROMPT, help="the text to continue; - reads it from standard input")
    add("--prompt_file", metavar="FILE",
        help="read the prompt from a file instead, without the newline at its end")
    add("--n_tokens_to_generate", type=whole_from_0, default=100, metavar="N",
        help="number of new tokens")
    # "append": a list of tokens, or None without the flag
    add("--stop", action="append", metavar="TOKEN",
        help="stop at this token of the vocabulary; may be repeated (default: the target's end "
        "of text)")
    add("--regex", metavar="TEXT",
        help="write only text that matches this regular expression, then stop")
    add("--json_schema", metavar="FILE",
        help="write only JSON that fits the schema in FILE, then stop")
    add("--lark", metavar="FILE",
        help="write only text that fits the Lark grammar in FILE, then stop")
    add("--window", action="store_true", help="when the context is full, continue with only "
        "its last half (exact for a target with the same window)")


def add_model_flags(add: Callable) -> None:
    """Add the flags of the two models and of their arrays."""
    add("--draft_model_size", default="tales-small", metavar="SIZE",
        help="124M, 355M, 774M, 1558M, a folder name in --models_dir, the path of a Hugging "
        "Face folder, or owner/name on the Hugging Face hub; its vocabulary may differ from "
        "the target's (short: --draft)")
    add("--target_model_size", default="tales-large", metavar="SIZE",
        help="as --draft_model_size (short: --target)")
    add_folder_flags(add)
    add_backend_flag(add)
    add("--dtype", choices=("float32", "float64", "bfloat16", "auto"), default="float32",
        metavar="NAME", help="precision of the weights: float32, float64, or (in transformers "
        "only) bfloat16, auto")


def add_folder_flags(add: Callable) -> None:
    """Add the flags that say how a model's folder is found and read."""
    add("--models_dir", default=str(MODELS_DIR), metavar="DIR", help="folder for "
        "models and downloads (default: the repository's models/)")
    add("--cut_vocab", action="store_true", help="ignore embeddings beyond the tokenizer's "
        "vocabulary, which some training code adds as padding")


def add_backend_flag(add: Callable) -> None:
    """Add the flag of the arrays and of their products."""
    add("--backend", choices=(*BACKENDS, "transformers"), default="numba", metavar="NAME",
        help="numba (compiled products, if Numba is installed), numpy, cupy (GPU), or "
        "transformers (PyTorch; for models other than GPT-2)")


def add_sampling_flags(add: Callable) -> None:
    """Add sampling.warp's settings and the seed."""
    add("--temperature", type=float, default=0.0, metavar="T",
        help="sampling temperature; 0 takes the most probable token")
    add("--top_k", type=int, default=0, metavar="K",
        help="keep the K most probable tokens; 0 keeps all")
    add("--top_p", type=float, default=1.0, metavar="P",
        help="keep the fewest tokens with total probability P or more")
    add("--repetition_penalty", type=float, default=1.0, metavar="R",
        help="values above 1 make earlier tokens less probable")
    add("--seed", type=whole_from_0, default=123, help="random seed, the same for both runs")


def add_output_flags(add: Callable) -> None:
    """Add the flags that show and save the rounds of one text."""
    add("--show", action="store_true",
        help="print every round: accepted guesses, [-rejected-]{+replacement+} or {+bonus+}")
    add("--trace", metavar="FILE.html", help="write a page that shows every round")
    add("--json", action="store_true", help="print one JSON object instead of text")


def add_prompts_flags(add: Callable) -> None:
    """Add the flags of many prompts."""
    add("--prompts", metavar="FILE", help="continue every prompt in a file or in standard "
        'input (-): one per line, as text or as a JSON object with "prompt" or "messages" (a '
        'chat), and optionally "id", "seed", "temperature", "stop" or "regex"')
    add("--out", metavar="FILE.jsonl", help="write one JSON record per prompt to this file, or "
        "to standard output (-); the same command resumes; exit status 3 if a prompt failed")
    add("--batch", type=whole, metavar="B", help="number of texts per batch (default: 8)")


def add_decoder_flags(parser: ArgumentParser, entry: Decoder) -> None:
    """Add the flags of a decoder; flags not given stay out of the parsed arguments."""
    group = parser.add_argument_group(f"--decoder {entry.name} ({entry.source})", entry.idea)
    for name, (default, flag) in entry.flags.items():
        text = flag.help
        # A tuple is shown as it is typed: 2,2,1.
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        if default not in (None, ""):
            text += f" (default: {default})"
        text = text.replace("%", "%%")  # argparse formats help texts by %
        metavar = None if flag.choices else name.upper()  # None: argparse shows the choices
        # SUPPRESS: `Decoder.settings` fills in the default of a flag that is not given.
        group.add_argument(f"--{name}", type=flag.type, help=text, choices=flag.choices,
                           default=argparse.SUPPRESS, metavar=metavar)


# ---- parsed and checked

def parse_args(argv: Sequence[str] | None = None) -> Namespace:
    """Return the checked flags; the decoder's own flags are in `settings`."""
    words = [full_name(word) for word in (sys.argv[1:] if argv is None else argv)]
    # The first parser reads --decoder, which decides what other flags there are.
    first = make_first_parser()
    first_args, _ = first.parse_known_args(words)
    entry = entry_of_flag(first_args.decoder)
    parser = make_parser(first, entry)
    # Not parse_args, because a flag of a different decoder needs a better message.
    args, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(why_unknown(unknown[0], entry, parser))
    # argparse puts all flags into one Namespace. The decoder's own flags move to args.settings.
    own = {name: value for name, value in vars(args).items() if name in entry.flags}
    for name in own:
        delattr(args, name)
    args.entry = entry
    args.given = flags_given(words)
    # The default draft is made for the default target. A decoder that can do without a draft
    # does so with any other target, unless a draft is given.
    is_default_pair = args.target_model_size == parser.get_default("target_model_size")
    if entry.without_draft and not is_default_pair and "draft_model_size" not in args.given:
        own = entry.without_draft | own
    args.settings = entry.settings(own)
    args.sampling = {name: getattr(args, name) for name in SAMPLING}
    check_sampling(**args.sampling)
    # All flags are checked here, so that an error comes before a model is loaded.
    if args.trace:
        check_page_path(args.trace)
    check_flags(args, entry, args.given)
    args.grammar = grammar_of_flags(args)
    return args


def full_name(word: str) -> str:
    """Return --target and --draft, as tools.will_it_pay has them, by their full names.

    >>> full_name("--draft=124M"), full_name("--draft_model_size")
    ('--draft_model_size=124M', '--draft_model_size')
    """
    return re.sub(r"^--(target|draft)(?=$|=)", r"--\1_model_size", word)


def grammar_of_flags(args: Namespace) -> str | None:
    """Return the grammar of --regex, --json_schema or --lark, or None; read the flag's file.

    ValueError if there are two patterns, or one that is not valid.
    """
    # The flags are named as the kinds of patterns.
    kinds = [kind for kind in pattern.KINDS if getattr(args, kind) is not None]
    if not kinds:
        return None
    if len(kinds) > 1:
        raise ValueError(f"--{kinds[0]} and --{kinds[1]} are both given: choose one")
    kind = kinds[0]
    text = getattr(args, kind)
    if kind != "regex":  # the flag names a file
        with open_flag(kind, text, "rb") as file:
            data = file.read()
        try:
            text = data.decode()
        except UnicodeDecodeError as why:
            raise ValueError(f"--{kind} {text} is not text in UTF-8: {why}") from None
        # --json prints the settings. They show the pattern itself, because the file may change.
        setattr(args, kind, text)
    return pattern.grammar_of(kind, text)


def why_unknown(word: str, entry: Decoder, parser: Parser) -> str:
    """Return why a word of the command line is not a flag of this decoder."""
    name = word.partition("=")[0].removeprefix("--")
    # If the flag belongs to other decoders, the message names them.
    users = [other.name for other in DECODERS.values() if name in other.flags]
    if users:
        return (f"--{name} does not apply to --decoder {entry.name} "
                f"(only to {', '.join(users)})")
    return parser.why_unknown(word)


def check_flags(args: Namespace, entry: Decoder, given: set[str]) -> None:
    """Raise ValueError if a given flag has no effect or needs a flag that is not given."""
    if "prompt" in given and "prompt_file" in given:
        raise ValueError("--prompt and --prompt_file are both given: choose one")
    # A flag without an effect is an error, because the user expects one.
    if args.costs and not entry.needs_costs(args.settings):
        raise ValueError(f"--costs does not apply to --decoder {entry.name} with these flags "
                         "(only to stopping, --K auto and --widths auto)")
    if "draft_model_size" in given and not entry.needs_draft(args.settings):
        raise ValueError(f"--draft_model_size does not apply to --decoder {entry.name} with "
                         "these flags: no draft model is used")
    # A message names one flag of a set: the first in the alphabet, which min returns.
    patterns = given & {*pattern.KINDS}
    if patterns and args.window:
        raise ValueError(f"--window does not apply to --{min(patterns)}: the pattern begins at "
                         "the end of the prompt, which a window drops")
    # One text and many texts have different flags.
    if args.prompts is None:
        if misplaced := given & {*MANY_TEXTS}:
            raise ValueError(f"--{min(misplaced)} needs --prompts")
        return
    if misplaced := given & {*ONE_TEXT, "window"}:
        raise ValueError(f"--{min(misplaced)} does not apply to --prompts")
    if args.out is None:
        raise ValueError("--prompts needs --out FILE.jsonl")
    if args.settings.get("memory"):
        raise ValueError("--memory does not apply to --prompts, whose texts do not depend on "
                         "each other")


def settings_for_json(args: Namespace) -> dict:
    """Return the flags that decide the text or its speed, with the decoder's own flags."""
    # Prompts, files and the way a text is shown are not settings.
    hidden = {*ONE_TEXT, *MANY_TEXTS, "models_dir", "sampling", "settings", "grammar",
              "entry", "given"}
    # A pattern is shown only if it is given.
    hidden |= {kind for kind in pattern.KINDS if getattr(args, kind) is None}
    if not args.entry.needs_draft(args.settings):
        hidden.add("draft_model_size")  # not loaded
    shown = {name: value for name, value in vars(args).items() if name not in hidden}
    return shown | args.settings
