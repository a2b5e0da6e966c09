"""Will speculation pay for your pair of models on your machine? Measured, predicted, and run.

    python -m tools.will_it_pay --target tales-large --draft tales-small
    python -m tools.will_it_pay --target 1558M --draft 124M --N 20 --repeats 1 --plot pays.svg
    python -m tools.will_it_pay --target 1558M --draft 124M --random --alpha 0.7  # no download

[1] What a draft step and 1 .. 16 rows in one pass cost: by the clock    benchmarks/passes.py
[2] How often guesses are kept: counted on the pair's own texts          variants/best_tree.py
[3] The best K, the best tree, and what must hold for any K to pay       theory/speedup.py
[4] A race of plain decoding against the best few                        benchmarks/race.py

[3] and the words are in tools/advice.py. A machine that does something else at the same time
measures that too: a repeat that differs from the others shows in the table.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

import gpt2
from lib.backend import fused, products
from lib.backend.arrays import gpu_errors_in_one_line, limit_blas_threads
from benchmarks.clock import interleaved, machine
from docs.pictures.figures import save
from benchmarks.passes import GUESSES, ROWS, guess_action, rows_actions
from benchmarks.race import ALPHAS, Result, chains, race
from benchmarks.prompts import OPENINGS
from lib.checkpoints.weights import random_params
from lib.demo.terminal import Parser, complain
from sampling import check_sampling, with_sampling
from speculative import generate
from theory.checks import need
from theory.hardware import GPT2_SIZES
from tools.advice import advise, best_few, costs_of, draw, predicted_case, sentence, speed, tell
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants import Models, build
from variants.auto import K_MAX, Costs
from variants.best_tree import HOPE, outcomes
from variants.tree import best_trees
from variants.shared.tree_gpt2 import TreeGPT2


# ---- the pair

def load(name, args):
    """(encoder, model); no encoder if the weights are random."""
    if args.random and name in GPT2_SIZES and not (args.models_dir / name).exists():
        params = random_params(GPT2_SIZES[name], np.random.default_rng(0))
        return None, TreeGPT2(params, GPT2_SIZES[name]["n_head"])
    encoder, hparams, params = load_encoder_hparams_and_params(
        name, args.models_dir, backend=args.backend, cut_vocab=args.cut_vocab)
    return encoder, TreeGPT2(params, hparams["n_head"])


def load_pair(args):
    """(encoder, draft, target); no encoder if any weights are random."""
    (other, draft), (encoder, target) = load(args.draft, args), load(args.target, args)
    known = other is not None and encoder is not None
    need(draft.n_vocab == target.n_vocab and not (known and other.vocab != encoder.vocab),
         "draft and target with one vocabulary",
         f"{args.draft} ({draft.n_vocab} tokens) and {args.target} ({target.n_vocab} tokens)")
    n_ctx = min(draft.n_ctx, target.n_ctx)
    need(n_ctx > max(ROWS), f"models of n_ctx > {max(ROWS)}", n_ctx)
    limit_blas_threads()
    products.choose(args.backend)
    if args.backend == "cupy":
        fused.install(gpt2)
    return encoder if known else None, draft, target


def read_texts(args, encoder, n_ctx):
    """The ids of every prompt, with room for N more."""
    lines = args.prompts.read_text(encoding="utf-8").splitlines() if args.prompts else OPENINGS
    texts = [encoder.encode(line) for line in lines if line.strip()]
    longest = max(map(len, texts), default=0)
    need(0 < longest <= n_ctx - args.N, f"prompts of 1 .. {n_ctx - args.N} tokens (n_ctx = "
         f"{n_ctx}, --N {args.N})", longest or "none")
    return texts


# ---- [1] costs

def measure(draft, target, temperature, repeats):
    """Milliseconds of a draft step, and of a target pass over each number of rows.

    The least of some repeats, by turns, as variants/auto.py has it: what else the machine does can
    only make a pass slower.
    """
    actions = rows_actions(sampled(target, temperature)) | {
        "steps": guess_action(sampled(draft, temperature))}
    ms = {name: 1e3 * min(seconds) for name, seconds in interleaved(actions, repeats).items()}
    return {"draft_ms": ms.pop("steps") / GUESSES, "rows_ms": ms}


def sampled(model, temperature):
    """The model's probabilities, with the sizes that benchmarks/passes.py asks for."""
    probabilities = with_sampling(model, temperature=temperature)
    probabilities.n_ctx, probabilities.n_vocab = model.n_ctx, model.n_vocab
    return probabilities


# ---- [2] acceptance

def count(models, texts, N, n_seeds, bar):
    """How often the b-th guess of a position was the one kept, and how many positions had one."""
    step = build("tree", models, {"widths": (len(HOPE), 1, 1, 1)})
    kept, tried = np.zeros((2, len(HOPE)))
    for i, ids in enumerate(texts):
        for seed in range(n_seeds):
            for round in generate(ids, step, N, np.random.default_rng([seed, i])):
                for n_guesses, rank in outcomes(round.guesses, round.ids):
                    tried[:n_guesses] += 1
                    if rank is not None:
                        kept[rank] += 1
        bar.update()
    return (kept / np.maximum(1, tried)).tolist(), int(tried[0])


# ---- [4] the race

def contestants(models, case, costs):
    """{name: (prediction, () -> step)}: 0 for plain decoding, else what main.py calls it."""
    # few: for up to K_MAX guesses, as the decoders that measure their costs themselves have them
    few, tree = Costs(costs.c, costs.pass_cost[: K_MAX + 1]), case["tree"]
    steps = chains(models.probabilities("draft"), models.probabilities("target"), best_few(case))
    named = {f"--K {K}" if K else 0: (case["predicted"].get(K), step) for K, step in steps.items()}
    named["--decoder stopping"] = None, lambda: build(  # no formula: it looks at every guess's row
        "stopping", models, {"costs": (few.c, *few.pass_cost)})
    if tree["guesses"] > tree["levels"]:
        named["--decoder tree --widths auto"] = (
            tree["predicted"], lambda: best_trees(models, "auto")(few))
    return named


def run(steps, models, texts, N, repeats, bar):
    """{name: Result} of plain decoding and others; every repeat draws other numbers."""
    results = {name: Result([0.0] * repeats, [], [], []) for name in steps}
    for repeat in range(repeats):
        for i, ids in enumerate(texts):
            for model in (models.draft, models.target):
                model(ids)  # plain decoding, which is first, must not pay for reading the prompt
            for name, result in race(steps, (), [(ids, [repeat, i])], N, 1).items():
                results[name].seconds[repeat] += result.seconds[0]
                results[name].rounds.extend(result.rounds)
            bar.update()
    return results


# ---- the cases

def run_case(args, models, texts, costs, bar):
    """One temperature: counted, predicted and run."""
    temperature = models.sampling["temperature"]
    acceptances, tried = count(models, texts, args.N, args.repeats if temperature else 1, bar)
    case = advise(costs, acceptances) | {
        "name": f"Temperature {temperature:g}", "tried": tried, "repeats": args.repeats}
    named = contestants(models, case, costs)
    results = run({name: step for name, (_, step) in named.items()}, models, texts, args.N,
                  args.repeats, bar)
    plain = results.pop(0)
    case["rows"] = {name: {"predicted": named[name][0]} | speed(result, plain)
                    for name, result in results.items()}
    return case


def answer(args):
    """All figures, as JSON has them."""
    encoder, draft, target = load_pair(args)
    alphas = args.alpha or ([] if encoder else ALPHAS)
    texts = [] if alphas else read_texts(args, encoder, min(draft.n_ctx, target.n_ctx))
    temperatures = [1.0] if alphas else args.temperature
    figures = {"target": args.target, "draft": args.draft} | machine() | {"costs": {}, "cases": []}
    total = len(temperatures) * (1 + len(texts) * (1 + args.repeats))
    with tqdm(total=total, unit="step", leave=False, disable=None) as bar:
        for T in temperatures:
            measured = measure(draft, target, T, args.passes)
            costs = costs_of(measured)
            figures["costs"][f"temperature {T:g}"] = measured
            bar.update()
            models = Models(draft, target, {"temperature": T})
            figures["cases"] += ([predicted_case(costs, alpha) for alpha in alphas] or
                                 [run_case(args, models, texts, costs, bar)])
    for case in figures["cases"]:
        case["sentence"] = sentence(case)
    return json.loads(json.dumps(figures))


# ---- the command

def parse_args(argv):
    parser = Parser("python -m tools.will_it_pay", description=__doc__.split("\n")[0])
    add = parser.add_argument
    for role in ("target", "draft"):
        add(f"--{role}", required=True, metavar="MODEL",
            help="124M, 355M, .., a folder in models_dir, or the path of one of Hugging Face's")
    add("--models_dir", type=Path, default=MODELS_DIR, metavar="DIR")
    add("--cut_vocab", action="store_true", help="as main.py's")
    add("--backend", choices=products.BACKENDS, default="numba", help="as main.py's")
    add("--random", action="store_true",
        help="random weights for a size that is not downloaded: times and predictions only")
    add("--alpha", type=float, nargs="+", help="predict for these acceptances, count none "
        f"(default with random weights: {', '.join(map(str, ALPHAS))})")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    add("--prompts", type=Path, metavar="FILE", help="a prompt a line (default: six openings)")
    add("--N", type=int, default=60, help="new tokens a prompt")
    add("--repeats", type=int, default=3, help="of the race, and of the count above "
        "temperature 0")
    add("--passes", type=int, default=21, help="passes a cost is the least of")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--plot", type=Path, metavar="FILE.svg",
        help="draw the speed-up against K there, and in FILE-dark.svg")
    args = parser.parse_args(argv)
    check_args(args)
    return args


def check_args(args):
    """Whatever can be refused before any model is loaded."""
    for name in ("N", "repeats", "passes"):
        need(getattr(args, name) >= 1, f"--{name} >= 1", getattr(args, name))
    for alpha in args.alpha or []:
        need(0 <= alpha <= 1, "0 <= --alpha <= 1", alpha)
    for temperature in args.temperature:
        check_sampling(temperature)
    need(not (args.random and args.backend == "cupy"), "--backend numba or numpy with --random",
         args.backend)
    if args.plot:
        need(args.plot.suffix == ".svg", "--plot to end in .svg", args.plot)
        need(importlib.util.find_spec("matplotlib"),
             "matplotlib for --plot (pip install -r requirements/plots.txt)", "none")


def main(argv=None):
    """Measure, write, tell. Returns the exit status."""
    try:
        args = parse_args(sys.argv[1:] if argv is None else argv)
        with gpu_errors_in_one_line():
            figures = answer(args)
        if args.json:
            args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        if args.plot:
            save(draw, 4, figures, args.plot)
        print("\n".join(tell(figures)))
    except (ValueError, OSError, MemoryError) as error:
        return complain("will_it_pay", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
