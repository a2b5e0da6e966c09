"""Enumerate the verifiers that engines ship: installed packages are called, nothing is paraphrased.

    python -m exact.engines

An engine's two or three random calls are replaced by ones that fork (exact/law.py), and its
distribution of K + 1 tokens is compared with the target's: one round, then the target. The toys are
those of exact/rules.py, K = 1, 2, 3. A package that is not installed is named and left out:

    pip install transformers torch        transformers: generation/utils.py, _speculative_sampling
    pip install mlx-lm "mlx[cpu]"         mlx-lm: generate.py, speculative_generate_step

The toys' rows depend on the last token only, so the caches of an engine are not tested.
"""

import importlib
import importlib.metadata
from collections import defaultdict
from functools import partial
from unittest import mock

import numpy as np

from exact.law import law, text_law, total_variation
from exact.rules import TOYS, X, as_drawn, best, mapped
from lib.markdown import markdown_table
from lib.terminal import Parser
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
        ids, _ = utils._speculative_sampling(torch.tensor([x + guesses]), logits(p_draft), K,
                                             logits(target(x + guesses, K + 1)), **settings)
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

drawn, argmax = guess, partial(as_drawn, guess=best)
ENGINES = {  # package: (module, what rounding may add up to, [(guesses in words, one round)])
    "transformers": ("transformers.generation.utils", 1e-12, [
        ("drawn, with their rows", partial(transformers_round, guess=drawn)),
        ("argmax, with softmax rows", partial(transformers_round, guess=argmax)),
        ("drawn, `assistant_ensemble_weight` 0.5",
         partial(transformers_round, guess=drawn, assistant_ensemble_weight=0.5))]),
    "mlx-lm": ("mlx_lm.generate", 1e-6, [("drawn by its sampler", mlx_round)]),
}


def find(one_round, toy, K):
    """Return the distance of K + 1 tokens: one round of the engine, then the target."""
    draft, target = (mapped(model, np.float64) for model in TOYS[toy])
    texts = defaultdict(float)
    for ids, p in law(lambda rng: one_round(list(X), rng, draft, target, K)).items():
        for text, rest in text_law((*X, *ids), target, K + 1 - len(ids)).items():
            texts[text] += p * rest
    return total_variation(texts, text_law(X, target, K + 1))


def is_installed(package):
    """Return whether it can be imported; do so, because imports draw random numbers."""
    try:
        importlib.import_module(ENGINES[package][0])
    except ImportError:
        return False
    return True


def rows(package):
    """Yield a line of the table for each case of an installed package."""
    _, limit, cases = ENGINES[package]
    name = f"{package} {importlib.metadata.version(package)}"
    for words, one_round in cases:
        found = [[find(one_round, toy, K) for K in (1, 2, 3)] for toy in TOYS]
        yield [name, words, "exact" if max(map(max, found)) < limit else "**no**",
               *(" ".join("0" if distance < limit else f"{distance:.4f}" for distance in distances)
                 for distances in found)]


def main(argv=None):
    parser = Parser("python -m exact.engines", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    installed = [package for package in ENGINES if is_installed(package)]
    head = ["engine", "guesses", "exact?", *(f"toy {toy}, K = 1, 2, 3" for toy in TOYS)]
    print(markdown_table(head, [row for package in installed for row in rows(package)]))
    for package in ENGINES.keys() - installed:
        print(f"\nNot installed, so left out: {package}")


if __name__ == "__main__":
    main()
