"""Measure what a pass costs on this machine, and when speculation pays.

    python -m benchmarks.speed --json benchmarks/results/speed-pair.json
    python -m benchmarks.speed --size 124M --json benchmarks/results/speed-124M.json
    python -m benchmarks.speed --show benchmarks/results/speed-124M.json --only passes

    passes      bandwidth; milliseconds of M rows, and of a token after several contexts
    simulated   tokens per second for K = 1 .. 8 if a guess is accepted with probability alpha
    own         the same of the bundled pair on its own text, and of K auto (race.py)

    floor       bytes of the weights / memory bandwidth, timed in turns with one row
"""

import os
import sys
from functools import partial

import numpy as np

from benchmarks import command
from benchmarks.clock import interleaved, machine, rows_actions, spread
from benchmarks.command import about, number, ranged, scatter, table
from benchmarks.models import SIZES, load, sizes
from benchmarks.prompts import LENGTH, OPENINGS, named
from benchmarks.race import builder, figures, race, simulated_builder
from gpt2 import GPT2
from lib.costs import measure_costs
from sampling import with_sampling
from theory.hardware import pass_bytes

KS = range(1, 9)
ALPHAS = (0.6, 0.7, 0.8, 0.9)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16)
CONTEXTS = (64, 512, 1000)
GUESSES = 4  # draft steps in a row
BLOCK = 2**29  # bytes that are read at once to measure the bandwidth


# ---- passes

def reader():
    """Return a function that reads BLOCK bytes of memory, as fast as all cores can.

    BLAS's product of a row and a matrix reads faster than a sum, and is what a pass consists of.
    """
    from threadpoolctl import ThreadpoolController  # here: --help does without

    matrix, row = np.ones((BLOCK // 2**14, 2**12), np.float32), np.ones((1, 2**12), np.float32)
    blas = ThreadpoolController().select(user_api="blas")

    def read():
        with blas.limit(limits=os.cpu_count()):
            return row @ matrix.T

    return read


def floor_times(target, repeats, n_reads):
    """Return the seconds of one row, and of reading BLOCK bytes of memory `n_reads` times.

    They take turns, because the bandwidth of a shared machine changes from second to second. The
    reading empties the caches a small model lies in, so the other passes are timed apart from it.
    """
    read, (row,) = reader(), rows_actions(target, (1,)).values()
    return interleaved({"row": row, "read": lambda: [read() for _ in range(n_reads)]}, repeats)


def context_actions(model):
    """Return {ids in the context: a function that reads one more}, each with its own model."""
    actions = {}
    for n in (n for n in CONTEXTS if n < model.n_ctx):
        own, text = GPT2(model.params, model.n_head), [1] * n
        own(text)
        actions[n] = partial(own, text + [2])
    return actions


# ---- one function a part: of the flags, and of what `load` returned

def passes(args, encoder, draft, target):
    weights = pass_bytes(sizes(target), n_bytes=4)
    n_reads = max(1, round(weights / BLOCK))  # about as long as the pass it is compared with
    times = floor_times(target, args.repeats, n_reads)
    row, read = np.median(times["row"]), np.median(times["read"]) / n_reads
    floor = weights * read / BLOCK
    step, actions = rows_actions(draft, (1,))[1], {}
    for backend in ("numpy", "numba"):
        for n, action in rows_actions(target, ROWS, backend=backend).items():
            actions[backend, n] = action
    actions["draft"] = lambda: [step() for _ in range(GUESSES)]
    rows = milliseconds(actions, args.repeats)
    return {"bandwidth_GB_per_s": BLOCK / read / 1e9, "floor_ms": 1e3 * floor,
            "row_over_floor": row / floor,
            "draft_ms": {name: ms / GUESSES for name, ms in rows["draft"].items()},
            "rows_ms": {n: rows["numba", n] for n in ROWS},
            "numpy_rows_ms": {n: rows["numpy", n] for n in ROWS},
            "context_ms": milliseconds(context_actions(target), args.repeats)}


def milliseconds(actions, repeats):
    """Return {name: spread in milliseconds} of some functions, interleaved."""
    return {name: spread([1e3 * s for s in seconds])
            for name, seconds in interleaved(actions, repeats).items()}


def simulated(args, encoder, draft, target):
    texts = [[i] * 32 for i in range(3)]
    return {"texts": named(len(texts), args.N), "races": {
        alpha: figures(race(draft, target, {K: simulated_builder(K, alpha) for K in (0, *KS)},
                            texts, args.N, args.runs)) for alpha in ALPHAS}}


def own(args, encoder, draft, target):
    texts, races = [encoder.encode(opening) for opening in OPENINGS], {}
    for T in (0.0, 1.0):
        models = [with_sampling(model, temperature=T) for model in (draft, target)]
        costs = measure_costs(*models, texts[0])
        builders = {0: builder(None, {}, T)} | {
            K: builder("speculative", {"K": K}, T, costs=costs) for K in (*KS, "auto")}
        races[f"{T:g}"] = figures(race(draft, target, builders, texts, args.N, args.runs))
    return {"texts": named(len(texts), args.N), "races": races}


PARTS = {"passes": passes, "simulated": simulated, "own": own}


def measure(args):
    """Return the figures with the wanted parts measured again; `own` is of the pair only."""
    known = command.read(args.json) if args.only and args.json and args.json.exists() else {}
    encoder, draft, target = load(args.size)
    parts = [part for part in args.only or PARTS if part != "own" or encoder]
    return (known | {"size": args.size} | machine()
            | {part: PARTS[part](args, encoder, draft, target) for part in parts})


# ---- the tables

LABELS = [  # of a race: name, value of a decoder's figures, its form
    ("tokens per second", lambda row: row["tokens_per_s"]["median"], "{:.1f}"),
    ("speed-up", lambda row: row["speedup"], "{:.2f}"),
    ("predicted", lambda row: row.get("predicted"), "{:.2f}"),
    ("measured / predicted", lambda row: ratio_to(row, "predicted"), "{:.2f}"),
    ("measured / counted", lambda row: ratio_to(row, "counted"), "{:.2f}"),
    ("acceptance", lambda row: row["acceptance"], "{:.2f}"),
    ("tokens per pass", lambda row: row["tokens_per_pass"], "{:.2f}"),
]


def ratio_to(row, key):
    """Return the speed-up over a prediction of it; None if there is none."""
    return row["speedup"] / row[key] if key in row else None


def tell_passes(part):
    yield (f"{part['bandwidth_GB_per_s']:.1f} GB/s, so a floor of {part['floor_ms']:.2f} ms per "
           f"token; one row from cold caches takes {part['row_over_floor']:.2f} times the floor. "
           f"A draft step takes {ranged(part['draft_ms'])} ms.\n")
    yield table(["rows in one pass", "ms (quartiles)", "relative", "NumPy alone: ms", "relative"],
                [[n, *cells, *more] for n, cells, more in
                 zip(part["rows_ms"], column(part["rows_ms"]), column(part["numpy_rows_ms"]))])
    yield table(["tokens in the context", "ms (quartiles)", "relative"],
                [[n, *cells] for n, cells in zip(part["context_ms"], column(part["context_ms"]))])


def column(times):
    """Return the cells of one kind of pass: its time, and that over the first one's."""
    first = next(iter(times.values()))["median"]
    return [[ranged(ms), number(ms["median"] / first)] for ms in times.values()]


def tell_races(title, part):
    """Yield one table of {name: race}, and how far apart the runs lie."""
    races = part["races"]
    heads = [{"0": "plain", "auto": "auto"}.get(K, f"K = {K}") for K in next(iter(races.values()))]
    yield table([f"{title}; {part['texts']}", *heads],
                [[f"{name}: {label}", *(number(value(row), form) for row in rows.values())]
                 for name, rows in races.items() for label, value, form in LABELS])
    yield scatter([row["tokens_per_s"] for rows in races.values() for row in rows.values()]) + "\n"


def tell_own(part):
    yield from tell_races("own text at temperature", part)
    for temperature, rows in part["races"].items():
        best = max(row["speedup"] for K, row in rows.items() if K != "auto")
        yield (f"Temperature {temperature}: K auto reaches {rows['auto']['speedup'] / best:.2f} of "
               "the best fixed K, its costs measured beforehand.\n")


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"{figures['size']}. {about(figures)}\n"
    tellers = {"passes": tell_passes, "own": tell_own,
               "simulated": lambda part: tell_races("guesses accepted with probability", part)}
    for part in PARTS:
        if part in figures and part in (args.only or PARTS):
            yield from tellers[part](figures[part])


def main(argv=None):
    parser = command.new_parser("benchmarks.speed", __doc__)
    add = parser.add_argument
    add("--size", choices=SIZES, default="pair")
    add("--only", nargs="+", choices=PARTS, help="--json FILE keeps its other parts")
    add("--N", type=command.positive, default=LENGTH, help="new tokens per text")
    add("--runs", type=command.positive, default=3, help="runs of every text")
    add("--repeats", type=command.positive, default=21, help="passes per figure")
    return command.run("speed", parser.parse_args(argv), measure, tell)


if __name__ == "__main__":
    sys.exit(main())
