"""The bundled pair in other engines, as exported: the same greedy texts, and as many tokens a pass?

    python -m benchmarks.engines                     # transformers and llama.cpp, where installed
    python -m benchmarks.engines --N 100 --repeats 10 --json engines.json

    same           openings whose greedy text, speculative, is ours; ours is plain decoding's
    tokens/pass    new tokens / passes of the target, at temperature 0 and 1 (several seeds)
    tokens/s       of speculative and of plain decoding, greedy; one text at a time

Precision is float32 everywhere, and one thread: the pair fits the cache. transformers needs
requirements/peers.txt, llama.cpp requirements/engines.txt; one that is missing is left out, and
named.
"""

import argparse
import importlib.util
import json
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks import llama
from benchmarks.prompts import OPENINGS
from benchmarks.tables import number, table
from gpt2 import GPT2
from speculative import autoregressive_step, draft_and_verify, generate
from tools import export_hf
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants.match import DECODER as MATCH
from variants.registry import Models

NAMES = {"target": "tales-large", "draft": "tales-small"}
NEEDS = {"transformers": ("torch", "transformers"), "llama.cpp": ("xllamacpp", "gguf")}


def ours(loaded, K, verify="ratio"):
    """A function (opening, N, temperature, seed, speculative) -> (ids, passes): our own loop."""
    encoder = loaded["target"][0]

    def write(opening, N, temperature, seed, speculative):
        bare = {role: GPT2(params, hparams["n_head"])
                for role, (_, hparams, params) in loaded.items()}
        models = Models(bare["draft"], bare["target"],
                        dict(temperature=temperature, top_k=0, top_p=1.0, repetition_penalty=1.0))
        target = models.probabilities("target")
        if not speculative:
            step = partial(autoregressive_step, model=target)
        elif verify == "ratio":
            step = draft_and_verify(models.probabilities("draft"), target, K)
        else:
            step = MATCH.build(models, K=K, guesses="best")
        rounds = list(generate(encoder.encode(opening), step, N, np.random.default_rng(seed)))
        return [token for round in rounds for token in round.ids], len(rounds)

    return write


def transformers_engine(folder, loaded, K):
    """The same from transformers, on the folders that tools.export_hf writes."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(1)
    models, passes = {}, []
    for role, (encoder, hparams, params) in loaded.items():
        export_hf.export(folder / role, encoder, hparams, params)
        models[role] = AutoModelForCausalLM.from_pretrained(folder / role).eval()
    settings = models["draft"].generation_config
    settings.num_assistant_tokens, settings.assistant_confidence_threshold = K, 0
    settings.num_assistant_tokens_schedule = "constant"
    models["target"].register_forward_hook(lambda *args: passes.append(1))
    encode = loaded["target"][0].encode

    def write(opening, N, temperature, seed, speculative):
        torch.manual_seed(seed)
        passes.clear()
        x, how = encode(opening), {"do_sample": False}
        if temperature:
            how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        config = GenerationConfig(max_new_tokens=N, min_new_tokens=N, pad_token_id=0, **how)
        extra = {"assistant_model": models["draft"]} if speculative else {}
        with torch.no_grad():
            ids = models["target"].generate(torch.tensor([x]), generation_config=config, **extra)
        return ids[0, len(x) :].tolist(), len(passes)

    yield write


def llama_engine(folder, loaded, K):
    """The same from llama.cpp, on the files that tools.export_gguf writes."""
    from tools import export_gguf  # needs the package gguf

    for role, model in loaded.items():
        export_gguf.export(folder / f"{role}.gguf", *model)
    encode, paths = loaded["target"][0].encode, (folder / "target.gguf", folder / "draft.gguf")

    def write(opening, N, temperature, seed, speculative):
        answer = llama.complete(urls[speculative], encode(opening), N, temperature=temperature,
                                seed=seed, top_k=0, top_p=1.0, min_p=0.0)
        return answer["tokens"], N - answer["timings"].get("draft_n_accepted", 0)

    with (llama.server(paths[0], n_threads=1) as plain,
          llama.server(*paths, K=K, n_threads=1) as speculative):
        urls = {False: plain, True: speculative}
        yield write


def measure(write, truth, N, repeats, seeds):
    """One line of the table."""
    same, passes, seconds = 0, {0: 0, 1: 0}, {False: [], True: []}
    for opening in OPENINGS:
        for _ in range(repeats):
            for speculative in (False, True):
                start = time.perf_counter()
                ids, n_passes = write(opening, N, 0.0, 0, speculative)
                seconds[speculative].append(time.perf_counter() - start)
        same, passes[0] = same + (ids == truth[opening]), passes[0] + n_passes
    for seed in range(seeds):
        passes[1] += sum(write(opening, N, 1.0, seed, True)[1] for opening in OPENINGS)
    n_ids, rate = N * len(OPENINGS), lambda all: N / float(np.median(all))
    return {"same": same, "tokens_per_pass_0": n_ids / passes[0],
            "tokens_per_pass_1": seeds * n_ids / passes[1],
            "tokens_per_s": rate(seconds[True]), "plain_tokens_per_s": rate(seconds[False])}


def show(rows):
    """The table as Markdown."""
    heads = ["engine", "same greedy texts", "tokens/pass, 0", "tokens/pass, 1", "tokens/s", "plain"]
    print(table(heads, [[name, f"{row['same']} of {len(OPENINGS)}",
                         number(row["tokens_per_pass_0"]), number(row["tokens_per_pass_1"]),
                         number(row["tokens_per_s"], "{:.0f}"),
                         number(row["plain_tokens_per_s"], "{:.0f}")]
                        for name, row in rows.items()]))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--N", type=int, default=60, help="new tokens a text")
    parser.add_argument("--K", type=int, default=4, help="guesses per round")
    parser.add_argument("--repeats", type=int, default=3, help="of every greedy text")
    parser.add_argument("--seeds", type=int, default=10, help="texts an opening, at temperature 1")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--show", type=Path, help="only print the table of such a file")
    args = parser.parse_args(argv)
    if args.show:
        return show(json.loads(args.show.read_text(encoding="utf-8")))
    loaded = {role: load_encoder_hparams_and_params(name, MODELS_DIR)
              for role, name in NAMES.items()}
    truth = {opening: ours(loaded, args.K)(opening, args.N, 0.0, 0, False)[0]
             for opening in OPENINGS}
    rows = {}
    engines = {"here, ratio test": lambda *_: iter([ours(loaded, args.K)]),
               "here, match": lambda *_: iter([ours(loaded, args.K, "match")]),
               "transformers": transformers_engine, "llama.cpp": llama_engine}
    for name, engine in tqdm(engines.items(), disable=None):
        missing = [need for need in NEEDS.get(name, ()) if not importlib.util.find_spec(need)]
        if missing:
            print(f"{name}: left out, {' and '.join(missing)} not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            for write in engine(Path(folder), loaded, args.K):
                rows[name] = measure(write, truth, args.N, args.repeats, args.seeds)
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
