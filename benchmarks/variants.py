"""Every decoder on the bundled pair, beside plain decoding: tokens a pass, rows a pass, time.

    python -m benchmarks.variants
    python -m benchmarks.variants --N 100 --repeats 5 --json variants.json
    python -m benchmarks.variants --show variants.json      # its tables again
    python -m benchmarks.variants --prompts repetitive --only speculative lookup suffix
    python -m benchmarks.variants --rows stopping "speculative --K 2" "speculative --K 3" --seeds 5

All decoders run in one process, one after the other on each prompt, and the whole is repeated, so
that a slow minute of the machine falls on all alike; a time is the median of the repeats, summed
over the prompts. Loading is not counted, reading the prompt is.

    tokens/pass    new ids / rounds: a round is one pass of the target
    rows/pass      rows of the target that a pass computed, on average
    ms/token       seconds / new ids
    speed-up       plain decoding's ms/token / this decoder's
    same           at temperature 0: on how many prompts the text is plain decoding's
"""

import argparse
import json
import shlex
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from lib.backend.arrays import limit_blas_threads
from benchmarks.prompts import OPENINGS, REPETITIVE
from benchmarks.race import measure
from benchmarks.tables import number, table
from speculative import autoregressive_step, generate
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants import DECODERS, Models, build, settings, stopping
from variants.tree import best_trees
from variants.shared.tree_gpt2 import TreeGPT2

PROMPTS = {"openings": OPENINGS, "repetitive": REPETITIVE}
EXTRA = [  # decoders once more, with other flags than their defaults
    ("assisted", {"schedule": "heuristic", "K": 4, "confidence": 0.0}),
    ("big_little", {"fallback": 0.2}), ("tree", {"widths": (1, 1, 1, 1)}),
    ("tree", {"widths": (4, 2, 1, 1)}), ("tree", {"widths": "auto"}),
    ("tree", {"widths": "dynamic"}), ("traversal", {"widths": (1, 1, 1, 1)}),
    ("staged", {"width": 2}), ("medusa", {"widths": (1, 1, 1)}),
    ("medusa", {"acceptance": "typical"}), ("blockwise", {"selection": 3}),
    ("cascade", {"alpha": 0.5}), ("skip", {"exit": 8}),
    ("lookahead", {"columns": 3, "ngram": 3, "pool": 3}),
    ("suffix", {"sure": 0.0}), ("medusa", {"markov": True}), ("eagle", {"widths": (3, 2, 1)}),
    ("eagle", {"widths": "dynamic", "K": 6}),
]


def rows_of(temperature, folder, only):
    """The table's rows, (decoder, flags): plain decoding first, and nothing that cannot run."""
    possible = [row for row in [(name, {}) for name in DECODERS] + EXTRA if row[0] in only]
    order = [None, *DECODERS]
    return [(None, {})] + sorted(
        ((name, flags) for name, flags in possible
         if not (DECODERS[name].greedy and temperature > 0)
         and not ({"heads", "eagle"} & {*DECODERS[name].needs}
                  and not (folder / "heads.safetensors").exists())
         and not (flags.get("acceptance") == "typical" and temperature == 0)
         and not (flags.get("width", 1) > 1 and temperature == 0)),
        key=lambda row: order.index(row[0]))


def row_of(text):
    """(decoder, flags) of words such as "speculative --K 3"."""
    name, *words = shlex.split(text)
    known = DECODERS[name].flags if name in DECODERS else {}
    named = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
    if name not in DECODERS or len(words) % 2 or not named.keys() <= known.keys():
        raise argparse.ArgumentTypeError(f"need a decoder and its flags, got {text!r}")
    return name, {flag: known[flag].type(value) for flag, value in named.items()}


def step_of(models, name, flags, costs):
    """A row's step. Its costs are given, not measured in the first rounds: the texts are short."""
    if not name:
        return partial(autoregressive_step, model=models.probabilities("target"))
    if name == "tree" and flags.get("widths") == "auto":
        return best_trees(models, "auto")(costs)
    if name == "stopping":
        flags = {"costs": (costs.c, *costs.pass_cost)} | flags
    return build(name, models, flags)


def run(models, name, flags, costs, x, N, seed):
    """One text from models that have read nothing: (ids, rounds, rows scored, seconds)."""
    start = time.perf_counter()
    step, ids, sizes = step_of(models, name, flags, costs), [], []
    for round in generate(x, step, N, np.random.default_rng(seed)):
        ids += round.ids
        sizes.append(len(round.p_target))
    return ids, len(sizes), sum(sizes), time.perf_counter() - start


def measure_all(new_models, encoder, prompts, rows, temperature, N, repeats, seeds=1):
    """One dict a decoder."""
    texts = [(prompt, 123 + seed) for seed in range(seeds) for prompt in prompts]
    runs = {i: [[] for _ in texts] for i in range(len(rows))}
    costs, _ = measure(*stopping.measured(new_models()), encoder.encode(prompts[0]))
    for repeat in range(repeats + 1):  # the first is a warm-up
        for j, (prompt, seed) in enumerate(texts if repeat else texts[:1]):
            for i, (name, flags) in enumerate(rows):
                result = run(new_models(), name, flags, costs, encoder.encode(prompt), N, seed)
                if repeat:
                    runs[i][j].append(result)
    out = [figures(*row, runs[i], runs[0], temperature) for i, row in enumerate(rows)]
    for row in out:
        row["speedup"] = out[0]["ms_per_token"] / row["ms_per_token"]
    return out


def figures(name, flags, runs, plain, temperature):
    """The dict of one decoder, from its runs: a list of repeats for each prompt."""
    ids = [repeats[0][0] for repeats in runs]
    n_ids, n_rounds = sum(map(len, ids)), sum(repeats[0][1] for repeats in runs)
    seconds = sum(np.median([run[3] for run in repeats]) for repeats in runs)
    same = sum(text == repeats[0][0] for text, repeats in zip(ids, plain))
    return {"decoder": name or "plain", "flags": flags,
            "exact": not name or bool(DECODERS[name].exact(settings(name, flags))),
            "tokens_per_pass": n_ids / n_rounds,
            "rows_per_pass": sum(repeats[0][2] for repeats in runs) / n_rounds,
            "ms_per_token": 1e3 * seconds / n_ids,
            "same": same if temperature == 0 else None}


def show(rows, temperature, n_prompts):
    """The table as Markdown."""
    typed = lambda value: ",".join(map(str, value)) if isinstance(value, (tuple, list)) else value
    cells = []
    for row in rows:
        flags = "".join(f" --{name} {typed(value)}" for name, value in row["flags"].items())
        cells.append([row["decoder"] + flags, "yes" if row["exact"] else "no",
                      number(row["tokens_per_pass"]), number(row["rows_per_pass"], "{:.1f}"),
                      number(row["ms_per_token"]), number(row["speedup"]),
                      "-" if row["same"] is None else f"{row['same']} of {n_prompts}"])
    heads = ["decoder", "exact", "tokens/pass", "rows/pass", "ms/token", "speed-up", "same"]
    print(f"### Temperature {temperature:g}\n\n{table(heads, cells)}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--N", type=int, default=60, help="new tokens a prompt")
    add("--repeats", type=int, default=3)
    add("--temperature", type=float, action="append", help="may be repeated (default: 0 and 1)")
    add("--prompts", choices=PROMPTS, default="openings", help="openings of tales, or texts that "
        "repeat themselves")
    add("--only", nargs="+", choices=DECODERS, default=DECODERS, metavar="NAME", help="decoders")
    add("--rows", nargs="+", type=row_of, metavar="ROW", help="these rows only: a decoder each, "
        "with flags in quotes")
    add("--seeds", type=int, default=1, help="texts of each prompt at a temperature above 0")
    add("--json", metavar="FILE", help="write the figures there as well")
    add("--show", metavar="FILE", help="only print the tables of such a file")
    args = parser.parse_args(argv)
    prompts = PROMPTS[args.prompts]
    if args.show:
        tables = json.loads(Path(args.show).read_text(encoding="utf-8"))
        for temperature in args.temperature or map(float, tables):
            show(tables[str(temperature)], temperature, len(prompts))
        return
    encoder, hparams, params = load_encoder_hparams_and_params("tales-large", MODELS_DIR)
    _, draft_hparams, draft_params = load_encoder_hparams_and_params("tales-small", MODELS_DIR)
    limit_blas_threads()
    folder = MODELS_DIR / "tales-large"
    if not (folder / "heads.safetensors").exists():
        print(f"no heads in {folder}: the decoders with heads are left out", file=sys.stderr)
    tables = {}

    def new_models(temperature):
        return Models(TreeGPT2(draft_params, draft_hparams["n_head"]),
                      TreeGPT2(params, hparams["n_head"]), dict(temperature=temperature), folder)

    for temperature in args.temperature or (0.0, 1.0):
        rows = [(None, {}), *args.rows] if args.rows else rows_of(temperature, folder, args.only)
        tables[temperature] = measure_all(
            partial(new_models, temperature), encoder, prompts, rows, temperature, args.N,
            args.repeats, args.seeds if temperature else 1)
        show(tables[temperature], temperature, len(prompts))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(tables, file, indent=1)


if __name__ == "__main__":
    main()
