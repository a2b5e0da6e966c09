"""Watch a draft and a target write the same text: plain decoding, then speculative decoding.

    python main.py --K 4 --temperature 0

The flags; lib/demo/task.py loads what they ask for, lib/demo/compare.py runs it timed, lib/demo/describe.py
says what came out.
"""

import json
import sys

from lib.backend.arrays import gpu_errors_in_one_line
from lib.backend.products import BACKENDS
from lib.demo.compare import compare
from lib.demo.describe import describe
from lib.demo.page import check_path, save, trace_of
from lib.demo.prompts import add_flags, check_flags, continue_prompts
from lib.demo.task import load_task, sampling_settings
from lib.demo.terminal import Help, Parser, complain, print_safely, saying_why
from lib.demo.trace import line, wants_colour
from encoder import END_OF_TEXT
from sampling import check_sampling
from utils import MODELS_DIR
from variants import ALIASES, DECODERS, FLAGS, settings
from variants.memory import remember
from variants.registry import true_or_false

MAX_NEW = 2**31  # tokens; far more than anyone waits for
EXAMPLES = """examples:
  python main.py --K 4 --temperature 0
  python main.py --temperature 0.8 --show
  python main.py --decoder lookup --prompt_file notes.txt --trace run.html
  python main.py --prompts prompts.txt --out texts.jsonl --temperature 1
  python main.py --draft_model_size 124M --target_model_size 1558M --n_tokens_to_generate 40
"""


# ---- the command line

def make_parser():
    """The flags, spelled as in the source articles; those of a decoder come from its own file."""
    parser = Parser(prog="main.py", description=__doc__.split("\n")[0], epilog=EXAMPLES,
                    formatter_class=Help)
    add = parser.add_argument_group("what is written").add_argument
    add("--prompt", default="There was once an old fisherman who was afraid of the dark, and so",
        help="the text to continue; - reads standard input")
    add("--prompt_file", metavar="FILE", help="read the prompt from a file instead")
    add("--errors", choices=["strict", "replace"], default="strict",
        help="bytes of the prompt that are no UTF-8: refuse them, or put U+FFFD in their place")
    add("--n_tokens_to_generate", type=int, default=100, metavar="N", help="new tokens")
    add("--stop", action="append", metavar="TOKEN",
        help=f"end at this token; may be repeated (default: {END_OF_TEXT})")
    add("--window", action="store_true", help="continue where the context is full, with its last "
        "half; exactness is then for the target that sees this window")
    add = parser.add_argument_group("models").add_argument
    add("--draft_model_size", default="tales-small", metavar="SIZE",
        help="124M, 355M, 774M, 1558M or a folder in models_dir")
    add("--target_model_size", default="tales-large", metavar="SIZE", help="as the draft's")
    add("--models_dir", default=str(MODELS_DIR), metavar="DIR", help="where the model folders are, "
        "or are downloaded to (default: the repository's models/)")
    add("--cut_vocab", action="store_true", help="leave out embeddings beyond the tokenizer's "
        "vocabulary, where training code has padded it")
    add("--backend", choices=BACKENDS, default="numba", help="what multiplies the matrices: NumPy "
        "with one compiled product where Numba is installed, NumPy alone, or CuPy on a GPU")
    add("--dtype", choices=["float32", "float64"], default="float32", help="of the weights")
    add = parser.add_argument_group("sampling").add_argument
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy")
    add("--top_k", type=int, default=0, metavar="K", help="keep the K likeliest; 0 keeps all")
    add("--top_p", type=float, default=1.0, metavar="P", help="keep the likeliest tokens of mass P")
    add("--repetition_penalty", type=float, default=1.0, metavar="R",
        help="above 1: tokens seen before become less probable")
    add("--seed", type=int, default=123, help="of the random numbers, in both runs")
    add = parser.add_argument_group("output").add_argument
    add("--show", action="store_true",
        help="print every round: accepted guesses, [-rejected-]{+replacement+} or {+bonus+}")
    add("--trace", metavar="FILE", help="keep every round: FILE.html is a page, FILE.json its data")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--decoder", choices=[*DECODERS, *ALIASES], default="speculative",
        help="the method that runs beside plain decoding (docs/variants.md)")
    add_flags(parser)
    add_decoder_flags(parser)
    return parser


def parse_args(argv):
    """The checked flags; a decoder's own are in `settings`."""
    parser = make_parser()
    args = parser.parse_args(argv)
    args.decoder = ALIASES.get(args.decoder, args.decoder)
    args.settings = settings(args.decoder, {name: vars(args).pop(name) for name in FLAGS})
    check_args(args)
    check_flags(args, parser.get_default)
    return args


def add_decoder_flags(parser):
    """A group of flags for each decoder; a flag that several have is listed with the first."""
    listed = set()
    for name, decoder in DECODERS.items():
        shared = ", ".join(f"--{flag}" for flag in decoder.flags if flag in listed)
        group = parser.add_argument_group(f"--decoder {name} ({decoder.source})",
                                          f"and {shared}, above" if shared else None)
        for flag, entry in decoder.flags.items():
            users = {other: DECODERS[other].flags[flag].default for other in DECODERS
                     if flag in DECODERS[other].flags}
            defaults = ", ".join(f"{other}: {value}" for other, value in users.items())
            shown = f"default: {entry.default}" if len(users) == 1 else f"defaults: {defaults}"
            if flag not in listed:
                text = f"{entry.help} ({shown})".replace("%", "%%")
                bare = {"nargs": "?", "const": True} if entry.type is true_or_false else {}
                group.add_argument(f"--{flag}", type=saying_why(entry.type), help=text,
                                   choices=entry.choices,
                                   metavar=None if entry.choices else flag.upper(), **bare)
                listed.add(flag)


def check_args(args):
    """Raise ValueError if a number or the path of the trace is out of its range."""
    if not 0 <= args.n_tokens_to_generate < MAX_NEW:
        raise ValueError(f"need 0 <= --n_tokens_to_generate < {MAX_NEW}, "
                         f"got {args.n_tokens_to_generate}")
    if args.seed < 0:
        raise ValueError(f"need --seed >= 0, got {args.seed}")
    check_sampling(**sampling_settings(args))
    if args.trace:
        check_path(args.trace)


# ---- the run

def settings_for_json(args):
    """The flags that decide what comes out, those of the decoder among them."""
    hidden = "settings prompt prompt_file prompts out batch json show trace".split()
    return {name: value for name, value in vars(args).items() if name not in hidden} | args.settings


def make_watcher(args):
    """What --show and --trace do with a round as data (None: neither), and the list of rounds."""
    stream, seen = sys.stderr if args.json else sys.stdout, []
    colour = wants_colour(stream)

    def look(round):
        seen.append(round)
        if args.show:
            print_safely(line(round, colour), stream)

    return look if args.show or args.trace else None, seen


def main(argv=None):
    """Parse, load, run, report. Returns the exit status."""
    try:
        args = parse_args(argv)
        if args.prompts is not None:
            print_safely(continue_prompts(args), sys.stdout)
            return 0
        look, seen = make_watcher(args)
        with gpu_errors_in_one_line():
            task = load_task(args)
            numbers = compare(task, look, n_top=5 if args.trace else 0)
        numbers["settings"] = settings_for_json(args)
        if args.trace:
            save(args.trace, trace_of(task, numbers, seen))
        if path := args.settings.get("memory"):
            remember(path, task.x + numbers[args.decoder]["ids"], task.encoder.n_vocab)
        text = json.dumps(numbers) if args.json else describe(numbers, args.decoder)
        print_safely(text, sys.stdout)
    except BrokenPipeError:  # as in `| head -1`: the reader has seen enough
        return 0
    except (ValueError, OSError, MemoryError) as error:
        return complain("main.py", error)
    except KeyboardInterrupt:
        print("main.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks
    sys.exit(main())
