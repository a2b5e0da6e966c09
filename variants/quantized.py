"""Zhao et al. (2024), "QSpec"; Georganas et al. (2025), "ML-SpecQD". Lossless.

Adds to speculative.py: the target's copy in int8 is the draft. It needs no second model and no
training, and its distributions are nearly the target's at every temperature. Where a pass waits for
its weights a step of the copy takes a third of the time: a weight is one byte in place of four.

    w          a matrix of the target: a linear map, or wte, the token embeddings
    copy       w in whole numbers of -127 .. 127, with a scale for each output (lib/backend/int8.py)

Everything else, biases and layer norms among it, is the target's own and shared. The draft has its
own key/value cache: QSpec's overwrites the target's, which is exact as well, because the target
writes its own keys and values over it. Reading them without that would bias the text.
"""

from gpt2 import GPT2
from lib.backend.int8 import int8
from lib.backend.products import warm_up
from speculative import Step, guess, verify
from variants.registry import GUESSES_OR_AUTO, Decoder, Models
from variants.speculative import build as build_speculative


def in_int8(part):
    """Return a part of the tree of weights with its linear maps in int8; the rest is shared."""
    if isinstance(part, list):
        return [in_int8(block) for block in part]
    if isinstance(part, dict):
        return {name: int8(value.mT).mT if name == "w" else in_int8(value)
                for name, value in part.items()}
    return part


def int8_copy(model):
    """Return a GPT2 that is the model in int8, and has read nothing."""
    warm_up(model.params["wpe"].dtype, is_int8=True)
    params = in_int8(model.params) | {"wte": int8(model.params["wte"])}
    return GPT2(params, model.n_head)


def is_copy(draft, target):
    """Return whether a draft is the copy of a target: it shares wpe, and not wte."""
    return (draft is not None and draft.params["wpe"] is target.params["wpe"]
            and draft.params["wte"] is not target.params["wte"])


def build(models: Models, K: GUESSES_OR_AUTO = 5) -> Step:
    """Return the papers' own step with the copy as the draft, which is made unless it is given."""
    if not is_copy(models.draft, models.target):
        models = models._replace(draft=int8_copy(models.target))
    return build_speculative(models, K)


DECODER = Decoder(
    "quantized", "Georganas et al. (2025)", "https://arxiv.org/abs/2503.13565",
    idea="drafts with the target itself, its weights in int8",
    guess=guess, test=verify, build=build, needs=(), make_draft=int8_copy)
