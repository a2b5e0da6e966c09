"""Everything that only a GPU can show, in one command and at most 8 minutes.

    python -m benchmarks.gpu --json gpu.json

Needs NumPy and CuPy >= 14, no network and none of the project's other packages. The bundled pair
has its own weights; 124M and 1558M get random ones, for time does not depend on what a weight is.

    texts       every decoder's text on the GPU and by NumPy, in float64: equal or not
    logits      the largest distance from NumPy's float64: on the GPU in either type, NumPy's own
    launches    kernels of one pass, with and without lib/backend/fused.py's; counted on tests'
                stand-in for CuPy, for a GPU does not tell
    passes      milliseconds between two CUDA events around a pass over 1 .. 32 rows
    speed       tokens per second of the pair, plain and by decoder: against K, and trees
    predicted   speed-up of the other sizes by Leviathan et al. (2023) Theorem 3.8, from the passes,
                with a draft of an eighth of the layers and the acceptance `alpha`

A part that fails, or for which no time is left, is named under `not_done`.
"""

import argparse
import json
import platform
import time
from functools import partial
from pathlib import Path

import numpy as np

import gpt2
from lib.backend import fused
from lib.backend.arrays import get_backend, in_one_line
from benchmarks.tables import table
from lib.checkpoints import huggingface
from lib.checkpoints.weights import cut_params, n_params
from gpt2 import GPT2
from speculative import complete, generate
from tests import fake_cupy
from theory.hardware import GPT2_SIZES
from theory.speedup import walltime_improvement
from variants import DECODERS, Models, build
from variants.registry import build_autoregressive
from variants.shared.tree_gpt2 import TreeGPT2

MODELS = Path(__file__).parent.parent / "models"
SECONDS = 8 * 60
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)
GUESSES = (1, 2, 3, 4, 5, 6, 8, 10, 12)
TREES = ((2, 1, 1), (3, 2, 1), (2, 2, 1, 1), (4, 2, 1, 1), (4, 2, 2, 1), (2, 2, 2, 1, 1))
ALPHAS = (0.6, 0.8)
PROMPT = [1104, 307, 702, 356, 541, 3581, 795, 426, 307, 1370, 289, 259, 1169, 11, 269,
          358]  # main.py's


# ---- models

def load(name, backend, dtype):
    """The tree of weights and n_head of a bundled model."""
    hparams = huggingface.read_hparams(MODELS / name)
    flat = huggingface.load_flat(MODELS / name, hparams, dtype)
    return cut_params(get_backend(backend).asarray(flat), hparams), hparams["n_head"]


def pair(backend, dtype, temperature=0.0):
    """The bundled pair as decoders want it."""
    draft, target = (TreeGPT2(*load(name, backend, dtype))
                     for name in ("tales-small", "tales-large"))
    return Models(draft, target, {"temperature": temperature}, MODELS / "tales-large")


def random_model(cupy, hparams):
    """A model of random weights, made on the GPU from a few of the host's."""
    n = n_params(hparams)
    some = np.random.default_rng(0).normal(0, 0.02, min(n, 2**20)).astype(np.float32)
    flat = cupy.tile(cupy.asarray(some), -(-n // some.size))[:n]
    return GPT2(cut_params(flat, hparams), hparams["n_head"])


def an_eighth(hparams):
    """The sizes of a draft: an eighth of the layers."""
    return hparams | {"n_layer": max(1, hparams["n_layer"] // 8)}


# ---- parts: a function of cupy and the settings, to a dict

def texts(cupy, args):
    """{decoder: [equal at temperature 0, at 1]}, None where it has no such temperature."""
    return {name: [None if T and DECODERS[name].greedy else same_text(name, T, args.tokens)
                   for T in (0.0, 1.0)] for name in DECODERS}


def same_text(name, temperature, N):
    written = []
    for backend in ("numpy", "cupy"):
        step = build(name, pair(backend, np.float64, temperature))
        written.append(complete(PROMPT, step, N, np.random.default_rng(0)))
    return written[0] == written[1]


def logits(cupy, args):
    """{who: largest distance from NumPy's float64}."""
    def rows(backend, dtype):
        model = pair(backend, dtype).target
        return np.concatenate([model(PROMPT, len(PROMPT)), model(PROMPT + [5], 1)])

    exact = rows("numpy", np.float64)
    return {f"{backend} {np.dtype(dtype)}": float(np.abs(rows(backend, dtype) - exact).max())
            for backend, dtype in (("cupy", np.float64), ("cupy", np.float32),
                                   ("numpy", np.float32))}


def launches(cupy, args):
    """{kernels: {size: of a pass over 5 rows}}, from stand-in models of one and two layers."""
    counts = {}
    try:
        with fake_cupy.installed() as stand_in:
            for name, prepare in (("formulas", fused.remove), ("kernels", fused.install)):
                if prepare(gpt2) not in (None, [*fused.FUSED]):  # no compiler here
                    continue
                one, two = (launches_of(stand_in, n_layer) for n_layer in (1, 2))
                counts[name] = {"a layer": two - one} | {
                    size: one + (two - one) * (hparams["n_layer"] - 1)
                    for size, hparams in sizes(args).items()}
    finally:
        fused.remove(gpt2)
    if args.kernels:
        fused.install(gpt2)
    return counts


def launches_of(stand_in, n_layer):
    model = random_model(stand_in, dict(n_vocab=9, n_ctx=9, n_embd=4, n_head=2, n_layer=n_layer))
    model([1, 2])
    with fake_cupy.counted() as counts:
        model([1, 2, 3, 4, 5, 6, 7], 5)
    return counts.launches


def passes(cupy, args):
    """{size: {"draft_ms": .., "rows_ms": {rows: [low, median, high]}}}; frees each at its end."""
    figures = {}
    for size, hparams in sizes(args).items():
        if size == "pair":
            draft, target = (GPT2(*load(name, "cupy", np.float32))
                             for name in ("tales-small", "tales-large"))
        else:
            draft, target = (random_model(cupy, h) for h in (an_eighth(hparams), hparams))
        figures[size] = {"draft_ms": pass_ms(cupy, draft, 1, args.repeats),
                         "rows_ms": {n: pass_ms(cupy, target, n, args.repeats) for n in ROWS
                                     if n + 8 <= target.n_ctx}}
        del draft, target
        cupy.get_default_memory_pool().free_all_blocks()
        args.need_time()
    return figures


def sizes(args):
    """{name: hparams}; the pair's is its target's."""
    large = huggingface.read_hparams(MODELS / "tales-large")
    return {"pair": large} | {size: args.known_sizes[size] for size in args.sizes}


def pass_ms(cupy, model, n_rows, repeats, n_past=64):
    """[low, median, high] milliseconds of a pass over n_rows new tokens, launches included."""
    rng, times = np.random.default_rng(0), []
    text = [1] * min(n_past, model.n_ctx - n_rows)
    for _ in range(repeats + 2):
        ids = text + rng.integers(0, model.n_vocab, n_rows).tolist()
        model(text)  # so that all n_rows are new
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        model(ids, n_rows)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return np.percentile(times[2:], [25, 50, 75]).tolist()


def speed(cupy, args):
    """{decoder: {"tokens_per_s": .., "speedup": ..}} of the pair, greedy, float32; by turns."""
    models, texts, seconds = pair("cupy", np.float32), {}, {}
    steps = {"plain": build_autoregressive}
    steps |= {f"K = {K}": partial(build, "speculative", given={"K": K}) for K in GUESSES}
    steps |= {f"tree {','.join(map(str, widths))}": partial(build, "tree", given={"widths": widths})
              for widths in TREES}
    for _ in range(args.runs + 1):  # the first warms up
        for name, new_step in steps.items():
            texts[name], time_taken = timed_text(new_step(models=unread(models)), args.tokens)
            seconds.setdefault(name, []).append(time_taken)
            args.need_time()
    taken = {name: float(np.median(times[1:])) for name, times in seconds.items()}
    return {name: {"tokens_per_s": args.tokens / taken[name],
                   "speedup": taken["plain"] / taken[name],
                   "plain_text": texts[name] == texts["plain"]} for name in steps}


def unread(models):
    """The same weights in models that have read nothing."""
    draft, target = (TreeGPT2(model.params, model.n_head) for model in models[:2])
    return models._replace(draft=draft, target=target)


def timed_text(step, N):
    """A greedy text, and the seconds that it took."""
    start = time.perf_counter()
    rounds = list(generate(PROMPT, step, N, np.random.default_rng(0)))
    return [token for round in rounds for token in round.ids], time.perf_counter() - start


def predicted(passes):
    """{size: {alpha: {K: speed-up}}} from the milliseconds of passes."""
    def speedup(ms, alpha, K):
        row, rows = ms["rows_ms"][1][1], ms["rows_ms"][K + 1][1]
        return walltime_improvement(alpha, K, c=ms["draft_ms"][1] / row, pass_cost=rows / row)

    return {size: {alpha: {K: speedup(ms, alpha, K) for K in GUESSES if K + 1 in ms["rows_ms"]}
                   for alpha in ALPHAS} for size, ms in passes.items() if size != "pair"}


PARTS = {"texts": texts, "logits": logits, "launches": launches, "passes": passes, "speed": speed}


# ---- all of it

def machine(cupy):
    runtime = cupy.cuda.runtime
    return {"gpu": runtime.getDeviceProperties(0)["name"].decode(), "cupy": cupy.__version__,
            "cuda": runtime.runtimeGetVersion(), "driver": runtime.driverGetVersion(),
            "numpy": np.__version__, "python": platform.python_version()}


def measure(args):
    """All figures; what failed or found no time is in not_done, and why."""
    deadline = time.perf_counter() + args.seconds

    def need_time():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"need more than {args.seconds} seconds")

    args.need_time, cupy = need_time, get_backend("cupy")
    args.kernels = fused.install(gpt2)
    figures = machine(cupy) | {"kernels": args.kernels, "not_done": {}}
    try:
        for name, part in PARTS.items():
            do(name, lambda part=part: need_time() or part(cupy, args), figures)
            save(args.json, figures)
    finally:
        fused.remove(gpt2)
    if "passes" in figures:
        figures["predicted"] = predicted(figures["passes"])
    save(args.json, figures)
    return figures


def do(name, part, figures):
    """Enter a part's figures, or why there are none: the other parts are worth having."""
    try:
        figures[name] = part()
    except Exception as error:
        figures["not_done"][name] = in_one_line(error)


def save(path, figures):
    """Write what there is so far."""
    if path:
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


# ---- tables

def tell(figures):
    """The paragraphs of all parts that there are."""
    yield " ".join(f"{key} {figures[key]}," for key in ("gpu", "cupy", "cuda", "numpy"))[:-1]
    yield f"kernels of lib/backend/fused.py: {', '.join(figures['kernels']) or 'none'}\n"
    for name, reason in figures["not_done"].items():
        yield f"not done: {name}: {reason}"
    words = {True: "equal", False: "differs", None: "-"}
    if "texts" in figures:
        yield table(["float64 text", "temperature 0", "1"],
                    [[name, *map(words.get, row)] for name, row in figures["texts"].items()])
    if "logits" in figures:
        yield table(["logits", "largest distance"],
                    [[name, f"{value:.1e}"] for name, value in figures["logits"].items()])
    if "launches" in figures:
        yield table(["launches of a pass", *next(iter(figures["launches"].values()))],
                    [[name, *map(str, row.values())]
                     for name, row in figures["launches"].items()])
    for size, ms in figures.get("passes", {}).items():
        yield table([f"{size}: rows", "ms", "quartiles", "relative"], pass_rows(ms))
    if "speed" in figures:
        yield table(["pair", "tokens per second", "speed-up", "plain decoding's text"],
                    [[name, f"{row['tokens_per_s']:.0f}", f"{row['speedup']:.2f}",
                      words[row["plain_text"]]] for name, row in figures["speed"].items()])
        yield best_of(figures["speed"])
    for size, by_alpha in figures.get("predicted", {}).items():
        yield table([f"{size}: predicted at alpha", *(f"K = {K}" for K in by_alpha[ALPHAS[0]])],
                    [[str(alpha), *(f"{value:.2f}" for value in row.values())]
                     for alpha, row in by_alpha.items()])


def pass_rows(ms):
    """The rows of a table of passes, and a draft step in the last."""
    first = ms["rows_ms"][1][1]
    for name, (low, median, high) in [*ms["rows_ms"].items(), ("draft step", ms["draft_ms"])]:
        yield [str(name), f"{median:.3f}", f"{low:.3f} - {high:.3f}", f"{median / first:.2f}"]


def best_of(speed):
    """The best K and the best tree in a sentence."""
    chains, trees = ({name: row["speedup"] for name, row in speed.items() if name.startswith(kind)}
                     for kind in ("K", "tree"))
    return " ".join(f"Best: {max(some, key=some.get)}, {max(some.values()):.2f}."
                    for some in (chains, trees))


def parse_args(argv):
    parser = argparse.ArgumentParser("python -m benchmarks.gpu",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="write the figures there, part by part")
    add("--sizes", nargs="*", choices=GPT2_SIZES, default=["124M", "1558M"],
        help="sizes for passes, beside the pair")
    add("--tokens", type=int, default=64, help="new tokens a text")
    add("--repeats", type=int, default=21, help="passes a figure")
    add("--runs", type=int, default=3, help="runs of every text")
    add("--seconds", type=float, default=SECONDS - 30, help="no part begins later")
    parser.set_defaults(known_sizes=GPT2_SIZES)
    return parser.parse_args(argv)


def main(argv=None):
    print("\n".join(tell(measure(parse_args(argv)))))


if __name__ == "__main__":
    main()
