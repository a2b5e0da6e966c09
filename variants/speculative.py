"""Chen et al. (2023), Leviathan et al. (2023): a draft guesses, the ratio test decides. Lossless.

What it adds to speculative.py: nothing but its entry. `--K auto` is auto.py.
"""

from speculative import draft_and_verify
from variants.registry import Decoder, Flag, Rounds, whole_or_auto


def build(models, K):
    """The papers' own."""
    return draft_and_verify(models.probabilities("draft"), models.probabilities("target"), K)


DECODER = Decoder(
    "speculative", build, source="Chen et al. (2023); Leviathan et al. (2023)",
    url="https://arxiv.org/abs/2302.01318",
    flags={"K": Flag(4, whole_or_auto, "guesses per round; auto chooses by measuring")},
    rounds=Rounds(chain=True, verified=True, draws=1))
