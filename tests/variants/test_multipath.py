"""The best of several paths: its rows are its distribution, and one path is a block."""

from fractions import Fraction
from math import prod

import numpy as np
import pytest

from exact.expected import along_paths
from exact.law import law
from exact.toys import TOYS, X
from speculative import guess
from variants.multipath import best_path, best_row, guess_paths, worst_first


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("K, n_paths", [(1, 3), (2, 2)])
def test_the_rows_of_the_best_path_are_its_distribution(toy, K, n_paths):
    draft, target = TOYS[toy]
    x = list(X)

    def tokens_and_their_rows(rng):
        tree, _ = guess_paths(x, K, rng, along_paths(draft), n_paths)
        tokens, rows, _ = best_path(tree, along_paths(target)(x + tree, 1 + len(tree)))
        return tuple(tokens), prod(row[token] for row, token in zip(rows, tokens))

    drawn = law(tokens_and_their_rows)
    assert {by_rows for _, by_rows in drawn} != {Fraction(1)}
    assert all(by_rows == probability for (_, by_rows), probability in drawn.items())
    wrong = law(lambda rng: tuple(guess(x, K, rng, draft)[0]))
    assert {tokens: p for (tokens, _), p in drawn.items()} != wrong  # not the draft's own rows


def test_the_rows_of_an_improbable_prefix_are_as_exact_as_any():
    p_draft, p_target = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    order = worst_first(p_draft, p_target)
    assert order.tolist() == [0, 1, 2]
    row, _ = best_row(p_draft, order, mass=1e-30, below=0.5, n_paths=4)
    assert np.allclose(row, p_draft, rtol=1e-15)  # then no other path has this prefix
    row, below = best_row(p_draft, order, mass=1.0, below=0.0, n_paths=2)
    assert np.allclose(row, [0.25, 0.39, 0.36], rtol=1e-15)
    assert np.allclose(below, [0.0, 0.5, 0.8], rtol=1e-15)


def test_of_equal_ratios_the_lowest_id_is_the_best():
    equal = np.array([0.25, 0.25, 0.5])
    assert worst_first(equal, equal).tolist() == [2, 1, 0]
    assert worst_first(np.array([0.0, 1.0]), np.array([0.5, 0.5])).tolist() == [0, 1]
