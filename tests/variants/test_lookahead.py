"""Lookahead: the window compared with the authors' bookkeeping, the pool, what is tested."""

import numpy as np
import pytest

from sampling import one_hot_rows
from speculative import generate
from tests.small import Logits
from tests.toys import PAIRS, count_up, mapped, one_hot, toy
from variants import Models
from variants.lookahead import add_to_pool, build, make_tree

DENSE, FOUR = (PAIRS[name][1] for name in ("dense", "four tokens"))
REPEATING = [0, 1, 2, 1, 0, 0, 1]


class Noted(Logits):
    """Record the tree of every call."""

    def __call__(self, ids, n_last=1):
        self.trees.append(ids.tree)
        return super().__call__(ids, n_last)


def stepper(target, columns=3, ngram=3, pool=2, trees=None):
    """Return the step of a toy target; `trees` collects the trees of its calls."""
    model = Noted(target)
    model.trees = [] if trees is None else trees
    return build(Models(None, model, dict(temperature=1.0)), columns, ngram, pool)


# ---- the guesses are n-grams of the pool, and nothing else

def test_the_window_is_read_and_not_tested():
    """The pool is empty."""
    trees = []
    result = stepper(DENSE, 3, 4, 2, trees)(REPEATING, 9, np.random.default_rng(0))
    assert len(result.guesses) == 0 and len(result.p_target) == 1 + len(trees[0]) > 1


def test_a_round_has_the_tested_guesses_and_the_rows_of_the_window_too():
    trees = []
    x = [*REPEATING, 3]
    step = stepper(FOUR, 3, 4, 3, trees)
    for result in generate(x, step, 30, np.random.default_rng(1)):
        tree = trees[-1]  # the guesses, and after them the window
        n = len(result.guesses)
        assert [node for node, _ in tree.proposals] == [*range(n)]
        assert result.guesses.tokens == tree.tokens[:n]
        assert len(result.guesses.proposals) == len(result.p_draft) == n
        assert np.allclose(result.p_target, [FOUR(text)[-1] for text in (x + tree).texts()])
        x = x + result.ids


def test_the_latest_n_gram_is_tested_first_and_a_shared_start_once():
    n_grams = [[1, 2], [0, 1], [1, 0]]
    window = [[1, 2, 2], [2, 0]]
    tree, ends = make_tree(n_grams, window, 9, 3)
    assert tree.paths()[:5] == [[1], [1, 0], [0], [0, 1], [1, 2]]
    assert [node for node, _ in tree.proposals] == [0, 1, 2, 3, 4]
    assert tree.paths()[5:] == [[1, 2, 2], [2], [2, 0]]
    assert [tree.paths()[node] for node in ends] == window
    assert np.array_equal([row for _, row in tree.proposals], one_hot_rows([1, 0, 0, 1, 2], 3))


def test_a_pool_has_the_latest_n_grams_once():
    pool = {}
    for tokens in ([0, 1, 1], [0, 2, 2], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]):
        add_to_pool(pool, tokens, 2)
    assert pool == {0: [[1, 1], [0, 0]], 1: [[0, 0]]}


# ---- the window

class Levels:
    """Do the authors' bookkeeping: one list per level, all shifted by one.

    If several tokens were accepted, all levels drop the columns that are text now. A level that
    is too short is filled up with tokens of the text, from its start.
    """

    def __init__(self, columns, ngram):
        self.columns = columns
        self.levels = [[] for _ in range(ngram - 1)]

    def paths(self, x):
        for level, tokens in enumerate(self.levels):
            tokens += [x[(level + i) % len(x)] for i in range(len(tokens), self.columns)]
        trunk = self.levels[0]
        return [trunk[1 : i + 1] + [tokens[i] for tokens in self.levels[1:]]
                for i in range(self.columns)]

    def move(self, new, n):
        self.levels = [tokens[n - 1 :] for tokens in [*self.levels[1:], new]]


def as_set(paths):
    return {tuple(path) for path in paths}


@pytest.mark.parametrize("columns, ngram", [(1, 2), (1, 4), (3, 2), (3, 3), (4, 4), (2, 5)])
@pytest.mark.parametrize("temperature", [0, 1])
def test_the_window_moves_as_in_the_authors_code(columns, ngram, temperature):
    target = toy(4, 12) if temperature else mapped(toy(4, 12), one_hot)
    levels = Levels(columns, ngram)
    trees = []
    x = list(REPEATING)
    step = stepper(target, columns, ngram, 3, trees)
    for _ in range(40):
        result = step(x, 99, np.random.default_rng(len(x)))
        paths = levels.paths(x)
        starts = [path[:n] for path in paths for n in range(1, len(path) + 1)]
        assert as_set(trees[-1].paths()) == as_set(result.guesses.paths() + starts)
        new = [int(target(x + path)[-1].argmax()) for path in paths]
        levels.move(new, len(result.ids))
        x = x + result.ids
    assert len(x) > len(REPEATING) + 40  # some of the 40 rounds had several tokens


@pytest.mark.parametrize("n_left", range(1, 9))
def test_no_node_is_deeper_than_n_left_allows(n_left):
    trees = []
    step = stepper(DENSE, 3, 3, 3, trees)
    for n in (99, 99, 99, n_left):
        step(REPEATING, n, np.random.default_rng(0))
    deepest = max(map(len, trees[-1].paths()), default=0)
    assert deepest == min(n_left - 1, 3)  # the third column: 2 tokens of the trunk, level 1


@pytest.mark.parametrize("ngram", [2, 3, 5])
def test_a_text_that_repeats_itself_has_n_tokens_per_pass(ngram):
    rounds = list(generate([0, 0, 0], stepper(count_up(5), 5, ngram, 2), 20 + 4 * ngram,
                           np.random.default_rng(0)))
    assert [len(result.ids) for result in rounds[-4:-1]] == [ngram] * 3
