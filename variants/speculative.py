"""The papers' own decoder; and K chosen from costs: Leviathan et al. (2023) Sec. 3.5. Lossless.

Adds to speculative.py: --K auto. The papers' formula for the best K needs the costs of draft
and target, which are given or measured before the run (demo/costs.py), and the acceptance rate
alpha: accepted / tested guesses, with less weight on older rounds. If no K pays, the step
decodes plainly, and tries one guess after 32 rounds, after 64 more, and so on. K depends on
finished rounds alone, so the text stays exact.
"""

from speculative import Step, draft_and_verify, guess, verify
from theory.speedup import best_K
from variants.registry import GUESSES_OR_AUTO, Decoder, Models

DECAY = 0.98  # multiplies a round's weight after every further round
START_COUNTS = (3.0, 4.0)  # accepted, tested: alpha is 0.75 before any round
RETRY_AFTER = 32  # rounds without a guess before one is tried; doubled if it fails


def build(models: Models, K: GUESSES_OR_AUTO = 4) -> Step:
    """Return the papers' own step, or the step of one text, which chooses K for every round."""
    if K == "auto":
        return choosing_step(models, *START_COUNTS)
    return draft_and_verify(models.draft_rows, models.target_rows, K)


def choosing_step(models, accepted, tested):
    """Return the step of one text that chooses K, starting from these counts of guesses."""
    draft, target = models.draft_rows, models.target_rows
    idle = 0  # rounds since the last guess
    wait = RETRY_AFTER  # rounds until the next one if no K pays

    def step(x, n_left, rng):
        nonlocal accepted, tested, idle, wait
        best = best_K(accepted / tested, models.costs.c, models.costs.pass_cost)
        if best > 0:
            wait = RETRY_AFTER
        elif idle >= wait:
            best = 1
            wait = 2 * wait
        idle = 0 if best > 0 else idle + 1
        result = draft_and_verify(draft, target, best)(x, n_left, rng)
        accepted = DECAY * accepted + result.n_accepted
        tested = DECAY * tested + result.n_tested
        return result

    return step


DECODER = Decoder(
    "speculative", "Chen et al. (2023); Leviathan et al. (2023)",
    "https://arxiv.org/abs/2302.01318 https://arxiv.org/abs/2211.17192",
    idea="guesses with a small draft model; the ratio test decides",
    guess=guess, test=verify, build=build)
