"""What a pass costs on this machine, and when speculation pays.

    python -m benchmarks.speed --size pair --json benchmarks/results/speed-pair.json --plot
    python -m benchmarks.speed --size 124M --json benchmarks/results/speed-124M.json
    python -m benchmarks.speed --size 124M --json peers.json --only peers --tokens 60
    python -m benchmarks.speed --show benchmarks/results/speed-124M.json  # the tables, no measuring

Sizes are the bundled pair or GPT-2's released ones; the latter get random weights of the true shape
where models_dir has none, for time does not depend on what a weight is.

    startup     seconds to the first token and peak of the memory, in fresh processes (startup.py)
    passes      bandwidth; milliseconds of M rows, and of a token after some contexts (passes.py)
    simulated   tokens a second for K = 1 .. 8 where every guess is kept with chance alpha (race.py)
    own         the same of the bundled pair on its own text, and of K auto
    useless     K auto with a draft of random weights
    neighbours  passes beside one and two processes that keep a core busy (neighbours.py)
    peers       transformers and the loop without a cache (peers.py; requirements/peers.txt)

    floor       the bytes of the weights / the memory bandwidth, measured by turns with one row
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks import peers
from benchmarks.clock import machine, spread
from benchmarks.neighbours import neighbours_table
from benchmarks.passes import context_times, floor_times, load, passes_times
from benchmarks.plots import draw_speed_of
from benchmarks.race import own_table, simulated_table, useless_table
from benchmarks.startup import startup_table
from benchmarks.tables import tell
from lib.checkpoints.huggingface import read_hparams
from theory.hardware import GPT2_SIZES, pass_bytes
from utils import MODELS_DIR


# ---- one function a part: of the flags, what `load` gave, and the target's sizes

def startup(args, models, hparams):
    name = "tales-large" if args.size == "pair" else args.size
    return startup_table(name, args.models_dir, hparams, args.runs)


def passes(args, models, hparams, n_bytes=2**29):
    _, draft, target = models
    weights = pass_bytes(hparams, n_bytes=4)
    n_reads = max(1, round(weights / n_bytes))  # about as long as the pass it is compared with
    times = floor_times(target, args.repeats, n_bytes, n_reads)
    row, read = np.median(times["row"]), np.median(times["read"]) / n_reads
    floor = weights * read / n_bytes
    rows, draft_step = passes_times(draft, target, args.repeats)
    return {"bandwidth_GB_per_s": n_bytes / read / 1e9, "floor_ms": 1e3 * floor,
            "row_over_floor": row / floor, "draft_ms": milliseconds({"": draft_step})[""],
            "rows_ms": milliseconds(rows["numba"]), "numpy_rows_ms": milliseconds(rows["numpy"]),
            "context_ms": milliseconds(context_times(target, args.repeats))}


def milliseconds(times):
    """{name: seconds of every repeat} as {name: spread in milliseconds}."""
    return {str(name): spread([1e3 * s for s in seconds]) for name, seconds in times.items()}


def simulated(args, models, hparams):
    _, draft, target = models
    return simulated_table(draft, target, args.tokens, args.runs)


def own(args, models, hparams):
    encoder, draft, target = models
    return {T: own_table(draft, target, encoder, args.tokens, args.runs, T) for T in (0, 1)}


def useless(args, models, hparams):
    _, draft, target = models
    return useless_table(draft, target, args.runs)


def neighbours(args, models, hparams):
    _, _, target = models
    return neighbours_table(target, args.repeats)


def beside_peers(args, models, hparams):
    _, draft, target = models
    return peers.measure(draft, target, hparams, args.tokens, args.runs)


PARTS = {"startup": startup, "passes": passes, "simulated": simulated, "own": own,
         "useless": useless, "neighbours": neighbours, "peers": beside_peers}


def wanted(args):
    """The parts to measure, in order; `own` of the pair only, for only it has text of its own."""
    parts = set(args.only or PARTS.keys() - {"peers", "neighbours"})
    parts |= {"peers"} if args.peers else set()
    return [part for part in PARTS if part in parts and (part != "own" or args.size == "pair")]


def measure(args, figures):
    """The figures with the wanted parts measured anew."""
    pair, parts = args.size == "pair", wanted(args)
    hparams = read_hparams(MODELS_DIR / "tales-large") if pair else GPT2_SIZES[args.size]
    figures |= {"size": args.size, "hparams": hparams} | machine()
    models = load(args.size, args.models_dir) if parts != ["startup"] else None
    for part in parts:
        figures[part] = PARTS[part](args, models, hparams)
    return json.loads(json.dumps(figures))  # keys as a file has them


# ---- the command

def parse_args(argv):
    parser = argparse.ArgumentParser("python -m benchmarks.speed",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--size", choices=["pair", *GPT2_SIZES], default="pair")
    add("--models_dir", type=Path, default=MODELS_DIR, help="where released weights are, if any")
    add("--only", nargs="+", choices=PARTS,
        help="only these parts (default: all but peers and neighbours)")
    add("--peers", action="store_true", help="transformers too (requirements/peers.txt)")
    add("--tokens", type=int, default=64, help="new tokens a text")
    add("--runs", type=int, default=3, help="runs of every text and start")
    add("--repeats", type=int, default=21, help="passes a figure")
    add("--json", type=Path, metavar="FILE",
        help="write the figures there; with --only, beside those it has")
    add("--plot", action="store_true",
        help="draw docs/img/speed-SIZE.svg (requirements/plots.txt)")
    add("--show", type=Path, metavar="FILE",
        help="tell the figures of a file (with --only: of those parts), measure nothing")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    known = args.show or args.only and args.json
    figures = json.loads(known.read_text()) if known and known.exists() else {}
    if args.show:
        figures = {k: v for k, v in figures.items() if k not in PARTS or k in (args.only or PARTS)}
    else:
        figures = measure(args, figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        draw_speed_of(figures)
    print("\n".join(tell(figures)))


if __name__ == "__main__":
    main()
