"""Measure whether speculation pays for your GPT-2 models; for others: python -m theory.speedup.

    python -m tools.will_it_pay                                   # the bundled pair
    python -m tools.will_it_pay --target 1558M --draft 124M --N 20
    python -m tools.will_it_pay --target 1558M --draft 124M --random      # without a download

    (a) costs        time of a draft step, and of passes over 1 .. 9 rows    demo/costs.py
    (b) acceptance   counted on the pair's own texts                         demo/race.py
    (c) prediction   the best K by the papers' formulas and these costs      theory/speedup.py
    (d) race         plain decoding against the best few, several runs       demo/race.py

    alpha   probability that a guess is accepted
    c       time of a draft step / time of a target pass over one row
    case    the figures of one temperature

It pays if the best decoder was faster than plain decoding in every run, and does not pay if it
was not faster in the median run. Other work on the machine slows runs down, too, so the table
shows the slowest and the fastest run. There is no verdict if the texts are short, the runs are
few, or the costs contradict each other.

The table's "predicted" speed-ups are computed after the race, from the acceptance and the mean
times of the race's passes, as in main.py's table. The predictions of --random, which runs no
race, and the thresholds after each verdict are computed from the costs.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks import command
from benchmarks.command import gain, number
from benchmarks.models import OPENINGS, named, random_model
from demo.clock import machine
from demo.costs import N_ROWS
from demo.flags import decoder_name, entry_of_flag
from demo.hazards import counts_of_race, position_figures, speedups_of_counts
from demo.prompts import ids_of_line, opened_prompts, prompt_lines, prompt_of_line
from demo.race import builder, costs_at, race, race_figures
from lib.backend import products
from lib.backend.arrays import gpu_errors_in_one_line
from lib.markdown import markdown_table
from lib.terminal import flags_given, notify
from lib.tokenizer import Tokenizer
from sampling import check_sampling
from theory.hardware import GPT2_SIZES
from theory.speedup import expected_tokens, needed_alpha, walltime_improvement
from utils import MODELS_DIR, load_pair
from variants.registry import Costs, Target
from variants.shared.tree_gpt2 import tree_model

ALPHAS = (0.6, 0.7, 0.8, 0.9)  # acceptances assumed for random weights
CHAINS = 3  # values of K that are run
FEWEST = 16  # new tokens per prompt; with fewer there is no verdict
FEWEST_RUNS = 3  # runs of every decoder; with fewer there is no verdict
# On idle machines a pass over several rows never took less than 0.95 of one row's time, nor
# less than 0.7 of a pass over fewer rows. (The least was 0.74, for eight rows against seven
# with NumPy's products.)
LEAST_OF_ONE_ROW = 0.95
LEAST_OF_FEWER_ROWS = 0.7
FOR_TEXTS = {  # flags that do not apply to --random
    "models_dir", "cut_vocab", "temperature", "prompts", "N", "repeats"}


# ---- the pair and its prompts

def load_models(args: Namespace) -> tuple[Tokenizer | None, Target, Target]:
    """Return (encoder, draft, target); the encoder is None if the weights are random."""
    names = (args.draft, args.target)
    if args.random:
        check_random(args, names)
        products.set_backend(args.backend)
        encoder = None
        models = [random_model(GPT2_SIZES[name], backend=args.backend) for name in names]
    else:
        encoder, *models = load_pair(*names, args.models_dir, backend=args.backend,
                                     cut_vocab=args.cut_vocab)
    products.warm_up(np.float32, notify)
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
    names = [f"{T:g}" for T in temperatures]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"need --temperature values that differ, got {name} twice")


def prompts_as_ids(args: Namespace, encoder: Tokenizer, n_ctx: int) -> list[list[int]]:
    """Return the ids of every prompt; ValueError if a prompt and N more tokens exceed n_ctx."""
    if args.prompts:
        texts = list(ids_of_file(args.prompts, encoder))
    else:
        texts = [encoder.encode(opening) for opening in OPENINGS]
    longest = max(map(len, texts), default=0)
    if longest == 0:
        raise ValueError(f"--prompts {args.prompts} has blank lines only: write one prompt per "
                         "line")
    if longest + args.N > n_ctx:
        raise ValueError(f"the longest prompt has {longest} tokens, and --N {args.N} more do "
                         f"not fit in n_ctx = {n_ctx}: choose a smaller --N or shorter prompts")
    return texts


def ids_of_file(path: Path, encoder: Tokenizer) -> Iterator[list[int]]:
    """Yield the ids of each line that is not blank: text or JSON, as main.py reads it."""
    with opened_prompts(str(path)) as file:
        for i, line in enumerate(prompt_lines(file, str(path)), 1):
            try:
                if line.strip():
                    yield ids_of_line(prompt_of_line(line), encoder)
            except ValueError as error:
                raise ValueError(f"{path}, line {i}: {error}") from None


# ---- measuring

def predicted_speedups(costs: Costs, alpha: float) -> dict[int, float]:
    """Return {K: speed-up} by the formula, for K = 1 and on."""
    return {K: walltime_improvement(alpha, K, costs.c, cost)
            for K, cost in enumerate(costs.pass_cost) if K}


def allowed_c(costs: Costs, alpha: float) -> float | None:
    """Return the c below which some K gains at this alpha; None if not even c = 0 gains."""
    # K guesses gain if tokens / (K c + cost) > 1, which is solved for c here
    limits = [(expected_tokens(alpha, K) - cost) / K
              for K, cost in enumerate(costs.pass_cost) if K]
    largest = max(limits)
    return largest if largest > 0 else None


def disturbance(costs: Costs) -> str:
    """Return how two measured passes contradict each other, or "" if no two do.

    >>> disturbance(Costs(0.1, [1.0, 1.2, 0.9])), disturbance(Costs(0.1, [1.0, 1.1, 1.05]))
    ('a pass over 3 rows took 0.90 of the time of 1 row', '')
    """
    times = enumerate(costs.passes, start=1)  # (number of rows, time of a pass over them)
    for (fewer, time_of_fewer), (more, time_of_more) in combinations(times, 2):
        share = time_of_more / time_of_fewer
        least = LEAST_OF_ONE_ROW if fewer == 1 else LEAST_OF_FEWER_ROWS
        if share < least:
            rows = "1 row" if fewer == 1 else f"{fewer} rows"
            return f"a pass over {more} rows took {share:.2f} of the time of {rows}"
    return ""


def case_figures(args: Namespace, draft: Target, target: Target, texts: list[list[int]],
                 temperature: float, costs: Costs) -> dict:
    """Return the case of one temperature: acceptance, predictions and the race's figures."""
    def builder_of(name, **flags):
        return builder(name, flags, temperature, costs=costs)

    # a race of one decoder, to count its accepted guesses; the speed-up over itself is not used
    four = {"K = 4": builder_of("speculative", K=4)}
    runs = race(draft, target, four, texts, args.N, repeats=1)["K = 4"]
    alpha = race_figures(runs, runs)["acceptance"] or 0.0  # None: N is 1, nothing was tested
    counts = counts_of_race([runs[0]], K=4)
    positions = position_figures(counts)
    for place, predicted_gain in zip(positions, speedups_of_counts(counts, costs).values()):
        place["predicted"] = predicted_gain  # of rounds that end after this guess
    # the decoders of the race: the values of K that gain most by the formula, and three more
    predicted = predicted_speedups(costs, alpha)
    best_Ks = sorted(predicted, key=lambda K: predicted[K])[-CHAINS:]
    chains = {f"--K {K}": K for K in sorted(best_Ks)}
    builders = {"plain": builder_of(None),
                **{name: builder_of("speculative", K=K) for name, K in chains.items()}}
    if hasattr(target, "params"):  # a copy of its weights can be made
        builders["--decoder quantized"] = builder_of("quantized")
    builders["--decoder stopping"] = builder_of("stopping")
    builders["--decoder tree --widths auto"] = builder_of("tree", widths="auto")
    if args.decoder:
        builders[f"--decoder {args.decoder}"] = builder_of(entry_of_flag(args.decoder))
    results = race(draft, target, builders, texts, args.N, args.repeats)
    plain = results.pop("plain")
    # the formula predicts chains of K guesses; K = 0 asks for no prediction
    rows = {name: race_figures(result, plain, K=chains.get(name, 0))
            for name, result in results.items()}
    return {"name": f"Temperature {temperature:g}", "N": args.N, "repeats": args.repeats,
            "acceptance": alpha, "positions": positions, "rows": rows}


@gpu_errors_in_one_line()
def all_figures(args: Namespace) -> dict:
    """Return all figures: costs, and a case per temperature, or predictions with --random."""
    check_temperatures(args.temperature)
    encoder, draft, target = load_models(args)
    if encoder is None:  # --random
        texts = [[1] * N_ROWS]  # one text of N_ROWS tokens; nothing is written after it
    else:
        texts = prompts_as_ids(args, encoder, min(draft.n_ctx, target.n_ctx))
    figures = machine() | {
        "target": args.target, "draft": args.draft, "costs": {}, "cases": [],
        "texts": named(len(texts), args.N),
        "given": {},  # --random: predictions for given acceptances
        "vocabularies": str(getattr(draft, "common", ""))}  # empty if they are equal
    temperatures = [1.0] if args.random else args.temperature
    for T in temperatures:
        costs = costs_at(T, draft, target, texts[0])
        figures["costs"][f"temperature {T:g}"] = costs._asdict()
        if not args.random:
            figures["cases"].append(case_figures(args, draft, target, texts, T, costs))
        elif not disturbance(costs):
            figures["given"] = {f"Acceptance {alpha}": predicted_speedups(costs, alpha)
                              for alpha in ALPHAS}
    return figures


# ---- in words

def verdict(case: dict, costs: Costs) -> str:
    """Return whether speculation pays, and why not if only the formula predicts a gain."""
    if case["N"] < FEWEST:
        return f"no verdict from texts of fewer than {FEWEST} tokens (--N {case['N']})."
    if case["repeats"] < FEWEST_RUNS:
        return f"no verdict from fewer than {FEWEST_RUNS} runs (--repeats {case['repeats']})."
    if disturbance(costs):
        return "no verdict, because the costs are disturbed."
    rows = case["rows"]
    name = max(rows, key=lambda name: rows[name]["speedup"])
    best = rows[name]
    if best["slowest"] > 1:
        pays = "pays"
    elif best["speedup"] <= 1:
        pays = "does not pay"
    else:
        pays = "is too close to call"
    measured = (f"it {pays}; best measured: {name}, {best['speedup']:.2f}x (median of "
                f"{case['repeats']}).")
    predicted = max((row.get("predicted", 0.0) for row in rows.values()), default=0.0)
    if pays == "pays" or predicted <= 1:
        return measured
    return (f"{measured} By the formula it pays ({predicted:.2f}x); sampling and Python's own "
            "time, which the formula leaves out, took the rest.")


def conditions(costs: Costs, alpha: float) -> str:
    """Return what must hold for speculation to gain by the formula."""
    needed = needed_alpha(costs.c, costs.pass_cost)
    allowed = allowed_c(costs, alpha)
    if needed is None:
        enough = "at these costs no acceptance is enough"
    else:
        enough = f"to gain at these costs, you need acceptance above {needed:.2f}"
    if allowed is None:
        cheap = "At this acceptance no draft is cheap enough"
    else:
        cheap = ("To gain at this acceptance, you need a draft step cheaper than "
                 f"{allowed:.2f} target passes")
    return f"By the formula, {enough} (yours: {alpha:.2f}). {cheap} (yours: {costs.c:.2f})."


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
    # the costs and the cases of one temperature; --random has no case
    for case, costs in zip(figures["cases"], costs_of.values()):
        yield (f"{case['name']}, {figures['texts']}: {case['acceptance']:.2f} of the guesses "
               "were accepted.")
        if "positions" in case:  # older files lack them
            yield positions_table(case["positions"])
        yield case_table(case)
        advice = ""
        if case["N"] >= FEWEST and not disturbance(costs):
            advice = f" {conditions(costs, case['acceptance'])}"
        yield f"{case['name']}: {verdict(case, costs)}{advice}"


def predictions_table(speedups_of: dict[str, dict]) -> str:
    """Return the table of {acceptance: {K: predicted speed-up}}."""
    Ks = next(iter(speedups_of.values()))  # equal in all lines
    rows = [[name, *map(number, speedups.values())] for name, speedups in speedups_of.items()]
    return markdown_table(["predicted", *(f"--K {K}" for K in Ks)], rows)


def costs_table(name: str, costs: Costs) -> str:
    """Return the times of passes and of a draft step, also in units of one target row."""
    one_row = costs.passes[0]  # passes[i]: the seconds of i + 1 rows
    times = [*costs.passes, costs.draft]
    n_rows = range(1, len(costs.passes) + 1)
    return markdown_table([f"rows in one pass, {name}", *n_rows, "a draft step"],
                          [["ms", *(number(1e3 * time) for time in times)],
                           ["relative", *(number(time / one_row) for time in times)]])


def positions_table(positions: list[dict]) -> str:
    """Return the table of acceptance by position in the round, with 90 % intervals.

    Its last row is the speed-up that the positions up to each one predict, for K = 1, 2, ..
    """
    head = ["guess, if those before it were accepted", *range(1, len(positions) + 1)]
    tested = ["tested", *(place["tested"] for place in positions)]
    rates = ["accepted (90 % interval)",
             *(with_interval(place["acceptance"], place) for place in positions)]
    gains = ["predicted speed-up with this K (90 % interval)"]
    for place in positions:
        predicted = place["predicted"]
        gains.append(with_interval(predicted["speedup"], predicted))
    return markdown_table(head, [tested, rates, gains])


def with_interval(figure: float, ends: dict[str, float]) -> str:
    """Return a figure and the two ends of its interval.

    >>> with_interval(0.5, {"low": 0.4, "high": 0.7})
    '0.50 (0.40 - 0.70)'
    """
    return f"{number(figure)} ({number(ends['low'])} - {number(ends['high'])})"


def case_table(case: dict) -> str:
    """Return the table of predicted and measured speed-ups of each decoder."""
    rows = [[name, number(row.get("predicted")), gain(row), number(row["tokens_per_pass"])]
            for name, row in case["rows"].items()]
    head = ["decoder", "predicted", "measured (slowest - fastest run)", "tokens/pass"]
    return markdown_table(head, rows)


# ---- the command

def main(argv=None):
    parser = command.new_parser("tools.will_it_pay", __doc__, repeats=3)
    add = parser.add_argument
    for role, bundled in (("target", "tales-large"), ("draft", "tales-small")):
        add(f"--{role}", metavar="MODEL", default=bundled, help="124M, 355M, .., a folder in "
            "models_dir, or the path of a Hugging Face folder (default: the bundled one)")
    add("--models_dir", type=Path, default=MODELS_DIR, metavar="DIR",
        help="as main.py's (default: the repository's models/)")
    add("--cut_vocab", action="store_true", help="as main.py's")
    add("--backend", choices=products.BACKENDS, default="numba", help="as main.py's")
    add("--random", action="store_true", help="random weights for released sizes, without a "
        f"download: predict for acceptances of {', '.join(map(str, ALPHAS))}")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0], metavar="T",
        help="temperatures of the races (default: 0 1)")
    add("--prompts", type=Path, metavar="FILE",
        help="a prompt per line, or a JSON object, as main.py's (default: six openings)")
    add("--decoder", type=decoder_name, metavar="NAME",
        help="race this decoder too: a name of main.py's, or FILE.py with a rule of yours")
    args = parser.parse_args(argv)
    args.given = flags_given(sys.argv[1:] if argv is None else argv)
    return command.run("will_it_pay", args, all_figures, paragraphs)


if __name__ == "__main__":
    sys.exit(main())
