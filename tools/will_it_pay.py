"""Will speculation pay for your pair of models on your machine? Measure, predict and run it.

    python -m tools.will_it_pay                                   # the bundled pair
    python -m tools.will_it_pay --target 1558M --draft 124M --N 20 --repeats 1
    python -m tools.will_it_pay --target 1558M --draft 124M --random      # without a download

    [1] costs        time of a draft step, and of passes over 1 .. 9 rows      lib/costs.py
    [2] acceptance   counted on the pair's own texts                           benchmarks/race.py
    [3] prediction   the best K and the best tree by the papers' formulas      theory/speedup.py
    [4] race         plain decoding against the best few, several runs         benchmarks/race.py

    alpha   probability that a guess is accepted
    c       time of a draft step / of a target pass over one row
    case    the figures of one temperature; of one alpha if the weights are random

It pays if the best decoder was faster than plain decoding in every run. Other work on the machine
slows a run down, too: the table shows the slowest and the fastest run.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks import command
from benchmarks.clock import machine
from benchmarks.command import about, number, table
from benchmarks.models import random_model
from benchmarks.prompts import LENGTH, OPENINGS, named
from benchmarks.race import acceptances_by_rank, builder, race, speed
from lib.backend import products
from lib.backend.arrays import gpu_errors_in_one_line
from lib.costs import N_ROWS, measure_costs
from lib.demo.prompts import read_lines, read_prompt
from sampling import check_sampling, with_sampling
from theory.hardware import GPT2_SIZES
from theory.speedup import best_K, expected_tokens, need, walltime_improvement
from utils import MODELS_DIR, load_pair
from variants.best_tree import best_shape, n_levels
from variants.shared.tree_gpt2 import TreeGPT2

ALPHAS = (0.6, 0.7, 0.8, 0.9)  # what is predicted for random weights
CHAINS = 3  # numbers of guesses that are run
SHORT = 16  # new tokens per prompt below which a run says nothing


# ---- the pair and its prompts

def load(args):
    """Return (encoder, draft, target); the encoder is None if the weights are random."""
    names = (args.draft, args.target)
    if args.random:
        need(args.backend != "cupy", "--backend numba or numpy with --random", args.backend)
        need(GPT2_SIZES.keys() >= {*names}, f"two of {', '.join(GPT2_SIZES)} with --random",
             " and ".join(names))
        products.set_backend(args.backend)
        encoder, models = None, [random_model(GPT2_SIZES[name]) for name in names]
    else:
        encoder, *models = load_pair(*names, args.models_dir, backend=args.backend,
                                     cut_vocab=args.cut_vocab)
    products.warm_up(np.float32)
    return encoder, *(TreeGPT2(model.params, model.n_head) for model in models)


def read_texts(args, encoder, n_ctx):
    """Return the ids of every prompt; ValueError if N more tokens do not fit after one."""
    prompts = read_prompts(args.prompts) if args.prompts else OPENINGS
    texts = [encoder.encode(prompt) for prompt in prompts]
    longest = max(map(len, texts), default=0)
    need(0 < longest <= n_ctx - args.N, f"prompts of 1 .. {n_ctx - args.N} tokens (n_ctx = "
         f"{n_ctx}, --N {args.N})", longest or "none")
    return texts


def read_prompts(path):
    """Yield the prompt of each line that is not blank, text or JSON, as main.py reads it."""
    with open(path, "rb") as file:
        for i, line in enumerate(read_lines(file, path), 1):
            try:
                if line.strip():
                    yield read_prompt(line, "strict")["prompt"]
            except ValueError as error:
                raise ValueError(f"{path}, line {i}: {str(error).split(';')[0]}") from None


# ---- [3] the formulas

def predict(costs, acceptances):
    """Return the best K and tree by the papers' formulas, and what must hold for any K to gain."""
    c, pass_cost, alpha = costs.c, costs.pass_cost, acceptances[0]
    gain, shape = best_shape(np.minimum.accumulate(acceptances).tolist(), c, pass_cost)
    return {"c": c, "acceptance": alpha, "acceptances": list(acceptances),
            "predicted": {K: walltime_improvement(alpha, K, c, cost)
                          for K, cost in enumerate(pass_cost) if K},
            "tree": {"predicted": gain, "guesses": len(shape), "levels": n_levels(shape)},
            "needed_acceptance": needed_acceptance(c, pass_cost),
            "allowed_c": allowed_c(alpha, pass_cost)}


def needed_acceptance(c, pass_cost):
    """Return the alpha above which some K gains at these costs; None if not even 1 does."""
    if not best_K(1, c, pass_cost):
        return None
    low, high = 0.0, 1.0
    for _ in range(50):  # a larger alpha never does worse, so bisection finds the border
        middle = (low + high) / 2
        low, high = (low, middle) if best_K(middle, c, pass_cost) else (middle, high)
    return high


def allowed_c(alpha, pass_cost):
    """Return the c below which some K gains at this alpha; None if not even 0 does."""
    most = max((expected_tokens(alpha, K) - cost) / K for K, cost in enumerate(pass_cost) if K)
    return most if most > 0 else None


# ---- [4] the race

def contestants(case, temperature, costs):
    """Yield (what main.py calls it, prediction, builder) of the decoders that are run."""
    predicted, tree = case["predicted"], case["tree"]
    for K in sorted(sorted(predicted, key=predicted.get)[-CHAINS:]):
        yield f"--K {K}", predicted[K], builder("speculative", {"K": K}, temperature)
    yield "--decoder stopping", None, builder("stopping", {}, temperature, costs=costs)
    if tree["guesses"] > tree["levels"]:
        yield ("--decoder tree --widths auto", tree["predicted"],
               builder("tree", {"widths": "auto"}, temperature, costs=costs))


def run_case(args, draft, target, texts, temperature, costs):
    """Return the case of one temperature: counted, predicted and run."""
    acceptances, tried = acceptances_by_rank(draft, target, temperature, texts, args.N,
                                             args.repeats if temperature else 1)
    case = predict(costs, acceptances)
    names, predicted, builders = zip(*contestants(case, temperature, costs))
    results = race(draft, target, {"plain": builder(None, {}, temperature),
                                   **dict(zip(names, builders))}, texts, args.N, args.repeats)
    rows = {name: speed(results[name], results["plain"]) | {"predicted": gain}
            for name, gain in zip(names, predicted)}
    return case | {"name": f"Temperature {temperature:g}", "tried": tried, "N": args.N,
                   "repeats": args.repeats, "rows": rows}


@gpu_errors_in_one_line()
def measure(args):
    """Return all figures."""
    for temperature in args.temperature:
        check_sampling(temperature)
    encoder, draft, target = load(args)
    n_ctx = min(draft.n_ctx, target.n_ctx)
    need(n_ctx > N_ROWS, f"models of n_ctx > {N_ROWS}", n_ctx)
    texts = read_texts(args, encoder, n_ctx) if encoder else [[1] * N_ROWS]
    found = machine() | {"target": args.target, "draft": args.draft,
                         "texts": named(len(texts), args.N), "costs": {}, "cases": []}
    for T in args.temperature if encoder else [1.0]:
        costs = measure_costs(*(with_sampling(model, temperature=T) for model in (draft, target)),
                              texts[0])
        found["costs"][f"temperature {T:g}"] = costs._asdict()
        found["cases"] += ([run_case(args, draft, target, texts, T, costs)] if encoder else
                           [predict(costs, [alpha]) | {"name": f"Acceptance {alpha:g}"}
                            for alpha in ALPHAS])
    return found


# ---- in words

def verdict(case):
    """Return whether it pays, from the runs, or else from the prediction."""
    if "rows" not in case:
        K = max(case["predicted"], key=case["predicted"].get)
        pays = "should" if case["predicted"][K] > 1 else "should not"
        return f"it {pays} pay; best predicted: --K {K}, {case['predicted'][K]:.2f}x."
    if case["N"] < SHORT:
        return f"no verdict from runs of fewer than {SHORT} tokens (--N {case['N']})."
    name, row = max(case["rows"].items(), key=lambda item: item[1]["speedup"])
    pays = ("pays" if row["slowest"] > 1 else
            "does not pay" if row["fastest"] <= 1 else "is too close to call")
    predicted = f"predicted {row['predicted']:.2f}x" if row["predicted"] else "no prediction"
    return (f"it {pays}; best measured: {name}, {row['speedup']:.2f}x (median of "
            f"{case['repeats']}; {predicted}).")


def conditions(case):
    """Return what must hold for speculation to gain."""
    alpha, c = case["needed_acceptance"], case["allowed_c"]
    enough = ("At these costs no acceptance is enough" if alpha is None else
              f"To gain at these costs, you need acceptance above {alpha:.2f}")
    cheap = ("At this acceptance no draft is cheap enough" if c is None else
             "To gain at this acceptance, you need a draft step cheaper than "
             f"{c:.2f} target passes")
    return f"{enough} (yours: {case['acceptance']:.2f}). {cheap} (yours: {case['c']:.2f})."


def tell(found, args=None):
    """Yield the paragraphs and tables of all cases."""
    yield f"Target {found['target']}, draft {found['draft']}. {about(found)}\n"
    for name, costs in found["costs"].items():
        row, times = costs["passes"][0], [*costs["passes"], costs["draft"]]
        yield table([f"rows in one pass, {name}", *range(1, len(times)), "a draft step"],
                    [["ms", *(number(1e3 * time) for time in times)],
                     ["relative", *(number(time / row) for time in times)]])
    given = [case for case in found["cases"] if "rows" not in case]
    if given:
        yield table(["predicted", *(f"--K {K}" for K in given[0]["predicted"])],
                    [[case["name"], *map(number, case["predicted"].values())] for case in given])
    for case in found["cases"]:
        if "rows" in case:
            yield from tell_run(case, found["texts"])
        yield f"{case['name']}: {verdict(case)} {conditions(case)}\n"


def tell_run(case, texts):
    """Yield what was counted, predicted and run at one temperature."""
    tree = case["tree"]
    shape = (f"the best tree has {tree['guesses']} guesses in {tree['levels']} levels"
             if tree["guesses"] > tree["levels"] else "no tree is better than a chain")
    yield (f"{case['name']}, {texts}: of {case['tried']} guesses {case['acceptance']:.2f} were "
           f"accepted; by the formula {shape}.\n")
    yield table(["decoder", "predicted", "measured (slowest - fastest run)", "tokens/pass"],
                [[name, number(row["predicted"]), f"{number(row['speedup'])} "
                  f"({number(row['slowest'])} - {number(row['fastest'])})",
                  number(row["tokens_per_pass"])] for name, row in case["rows"].items()])


# ---- the command

def parse_args(argv=None):
    parser = command.new_parser("tools.will_it_pay", __doc__)
    add = parser.add_argument
    for role, bundled in (("target", "tales-large"), ("draft", "tales-small")):
        add(f"--{role}", metavar="MODEL", default=bundled, help="124M, 355M, .., a folder in "
            "models_dir, or the path of a Hugging Face folder (default: the bundled one)")
    add("--models_dir", type=Path, default=MODELS_DIR, metavar="DIR")
    add("--cut_vocab", action="store_true", help="as main.py's")
    add("--backend", choices=products.BACKENDS, default="numba", help="as main.py's")
    add("--random", action="store_true", help="random weights for released sizes, without a "
        f"download: predict for acceptances of {', '.join(map(str, ALPHAS))}")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    add("--prompts", type=Path, metavar="FILE",
        help="a prompt per line, or a JSON object, as main.py's (default: six openings)")
    add("--N", type=command.positive, default=LENGTH, help="new tokens per prompt")
    add("--repeats", type=command.positive, default=3, help="runs of every decoder")
    return parser.parse_args(argv)


def main(argv=None):
    return command.run("will_it_pay", parse_args(argv), measure, tell)


if __name__ == "__main__":
    sys.exit(main())
