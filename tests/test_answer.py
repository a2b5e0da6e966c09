"""The answer whether speculation pays: planted races, and how often the rule is wrong."""

from functools import cache
from statistics import NormalDist
from unittest import mock

import numpy as np
import pytest

from demo import answer
from demo.answer import (
    DOES_NOT_PAY,
    NOT_KNOWN,
    PAYS,
    WRONG_AT_MOST,
    answer_in_words,
    answer_of,
    needed_prompts,
    raced_speedup,
)
from docs.tables import stored
from lib.statistics import coin_divergence, resamples, student_quantile, surprise_limit
from variants.registry import Costs

QUIET = Costs(0.2, [1.0, 1.1, 1.2, 1.15])
DISTURBED = Costs(0.2, [12.07, 8.34, 12.97, 8.30])
CERTAIN = dict(speedup=0.9, low=0.88, high=0.92)  # a prediction


def row(low, speedup, high, error=0.05):
    """Return the figures of a decoder that the rule reads."""
    return dict(low=low, speedup=speedup, high=high, error=error)


def case_of(rows, predicted=CERTAIN, **more):
    """Return the case of one temperature."""
    return {"rows": rows, "N": 60, "repeats": 3, "n_prompts": 6, "candidates": len(rows),
            "positions": [{"predicted": predicted}], "acceptance": 0.6} | more


# ---- the rule

@pytest.mark.parametrize("rows, kind, decoder, words", [
    ({"--K 1": row(1.1, 1.2, 1.3), "--K 2": row(1.01, 1.4, 1.6)}, PAYS, "--K 2",
     "it pays. --K 2 ran at 1.40 times the speed of plain decoding (1.01 - 1.60)."),
    # the fastest decoder's interval holds 1, a slower one's is above 1
    ({"--K 1": row(1.1, 1.2, 1.3), "--K 2": row(0.99, 1.4, 1.6)}, PAYS, "--K 1",
     "it pays. --K 1 ran at 1.20 times the speed of plain decoding (1.10 - 1.30)."),
    ({"--K 1": row(0.7, 0.8, 0.99), "stopping": row(0.6, 0.7, 0.8)}, DOES_NOT_PAY, "--K 1",
     "it does not pay. The fastest decoder, --K 1, ran at 0.80 times the speed of plain decoding "
     "(0.70 - 0.99). The formula agrees: its best speed-up is 0.90 (0.88 - 0.92) with K = 1."),
    # one interval of two is below 1
    ({"--K 1": row(0.9, 0.95, 1.001), "stopping": row(0.6, 0.7, 0.8)}, NOT_KNOWN, "--K 1", None),
    ({"--K 1": row(1.0, 1.1, 1.2)}, NOT_KNOWN, "--K 1", None)])
def test_intervals_above_1_pay_and_below_1_all_of_them_do_not(rows, kind, decoder, words):
    given = answer_of(case_of(rows), QUIET)
    assert given[:2] == (kind, decoder)
    assert given.words == words or words is None


def test_where_the_formula_promises_what_the_race_denies_the_words_say_so():
    rows = {"--K 1": row(0.8, 0.9, 0.97)}
    promised = case_of(rows, dict(speedup=1.2, low=1.1, high=1.3))
    assert "By the formula it pays, 1.20 (1.10 - 1.30) with K = 1; sampling and Python's own time" \
        in answer_of(promised, QUIET).words
    unclear = case_of(rows, dict(speedup=1.0, low=0.9, high=1.1))
    assert "The formula leaves it open" in answer_of(unclear, QUIET).words


def test_the_best_speed_up_is_the_largest_one_and_not_the_upper_end_of_an_interval():
    narrow, wide = dict(speedup=0.95, low=0.93, high=0.97), dict(speedup=0.9, low=0.5, high=1.3)
    case = case_of({"--K 1": row(0.8, 0.9, 0.97), "--K 2": row(0.7, 0.8, 0.99)},
                   positions=[{"predicted": narrow}, {"predicted": wide}])
    words = answer_of(case, QUIET).words
    assert "The fastest decoder, --K 1, ran at 0.90 times" in words
    assert words.endswith("its best speed-up is 0.95 (0.93 - 0.97) with K = 1.")
    paying = case_of({"--K 1": row(1.1, 1.4, 1.5), "--K 2": row(1.1, 1.2, 1.9)})
    assert answer_of(paying, QUIET).decoder == "--K 1"


@pytest.mark.parametrize("more, costs, words", [
    ({"N": 15}, QUIET,
     "texts of fewer than 16 tokens are too short (--N 15): choose a larger --N."),
    ({"repeats": 2}, QUIET, "fewer than 3 runs are too few (--repeats 2): choose more --repeats."),
    ({}, DISTURBED, "the costs are disturbed: run this again when the machine is idle."),
    ({"n_prompts": 1, "rows": {"--K 1": row(None, 1.3, None, None)}}, QUIET,
     "one prompt does not show how much prompts differ: give more with --prompts.")])
def test_what_decides_nothing_is_named_with_what_to_do(more, costs, words):
    case = case_of({"--K 1": row(1.1, 1.2, 1.3)}) | more
    given = answer_of(case, costs)
    assert given == (NOT_KNOWN, "", f"it is not known, because {words}", None)
    advice = "By the formula, " in answer_in_words(case, costs)
    assert advice == (case["N"] >= 16 and costs is QUIET)


def test_stored_figures_without_intervals_give_no_answer():
    case = case_of({"--K 1": dict(speedup=1.6, slowest=1.5, fastest=1.7)})
    del case["n_prompts"], case["candidates"], case["positions"]
    given = answer_of(case, QUIET)
    assert given.answer == NOT_KNOWN and "before intervals were measured" in given.words


@pytest.mark.parametrize("passes, words", [
    (DISTURBED.passes, "a pass over 2 rows took 0.69 of the time of 1 row"),
    ([1.0, 1.1, 0.94], "a pass over 3 rows took 0.94 of the time of 1 row"),
    ([1.0, 1.8, 1.2], "a pass over 3 rows took 0.67 of the time of 2 rows"),
    ([1.0, 1.1, 1.5, 1.7, 1.11], "a pass over 5 rows took 0.65 of the time of 4 rows"),
    ([1.0, 0.96, 1.17, 1.10], ""), ([1.0, 2.6, 3.02, 2.34], ""), ([1.0], "")])
def test_costs_that_contradict_each_other_are_named(passes, words):
    assert answer.disturbance(Costs(0.1, passes)) == words


@pytest.mark.parametrize("size", ["pair", "124M", "1558M"])
def test_no_table_of_an_idle_machine_is_called_disturbed(size):
    """Neither with Numba's products nor with NumPy's, whose pass over eight rows is cheap."""
    figures = stored(f"speed-{size}")["passes"]
    for library in ("rows_ms", "numpy_rows_ms"):
        times = [figures[library][str(n_rows)]["median"] for n_rows in range(1, 10)]
        assert answer.disturbance(Costs(0.1, times)) == ""


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


def test_only_the_lower_end_depends_on_the_number_of_candidates():
    seconds = np.random.default_rng(0).uniform(1, 1.5, (3, 6))
    one, eleven = (raced_speedup(texts_of(seconds), texts_of(seconds[:, ::-1]), n)
                   for n in (1, 11))
    assert eleven["low"] < one["low"] and eleven["high"] == one["high"]


def test_the_number_of_prompts_is_the_first_with_which_an_interval_excludes_1():
    """Log speed-ups of prompts spread by .3; t is of 5 % / 2 above 1, and of 5 % below 1."""
    def fewest(log, tail):
        """Return the fewest prompts whose interval around this log speed-up excludes 0."""
        return next(n for n in range(2, 501)
                    if student_quantile(tail, n - 1) * 0.3 / np.sqrt(n) < abs(log))

    def measured(log):
        return row(0, np.exp(log), 2, error=0.3 / np.sqrt(6))

    # The easiest decoder decides that it pays; all must be below 1 if it does not pay.
    some_pay = [measured(log) for log in (0.05, 0.1, -0.05)]
    assert needed_prompts(some_pay, 6, 2) == fewest(0.1, WRONG_AT_MOST / 2)
    none_pays = [measured(log) for log in (-0.05, -0.1)]
    assert needed_prompts(none_pays, 6, 2) == fewest(-0.05, WRONG_AT_MOST)
    assert needed_prompts([row(0.9, 1.001, 1.1)], 6, 2) is None
    assert "more than 500 prompts" in answer_of(case_of({"K": row(0.9, 1.001, 1.1)}), QUIET).words


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
    return case_of(rows, n_prompts=n_prompts, repeats=repeats, candidates=n_candidates)


def frequency(kind, logs, n_candidates, seed=0, **settings):
    """Return how often the answer is `kind` among simulated races."""
    rng = np.random.default_rng(seed)
    with mock.patch.object(answer, "resamples", RESAMPLES):
        answers = [answer_of(simulated_case(rng, logs, n_candidates, **settings), QUIET).answer
                   for _ in range(N_RACES)]
    return answers.count(kind) / N_RACES


def exceeds(found, allowed):
    """Return whether a frequency is above `allowed` by more than chance; see lib/statistics.py."""
    limit = surprise_limit(1, FALSE_ALARM)
    return found > allowed and N_RACES * coin_divergence(found, allowed) > limit


@pytest.mark.parametrize("settings", [{}, {"slow_minutes": True}, {"n_prompts": 3}], ids=str)
def test_it_pays_is_wrong_in_one_race_of_twenty_at_most(settings):
    """Six decoders that are as fast as plain decoding: the hardest case where none pays."""
    assert not exceeds(frequency(PAYS, [0.0] * 6, 6, **settings), WRONG_AT_MOST)


def test_without_the_division_by_the_candidates_the_luckiest_decoder_pays_too_often():
    """The negative control: the same check refuses a rule that ignores the choice among eleven."""
    assert exceeds(frequency(PAYS, [0.0] * 11, 1), WRONG_AT_MOST)


def test_without_students_quantile_few_prompts_pay_too_often(monkeypatch):
    """The second control: the normal distribution's quantile, which is for many prompts."""
    monkeypatch.setattr(answer, "student_quantile", lambda tail, n: NormalDist().inv_cdf(1 - tail))
    assert exceeds(frequency(PAYS, [0.0] * 11, 11, n_prompts=3), WRONG_AT_MOST)


def test_it_does_not_pay_is_wrong_in_one_race_of_twenty_at_most():
    """One decoder is just as fast as plain decoding, the others are far slower."""
    logs = [0.0] + [-0.7] * 5
    assert not exceeds(frequency(DOES_NOT_PAY, logs, 6), WRONG_AT_MOST)


def test_clear_cases_are_answered():
    """A gain of 35 % and a loss of 30 % are seen in nine races of ten, with the default prompts."""
    assert frequency(PAYS, [0.3] * 6, 11) > 0.9
    assert frequency(DOES_NOT_PAY, [-0.35] * 6, 11) > 0.9
    assert frequency(NOT_KNOWN, [0.02] * 6, 11) > 0.8
