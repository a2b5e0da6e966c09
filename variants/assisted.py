"""Gante (2023), "Assisted Generation", as in Hugging Face transformers. Lossless.

Adds to speculative.py: the number of guesses adapts. The draft stops after a guess with a
smaller probability than --confidence. With the heuristic schedule (heuristic_transient in
transformers), K becomes K + 2 if every guess was accepted, else max(1, K - 1); every text
starts with --K.

Subtle: the low-confidence guess is tested too. If it were dropped because of its own
probability, the guesses would no longer be distributed as `p_draft`, and the text would be
biased.
"""

from functools import partial
from typing import Annotated

from sampling import sample, warp
from speculative import Step, speculative_step, verify
from variants.registry import Decoder, Flag, Models, number, whole


def guess_while_confident(x, k, rng, draft, confidence, greedy=False):
    """Sample up to k tokens from the draft; stop after the first low-confidence token."""
    guesses, p_draft = [], []
    while len(guesses) < k:
        row = draft(x + guesses, 1)[-1]
        # A greedy draft's confidence is read from its row at temperature 1, because the row
        # from which its guess is drawn is one-hot.
        p_draft.append(warp(row, temperature=0) if greedy else row)
        guesses.append(sample(p_draft[-1], rng))
        if row[guesses[-1]] < confidence:
            break  # but the low-confidence guess itself is tested
    return guesses, p_draft


def build(models: Models,
          K: Annotated[int, Flag(whole, "largest number of guesses per round")] = 20,
          schedule: Annotated[str, Flag(str, "constant: always --K; heuristic: "
              "K + 2 if all guesses of a round were accepted, otherwise K - 1",
              ("constant", "heuristic"))] = "constant",
          confidence: Annotated[float, Flag(number, "stop guessing after a guess whose "
              "draft probability is below this")] = 0.4) -> Step:
    """Return the step of one text, which keeps K between its rounds."""
    target = models.target_rows
    guess = partial(guess_while_confident, draft=models.warm.draft_rows,
                    confidence=confidence, greedy=models.is_greedy)

    def step(x, n_left, rng):
        nonlocal K
        result = speculative_step(x, n_left, rng, target, K, guess, models.test)
        # K depends on finished rounds alone, so the text stays exact.
        if schedule == "heuristic":
            all_are_accepted = result.n_accepted == len(result.guesses)
            K = K + 2 if all_are_accepted else max(1, K - 1)
        return result

    return step


DECODER = Decoder(
    "assisted", "Gante (2023)", "https://huggingface.co/blog/assisted-generation",
    idea="adapts the number of guesses per round; stops after a low-confidence guess",
    family="a cheaper draft, or a K that adapts",
    guess=guess_while_confident, test=verify, build=build)
