"""Gante (2023), "Assisted Generation": default of llama.cpp, TensorRT-LLM, mlx-lm. Lossless.

Adds to speculative.py: a test that needs no row of the draft. The target draws its own token at
every position. As long as the target's token equals the guess, the row of the next position is
valid too.

    best     guess the draft's most probable token. It is accepted with the target's probability
             of the token
    drawn    draw the guess from the draft. It is accepted if two draws agree, with probability
             sum(p_target * p_draft)

Every token of the text is the target's own draw, so the text is exact for any guesses, which
only decide how many tokens a pass yields. The ratio rule accepts a drawn guess with probability
sum(min(p_target, p_draft)), which is at least as often. The best guess can be accepted more
often, as with p_target = (.9, .1, 0) and p_draft = (.4, .3, .3), which give .9 instead of .5,
or less often, as with (.6, .4, 0) and (.1, .9, 0), which give .4 instead of .5.
"""

from typing import Annotated

from sampling import sample
from speculative import Step, draft_and_verify, guess
from variants.registry import GUESSES, Decoder, Flag, Models


def match_verify(guesses, p_draft, p_target, rng, draw=sample):
    """Return the target's draws up to and including the first draw that differs from its guess.

    >>> import numpy as np
    >>> rows = np.eye(3)[[0, 2, 1]]
    >>> rng = np.random.default_rng(0)
    >>> [match_verify(guesses, None, rows, rng) for guesses in ([0, 2], [0, 1], [1, 2])]
    [[0, 2, 1], [0, 2], [0]]
    """
    ids = []
    # The bonus token has no guess. Every token differs from None, so the loop ends there.
    for row, token in zip(p_target, [*guesses, None]):
        ids.append(draw(row, rng))
        if ids[-1] != token:
            return ids


def build(models: Models,
          K: GUESSES = 4,
          guesses: Annotated[str, Flag(str, "best: the draft's most probable tokens; drawn: "
              "tokens drawn from the draft", ("best", "drawn"))] = "best") -> Step:
    """Return the step, with the draft at temperature 0 if it guesses its best tokens."""
    target = models.target_rows
    if guesses == "best":  # at temperature 0 the drawn token is the best token
        models = models._replace(sampling={**models.sampling, "temperature": 0.0})
    return draft_and_verify(models.draft_rows, target, K, match_verify)


DECODER = Decoder(
    "match", "Gante (2023)", "https://huggingface.co/blog/assisted-generation",
    idea="accepts a guess if the target's own draw is the same token",
    family="a different exact rule",
    guess=guess, test=match_verify, build=build)
