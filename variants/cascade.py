"""Narasimhan et al. (2025), "Faster Cascades via Speculative Decoding". Not lossless.

Adds to speculative.py: a target distribution between draft and target. At each position a rule
chooses one model's row. The ratio rule gets the chosen rows instead of the target's, so the
text has exactly the distribution that the rule defines.

    pi         the cascade's distribution:  pi(.|x) = (1 - r) p_draft + r p_target
    r          1 if the cascade defers to the target, 0 if the draft decides
    price      the price of deferring, alpha in the paper
    TV         total variation distance of the two rows: the probability of a rejection

Rule OPT: r = 1 if and only if max p_draft < max p_target - price * TV. (The paper writes q for
the draft, p for the target, gamma for K.) The two maxima differ by at most TV. So with a price
of at least 1 the rule never defers, and the text is the draft's. With a price below -1 it
defers whenever the rows differ, and the text is the target's. At price 0 the more confident
model decides.

Subtle: the bonus token too is drawn from pi, not from the target's row. So after K draft passes
the draft reads all guesses in one more pass.
"""

from typing import Annotated

import numpy as np

from sampling import warp
from speculative import Step, draft_and_verify, guess, verify
from variants.registry import GUESSES, Decoder, Flag, Models, number


def cascade(p_draft, p_target, price):  # 2 x [n, n_vocab] -> [n, n_vocab]
    """Return pi: at each position the target's row if the rule defers there, else the draft's.

    >>> p_draft, p_target = np.array([[0.5, 0.5, 0]]), np.array([[0.25, 0, 0.75]])  # TV 0.75
    >>> [cascade(p_draft, p_target, price)[0].tolist() for price in (0.3, 0.4)]
    [[0.25, 0.0, 0.75], [0.5, 0.5, 0.0]]
    """
    distance = np.maximum(p_target - p_draft, 0).sum(axis=-1)  # TV
    lead = p_target.max(axis=-1) - p_draft.max(axis=-1)
    # A price of 1 never defers, also after rounding: the lead is at most p_target - p_draft of
    # the target's best token, which is one term of TV's sum.
    defers = lead > price * distance  # [n] of bool
    return np.where(defers[:, None], p_target, p_draft)


def build(models: Models,
          K: GUESSES = 4,
          price: Annotated[float, Flag(number, "price of deferring to the target: at 0 the "
              "more confident model decides, at 1 the draft alone; values below -1 are "
              "exact")] = 0.0
          ) -> Step:
    """Return the papers' own step for the target pi; rows are compared at temperature 1."""
    if price < -1:  # pi is the target's row, also where the lead rounds to price * TV
        return draft_and_verify(models.draft_rows, models.target_rows, K, models.test)
    draft = models.warm.draft_rows
    target = models.warm.target_rows

    def cascaded(ids, n_last):
        pi = cascade(draft(ids, n_last), target(ids, n_last), price)
        if models.is_greedy:  # the rule has compared rows at temperature 1; now the best token
            return warp(pi, temperature=0)
        return pi

    return draft_and_verify(models.draft_rows, cascaded, K, models.test)


DECODER = Decoder(
    "cascade", "Narasimhan et al. (2025)", "https://arxiv.org/abs/2405.19261",
    idea="lets the more confident of the two models decide at each position",
    family="a lossy rule",
    guess=guess, test=verify, build=build,
    exact_words="with --price below -1", exact=lambda settings: settings["price"] < -1)
