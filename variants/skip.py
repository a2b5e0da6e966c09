"""Zhang et al. (2023), "Draft & Verify"; Elhoushi et al. (2024), "LayerSkip". Lossless.

Adds to speculative.py: the target is its own draft, without some of its blocks. This needs no
second model and no training, and works with any checkpoint: a block only adds to its input x,
so the block after it can read x itself. LayerSkip's draft is the target's first blocks
(--exit), ln_f and the unembedding.

The draft has its own key/value cache (LayerSkip's draft shares the target's). A draft with half
of the blocks costs about half of the target, so a guess pays only if more than half of the
guesses are accepted.
"""

from functools import partial
from typing import Annotated

from speculative import Step, draft_and_verify, guess, verify
from variants.registry import GUESSES, Decoder, Flag, Models, either, needing, whole, wholes


def blocks_kept(n_layer, skip, exit):
    """Return the indices of the draft's blocks: the first `exit`, or all but `skip`."""
    if exit is not None:
        if skip != "middle":  # "middle" is the default, so --skip was given
            raise ValueError("--skip and --exit are both given: choose one")
        if exit > n_layer:
            raise ValueError(f"need --exit <= n_layer = {n_layer}, got {exit}")
        return list(range(exit))
    quarter = n_layer // 4
    skipped = skip
    if skip == "middle":  # of 12 blocks 4 .. 8, so that the first 4 and the last 3 are kept
        skipped = range(quarter + 1, n_layer - quarter)
    last = max(skipped, default=0)
    if last >= n_layer:
        raise ValueError(f"need --skip in 0 .. n_layer - 1 = {n_layer - 1}, got {last}")
    return [i for i in range(n_layer) if i not in skipped]


def with_blocks(model, kept):
    """Return a model of these blocks only; no weight is copied."""
    blocks = [model.params["blocks"][i] for i in kept]
    return model.with_params({**model.params, "blocks": blocks})


def build(models: Models,
          K: GUESSES = 2,
          skip: Annotated[tuple | str, Flag(
              either(partial(wholes, least=0), "middle"), "layers that the draft skips, such "
              "as 5,7,9; middle keeps only the first quarter of the layers plus one layer, and "
              "the last quarter")] = "middle",
          exit: Annotated[int | None, Flag(whole, "number of first layers that form the "
              "draft, instead of --skip")] = None) -> Step:
    """Return the papers' own step, with a part of the target as the draft."""
    kept = blocks_kept(len(models.target.params["blocks"]), skip, exit)
    models = models._replace(draft=with_blocks(models.target, kept))
    return draft_and_verify(models.draft_rows, models.target_rows, K, models.test)


DECODER = Decoder(
    "skip", "Zhang et al. (2023)", "https://arxiv.org/abs/2309.08168",
    idea="drafts with the target itself, without some of its layers",
    family="a cheaper draft, or a K that adapts",
    guess=guess, test=verify, build=build, needs=needing("params"))
