"""Measure what only a GPU can show: equal texts, milliseconds of passes, tokens per second.

    python -m benchmarks.gpu --json gpu.json

    texts     every decoder's text by CuPy and by NumPy, in float64: equal or not
    passes    milliseconds of a pass over 1 .. 32 rows of the pair's target
    speed     tokens per second of the bundled pair, greedy, plain and speculative, against K
"""

import sys

import numpy as np

from benchmarks import command
from benchmarks.clock import interleaved, machine, rows_actions, spread
from benchmarks.command import about, ranged, table
from benchmarks.prompts import OPENINGS
from benchmarks.race import builder, race, speed
from lib.backend.arrays import get_backend
from speculative import complete
from utils import MODELS_DIR, load_pair
from variants import DECODERS, Models, build
from variants.shared.tree_gpt2 import TreeGPT2

PAIR = ("tales-small", "tales-large")
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)
GUESSES = (1, 2, 3, 4, 5, 6, 8, 10, 12)


def load(backend, dtype, temperature=0.0):
    """Return (the ids of a prompt, Models) of the bundled pair."""
    encoder, *pair = load_pair(*PAIR, dtype=dtype, backend=backend)
    models = [TreeGPT2(model.params, model.n_head) for model in pair]
    return encoder.encode(OPENINGS[0]), Models(*models, {"temperature": temperature},
                                               MODELS_DIR / PAIR[1])


def same_text(name, N):
    """Return whether a decoder writes the same text by NumPy and by CuPy."""
    texts = []
    for backend in ("numpy", "cupy"):
        x, models = load(backend, np.float64)
        texts.append(complete(x, build(name, models), N, np.random.default_rng(0)))
    return texts[0] == texts[1]


def measure(args):
    """Return all figures."""
    device = get_backend("cupy").cuda.runtime.getDeviceProperties(0)["name"].decode()
    texts = {name: same_text(name, args.N) for name in args.decoders}
    x, models = load("cupy", np.float32)
    passes = interleaved(rows_actions(models.target, ROWS), args.repeats)
    builders = {"plain": builder(None, {}, 0.0)} | {
        f"K = {K}": builder("speculative", {"K": K}, 0.0) for K in GUESSES}
    results = race(models.draft, models.target, builders, [x], args.N, args.repeats)
    return machine() | {
        "gpu": device, "texts": texts,
        "passes": {n: spread(1e3 * np.array(seconds)) for n, seconds in passes.items()},
        "speed": {name: speed(result, results["plain"])["tokens_per_s"]
                  for name, result in results.items()}}


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"{figures['gpu']}. {about(figures)}\n"
    yield table(["decoder", "float64 text"], [[name, "equal" if same else "differs"]
                                              for name, same in figures["texts"].items()])
    yield table(["rows", "ms"], [[n, ranged(ms)] for n, ms in figures["passes"].items()])
    yield table(["decoder", "tokens per second"],
                [[name, ranged(speed, "{:.0f}")] for name, speed in figures["speed"].items()])


def main(argv=None):
    parser = command.new_parser("benchmarks.gpu", __doc__)
    add = parser.add_argument
    add("--decoders", nargs="+", choices=DECODERS, default=[*DECODERS], help="for the texts")
    add("--N", type=command.positive, default=64, help="new tokens per text")
    add("--repeats", type=command.positive, default=21, help="passes and texts per figure")
    return command.run("gpu", parser.parse_args(argv), measure, tell, "requirements/gpu.txt")


if __name__ == "__main__":
    sys.exit(main())
