r"""Measure the target's int8 copy as its draft: what rounding costs, saves and gains.

    python -m benchmarks quantized --json benchmarks/results/quantized-pair.json
    python -m benchmarks quantized --size 124M --temperature 0 1 --N 64 \
        --json benchmarks/results/quantized-124M.json               # eight minutes or more
    python -m benchmarks quantized --size 1558M --N 16 --repeats 1 --temperature 1 --alpha 0.98

    rounding   1 - TV of the target and its rounded copies, on the target's texts (pair only)
    products   milliseconds of all matrix products of a pass, with 1 .. 8 rows
    races      plain decoding and K = 1 .. 8 in turns: the pair on its own text, also with auto,
               a released size with random weights and a set probability alpha of acceptance
"""

from functools import partial

import numpy as np

from gpt2 import GPT2
from lib.backend.products import matmul
from lib.checkpoints.weights import flatten
from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import machine, milliseconds
from measure.command import gain, ranged
from measure.models import OPENINGS, SIZES, load_benchmark_pair, named, size_in_words
from measure.race import builder, costs_at, race, race_figures, simulated
from sampling import with_sampling
from speculative import autoregressive_sampling, draft_and_verify
from theory.speedup import acceptance_rate
from variants.quantized import int8_copy, with_matrices

ROWS = range(1, 9)
KS = range(1, 9)
# size: weights that share a scale; None: all weights of an output
ROUNDINGS = [(bits, size) for bits in (8, 6, 4) for size in (None, 32)]


# ---- what rounding costs

def rounding_figures(args, encoder, draft, copy, target):
    """Return {draft: (mean 1 - TV, share of positions with the same most probable token)}."""
    drafts = {"the int8 copy": copy, "tales-small": draft}
    for bits, size in ROUNDINGS:
        params = with_matrices(target.params, partial(rounded_parts, bits=bits, size=size))
        drafts[f"{bits} bits, a scale per {size or 'output'}"] = GPT2(params, target.n_head)
    # {draft: a pair (1 - TV, whether the most probable tokens are equal) for each position}
    pairs_of = {name: [] for name in drafts}
    for i, opening in enumerate(OPENINGS):
        ids = encoder.encode(opening)
        rng = np.random.default_rng(i)
        text = autoregressive_sampling(ids, with_sampling(target), args.N, rng)
        # One row after the prompt, and one after each of the N new tokens.
        n_last = args.N + 1
        p_target = with_sampling(target)(text, n_last)
        for name, model in drafts.items():
            p_draft = with_sampling(model)(text, n_last)
            overlaps = acceptance_rate(p_target, p_draft)  # 1 - TV
            same = p_target.argmax(axis=-1) == p_draft.argmax(axis=-1)
            pairs_of[name].extend(zip(overlaps, same))
    return {name: np.mean(pairs, axis=0).tolist() for name, pairs in pairs_of.items()}


def rounded_parts(w, bits, size):  # [n_out, n_in] -> as w
    """Return weights rounded to multiples of a scale, as w.

    `size` weights of an output share a scale; with None, all weights of an output do.
    """
    n_out, n_in = w.shape
    parts = w.reshape(n_out, -1, size or n_in)  # [n_out, n_parts, size]
    largest = 2 ** (bits - 1) - 1  # 127 for 8 bits
    # The largest weight of a part becomes the integer `largest`.
    scale = abs(parts).max(axis=-1, keepdims=True) / largest
    integers = np.rint(parts / scale)
    return (integers * scale).reshape(w.shape)


# ---- what it saves

def products(args, encoder, draft, copy, target):
    """Return milliseconds of the matrix products of a pass, for each number of ROWS."""
    # {(what is timed, number of rows): function}; all functions take turns.
    actions = {(name, n): partial(multiply_rows, matrices(model), n)
               for name, model in (("float32", target), ("int8", copy)) for n in ROWS}
    times = milliseconds(actions, args.repeats)
    return {name: [times[name, n] for n in ROWS] for name in ("float32", "int8")}


def matrices(model):
    """Return the matrices of a model, each [n_in, n_out], as `matmul` takes them."""
    weights = [w for name, w in flatten(model.params) if name.endswith("/w")]
    # wte is [n_vocab, n_embd]; the last product of a pass takes it transposed.
    return [*weights, model.params["wte"].mT]


def multiply_rows(weights, n_rows):
    """Multiply n_rows rows by each of the matrices."""
    for w in weights:
        # An int8 matrix w, which is a view, has no shape. The array behind it, w.mT, has one:
        # [n_out, n_in].
        n_in = w.mT.shape[1]
        matmul(np.ones((n_rows, n_in), np.float32), w)


# ---- what it gains

def races(args, encoder, draft, copy, target):
    """Return {setting: {decoder: figures}}."""
    if encoder:
        texts = [encoder.encode(opening) for opening in OPENINGS]
    else:
        # The first token is the text's number, on which simulated acceptance depends.
        texts = [[i] * 16 for i in range(3)]
    settings = {}
    # The pair has its own acceptance, which None stands for. Random weights get those of
    # --alpha.
    alphas = [None] if encoder else args.alpha
    for T in args.temperature:
        costs = costs_at(T, copy, target, texts[0])
        for alpha in alphas:
            setting = f"temperature {T:g}"
            if alpha is None:
                builders = {"plain": builder(None, {}, T)}
                for K in (*KS, "auto"):
                    builders[f"K = {K}"] = builder("quantized", {"K": K}, T, costs=costs)
            else:
                setting += f", alpha {alpha:g}"
                round_of = partial(simulated_round, temperature=T, alpha=alpha)
                builders = {f"K = {K}" if K else "plain": partial(round_of, K=K)
                            for K in (0, *KS)}
            results = race(copy, target, builders, texts, args.N, args.repeats)
            # The formula predicts chains of K guesses; K = 0 asks for no prediction.
            Ks = {f"K = {K}": K for K in KS}
            settings[f"{setting}, c = {costs.c:.2f}"] = {
                name: race_figures(result, results["plain"], K=Ks.get(name, 0))
                for name, result in results.items()}
    return {"texts": named(len(texts), args.N), "settings": settings}


def simulated_round(copy, target, K, temperature, alpha):
    """Return the step of K guesses by the copy, each accepted with probability alpha."""
    copy_rows = with_sampling(copy, temperature=temperature)
    target_rows = with_sampling(target, temperature=temperature)
    return draft_and_verify(simulated(copy_rows, alpha), simulated(target_rows, 1), K)


# ---- tables

def rounding_table(part):
    """Yield the table of `rounding`."""
    yield markdown_table(["draft", "mean 1 - TV", "same best token"],
                         [[name, shown(overlap, "{:.3f}"), shown(same, "{:.3f}")]
                          for name, (overlap, same) in part.items()])


def products_table(part):
    """Yield the table of `products`."""
    one_row = part["float32"][0]["median"]  # the unit of both relative columns
    rows = []
    for n, float32, int8 in zip(ROWS, part["float32"], part["int8"]):
        rows.append([n, ranged(float32), shown(float32["median"] / one_row),
                     ranged(int8), shown(int8["median"] / one_row)])
    yield markdown_table(["rows, products", "float32: ms (quartiles)", "relative",
                          "int8: ms (quartiles)", "relative to float32's row"], rows)


def race_tables(part):
    """Yield a table per setting of `races`."""
    for setting, rows in part["settings"].items():
        yield markdown_table(
            [f"{setting}, {part['texts']}", "tokens per second (quartiles)",
             "speed-up (slowest - fastest)", "predicted", "acceptance", "tokens per pass"],
            [[name, ranged(row["tokens_per_s"], "{:.0f}"), gain(row),
              shown(row.get("predicted")), shown(row["acceptance"]),
              shown(row["tokens_per_pass"])] for name, row in rows.items()])


# ---- all parts

PARTS = {"rounding": (rounding_figures, rounding_table), "products": (products, products_table),
         "races": (races, race_tables)}


def all_figures(args):
    """Return the figures of the parts wanted; `rounding` is of the pair only."""
    encoder, draft, target = load_benchmark_pair(args.size)
    models = (draft, int8_copy(target), target)
    figures = machine() | {"size": args.size}
    for part in args.only:
        # Rounding is measured on texts, and only the pair writes texts.
        if part == "rounding" and not encoder:
            continue
        measure, _ = PARTS[part]
        figures[part] = measure(args, encoder, *models)
    return figures


def paragraphs(figures, args):
    """Yield the paragraphs and tables of a file."""
    yield f"{size_in_words(figures['size'])}. {figures['measured']}"
    for part in args.only:
        if part in figures:  # the part was measured
            _, tables = PARTS[part]
            yield from tables(figures[part])


def read_probability(text):
    """Read a number above 0 and up to 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(f"need a probability above 0 and up to 1, got {text}")
    return value


def add_flags(parser):
    """Add the flags of this table."""
    add = parser.add_argument
    add("--size", choices=SIZES, default="pair", help="size of the models, or the bundled pair")
    add("--only", nargs="+", choices=PARTS, default=[*PARTS],
        help="parts to measure or to show (default: all)")
    add("--temperature", type=float, nargs="+", default=[0.0, 0.7, 1.0],
        help="temperatures of the races (default: 0 0.7 1)")
    add("--alpha", type=read_probability, nargs="+", default=[0.98, 0.96, 0.93],
        help="acceptance rates of the races with random weights (default: 0.98 0.96 0.93)")


BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=3, add_flags=add_flags)
