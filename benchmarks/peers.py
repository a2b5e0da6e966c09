"""The same work in transformers on PyTorch, and in a loop without a cache, for benchmarks.speed.

    pair       the draft and the target that are given
    agreeing   a target whose later layers add nothing, and a draft that is its first ones: every
               guess is kept, by us and by them, and every pass costs what it always does

torch and transformers are needed here only (requirements/peers.txt), so they are imported inside
the functions that use them.
"""

from functools import partial

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.clock import interleaved, spread
from checkpoints.huggingface import their_name
from checkpoints.weights import flatten
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling, speculative_sampling

PROMPT = list(range(1, 33))


def to_transformers(model, hparams):
    """A GPT2LMHeadModel with the weights of one of our GPT2 models, and the same thread count."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(max(pool["num_threads"] for pool in threadpool_info()
                              if pool["user_api"] == "blas"))
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

    ours = [with_sampling(model, temperature=0) for model in (draft, target)]
    peer_draft, peer = (to_transformers(model, hparams | {"n_embd": model.params["wpe"].shape[1],
                                                          "n_head": model.n_head})
                        for model in (draft, target))
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


def decoders(draft, target, hparams, K):
    """{name: function of N}: both pairs."""
    more = speculation(*agreeing(target, len(draft.params["blocks"])), hparams, K)
    return speculation(draft, target, hparams, K) | {
        f"{name}, agreeing": more[name] for name in ("speculative", "transformers assisted")}


def measure(draft, target, hparams, N, runs, K=4):
    """Tokens a second of each way to write N greedy tokens, and the ratios that matter.

    The loop without a cache runs once, for it takes minutes.
    """
    named = decoders(draft, target, hparams, K)
    forgets = with_sampling(forgetful(target), temperature=0)
    uncached = lambda N: autoregressive_sampling(PROMPT, forgets, N, np.random.default_rng(0))
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
        ("speculative, agreeing", "transformers assisted, agreeing"), ("plain", "uncached")]}
