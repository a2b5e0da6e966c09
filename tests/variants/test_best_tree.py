"""The best tree: heap, program and brute force agree; it pays where it says; it is exact."""

from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest

from exact.law import expectation, text_law
from exact.toys import counted, mapped, path_by_path, toy
from speculative import generate, make_step
from theory.speedup import best_K, walltime_improvement
from variants import DECODERS, Models, build
from variants.best_tree import (
    START_ACCEPTANCES,
    auto_tree,
    best_first,
    best_shape,
    n_levels,
    n_nodes,
    outcomes,
    shape_of,
    truncate,
    uniform,
)
from variants.dynamic_tree import dynamic_tree, guess_dynamic
from variants.registry import Costs
from variants.shared.branches import Tree
from variants.tree import guess_shape, verify_tree

K_MAX = 8


def mean_tokens(shape, acceptances):
    """F by its definition: tokens per round, with the resampled or bonus token (the root)."""
    return 1 + sum(p * mean_tokens(child, acceptances) for child, p in zip(shape, acceptances))


def forests(n, depth, width):
    """Every list of at most `width` shapes with n nodes in at most `depth` levels: brute force."""
    if n == 0:
        yield ()
    elif depth and width:
        for first in range(1, n + 1):
            for child in forests(first - 1, depth - 1, WIDTH):
                for others in forests(n - first, depth, width - 1):
                    yield (child, *others)


WIDTH = 3
RNG = np.random.default_rng(0)
RISING = [0.2, 0.5, 0.1]
FALLING = [np.sort(RNG.random(WIDTH))[::-1].tolist() for _ in range(6)] + [[0.8, 0.1, 0.0],
                                                                           [0.5, 0.5, 0.5]]


def best_by_program(acceptances, n, depth):
    """(F, shape) of the best tree of n guesses in at most `depth` levels.

    Chen et al. (2024) Sec. 3.1: T[m][l][b], with l = depth, is the best tree of m nodes, the root
    among them, whose root has b children: y nodes without the last child and what stands below it,
    and m - y there. None if there is no such tree.

    >>> best_by_program([0.5, 0.25], 3, 3)  # a second child has 0.25, a third level 0.125
    (2.0, (((),), ()))
    """
    @cache
    def T(m, depth, b):
        if m == 1 or b == 0 or depth == 0:
            return (1, ()) if (m, b) == (1, 0) else None
        pairs = ((T(y, depth, b - 1), best(m - y, depth - 1)) for y in range(1, m))
        return max((with_child(*pair, b) for pair in pairs if None not in pair), default=None)

    @cache
    def best(m, depth):
        trees = (T(m, depth, b) for b in range(len(acceptances) + 1))
        return max(filter(None, trees), default=None)

    def with_child(tree, child, b):
        return tree[0] + acceptances[b - 1] * child[0], (*tree[1], child[1])

    return best(n + 1, depth)


def by_heap(acceptances, n, depth):
    """The shape of the n best places."""
    return shape_of(best_first(lambda path: acceptances if len(path) < depth else (), n))


# ---- [1]

@pytest.mark.parametrize("acceptances", [*FALLING, RISING], ids=str)
@pytest.mark.parametrize("n, depth", [(0, 2), (1, 1), (4, 2), (5, 5), (6, 3)])
def test_the_program_finds_what_brute_force_finds(acceptances, n, depth):
    most = max(mean_tokens(shape, acceptances) for shape in forests(n, depth, WIDTH))
    tokens, shape = best_by_program(acceptances, n, depth)
    assert tokens == pytest.approx(most, abs=1e-12) == mean_tokens(shape, acceptances)
    assert (n_nodes(shape), n_levels(shape) <= depth) == (n, True)


@pytest.mark.parametrize("acceptances", FALLING, ids=str)
@pytest.mark.parametrize("n, depth", [(0, 2), (1, 1), (4, 2), (9, 4), (12, 12)])
def test_the_heap_finds_what_the_program_finds_where_acceptances_fall(acceptances, n, depth):
    tokens, _ = best_by_program(acceptances, n, depth)
    shape = by_heap(acceptances, n, depth)
    assert mean_tokens(shape, acceptances) == pytest.approx(tokens, abs=1e-12)
    assert (n_nodes(shape), n_levels(shape) <= depth) == (n, True)


def test_the_heap_is_worse_where_a_later_child_is_accepted_more_often():
    """A second child of 0.05 hides the third one of 0.9: the heap goes deeper instead."""
    hidden = [0.3, 0.05, 0.9]
    assert best_by_program(hidden, 3, 3) == (pytest.approx(2.25), ((), (), ()))
    assert mean_tokens(by_heap(hidden, 3, 3), hidden) == pytest.approx(1 + 0.3 + 0.09 + 0.05)


def test_the_best_come_first_and_no_child_before_its_parent():
    for acceptances in FALLING:
        products = best_first(lambda path, below=acceptances: below, 20)
        paths = list(products)
        assert all(products[a] >= products[b] for a, b in pairwise(paths)) and len(paths) == 21
        assert all(path[:-1] in paths[:i] for i, path in enumerate(paths) if path)


def test_shapes_of_widths():
    assert uniform((2, 1)) == (((),), ((),)) and uniform(()) == ()
    assert truncate(uniform((2, 1, 3)), 2) == uniform((2, 1)) and truncate(uniform((3,)), 0) == ()
    assert [(n_nodes(uniform(w)), n_levels(uniform(w))) for w in ((), (2, 2, 1), (1, 1))] == [
        (0, 0), (10, 3), (2, 2)]


def test_F_is_what_a_round_brings_where_its_assumption_holds():
    """Rows that are the same everywhere: the chance of the b-th best is the target's of it."""
    draft, target = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.25, 0.15])
    shape = (((), ()), ((),), ())
    models = [lambda ids, n_last=1, row=row: np.array([row] * n_last) for row in (draft, target)]
    guess = partial(guess_shape, draft=path_by_path(models[0]), shape=shape, siblings="top")
    step = make_step(path_by_path(models[1]), 3, guess, verify_tree)
    found = expectation(partial(step, [0], 9), lambda round: len(round.ids))
    assert found == pytest.approx(mean_tokens(shape, target.tolist()))


# ---- [2]

@pytest.mark.parametrize("acceptances", FALLING[:4], ids=str)
@pytest.mark.parametrize("row", [0.0, 0.1, 0.5])
def test_no_shape_is_faster_than_the_best_one(acceptances, row):
    c, pass_cost = 0.05, [1 + row * n for n in range(6)]
    gains = {shape: mean_tokens(shape, acceptances) / (pass_cost[n] + c * n_levels(shape))
             for n in range(6) for shape in forests(n, n, WIDTH)}
    gain, shape = best_shape(acceptances, c, pass_cost)
    assert gain == pytest.approx(max(gains.values())) == gains[shape]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("pass_cost", [[1] * 9, [1, 1.1, 1.3, 1.4, 1.6, 2.1, 2.2, 2.3, 2.3]])
def test_with_one_child_it_is_best_K(alpha, pass_cost):
    gain, shape = best_shape([alpha], 0.1, pass_cost)
    K = best_K(alpha, 0.1, pass_cost)
    assert n_nodes(shape) == n_levels(shape) == K
    assert gain == pytest.approx(walltime_improvement(alpha, K, 0.1, pass_cost[K]))


def test_a_chain_is_chosen_where_rows_cost_and_a_bush_where_they_do_not():
    acceptances = [0.82, 0.08, 0.03]
    gain, chain = best_shape(acceptances, 0.1, [1, 1.11, 1.29, 1.36, 1.56, 2.1, 2.2, 2.3, 2.44])
    assert chain == uniform((1, 1, 1)) and gain == pytest.approx(1.84, abs=0.01)
    gain, bush = best_shape(acceptances, 0.1, [1] * 17)
    assert n_nodes(bush) == 16 and len(bush) > 1 and gain > 2


# ---- [2] as the text grows

EVEN, DEAR = (Costs(0.1, [1 + row * n for n in range(K_MAX + 1)]) for row in (0.0, 0.3))
SMALL = Costs(0.1, [1.0, 1.0, 1.0])  # two guesses: a chain, or two children


def auto(draft, target, costs, siblings="distinct", chosen=None):
    def step_of(shape):
        if chosen is not None:
            chosen.append(shape)
        guess = partial(guess_shape, draft=path_by_path(draft), shape=shape, siblings=siblings)
        return make_step(path_by_path(target), n_levels(shape), guess, verify_tree)

    return auto_tree(step_of, costs)


def same_rows(row):
    return lambda ids, n_last=1: np.array([row] * n_last)


def choices(draft, target, costs, N=300, siblings="distinct"):
    """The shapes of a text of N tokens, without those of its first half."""
    chosen = []
    step = auto(same_rows(np.array(draft)), same_rows(np.array(target)), costs, siblings, chosen)
    list(generate([0], step, N, np.random.default_rng(0)))
    return chosen[len(chosen) // 2 :]


def test_a_perfect_draft_gets_the_longest_chain():
    row = [0.5, 0.3, 0.2]
    assert choices(row, row, EVEN)[-1] == uniform((1,) * K_MAX)


def test_where_the_second_child_is_often_the_one_the_tree_branches_and_else_it_does_not():
    draft = [0.4, 0.35, 0.25]
    bush = choices(draft, [0.5, 0.45, 0.05], EVEN, siblings="top")
    chain = choices(draft, [0.95, 0.01, 0.04], DEAR, siblings="top")
    assert np.mean([len(shape) for shape in bush]) > 1.8
    assert np.mean([n_nodes(shape) == n_levels(shape) > 0 for shape in chain]) > 0.8


def test_a_useless_draft_is_hardly_called():
    shapes = choices([1.0, 0.0, 0.0], [0.0, 0.5, 0.5], DEAR)
    assert np.mean([n_nodes(shape) for shape in shapes]) < 0.2
    assert any(shapes)  # it is tried again, because a text may change


def test_what_a_round_tells_of_each_rank():
    tree = Tree()
    for parent, token in ((-1, 5), (-1, 7), (1, 2), (1, 3), (3, 3)):
        tree.add(parent, token, None)
    assert list(outcomes(tree, [7, 3, 4])) == [(2, 1), (2, 1), (1, None)]
    assert list(outcomes(tree, [4])) == [(2, None)]
    assert list(outcomes(tree, [7, 3, 3, 9])) == [(2, 1), (2, 1), (1, 0), (0, None)]
    assert list(outcomes(Tree(), [4])) == [(0, None)]


def test_hope_falls_with_the_rank():
    assert (np.diff(START_ACCEPTANCES) < 0).all() and START_ACCEPTANCES.sum() < 1


# ---- dynamic trees

def rows_of(model, x=(0,)):
    """A draft for dynamic_tree: its answers path by path, and what it was asked."""
    def rows_after(tree, asked):
        paths = [*tree.paths(), []]
        rows_after.calls.append([tuple(paths[node]) for node in asked])
        return np.array([model([*x, *paths[node]])[-1] for node in asked])

    rows_after.calls = []
    return rows_after


def chance_of(model, path, x=(0,)):
    return np.prod([model([*x, *path[:i]])[-1][token] for i, token in enumerate(path)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("total, depth", [(1, 3), (5, 2), (6, 4), (40, 2)])
def test_a_dynamic_tree_has_the_best_of_all_paths(seed, total, depth):
    model = toy(4, seed)
    tree = dynamic_tree(rows_of(model), total, depth)
    laws = [text_law([0], model, n) for n in range(1, depth + 1)]
    all_chances = sorted((p for paths in laws for p in paths.values()), reverse=True)
    found = [chance_of(model, path) for path in tree.paths()]
    assert np.allclose(sorted(found, reverse=True), all_chances[:total])
    assert len(tree) == min(total, len(all_chances))


def test_it_reads_a_level_at_a_time_and_only_where_the_best_may_stand():
    rows = rows_of(mapped(toy(4, 1, zeros=0), lambda row: np.array([0.9, 0.06, 0.03, 0.01])))
    tree = dynamic_tree(rows, 3, 9)
    assert rows.calls == [[()], [(0,), (1,), (2,)], [(0, 0)], [(0, 0, 0)]]
    assert tree.paths() == [[0], [0, 0], [0, 0, 0]]
    rows = rows_of(toy(4, 1, zeros=0))
    assert len(dynamic_tree(rows, 9, 3, width=2)) == 9
    assert [len(call) for call in rows.calls] == [1, 2, 2]


def test_its_rows_are_one_hot_and_parents_come_first():
    tree = dynamic_tree(rows_of(toy(5, 3)), 8, 3)
    assert all(row[token] == 1 == row.sum() for token, row in zip(tree.tokens, tree.rows()))
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert len(dynamic_tree(None, 8, 0)) == 0


def test_the_draft_is_asked_once_a_level_and_not_beyond_the_room():
    draft = counted(path_by_path(toy(4, 1, zeros=0)))
    for k in range(4):
        draft.calls.clear()
        tree, rows = guess_dynamic([0], k, None, draft, 6)
        assert len(draft.calls) == k and len(tree) == len(rows) == (6 if k > 1 else 4 * k)
        assert max(map(len, tree.paths()), default=0) <= k


def test_a_dynamic_tree_keeps_as_much_as_any_of_its_size_of_a_draft_that_is_right():
    """One-hot rows, draft equal to target: F is the sum of the chances."""
    model = toy(3, 5, zeros=0)
    means = []
    for guess in (partial(guess_dynamic, draft=path_by_path(model), total=3),
                  *(partial(guess_shape, draft=path_by_path(model), shape=uniform(widths),
                            siblings="top") for widths in ((3,), (1, 1, 1), (1, 2)))):
        step = make_step(path_by_path(model), 3, guess, verify_tree)
        means.append(expectation(partial(step, [0], 9), lambda round: len(round.ids)))
    assert means[0] >= max(means[1:]) - 1e-12


# ---- flags

@pytest.mark.parametrize("name, flags, message", [
    ("tree", {"widths": "dynamic", "siblings": "distinct"},
     "need --siblings top at --temperature 0 and with --widths dynamic, got distinct"),
    ("tree", {"total": 3}, "need --widths dynamic for --total, got"),
    ("tree", {"total": 0}, "--total >= 1")])
def test_what_does_not_go_together_is_named(name, flags, message):
    with pytest.raises(ValueError, match=message):
        build(name, Models(None, None, dict(temperature=1.0)), flags)


def test_the_words_can_be_typed():
    read = DECODERS["tree"].flags["widths"][1].type
    assert [read(text) for text in ("auto", "dynamic", "3,1")] == ["auto", "dynamic", (3, 1)]
    with pytest.raises(ValueError, match="auto, dynamic, or whole numbers"):
        read("best")
