"""Measure what only a GPU can show: equal texts, milliseconds of passes, tokens per second.

    python -m benchmarks.gpu --json gpu.json

    texts     every decoder's greedy text by CuPy and by NumPy, in float64: equal or not
    passes    milliseconds of a pass over 1 .. 32 rows of the pair's target
    own       what benchmarks.speed measures of the bundled pair on its own text
"""

import sys

import numpy as np

from benchmarks import command
from benchmarks.clock import machine, milliseconds, rows_actions
from benchmarks.command import ranged, table
from benchmarks.models import OPENINGS
from benchmarks.speed import own, tell_races
from lib.backend.arrays import get_backend
from speculative import complete
from utils import MODELS_DIR, load_pair
from variants import DECODERS, Costs, Models, build
from variants.shared.tree_gpt2 import TreeGPT2

PAIR = ("tales-small", "tales-large")
ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)


def load(backend, dtype, temperature=0.0):
    """Return (encoder, Models) of the bundled pair."""
    encoder, *pair = load_pair(*PAIR, dtype=dtype, backend=backend)
    models = [TreeGPT2(model.params, model.n_head) for model in pair]
    return encoder, Models(*models, {"temperature": temperature}, MODELS_DIR / PAIR[1],
                           Costs(0.1, [1.0, 1.1, 1.2, 1.3, 1.4]))


def text(name, backend, N):
    """Return the ids of a decoder's greedy text."""
    encoder, models = load(backend, np.float64)
    return complete(encoder.encode(OPENINGS[0]), build(name, models), N, np.random.default_rng(0))


def measure(args):
    """Return all figures."""
    device = get_backend("cupy").cuda.runtime.getDeviceProperties(0)["name"].decode()
    texts = {name: text(name, "numpy", args.N) == text(name, "cupy", args.N) for name in DECODERS}
    encoder, models = load("cupy", np.float32)
    return machine() | {
        "gpu": device, "texts": texts,
        "passes": milliseconds(rows_actions(models.target, ROWS), args.repeats),
        "own": own(args, encoder, models.draft, models.target)}


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"{figures['gpu']}. {figures['measured']}\n"
    yield table(["decoder", "float64 text"], [[name, "equal" if same else "differs"]
                                              for name, same in figures["texts"].items()])
    yield table(["rows", "ms"], [[n, ranged(ms)] for n, ms in figures["passes"].items()])
    yield from tell_races("temperature", figures["own"])


def main(argv=None):
    parser = command.new_parser("benchmarks.gpu", __doc__, repeats=21)
    return command.run("gpu", parser.parse_args(argv), measure, tell, "requirements/gpu.txt")


if __name__ == "__main__":
    sys.exit(main())
