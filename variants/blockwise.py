"""Stern et al. (2018), "Blockwise Parallel Decoding". Lossless with the exact criterion only.

Adds to medusa.py: a different test. It is the ancestor of all other decoders, of Medusa in
particular: its heads guess one chain of best tokens, and it decodes greedily only.

    here            Stern et al. (2018)
    guess t         the best token of p_(t + 2): head t
    accepted + 1    k-hat, the length of the correct block; the + 1 is p_1's own next token
    top_k           the top-k selection criterion of Sec. 5.1 (1: exact)
    minimum         the minimum block size, l in Sec. 5.3 (1: exact): tokens per round, at least

Proposing and scoring are one pass (Sec. 4), because the pass also gives the state that the
heads read. The distance criterion of Sec. 5.2 is for ids that are numbers, such as pixels.
"""

from functools import partial
from typing import Annotated

from speculative import Step
from variants.medusa import guess_by_heads, medusa_step
from variants.registry import Decoder, Flag, Models, whole
from variants.shared.branches import best_ids


def blockwise_verify(tree, p_draft, p_target, rng, top_k=1, minimum=1):
    """Accept at least minimum - 1 guesses, and on to the first to fail; add the best token."""
    guesses = tree.tokens
    n = 0
    while n < len(guesses) and (n < minimum - 1 or guesses[n] in best_ids(p_target[n], top_k)):
        n += 1
    return guesses[:n] + [int(p_target[n].argmax())]


def build(models: Models,
          block: Annotated[int, Flag(whole, "most tokens per round")] = 4,
          selection: Annotated[int, Flag(whole, "accept a guess among this many best tokens "
              "of the target; 1 is exact")] = 1,
          minimum: Annotated[int, Flag(whole, "fewest tokens per round; 1 is exact")] = 1
          ) -> Step:
    """Return the step. The selection ranks the target's tokens at temperature 1."""
    if minimum > block:
        raise ValueError(f"need --minimum <= --block, got {minimum} and {block}")
    chain = [(0,) * n for n in range(1, block)]
    verify = partial(blockwise_verify, top_k=selection, minimum=minimum)
    return medusa_step(models, chain, verify, **models.warm.sampling)


DECODER = Decoder(
    "blockwise", "Stern et al. (2018)", "https://arxiv.org/abs/1811.03115",
    idea="chains the heads' best guesses; the ancestor of Medusa",
    family="heads on the target",
    guess=guess_by_heads, test=blockwise_verify, build=build, greedy=True, needs=("heads",),
    exact="with --selection 1 --minimum 1",
    exact_if=lambda settings: settings["selection"] == settings["minimum"] == 1)
