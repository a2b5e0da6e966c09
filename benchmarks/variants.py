"""Measure every decoder on the bundled pair: tokens per pass, positions per pass, time.

    python -m benchmarks variants --repeats 5 --json benchmarks/results/variants.json
    python -m benchmarks variants --rows stopping "speculative --K 2" "speculative --K 3"

All decoders take turns on each prompt (measure/race.py), and everything is repeated; at
temperature 1 each repeat draws different texts. Times are without loading and without the
prompt.

    tokens/pass    new tokens / rounds: a round is one pass of the target
    positions/pass positions that a pass of the target computes, on average
    ms/token       milliseconds / new tokens
    speed-up       over plain decoding: the median of the repeats, the slowest and the fastest
    same           at temperature 0: prompts whose text is the text of plain decoding
"""

import shlex

from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import machine
from measure.command import ranged
from measure.models import OPENINGS, load_benchmark_pair, named
from measure.race import builder, costs_at, race, race_figures, same_texts
from run.flags import parse_args
from utils import MODELS_DIR
from variants import DECODERS
from variants.shared.tree_gpt2 import tree_model

EXTRA = [  # decoders with different flags than their defaults
    "assisted --schedule heuristic --K 4 --confidence 0", "big_little --fallback 0.2",
    "tree --widths 1,1,1,1", "tree --widths 4,2,1,1", "tree --widths auto",
    "tree --widths dynamic", "traversal --widths 1,1,1,1", "staged --width 2",
    "medusa --widths 1,1,1", "medusa --acceptance typical", "blockwise --selection 3",
    "cascade --price 0.5", "skip --exit 8", "lookahead --columns 3 --ngram 3 --pool 3",
    "suffix --sure 0", "eagle --widths 3,2,1", "eagle --widths dynamic --K 6"]
COSTS = ("tokens/pass", "positions/pass", "ms/token")  # columns


def read_row(text):
    """Return (text, name, settings) of words such as "speculative --K 3"."""
    args = parse_args(["--decoder", *shlex.split(text)])
    return text, args.decoder, args.settings


def default_rows(temperature):
    """Return the decoders that run at this temperature, each followed by its rows of EXTRA."""
    names = list(DECODERS)
    # A text begins with the decoder's name, and is sorted by this name's index in the registry.
    # The sort is stable, so the rows of one decoder keep their order.
    texts = sorted([*names, *EXTRA], key=lambda text: names.index(text.split()[0]))
    rows = [read_row(text) for text in texts]
    if temperature == 0:
        # A width above 1 needs several guesses for a position, which are drawn.
        return [(text, name, flags) for text, name, flags in rows
                if flags.get("width", 1) == 1]
    # A greedy decoder has no other temperature than 0.
    return [(text, name, flags) for text, name, flags in rows if not DECODERS[name].greedy]


def rows_at(temperature, rows, args):
    """Return one dict per row, plain decoding first."""
    encoder, *pair = load_benchmark_pair("pair", args.backend)
    draft, target = map(tree_model, pair)
    texts = [encoder.encode(prompt) for prompt in OPENINGS]
    costs = costs_at(temperature, draft, target, texts[0])
    builders = {"plain": builder(None, {}, temperature)}
    are_exact = {"plain": True}
    for text, name, flags in rows:
        builders[text] = builder(name, flags, temperature, folder=MODELS_DIR / "tales-large",
                                 costs=costs)
        are_exact[text] = DECODERS[name].exact(flags)
    results = race(draft, target, builders, texts, args.N, args.repeats)
    return [{"decoder": text, "exact": "yes" if are_exact[text] else "no",
             **decoder_row(result, results["plain"], temperature)}
            for text, result in results.items()]


def decoder_row(result, plain, temperature):
    """Return the numbers of one row."""
    figures = race_figures(result, plain)
    return {"tokens/pass": figures["tokens_per_pass"],
            "positions/pass": figures["rows_per_pass"],
            "ms/token": 1e3 / figures["tokens_per_s"]["median"],
            **{name: figures[name] for name in ("speedup", "low", "high")},
            "same": "-" if temperature else same_texts(result, plain)}  # drawn texts differ


def all_figures(args):
    """Return the figures of all temperatures."""
    tables = {f"{T:g}": rows_at(T, args.rows or default_rows(T), args) for T in (0.0, 1.0)}
    return machine() | {"texts": named(len(OPENINGS), args.N), "tables": tables}


def paragraphs(figures, args):
    """Yield the sentences and tables of a file."""
    yield f"The bundled pair, {figures['texts']}. {figures['measured']}"
    for temperature, rows in figures["tables"].items():
        yield f"Temperature {temperature}:"
        yield markdown_table(
            ["decoder", "exact", *COSTS, "speed-up (slowest - fastest)", "same"],
            [[row["decoder"], row["exact"], *(shown(row[name]) for name in COSTS),
              ranged(row, figure="speedup"), row["same"]] for row in rows])


ROWS_FLAG = dict(nargs="+", type=read_row, metavar="ROW",
                 help="measure only these decoders; quote a decoder with its flags")
BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=3,
                              flags={"rows": ROWS_FLAG, "backend": command.BACKEND})
