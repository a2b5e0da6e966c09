"""The target without some of its blocks as its own draft, and the search for those blocks."""

import numpy as np
import pytest

from cache import cached, causal_mask, unembed
from gpt2 import GPT2, layer_norm, transformer_block
from sampling import softmax
from tests.small import lively_params
from variants import Models
from variants.skip import DECODER, blocks_kept, with_blocks

PARAMS = lively_params(dict(n_vocab=3, n_ctx=12, n_embd=4, n_head=2, n_layer=4), scale=0.7)


def target():
    """Return a model that has read nothing yet."""
    return GPT2(PARAMS, 2)


# ---- the draft

def through(ids, kept):
    """Return the logits after ids of these blocks one after another, without a cache."""
    x = PARAMS["wte"][ids] + PARAMS["wpe"][: len(ids)]
    for i in kept:
        attend = cached(np.zeros((2, 2, len(ids), 2)), 0, causal_mask(len(ids), x))
        x = transformer_block(x, **PARAMS["blocks"][i], n_head=2, attend=attend)
    return unembed(layer_norm(x, **PARAMS["ln_f"]), PARAMS)


@pytest.mark.parametrize("flags, kept", [
    (dict(skip="middle", exit=None), [0, 1, 3]), (dict(skip=(0, 3), exit=None), [1, 2]),
    (dict(skip="middle", exit=2), [0, 1]), (dict(skip="middle", exit=4), [0, 1, 2, 3]),
    (dict(skip=(3, 2, 1, 0), exit=None), [])], ids=str)
def test_the_draft_is_the_target_without_the_blocks(flags, kept):
    assert blocks_kept(4, **flags) == kept
    x = [0, 2, 1, 1]
    rows = through(x, kept)
    assert np.allclose(with_blocks(target(), kept)(x, 4), rows)
    step = DECODER.build(Models(None, target(), dict(temperature=1.0)), K=2, **flags)
    result = step(x, 2, np.random.default_rng(0))
    assert np.allclose(result.p_draft[0], softmax(rows[-1]))


def test_the_middle_leaves_the_first_and_the_last_quarter():
    assert blocks_kept(12, "middle", None) == [0, 1, 2, 3, 9, 10, 11]
    for n_layer in range(2, 49):
        kept = set(blocks_kept(n_layer, "middle", None))
        assert kept >= {*range(n_layer // 4 + 1), *range(n_layer - n_layer // 4, n_layer)}
        assert 0 < n_layer - len(kept) <= n_layer / 2 + 1
