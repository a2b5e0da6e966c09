"""Measure the times of passes on this machine, and when speculation pays.

    python -m benchmarks speed --json benchmarks/results/speed-pair.json
    python -m benchmarks speed --size 124M --json benchmarks/results/speed-124M.json
    python -m benchmarks speed --size 1558M --only passes --repeats 7 --json speed-1558M.json
    python -m benchmarks speed --show benchmarks/results/speed-124M.json --only passes
    python -m benchmarks speed --backend cupy --size 124M --json gpu-124M.json
    python -m benchmarks speed --copy --size 124M --only simulated --alpha .98 .96

    passes      bandwidth; milliseconds of passes over M positions
    simulated   tokens per second for K = 1 .. 8 if a guess is accepted with probability alpha
    own         tokens per second of the bundled pair on its text, K auto too (measure/race.py)

    floor       seconds: bytes of the weights / memory bandwidth, which is measured in turns
                with passes over one row
"""

from functools import partial

import numpy as np

from cache import to_host
from lib.backend.arrays import get_backend
from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import interleaved, machine, rows_actions, spread
from measure.command import ranged
from measure.models import OPENINGS, load_benchmark_pair, named, sizes
from measure.race import builder, costs_at, race, race_figures, simulated_builder
from theory.hardware import GPT2_SIZES, pass_bytes
from theory.speedup import walltime_improvement
from variants.quantized import int8_copy

KS = range(1, 9)
ROWS = {"numba": (1, 2, 3, 4, 5, 6, 7, 8, 9, 16), "cupy": (1, 2, 3, 4, 5, 6, 8, 9, 16, 32, 64)}
RUNS = 3  # of every text; --repeats is for passes
DRAFT_STEPS = 4  # draft passes in a row
BLOCK = {"numba": 2**29, "cupy": 2**31}  # bytes that are read to measure the bandwidth
LABELS = {"speedup": "speed-up", "predicted": "predicted", "acceptance": "acceptance",
          "tokens_per_pass": "tokens per pass"}


# ---- one function per part; it takes the flags and what `load_benchmark_pair` returned

def pass_times(args, encoder, draft, target):
    """Return bandwidth, floor and the milliseconds of passes."""
    row_s, block_s = (np.median(seconds) for seconds in floor_times(args, target))
    rate = BLOCK[args.backend] / block_s  # bytes per second
    # A pass that reads all weights from memory takes at least this long.
    floor_s = pass_bytes(sizes(target)) / rate
    # Several draft passes are timed together, because a round makes them in a row, too.
    step = rows_actions(draft, (1,))[1]  # a pass over one row
    actions = {"draft": lambda: [step() for _ in range(DRAFT_STEPS)]}
    # On the processor the target's passes are timed with both kinds of products.
    backends = ["cupy"] if args.backend == "cupy" else ["numpy", "numba"]
    for backend in backends:
        for n, action in rows_actions(target, ROWS[args.backend], backend=backend).items():
            actions[backend, n] = action
    times = {name: spread(1e3 * np.array(seconds))
             for name, seconds in interleaved(actions, args.repeats).items()}
    draft_times = times.pop("draft")  # the other keys are (backend, number of rows)
    return {"bandwidth_GB_per_s": rate / 1e9, "floor_ms": 1e3 * floor_s,
            "row_over_floor": row_s / floor_s,
            "draft_ms": {name: ms / DRAFT_STEPS for name, ms in draft_times.items()},
            "rows_ms": {n: ms for (name, n), ms in times.items() if name != "numpy"},
            "numpy_rows_ms": {n: ms for (name, n), ms in times.items() if name == "numpy"}}


def floor_times(args, target):
    """Return the seconds of passes over one row, and of reading BLOCK bytes of memory.

    Passes and readings take turns, because a shared machine's bandwidth changes from second to
    second. A reading empties the processor's caches, which may hold a small model, so the
    other passes are timed without readings. A reading is a product of a row and a matrix by
    BLAS, because a pass consists of such products, and they read faster than a sum does.
    """
    arrays = get_backend(args.backend)  # the module numpy or cupy
    # A matrix of BLOCK bytes, whose rows have n_columns numbers of four bytes.
    n_columns = 2**12
    n_rows = BLOCK[args.backend] // (4 * n_columns)
    matrix = arrays.ones((n_rows, n_columns), np.float32)
    row = arrays.ones((1, n_columns), np.float32)
    # A GPU computes after a call has returned. Copying a number of the result to the host waits
    # for the GPU to finish.
    read = lambda: to_host((row @ matrix.T)[:, :1])
    times = interleaved(rows_actions(target, (1,)) | {"read": read}, args.repeats)
    return times[1], times["read"]  # 1: a pass over one row


def simulated_figures(args, encoder, draft, target):
    """Return the races of every alpha."""
    # The first token of a text is its number, on which simulated acceptance depends.
    texts = [[i] * 32 for i in range(3)]
    races = {}
    for alpha in args.alpha:
        builders = {K: simulated_builder(K, alpha) for K in (0, *KS)}
        races[alpha] = raced(builders, draft, target, texts, args.N)
    return {"texts": named(len(texts), args.N), "races": races}


def own_figures(args, encoder, draft, target):
    """Return the races of both temperatures."""
    texts = [encoder.encode(opening) for opening in OPENINGS]
    races = {}
    for T in (0.0, 1.0):
        costs = costs_at(T, draft, target, texts[0])
        builders = {0: builder(None, {}, T)}  # K = 0 is plain decoding
        for K in (*KS, "auto"):
            builders[K] = builder("speculative", {"K": K}, T, costs=costs)
        races[f"{T:g}"] = raced(builders, draft, target, texts, args.N)
    return {"texts": named(len(texts), args.N), "races": races}


def raced(builders, draft, target, texts, N):
    """Return {K: figures} of a race between {K: builder}; builder 0 is plain decoding."""
    results = race(draft, target, builders, texts, N, RUNS)
    return {K: race_figures(result, results[0]) for K, result in results.items()}


def add_predictions(races, passes):
    """Add the formula's speed-up, with the costs of `passes`, to the figures of each K."""
    rows_ms = {int(n): ms["median"] for n, ms in passes["rows_ms"].items()}
    c = passes["draft_ms"]["median"] / rows_ms[1]
    for by_decoder in races.values():
        for K, row in by_decoder.items():
            # Plain decoding (K = 0) and K = auto are not in KS, and have no prediction.
            if K in KS and K + 1 in rows_ms and row["acceptance"] is not None:
                pass_cost = rows_ms[K + 1] / rows_ms[1]
                row["predicted"] = walltime_improvement(row["acceptance"], K, c, pass_cost)


# ---- the tables

def pass_paragraphs(part):
    """Yield a sentence and the tables of `pass_times`."""
    yield (f"{part['bandwidth_GB_per_s']:.1f} GB/s, so a floor of {part['floor_ms']:.2f} ms "
           f"per pass; after the processor's caches are emptied, a pass over one position "
           f"takes {part['row_over_floor']:.2f} times the floor. A draft pass takes "
           f"{ranged(part['draft_ms'])} ms.")
    heads = ["positions in one pass", "ms (quartiles)", "relative"]
    rows = time_rows(part["rows_ms"])
    if part["numpy_rows_ms"]:  # empty on a GPU
        heads += ["NumPy alone: ms", "relative"]
        numpy_rows = time_rows(part["numpy_rows_ms"])
        # The cells of both are put in one line. cells[0], the number of rows, is in `row`
        # already.
        rows = [row + cells[1:] for row, cells in zip(rows, numpy_rows)]
    yield markdown_table(heads, rows)


def time_rows(times):
    """Return lines of a name, a pass's time, and its ratio to the time of the first pass."""
    first = next(iter(times.values()))["median"]
    return [[name, ranged(ms), shown(ms["median"] / first)] for name, ms in times.items()]


def race_paragraphs(setting, part):
    """Yield the table of all races: a column per decoder, a line per race and figure."""
    races = part["races"]
    # All races have the same K, so the first race has them all. They are strings here.
    Ks = next(iter(races.values())).keys()
    heads = ["plain" if K == "0" else f"K = {K}" for K in Ks]
    lines = []
    for value, by_decoder in races.items():
        columns = by_decoder.values()  # the figures of each K
        lines.append([f"{setting} {value}: tokens per second (quartiles)",
                      *(ranged(column["tokens_per_s"], "{:.0f}") for column in columns)])
        for name, label in LABELS.items():
            numbers = [shown(column.get(name)) for column in columns]
            lines.append([f"{setting} {value}: {label}", *numbers])
    yield markdown_table([part["texts"], *heads], lines)


# ---- all parts

PARTS = {"passes": (pass_times, pass_paragraphs),
         "simulated": (simulated_figures, partial(race_paragraphs, "alpha")),
         "own": (own_figures, partial(race_paragraphs, "temperature"))}


def all_figures(args):
    """Return the figures of the parts wanted; `own` is of the pair only.

    Speed-ups are predicted if passes are measured too.
    """
    encoder, draft, target = load_benchmark_pair(args.size, args.backend)
    if args.copy:
        draft = int8_copy(target)
    figures = machine() | {"size": args.size}
    for part in args.only:
        # Random weights write no text of their own.
        if part == "own" and not encoder:
            continue
        measure, _ = PARTS[part]
        figures[part] = measure(args, encoder, draft, target)
    for part in ("simulated", "own"):
        if part in figures and "passes" in figures:
            add_predictions(figures[part]["races"], figures["passes"])
    return figures


def paragraphs(figures, args):
    """Yield the sentences and tables of a file."""
    models = "The bundled pair" if figures["size"] == "pair" else figures["size"]
    yield f"{models}. {figures['measured']}"
    for part in args.only:
        if part in figures:
            _, tables = PARTS[part]
            yield from tables(figures[part])


def read_probability(text):
    """Read a number above 0 and up to 1."""
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError(f"need a probability above 0 and up to 1, got {text}")
    return value


FLAGS = {
    "size": dict(choices=["pair", *GPT2_SIZES], default="pair",
                 help="size of the models, or the bundled pair"),
    "only": command.parts_flag(PARTS), "backend": command.BACKEND,
    "copy": dict(action="store_true", help="use the target's int8 copy as the draft"),
    "alpha": dict(type=read_probability, nargs="+", default=[0.6, 0.7, 0.8, 0.9],
                  help="acceptance rates of the simulated races (default: 0.6 0.7 0.8 0.9)")}
BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=21, flags=FLAGS)
