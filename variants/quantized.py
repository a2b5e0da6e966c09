"""Georganas et al. (2025), "ML-SpecQD"; Zhao et al. (2024), "QSpec". Lossless.

Adds to speculative.py: the draft is the target's own copy with weights in int8. It needs no
second model and no training, and its distributions are nearly the target's at every
temperature. If reading the weights takes most of a pass, a draft pass takes 0.3 to 0.6 of the
time of a target pass over one row, because a weight is one byte instead of four.

    copy      a model whose matrices, the linear maps and the embeddings of tokens, are rounded
              (lib/backend/int8.py); the copy shares norms, biases and wpe with the target

Subtle: the copy has its own key/value cache. Its keys and values are not the target's, and a
target that read them would be a different model.
"""

from lib.backend.int8 import Int8, int8
from lib.backend.products import warm_up
from lib.checkpoints.weights import flatten
from speculative import Step, draft_and_verify, guess, verify
from variants.registry import GUESSES_OR_AUTO, Decoder, Models, needing
from variants.speculative import choosing_step

TABLES = ("wte", "lm_head")
MATRICES = (*TABLES, "/w")  # the ends of the names of matrices
# For --K auto, as if 49 of 50 tested guesses had been accepted: a copy is nearly always right.
COPY_COUNTS = (49.0, 50.0)


def with_int8(weights, name=None):
    """Return a subtree of the weights, its matrices in int8, and all other arrays shared."""
    if isinstance(weights, dict):
        return {key: with_int8(value, key) for key, value in weights.items()}
    if isinstance(weights, list):  # of blocks
        return [with_int8(block) for block in weights]
    if name in TABLES:  # [n_vocab, n_embd]: a row for each output of unembed
        return int8(weights)
    if name == "w":  # stored as [n_in, n_out], while int8 wants a row for each output
        return int8(weights.mT).mT
    return weights


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


def build(models: Models, K: GUESSES_OR_AUTO = 5) -> Step:
    """Return the papers' own step with the copy as the draft, made here if models have none."""
    if not is_int8_copy(models.draft, models.target):
        models = models._replace(draft=int8_copy(models.target))
    if K == "auto":
        return choosing_step(models, COPY_COUNTS)
    return draft_and_verify(models.draft_rows, models.target_rows, K, models.test)


DECODER = Decoder(
    "quantized", "Georganas et al. (2025)", "https://arxiv.org/abs/2503.13565",
    idea="drafts with a copy of the target in int8",
    family="a cheaper draft, or a K that adapts",
    guess=guess, test=verify, build=build, needs=needing("params"),
    draft_maker=lambda settings: int8_copy)
