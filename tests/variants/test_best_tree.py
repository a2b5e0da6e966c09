"""The best tree: it is the one of brute force, pays where it says, and follows the text."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact.law import expectation, text_law
from speculative import generate, make_step
from tests.toys import counted, mapped, path_by_path, toy
from theory.speedup import best_K, walltime_improvement
from variants.registry import Costs
from variants.shared.best_tree import auto_tree, best_shape, n_levels, outcomes, uniform
from variants.shared.branches import Tree
from variants.shared.dynamic_tree import guess_dynamic
from variants.tree import guess_shape, verify_tree

K_MAX = 8
WIDTH = 3
RNG = np.random.default_rng(0)
FALLING = [np.sort(RNG.random(WIDTH))[::-1].tolist() for _ in range(6)] + [[0.8, 0.1, 0.0],
                                                                           [0.5, 0.5, 0.5]]


def mean_tokens(shape, acceptances):
    """F by its definition: tokens per round, with the resampled or bonus token (the root)."""
    return 1 + sum(np.prod([acceptances[rank] for rank in path]) for path in shape)


def shapes(n, rank=0):
    """Every shape of n nodes, whose first child is of this rank: brute force."""
    if n == 0:
        yield []
    elif rank < WIDTH:
        for n_below in range(n):
            for below in shapes(n_below):
                for others in shapes(n - 1 - n_below, rank + 1):
                    yield [(rank,), *((rank, *path) for path in below), *others]


@given(st.lists(st.integers(1, 3), max_size=3))
def test_uniform_shapes_have_their_size_and_every_parent(widths):
    shape = uniform(widths)
    assert len(set(shape)) == len(shape) == np.cumprod(widths).sum()
    assert n_levels(shape) == len(widths) and all(path[:-1] in [(), *shape] for path in shape)


def test_F_is_what_a_round_brings_where_its_assumption_holds():
    """Rows that are the same everywhere: the chance of the b-th best is the target's of it."""
    draft, target = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.25, 0.15])
    shape = [(0,), (1,), (2,), (0, 0), (0, 1), (1, 0)]
    guess = partial(guess_shape, draft=path_by_path(same_rows(draft)), shape=shape, siblings="top")
    step = make_step(path_by_path(same_rows(target)), 3, guess, verify_tree)
    found = expectation(partial(step, [0], 9), lambda result: len(result.ids))
    assert found == pytest.approx(mean_tokens(shape, target))


@pytest.mark.parametrize("acceptances", FALLING, ids=str)
@pytest.mark.parametrize("row", [0.0, 0.1, 0.5])
def test_no_shape_is_faster_than_the_best_one(acceptances, row):
    c, pass_cost = 0.05, [1 + row * n for n in range(7)]
    gains = {tuple(sorted(shape)): mean_tokens(shape, acceptances)
             / (pass_cost[n] + c * n_levels(shape)) for n in range(7) for shape in shapes(n)}
    gain, shape = best_shape(acceptances, c, pass_cost)
    assert gain == pytest.approx(max(gains.values())) == gains[tuple(sorted(shape))]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("pass_cost", [[1] * 9, [1, 1.1, 1.3, 1.4, 1.6, 2.1, 2.2, 2.3, 2.3]])
def test_with_one_child_it_is_best_K(alpha, pass_cost):
    gain, shape = best_shape([alpha], 0.1, pass_cost)
    K = best_K(alpha, 0.1, pass_cost)
    assert len(shape) == n_levels(shape) == K
    assert gain == pytest.approx(walltime_improvement(alpha, K, 0.1, pass_cost[K]))


# ---- as the text grows

EVEN, DEAR = (Costs(0.1, [1 + row * n for n in range(K_MAX + 1)]) for row in (0.0, 0.3))


def same_rows(row):
    return lambda ids, n_last=1: np.array([row] * n_last)


def chosen_shapes(draft, target, costs):
    """The shapes of a text of 300 tokens, without those of its first half."""
    chosen, (draft, target) = [], (path_by_path(same_rows(row)) for row in (draft, target))

    def step_of(shape):
        chosen.append(shape)
        guess = partial(guess_shape, draft=draft, shape=shape, siblings="top")
        return make_step(target, n_levels(shape), guess, verify_tree)

    list(generate([0], auto_tree(step_of, costs), 300, np.random.default_rng(0)))
    return chosen[len(chosen) // 2 :]


def test_the_tree_branches_where_the_second_child_is_often_the_one_and_rows_are_cheap():
    draft = np.array([0.4, 0.35, 0.25])
    bush = chosen_shapes(draft, np.array([0.5, 0.45, 0.05]), EVEN)
    chain = chosen_shapes(draft, np.array([0.95, 0.01, 0.04]), DEAR)
    assert np.mean([(1,) in shape for shape in bush]) > 0.8
    assert np.mean([len(shape) == n_levels(shape) > 0 for shape in chain]) > 0.8


def test_a_useless_draft_is_hardly_called():
    shapes = chosen_shapes(np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.5, 0.5]), DEAR)
    assert np.mean([len(shape) for shape in shapes]) < 0.2
    assert any(shapes)  # it is tried again, because a text may change


def test_what_a_round_tells_of_each_rank():
    tree = Tree()
    for parent, token in ((-1, 5), (-1, 7), (1, 2), (1, 3), (3, 3)):
        tree.add(parent, token, None)
    assert list(outcomes(tree, [7, 3, 4])) == [(2, 1), (2, 1), (1, None)]
    assert list(outcomes(tree, [4])) == [(2, None)]
    assert list(outcomes(tree, [7, 3, 3, 9])) == [(2, 1), (2, 1), (1, 0), (0, None)]
    assert list(outcomes(Tree(), [4])) == [(0, None)]


# ---- dynamic trees

@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("total, depth", [(1, 3), (5, 2), (6, 4), (40, 2)])
def test_a_dynamic_tree_has_the_best_of_all_paths(seed, total, depth):
    model = toy(4, seed)
    tree, rows = guess_dynamic([0], depth, None, path_by_path(model), total)
    laws = [text_law([0], model, n) for n in range(1, depth + 1)]
    values = {path[1:]: p for law in laws for path, p in law.items()}
    found = [values[tuple(path)] for path in tree.paths()]
    assert np.allclose(found, sorted(values.values(), reverse=True)[:total])
    assert len(tree) == min(total, len(values))
    assert all(row[token] == 1 == row.sum() for token, row in zip(tree.tokens, rows))


def test_the_draft_is_asked_once_a_level_and_only_where_the_best_may_be():
    draft = counted(path_by_path(mapped(toy(4, 1, zeros=0),
                                        lambda row: np.array([0.9, 0.06, 0.03, 0.01]))))
    tree, _ = guess_dynamic([0], 4, None, draft, 3)
    assert draft.calls == [1, 3, 1, 1] and tree.paths() == [[0], [0, 0], [0, 0, 0]]
    assert guess_dynamic([0], 0, None, draft, 3)[1] == [] and len(draft.calls) == 4
