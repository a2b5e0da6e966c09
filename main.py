"""Watch a draft and a target write the same text: plain decoding, then speculative decoding.

    python main.py --K 4 --temperature 0

Everything that is not the algorithm lives here: flags, progress, clocks, counts, the report.
"""

import argparse
import json
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from gpt2 import GPT2
from sampling import check_knobs, warped
from speculative import autoregressive_step, generate, speculative_step
from theory import walltime_improvement
from utils import MODELS_DIR, limit_blas_threads, load_encoder_hparams_and_params
# ---- the command line

class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def parse_args(argv):
    """The flags, spelled as in the articles that this project accompanies."""
    parser = Parser(description=__doc__.split("\n")[0], prog="main.py",
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--prompt", default="Once upon a time there was a", help="the text to go on from; - reads standard input")
    add("--prompt_file", metavar="FILE", help="read the prompt from a file instead")
    add("--n_tokens_to_generate", type=int, default=100, metavar="N", help="new tokens")
    add("--draft_model_size", default="tales-small", metavar="SIZE", help="124M, 355M, 774M, 1558M or a folder in models_dir")
    add("--target_model_size", default="tales-large", metavar="SIZE", help="likewise")
    add("--models_dir", default=str(MODELS_DIR), metavar="DIR", help="where the model folders are, or are downloaded to")
    add("--K", type=int, default=4, help="guesses a round")
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--top_k", type=int, default=0, help="keep the k most probable tokens; 0 keeps all")
    add("--top_p", type=float, default=1.0, help="keep the most probable tokens of this mass")
    add("--repetition_penalty", type=float, default=1.0, help="above 1: tokens seen before become less probable")
    add("--stop", action="append", metavar="TOKEN", help="end at this token; may be repeated (default: <|endoftext|>)")
    add("--seed", type=int, default=123, help="of both runs")
    add("--decoder", choices=["speculative"], default="speculative")
    add("--backend", choices=["numpy", "cupy"], default="numpy")
    add("--dtype", choices=["float32", "float64"], default="float32")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    args = parser.parse_args(argv)
    if args.K < 1:
        raise ValueError(f"need --K >= 1, got {args.K}")
    if args.n_tokens_to_generate < 0:
        raise ValueError(f"need --n_tokens_to_generate >= 0, got {args.n_tokens_to_generate}")
    if args.seed < 0:
        raise ValueError(f"need --seed >= 0, got {args.seed}")
    check_knobs(**knobs(args))
    return args


def knobs(args):
    """The flags that `sampling.warp` takes."""
    return dict(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p,
                repetition_penalty=args.repetition_penalty)


def read_prompt(args):
    """The prompt from the flag, a file or standard input; it must be UTF-8."""
    if args.prompt_file:
        data, source = Path(args.prompt_file).read_bytes(), args.prompt_file
    elif args.prompt == "-":
        data, source = sys.stdin.buffer.read(), "standard input"
    else:
        data, source = os.fsencode(args.prompt), "--prompt"
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"need UTF-8 text from {source}, got byte 0x{data[error.start]:02x} at "
                         f"position {error.start}") from None


# ---- models and prompt

class Setup(NamedTuple):
    """What a run needs, loaded and checked."""

    encoder: object
    x: list  # the prompt's ids
    stop: set
    new_draft: object  # () -> a GPT2 that has read nothing yet
    new_target: object


def load(args):
    """Load both models and the prompt; raise ValueError if they do not fit together."""
    prompt = read_prompt(args)
    draft_encoder, draft_hparams, draft_params = load_model(args, args.draft_model_size)
    encoder, hparams, params = load_model(args, args.target_model_size)
    limit_blas_threads(params)
    if draft_encoder.vocab != encoder.vocab:
        raise ValueError(f"need draft and target with one vocabulary, got "
                         f"{args.draft_model_size} ({draft_encoder.n_vocab} tokens) and "
                         f"{args.target_model_size} ({encoder.n_vocab} tokens)")
    x, N, n_ctx = encoder.encode(prompt), args.n_tokens_to_generate, min(hparams["n_ctx"], draft_hparams["n_ctx"])
    if not x:
        raise ValueError("need a prompt of at least one token, got an empty one")
    if len(x) + N > n_ctx:
        raise ValueError(f"need prompt + new tokens <= n_ctx = {n_ctx}, got {len(x)} + {N}")
    return Setup(encoder, x, stop_ids(args, encoder),
                 partial(GPT2, draft_params, draft_hparams["n_head"]),
                 partial(GPT2, params, hparams["n_head"]))


def load_model(args, size):
    """Encoder, sizes and weights of one of the two models."""
    return load_encoder_hparams_and_params(size, args.models_dir, np.dtype(args.dtype), args.backend)


def stop_ids(args, encoder):
    """The ids of the --stop tokens, each of which must be one token."""
    if args.stop is None:
        return {encoder.end_of_text} - {None}
    stop = set()
    for text in args.stop:
        ids = [encoder.vocab[text]] if text == "<|endoftext|>" and text in encoder.vocab else encoder.encode(text)
        if len(ids) != 1:
            raise ValueError(f"need --stop to be one token, got {text!r}, which is {len(ids)}")
        stop.update(ids)
    return stop


# ---- running with a clock

class Timed:
    """A model that keeps a record of its calls: seconds and rows of each."""

    def __init__(self, model):
        self.model, self.seconds, self.rows = model, [], []

    def __call__(self, ids, n_last=1):
        start = time.perf_counter()
        probs = self.model(ids, n_last)
        self.seconds.append(time.perf_counter() - start)
        self.rows.append(n_last)
        return probs

    def ms(self):
        """The median milliseconds of a call, or None if there was none."""
        return 1e3 * float(np.median(self.seconds)) if self.seconds else None


class Run(NamedTuple):
    """One decoding and what was seen of it."""

    ids: list  # the new ones
    rounds: list
    seconds: float
    draft: Timed
    target: Timed


def decode(setup, args, decoder):
    """Run a decoder from a cold start, with a progress bar on a terminal."""
    draft = Timed(warped(setup.new_draft(), **knobs(args)))
    target = Timed(warped(setup.new_target(), **knobs(args)))
    if decoder == "autoregressive":
        step = partial(autoregressive_step, model=target)
    else:
        step = partial(speculative_step, draft=draft, target=target, K=args.K)
    rounds, N, rng = [], args.n_tokens_to_generate, np.random.default_rng(args.seed)
    start = time.perf_counter()
    with tqdm(total=N, desc=decoder, unit="token", leave=False, disable=None) as bar:  # None: only on a terminal
        for round in generate(setup.x, step, N, rng, setup.stop):
            rounds.append(round._replace(p_draft=None, p_target=None))  # rows are large, drop them
            bar.update(len(round.ids))
    seconds = time.perf_counter() - start
    return Run([token for round in rounds for token in round.ids], rounds, seconds, draft, target)


def warm_up(setup, args):
    """One short pass of each model, so that the first run does not pay for pages and threads."""
    for model in (setup.new_draft(), setup.new_target()):
        model(setup.x[:1])


# ---- the report

def report(setup, args):
    """Run both decoders and return all figures as one dict."""
    warm_up(setup, args)
    plain, fast = decode(setup, args, "autoregressive"), decode(setup, args, args.decoder)
    n_kept = sum(round.n_kept for round in fast.rounds)
    n_examined = sum(round.n_examined for round in fast.rounds)
    acceptance = n_kept / n_examined if n_examined else None
    figures = {
        "prompt": setup.encoder.decode(setup.x),
        "settings": {name: value for name, value in vars(args).items() if name not in ("prompt", "json")},
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "autoregressive": figures_of(setup, plain),
        args.decoder: figures_of(setup, fast),
        "tokens_per_target_pass": ratio(len(fast.ids), len(fast.rounds)),
        "accepted": n_kept,
        "examined": n_examined,
        "acceptance": acceptance,
        "draft_ms": fast.draft.ms(),
        "target_ms": plain.target.ms(),
        "target_pass_ms": fast.target.ms(),
        "speedup_predicted": predict(acceptance, args.K, plain, fast),
        "speedup_measured": ratio(plain.seconds, fast.seconds),
    }
    if args.temperature == 0:
        figures["identical"] = plain.ids == fast.ids
        if not figures["identical"]:
            figures["first_difference"] = first_difference(setup, args, plain.ids, fast.ids)
    return figures


def figures_of(setup, run):
    """Time and text of one run."""
    return {"time_s": run.seconds, "tokens": len(run.ids),
            "tokens_per_second": ratio(len(run.ids), run.seconds),
            "text": setup.encoder.decode(setup.x + run.ids), "ids": run.ids}


def ratio(a, b):
    """a / b, or None if b is 0."""
    return a / b if b else None


def predict(acceptance, K, plain, fast):
    """The speed-up that Leviathan et al. (2023) Theorem 3.8 gives for the costs measured here."""
    if acceptance is None or not plain.target.ms():
        return None
    one = plain.target.ms()
    return float(walltime_improvement(acceptance, K, fast.draft.ms() / one,
                                      pass_cost=fast.target.ms() / one))


def first_difference(setup, args, a, b):
    """Where two greedy texts part, and how close the two best logits were there."""
    place = next((i for i, (one, other) in enumerate(zip(a, b)) if one != other), min(len(a), len(b)))
    logits = np.sort(setup.new_target()(setup.x + a[:place])[-1])
    return {"token": place, "gap_of_the_two_best_logits": float(logits[-1] - logits[-2])}


def print_report(figures, args):
    """The figures for people."""
    for name in ("autoregressive", args.decoder):
        run = figures[name]
        title = f"{name.capitalize()} decode"
        speed = f"{run['tokens_per_second']:.1f} tokens a second" if run["tokens"] else "no tokens"
        print(f"{title}\n{'-' * len(title)}\nTime = {run['time_s']:.2f}s ({speed})\n"
              f"Text = {run['text']}\n")
    shown = lambda value, form="{:.2f}": "-" if value is None else form.format(value)
    print(f"Tokens per target pass  {shown(figures['tokens_per_target_pass'])}\n"
          f"Acceptance              {shown(figures['acceptance'])} "
          f"({figures['accepted']} of {figures['examined']} guesses examined)\n"
          f"Draft                   {shown(figures['draft_ms'])} ms a guess\n"
          f"Target                  {shown(figures['target_ms'])} ms a token alone, "
          f"{shown(figures['target_pass_ms'])} ms a pass over {args.K + 1}\n"
          f"Speed-up                {shown(figures['speedup_measured'])} measured, "
          f"{shown(figures['speedup_predicted'])} predicted from acceptance and costs")
    if "identical" in figures:
        print(f"Texts identical         {'yes' if figures['identical'] else 'no'}")
    if "first_difference" in figures:
        where = figures["first_difference"]
        print(f"They part at new token {where['token']}, where the two best logits differ by "
              f"{where['gap_of_the_two_best_logits']:.2g}")


def main(argv=None):
    """Parse, load, run, report. Returns the exit status."""
    try:
        args = parse_args(argv)
        figures = report(load(args), args)
    except (ValueError, OSError) as error:
        print(f"main.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("main.py: interrupted", file=sys.stderr)
        return 130
    print(json.dumps(figures)) if args.json else print_report(figures, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
