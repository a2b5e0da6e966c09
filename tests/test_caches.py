"""No answer depends on earlier calls: every class with a cache has the rows of a fresh model.

A text is one list that grows and shrinks in place, as a caller's may. Each step calls one of
the models: with a sequence, with a tree of guesses, or with a batch. Some are interrupted.
"""

import contextlib
import copy
import pickle
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
from gpt2 import GPT2
from tests.test_gpt2 import HPARAMS, PARAMS
from variants.shared import tree_gpt2
from variants.shared.branches import Branches, Tree
from variants.shared.tree_gpt2 import TreeGPT2
from wrappers import batch_gpt2
from wrappers.batch_gpt2 import BatchGPT2

N_CTX = HPARAMS["n_ctx"]
N_TOKENS = 3  # so few that texts continue along trees read before


class Name:
    """Identify one text of a batch."""


def random_tree(rng, most):
    """Return a random tree of at most `most` levels."""
    tree = Tree()
    depth = {-1: 0}
    for _ in range(int(rng.integers(1, 6))):
        parent = int(rng.choice([node for node in depth if depth[node] < most]))
        node = tree.add_node(parent, int(rng.integers(N_TOKENS)))
        depth[node] = depth[parent] + 1
    return tree


@contextlib.contextmanager
def interrupted(now):
    """Interrupt a pass in its second block, as Ctrl-C might, if `now`."""
    blocks = []

    def block(*args, **kwargs):
        blocks.append(1)
        if now and len(blocks) == 2:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    original = gpt2.transformer_block
    with mock.patch.object(gpt2, "transformer_block", block), \
            contextlib.suppress(KeyboardInterrupt):
        yield


@given(st.integers(0, 10**9))
@settings(max_examples=60)
def test_sequences_trees_and_batches_have_the_rows_of_a_fresh_model(seed):
    rng = np.random.default_rng(seed)
    plain, trees, batch = (kind(PARAMS, 2) for kind in (GPT2, TreeGPT2, BatchGPT2))
    texts = {Name(): [1, 2, 3], Name(): [4]}
    for _ in range(12):
        name = list(texts)[rng.integers(2)]
        x = texts[name]
        del x[int(rng.integers(1, len(x) + 1)) :]  # in place: models were called with this list
        x += rng.integers(0, N_TOKENS, rng.integers(0, 3)).tolist()
        del x[N_CTX - 2 :]
        tree = random_tree(rng, N_CTX - len(x))
        n_last = int(rng.integers(1, len(x) + 1))
        calls = [(plain, (x, n_last)), (trees, (x, n_last)),
                 (trees, (Branches(x, tree), 1 + len(tree))),
                 (batch, ([(each, text, 1) for each, text in texts.items()],))]
        model, args = calls[rng.integers(len(calls))]
        with interrupted(rng.random() < 0.3):
            got = model(*args)
            fresh = type(model)(PARAMS, 2)(*args)
            for rows, expected in zip(got, fresh, strict=True):
                np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("ids, n_last", [
    ([], 1), ([1] * 13, 1), ([1, 2], 3), ([1, 2], 0), ([13], 1), ([-1], 1), ([1, 2, 99], 1),
    ([1.5], 1), ("abc", 1), ([[1, 2]], 1)])
def test_all_classes_refuse_the_same_sequences_and_stay_right(ids, n_last):
    name = Name()
    batch = BatchGPT2(PARAMS, 2)
    in_batch = lambda *call: batch([(name, *call)])[0]
    for model in (GPT2(PARAMS, 2), TreeGPT2(PARAMS, 2), in_batch):
        model([1, 2], 1)
        with pytest.raises(ValueError, match="need .* got"):
            model(ids, n_last)
        expected = GPT2(PARAMS, 2)([1, 2, 3])
        np.testing.assert_allclose(model([1, 2, 3], 1), expected, rtol=0, atol=1e-11)
        assert model([1] * 12, 12).shape == (12, 13)


def test_a_batch_of_one_text_twice_is_refused():
    name = Name()
    with pytest.raises(ValueError, match="one text twice"):
        BatchGPT2(PARAMS, 2)([(name, [1], 1), (name, [1, 2], 1)])


@pytest.mark.parametrize("kind", [GPT2, TreeGPT2, BatchGPT2])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy,
                                    lambda model: pickle.loads(pickle.dumps(model))],
                         ids=["copy", "deepcopy", "pickle"])
def test_a_copy_is_a_model_over_the_same_weights(kind, copied):
    model = kind(PARAMS, 2)
    model.hidden([1, 2, 3])
    other = copied(model)
    assert type(other) is kind and other.ids == []
    np.testing.assert_array_equal(other.hidden([1, 2, 4]), kind(PARAMS, 2).hidden([1, 2, 4]))


def test_both_subclasses_run_the_pass_of_gpt2():
    """`interrupted` reaches them because they import gpt2.forward, which calls gpt2's block."""
    assert tree_gpt2.forward is batch_gpt2.forward is gpt2.forward
