"""No answer depends on earlier calls: every class with a cache has the rows of a fresh model.

A text is one list that grows and shrinks in place, as a caller's may. The models read it as a
sequence, with a tree of guesses, or in a batch. Some passes are interrupted.
"""

import contextlib
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
import llama
from gpt2 import GPT2
from llama import Llama
from tests.llamas import llama_params
from tests.reuse import assert_close, each_copy, edited_texts, some_edits, some_trees
from tests.test_gpt2 import HPARAMS, PARAMS
from variants.shared.branches import Branches
from variants.shared.tree_gpt2 import TreeGPT2, TreeLlama, TreeReader
from wrappers.batch_gpt2 import BatchGPT2, BatchLlama, BatchReader

N_CTX = HPARAMS["n_ctx"]
LLAMA = llama_params(n_ctx=N_CTX, n_head=2, n_kv=1)
KINDS = GPT2, TreeGPT2, BatchGPT2, Llama, TreeLlama, BatchLlama
each_kind = pytest.mark.parametrize("kind", KINDS)
TOKENS = range(3)  # so few that texts continue along trees read before
# Whether Ctrl-C ends the pass, and a tree of guesses.
CALLS = st.tuples(st.integers(0, 9).map(lambda number: number < 3), some_trees(TOKENS, most=5))


class Name:
    """Identify one text of a batch."""


def new(kind):
    """Return a model that has read nothing."""
    return kind(LLAMA if issubclass(kind, Llama) else PARAMS, 2)


@contextlib.contextmanager
def interrupted(now, formulas):
    """Interrupt a pass in its second block, as Ctrl-C might, if `now`."""
    blocks = []

    def block(*args, **kwargs):
        blocks.append(1)
        if now and len(blocks) == 2:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    original = formulas.transformer_block
    with mock.patch.object(formulas, "transformer_block", block), \
            contextlib.suppress(KeyboardInterrupt):
        yield


@each_kind
@given(some_edits(TOKENS, least=10), st.lists(CALLS, min_size=12, max_size=12))
@settings(max_examples=25)
def test_a_used_model_has_the_rows_of_a_fresh_one(kind, edits, calls):
    model = new(kind)
    formulas = llama if isinstance(model, Llama) else gpt2
    names = Name(), Name()
    for (texts, i, n_last), (is_interrupted, tree) in zip(edited_texts(edits, N_CTX), calls):
        x = texts[i]
        args = x, n_last
        if issubclass(kind, TreeReader) and 0 < len(tree) <= N_CTX - len(x):
            args = Branches(x, tree), 1 + len(tree)
        if issubclass(kind, BatchReader):
            args = ([(name, text, 1) for name, text in zip(names, texts)],)
        with interrupted(is_interrupted, formulas):
            got = model(*args)
            for rows, expected in zip(got, new(kind)(*args), strict=True):
                assert_close(rows, expected)


@pytest.mark.parametrize("ids, n_last", [
    ([], 1), ([1] * 13, 1), ([1, 2], 3), ([1, 2], 0), ([13], 1), ([-1], 1), ([1, 2, 99], 1),
    ([1.5], 1), ([1.0, 2, 3], 1), ([True, 2], 1), ("abc", 1), ([[1, 2]], 1)])
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


@each_kind
@each_copy
def test_a_copy_is_a_model_over_the_same_weights(kind, copied):
    model = new(kind)
    model.hidden([1, 2, 3])
    other = copied(model)
    assert type(other) is kind and other.ids == []
    np.testing.assert_array_equal(other.hidden([1, 2, 4]), new(kind).hidden([1, 2, 4]))
