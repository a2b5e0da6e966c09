"""The same work in transformers, in llama.cpp, and in a loop without a cache, for benchmarks.speed.

    pair       the draft and the target that are given
    agreeing   a target whose later layers add nothing, and a draft that is its first ones: every
               guess is kept, by us and by them, and every pass costs what it always does

All have as many threads as our products, and weights, keys and values in float32. torch and
transformers (requirements/peers.txt) are imported inside the functions that use them; llama.cpp
(requirements/engines.txt) is left out where it is not installed.
"""

import importlib.util
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from lib.backend import products
from benchmarks import llama
from benchmarks.clock import interleaved, spread
from lib.checkpoints.huggingface import their_name
from lib.checkpoints.weights import flatten
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling, speculative_sampling

PROMPT = list(range(1, 33))


def n_threads(model):
    """How many threads our passes have: one where no weight is large enough to be shared."""
    shared = any(weight.size >= products.SHARED for _, weight in flatten(model.params))
    return products.N_THREADS if shared else 1


def to_transformers(model, hparams):
    """A GPT2LMHeadModel with the weights of one of our GPT2 models."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=hparams["n_vocab"], n_positions=hparams["n_ctx"],
                        n_embd=hparams["n_embd"], n_head=hparams["n_head"],
                        n_layer=len(model.params["blocks"]), eos_token_id=None, bos_token_id=None)
    peer = GPT2LMHeadModel(config).eval()
    peer.load_state_dict(state_dict(model.params), strict=False)
    return peer


def state_dict(params):
    """Our tree of weights under transformers' names (its Conv1D keeps [n_in, n_out] too)."""
    import torch

    tensor = lambda array: torch.from_numpy(np.array(array, order="C"))
    state = {f"transformer.{their_name(name)}": tensor(weight) for name, weight in flatten(params)}
    return state | {"lm_head.weight": state["transformer.wte.weight"]}


def forgetful(model):
    """The model without its memory: every call reads all ids, as in the first articles."""
    def call(ids, n_last=1):
        model.ids = []
        return model(ids, n_last)

    return call


def agreeing(target, n_layers):
    """(draft, target) of one text: the target's first layers, and all, the others silenced."""
    def silent(block):
        return {**block, "attn": block["attn"] | {"c_proj": zeros(block["attn"]["c_proj"])},
                "mlp": block["mlp"] | {"c_proj": zeros(block["mlp"]["c_proj"])}}

    zeros = lambda linear: {name: 0 * weight for name, weight in linear.items()}
    blocks = target.params["blocks"]
    first, all_of_them = blocks[:n_layers], blocks[:n_layers] + list(map(silent, blocks[n_layers:]))
    return [GPT2(target.params | {"blocks": some}, target.n_head) for some in (first, all_of_them)]


def speculation(draft, target, hparams, K):
    """{name: function of N} of one pair: ours and theirs, greedy."""
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(n_threads(target))
    ours = [with_sampling(model, temperature=0) for model in (draft, target)]
    peer_draft, peer = (to_transformers(model, sizes(model, hparams)) for model in (draft, target))
    peer_draft.generation_config.num_assistant_tokens = K
    peer_draft.generation_config.num_assistant_tokens_schedule = "constant"
    peer_draft.generation_config.assistant_confidence_threshold = 0

    def theirs(N, **extra):
        config = GenerationConfig(max_new_tokens=N, min_new_tokens=N, do_sample=False)
        with torch.no_grad():
            ids = peer.generate(torch.tensor([PROMPT]), generation_config=config, **extra)
        return ids[0].tolist()

    rng = np.random.default_rng(0)
    return {
        "plain": lambda N: autoregressive_sampling(PROMPT, ours[1], N, rng),
        "speculative": lambda N: speculative_sampling(PROMPT, *ours, N, K, rng),
        "transformers": theirs,
        "transformers assisted": partial(theirs, assistant_model=peer_draft),
    }


def sizes(model, hparams):
    """The hparams of one of our models; n_vocab and n_ctx are the pair's."""
    return hparams | {"n_embd": model.params["wpe"].shape[1], "n_head": model.n_head,
                      "n_layer": len(model.params["blocks"])}


def in_llama(running, names, draft, target, hparams, K):
    """{name: function of N} of llama.cpp's servers, which end with the ExitStack `running`."""
    if not all(map(importlib.util.find_spec, ("xllamacpp", "gguf"))):
        return {}
    from tools import export_gguf

    folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
    paths = [folder / "target.gguf", folder / "draft.gguf"]
    for path, model in zip(paths, (target, draft)):
        export_gguf.export(path, nameless(hparams["n_vocab"]), sizes(model, hparams), model.params)
    server = partial(llama.server, K=K, n_threads=n_threads(target))
    models = {"llama.cpp": paths[:1], "llama.cpp speculative": paths}
    urls = {name: running.enter_context(server(*models[name])) for name in names}
    return {name: partial(llama.complete, url, PROMPT) for name, url in urls.items()}


def nameless(n_vocab):
    """A vocabulary for those who want one: the tokens here are numbers only."""
    return SimpleNamespace(n_vocab=n_vocab, vocab={f"<{i}>": i for i in range(n_vocab)},
                           ranks={("a", "b"): 0}, end_of_text=None)


def decoders(running, draft, target, hparams, K):
    """{name: function of N}: both pairs, and llama.cpp on both."""
    theirs = partial(in_llama, running)
    named = speculation(draft, target, hparams, K) | theirs(
        ["llama.cpp", "llama.cpp speculative"], draft, target, hparams, K)
    agreed = agreeing(target, len(draft.params["blocks"]))
    more = speculation(*agreed, hparams, K) | theirs(
        ["llama.cpp speculative"], *agreed, hparams, K)
    return named | {f"{name}, agreeing": decode for name, decode in more.items()
                    if name.endswith(("speculative", "assisted"))}


def measure(draft, target, hparams, N, runs, K=4):
    """Tokens a second of each way to write N greedy tokens, and the ratios that matter.

    The loop without a cache runs once, for it takes minutes.
    """
    forgets = with_sampling(forgetful(target), temperature=0)
    uncached = lambda N: autoregressive_sampling(PROMPT, forgets, N, np.random.default_rng(0))
    with ExitStack() as running:
        named = decoders(running, draft, target, hparams, K)
        for decode in [*named.values(), uncached]:
            decode(2)
        actions = {name: partial(decode, N) for name, decode in named.items()}
        times = interleaved(actions, runs, warm=False)
        times |= interleaved({"uncached": partial(uncached, N)}, 1, warm=False)
    return {"tokens": N, "K": K, "ratios": ratios(times),
            "tokens_per_s": {name: spread([N / s for s in all]) for name, all in times.items()}}


def ratios(times):
    """How many times faster ours is, by medians."""
    over = lambda ours, theirs: float(np.median(times[theirs]) / np.median(times[ours]))
    return {f"{ours} over {theirs}": over(ours, theirs) for ours, theirs in [
        ("plain", "transformers"), ("speculative", "transformers assisted"),
        ("speculative, agreeing", "transformers assisted, agreeing"), ("plain", "llama.cpp"),
        ("speculative, agreeing", "llama.cpp speculative, agreeing"), ("plain", "uncached")]
        if theirs in times}
