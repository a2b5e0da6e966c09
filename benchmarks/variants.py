"""Measure every decoder on the bundled pair: tokens per pass, rows per pass, time.

    python -m benchmarks.variants --json benchmarks/results/variants.json
    python -m benchmarks.variants --prompts repetitive --rows speculative lookup suffix
    python -m benchmarks.variants --rows stopping "speculative --K 2" "speculative --K 3"

All decoders take turns on each prompt (race.py), and the whole is repeated: at temperature 1 each
repeat draws different texts. Loading is not counted, reading the prompt is.

    tokens/pass    new ids / rounds: a round is one pass of the target
    expected       the same without the luck of the seeds, where benchmarks.rules has the test
    rows/pass      rows of the target that a pass computed, on average
    ms/token       seconds / new ids
    speed-up       over plain decoding, the median of the repeats
    same           at temperature 0: prompts whose text is plain decoding's
"""

import argparse
import shlex
import sys

from benchmarks import command
from benchmarks.clock import machine
from benchmarks.command import about, number, table
from benchmarks.models import load
from benchmarks.prompts import LENGTH, OPENINGS, REPETITIVE, named
from benchmarks.race import builder, race, speed
from benchmarks.rules import stored as expected
from lib.costs import measure_costs
from sampling import with_sampling
from utils import MODELS_DIR
from variants import DECODERS
from variants.shared.tree_gpt2 import TreeGPT2

PROMPTS = {"openings": OPENINGS, "repetitive": REPETITIVE}
EXTRA = [  # decoders with different flags than their defaults
    "assisted --schedule heuristic --K 4 --confidence 0", "big_little --fallback 0.2",
    "tree --widths 1,1,1,1", "tree --widths 4,2,1,1", "tree --widths auto", "tree --widths dynamic",
    "traversal --widths 1,1,1,1", "staged --width 2", "medusa --widths 1,1,1",
    "medusa --acceptance typical", "blockwise --selection 3",
    "cascade --alpha 0.5", "skip --exit 8", "lookahead --columns 3 --ngram 3 --pool 3",
    "suffix --sure 0", "eagle --widths 3,2,1", "eagle --widths dynamic --K 6"]


def row_of(text):
    """Return (name, flags) of words such as "speculative --K 3"."""
    name, *words = shlex.split(text)
    known = DECODERS[name].flags if name in DECODERS else {}
    named = dict(zip((word.removeprefix("--") for word in words[::2]), words[1::2]))
    if name not in DECODERS or len(words) % 2 or not named.keys() <= known.keys():
        raise argparse.ArgumentTypeError(f"need a decoder and its flags, got {text!r}")
    return text, name, {flag: known[flag][1].type(value) for flag, value in named.items()}


def default_rows(temperature):
    """Return every decoder, and EXTRA after its decoder, where they run at this temperature."""
    rows = [row for name in DECODERS for row in map(row_of, [name, *EXTRA]) if row[1] == name]
    greedy = temperature == 0
    return [(text, name, flags) for text, name, flags in rows
            if (greedy or not DECODERS[name].greedy)
            and not (greedy and (flags.get("acceptance") == "typical" or "width" in flags))]


def is_exact(name, flags):
    """Return whether a row's texts are distributed as the target's."""
    return DECODERS[name].is_exact(DECODERS[name].settings(flags))


def measure_one(temperature, rows, args):
    """Return one dict per row, plain decoding first."""
    encoder, *pair = load("pair")
    draft, target = (TreeGPT2(model.params, model.n_head) for model in pair)
    texts = [encoder.encode(prompt) for prompt in PROMPTS[args.prompts]]
    costs = measure_costs(*(with_sampling(model, temperature=temperature)
                            for model in (draft, target)), texts[0])
    known = {"folder": MODELS_DIR / "tales-large", "costs": costs}
    rows = [("plain", None, {}), *rows]
    results = race(draft, target, {text: builder(name, flags, temperature, **known) for
                                    text, name, flags in rows}, texts, args.N, args.repeats)
    return [figures(results[text], results["plain"], temperature)
            | {"decoder": text, "exact": not name or is_exact(name, flags)}
            for text, name, flags in rows]


def figures(result, plain, temperature):
    """Return the dict of one row."""
    found = speed(result, plain)
    same = sum(text.ids == theirs.ids for text, theirs in zip(result[0], plain[0]))
    return {**{name: found[name] for name in ("tokens_per_pass", "rows_per_pass", "speedup")},
            "ms_per_token": 1e3 / found["tokens_per_s"]["median"],
            "same": same if temperature == 0 else None}


def measure(args):
    """Return the figures of all temperatures."""
    texts = PROMPTS[args.prompts]
    tables = {f"{T:g}": measure_one(T, args.rows or default_rows(T), args)
              for T in args.temperature}
    return machine() | {"texts": named(len(texts), args.N), "n_texts": len(texts),
                        "prompts": args.prompts, "tables": tables}


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"The bundled pair, {figures['texts']} ({figures['prompts']}). {about(figures)}\n"
    for temperature, rows in figures["tables"].items():
        yield f"Temperature {temperature}:\n"
        yield table(["decoder", "exact", "tokens/pass", "expected", "rows/pass", "ms/token",
                     "speed-up", "same"],
                    [[row["decoder"], "yes" if row["exact"] else "no",
                      number(row["tokens_per_pass"]), expected(row["decoder"], temperature),
                      number(row["rows_per_pass"], "{:.1f}"),
                      number(row["ms_per_token"]), number(row["speedup"]),
                      "-" if row["same"] is None else f"{row['same']} of {figures['n_texts']}"]
                     for row in rows])


def main(argv=None):
    parser = command.new_parser("benchmarks.variants", __doc__)
    add = parser.add_argument
    add("--N", type=command.positive, default=LENGTH, help="new tokens per prompt")
    add("--repeats", type=command.positive, default=3)
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    add("--prompts", choices=PROMPTS, default="openings", help="openings of tales, or texts that "
        "repeat themselves")
    add("--rows", nargs="+", type=row_of, metavar="ROW", help="only these decoders, with their "
        "flags in quotes")
    return command.run("variants", parser.parse_args(argv), measure, tell)


if __name__ == "__main__":
    sys.exit(main())
