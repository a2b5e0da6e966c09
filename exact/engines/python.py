"""Enumerate the verifiers of transformers and mlx-lm by exact/law.py.

transformers   _speculative_sampling of generation/utils.py
mlx-lm         speculative_generate_step of generate.py

The engines' random calls are replaced by calls of the rng of exact/law.py, which takes every
outcome in turn. Both functions return the tokens of one round. The toys' rows depend on the
last token alone, so the engines' caches are not tested.
"""

from unittest import mock

import numpy as np

from exact.rules.guesses import DraftGuess
from sampling import sample
from speculative import Model

# ---- transformers

def transformers_round(x, rng, draft: Model, target: Model, K, guess: DraftGuess, **settings):
    """Return the tokens of one round as transformers tests the guesses."""
    import torch
    from transformers.generation import utils

    class ForkingUniforms:
        """Replace a tensor of uniforms; it can only be compared, by `uniforms <= ratios`."""

        def __le__(self, ratios):
            accepted = [bool(rng.random() <= ratio) for ratio in ratios.flatten().tolist()]
            return torch.tensor(accepted).reshape(ratios.shape)

    def multinomial(row, num_samples):
        """Draw one token from a row, [1, V], with the enumerating rng."""
        probs = np.array(row[0].tolist())
        return torch.tensor([[sample(probs, rng)]])

    def logits(rows):  # [k, V] -> [1, k, V]
        return torch.tensor(np.array(rows, dtype=np.float64)).log()[None]

    guesses, p_draft = guess(x, K, rng, draft)
    # the function draws with rand_like and multinomial alone
    with (mock.patch.object(torch, "rand_like", lambda ratios: ForkingUniforms()),
          mock.patch.object(torch, "multinomial", multinomial)):
        ids, _ = utils._speculative_sampling(
            candidate_input_ids=torch.tensor([x + guesses]),
            candidate_logits=logits(p_draft),
            candidate_length=K,
            new_logits=logits(target(x + guesses, K + 1)),
            **settings)
    return ids[0].tolist()


# ---- mlx-lm

def mlx_model(model: Model):
    """Return a toy as a model of mlx-lm; its rows depend on one token, so it has no cache."""
    import mlx.core as mx

    class ToyModel:
        make_cache = list  # mlx-lm calls make_cache() and gets an empty list

        def __call__(self, ids, cache):  # [1, n] -> [1, n, V]
            rows = [model([token], 1)[0] for token in ids[0].tolist()]
            probs = np.array(rows, dtype=np.float32)
            # 1e-30 is added, because 0 has no logarithm
            return mx.array(np.log(probs + 1e-30))[None]

    return ToyModel()


def mlx_round(x, rng, draft: Model, target: Model, K):
    """Return the tokens of one round of mlx-lm, whose sampler is enumerated."""
    import mlx.core as mx
    from mlx_lm.generate import speculative_generate_step

    def sampler(logprobs):  # [n, V] -> [n]
        rows = np.exp(np.array(logprobs, dtype=np.float64))
        rows = np.where(rows < 1e-20, 0, rows)  # the 1e-30 of mlx_model becomes 0 again
        return mx.array([sample(row / row.sum(), rng) for row in rows])

    tokens = speculative_generate_step(
        mx.array(x), mlx_model(target), mlx_model(draft), mx.default_stream(mx.cpu),
        num_draft_tokens=K, max_tokens=K + 1, sampler=sampler)
    ids = []
    for token, _, from_draft in tokens:
        ids.append(int(token))
        # the first token that is not a guess ends the round; every round has one, the
        # replacement or the bonus token
        if not from_draft:
            return ids
