"""Compare our texts and speed with those of transformers and llama.cpp on the same work.

    python -m benchmarks engines --N 48 --json benchmarks/results/engines.json
    python -m benchmarks engines --only llama.cpp --N 20

    same          prompts whose greedy speculative text is the text of our plain decoding
    tokens/pass   new tokens / passes of the target, at temperature 0 and 1 (several seeds)
    tokens/s      speculative and plain, greedy, one text at a time: the median

All engines have the weights of the bundled pair. Weights, keys and values are float32
everywhere, and every engine has as many threads as our products. transformers needs
requirements/peers.txt, llama.cpp requirements/engines.txt.
"""

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from exact.engines.programs import llama_server
from lib.backend import products
from lib.checkpoints import gguf
from lib.markdown import markdown_table, shown
from measure import command
from measure.clock import machine
from measure.models import OPENINGS, load_benchmark_pair, named, sizes
from measure.race import builder, write_text
from utils import MODELS_DIR

PER_ROUND = 4  # guesses
SEEDS = 16  # texts per prompt at temperature 1
COLUMNS = {  # {column: the form of its numbers}
    "tokens/pass at 0": "{:.2f}", "tokens/pass at 1": "{:.2f}",
    "tokens/s": "{:.0f}", "plain tokens/s": "{:.0f}"}


def n_threads(model):
    """Return the threads of our passes over one token: 1 if more do not pay for any weight."""
    largest = model.params["wte"]  # wte is the largest weight: n_vocab > 4 n_embd in all models
    return products.N_THREADS if largest.size >= products.SHARED else 1


# ---- other programs, which benchmarks/real.py has too

def generate_by(peer):
    """Return transformers' generate: (x, N, settings) -> (new ids, the end of each pass)."""
    import torch  # here: it takes seconds to import

    ends = []
    peer.register_forward_hook(lambda *args: ends.append(time.perf_counter()))

    def generate(x, N, **settings):
        ends.clear()
        with torch.no_grad():
            ids = peer.generate(torch.tensor([x]), max_new_tokens=N, pad_token_id=0, **settings)
        return ids[0, len(x) :].tolist(), [*ends]

    return generate


def complete_by(server, x, N, **settings):
    """Return the answer of llama.cpp's server: the "tokens" after x, and "timings"."""
    import requests

    request = {"prompt": x, "n_predict": N, "cache_prompt": False, "return_tokens": True,
               **settings}
    response = requests.post(f"{server.listening_address}/completion", json=request,
                             timeout=300)
    response.raise_for_status()
    return response.json()


# ---- the engines: each returns write(x, N, temperature, seed, speculative) -> (ids, passes)

def our_engine(encoder, draft, target, decoder="speculative"):
    """Return this project's engine; each text starts with models that have read nothing."""
    def write(x, N, temperature, seed, speculative):
        build_step = builder(decoder if speculative else None, {"K": PER_ROUND}, temperature)
        text = write_text(draft, target, build_step, x, N, seed)
        return text.ids, len(text.rounds)

    return write


def load_peer(name):
    """Return transformers' model of a bundled folder."""
    import torch
    from transformers import AutoModelForCausalLM

    peer = AutoModelForCausalLM.from_pretrained(MODELS_DIR / name, dtype=torch.float32)
    peer.generation_config.eos_token_id = None  # no text ends early
    return peer


def assisted_engine(encoder, draft, target):
    """Return transformers' generate on the same pair."""
    import torch

    torch.set_num_threads(n_threads(target))
    assistant = load_peer("tales-small")
    generate = generate_by(load_peer("tales-large"))
    # The draft makes PER_ROUND guesses in every round, however confident it is.
    settings = assistant.generation_config
    settings.num_assistant_tokens = PER_ROUND
    settings.assistant_confidence_threshold = 0
    settings.num_assistant_tokens_schedule = "constant"

    def write(x, N, temperature, seed, speculative):
        torch.manual_seed(seed)
        # A greedy text has no temperature, so 0 becomes None.
        ids, ends = generate(x, N, do_sample=temperature > 0, temperature=temperature or None,
                             top_k=0, assistant_model=assistant if speculative else None)
        return ids, len(ends)

    return write


def server_engine(encoder, draft, target):
    """Run llama.cpp's servers, without and with a draft, on GGUF files."""
    with tempfile.TemporaryDirectory() as folder:
        target_path = Path(folder, "target.gguf")
        draft_path = Path(folder, "draft.gguf")
        gguf.write_file(target_path, encoder, sizes(target), target.params)
        gguf.write_file(draft_path, encoder, sizes(draft), draft.params)
        # The first server has no draft. Both have read their files when this block ends.
        settings = (target.n_ctx, PER_ROUND, n_threads(target))
        plain = llama_server(target_path, None, *settings)
        fast = llama_server(target_path, draft_path, *settings)

    def write(x, N, temperature, seed, speculative):
        answer = complete_by(fast if speculative else plain, x, N, temperature=temperature,
                             seed=seed, top_k=0, top_p=1.0, min_p=0.0, ignore_eos=True)
        # The server does not count passes. A pass appends its accepted guesses and one more
        # token, so N = passes + accepted.
        return answer["tokens"], N - answer["timings"].get("draft_n_accepted", 0)

    return write


ENGINES = {"here": our_engine, "here, match": partial(our_engine, decoder="match"),
           "transformers": assisted_engine, "llama.cpp": server_engine}


# ---- the table

def all_figures(args):
    """Return the figures of the engines wanted."""
    models = load_benchmark_pair("pair")
    encoder, *_ = models
    xs = [encoder.encode(opening) for opening in OPENINGS]
    rows = {name: engine_row(ENGINES[name], models, xs, args) for name in args.only}
    return machine() | {"K": PER_ROUND, "texts": named(len(xs), args.N), "rows": rows}


def engine_row(engine, models, xs, args):
    """Return one row of the table; `models` is (encoder, draft, target)."""
    n_same = 0  # prompts whose greedy speculative text is our plain text
    n_passes = 0  # at temperature 0
    n_passes_at_1 = 0  # at temperature 1
    seconds = {False: [], True: []}  # of plain and of speculative texts
    our_write = our_engine(*models)
    write = engine(*models)
    for x in xs:
        write(x, 2, 0.0, 0, True)  # warm-up
        for speculative in [False, True] * args.repeats:
            start = time.perf_counter()
            ids, n = write(x, args.N, 0.0, 0, speculative)
            seconds[speculative].append(time.perf_counter() - start)
        our_ids, _ = our_write(x, args.N, 0.0, 0, False)
        # The last text of the loop is speculative, and its ids and its passes n are counted.
        n_same += ids == our_ids
        n_passes += n
        for seed in range(SEEDS):
            _, n_at_1 = write(x, args.N, 1.0, seed, True)
            n_passes_at_1 += n_at_1
    n_ids = args.N * len(xs)
    rates = [args.N / float(np.median(seconds[speculative])) for speculative in (True, False)]
    values = (n_ids / n_passes, SEEDS * n_ids / n_passes_at_1, *rates)
    return {"same": f"{n_same} of {len(xs)}", **dict(zip(COLUMNS, values))}


def paragraphs(figures, args):
    """Yield the sentence and the table of a file."""
    yield f"The bundled pair, K = {figures['K']}, {figures['texts']}. {figures['measured']}"
    yield markdown_table(["engine", "same", *COLUMNS],
                         [[name, row["same"],
                           *(shown(row[column], form) for column, form in COLUMNS.items())]
                          for name, row in figures["rows"].items() if name in args.only])


BENCHMARK = command.Benchmark(
    __doc__, all_figures, paragraphs, repeats=3,
    flags={"only": command.parts_flag(ENGINES)},
    requirements="requirements/peers.txt -r requirements/engines.txt")
