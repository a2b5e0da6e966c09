r"""Measure the target's int8 copy as its draft: what rounding costs, saves and gains.

    python -m benchmarks.quantized --json benchmarks/results/quantized-pair.json
    python -m benchmarks.quantized --size 124M --temperature 0 1 --N 64 \
        --json benchmarks/results/quantized-124M.json                      # eight minutes or more
    python -m benchmarks.quantized --size 124M --N 64 --only races --temperature 1 --alpha 0.98 \
        --busy 1                                                           # beside a busy process
    python -m benchmarks.quantized --size 1558M --N 16 --repeats 1 --temperature 1 --alpha 0.98

    rounding   1 - TV of the target and its copies, on texts that it writes (the pair only)
    passes     milliseconds of 1 .. 8 rows: all matrix products of a pass, and whole passes
    races      plain decoding, K = 1 .. 8, auto and staged, in turns: the pair on its own text;
               a released size with random weights and a set probability alpha of acceptance

    staged K, k   K guesses of the copy per round, guessed k at a time by a small draft
"""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np

from benchmarks import command
from benchmarks.clock import machine, milliseconds, rows_actions
from benchmarks.command import gain, number, ranged
from benchmarks.models import OPENINGS, SIZES, load_models, named
from benchmarks.race import race, race_figures, simulated
from demo.costs import measure_costs
from gpt2 import GPT2
from lib.backend.products import matmul
from lib.checkpoints.weights import flatten
from lib.markdown import markdown_table
from sampling import with_sampling
from speculative import autoregressive_sampling, draft_and_verify, make_step
from theory.speedup import acceptance_rate
from variants.quantized import build, int8_copy, with_matrices
from variants.staged import staged_guess

ROWS = range(1, 9)
KS = range(1, 9)
STAGED = ((6, 2), (8, 2), (12, 3))
SMALL = 0.6  # the set probability that the copy accepts a small draft's guess: the pair's
ROUNDINGS = [(bits, size) for bits in (8, 6, 4) for size in (None, 32)]  # weights per scale


# ---- what rounding costs

def rounding(args, encoder, draft, copy, target):
    """Return {draft: (mean 1 - TV, share of positions with the same best token)}."""
    drafts = {"the int8 copy": copy, "tales-small": draft}
    for bits, size in ROUNDINGS:
        params = with_matrices(target.params, partial(rounded, bits=bits, size=size))
        drafts[f"{bits} bits, a scale per {size or 'output'}"] = GPT2(params, target.n_head)
    found = {name: [] for name in drafts}
    for i, opening in enumerate(OPENINGS):
        ids = encoder.encode(opening)
        rng = np.random.default_rng(i)
        text = autoregressive_sampling(ids, with_sampling(target), args.N, rng)
        n_last = args.N + 1
        p_target = with_sampling(target)(text, n_last)
        for name, model in drafts.items():
            p_draft = with_sampling(model)(text, n_last)
            same = p_target.argmax(axis=-1) == p_draft.argmax(axis=-1)
            found[name] += zip(acceptance_rate(p_target, p_draft), same)
    return {name: np.mean(both, axis=0).tolist() for name, both in found.items()}


def rounded(w, bits, size):  # [n_out, n_in] -> as w
    """Return weights rounded to whole multiples of a scale that `size` of them share."""
    parts = w.reshape(len(w), -1, size or w.shape[1])
    scale = abs(parts).max(axis=-1, keepdims=True) / (2 ** (bits - 1) - 1)
    return (np.rint(parts / scale) * scale).reshape(w.shape)


# ---- what it saves

def passes(args, encoder, draft, copy, target):
    actions = {}
    for name, model in (("float32", target), ("int8", copy)):
        for n, action in rows_actions(model, ROWS).items():
            actions[name, n] = action
            actions[f"{name} products", n] = partial(multiply, matrices(model), n)
    times = milliseconds(actions, args.repeats)
    return {name: [times[name, n] for n in ROWS]
            for name in ("float32 products", "int8 products", "float32", "int8")}


def matrices(model):
    """Return the matrices of a model, each as the right side of a product."""
    weights = [w for name, w in flatten(model.params) if name.endswith("/w")]
    return [*weights, model.params["wte"].mT]


def multiply(weights, n_rows):
    """Multiply n_rows rows by each of the matrices."""
    for w in weights:
        matmul(np.ones((n_rows, w.mT.shape[1]), np.float32), w)


# ---- what it gains

def races(args, encoder, draft, copy, target):
    """Return {setting: {decoder: figures}}."""
    texts = ([encoder.encode(opening) for opening in OPENINGS] if encoder else
             [[i] * 16 for i in range(3)])
    small = int8_copy(draft)
    found = {"texts": named(len(texts), args.N), "settings": {}}
    for T in args.temperature:
        both = (with_sampling(model, temperature=T) for model in (copy, target))
        costs = measure_costs(*both, texts[0])
        for alpha in [None] if encoder else args.alpha:
            rows = partial(rows_of, temperature=T, alpha=alpha)
            name = f"temperature {T:g}" + (f", alpha {alpha:g}" if alpha else "")
            builders = {"plain": chain(rows, 0)} | {f"K = {K}": chain(rows, K) for K in KS}
            builders["K = auto"] = chain(rows, "auto", costs)
            builders |= {f"staged {K}, {k}": staged(rows, small, K, k) for K, k in STAGED}
            results = race(copy, target, builders, texts, args.N, args.repeats)
            fixed = {f"K = {K}": K for K in KS}
            found["settings"][f"{name}, c = {costs.c:.2f}"] = {
                decoder: race_figures(result, results["plain"], fixed.get(decoder, 0))
                for decoder, result in results.items()}
    return found


def rows_of(model, role, temperature, alpha):
    """Return a model of probabilities; with `alpha` at full cost, but with set decisions."""
    model = with_sampling(model, temperature=temperature)
    if alpha is None:
        return model
    return simulated(model, {"small": SMALL, "copy": alpha, "target": 1}[role])


def chain(rows, K, costs=None):
    """Return the builder of --decoder quantized --K K; of plain decoding if K is 0."""
    def build_step(copy, target):
        models = SimpleNamespace(draft=copy, target=target, draft_rows=rows(copy, "copy"),
                                 target_rows=rows(target, "target"), costs=costs)
        return build(models, K)

    return build_step


def staged(rows, small, K, k):
    """Return the builder of the scheme of two levels: small under copy under target."""
    def build_step(copy, target):
        draft = GPT2(small.params, small.n_head)
        inner = draft_and_verify(rows(draft, "small"), rows(copy, "copy"), k)
        return make_step(rows(target, "target"), K, partial(staged_guess, inner=inner))

    return build_step


# ---- all parts

PARTS = {"rounding": rounding, "passes": passes, "races": races}


def all_figures(args):
    """Return the figures of the parts wanted; `rounding` is of the pair only."""
    encoder, draft, target = load_models(args.size)
    models = draft, int8_copy(target), target
    spin = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(spin) for _ in range(args.busy)]
    try:
        return machine() | {"size": args.size, "busy": args.busy} | {
            part: PARTS[part](args, encoder, *models) for part in args.only
            if part != "rounding" or encoder}
    finally:
        for process in busy:
            process.kill()
            process.wait()


def paragraphs(figures, args):
    """Yield the paragraphs and tables of a file."""
    beside = f", beside {figures['busy']} busy process(es)" if figures["busy"] else ""
    yield f"{figures['size']}{beside}. {figures['measured']}"
    for part in args.only:
        if part in figures:
            yield from TABLES[part](figures[part])


def rounding_table(part):
    """Yield the table of `rounding`."""
    yield markdown_table(["draft", "mean 1 - TV", "same best token"],
                         [[name, *(number(share, "{:.3f}") for share in both)]
                          for name, both in part.items()])


def pass_tables(part):
    """Yield the tables of `passes`: of the products alone, and of whole passes."""
    for products in (" products", ""):
        ours, theirs = (part[name + products] for name in ("int8", "float32"))
        row = theirs[0]["median"]
        yield markdown_table(
            [f"rows, {products.strip() or 'whole passes'}", "float32: ms (quartiles)", "relative",
             "int8: ms (quartiles)", "relative to float32's row"],
            [[n, ranged(b), number(b["median"] / row), ranged(a), number(a["median"] / row)]
             for n, a, b in zip(ROWS, ours, theirs)])


def race_tables(part):
    """Yield a table per setting of `races`."""
    for setting, rows in part["settings"].items():
        yield markdown_table(
            [f"{setting}, {part['texts']}", "tokens per second (quartiles)",
             "speed-up (slowest - fastest)", "predicted", "acceptance", "tokens per pass"],
            [[name, ranged(row["tokens_per_s"], "{:.0f}"),
              gain(row), number(row.get("predicted")), number(row["acceptance"]),
              number(row["tokens_per_pass"])] for name, row in rows.items()])


TABLES = {"rounding": rounding_table, "passes": pass_tables, "races": race_tables}


def main(argv=None):
    parser = command.new_parser("benchmarks.quantized", __doc__, repeats=3)
    add = parser.add_argument
    add("--size", choices=SIZES, default="pair")
    add("--only", nargs="+", choices=PARTS, default=[*PARTS])
    add("--temperature", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    add("--alpha", type=float, nargs="+", default=[0.98, 0.96, 0.93])
    add("--busy", type=int, default=0, metavar="N", help="keep N processes busy meanwhile")
    return command.run("quantized", parser.parse_args(argv), all_figures, paragraphs)


if __name__ == "__main__":
    sys.exit(main())
