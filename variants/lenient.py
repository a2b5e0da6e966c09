"""Leviathan et al. (2023) Appendix A.5, lenience. Not lossless.

Adds to speculative.py: one factor. The draft's probability is multiplied by the lenience before
the test. More guesses are accepted, and the text moves towards the draft's distribution.

    l         the lenience, in (0, 1]
    beta      the probability of accepting a guess: sum of min(p_draft, p_target / l)

The distribution of a token is min(p_draft, p_target / l) + (1 - beta) residual(p_target,
p_draft). A token's probability is at most 1 / l times the target's, but it can be as low as the
draft's, even 0.
"""

from functools import partial
from typing import Annotated

from sampling import accept, residual, sample
from speculative import Step, check_rows, draft_and_verify, guess
from variants.registry import GUESSES, Decoder, Flag, Models, number


def lenient_verify(guesses, p_draft, p_target, rng, lenience):
    """Run `verify` with the test min(p_target / (lenience * p_draft), 1)."""
    check_rows(guesses, p_draft, p_target)
    for t, token in enumerate(guesses):
        # The one change to `verify`: the draft's probability is multiplied by the lenience.
        if not accept(min(p_target[t][token] / (lenience * p_draft[t][token]), 1), rng):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]


def lenient_greedy_verify(guesses, p_draft, p_target, rng, lenience):
    """Accept greedy guesses with p_target >= lenience * the row's largest, at temperature 1."""
    for t, token in enumerate(guesses):
        # With lenience 1 only the best token, or a token as probable, is accepted.
        if p_target[t][token] < lenience * p_target[t].max():
            return guesses[:t] + [int(p_target[t].argmax())]
    return guesses + [int(p_target[-1].argmax())]


def build(models: Models,
          K: GUESSES = 4,
          lenience: Annotated[float, Flag(number, "a number above 0 and up to 1; smaller "
              "numbers accept more guesses, 1 is exact")] = 0.3) -> Step:
    """Return the step. At temperature 0 the test compares probabilities at temperature 1."""
    if not 1e-99 <= lenience <= 1:  # so small a product with a probability is not 0
        raise ValueError(f"need 1e-99 <= lenience <= 1, got {lenience}")
    draft = models.draft_rows
    if lenience == 1:
        # The greedy test would accept every guess that ties with the best token.
        return draft_and_verify(draft, models.target_rows, K)
    test = lenient_greedy_verify if models.is_greedy else lenient_verify
    return draft_and_verify(draft, models.warm.target_rows, K,
                            partial(test, lenience=lenience))


DECODER = Decoder(
    "lenient", "Leviathan et al. (2023) App. A.5", "https://arxiv.org/abs/2211.17192",
    idea="multiplies the draft's probability by a factor before the ratio rule",
    family="a lossy rule",
    guess=guess, test=lenient_verify, build=build,
    exact_words="with --lenience 1", exact=lambda settings: settings["lenience"] == 1)
