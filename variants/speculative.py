"""The papers' own decoder; and K chosen from costs: Leviathan et al. (2023) Sec. 3.5. Lossless.

Adds to speculative.py: --K auto. The papers' formula for the best K needs the costs of draft
and target, which are given or measured before the run (measure/costs.py), and the acceptance
rate alpha: accepted / tested guesses, with less weight on older rounds (acceptance.py). If no K
pays, the step decodes plainly, and tries one guess after 32 rounds, after 64 more, and so on. K
depends on finished rounds alone, so the text stays exact.
"""

from speculative import Step, draft_and_verify, guess, verify
from theory.speedup import best_K
from variants.registry import GUESSES_OR_AUTO, Decoder, Models
from variants.shared.acceptance import START_COUNTS, Acceptance

# Rounds without a guess before one guess is tried; after each try it is twice as many.
RETRY_AFTER = 32


def build(models: Models, K: GUESSES_OR_AUTO = 4) -> Step:
    """Return the papers' own step, or with --K auto the step of one text that chooses K."""
    if K == "auto":
        return choosing_step(models, START_COUNTS)
    return draft_and_verify(models.draft_rows, models.target_rows, K, models.test)


def choosing_step(models, start_counts):
    """Return the step of one text, of as many guesses as pay."""
    draft = models.draft_rows
    target = models.target_rows
    acceptance = Acceptance(*start_counts)  # accepted and tested guesses
    idle_rounds = 0  # since the last guess
    patience = RETRY_AFTER  # idle rounds before one guess is tried although no K pays

    def step(x, n_left, rng):
        nonlocal idle_rounds, patience
        K = best_K(acceptance.rate(), models.costs.c, models.costs.pass_cost)
        if K > 0:
            patience = RETRY_AFTER
        elif idle_rounds >= patience:
            K = 1  # without a guess alpha would never change
            patience = 2 * patience
        idle_rounds = 0 if K > 0 else idle_rounds + 1
        result = draft_and_verify(draft, target, K, models.test)(x, n_left, rng)
        acceptance.fade()
        acceptance.accepted += result.n_accepted
        acceptance.tested += result.n_tested
        return result

    return step


DECODER = Decoder(
    "speculative", "Chen et al. (2023); Leviathan et al. (2023)",
    "https://arxiv.org/abs/2302.01318 https://arxiv.org/abs/2211.17192",
    idea="guesses with a small draft model; the ratio rule decides",
    guess=guess, test=verify, build=build)
