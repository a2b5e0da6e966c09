"""Seconds that are measured in turns, and the speed that follows from them, by hand."""

from functools import partial
from itertools import count
from unittest import mock

import numpy as np

from gpt2 import GPT2
from measure import clock, costs, race
from measure.costs import SPREAD, disturbance, least_costs, timed_turns
from measure.passes import Run, Timed
from measure.race import tokens_per_second
from tests.small import lively_params
from tests.test_compare import Clock
from theory.speedup import best_K


def test_the_seconds_of_a_functions_first_call_are_left_out(monkeypatch):
    """The first call of each function takes 100 s, as if it compiled something."""
    timer = Clock()
    seconds = {"a": iter([100, 1, 2, 3]), "b": iter([100, 40, 50, 60])}

    def action(name):
        timer.now += next(seconds[name])

    monkeypatch.setattr(clock, "time", timer)
    times = clock.interleaved({name: partial(action, name) for name in "ab"}, repeats=3)
    assert times == {"a": [1, 2, 3], "b": [40, 50, 60]}


def test_the_speed_of_a_repeat_is_that_of_all_its_texts_together():
    """Two texts of 6 and 4 tokens after the first: 10 tokens in 2 + 3 s, then in 1 + 1 s."""
    def text(n_tokens, seconds):
        return Run(None, None, [0] * (1 + n_tokens), [], 7 + seconds, prompt_s=7, n_first=1)

    runs = [[text(6, 2.0), text(4, 3.0)], [text(6, 1.0), text(4, 1.0)]]
    assert tokens_per_second(runs).tolist() == [10 / 5, 10 / 2]


def test_in_repeat_r_text_i_has_the_seed_r_i_for_every_decoder(monkeypatch):
    calls = []
    monkeypatch.setattr(race, "write_text", lambda *args: calls.append(args[3:6]))
    race.race(None, None, {"a": None, "b": None}, [[1], [2]], N=20, repeats=2)
    assert calls == [([1], race.WARM_UP, 0)] * 2 + [
        ([i + 1], 20, (r, i)) for r in (0, 1) for i in (0, 1) for _ in "ab"]


def test_a_draft_that_is_made_once_has_read_nothing_before_each_text(monkeypatch):
    monkeypatch.setattr(race, "build", lambda name, models, flags: models)
    build_step = race.builder("quantized", {}, temperature=0.0)
    target = GPT2(lively_params(dict(n_vocab=3, n_ctx=16, n_embd=16, n_head=2, n_layer=2)), 2)
    drafts = []
    for _ in range(2):
        drafts.append(build_step(Timed(None), Timed(target)).draft)
        assert drafts[-1].ids == []
        drafts[-1]([0, 1])
    assert drafts[0].params is drafts[1].params


# ---- the costs of a pair

PYTORCH = [54, 94, 114, 87, 73, 78]  # of passes over 1 .. 6 rows, on an idle machine


def turns_of(slowdown):
    """Return 12 turns of a draft pass of 5 and of PYTORCH's passes, with a fake clock.

    slowdown(turn) multiplies the time of every pass of a turn.
    """
    timer = Clock()
    n_passes = count(-2)  # the first two passes read the text, and are not measured

    def model(times, ids, n_last):
        turn = next(n_passes) // (1 + len(PYTORCH))
        timer.now += times[n_last - 1] * slowdown(turn)

    models = partial(model, [5]), partial(model, PYTORCH)
    with mock.patch.object(costs, "time", timer):
        return timed_turns(*models, [1], len(PYTORCH), 12)


def test_times_that_repeat_are_used_as_they_are_though_more_rows_may_take_less_time():
    """By hand at acceptance 0.8: K = 4 takes 20 + 73 for 3.36 tokens, K = 2 10 + 114 for 2.44."""
    noise = np.random.default_rng(0).uniform(1, 1 + SPREAD, 12)
    turns = turns_of(lambda turn: noise[turn])
    assert disturbance(turns) == ""
    least = least_costs(turns_of(lambda turn: 1))
    assert least == (5, PYTORCH)
    assert best_K(0.8, least.c, least.pass_cost) == 4


def test_a_slow_moment_does_not_disturb_but_a_time_that_does_not_repeat_does():
    assert disturbance(turns_of(lambda turn: 5 if turn in (2, 4) else 1)) == ""
    words = disturbance(turns_of(lambda turn: 1 if turn % 2 else 1.2))
    assert words == "a draft pass took 1.20 times as long in one half of the turns as in the other"
