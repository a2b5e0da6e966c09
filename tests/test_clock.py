"""Seconds that are measured in turns, and the speed that follows from them, by hand."""

from types import SimpleNamespace

from demo import clock
from demo.race import WrittenText, tokens_per_second


def test_the_seconds_of_a_functions_first_call_are_left_out(monkeypatch):
    """The first call of each function takes 100 s, as if it compiled something."""
    now = 0.0
    seconds = {"a": iter([100, 1, 2, 3]), "b": iter([100, 40, 50, 60])}

    def calls(name):
        """Return a function whose calls take the seconds of this name."""
        def action():
            nonlocal now
            now += next(seconds[name])

        return action

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    times = clock.interleaved({name: calls(name) for name in "ab"}, repeats=3)
    assert times == {"a": [1, 2, 3], "b": [40, 50, 60]}


def test_the_speed_of_a_repeat_is_that_of_all_its_texts_together():
    """Two texts of 6 and 4 tokens: 10 tokens in 2 + 3 s, then in 1 + 1 s."""
    def text(n_tokens, seconds):
        return WrittenText([0] * n_tokens, [], 0, seconds, [], [])

    runs = [[text(6, 2.0), text(4, 3.0)], [text(6, 1.0), text(4, 1.0)]]
    assert tokens_per_second(runs).tolist() == [10 / 5, 10 / 2]
