"""Watch a draft and a target write the same text: plain decoding, then speculative decoding.

    python main.py --K 4 --temperature 0

The flags and what they load; report.py runs it by the clock.
"""

import argparse
import json
import os
import sys
from functools import partial

import numpy as np

from encoder import END_OF_TEXT
from gpt2 import GPT2
from report import Task, describe, figures
from sampling import check_knobs
from utils import (MODELS_DIR, find_folder, limit_blas_threads,
                   load_encoder_hparams_and_params)
from variants import DECODERS, FLAGS, settings
from watch import check_path, line, save, trace, wants_colour

MAX_PROMPT = 2**22  # bytes; far more than any context holds
MAX_NEW = 2**31  # tokens; far more than anyone waits for

# ---- the command line

class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def parse_args(self, argv):
        """As argparse does. Subtle: before Python 3.13 it makes an empty list of `--flag=--`."""
        args = super().parse_args(argv)
        for name, value in vars(args).items():
            if isinstance(value, list) and [] in (value, *value):
                self.error(f"argument --{name}: expected one argument")
        return args


def parse_args(argv):
    """The flags, spelled as in the articles that this project accompanies."""
    parser = Parser(description=__doc__.split("\n")[0], prog="main.py",
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--prompt", default="Once upon a time there was a",
        help="the text to go on from; - reads standard input")
    add("--prompt_file", metavar="FILE", help="read the prompt from a file instead")
    add("--errors", choices=["strict", "replace"], default="strict",
        help="bytes of the prompt that are no UTF-8: refuse them, or put U+FFFD in their place")
    add("--n_tokens_to_generate", type=int, default=100, metavar="N", help="new tokens")
    add("--window", action="store_true",
        help="go on where the context is full, with the last half of it, as often as needed; "
             "exactness is then for the target that sees this window")
    add("--draft_model_size", default="tales-small", metavar="SIZE",
        help="124M, 355M, 774M, 1558M or a folder in models_dir")
    add("--target_model_size", default="tales-large", metavar="SIZE", help="likewise")
    add("--models_dir", default=str(MODELS_DIR), metavar="DIR",
        help="where the model folders are, or are downloaded to")
    add_sampling_flags(add)
    add("--stop", action="append", metavar="TOKEN",
        help=f"end at this token; may be repeated (default: {END_OF_TEXT})")
    add("--seed", type=int, default=123, help="of both runs")
    add("--decoder", choices=DECODERS, default="speculative",
        help="the method that runs beside plain decoding (docs/variants.md)")
    add("--backend", choices=["numpy", "cupy"], default="numpy")
    add("--dtype", choices=["float32", "float64"], default="float32")
    add("--show", action="store_true",
        help="print every round: kept guesses, [-rejected-]{+replacement+} or {+bonus+}")
    add("--trace", metavar="FILE", help="keep every round: FILE.html is a page, FILE.json its data")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add_decoder_flags(parser.add_argument_group("flags of single decoders"))
    args = parser.parse_args(argv)
    args.settings = settings(args.decoder, {name: vars(args).pop(name) for name in FLAGS})
    check_args(args)
    return args


def check_args(args):
    """Raise ValueError if a number or the path of the trace is out of its range."""
    if not 0 <= args.n_tokens_to_generate < MAX_NEW:
        raise ValueError(f"need 0 <= --n_tokens_to_generate < {MAX_NEW}, "
                         f"got {args.n_tokens_to_generate}")
    if args.seed < 0:
        raise ValueError(f"need --seed >= 0, got {args.seed}")
    check_knobs(**knobs(args))
    if args.trace:
        check_path(args.trace)


def add_sampling_flags(add):
    """The flags that `sampling.warp` takes."""
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--top_k", type=int, default=0, help="keep the k most probable tokens; 0 keeps all")
    add("--top_p", type=float, default=1.0, help="keep the most probable tokens of this mass")
    add("--repetition_penalty", type=float, default=1.0,
        help="above 1: tokens seen before become less probable")


def add_decoder_flags(group):
    """The flags in the registry of decoders; None for one that is not given."""
    for name, flag in FLAGS.items():
        users = [decoder for decoder in DECODERS if name in DECODERS[decoder].flags]
        defaults = ", ".join(f"{decoder}: {DECODERS[decoder].flags[name]}" for decoder in users)
        group.add_argument(f"--{name}", type=flag.type, choices=flag.choices, metavar=name.upper(),
                           default=None, help=f"{flag.help} ({defaults})".replace("%", "%%"))


def knobs(args):
    """The flags that `sampling.warp` takes."""
    return dict(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p,
                repetition_penalty=args.repetition_penalty)


def read_prompt(args):
    """The prompt from the flag, a file or standard input; it must be UTF-8, or is made so."""
    if args.prompt_file:
        with open(args.prompt_file, "rb") as file:
            data, source = file.read(MAX_PROMPT + 1), args.prompt_file
    elif args.prompt == "-":
        data, source = sys.stdin.buffer.read(MAX_PROMPT + 1), "standard input"
    else:
        data, source = os.fsencode(args.prompt), "--prompt"
    if len(data) > MAX_PROMPT:
        raise ValueError(f"need a prompt of at most {MAX_PROMPT} bytes from {source}, got more")
    try:
        return data.decode("utf-8", args.errors)
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text from {source}, got byte 0x{data[error.start]:02x} at "
                         f"position {error.start}") from None


# ---- models and prompt

def load(args):
    """The Task that the flags ask for; ValueError if its parts do not fit together."""
    prompt = read_prompt(args)
    encoder, hparams, params = load_model(args, args.target_model_size)
    limit_blas_threads(params)
    new_target, new_draft, n_ctx = partial(GPT2, params, hparams["n_head"]), None, hparams["n_ctx"]
    if "draft" in DECODERS[args.decoder].needs:
        draft_encoder, draft_hparams, draft_params = load_model(args, args.draft_model_size)
        if draft_encoder.vocab != encoder.vocab:
            raise ValueError(f"need draft and target with one vocabulary, got "
                             f"{args.draft_model_size} ({draft_encoder.n_vocab} tokens) and "
                             f"{args.target_model_size} ({encoder.n_vocab} tokens)")
        new_draft = partial(GPT2, draft_params, draft_hparams["n_head"])
        n_ctx = min(n_ctx, draft_hparams["n_ctx"])
    x, N = encoder.encode(prompt), args.n_tokens_to_generate
    if not x:
        raise ValueError("need a prompt of at least one token, got an empty one")
    if len(x) + min(N, 1) > n_ctx and not args.window:
        raise ValueError(f"need a prompt that leaves room for a new token in n_ctx = {n_ctx}, or "
                         f"--window, got {len(x)} tokens")
    heads = find_folder(args.target_model_size, args.models_dir) / "medusa.npz"
    return Task(encoder, x, stop_ids(args, encoder), new_draft, new_target, heads, knobs(args),
                args.decoder, args.settings, N, args.seed, n_ctx, args.window)


def load_model(args, size):
    """Encoder, sizes and weights of one of the two models."""
    return load_encoder_hparams_and_params(size, args.models_dir, np.dtype(args.dtype),
                                           args.backend)


def stop_ids(args, encoder):
    """The ids of the --stop tokens, each of which must be one token."""
    if args.stop is None:
        return {encoder.end_of_text} - {None}
    stop = set()
    for text in args.stop:
        ids = [encoder.end_of_text] if text == END_OF_TEXT else encoder.encode(text)
        if len(ids) != 1:
            raise ValueError(f"need --stop to be one token, got {text!r}, which is {len(ids)}")
        stop.update(ids)
    return stop


def used(args):
    """The flags that decide what comes out, those of the decoder among them."""
    shown = ("settings", "prompt", "prompt_file", "json", "show", "trace")
    return {name: value for name, value in vars(args).items() if name not in shown} | args.settings


def watched(args):
    """What --show and --trace do with a round as data (None: nobody watches), and those rounds."""
    stream, seen = sys.stderr if args.json else sys.stdout, []
    colour = wants_colour(stream)

    def look(round):
        seen.append(round)
        if args.show:
            show(line(round, colour), stream)

    return look if args.show or args.trace else None, seen


def show(text, stream):
    """Print. After an error there (a full disk, a closed pipe) Python's exit must not try again."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def main(argv=None):
    """Parse, load, run, report. Returns the exit status."""
    try:
        args = parse_args(argv)
        look, seen = watched(args)
        numbers = figures(load(args), look, n_top=5 if args.trace else 0)
        numbers["settings"] = used(args)
        if args.trace:
            seconds = numbers[args.decoder]["time_s"]
            save(args.trace, trace(numbers["prompt"], seen, numbers["settings"], seconds))
        show(json.dumps(numbers) if args.json else describe(numbers, args.decoder), sys.stdout)
    except BrokenPipeError:  # as in `| head -1`: the reader has seen enough
        return 0
    except (ValueError, OSError, MemoryError) as error:
        print(f"main.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("main.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # what a terminal's encoding lacks
    sys.exit(main())
