"""Run the same work here, in transformers and in llama.cpp: same texts, and how many per second.

    python -m benchmarks.engines --json benchmarks/results/engines.json
    python -m benchmarks.engines --size 124M --json benchmarks/results/engines-124M.json
    python -m benchmarks.engines --only llama.cpp --N 20

    same          prompts whose greedy texts, plain and speculative, are our plain decoding's
    tokens/pass   new tokens / passes of the target, at temperature 0 and 1 (several seeds)
    tokens/s      speculative and plain, greedy, one text at a time, by the median

A released size has one text, random weights and the two ends of the scale: a draft that is never
right, and one that always is. Weights, keys and values are float32 everywhere, and every engine
has as many threads as our products. transformers needs requirements/peers.txt, llama.cpp
requirements/engines.txt; what is not installed is left out.
"""

import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks import command
from benchmarks.clock import machine
from benchmarks.command import about, number, table
from benchmarks.models import SIZES, agreeing, load, sizes
from benchmarks.prompts import LENGTH, OPENINGS, named
from encoder import Encoder, byte_characters
from gpt2 import GPT2
from lib.backend import products
from lib.checkpoints.huggingface import their_name
from lib.checkpoints.weights import flatten
from speculative import generate
from variants import Models, build, build_plain
from variants.registry import whole_from_0


def n_threads(model):
    """Return the number of threads of our passes: one if no weight is large enough to share."""
    shared = any(weight.size >= products.SHARED for _, weight in flatten(model.params))
    return products.N_THREADS if shared else 1


# ---- the engines: each returns write(x, N, temperature, seed, speculative) -> (ids, passes)

class Forgetful(GPT2):
    """Our model without its cache: every call reads all ids, as in the first articles."""

    def __call__(self, ids, n_last=1):
        self.ids = []
        return super().__call__(ids, n_last)


def ours(stack, encoder, draft, target, K, decoder="speculative", kind=GPT2):
    """Return our own loop, with models that have read nothing."""
    def write(x, N, temperature, seed, speculative):
        fresh = [kind(model.params, model.n_head) for model in (draft, target)]
        models = Models(*fresh, {"temperature": temperature})
        step = (build(decoder, models, {"K": K}) if speculative
                else build_plain("speculative", models))
        rounds = list(generate(x, step, N, np.random.default_rng(seed)))
        return [token for round in rounds for token in round.ids], len(rounds)

    return write


def to_transformers(model):
    """Return a GPT2LMHeadModel with our weights; its Conv1D keeps [n_in, n_out], too."""
    import torch  # here: it takes seconds to import
    from transformers import GPT2Config, GPT2LMHeadModel

    hparams = sizes(model)
    config = GPT2Config(vocab_size=hparams.pop("n_vocab"), n_positions=hparams.pop("n_ctx"),
                        eos_token_id=None, bos_token_id=None, **hparams)
    state = {f"transformer.{their_name(name)}": torch.from_numpy(np.array(weight, order="C"))
             for name, weight in flatten(model.params)}
    peer = GPT2LMHeadModel(config).eval().to(state["transformer.wte.weight"].dtype)
    peer.load_state_dict(state, strict=False)  # the unembedding is wte
    return peer


def transformers_engine(stack, encoder, draft, target, K):
    """Return transformers' generate, plain or assisted by the draft."""
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(n_threads(target))
    assistant, peer, passes = to_transformers(draft), to_transformers(target), []
    settings = assistant.generation_config
    settings.num_assistant_tokens, settings.assistant_confidence_threshold = K, 0
    settings.num_assistant_tokens_schedule = "constant"
    peer.register_forward_hook(lambda *args: passes.append(1))

    def write(x, N, temperature, seed, speculative):
        torch.manual_seed(seed)
        passes.clear()
        how = dict(do_sample=True, temperature=temperature, top_k=0) if temperature else {}
        config = GenerationConfig(max_new_tokens=N, min_new_tokens=N, pad_token_id=0, **how)
        extra = {"assistant_model": assistant} if speculative else {}
        with torch.no_grad():
            ids = peer.generate(torch.tensor([x]), generation_config=config, **extra)
        return ids[0, len(x) :].tolist(), len(passes)

    return write


def llama_engine(stack, encoder, draft, target, K):
    """Run llama.cpp's servers, without and with a draft, on files of tools.export_gguf."""
    import requests

    from tools import export_gguf  # here: it needs the package gguf

    def write(x, N, temperature, seed, speculative):
        asked = {"prompt": x, "n_predict": N, "temperature": temperature, "seed": seed, "top_k": 0,
                 "top_p": 1.0, "min_p": 0.0, "cache_prompt": False, "ignore_eos": True,
                 "return_tokens": True}
        answer = requests.post(f"{urls[speculative]}/completion", json=asked, timeout=300)
        answer.raise_for_status()
        ids, timings = answer.json()["tokens"], answer.json()["timings"]
        return ids, N - timings.get("draft_n_accepted", 0)  # a pass brings one token more

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    paths = [folder / name for name in ("target.gguf", "draft.gguf")]
    for path, model in zip(paths, (target, draft)):
        export_gguf.export(path, encoder or nameless(model.n_vocab), sizes(model), model.params)
    urls = [stack.enter_context(server(files, K, target)) for files in (paths[:1], paths)]
    return write


def nameless(n_vocab):
    """Return the vocabulary that a GGUF file needs, for tokens that are numbers only."""
    symbols = [*byte_characters().values(), "ab", *(f"<{i}>" for i in range(n_vocab))][:n_vocab]
    return Encoder({symbol: id for id, symbol in enumerate(symbols)}, [("a", "b")])


@contextmanager
def server(paths, K, target):
    """Run llama.cpp's server with one or two GGUF files; yield its URL."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    draft, pools = params.speculative.draft, [params.cpuparams, params.cpuparams_batch]
    params.model.path, params.n_ctx, params.n_parallel = str(paths[0]), target.n_ctx, 1
    params.verbosity, params.hostnames = 0, ["127.0.0.1"]
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if paths[1:]:
        kinds = xllamacpp.common_speculative_type
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft.mparams.path, draft.n_max, draft.n_min, draft.p_min = str(paths[1]), K, 1, 0.0
        draft.cache_type_k = draft.cache_type_v = params.cache_type_k
        pools += [draft.cpuparams, draft.cpuparams_batch]
    for pool in pools:
        pool.n_threads = n_threads(target)
    running = xllamacpp.Server(params)
    try:
        yield running.listening_address
    finally:
        del running  # this ends it


ENGINES = {"here": ours, "here, match": partial(ours, decoder="match"),
           "here, no cache": partial(ours, kind=Forgetful), "transformers": transformers_engine,
           "llama.cpp": llama_engine}
NEEDS = {"transformers": "transformers", "llama.cpp": "xllamacpp"}
INSTALLED = [name for name in ENGINES if name not in NEEDS or find_spec(NEEDS[name])]


# ---- the table

def measure(args):
    """Return the figures of one size."""
    encoder, draft, target = load(args.size)
    xs, pairs = [list(range(1, 33))], {"": (draft, target)}
    if encoder:
        xs = [encoder.encode(opening) for opening in OPENINGS]
    else:
        first, target = agreeing(target, len(draft.params["blocks"]))
        pairs = {", all rejected": (draft, target), ", all accepted": (first, target)}
    rows = {name + end: measure_one(ENGINES[name], (encoder, *pair), xs, args)
            for name in args.only for end, pair in pairs.items()}
    return machine() | {"size": args.size, "K": args.K, "texts": named(len(xs), args.N),
                        "rows": rows}


def measure_one(engine, pair, xs, args):
    """Return one row of the table."""
    n_same, passes, seconds = 0, [0, 0], {False: [], True: []}
    with ExitStack() as stack:
        our_write, write = ours(stack, *pair, args.K), engine(stack, *pair, args.K)
        for x in xs:
            truth, _ = our_write(x, args.N, 0.0, 0, False)
            write(x, 2, 0.0, 0, True)  # a warm-up
            for speculative in [False, True] * args.repeats:
                start = time.perf_counter()
                ids, n_passes = write(x, args.N, 0.0, 0, speculative)
                seconds[speculative].append(time.perf_counter() - start)
            n_same, passes[0] = n_same + (ids == truth), passes[0] + n_passes
            passes[1] += sum(write(x, args.N, 1.0, seed, True)[1] for seed in range(args.seeds))
    n_ids = args.N * len(xs)
    return {"same": n_same, "texts": len(xs), "tokens_per_pass_0": n_ids / passes[0],
            "tokens_per_pass_1": args.seeds * n_ids / passes[1] if passes[1] else None,
            "tokens_per_s": args.N / float(np.median(seconds[True])),
            "plain_tokens_per_s": args.N / float(np.median(seconds[False]))}


def tell(figures, args):
    """Yield the paragraphs of a file."""
    yield f"{figures['size']}, K = {figures['K']}, {figures['texts']}. {about(figures)}\n"
    yield table(["engine", "same", "tokens/pass at 0", "at 1", "tokens/s", "plain tokens/s"],
                [[name, f"{number(row['same'], '{}')} of {row['texts']}",
                  number(row["tokens_per_pass_0"]), number(row["tokens_per_pass_1"]),
                  number(row["tokens_per_s"], "{:.1f}"),
                  number(row["plain_tokens_per_s"], "{:.1f}")]
                 for name, row in figures["rows"].items()])


def main(argv=None):
    parser = command.new_parser("benchmarks.engines", __doc__)
    add = parser.add_argument
    add("--size", choices=SIZES, default="pair")
    add("--only", nargs="+", choices=ENGINES, default=INSTALLED, help="default: all installed")
    add("--N", type=command.positive, default=LENGTH, help="new tokens per text")
    add("--K", type=command.positive, default=4, help="guesses per round")
    add("--repeats", type=command.positive, default=3, help="runs of every greedy text")
    add("--seeds", type=whole_from_0, default=16, help="texts per prompt at temperature 1")
    return command.run("engines", parser.parse_args(argv), measure, tell)


if __name__ == "__main__":
    sys.exit(main())
