"""Georganas et al. (2025), "ML-SpecQD"; Zhao et al. (2024), "QSpec". Lossless.

Adds to speculative.py: the draft is the target's own copy with weights in int8. It needs no
second model and no training, and its distributions are nearly the target's at every
temperature. If reading the weights takes most of a pass, a draft pass takes 0.3 to 0.6 of the
time of a target pass over one row, because a weight is one byte instead of four. In ML-SpecQD
the copy is itself decoded speculatively, as the draft in staged.py: --guesser guesses for it.

    copy      a model whose matrices, the linear maps and the embeddings of tokens, are rounded
              (lib/backend/int8.py); the copy shares norms, biases and wpe with the target

Subtle: the copy has its own key/value cache. Its keys and values are not the target's, and a
target that read them would be a different model. A head may read hidden states of both models,
because states only make its guesses better or worse.
"""

from functools import partial
from typing import Annotated

from lib.backend.int8 import MATRICES, Int8, with_int8
from lib.backend.products import warm_up
from lib.checkpoints.weights import flatten
from speculative import Step, draft_and_verify, guess, make_step, verify
from variants.registry import (
    GUESSES_OR_AUTO,
    Decoder,
    Flag,
    Models,
    chain_decoder,
    inner_decoder,
    needing,
)
from variants.speculative import choosing_step
from variants.staged import staged_guess

# For --K auto, as if 49 of 50 tested guesses had been accepted: a copy is nearly always right.
COPY_COUNTS = (49.0, 50.0)


def int8_copy(model, notify=None):
    """Return a copy of the model in int8, with an empty cache."""
    if isinstance(model.params["wte"], Int8):
        raise ValueError("need a target with weights in floats, without --dtype int8, to copy "
                         "it in int8")
    warm_up(model.dtype, notify, is_int8=True)  # so that the first round does not wait for it
    return model.with_params(with_int8(model.params))


def is_int8_copy(draft, target):
    """Return whether a draft is the copy of a target: the copy shares all but the matrices."""
    params = getattr(draft, "params", {})  # a draft of wrappers/ has none
    of_target = dict(flatten(target.params))
    shared = {name for name, weight in flatten(params) if weight is of_target.get(name)}
    return shared == {name for name in of_target if not name.endswith(MATRICES)}


def guesser_for_copy(text):
    """Read --guesser: a decoder as for block.py, but without a draft and measured costs."""
    text = chain_decoder(text)
    entry, settings = inner_decoder(text)
    if {"draft", "costs"} & entry.needs(settings) or entry.draft_maker(settings):
        raise ValueError("need a decoder without a draft and without --K auto, such as "
                         f"'eagle --K 1', got {text!r}")
    return text


def step_of_copy(models, guesser):
    """Return the step that decodes the copy speculatively."""
    entry, settings = inner_decoder(guesser)
    copy = models.draft
    if "heads" in entry.needs(settings):
        copy = models.target.beside(copy)
    return entry.build(models._replace(target=copy, draft=None, test=verify), **settings)


def build(models: Models,
          K: GUESSES_OR_AUTO = 5,
          guesser: Annotated[str | None, Flag(guesser_for_copy, "the decoder that guesses for "
              "the copy, with its flags: 'eagle --K 1' (default: none)")] = None) -> Step:
    """Return the step of the copy as the draft, made here if models have none."""
    if not is_int8_copy(models.draft, models.target):
        models = models._replace(draft=int8_copy(models.target))
    if K == "auto":
        if guesser is not None:
            raise ValueError("--guesser does not apply with --K auto")
        return choosing_step(models, COPY_COUNTS)
    if guesser is None:
        return draft_and_verify(models.draft_rows, models.target_rows, K, models.test)
    if K == 1:
        raise ValueError("--guesser needs --K 2 or more, because the last guess of a round is "
                         "the copy's alone")
    guess_by_copy = partial(staged_guess, inner=step_of_copy(models, guesser))
    return make_step(models.target_rows, K, guess_by_copy, models.test)


def needs(settings):
    """Return what the copy and its guesser need."""
    of_copy = needing("params")(settings)
    if settings["guesser"] is None:
        return of_copy
    entry, settings_of_guesser = inner_decoder(settings["guesser"])
    return of_copy | entry.needs(settings_of_guesser)


DECODER = Decoder(
    "quantized", "Georganas et al. (2025)", "https://arxiv.org/abs/2503.13565",
    idea="drafts with a copy of the target in int8",
    family="a cheaper draft, or a K that adapts",
    guess=guess, test=verify, build=build, needs=needs,
    changes=lambda settings: {"guess": staged_guess} if settings.get("guesser") else {},
    draft_maker=lambda settings: int8_copy)
