"""What the converted pair does, by the project's own NumPy code: acceptance, and samples.

    accepted   guesses that were kept
    examined   guesses that were put to the test: the kept ones and the first that failed
"""
import os

import numpy as np

from gpt2 import GPT2
from sampling import with_sampling
from speculative import complete, draft_and_verify, generate
from utils import load_encoder_hparams_and_params
from variants import Models, build


def load(name, models_dir):
    """One model folder as encoder and GPT2."""
    encoder, hparams, params = load_encoder_hparams_and_params(name, models_dir)
    return encoder, GPT2(params, hparams["n_head"])


def held_out_prompts(ids, n_prompts, n_ids):
    """Pieces of n_ids ids, evenly spaced over a text."""
    starts = np.linspace(0, len(ids) - n_ids, n_prompts).astype(int)
    return [[int(i) for i in ids[s : s + n_ids]] for s in starts]


def step_of(draft, target, folder, K, temperature):
    """A chain of K guesses: by a draft, or, where there is none, by EAGLE's head in `folder`."""
    name = "speculative" if draft else "eagle"
    models = Models(draft, target, {"temperature": temperature}, folder)
    return build(name, models, {"K": K})


def acceptance(prompts, step, N, seed=0):
    """Accepted / examined guesses, and tokens per pass of the target, over all prompts."""
    rng = np.random.default_rng(seed)
    rounds = [round._replace(p_draft=None, p_target=None)  # the rows are large
              for x in prompts for round in generate(x, step, N, rng)]
    accepted, examined = (sum(getattr(round, name) for round in rounds)
                          for name in ("n_accepted", "n_tested"))
    return accepted / examined, sum(len(round.ids) for round in rounds) / len(rounds)


def acceptance_table(models_dir, drafts, target, ids, n_prompts=32, n_ids=64, N=64):
    """{draft: {temperature: [(K, acceptance, tokens per pass), ..]}}, K = 1 .. 8; EAGLE's head too.
    """
    prompts, folder = held_out_prompts(ids, n_prompts, n_ids), os.path.join(models_dir, target)
    target_model = load(target, models_dir)[1]
    models = {draft: load(draft, models_dir)[1] for draft in drafts}
    if os.path.exists(os.path.join(folder, "heads.safetensors")):
        models["eagle"] = None
    return {name: {t: [(K, *acceptance(prompts, step_of(draft, target_model, folder, K, t), N))
                       for K in range(1, 9)] for t in (0.0, 1.0)}
            for name, draft in models.items()}


def samples(models_dir, draft, target, prompt="Once upon a time there was a", N=120):
    """Texts at temperature 0, 0.7 and 1: the first draw of seed 0, as it came."""
    (encoder, target_model), draft_model = load(target, models_dir), load(draft, models_dir)[1]
    x, texts = encoder.encode(prompt), {}
    N = min(N, target_model.n_ctx - len(x))
    for t in (0.0, 0.7, 1.0):
        models = [with_sampling(m, temperature=t) for m in (draft_model, target_model)]
        ids = complete(x, draft_and_verify(*models, 4), N, np.random.default_rng(0),
                       stop={encoder.end_of_text})
        texts[t] = encoder.decode(ids)
    return texts
