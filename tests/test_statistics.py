"""Means of figures per round, with their standard errors, by hand."""

from lib.statistics import means


def test_the_error_of_a_difference_is_taken_round_by_round():
    """Rounds of two texts: b is a + 2 in both, c is a in one and a + 4 in the other."""
    rows = [{"a": 1, "b": 3, "c": 1}, {"a": 5, "b": 7, "c": 9}]
    figures = means(rows, [0, 1])
    # the two differences from a mean are -d and d, so the error is sqrt(2) d / 2
    error_of_2 = 2**0.5
    assert figures == {
        "a": {"mean": 3, "error": error_of_2, "more": 0, "more_error": 0},
        "b": {"mean": 5, "error": error_of_2, "more": 2, "more_error": 0},
        "c": {"mean": 5, "error": 2 * error_of_2, "more": 2, "more_error": error_of_2}}
