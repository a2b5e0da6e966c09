"""Measure whether speculation pays for your two models, with the uncertainty of the answer.

    python -m tools.will_it_pay                                   # the bundled pair
    python -m tools.will_it_pay --target 1558M --draft 124M --N 20
    python -m tools.will_it_pay --target 1558M --draft 124M --random      # without a download

    (a) costs        time of a draft step, and of passes over 1 .. 9 rows    demo/costs.py
    (b) acceptance   by position, counted on the pair's own texts            demo/hazards.py
    (c) prediction   the speed-up for every K by (a) and (b)                 demo/hazards.py
    (d) race         plain decoding against the best few, several runs       demo/race.py
    (e) answer       from the intervals of the race                          demo/answer.py

    alpha   probability that a guess is accepted
    c       time of a draft step / time of a target pass over one row
    case    the figures of one temperature

The answer for each temperature is one of three: it pays, it does not pay, or it is not known
from these prompts. demo/answer.py states the rule. It compares the intervals of the measured
speed-ups with 1, and a wrong "it pays" or "it does not pay" has a probability of at most 5 %.
Other work on the machine also slows runs down. If the costs contradict each other, nothing is
known.

The "predicted" speed-ups in the table of decoders are computed after the race, from the
acceptance and the mean times of the race's passes, as in main.py's table. The predictions of
--random, which runs no race, and the thresholds after each answer are computed from the costs.
--out writes all of it as a page (demo/pay_page.py).
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks import command
from benchmarks.command import gain, number
from benchmarks.models import OPENINGS, named, random_model
from demo.answer import (
    acceptance_in_words,
    answer_in_words,
    answer_of,
    disturbance,
    raced_speedup,
)
from demo.clock import machine, spread
from demo.costs import N_ROWS
from demo.flags import decoder_name, entry_of_flag
from demo.hazards import (
    counts_of_race,
    overall_acceptance,
    position_figures,
    speedups_of_counts,
)
from demo.pay_page import pay_page_text
from demo.prompts import ids_of_line, opened_prompts, prompt_lines, prompt_of_line
from demo.race import (
    builder,
    costs_at,
    race,
    race_figures,
    seconds_per_token,
    text_figures_of_runs,
    tokens_per_second,
)
from demo.task import nonempty
from lib.backend import products
from lib.backend.arrays import gpu_errors_in_one_line
from lib.markdown import markdown_table
from lib.terminal import flags_given, notify
from lib.tokenizer import Tokenizer
from sampling import check_sampling
from theory.hardware import GPT2_SIZES
from theory.speedup import walltime_improvement
from utils import MODELS_DIR, load_pair
from variants.registry import Costs, Target
from variants.shared.tree_gpt2 import tree_model

ALPHAS = (0.6, 0.7, 0.8, 0.9)  # acceptances assumed for random weights
MOST_GUESSES = N_ROWS - 1  # the largest K that is predicted: its pass is the longest measured
PAGE = "docs/low_acceptance.md"
CHAINS = 3  # how many values of K are raced
FOR_TEXTS = {  # flags that do not apply to --random
    "models_dir", "cut_vocab", "temperature", "prompts", "N", "repeats", "out"}


# ---- the pair and its prompts

def load_models(args: Namespace) -> tuple[Tokenizer | None, Target, Target]:
    """Return (encoder, draft, target); the encoder is None if the weights are random."""
    names = (args.draft, args.target)
    if args.random:
        # No file is read: the time of a pass does not depend on the values of the weights.
        check_random(args, names)
        products.set_backend(args.backend)
        encoder = None
        models = [random_model(GPT2_SIZES[name], backend=args.backend) for name in names]
    else:
        encoder, *models = load_pair(*names, args.models_dir, backend=args.backend,
                                     cut_vocab=args.cut_vocab)
    products.warm_up(np.float32, notify)
    # The race also runs decoders with trees of guesses, for which a model must read trees.
    draft, target = (tree_model(model) for model in models)
    return encoder, draft, target


def check_random(args: Namespace, names: tuple[str, str]) -> None:
    """Raise ValueError for flags and models that do not fit --random."""
    if misplaced := args.given & FOR_TEXTS:
        raise ValueError(f"--{min(misplaced)} does not apply to --random, which writes no text")
    for name in names:
        if name not in GPT2_SIZES:
            raise ValueError(f"--random needs a released size, got {name}: choose --target and "
                             f"--draft from {', '.join(GPT2_SIZES)}")


def check_temperatures(temperatures: list[float]) -> None:
    """Raise ValueError for a temperature out of range, or two with the same name in a table."""
    for T in temperatures:
        check_sampling(T)
    # Tables name a temperature with six digits, so 0.7 and 0.70000001 have one name.
    names = [f"{T:g}" for T in temperatures]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--temperature values must differ, got {name} twice")


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
    with opened_prompts(str(path)) as file:
        for i, line in enumerate(prompt_lines(file, str(path)), 1):  # lines count from 1
            try:
                # main.py writes an error for a blank line. Here it is skipped.
                if line.strip():
                    yield nonempty(ids_of_line(prompt_of_line(line), encoder))
            except ValueError as error:
                raise ValueError(f"{path}, line {i}: {error}") from None


# ---- measuring

def predicted_speedups(costs: Costs, alpha: float) -> dict[int, float]:
    """Return {K: speed-up} by the formula, for K = 1, 2, .."""
    # pass_cost[K] is the cost of a pass over K + 1 rows. K = 0 makes no guess.
    return {K: walltime_improvement(alpha, K, costs.c, cost)
            for K, cost in enumerate(costs.pass_cost) if K > 0}


def case_figures(args: Namespace, draft: Target, target: Target, texts: list[list[int]],
                 temperature: float, costs: Costs) -> dict:
    """Return the case of one temperature: acceptance, predictions, the race and the answer."""
    def builder_of(name, **flags):
        return builder(name, flags, temperature, costs=costs)

    # (b) A race of a single decoder, with the longest rounds, counts accepted guesses by
    # position.
    longest = {"longest": builder_of("speculative", K=MOST_GUESSES)}
    runs = race(draft, target, longest, texts, args.N, repeats=1)["longest"]
    counts = counts_of_race(runs, MOST_GUESSES)
    # (c) Acceptance and costs predict the speed-up of every K. The line of position K in the
    # table shows the prediction for rounds of K guesses.
    positions = position_figures(counts)
    predicted = speedups_of_counts(counts, costs)
    for place, predicted_gain in zip(positions, predicted.values()):
        place["predicted"] = predicted_gain
    # (d) The K with the best predictions race against plain decoding and the other decoders.
    best_Ks = sorted(predicted, key=lambda K: predicted[K]["speedup"])[-CHAINS:]  # best last
    chains = {f"--K {K}": K for K in sorted(best_Ks)}
    others = other_builders(args, builder_of, target)
    builders = {"plain": builder_of(None),
                **{name: builder_of("speculative", K=K) for name, K in chains.items()},
                **others}
    results = race(draft, target, builders, texts, args.N, args.repeats)
    # The intervals account for a choice among all candidates: every K could have been raced.
    n_candidates = len(predicted) + len(others)
    case = {"name": f"Temperature {temperature:g}", "N": args.N, "repeats": args.repeats,
            "n_prompts": len(texts), "candidates": n_candidates,
            "acceptance": overall_acceptance(counts), "positions": positions,
            "plain": plain_figures(results["plain"]),
            "rows": decoder_rows(results, chains, n_candidates)}
    # (e) The answer follows from the intervals in `case`.
    return case | {"answer": answer_of(case, costs)._asdict()}


def other_builders(args: Namespace, builder_of: Callable,
                   target: Target) -> dict[str, Callable]:
    """Return the builders of the race's decoders that are not rounds of K guesses."""
    builders = {}
    # The quantized draft copies the target's weights, which a model of transformers does not
    # offer.
    if hasattr(target, "params"):
        builders["--decoder quantized"] = builder_of("quantized")
    builders["--decoder stopping"] = builder_of("stopping")
    builders["--decoder tree --widths auto"] = builder_of("tree", widths="auto")
    if args.decoder:
        builders[f"--decoder {args.decoder}"] = builder_of(entry_of_flag(args.decoder))
    return builders


def plain_figures(runs: list) -> dict:
    """Return the speed of plain decoding, and where its time goes."""
    return {"tokens_per_s": spread(tokens_per_second(runs)), "time": seconds_per_token(runs),
            "texts": text_figures_of_runs(runs)}


def decoder_rows(results: dict[str, list], chains: dict[str, int], n_candidates: int) -> dict:
    """Return {decoder: its figures} of a race; `chains` is {decoder: its K}."""
    plain = results["plain"]
    rows = {}
    for name, runs in results.items():
        if name == "plain":
            continue
        texts = text_figures_of_runs(runs)
        interval = raced_speedup(texts, text_figures_of_runs(plain), n_candidates)
        # The formula predicts rounds of K guesses only; K = 0 asks for no prediction.
        figures = race_figures(runs, plain, K=chains.get(name, 0))
        # `interval` comes last, because its speed-up replaces the entry in `figures`.
        rows[name] = {**figures, **interval, "time": seconds_per_token(runs), "texts": texts}
    return rows


@gpu_errors_in_one_line()
def all_figures(args: Namespace) -> dict:
    """Return all figures: costs, and a case per temperature, or predictions with --random."""
    check_temperatures(args.temperature)
    encoder, draft, target = load_models(args)
    if encoder is None:
        # With --random only costs are measured, after one text of N_ROWS tokens.
        texts = [[1] * N_ROWS]
    else:
        texts = prompts_as_ids(args, encoder, min(draft.n_ctx, target.n_ctx))
    library = getattr(target, "library", None)  # PyTorch, for a model of transformers
    figures = machine(library) | {
        "target": args.target, "draft": args.draft, "costs": {}, "cases": [],
        "texts": named(len(texts), args.N),
        "prompts": [encoder.decode(ids) for ids in texts] if encoder else [],
        "given": {},  # --random: predictions for given acceptances
        "vocabularies": str(getattr(draft, "common", ""))}  # empty if they are equal
    # --random writes no text, so one temperature is enough to time the draft's steps.
    temperatures = [1.0] if args.random else args.temperature
    for T in temperatures:
        costs = costs_at(T, draft, target, texts[0])
        figures["costs"][f"temperature {T:g}"] = costs._asdict()
        if not args.random:
            figures["cases"].append(case_figures(args, draft, target, texts, T, costs))
        # Disturbed costs contradict each other, so nothing is predicted from them.
        elif not disturbance(costs):
            figures["given"] = {f"Acceptance {alpha}": predicted_speedups(costs, alpha)
                                for alpha in ALPHAS}
    return figures


# ---- in words

def paragraphs(figures: dict, args: Namespace | None = None) -> Iterator[str]:
    """Yield the paragraphs and tables of the report."""
    yield f"Target {figures['target']}, draft {figures['draft']}. {figures['measured']}"
    if figures.get("vocabularies"):
        yield f"Vocabularies differ: {figures['vocabularies']}."
    costs_of = {name: Costs(**costs) for name, costs in figures["costs"].items()}
    for name, costs in costs_of.items():
        yield costs_table(name, costs)
        if why := disturbance(costs):
            yield (f"The costs at {name} are disturbed: {why}, which no idle machine does. "
                   "Nothing follows from them. Run this again when the machine is idle.")
    if figures["given"]:
        yield predictions_table(figures["given"])
    # Cases and costs have one entry per temperature, in the same order; --random has no case.
    for case, costs in zip(figures["cases"], costs_of.values()):
        yield f"{case['name']}, {figures['texts']}: {acceptance_in_words(case)}"
        if "positions" in case:  # older files lack them
            yield positions_table(case["positions"])
        yield case_table(case)
        yield f"{case['name']}: {answer_in_words(case, costs)}"
    if figures["cases"]:
        yield f"If the acceptance is lower than you expect: {PAGE}."


def predictions_table(speedups_of: dict[str, dict]) -> str:
    """Return the table of {acceptance: {K: predicted speed-up}}."""
    Ks = next(iter(speedups_of.values()))  # the keys, which are equal in all lines
    rows = [[name, *map(number, speedups.values())] for name, speedups in speedups_of.items()]
    return markdown_table(["predicted", *(f"--K {K}" for K in Ks)], rows)


def costs_table(name: str, costs: Costs) -> str:
    """Return the times of passes and of a draft step, also in units of one target row."""
    # passes[i] is the time of i + 1 rows, in seconds.
    one_row = costs.passes[0]
    times = [*costs.passes, costs.draft]
    n_rows = range(1, len(costs.passes) + 1)
    return markdown_table([f"rows in one pass, {name}", *n_rows, "a draft step"],
                          [["ms", *(number(1e3 * time) for time in times)],
                           ["relative", *(number(time / one_row) for time in times)]])


def positions_table(positions: list[dict]) -> str:
    """Return the table of acceptance by position in the round, with 90 % intervals.

    The last column of line K is the speed-up of rounds of K guesses, as predicted from the
    acceptance at the positions 1 .. K.
    """
    head = ["guess", "tested", "accepted, if those before it were (90 % interval)",
            "predicted speed-up with so many guesses (90 % interval)"]
    rows = []
    for K, place in enumerate(positions, start=1):
        predicted = place["predicted"]
        rows.append([K, place["tested"], with_interval(place["acceptance"], place),
                     with_interval(predicted["speedup"], predicted)])
    return markdown_table(head, rows)


def with_interval(figure: float, ends: Mapping[str, float | None]) -> str:
    """Return a figure and the two ends of its interval.

    >>> with_interval(0.5, {"low": 0.4, "high": 0.7})
    '0.50 (0.40 - 0.70)'
    """
    return f"{number(figure)} ({number(ends['low'])} - {number(ends['high'])})"


def case_table(case: dict) -> str:
    """Return the table of each decoder: speed-ups, tokens per pass, and where its time goes."""
    # Older files have the slowest and the fastest run of each decoder instead of an interval.
    if not all("low" in row for row in case["rows"].values()):
        rows = [[name, number(row.get("predicted")), gain(row), number(row["tokens_per_pass"])]
                for name, row in case["rows"].items()]
        return markdown_table(["decoder", "predicted", "measured (slowest - fastest run)",
                               "tokens/pass"], rows)
    # Plain decoding is the unit of speed-ups, and has one token per pass.
    rows = [["plain decoding", "-", "1.00", "1.00", *shares_of_time(case["plain"]["time"])]]
    for name, row in case["rows"].items():
        rows.append([name, number(row.get("predicted")), with_interval(row["speedup"], row),
                     number(row["tokens_per_pass"]), *shares_of_time(row["time"])])
    return markdown_table(["decoder", "predicted", "measured (interval)", "tokens/pass",
                           *(f"time: {name}" for name in case["plain"]["time"])], rows)


def shares_of_time(seconds: Mapping[str, float]) -> list[str]:
    """Return what percentage of the time each part takes.

    >>> shares_of_time({"draft": 1, "target": 2, "rest": 1})
    ['25 %', '50 %', '25 %']
    """
    total = sum(seconds.values())
    return [f"{100 * part / total:.0f} %" for part in seconds.values()]


# ---- the command

def main(argv=None):
    """Run the command line."""
    parser = command.new_parser("tools.will_it_pay", __doc__, repeats=3)
    add = parser.add_argument
    for role, bundled in (("target", "tales-large"), ("draft", "tales-small")):
        add(f"--{role}", metavar="MODEL", default=bundled,
            help=f"the {role}, named as in main.py: 124M, a folder's name or path, or "
            "owner/name on the Hugging Face hub (default: the bundled one)")
    add("--models_dir", type=Path, default=MODELS_DIR, metavar="DIR",
        help="the same as in main.py (default: the repository's models/)")
    add("--cut_vocab", action="store_true", help="the same as in main.py")
    add("--backend", choices=products.BACKENDS, default="numba", help="the same as in main.py")
    add("--random", action="store_true", help="use random weights of a released size (no "
        f"download) and predict speed-ups for acceptance rates {ALPHAS[0]} to {ALPHAS[-1]}")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0], metavar="T",
        help="temperatures of the races (default: 0 1)")
    add("--prompts", type=Path, metavar="FILE",
        help="one prompt or JSON object per line, as in main.py (default: six built-in "
        "prompts)")
    add("--decoder", type=decoder_name, metavar="NAME",
        help="also race this decoder: a name from main.py, or FILE.py with your own rule")
    add("--out", type=Path, metavar="FILE.html", help="also write the answer as a page with "
        "pictures; with --show, the page shows the figures in that file")
    args = parser.parse_args(argv)
    # check_random refuses flags that are given, even with the value of their default.
    args.given = flags_given(sys.argv[1:] if argv is None else argv)
    # Figures in a file are shown as they were measured. Only --out applies to them.
    misplaced = args.given - {"show", "out"}
    if args.show and misplaced:
        parser.error(f"--{min(misplaced)} does not apply to --show, which measures nothing")
    return command.run("tools.will_it_pay", args, all_figures, paragraphs,
                       page_of=pay_page_text)


if __name__ == "__main__":
    sys.exit(main())
