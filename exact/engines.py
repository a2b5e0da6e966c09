"""Run the verifiers that engines ship: what is installed is called, nothing is paraphrased.

    python -m exact.engines                  # all that is installed, for minutes
    python -m exact.engines --only vllm      # this one

transformers   _speculative_sampling of generation/utils.py: its random calls fork, as in law.py
mlx-lm         speculative_generate_step of generate.py, in the same way
sglang, vllm   Triton kernels, on a CPU by Triton's interpreter: triton_kernels.py
xllamacpp, openvino-genai    whole programs, so their texts are sampled: samplers.py

All but the last two are enumerated: the distribution of K + 1 tokens, one round and then the
target, on the toys of exact/rules.py. Those rows depend on the last token only, so the engines'
caches are not tested. requirements/verifiers.txt says how to install the packages.
"""

import datetime
import importlib.metadata
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import NamedTuple
from unittest import mock

import numpy as np

from exact.law import law, text_law, total_variation
from exact.rules import TOYS, X, as_drawn, best, mapped
from exact.samplers import SAMPLED, explanation, sampled_rows
from exact.triton_kernels import load_sglang, load_vllm, round_of, sglang, vllm_gpu, vllm_sample
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from sampling import sample
from speculative import guess

# ---- transformers

def transformers_round(x, rng, draft, target, K, guess, **settings):
    """Return the tokens of one round as transformers tests the guesses."""
    import torch
    from transformers.generation import utils

    class Uniforms:
        """Stand for a tensor of uniforms of which only the comparisons are known."""

        def __le__(self, ratios):
            accepted = [bool(rng.random() <= ratio) for ratio in ratios.flatten().tolist()]
            return torch.tensor(accepted).reshape(ratios.shape)

    def multinomial(row, num_samples):
        return torch.tensor([[sample(np.array(row[0].tolist()), rng)]])

    def logits(rows):
        return torch.tensor(np.array(rows, dtype=np.float64)).log()[None]

    guesses, p_draft = guess(x, K, rng, draft)
    with (mock.patch.object(torch, "rand_like", lambda ratios: Uniforms()),
          mock.patch.object(torch, "multinomial", multinomial)):
        ids, _ = utils._speculative_sampling(
            candidate_input_ids=torch.tensor([x + guesses]),
            candidate_logits=logits(p_draft),
            candidate_length=K,
            new_logits=logits(target(x + guesses, K + 1)),
            **settings)
    return ids[0].tolist()


# ---- mlx-lm

def mlx_model(model):
    """Return a toy as a model of mlx-lm: one without a cache, because a row needs one token."""
    import mlx.core as mx

    def call(ids, cache):
        rows = [model([token])[0] for token in ids[0].tolist()]
        return mx.array(np.log(np.array(rows, dtype=np.float32) + 1e-30))[None]

    call.make_cache = list
    return call


def mlx_round(x, rng, draft, target, K):
    """Return the tokens of one round as mlx-lm guesses and tests, with a sampler that forks."""
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step

    def draw(logprobs):
        rows = np.exp(np.array(logprobs, dtype=np.float64))
        rows = np.where(rows < 1e-20, 0, rows)
        return mx.array([sample(row / row.sum(), rng) for row in rows])

    ids = []
    for token, _, from_draft in speculative_generate_step(
            mx.array(x), mlx_model(target), mlx_model(draft), mx.default_stream(mx.cpu),
            num_draft_tokens=K, max_tokens=K + 1, sampler=draw):
        ids.append(int(token))
        if not from_draft:
            return ids


# ---- all of them

class Engine(NamedTuple):
    """Hold what loads an engine, what rounding may add up to, and its settings."""

    load: Callable
    rounding: float
    rounds: dict  # {guesses in words: one round}


argmax = partial(as_drawn, guess=best)
ENGINES = {  # package: Engine
    "transformers": Engine(partial(import_module, "transformers.generation.utils"), 1e-12, {
        "drawn, with their rows": partial(transformers_round, guess=guess),
        "argmax, with softmax rows": partial(transformers_round, guess=argmax),
        "drawn, `assistant_ensemble_weight` 0.5":
            partial(transformers_round, guess=guess, assistant_ensemble_weight=0.5)}),
    "mlx-lm": Engine(partial(import_module, "mlx_lm.generate"), 1e-6, {
        "drawn by its sampler": mlx_round}),
    "sglang": Engine(load_sglang, 1e-5, {
        "drawn": round_of(sglang),
        "drawn, block verification": round_of(sglang, block_verification=True)}),
    "vllm": Engine(load_vllm, 1e-5, {
        "v1/sample: drawn": round_of(vllm_sample),
        "v1/sample: one-hot": round_of(vllm_sample, one_hot=True),
        "v1/worker/gpu: drawn": round_of(vllm_gpu),
        "v1/worker/gpu: one-hot": round_of(vllm_gpu, one_hot=True),
        "v1/worker/gpu: drawn, block verification":
            round_of(vllm_gpu, block_verification=True),
        "v1/worker/gpu: one-hot, block verification":
            round_of(vllm_gpu, one_hot=True, block_verification=True)}),
}


def distance(one_round, toy, K):
    """Return the distance of K + 1 tokens: one round of the engine, then the target."""
    draft, target = (mapped(model, np.float64) for model in TOYS[toy])
    texts = defaultdict(float)
    for ids, p in law(lambda rng: one_round(list(X), rng, draft, target, K)).items():
        for text, rest in text_law((*X, *ids), target, K + 1 - len(ids)).items():
            texts[text] += p * rest
    return total_variation(texts, text_law(X, target, K + 1))


def reason_to_leave_out(load):
    """Load an engine now, because imports draw random numbers; return "" or what is missing."""
    try:
        load()
    except (ImportError, OSError) as error:  # a package, or a file of a package
        return str(error)
    return ""


def rows(package):
    """Yield the lines of an installed engine; settings with equal distances share one."""
    engine = ENGINES[package]
    settings = defaultdict(list)
    for words, one_round in engine.rounds.items():
        found = [[distance(one_round, toy, K) for K in (1, 2, 3)] for toy in TOYS]
        exact = max(map(max, found)) < engine.rounding
        cells = [" ".join("0" if far < engine.rounding else f"{far:.4f}" for far in distances)
                 for distances in found]
        settings["exact" if exact else "**no**", *cells].append(words)
    for cells, words in settings.items():
        yield [with_version(package), "; ".join(words), *cells]


def with_version(package):
    return f"{package} {importlib.metadata.version(package)}"


def tables(packages):
    """Yield the tables of installed engines: those that are enumerated, then those sampled."""
    enumerated = [row for package in packages if package in ENGINES for row in rows(package)]
    if enumerated:
        toys = [f"toy {toy}, K = 1, 2, 3" for toy in TOYS]
        yield markdown_table(["engine", "guesses", "exact?", *toys], enumerated)
    sampled = [[with_version(package), *row] for package in packages if package in SAMPLED
               for row in sampled_rows(package)]
    if sampled:
        yield markdown_table(["engine", "guesses", "exact?", "distance"], sampled)
        yield explanation()


@command("exact.engines", "requirements/verifiers.txt")
def main(argv=None):
    """Print what was found of the engines that are installed, and which are not."""
    everything = ENGINES | SAMPLED
    parser = Parser("python -m exact.engines", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=everything, metavar="ENGINE",
                        default=[*everything], help=", ".join(everything))
    only = parser.parse_args(argv).only
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    reasons = {package: reason_to_leave_out(everything[package].load) for package in only}
    print_safely(f"Run on {datetime.date.today()}.\n", sys.stdout)
    for table in tables([package for package in only if not reasons[package]]):
        print_safely(f"{table}\n", sys.stdout)
    for package, reason in reasons.items():
        if reason:
            print_safely(f"Left out: {package} ({reason})", sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
