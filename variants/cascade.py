"""Narasimhan et al. (2025), "Faster Cascades via Speculative Decoding". Not lossless.

Adds to speculative.py: a target distribution between draft and target. At each position a rule
chooses one model's row; the ratio test gets the chosen row as the target's, so the text has
exactly the distribution that the rule defines.

    pi         the cascade's distribution:  pi(.|x) = (1 - r) p_draft + r p_target
    r          1: the cascade defers to the target    0: the draft decides
    alpha      the price of deferring (not the acceptance rate that theory/ calls alpha)
    TV         total variation distance of the two rows: the probability of a rejection

Rule OPT: r = 1 if and only if max p_draft < max p_target - alpha TV. (The paper writes q for
the draft, p for the target, gamma for K.) The largest entries differ by at most TV, so the text
is the draft's for alpha >= 1 and the target's below -1; at 0 the more confident model decides.

Subtle: pi has a row at the position after all guesses too, so the draft reads them all: K steps
and one pass. The target's row there would bias every bonus token.
"""

from typing import Annotated

import numpy as np

from sampling import one_hot_rows
from speculative import Step, draft_and_verify, guess, verify
from variants.registry import GUESSES, Decoder, Flag, Models


def cascade(p_draft, p_target, alpha):  # 2 x [n, n_vocab] -> [n, n_vocab]
    """Return pi: at each position the target's row where the rule defers, else the draft's.

    >>> p_draft, p_target = np.array([[0.5, 0.5, 0]]), np.array([[0.25, 0, 0.75]])  # TV 0.75
    >>> [cascade(p_draft, p_target, alpha)[0].tolist() for alpha in (0.3, 0.4)]
    [[0.25, 0.0, 0.75], [0.5, 0.5, 0.0]]
    """
    distance = np.maximum(p_target - p_draft, 0).sum(axis=-1)  # TV
    gain = p_target.max(axis=-1) - p_draft.max(axis=-1)  # at most TV, also after rounding
    defers = gain > alpha * distance
    return np.where(defers[:, None], p_target, p_draft)


def build(models: Models,
          K: GUESSES = 4,
          alpha: Annotated[float, Flag(float, "the price of deferring to the target: 0: the "
              "more confident model decides; 1: the draft alone; below -1: lossless")] = 0.0
          ) -> Step:
    """Return the papers' own step for the target pi; its rule reads rows at temperature 1."""
    draft, target = models.warm.draft_rows, models.warm.target_rows

    def cascaded(ids, n_last):
        pi = cascade(draft(ids, n_last), target(ids, n_last), alpha)
        return one_hot_rows(pi.argmax(axis=-1), pi.shape[-1]) if models.is_greedy else pi

    return draft_and_verify(models.draft_rows, cascaded, K)


DECODER = Decoder(
    "cascade", "Narasimhan et al. (2025)", "https://arxiv.org/abs/2405.19261",
    idea="lets the more confident of the two models decide at each position",
    family="a lossy test",
    guess=guess, test=verify, build=build,
    exact="with --alpha below -1", exact_if=lambda settings: settings["alpha"] < -1)
