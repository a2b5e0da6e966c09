"""Georganas et al. (2025), "ML-SpecQD"; Zhao et al. (2024), "QSpec". Lossless.

Adds to speculative.py: the draft is the target's own copy with weights in int8. It needs no
second model and no training, and its distributions are nearly the target's at every
temperature. If reading the weights takes most of a pass, a draft step costs 0.3 to 0.4 of a
target row, because a weight is one byte instead of four.

    copy      a GPT2 whose matrices, the linear maps and wte, are rounded (lib/backend/int8.py);
              it shares everything else with the target: layer norms, biases, wpe

Subtle: the copy has its own key/value cache. Its keys and values are not the target's, and a
target that read them would be a different model.
"""

from gpt2 import GPT2
from lib.backend.int8 import int8
from lib.backend.products import warm_up
from speculative import Step, draft_and_verify, guess, verify
from variants.registry import GUESSES_OR_AUTO, Decoder, Models
from variants.speculative import choosing_step

START_COUNTS = (49.0, 50.0)  # accepted, tested, for --K auto: a copy is nearly always right


def with_matrices(part, change, name=None):
    """Return a part of the tree of weights with `change` applied to its matrices [n_out, n_in].

    Everything else is shared with the given tree.
    """
    if isinstance(part, dict):
        return {key: with_matrices(value, change, key) for key, value in part.items()}
    if isinstance(part, list):
        return [with_matrices(block, change) for block in part]
    if name == "wte":
        return change(part)
    return change(part.mT).mT if name == "w" else part


def int8_copy(model, notify=None):
    """Return a GPT2 that is the model in int8, with an empty cache; `notify` as in warm_up."""
    warm_up(model.params["wpe"].dtype, notify, is_int8=True)
    return GPT2(with_matrices(model.params, int8), model.n_head)


def is_copy(draft, target):
    """Return whether a draft is the copy of a target: it shares wpe, but not wte."""
    return (draft is not None and draft.params["wpe"] is target.params["wpe"]
            and draft.params["wte"] is not target.params["wte"])


def build(models: Models, K: GUESSES_OR_AUTO = 5) -> Step:
    """Return the papers' own step with the copy as the draft, made here unless it is given."""
    if not is_copy(models.draft, models.target):
        models = models._replace(draft=int8_copy(models.target))
    if K == "auto":
        return choosing_step(models, *START_COUNTS)
    return draft_and_verify(models.draft_rows, models.target_rows, K)


DECODER = Decoder(
    "quantized", "Georganas et al. (2025)", "https://arxiv.org/abs/2503.13565",
    idea="drafts with the target itself, its weights in int8",
    family="a cheaper draft, or a K that adapts",
    guess=guess, test=verify, build=build, needs=(), make_draft=int8_copy)
