"""What a pass costs on this machine, and when speculation pays.

    python -m benchmarks.speed --size pair
    python -m benchmarks.speed --size 124M --peers --json speed-124M.json

Sizes are the bundled pair or GPT-2's released ones; the latter get random weights of the true shape,
for time does not depend on what a weight is. Everything is interleaved in one process, repeated, and
reported as medians, for machines are noisy.

    rows        new ids in one pass; a target pass of a round with K guesses has K + 1
    floor       the bytes of the weights / the memory bandwidth measured just before
    simulated   real passes of both models, with their rows replaced by two fixed laws that share
                the mass alpha, so that every guess is accepted with chance alpha
"""

import argparse
import json
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

import benchmarks.peers as peers
from gpt2 import GPT2
from sampling import warped
from speculative import autoregressive_step, generate, speculative_step
from theory import GPT2_SIZES, pass_bytes, walltime_improvement
from utils import MODELS_DIR, limit_blas_threads, load_encoder_hparams_and_params, random_params

ROWS = (1, 2, 3, 4, 5, 6, 8, 16)
ALPHAS = (0.6, 0.7, 0.8, 0.9)
CONTEXTS = (64, 512, 1000)
OPENINGS = ["Once upon a time there was a", "The king had three daughters, and", "In the deep forest",
            "One morning the fox said to the", "There was once an old woman who", "\"Dear me!\" said the"]


def bandwidth(n_bytes=2**30):
    """Bytes a second that the cores together can read: the best of some products with a vector.

    BLAS's matrix-vector product reads faster than a sum, and is what a pass consists of.
    """
    matrix, cores = np.ones((n_bytes // 4096, 1024), np.float32), os.cpu_count()
    vector = np.ones(1024, np.float32)

    def seconds(pool):
        start = time.perf_counter()
        list(pool.map(vector.dot, [part.T for part in np.array_split(matrix, cores)]))
        return time.perf_counter() - start

    with ThreadPoolExecutor(cores) as pool:
        return n_bytes / min(seconds(pool) for _ in range(5))


def medians(actions, repeats):
    """{name: median seconds} of some functions, interleaved, after one call of each."""
    times = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds[1:])) for name, seconds in times.items()}


def rows_table(model, repeats, context=64):
    """{rows: seconds} of a pass that finds `context` ids read."""
    def read(n):  # the ids differ from what is remembered, so all n are computed
        return model(prompt + rng.integers(0, model.n_vocab, n).tolist(), n)

    rng = np.random.default_rng(0)
    prompt = [1] * min(context, model.n_ctx - max(ROWS))
    return medians({n: partial(read, n) for n in ROWS}, repeats)


def context_table(model, repeats):
    """{ids in the context: seconds} of one token."""
    contexts = [n for n in CONTEXTS if n < model.n_ctx]
    texts = {n: [1] * n for n in contexts}
    times = {}
    for n in contexts:
        model(texts[n])
        times |= medians({n: lambda: model(texts[n] + [2])}, repeats)
    return times


def simulated(model, row):
    """The model's passes, but every row of its answer is `row`."""
    return lambda ids, n_last=1: (model(ids, n_last), np.broadcast_to(row, (n_last, len(row))))[1]


def two_laws(n_vocab, alpha):
    """Rows of target and draft that share the mass alpha."""
    p_target, p_draft = np.zeros(n_vocab), np.zeros(n_vocab)
    p_target[0], p_draft[:2] = 1.0, [alpha, 1 - alpha]
    return p_target, p_draft


def run(step, x, N):
    """N tokens from the ids x; the rounds."""
    return list(generate(x, step, N, np.random.default_rng(0)))


def simulated_table(draft, target, Ks, N, repeats):
    """{alpha: {K: speed-up over plain decoding}}, by the clock."""
    x, table = [1] * 32, {}
    for alpha in ALPHAS:
        p_target, p_draft = two_laws(target.n_vocab, alpha)
        plain = partial(autoregressive_step, model=simulated(target, p_target))
        steps = {0: plain} | {K: partial(speculative_step, draft=simulated(draft, p_draft),
                                         target=simulated(target, p_target), K=K) for K in Ks}
        times = medians({K: partial(run, step, x, N) for K, step in steps.items()}, repeats)
        table[alpha] = {K: times[0] / times[K] for K in Ks}
    return table


def predicted_table(rows, t_draft, Ks):
    """The same by formula: Leviathan et al. (2023) Theorem 3.8 with the measured cost of K + 1 rows."""
    cost = lambda K: np.interp(K + 1, list(rows), list(rows.values())) / rows[1]
    return {alpha: {K: float(walltime_improvement(alpha, K, t_draft / rows[1], cost(K))) for K in Ks}
            for alpha in ALPHAS}


def own_table(draft, target, Ks, encoder, N, repeats, temperature):
    """{K: (speed-up, acceptance, tokens a pass)} of a trained pair on its own text."""
    knobs = dict(temperature=temperature)
    plain = partial(autoregressive_step, model=warped(target, **knobs))
    steps = {0: plain} | {K: partial(speculative_step, draft=warped(draft, **knobs),
                                     target=warped(target, **knobs), K=K) for K in Ks}
    totals = {K: [] for K in steps}
    for opening in OPENINGS:
        x = encoder.encode(opening)
        times = medians({K: partial(run, step, x, N) for K, step in steps.items()}, repeats)
        for K, step in steps.items():
            rounds = run(step, x, N)
            totals[K].append((times[K], len(rounds), sum(r.n_kept for r in rounds),
                              sum(r.n_examined for r in rounds), sum(len(r.ids) for r in rounds)))
    sums = {K: np.sum(parts, axis=0) for K, parts in totals.items()}
    return {K: {"speedup": sums[0][0] / sums[K][0], "acceptance": sums[K][2] / sums[K][3],
                "tokens_per_pass": sums[K][4] / sums[K][1]} for K in Ks}


def load(size):
    """(encoder or None, draft, target), the target's sizes and weights."""
    if size == "pair":
        _, h, p = load_encoder_hparams_and_params("tales-small", MODELS_DIR)
        encoder, hparams, params = load_encoder_hparams_and_params("tales-large", MODELS_DIR)
        draft = GPT2(p, h["n_head"])
    else:  # a draft of the same width with an eighth of the layers
        encoder, hparams = None, GPT2_SIZES[size]
        small = hparams | {"n_layer": max(1, hparams["n_layer"] // 8)}
        draft = GPT2(random_params(small, np.random.default_rng(1)), small["n_head"])
        params = random_params(hparams, np.random.default_rng(0))
    limit_blas_threads(params)
    return encoder, draft, GPT2(params, hparams["n_head"]), hparams


def measure(args):
    """All figures as one dict."""
    encoder, draft, target, hparams = load(args.size)
    read = bandwidth()
    rows, Ks = rows_table(target, args.repeats), range(1, 9)
    t_draft = rows_table(draft, args.repeats)[1]
    figures = {
        "size": args.size, "hparams": hparams, "numpy": np.__version__, "cores": os.cpu_count(),
        "python": platform.python_version(), "machine": platform.machine(),
        "bandwidth_GB_per_s": read / 1e9,
        "floor_ms": 1e3 * pass_bytes(hparams, n_bytes=4) / read,
        "rows_ms": {n: 1e3 * seconds for n, seconds in rows.items()},
        "draft_ms": 1e3 * t_draft,
        "context_ms": {n: 1e3 * s for n, s in context_table(target, args.repeats).items()},
        "simulated": simulated_table(draft, target, Ks, args.tokens, args.runs),
        "predicted": predicted_table(rows, t_draft, Ks),
    }
    if encoder:
        figures["own"] = {T: own_table(draft, target, Ks, encoder, args.tokens, args.runs, T) for T in (0, 1)}
    if args.peers:
        figures["peers"] = peers.measure(draft, target, hparams, args.tokens, args.runs, medians)
    return figures


def print_figures(figures):
    """The figures as Markdown tables."""
    one = figures["rows_ms"][1]
    print(f"{figures['size']}: {figures['cores']} cores, NumPy {figures['numpy']}, "
          f"{figures['bandwidth_GB_per_s']:.1f} GB/s, floor {figures['floor_ms']:.2f} ms a token\n")
    print("| rows | ms | of one row |\n|---|---|---|")
    for n, ms in figures["rows_ms"].items():
        print(f"| {n} | {ms:.2f} | {ms / one:.2f} |")
    print(f"\nOne row is {one / figures['floor_ms']:.2f} of the floor. A draft step takes "
          f"{figures['draft_ms']:.2f} ms.\n")
    print("| context | ms a token |\n|---|---|")
    for n, ms in figures["context_ms"].items():
        print(f"| {n} | {ms:.2f} |")
    print("\n| speed-up at alpha | " + " | ".join(f"K = {K}" for K in range(1, 9)) + " |")
    print("|---" * 9 + "|")
    for alpha, row in figures["simulated"].items():
        print(f"| {alpha} measured | " + " | ".join(f"{v:.2f}" for v in row.values()) + " |")
        print(f"| {alpha} predicted | "
              + " | ".join(f"{v:.2f}" for v in figures["predicted"][alpha].values()) + " |")
    for temperature, table in figures.get("own", {}).items():
        for key in ("speedup", "acceptance", "tokens_per_pass"):
            print(f"| {key}, temperature {temperature} | "
                  + " | ".join(f"{row[key]:.2f}" for row in table.values()) + " |")
    for name, value in figures.get("peers", {}).items():
        print(f"\n{name}: {value:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=["pair", *GPT2_SIZES], default="pair")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a run")
    parser.add_argument("--runs", type=int, default=3, help="runs a figure, of which the median counts")
    parser.add_argument("--repeats", type=int, default=21, help="passes a figure")
    parser.add_argument("--peers", action="store_true", help="transformers too (requirements-peers.txt)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    args = parser.parse_args()
    figures = measure(args)
    print_figures(figures)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
