"""State that a model with a cache gives a fresh model's rows, whatever it has read before."""

import contextlib
import copy
import pickle
from unittest import mock

import numpy as np
import pytest
from hypothesis import strategies as st

import gpt2
from tests.toys import tree_of

COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy,
          "pickle": lambda model: pickle.loads(pickle.dumps(model))}
each_copy = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


def some_tokens(alphabet, most):
    """Return a strategy for lists of tokens; Hypothesis draws bytes faster than integers."""
    return st.binary(max_size=most).map(
        lambda data: [alphabet[byte % len(alphabet)] for byte in data])


def some_edits(alphabet, least=1, most=12):
    """Return a strategy for edits of two texts, which append tokens of the alphabet.

    An edit is (text, 0 or 1; number of tokens to drop; tokens to append; rows to ask for).
    """
    n_dropped = st.integers(0, 4) | st.integers(0, 20)  # as after a round, or a different text
    appended = some_tokens(alphabet, most=6)
    edit = st.tuples(st.integers(0, 1), n_dropped, appended, st.integers(1, 5))
    return st.lists(edit, min_size=least, max_size=most)


def edited_texts(edits, n_ctx):
    """Yield (texts, i, n_last) after each edit of texts[i], which changes in place."""
    texts = [1], [1, 2]
    for i, n_dropped, appended, n_last in edits:
        ids = texts[i]
        del ids[max(1, len(ids) - n_dropped) :]
        ids += appended
        del ids[n_ctx:]
        yield texts, i, min(n_last, len(ids))


def some_trees(alphabet, most=7):
    """Return a strategy for trees of at most this many guesses."""
    nodes = st.tuples(some_tokens(alphabet, most), some_tokens(range(most), most))
    return nodes.map(lambda lists: tree_below(*lists))


def tree_below(tokens, numbers):
    """Return the tree whose guess i is below guess numbers[i] % (i + 1) - 1; -1 is the root."""
    parents = [number % (i + 1) - 1 for i, number in enumerate(numbers)]
    return tree_of(tokens[: len(parents)], parents[: len(tokens)])


def assert_close(rows, expected, tolerance=1e-11):
    """Refuse rows that differ from the expected ones by more than this part of their largest."""
    assert np.shape(rows) == np.shape(expected)
    distance = np.abs(np.subtract(rows, expected)).max() / np.abs(expected).max()
    assert distance <= tolerance, f"{distance:.1e} of the largest entry away"


def assert_used_is_fresh(used, fresh, edits, n_ctx, tolerance=1e-11):
    """Refuse a model `used` whose rows after an edit are not those of `fresh`."""
    for texts, i, n_last in edited_texts(edits, n_ctx):
        assert_close(used(texts[i], n_last), fresh(texts[i], n_last), tolerance)


@contextlib.contextmanager
def tokens_read():
    """Yield a list that gets, after the block, the number of tokens of each pass of a GPT2."""
    numbers = []
    with mock.patch.object(gpt2, "forward", wraps=gpt2.forward) as forward:
        yield numbers
    numbers += [len(call.args[0]) for call in forward.call_args_list]
