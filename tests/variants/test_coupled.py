"""Token matching and coupled draws."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from exact.engines import boxes
from exact.law import law, text_law
from sampling import sample, with_sampling
from speculative import autoregressive_sampling, complete, guess
from tests.commands import json_of_run
from tests.distributions import Scripted, assert_same_law
from tests.small import WARM_SETTINGS, Logits, models_of
from tests.toys import PAIRS, toy
from variants import build
from variants import coupled as coupled_module
from variants.coupled import SAMPLERS, Replay, coupled, exponentials, race_sample
from variants.lookup import lookup_guess

EXACT = 1e-12
CASES = [*((pair, 1) for pair in PAIRS), ("sparse", 3), ("four tokens", 2)]


# ---- match

@pytest.mark.parametrize("guesses, agreement", [("drawn", np.dot),
                                                ("best", lambda p, q: p[np.argmax(q)])])
@pytest.mark.parametrize("sampling", WARM_SETTINGS, ids=str)
def test_a_guess_is_accepted_with_the_probability_that_two_draws_agree(
        guesses, agreement, sampling):
    step = build("match", models_of(PAIRS["dense"], sampling), {"K": 1, "guesses": guesses})
    n_accepted = law(lambda rng: step([0], 2, rng).n_accepted)
    p_draft, p_target = (with_sampling(Logits(model), **sampling)([0])[0]
                         for model in PAIRS["dense"])
    assert n_accepted[1] == pytest.approx(agreement(p_target, p_draft), abs=EXACT)


# ---- coupled: plain decoding writes the same text, in every cell of the uniforms

@pytest.mark.parametrize("pair, K", CASES)
def test_in_every_cell_of_the_uniforms_plain_decoding_writes_the_same_text(pair, K):
    """The enumeration cuts [0, 1) of each position at the break points of all rows."""
    draft, target = PAIRS[pair]
    step = coupled(target, K, partial(guess, draft=draft, draw=sample))

    def coupled_and_plain(rng):
        numbers = []  # one per position, for both
        text = complete([0], step, K + 1, Replay(numbers, rng))
        plain = autoregressive_sampling([0], target, K + 1, Replay(numbers, rng))
        return tuple(text), tuple(plain)

    twice_the_same = {(text, text): p for text, p in text_law([0], target, K + 1).items()}
    assert_same_law(law(coupled_and_plain), twice_the_same)


@pytest.mark.parametrize("draw", SAMPLERS.values())
@pytest.mark.parametrize("K", [1, 2, 5])
def test_any_draft_any_K_and_any_guess_write_one_text(draw, K):
    target = toy(5, 6)
    no_guess = lambda x, k, rng: ([], [])
    steps = [coupled(target, K, make_guesses, draw) for make_guesses in (
        no_guess, partial(lookup_guess, n_vocab=5),
        *(partial(guess, draft=toy(5, seed), draw=draw) for seed in range(3)))]
    for seed in range(20):
        rng = partial(np.random.default_rng, seed)
        first, *others = (complete([0, 1, 0], step, 9, rng()) for step in steps)
        assert len(first) == 12 and others == [first] * 4
        if draw is sample:
            assert first == autoregressive_sampling([0, 1, 0], target, 9, rng())


# ---- the race

@pytest.mark.parametrize("row", [[0.5, 0.3, 0.2, 0], [0.2, 0.3, 0.1, 0.4],
                                 [0.7, 0.1, 0.1, 0.1]])
def test_the_first_of_a_race_has_the_rows_distribution(row, monkeypatch):
    """boxes.py computes the distribution from who wins at given times: nothing is sampled."""
    def winner(speeds):
        times = np.array([1 / speed if speed else np.inf for speed in speeds])
        monkeypatch.setattr(coupled_module, "exponentials", lambda u, n_vocab: times)
        return race_sample(row, Scripted([0.5]))

    assert boxes.race_distribution(winner, 4) == pytest.approx(row, abs=1e-5)


def test_the_times_of_a_race_are_independent_standard_exponentials():
    """Of 40,000 times, in 10,000 races of 4: how many are within bounds, and both of two.

    A count of n with probability p is within sqrt(n log(2e12) / 2) of n p except with
    probability 1e-12 (Hoeffding).
    """
    n = 10_000
    times = np.array([exponentials(u, 4) for u in np.random.default_rng(0).random(n)])
    limit = np.sqrt(n * np.log(2e12) / 2)
    for least, most in (0.0, 0.5), (0.1, 1.0), (1.0, 3.0):
        is_within = (times >= least) & (times < most)
        p = np.exp(-least) - np.exp(-most)
        assert (abs(is_within.sum(axis=0) - n * p) < limit).all()
        for i, j in combinations(range(4), 2):
            assert abs((is_within[:, i] & is_within[:, j]).sum() - n * p**2) < limit


def test_a_race_is_a_function_of_one_uniform_and_its_first_runner_wins():
    assert (exponentials(0.25, 9) == exponentials(0.25, 9)).all()
    assert (exponentials(0.25, 9) != exponentials(0.25 + 2**-53, 9)).all()
    rng = Replay([], np.random.default_rng(0))
    race_sample([0.5, 0.5], rng)
    assert len(rng.drawn) == 1
    row = np.array([0.2, 0.5, 0.3])
    for u in np.random.default_rng(0).random(100):
        assert race_sample(row, Scripted([u])) == (exponentials(u, 3) / row).argmin()


def test_no_caller_can_change_the_numbers_of_later_races():
    with pytest.raises(ValueError, match="read-only"):
        exponentials(0.25, 9)[:] = 1


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_a_race_without_speeds_is_an_error(row):
    with pytest.raises(ValueError, match="probabilities"):
        race_sample(row, np.random.default_rng(0))


# ---- the command line

def test_the_command_line_reports_identical_texts():
    flags = "--temperature", 1, "--dtype", "float64", "--n_tokens_to_generate", 15
    for more in (), ("--sampler", "inverse", "--window"):
        got = json_of_run("--decoder", "coupled", *flags, *more)
        assert got["identical"] and got["exact"] and got["coupled"]["tokens"] == 15
    assert "identical" not in json_of_run("--decoder", "match", *flags)
