"""Stern et al. (2018), "Blockwise Parallel Decoding". Lossless with the exact criterion only.

Adds to medusa.py: a different test. Blockwise decoding is the ancestor of all other decoders,
in particular of Medusa. The heads guess one chain of their best tokens, and decoding is greedy.

    here          Stern et al. (2018)
    guesses[t]    the best token of head t, which is p_(t + 2) in the paper; p_1 is the target
    n + 1         k-hat, the length of the accepted block: n guesses and the target's best token
    top_k         the top-k selection criterion of Sec. 5.1 (1: exact)

One pass scores the guesses of this round and gives the state from which the heads guess in the
next round (Sec. 4). Left out are the distance criterion of Sec. 5.2, which compares ids as
numbers, such as the brightness of pixels, and the minimum block size of Sec. 5.3.
"""

from functools import partial
from typing import Annotated

from speculative import Step
from variants.medusa import guess_by_heads, medusa_step
from variants.registry import Decoder, Flag, Models, needing, whole
from variants.shared.branches import best_ids


def blockwise_verify(tree, p_draft, p_target, rng, top_k=1):
    """Accept guesses while they are possible and in the target's top k; add its best token."""
    guesses = tree.tokens  # the tree is a chain, so node t is guess t
    n = 0  # guesses accepted so far
    # Row n of p_target is for the position of guess n.
    while (n < len(guesses) and p_target[n][guesses[n]] > 0
           and guesses[n] in best_ids(p_target[n], top_k)):
        n += 1
    return guesses[:n] + [int(p_target[n].argmax())]


def build(models: Models,
          block: Annotated[int, Flag(whole, "largest number of tokens per round: at most one "
              "more than the target has heads")] = 4,
          selection: Annotated[int, Flag(whole, "accept a guess if it is among this many "
              "of the target's most probable tokens; 1 is exact")] = 1) -> Step:
    """Return the step. A selection above 1 ranks the target's tokens at temperature 1."""
    # Paths of ranks, as in medusa.py. Each guess has rank 0, the head's best token. A block is
    # one token longer than its guesses: with block = 4 the chain is (0,), (0, 0), (0, 0, 0).
    chain = [(0,) * n for n in range(1, block)]
    verify = partial(blockwise_verify, top_k=selection)
    # Only temperature 0 tells two logits apart whose probabilities round to the same number.
    models_of_rows = models if selection == 1 else models.warm
    return medusa_step(models, chain, verify, **models_of_rows.sampling)


DECODER = Decoder(
    "blockwise", "Stern et al. (2018)", "https://arxiv.org/abs/1811.03115",
    idea="chains the heads' best guesses; the ancestor of Medusa",
    family="heads on the target",
    guess=guess_by_heads, test=blockwise_verify, build=build, greedy=True,
    needs=needing("heads", "tree"),
    exact_words="with --selection 1", exact=lambda settings: settings["selection"] == 1)
