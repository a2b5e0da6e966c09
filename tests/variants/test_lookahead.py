"""Lookahead: the joint distribution, the window beside the authors' bookkeeping, the pool."""

from itertools import cycle, islice

import numpy as np
import pytest

from exact.law import Scripted, assert_same_law, law, paths, text_law
from exact.toys import PAIRS, mapped, one_hot, path_by_path, toy
from gpt2 import GPT2
from lib.checkpoints.weights import random_params
from sampling import one_hot_rows, with_sampling
from speculative import complete, generate
from tests.small import Logits
from variants import Models
from variants.lookahead import build, column_paths, extend_columns, lookahead, make_tree, remember
from variants.shared.branches import Tree, with_tree_sampling
from variants.shared.tree_gpt2 import TreeGPT2

DENSE, SPARSE, FOUR = (PAIRS[name][1] for name in ("dense", "sparse", "four tokens"))
TARGETS = {"dense": DENSE, "sparse": SPARSE, "four tokens": FOUR,
           "greedy": mapped(DENSE, one_hot), "four tokens, greedy": mapped(FOUR, one_hot)}
SHAPES = [(1, 3, 2), (3, 2, 3), (2, 4, 2)]
REPEATING = [0, 1, 2, 1, 0, 0, 1]
PARAMS = random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=2),
                       np.random.default_rng(0), np.float64)


def stepper(target, columns=3, ngram=3, size=2, trees=None):
    """The step of a toy target; `trees` collects what the target was asked."""
    model = path_by_path(target)

    def noted(ids, n_last):
        if trees is not None:
            trees.append(ids.tree)
        return model(ids, n_last)

    return lookahead(noted, len(target([0])[0]), columns, ngram, size)


# ---- the distribution

def with_full_pool(target):
    """A step that has gone through another text, and knows n-grams after every token."""
    step = stepper(target, 3, 3, 3)
    complete(REPEATING, step, 12, Scripted([0.1, 0.5, 0.9, 0.3, 0.7] * 20))
    return step


@pytest.mark.parametrize("name", ["dense", "sparse", "greedy"])
@pytest.mark.parametrize("x", [[0, 1], [2, 2, 1], [0]], ids=str)
def test_n_grams_of_another_text_keep_the_distribution_and_some_are_kept(name, x):
    target, N = TARGETS[name], 4
    got = law(lambda rng: complete(x, with_full_pool(target), N, rng))
    assert_same_law(got, text_law(x, target, N))
    if name == "dense":  # every token has a chance
        rounds = [round for round, *_ in paths(lambda rng: with_full_pool(target)(x, N, rng))]
        assert min(len(round.guesses) for round in rounds) >= 2
        assert {2, 3} <= {len(round.ids) for round in rounds}


# ---- guesses are what the pool knows, and nothing else

def test_the_window_is_read_and_not_tested():
    """The pool knows nothing yet: one uniform, one token, whatever the window holds."""
    for u in (0.05, 0.5, 0.95):
        trees = []
        round = stepper(DENSE, 3, 4, 2, trees)(REPEATING, 9, Scripted([u]))
        assert len(round.guesses) == 0 and len(round.ids) == 1 and len(trees[0]) > 0
        assert len(round.p_target) == 1 + len(trees[0])


def test_of_a_round_the_guesses_are_the_tested_ones_and_the_rows_all():
    trees, x = [], [*REPEATING, 3]
    step = stepper(FOUR, 3, 4, 3, trees)
    for round in generate(x, step, 30, np.random.default_rng(1)):
        tree, n = trees[-1], len(round.guesses)
        assert [node for node, _ in tree.proposals] == [*range(n)]
        assert round.guesses.tokens == tree.tokens[:n] and len(round.p_draft) == n
        assert len(round.guesses.proposals) == n
        expected = [FOUR(text)[-1] for text in (x + tree).texts()]
        assert np.array_equal(round.p_target, expected)
        x = x + round.ids


def test_the_latest_n_gram_is_tested_first_and_a_shared_start_once():
    tree = make_tree([[1, 2], [0, 1], [1, 0]], [[1, 2, 2], [2, 0]], 9, 3)
    assert tree.paths()[:5] == [[1], [1, 0], [0], [0, 1], [1, 2]]
    assert [node for node, _ in tree.proposals] == [0, 1, 2, 3, 4]
    assert tree.paths()[5:] == [[1, 2, 2], [2], [2, 0]]
    assert np.array_equal([row for _, row in tree.proposals], one_hot_rows([1, 0, 0, 1, 2], 3))


def test_a_pool_keeps_the_latest_once():
    pool = {}
    for tokens in ([0, 1, 1], [0, 2, 2], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]):
        remember(pool, tokens, 2)
    assert pool == {0: [[1, 1], [0, 0]], 1: [[0, 0]]}


# ---- the window

def test_a_column_sees_the_trunk_up_to_its_place_and_its_own_levels():
    paths = column_paths([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    assert paths == [[1, 2], [3, 4, 5], [3, 6, 7, 8], [3, 6, 9, 10, 11]]
    tree = make_tree([], paths, 9, 12)
    depths = dict(zip(tree.tokens, tree.ancestors().sum(axis=1).tolist()))
    assert depths == {1: 1, 2: 2, 3: 1, 4: 2, 5: 3, 6: 2, 7: 3, 8: 4, 9: 3, 10: 4, 11: 5}


def test_a_column_grows_by_the_targets_best_token_after_it():
    window, target = [[0, 1, 1], [2, 0, 1], [1, 1, 2]], path_by_path(FOUR)
    tree = make_tree([[2, 2, 2]], column_paths(window), 9, 4)
    x = [3, 0]
    best = [int(FOUR(x + path)[-1].argmax()) for path in column_paths(window)]
    grown = extend_columns(window, tree, target(x + tree, 1 + len(tree)))
    assert grown == [column + [token] for column, token in zip(window, best)]
    cut = make_tree([], column_paths(window), 3, 4)  # the third column ends at depth 4
    assert extend_columns(window, cut, target(x + cut, 1 + len(cut))) == grown[:2]


class Levels:
    """The paper's own bookkeeping, as in its authors' code: one list a level, all shifted by one.

    Where several tokens were accepted, all levels lose the columns that are text now.
    """

    def __init__(self, columns, ngram):
        self.columns, self.ngram, self.levels = columns, ngram, [[] for _ in range(ngram - 1)]

    def paths(self, x):
        for level, tokens in enumerate(self.levels):
            tokens += [next(islice(cycle(x), i + level, None))
                       for i in range(len(tokens), self.columns)]
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
    twin, trees, n_ids, x = Levels(columns, ngram), [], [], list(REPEATING)
    step = stepper(target, columns, ngram, 3, trees)
    for _ in range(40):
        round, paths = step(x, 99, np.random.default_rng(len(x))), twin.paths(x)
        starts = [path[:n] for path in paths for n in range(1, len(path) + 1)]
        assert as_set(trees[-1].paths()) == as_set(round.guesses.paths() + starts)
        new = [int(target(x + path)[-1].argmax()) for path in paths]
        twin.move(new, len(round.ids))
        x, n_ids = x + round.ids, n_ids + [len(round.ids)]
    assert max(n_ids) > 1


@pytest.mark.parametrize("n_left", range(1, 9))
def test_no_node_is_deeper_than_the_room_allows(n_left):
    trees = []
    step = stepper(DENSE, 3, 3, 3, trees)
    for n in (99, 99, 99, n_left):
        step(REPEATING, n, np.random.default_rng(0))
    deepest = max(map(len, trees[-1].paths()), default=0)
    assert deepest == min(n_left - 1, 3)  # the last of 3 columns: 2 tokens of the trunk, level 1


def test_a_window_that_was_cut_is_whole_again():
    trees = []
    step = stepper(DENSE, 3, 3, 2, trees)
    for n_left in (99, 2, 99):
        step(REPEATING, n_left, np.random.default_rng(0))
    assert max(map(len, trees[-1].paths())) == 3


# ---- tokens for each pass

@pytest.mark.parametrize("ngram", [2, 3, 5])
def test_what_comes_again_and_again_comes_n_tokens_a_pass(ngram):
    count_up = lambda ids, n_last=1: one_hot_rows([(ids[-1] + 1) % 5], 5)
    rounds = list(generate([0, 0, 0], stepper(count_up, 5, ngram, 2), 20 + 4 * ngram,
                           np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds[-4:-1]] == [ngram] * 3


# ---- on a GPT-2

def test_every_row_is_that_of_its_path_run_alone():
    chosen, x = dict(temperature=0.8, top_k=7, repetition_penalty=1.3), [1, 2, 3]
    asked, model = [], with_tree_sampling(TreeGPT2(PARAMS, 3), **chosen)
    step = lookahead(lambda ids, n_last: asked.append(ids) or model(ids, n_last), 13, 4, 3, 3)
    for round in generate(x, step, 21, np.random.default_rng(0)):
        rows = [with_sampling(GPT2(PARAMS, 3), **chosen)(text)[-1] for text in asked[-1].texts()]
        assert np.allclose(round.p_target, rows, rtol=0, atol=1e-10)


# ---- steps

def test_one_column_of_four_grams_has_two_nodes():
    models = Models(None, Logits(DENSE), dict(temperature=1.0))
    round = build(models, columns=1, ngram=4, pool=2)([0, 1, 2], 9, Scripted([0.5]))
    assert len(round.p_target) == 1 + 2


def test_two_texts_have_two_windows_and_two_pools():
    one, other = [], []
    for trees, N in ((one, 9), (other, 2)):
        complete(REPEATING, stepper(mapped(FOUR, one_hot), 3, 3, 3, trees), N, Scripted([0.5] * 99))
    asked_again = one[0].paths()[: len(other[0])]
    assert other[0].paths() == asked_again != one[1].paths()


@pytest.mark.parametrize("columns, ngram, size", [(0, 3, 2), (3, 1, 2), (3, 3, 0)])
def test_what_makes_no_window_is_named(columns, ngram, size):
    with pytest.raises(ValueError, match=f"columns >= 1, .* got {columns}, {ngram} and {size}"):
        stepper(DENSE, columns, ngram, size)


def test_an_empty_pool_leaves_an_empty_tree_of_guesses():
    assert make_tree([], [], 3, 4) == Tree()
