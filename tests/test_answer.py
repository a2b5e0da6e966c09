"""The answer whether speculation pays: planted races, and how often the rule is wrong."""

import math
from functools import cache, partial
from unittest import mock

import numpy as np
import pytest

from lib.statistics import means, resamples, student_quantile
from measure import answer
from measure.answer import DOES_NOT_PAY, NOT_KNOWN, PAYS, WRONG_AT_MOST, answer_of, raced_speedup
from tests.distributions import surprise


def row(low, speedup, high):
    """Return the figures of a decoder that the rule reads."""
    return dict(low=low, speedup=speedup, high=high)


def case_of(rows, **more):
    """Return the case of one temperature."""
    return {"rows": rows, "N": 16, "repeats": 3, "n_prompts": 6, "disturbed": "",
            "positions": []} | more


# ---- the rule

@pytest.mark.parametrize("rows, kind, decoder, words", [
    # the fastest decoder has not the largest upper end
    ({"--K 1": row(1.1, 1.2, 1.9), "--K 2": row(1.01, 1.4, 1.6)}, PAYS, "--K 2",
     "it pays. --K 2 ran at 1.40 times the speed of plain decoding (1.01 - 1.60)."),
    # the fastest decoder's interval holds 1, a slower one's is above 1
    ({"--K 1": row(1.1, 1.2, 1.3), "--K 2": row(0.99, 1.4, 1.6)}, PAYS, "--K 1",
     "it pays. --K 1 ran at 1.20 times the speed of plain decoding (1.10 - 1.30)."),
    ({"--K 1": row(0.7, 0.8, 0.99), "stopping": row(0.6, 0.7, 0.995)}, DOES_NOT_PAY, "--K 1",
     "it does not pay. The fastest decoder, --K 1, ran at 0.80 times the speed of plain decoding "
     "(0.70 - 0.99)."),
    # one interval of two is below 1
    ({"--K 1": row(0.9, 0.95, 1.001), "stopping": row(0.6, 0.7, 0.8)}, NOT_KNOWN, "--K 1", None),
    ({"--K 1": row(1.0, 1.1, 1.2)}, NOT_KNOWN, "--K 1", None)])
def test_intervals_above_1_pay_and_below_1_all_of_them_do_not(rows, kind, decoder, words):
    given = answer_of(case_of(rows))
    assert given[:2] == (kind, decoder)
    assert given.words == words or words is None


def test_with_disturbed_costs_the_race_shows_a_gain_but_no_loss():
    """They may have chosen the wrong K, so a faster decoder may be left out of the race."""
    disturbed = partial(case_of, disturbed="a pass over 2 rows took 1.50 times as long")
    assert answer_of(disturbed({"--K 1": row(1.1, 1.2, 1.3)})).answer == PAYS
    assert answer_of(disturbed({"--K 1": row(0.7, 0.8, 0.9)})) == (NOT_KNOWN, "--K 1", (
        "it is not known, because the costs are disturbed. --K 1 ran at 0.80 times the speed of "
        "plain decoding (0.70 - 0.90). Run this again when the machine is idle."))
    without_draft = disturbed({"--decoder lookup": row(0.7, 0.8, 0.9)})
    del without_draft["positions"]
    assert answer_of(without_draft).answer == DOES_NOT_PAY


@pytest.mark.parametrize("more, words", [
    ({"N": 15}, "texts of fewer than 16 tokens are too short (--N 15): choose a larger --N."),
    ({"repeats": 2}, "fewer than 3 runs are too few (--repeats 2): choose more --repeats."),
    ({"n_prompts": 1, "rows": {"--K 1": row(None, 1.3, None)}},
     "one prompt does not show how much prompts differ: give more with --prompts.")])
def test_what_decides_nothing_is_named_with_what_to_do(more, words):
    given = answer_of(case_of({"--K 1": row(1.1, 1.2, 1.3)}) | more)
    assert given == (NOT_KNOWN, "", f"it is not known, because {words}")


# ---- intervals

def test_students_quantiles_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    for tail in (0.5, 0.05, 0.05 / 11, 1e-3):
        for n in (1, 2, 5, 19, 400):
            exact = stats.t.isf(tail, n)
            assert student_quantile(tail, n) == pytest.approx(exact, rel=1e-4, abs=1e-9)


def texts_of(seconds):
    """Return texts of 60 tokens that took these seconds, [repeats, prompts]."""
    return {"tokens": np.full(np.shape(seconds), 60.0), "seconds": np.array(seconds)}


def test_the_speed_up_of_equal_prompts_and_repeats_has_no_spread():
    figures = raced_speedup(texts_of(np.ones((3, 4))), texts_of(np.full((3, 4), 1.5)), 5)
    assert figures == pytest.approx({"speedup": 1.5, "error": 0, "low": 1.5, "high": 1.5})
    one_slow_repeat = texts_of([[1.0] * 4, [1.0] * 4, [3.0] * 4])
    assert raced_speedup(one_slow_repeat, texts_of(np.ones((3, 4))), 5)["error"] > 0


def test_the_speed_up_is_the_median_of_the_repeats_and_one_prompt_has_no_interval():
    figures = raced_speedup(texts_of([[1.0], [2.0], [1.0]]), texts_of([[2.0], [2.0], [1.5]]), 5)
    assert figures == {"speedup": 1.5, "error": None, "low": None, "high": None}


def test_the_error_of_two_prompts_is_the_standard_error_of_their_mean(monkeypatch):
    """The prompts run at 1/2 and 2 times the speed of plain decoding, and at 1 together.

    The logs -log 2 and log 2 have a deviation of sqrt(2) log 2 and a mean of 0, whose standard
    error is log 2. Each of the four draws of two prompts comes once.
    """
    all_draws = np.array([[2, 0], [1, 1], [1, 1], [0, 2]])
    monkeypatch.setattr(answer, "resamples", lambda n_prompts: all_draws)
    figures = raced_speedup(texts_of([[2.0, 1.0]]), texts_of([[1.0, 2.0]]), 5)
    assert figures["speedup"] == 1 and figures["error"] == pytest.approx(np.log(2))
    low, high = (-np.log(figures["low"]), np.log(figures["high"])) / np.log(2)
    assert low == pytest.approx(student_quantile(0.05 / 5, 1))  # 1 degree of freedom
    assert high == pytest.approx(student_quantile(0.05, 1))


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


# ---- how often the rule is wrong

N_RACES = 200
RESAMPLES = cache(resamples)  # all races of six prompts have the same ones
FALSE_ALARM = 1e-4  # of one test, if its seed were drawn anew


def simulated_case(rng, logs, n_candidates, n_prompts=6, repeats=3, slow_minutes=False):
    """Return the case of a race of decoders whose true log speed-ups are `logs`.

    Prompts differ by 15 % for each decoder, and runs by 5 %. In slow minutes, one run in twenty
    takes twice as long.
    """
    shape = (repeats, n_prompts)
    lengths = np.exp(0.3 * rng.standard_normal(n_prompts))  # seconds of plain decoding

    def texts(log):
        noise = 0.05 * rng.standard_normal(shape)
        if slow_minutes:
            noise += np.log(2) * (rng.random(shape) < 0.05)
        return texts_of(lengths * np.exp(noise - log))

    plain = texts(np.zeros(n_prompts))
    rows = {}
    for i, log in enumerate(logs):
        of_prompts = log + 0.15 * rng.standard_normal(n_prompts)
        rows[f"decoder {i}"] = raced_speedup(texts(of_prompts), plain, n_candidates)
    return case_of(rows, n_prompts=n_prompts, repeats=repeats)


def frequency(kind, logs, n_candidates, seed=0, **settings):
    """Return how often the answer is `kind` among simulated races."""
    rng = np.random.default_rng(seed)
    with mock.patch.object(answer, "resamples", RESAMPLES):
        answers = [answer_of(simulated_case(rng, logs, n_candidates, **settings)).answer
                   for _ in range(N_RACES)]
    return answers.count(kind) / N_RACES


def exceeds(found, allowed):
    """Return whether a frequency is above `allowed` by more than chance."""
    return found > allowed and surprise(N_RACES, found, allowed) > math.log(2 / FALSE_ALARM)


@pytest.mark.parametrize("settings", [{}, {"slow_minutes": True}, {"n_prompts": 3}], ids=str)
def test_it_pays_is_wrong_in_one_race_of_twenty_at_most(settings):
    """Six decoders that are as fast as plain decoding: the hardest case where none pays."""
    assert not exceeds(frequency(PAYS, [0.0] * 6, 6, **settings), WRONG_AT_MOST)


def test_without_the_division_by_the_candidates_the_luckiest_decoder_pays_too_often():
    """The negative control: the same check refuses a rule that ignores the choice among eleven."""
    assert exceeds(frequency(PAYS, [0.0] * 11, 1), WRONG_AT_MOST)


def test_it_does_not_pay_is_wrong_in_one_race_of_twenty_at_most():
    """One decoder is just as fast as plain decoding, the others are far slower."""
    logs = [0.0] + [-0.7] * 5
    assert not exceeds(frequency(DOES_NOT_PAY, logs, 6), WRONG_AT_MOST)


def test_clear_cases_are_answered():
    """A gain of 35 % and a loss of 30 % are seen in nine races of ten, with the default prompts."""
    assert frequency(PAYS, [0.3] * 6, 11) > 0.9
    assert frequency(DOES_NOT_PAY, [-0.35] * 6, 11) > 0.9
    assert frequency(NOT_KNOWN, [0.02] * 6, 11) > 0.8
