"""The best tree: found by brute force too, fast where it should be, and adapted to the text."""

from functools import partial

import numpy as np
import pytest

from exact.expected import along_paths
from exact.law import text_law
from speculative import generate, make_step
from tests.toys import context_free, counted, toy, tree_of
from variants.registry import Costs
from variants.shared.best_tree import auto_tree, best_nodes, best_shape, n_levels, reached_nodes
from variants.shared.branches import Tree
from variants.shared.dynamic_tree import guess_dynamic
from variants.tree import guess_shape, verify_tree

K_MAX = 8
WIDTH = 3
RISING = np.sort(np.random.default_rng(0).random((6, WIDTH)))
FALLING = [*RISING[:, ::-1].tolist(), [0.8, 0.1, 0.0], [0.5, 0.5, 0.5]]


def mean_tokens(shape, acceptances):
    """Return F by its definition: tokens per round; 1 is the resampled or bonus token."""
    return 1 + sum(np.prod([acceptances[rank] for rank in path]) for path in shape)


def shapes(n, rank=0):
    """Yield every shape of n nodes whose first child has this rank: brute force."""
    if n == 0:
        yield []
    elif rank < WIDTH:
        for n_below in range(n):
            for below in shapes(n_below):
                for others in shapes(n - 1 - n_below, rank + 1):
                    yield [(rank,), *((rank, *path) for path in below), *others]


@pytest.mark.parametrize("acceptances", FALLING, ids=str)
@pytest.mark.parametrize("pass_cost", [
    *([1 + row_cost * n for n in range(7)] for row_cost in (0.0, 0.1, 0.5)),
    [1, 1.3, 1.4, 1.9, 2.0, 2.0, 2.1]], ids=str)
def test_no_shape_is_faster_than_the_best_one(acceptances, pass_cost):
    c = 0.05
    gains = {}
    for n in range(7):
        for shape in shapes(n):
            time = pass_cost[n] + c * n_levels(shape)
            gains[tuple(sorted(shape))] = mean_tokens(shape, acceptances) / time
    gain, shape = best_shape(acceptances, c, pass_cost)
    assert gain == pytest.approx(max(gains.values())) == gains[tuple(sorted(shape))]


@pytest.mark.parametrize("n", range(7))
def test_of_equal_products_the_smaller_path_is_taken_and_comes_after_its_parent(n):
    """All children are always accepted; the paths come in any order."""
    paths = [(), (0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1)]
    for order in (paths, paths[::-1], [*paths[3:], *paths[:3]]):
        assert [*best_nodes(dict.fromkeys(order, 1.0), n)] == paths[: 1 + n]


# ---- as the text grows

EQUAL_COSTS, RISING_COSTS = (Costs(0.1, [1 + row_cost * n for n in range(K_MAX + 1)])
                             for row_cost in (0.0, 0.3))


def chosen_shapes(draft, target, costs):
    """Return the shapes of a text of 300 tokens, without those of its first half.

    The two rows are the same after every text, and siblings are the draft's best tokens.
    """
    chosen = []
    draft, target = (along_paths(context_free(row)) for row in (draft, target))

    def step_of(shape):
        chosen.append(shape)
        guess = partial(guess_shape, draft=draft, shape=shape, siblings="top")
        return make_step(target, n_levels(shape), guess, verify_tree)

    list(generate([0], auto_tree(step_of, costs), 300, np.random.default_rng(0)))
    return chosen[len(chosen) // 2 :]


def test_the_tree_branches_if_the_second_child_is_often_accepted_and_rows_are_cheap():
    bushes = chosen_shapes([0.4, 0.35, 0.25], [0.5, 0.45, 0.05], EQUAL_COSTS)
    chains = chosen_shapes([0.4, 0.35, 0.25], [0.95, 0.01, 0.04], RISING_COSTS)
    assert np.mean([(1,) in shape for shape in bushes]) > 0.8
    assert np.mean([len(shape) == n_levels(shape) > 0 for shape in chains]) > 0.8


def test_a_useless_draft_is_hardly_called():
    chosen = chosen_shapes([1.0, 0.0, 0.0], [0.0, 0.5, 0.5], RISING_COSTS)
    assert np.mean([len(shape) for shape in chosen]) < 0.2
    assert any(chosen)  # it is tried again, because a text may change


def test_a_round_counts_how_often_each_rank_was_tested_and_accepted():
    tree = tree_of([5, 7, 2, 3, 3], [-1, -1, 1, 1, 3])
    assert list(reached_nodes(tree, [7, 3, 4])) == [(2, 1), (2, 1), (1, None)]
    assert list(reached_nodes(tree, [4])) == [(2, None)]
    assert list(reached_nodes(tree, [7, 3, 3, 9])) == [(2, 1), (2, 1), (1, 0), (0, None)]
    assert list(reached_nodes(Tree(), [4])) == [(0, None)]


# ---- dynamic trees

@pytest.mark.parametrize("total, depth", [(1, 3), (5, 2), (6, 4), (40, 2)])
def test_a_dynamic_tree_has_the_best_of_all_paths(total, depth):
    for model in (toy(4, seed) for seed in range(5)):
        tree, rows = guess_dynamic([0], depth, None, along_paths(model), total)
        probability = {}  # of every path
        for n in range(1, depth + 1):
            probability |= {text[1:]: p for text, p in text_law([0], model, n).items()}
        chosen = [probability[tuple(path)] for path in tree.paths()]
        assert np.allclose(chosen, sorted(probability.values(), reverse=True)[:total])
        assert len(tree) == min(total, len(probability))
        assert all(row[token] == 1 == row.sum() for token, row in zip(tree.tokens, rows))


def test_the_draft_is_called_once_per_level_and_only_for_nodes_that_the_best_may_follow():
    draft = counted(along_paths(context_free([0.9, 0.06, 0.03, 0.01])))
    tree, _ = guess_dynamic([0], 4, None, draft, 3)
    assert draft.calls == [1, 3, 1, 1] and tree.paths() == [[0], [0, 0], [0, 0, 0]]
    assert guess_dynamic([0], 0, None, draft, 3)[1] == [] and len(draft.calls) == 4
