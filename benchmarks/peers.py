"""The same work in transformers on PyTorch, and in a loop without a cache, for benchmarks.speed.

torch and transformers are needed here only (requirements-peers.txt), so they are imported inside
the functions that use them.
"""

import os
from functools import partial

import numpy as np

from huggingface import their_name
from sampling import warped
from speculative import autoregressive_sampling, speculative_sampling
from utils import flatten


def to_transformers(model, hparams):
    """A GPT2LMHeadModel with the weights of one of our GPT2 models, and the same thread count."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(os.cpu_count())
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
    """The model without its memory: every call reads the whole sequence, as in the first articles."""
    def call(ids, n_last=1):
        model.ids = []
        return model(ids, n_last)

    return call


def measure(draft, target, hparams, N, runs, medians, K=4):
    """Seconds of each way to write N greedy tokens, and the ratios that matter."""
    import torch
    from transformers import GenerationConfig

    x, rng = list(range(1, 33)), np.random.default_rng(0)
    peer, peer_draft = (to_transformers(model, hparams | {"n_embd": model.params["wpe"].shape[1],
                                                          "n_head": model.n_head})
                        for model in (target, draft))
    peer_draft.generation_config.num_assistant_tokens = K
    peer_draft.generation_config.num_assistant_tokens_schedule = "constant"
    peer_draft.generation_config.assistant_confidence_threshold = 0
    config = GenerationConfig(max_new_tokens=N, min_new_tokens=N, do_sample=False)

    def transformers_generate(**extra):
        with torch.no_grad():
            peer.generate(torch.tensor([x]), generation_config=config, **extra)

    greedy = partial(warped, temperature=0)
    seconds = medians({
        "plain": lambda: autoregressive_sampling(x, greedy(target), N, rng),
        "speculative": lambda: speculative_sampling(x, greedy(draft), greedy(target), N, K, rng),
        "transformers": transformers_generate,
        "transformers assisted": partial(transformers_generate, assistant_model=peer_draft),
        "uncached": lambda: autoregressive_sampling(x, greedy(forgetful(target)), N, rng),
    }, runs)
    return {f"{name}, tokens a second": N / value for name, value in seconds.items()} | {
        "plain over transformers": seconds["transformers"] / seconds["plain"],
        "speculative over transformers assisted": seconds["transformers assisted"] / seconds["speculative"],
        "plain over uncached": seconds["uncached"] / seconds["plain"],
    }
