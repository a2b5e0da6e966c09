"""Measure whether speculation pays for your models, with the uncertainty of the answer.

    python -m tools.will_it_pay                                   # the bundled pair
    python -m tools.will_it_pay --target 1558M --draft 124M --N 20
    python -m tools.will_it_pay --target FOLDER --draft none      # decoders without a draft

    (a) costs        time of a draft pass, and of passes over 1 .. 9 rows   measure/costs.py
    (b) acceptance   by position, counted on the pair's own texts           measure/positions.py
    (c) prediction   the speed-up for every K by (a) and (b)                measure/positions.py
    (d) race         plain decoding against the best few, several runs      measure/race.py
    (e) answer       from the intervals of the race                         measure/answer.py

    alpha   probability that a guess is accepted
    c       time of a draft pass / time of a target pass over one row
    case    the figures of one temperature

The answer for each temperature is one of three: it pays, it does not pay, or it is not known
(measure/answer.py states the rule). A wrong "it pays" or "it does not pay" has a probability of
at most 5 %.

Without a draft, (b) and (c) are left out. The "predicted" speed-ups in the table of decoders
are computed after the race, from the acceptance and the mean times of the race's passes.
"""

import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lib.backend import products
from lib.terminal import notify
from lib.tokenizer import Tokenizer
from measure import command, race
from measure.answer import FEWEST_RUNS, FEWEST_TOKENS, answer_of, raced_speedup
from measure.clock import machine
from measure.costs import N_ROWS, disturbance, least_costs, timed_turns
from measure.models import OPENINGS, named
from measure.positions import (
    accepted_share,
    counts_of_race,
    position_figures,
    speedups_of_counts,
)
from run.entries import entries_of_line, prompt_lines
from run.flags import LOADING, entry_of_flag
from run.task import check_backend, nonempty, prompt_ids
from sampling import check_sampling, with_sampling
from theory.hardware import GPT2_SIZES
from tools.report import draw_answer, paragraphs, picture_path
from utils import find_folder, load_pair
from variants import DECODERS, build
from variants.registry import Costs, Decoder, LogitsModel, Models, missing
from variants.shared.tree_gpt2 import tree_model

MOST_GUESSES = N_ROWS - 1  # the largest K that is predicted: its pass is the longest measured
CHAINS = 3  # how many values of K are raced
TURNS = 12  # measurements of each pass, in two halves
# {decoder: its flags} of the race, if the models offer what the decoder needs. A model of
# transformers does not offer its weights, which `quantized` copies.
WITH_DRAFT = {"quantized": {}, "stopping": {}, "tree": {"widths": "auto"}}
WITHOUT_DRAFT = {"quantized": {}, "lookup": {}, "suffix": {"sure": 0.0}, "jacobi": {},
                 "lookahead": {}}


# ---- the models and the prompts

def load_models(args: Namespace) -> tuple[Tokenizer, LogitsModel | None, LogitsModel]:
    """Return (encoder, draft, target)."""
    names = [name for name in (args.draft, args.target) if name]
    notify(f"Loading {' and '.join(names)} ..")
    check_backend(args, [find_folder(name, args.models_dir) for name in names])
    encoder, draft, target = load_pair(args.draft, args.target, args.models_dir,
                                       backend=args.backend)
    products.warm_up(np.float32, notify)
    # The race also runs decoders with trees of guesses, for which a model must read trees.
    return encoder, tree_model(draft) if draft else None, tree_model(target)


def default_draft(target: str) -> str | None:
    """Return a released or bundled draft of the target's vocabulary; None if there is none."""
    if target == "tales-large":
        return "tales-small"
    return "124M" if target in GPT2_SIZES and target != "124M" else None


def prompts_as_ids(args: Namespace, encoder: Tokenizer, n_ctx: int) -> list[list[int]]:
    """Return the ids of every prompt; ValueError if a prompt and N more tokens exceed n_ctx."""
    if args.prompts:
        texts = list(ids_of_file(args.prompts, encoder))
    else:
        texts = [encoder.encode(opening) for opening in OPENINGS]
    longest = max(map(len, texts), default=0)  # in tokens; 0 without a prompt
    if longest == 0:
        raise ValueError(f"--prompts {args.prompts} contains only blank lines: write one "
                         "prompt per line")
    if longest + args.N > n_ctx:
        raise ValueError(f"the longest prompt has {longest} tokens, and --N {args.N} more do "
                         f"not fit in n_ctx = {n_ctx}: choose a smaller --N or shorter prompts")
    return texts


def ids_of_file(path: Path, encoder: Tokenizer) -> Iterator[list[int]]:
    """Yield the ids of each line that is not blank: text or JSON, as main.py reads it."""
    for i, line in enumerate(prompt_lines(str(path)), 1):  # lines count from 1
        try:
            # main.py writes an error for a blank line. Here it is skipped.
            if line.strip():
                given = entries_of_line(line, ("prompt", "messages", "id"))
                yield nonempty(prompt_ids(given, encoder))
        except ValueError as error:
            raise ValueError(f"{path}, line {i}: {error}") from None


# ---- measuring

def all_figures(args: Namespace) -> dict:
    """Return all figures: a case per temperature."""
    for T in args.temperature:
        check_sampling(T)
    # What is wrong with --decoder is an error before models are loaded or measured.
    entry = entry_of_flag(args.decoder) if args.decoder else None
    if entry and entry.greedy and 0 not in args.temperature:
        raise ValueError(f"--decoder {entry.name} needs --temperature 0, because it is greedy")
    if args.draft is None:
        args.draft = default_draft(args.target)
    elif args.draft == "none":
        args.draft = None
    encoder, draft, target = load_models(args)
    folder = find_folder(args.target, args.models_dir)
    models = Models(draft or target, target, {}, folder, Costs(1.0, [1.0] * N_ROWS))
    others = other_decoders(entry, bool(draft), models)
    at_temperature = {T: decoders_at(T, others, entry, models) for T in args.temperature}
    texts = prompts_as_ids(args, encoder, min(m.n_ctx for m in (draft, target) if m))
    library = getattr(target, "library", None)  # PyTorch, for a model of transformers
    if args.N < FEWEST_TOKENS or args.repeats < FEWEST_RUNS:
        notify(f"There will be figures but no answer, which needs --N {FEWEST_TOKENS} and "
               f"--repeats {FEWEST_RUNS} or more ..")
    figures = machine(library) | {
        "target": args.target, "draft": args.draft, "texts": named(len(texts), args.N),
        "vocabularies": str(getattr(draft, "common", "")),  # empty if they are equal
        "notes": notes(entry), "cases": []}
    for T in args.temperature:
        figures["cases"].append(
            case_figures(args, draft, models, texts, T, at_temperature[T]))
    return figures


def other_decoders(entry: Decoder | None, has_draft: bool, models: Models
                   ) -> dict[str, tuple[Decoder, dict]]:
    """Return {name: (decoder, its flags)} of the race, without rounds of K guesses.

    `entry` is --decoder's.
    """
    decoders = [(DECODERS[name], flags)
                for name, flags in (WITH_DRAFT if has_draft else WITHOUT_DRAFT).items()]
    decoders = [(each, flags) for each, flags in decoders
                if not missing(each.needs(each.settings(flags)), models)]
    if entry:
        flags = {} if has_draft else entry.without_draft or {}
        if "draft" in entry.needs(entry.settings(flags)) and not has_draft:
            raise ValueError(f"--decoder {entry.name} needs a draft: choose --draft MODEL")
        decoders.append((entry, flags))
    return {f"--decoder {each.name}" + "".join(f" --{flag} {value}"
                                               for flag, value in flags.items()): (each, flags)
            for each, flags in decoders}


def decoders_at(temperature: float, others: dict, entry: Decoder | None,
                models: Models) -> dict:
    """Return the decoders that run at this temperature; ValueError if --decoder's cannot."""
    able = {name: (each, flags) for name, (each, flags) in others.items()
            if temperature == 0 or not each.greedy}
    for each, flags in able.values():
        # The race's own decoders are known to fit, and quantized would copy the target. The
        # costs of `models` are not measured yet.
        if each is entry:
            build(each, models._replace(sampling={"temperature": temperature}), flags)
    return able


def notes(entry: Decoder | None) -> list[str]:
    """Return what the report has to say about --decoder's entry."""
    lines = []
    if entry and entry.greedy:
        lines.append(f"--decoder {entry.name} is greedy, so it is raced at temperature 0 only.")
    if entry and entry.exact(entry.settings({})) is False:
        lines.append(f"--decoder {entry.name} is not exact: its text does not follow the "
                     "target's distribution.")
    return lines


def case_figures(args: Namespace, draft: LogitsModel | None, models: Models, texts: list,
                 temperature: float, others: dict) -> dict:
    """Return the figures of one temperature."""
    # Without a draft the target takes its place, and no decoder of the race calls it.
    guessing, target = models.draft, models.target
    title = f"Temperature {temperature:g}"
    notify(f"{title}: measuring the times of passes ..")
    turns = timed_turns(with_sampling(guessing, temperature=temperature),
                        with_sampling(target, temperature=temperature), texts[0], N_ROWS, TURNS)
    costs = least_costs(turns)
    case: dict = {"name": title, "costs": costs._asdict(), "disturbed": disturbance(turns)}

    def builder_of(name, flags):
        return race.builder(name, flags, temperature, costs=costs, folder=models.folder)

    chains = {}  # {decoder: its K}
    if draft:
        case |= measured_positions(builder_of, (draft, target), texts, args.N, costs)
        speedups = [place["predicted"]["speedup"] for place in case["positions"]]
        best = 1 + np.argsort(speedups)[-CHAINS:]  # the K with the best predictions
        chains = {f"--K {K}": int(K) for K in sorted(best)}
    builders = {"plain": builder_of(None, {}),
                **{name: builder_of("speculative", {"K": K}) for name, K in chains.items()},
                **{name: builder_of(*decoder) for name, decoder in others.items()}}
    # The intervals account for a choice among all candidates: every K could have been raced.
    n_candidates = len(case.get("positions", [])) + len(others)
    results = race.race(guessing, target, builders, texts, args.N, args.repeats,
                        title=f"{title}: race")
    case |= {"N": args.N, "repeats": args.repeats, "n_prompts": len(texts),
             "candidates": n_candidates, **race_rows(results, chains, n_candidates)}
    return case | {"answer": answer_of(case)._asdict()}


def measured_positions(builder_of: Callable, pair: tuple[LogitsModel, LogitsModel], texts: list,
                       N: int, costs: Costs) -> dict:
    """Return the acceptance, and for each position K the prediction for rounds of K guesses."""
    # Rounds of MOST_GUESSES guesses give counts at every position.
    longest = {"longest": builder_of("speculative", {"K": MOST_GUESSES})}
    runs = race.race(*pair, longest, texts, N, 1, title="acceptance")["longest"]
    counts = counts_of_race(runs, MOST_GUESSES)
    positions = [place | {"predicted": speedup} for place, speedup in
                 zip(position_figures(counts), speedups_of_counts(counts, costs).values())]
    acceptance = accepted_share(counts.accepted.sum(), counts.tested.sum())
    return {"acceptance": float(acceptance), "positions": positions}


def race_rows(results: dict[str, list], chains: dict[str, int], n_candidates: int) -> dict:
    """Return the times of plain decoding, and the rows of a race; `chains` is {decoder: K}."""
    times = {name: {"time": race.seconds_of_parts(runs),
                    "texts": race.text_figures_of_runs(runs)} for name, runs in results.items()}
    plain = times.pop("plain")
    rows = {}
    for name, row in times.items():
        # The formula predicts rounds of K guesses only; K = 0 asks for no prediction.
        figures = race.race_figures(results[name], results["plain"], K=chains.get(name, 0))
        # The interval's speed-up replaces the entry in `figures`.
        rows[name] = figures | raced_speedup(row["texts"], plain["texts"], n_candidates) | row
    return {"plain": plain, "rows": rows}


# ---- the command

FLAGS = {
    "target": dict(
        metavar="MODEL", default="tales-large", help="named as in main.py: 124M, a folder's "
        "name or path, or owner/name on the Hugging Face hub (default: tales-large, which is "
        "bundled)"),
    "draft": dict(
        metavar="MODEL", help="a smaller model, or none: race decoders without a draft "
        "(default: tales-small for tales-large, 124M for larger released sizes, otherwise "
        "none)"),
    # The names that main.py's --help shows.
    **{f"{name}_model_size": dict(dest=name, default=SUPPRESS, help=SUPPRESS)
       for name in ("target", "draft")},
    **LOADING,
    "temperature": dict(
        type=float, nargs="+", default=[0.0, 1.0], metavar="T",
        help="temperatures of the races (default: 0 1)"),
    "prompts": dict(
        type=Path, metavar="FILE", help="one prompt per line, as text or as a JSON object with "
        '"prompt" or "messages" (default: six built-in prompts)'),
    "decoder": dict(
        metavar="NAME", help="also race this decoder: a name from main.py, or FILE.py with "
        "your own rule"),
    "plot": dict(
        type=picture_path, metavar="FILE", help="also draw the measured speed-ups: a name that "
        "ends in .png or .svg")}
COMMAND = command.Benchmark(__doc__, all_figures, paragraphs, repeats=3, flags=FLAGS,
                            requirements="requirements.txt -r requirements/plots.txt",
                            draw=draw_answer)


def main(argv=None):
    """Run the command line."""
    return command.run("tools.will_it_pay", COMMAND, argv)


if __name__ == "__main__":
    sys.exit(main())
