"""Measure what only a GPU can show: equal texts, milliseconds of passes, tokens per second.

    python -m benchmarks.gpu --json gpu.json

    texts     every decoder's text by CuPy and by NumPy, in float64: equal or not
    passes    milliseconds of a pass over 1 .. 32 rows of the pair's target
    speed     tokens per second of the bundled pair, plain and speculative, against K
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.clock import interleaved, machine, medians, spread
from benchmarks.command import ranged, table
from lib.backend.arrays import get_backend
from speculative import complete
from utils import MODELS_DIR, load_pair
from variants import DECODERS, Models, build, build_plain
from variants.shared.tree_gpt2 import TreeGPT2

PROMPT = "There was once an old fisherman who"
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)
GUESSES = (1, 2, 3, 4, 5, 6, 8, 10, 12)


def load(backend, dtype, temperature=0.0, pair=("tales-small", "tales-large")):
    """Return (x, Models) of the bundled pair."""
    encoder, *pair_models = load_pair(*pair, dtype=dtype, backend=backend)
    draft, target = (TreeGPT2(model.params, model.n_head) for model in pair_models)
    return encoder.encode(PROMPT), Models(draft, target, {"temperature": temperature},
                                          MODELS_DIR / pair[1])


def same_text(name, temperature, N):
    """Return whether a decoder writes the same text by NumPy and by CuPy."""
    texts = []
    for backend in ("numpy", "cupy"):
        x, models = load(backend, np.float64, temperature)
        texts.append(complete(x, build(name, models), N, np.random.default_rng(0)))
    return texts[0] == texts[1]


def passes(target, repeats, n_past=64):
    """Return {rows: median and quartiles of milliseconds}; logits on the host end a pass."""
    rng, text = np.random.default_rng(0), [1] * n_past

    def read(n_rows):
        target(text + rng.integers(0, target.n_vocab, n_rows).tolist(), n_rows)

    times = interleaved({n: partial(read, n) for n in ROWS}, repeats)
    return {n: spread(1e3 * np.array(seconds)) for n, seconds in times.items()}


def speed(x, models, N, repeats):
    """Return {decoder: tokens per second}, greedy; every text starts with empty caches."""
    def write(new_step):
        draft, target = (TreeGPT2(model.params, model.n_head) for model in models[:2])
        complete(x, new_step(models._replace(draft=draft, target=target)), N,
                 np.random.default_rng(0))

    steps = {"plain": partial(build_plain, "speculative")}
    steps |= {f"K = {K}": partial(build, "speculative", given={"K": K}) for K in GUESSES}
    seconds = medians({name: partial(write, step) for name, step in steps.items()}, repeats)
    return {name: N / taken for name, taken in seconds.items()}


def measure(args):
    """Return all figures."""
    device = get_backend("cupy").cuda.runtime.getDeviceProperties(0)["name"].decode()
    texts = {name: same_text(name, 0.0, args.tokens) for name in args.decoders}
    x, models = load("cupy", np.float32)
    return {**machine(), "gpu": device, "texts": texts,
            "passes": passes(models.target, args.repeats),
            "speed": speed(x, models, args.tokens, args.repeats)}


def report(figures):
    """Return the tables."""
    return "\n".join([
        figures["gpu"] + "\n",
        table(["decoder", "float64 text"], [[name, "equal" if same else "differs"]
                                            for name, same in figures["texts"].items()]),
        table(["rows", "ms"], [[n, ranged(ms)] for n, ms in figures["passes"].items()]),
        table(["decoder", "tokens per second"],
              [[name, f"{value:.0f}"] for name, value in figures["speed"].items()])])


def main(argv=None):
    parser = argparse.ArgumentParser("python -m benchmarks.gpu",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", help="write the figures to this file")
    add("--decoders", nargs="+", choices=DECODERS, default=[*DECODERS], help="for the texts")
    add("--tokens", type=int, default=64, help="new tokens per text")
    add("--repeats", type=int, default=21, help="passes and texts per figure")
    args = parser.parse_args(argv)
    figures = measure(args)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(report(figures))


if __name__ == "__main__":
    main()
