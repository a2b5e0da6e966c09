"""Faults in a draft: their texts stay exact, and the tool names the shape of their acceptance."""

import json
from argparse import Namespace
from functools import cache, partial
from unittest import mock

import numpy as np
import pytest

from benchmarks import low_acceptance
from benchmarks.low_acceptance import (
    FAULTS,
    ROUNDING,
    Fault,
    WrongCut,
    counted_texts,
    faulty_step,
    first_guess_counts,
    text_distance,
    two_token_model,
    zero_filled,
)
from benchmarks.models import OPENINGS, load_benchmark_pair
from demo import shapes
from demo.hazards import PositionCounts, counts_from_lists
from demo.shapes import (
    ERROR,
    contrast,
    is_above_zero,
    nearest_shape,
    shape_in_words,
    weighted_share,
)
from docs.tables import stored
from sampling import with_sampling
from speculative import Round, draft_and_verify, generate, guess, make_step
from tests.commands import outcome
from tests.pages import file_text

K = low_acceptance.GUESSED
EACH_FAULT = pytest.mark.parametrize("name", FAULTS)
NAMED = {  # fault: the shape that the tool names
    "cache cut two tokens too late": "rising",
    "cache cut one token too early": "rising",
    "cache cut two tokens too early": "rising",
    "input shifted by one": "near zero",
    "another tokenizer": "near zero",
    "draft at temperature 0.3": "low when warm",
    "draft at temperature 2": "low when cold",
    "zero-filled from guess 3 on": "cliff",
}
MORE_OPENINGS = [  # prompts of long fresh runs, besides OPENINGS
    "Once there was a tailor who could sew with his eyes shut, and one evening",
    "In the days when wolves could speak, a shepherd's son went up the hill and",
    "Nobody in the village had ever seen the giant, but every morning",
    "The youngest of the seven ravens flew to the glass mountain, where",
    "\"What will you give me for my golden comb?\" asked the mermaid. The fisherman",
    "An old soldier came home from the wars with three pennies in his pocket, and",
]


# ---- the planted faults

@pytest.mark.parametrize("n_more, wanted", [
    (0, [1, 2, 9, 8]), (-1, [1, 2, 3, 9, 8]), (-2, [1, 2, 3, 4, 9, 8]), (1, [1, 9, 8]),
    (2, [9, 8])])
def test_a_wrong_cut_keeps_or_loses_tokens_for_good(n_more, wanted):
    """The draft read 1 2, guessed 3 and 4, and the text went on with 9 8."""
    read = []
    draft = WrongCut(lambda ids, n_last: read.append(ids), n_more)
    guessing = [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    for text in [*guessing, [1, 2, 9], [1, 2, 9, 8]]:
        draft(text)
    assert read[:3] == guessing and read[-1] == wanted


def test_a_zero_filled_round_has_guesses_without_a_draft():
    two = lambda x, k, rng: ([7] * k, np.eye(8)[[7] * k])
    guesses, rows = zero_filled([1], 4, None, two, n_drafted=2, n_vocab=8)
    assert guesses == [7, 7, 0, 0] and np.argmax(rows, axis=1).tolist() == guesses
    assert zero_filled([1], 1, None, two, n_drafted=2, n_vocab=8)[0] == [7]


def toy_rounds(step_of):
    """Return the tokens and the draft's rows of some rounds of two random models."""
    prompt = np.random.default_rng(2).integers(2, size=low_acceptance.PROMPT_LENGTH).tolist()
    step = step_of(two_token_model(0), two_token_model(1), 1.0, len(prompt))
    rounds = generate(prompt, step, 40, np.random.default_rng(3))
    return [(result.ids, np.array(result.p_draft).tolist()) for result in rounds]


@EACH_FAULT
def test_every_fault_changes_what_the_draft_computes_and_no_fault_does_not(name):
    def healthy(draft, target, temperature, n_prompt):
        return draft_and_verify(with_sampling(draft, temperature=temperature),
                                with_sampling(target, temperature=temperature), K)

    found = toy_rounds(partial(faulty_step, FAULTS[name]))
    assert (found == toy_rounds(healthy)) == (name == "none")


def test_first_guesses_are_counted_by_the_round_before_them():
    """Two guesses a round: 2 accepted, then 0, 1 and 2; the last round has no guess."""
    rounds = [Round([0] * (n + 1), [0] * 2, [], [], n) for n in (2, 0, 1, 2)]
    counts = first_guess_counts([*rounds, Round([0], [], [], [], 0)])
    assert counts.tolist() == [[[2, 1]], [[2, 0]]]


# ---- exactness

@pytest.mark.parametrize("name", [
    "cache cut one token too late", "cache cut two tokens too early", "input shifted by one",
    "draft at temperature 0.3", "zero-filled from guess 3 on", "another tokenizer"])
def test_the_text_of_a_draft_with_a_fault_is_exact(name, monkeypatch):
    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    assert text_distance(FAULTS[name]) < ROUNDING


def test_guesses_that_are_tested_with_other_rows_are_not_exact(monkeypatch):
    """The control: the draft draws at temperature 0.3, and its rows are those of temperature 1."""
    def wrong_step(fault, draft, target, temperature, n_prompt):
        cold = with_sampling(draft, temperature=0.3)
        warm = with_sampling(draft.fresh(), temperature=temperature)

        def guess_with_other_rows(x, k, rng):
            guesses, _ = guess(x, k, rng, cold)
            return guesses, [warm([*x, *guesses[:t]], 1)[-1] for t in range(k)]

        return make_step(with_sampling(target, temperature=temperature), K,
                         guess_with_other_rows)

    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    monkeypatch.setattr(low_acceptance, "faulty_step", wrong_step)
    assert text_distance(Fault()) > 0.001


def test_all_stored_texts_are_exact():
    figures = stored("low_acceptance")
    assert figures["rows"].keys() == FAULTS.keys() | {low_acceptance.EAGLE}
    for name, row in figures["rows"].items():
        assert low_acceptance.exact_cell(row, len(OPENINGS)) == "yes", name


# ---- contrasts

def counts_of_coins(rng, n_prompts, rates, N=100, spread=0.05):
    """Return {temperature: PositionCounts} of texts whose guesses are accepted by coins.

    `rates` is {temperature: [rate of each position]}. Each prompt adds its own number to all
    rates, with the standard deviation `spread`.
    """
    shifts = spread * rng.standard_normal((n_prompts, 1))
    return {T: counts_of_texts(rng, np.clip(np.array(rate) + shifts, 0, 1), N)
            for T, rate in rates.items()}


def counts_of_texts(rng, rates, N):
    """Return the counts of a text for each row of `rates`, without a round that is cut at N."""
    coins = rng.random((len(rates), N, K)) < rates[:, np.newaxis]  # [n_prompts, n_rounds, K]
    # A guess is tested if all before it are accepted, and accepted if its own coin agrees.
    accepted = np.cumprod(coins, axis=2)
    tested = np.concatenate([np.ones_like(accepted[..., :1]), accepted[..., :-1]], axis=2)
    ends = np.cumsum(accepted.sum(axis=2) + 1, axis=1)  # tokens of the text after each round
    # is_in[:, h]: the rounds of half h. The products sum over them, [n_prompts, 2, K].
    is_in = np.stack([ends <= N / 2, (N / 2 < ends) & (ends <= N)], axis=1)
    return PositionCounts(is_in @ tested, is_in @ accepted)


def counts_of_prompts(counts, prompts):
    """Return the counts of these prompts: numbers, which may repeat, or a slice."""
    return PositionCounts(counts.tested[prompts], counts.accepted[prompts])


def test_the_error_of_a_contrast_by_hand():
    """Shares 3/4 and 1/4 of two prompts, of four guesses each; the mean is 1/2."""
    tested = np.full((2, 1, 1), 4)
    counts = PositionCounts(tested, np.array([3, 1]).reshape(2, 1, 1))
    value, error = contrast(0.25, [weighted_share(counts, -1.0)])
    assert value == 0.25 - 1 / 2
    # the prompts add -+ 1/8 to the mean; coins would have sqrt(1/4 / 8)
    assert error == pytest.approx(max(np.sqrt(2 * 2 / 64), np.sqrt(1 / 32)))
    _, error = contrast(0.0, [weighted_share(PositionCounts(tested, tested), 1.0)])
    assert error == pytest.approx(np.sqrt(0.9 * 0.1 / 8))


def counts_of_first_guesses(rng, n_prompts):
    """Return the counts of prompts whose rates differ much around 0.7."""
    return counts_of_coins(rng, n_prompts, {1.0: [0.7] * K}, spread=0.2)[1.0]


@cache
def true_rate():
    """Return the acceptance of first guesses of many prompts.

    It is below the mean 0.7 of the prompts, because a prompt with a low rate has more rounds.
    """
    counts = counts_of_first_guesses(np.random.default_rng(1), 20_000)
    share = weighted_share(counts, 1.0, 1, 1)
    return share.accepted.sum() / share.tested.sum()


def n_called_above_zero(n_prompts, sign, above, n_trials=400):
    """Return how often a contrast is called above 0 whose true value is `above`.

    The contrast is the rate minus a constant, or, if sign is -1, a constant minus the rate.
    """
    counts = counts_of_first_guesses(np.random.default_rng(0), n_trials * n_prompts)
    n_called = 0
    for trial in range(n_trials):
        prompts = slice(trial * n_prompts, (trial + 1) * n_prompts)
        share = weighted_share(counts_of_prompts(counts, prompts), sign, 1, 1)
        n_called += is_above_zero(above - sign * true_rate(), [share], ERROR / 10)
    return n_called


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("n_prompts", [3, 6, 20])
def test_a_contrast_that_is_zero_is_called_above_zero_less_often_than_error(n_prompts, sign):
    """If ERROR is right, more than 42 of 400 come with probability 2e-6."""
    assert n_called_above_zero(n_prompts, sign, above=0.0) <= 42


def test_a_contrast_far_above_zero_is_called_so():
    assert n_called_above_zero(12, -1.0, above=0.35, n_trials=100) >= 90


def test_nothing_is_known_from_one_prompt_or_from_untested_guesses():
    rng = np.random.default_rng(0)
    counts = counts_of_coins(rng, 1, {0.0: [0.0] * K})
    assert nearest_shape(counts) is None
    untested = PositionCounts(*np.zeros((2, 6, 2, K), int))
    assert nearest_shape({1.0: untested}) is None


def test_the_tails_of_all_contrasts_add_up_to_error(monkeypatch):
    """Bonferroni: no contrast is above 0 here, so all are tried, each with an equal tail."""
    is_above = mock.Mock(return_value=False)
    monkeypatch.setattr(shapes, "is_above_zero", is_above)
    counts = counts_of_coins(np.random.default_rng(0), 3, {0.0: [0.7] * K, 1.0: [0.6] * K})
    assert nearest_shape(counts) is None
    tails = [call.args[2] for call in is_above.call_args_list]
    assert sum(tails) == pytest.approx(ERROR) and len({*tails}) == 1


# ---- shapes

@pytest.mark.parametrize("rates", [
    {0.0: [0.75] * K, 1.0: [0.6] * K}, {1.0: [0.55] * K}, {0.0: [0.9] * K, 1.0: [0.7] * K},
    {0.0: [0.8, 0.75, 0.7, 0.65, 0.6]}])
@pytest.mark.parametrize("n_prompts", [3, 12])
def test_texts_without_a_shape_raise_few_alarms(rates, n_prompts):
    """If ERROR is right, more than 14 alarms of 100 come with probability 1e-4."""
    assert ERROR == 0.05
    rng = np.random.default_rng(0)
    alarms = [nearest_shape(counts_of_coins(rng, n_prompts, rates)) for _ in range(100)]
    assert sum(shape is not None for shape in alarms) <= 14


@pytest.mark.parametrize("rates, name", [
    ({0.0: [0.02] * K, 1.0: [0.05] * K}, "near zero"),
    ({0.0: [0.8, 0.8, 0, 0, 0], 1.0: [0.6, 0.6, 0, 0, 0]}, "cliff"),
    ({0.0: [0.8] * K, 1.0: [0.35] * K}, "low when warm"),
    ({0.0: [0.1] * K, 1.0: [0.35] * K}, "low when cold"),
    ({0.0: [0.35, 0.8, 0.8, 0.8, 0.8], 1.0: [0.35, 0.6, 0.6, 0.6, 0.6]}, "rising"),
    ({1.0: [0.3] * K}, "low")])
def test_a_planted_shape_is_named(rates, name):
    shape = nearest_shape(counts_of_coins(np.random.default_rng(0), 6, rates))
    assert shape and shape.name == name and shape.words.count(".md).") == 1
    # the words quote what was counted at each temperature
    assert all(f"at temperature {T:g}" in shape.words for T in rates)


def test_acceptance_that_falls_in_the_second_half_is_named():
    rng = np.random.default_rng(0)
    counts = counts_of_coins(rng, 6, {0.0: [0.8] * K})[0.0]
    counts.accepted[:, 1] //= 2
    assert name_of_shape({0.0: counts}) == "second half"


def counts_by_temperature(temperatures):
    """Return {temperature: PositionCounts} of figures as they are in a file."""
    return {float(T): counts_from_lists(case["by_position"])
            for T, case in temperatures.items()}


def stored_temperatures(name):
    """Return the stored figures of a fault, {temperature: its figures}."""
    return stored("low_acceptance")["rows"][name]["temperatures"]


def name_of_shape(counts):
    """Return the name of the shape, or None if there is none."""
    shape = nearest_shape(counts)
    return shape.name if shape else None


@pytest.mark.parametrize("name", [*FAULTS, low_acceptance.EAGLE])
def test_the_stored_counts_of_a_fault_have_its_shape_or_none(name):
    counts = counts_by_temperature(stored_temperatures(name))
    assert name_of_shape(counts) == NAMED.get(name)


def test_the_stored_prompts_without_a_fault_raise_few_alarms_when_drawn_again():
    """Of 200 draws of six prompts, with replacement, none is near an alarm."""
    stored_counts = counts_by_temperature(stored_temperatures("none"))
    rng = np.random.default_rng(0)
    n_alarms = 0
    for _ in range(200):
        prompts = rng.integers(6, size=6)
        drawn = {T: counts_of_prompts(counts, prompts) for T, counts in stored_counts.items()}
        n_alarms += nearest_shape(drawn) is not None
    assert n_alarms <= 10  # one in twenty


LONG_RUNS = [("input shifted by one", 12, 30), ("another tokenizer", 12, 30),
             ("draft at temperature 2", 12, 30), ("cache cut one token too early", 12, 80),
             ("cache cut two tokens too early", 12, 80), ("none", 12, 80)]


@pytest.mark.parametrize("name, n_prompts, N", [
    ("zero-filled from guess 3 on", 6, 30), ("none", 6, 30),
    *(pytest.param(*run, marks=pytest.mark.weekly) for run in LONG_RUNS)])
def test_a_fresh_run_names_the_fault(name, n_prompts, N):
    encoder, *pair = load_benchmark_pair("pair")
    openings = [*OPENINGS, *MORE_OPENINGS][:n_prompts]
    texts = [encoder.encode(opening) for opening in openings]
    args = Namespace(N=N, repeats=1)
    step_of = partial(faulty_step, FAULTS[name])
    temperatures = {T: counted_texts(step_of, pair, texts, T, args)[0] for T in (0.0, 1.0)}
    assert name_of_shape(counts_by_temperature(temperatures)) == NAMED.get(name)


# ---- the report, the table and the page

def test_the_sentence_of_a_shape_and_nothing_without_one():
    def sentence(name):
        return shape_in_words([{"temperature": float(T), "counts": case["by_position"]}
                               for T, case in stored_temperatures(name).items()])

    assert sentence("zero-filled from guess 3 on") == (
        "Guess 3 is accepted far less often (0.00 at temperature 0, 0.00 at temperature 1) than "
        "guess 2 (0.74 at temperature 0, 0.60 at temperature 1), as with slots of a round that "
        "the draft does not fill (docs/low_acceptance.md).")
    assert sentence("none") == "" == shape_in_words([{"name": "older"}])


def test_the_table_says_no_if_a_text_differs_and_shows_untested_guesses():
    row = {"temperatures": {"0": {"by_position": {"tested": [[[2, 0]]], "accepted": [[[1, 0]]]},
                                  "first_guess": {"tested": [[[0, 4]]], "accepted": [[[0, 1]]]},
                                  "tokens_per_pass": 1.5}},
           "identical": 0, "distance": 0.0}
    _, table, _, second = low_acceptance.paragraphs(
        {"texts": "1 prompt", "repeats": 2, "rows": {"bad": row}}, None)
    assert table.endswith("| bad | 0.50 (0.50 - 0.50) | - | 1.50 | no: 0 of 1 texts, distance "
                          "0.0000 |")
    assert second.endswith("| bad | - | 0.25 (0.25 - 0.25) |")


def test_the_command_writes_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(low_acceptance, "OPENINGS", OPENINGS[:2])
    monkeypatch.setattr(low_acceptance, "FAULTS", {"none": Fault()})
    monkeypatch.setattr(low_acceptance, "PROMPT_LENGTH", 3)
    path = tmp_path / "a.json"
    status, out, _ = outcome(low_acceptance.main, "--N", 8, "--json", path)
    assert status == 0 and outcome(low_acceptance.main, "--show", path)[1] == out
    figures = json.loads(path.read_text("utf-8"))
    assert figures["rows"].keys() == {"none", low_acceptance.EAGLE}
    assert out.count("| yes |") == 4  # two rows at two temperatures


def test_the_page_is_short_and_names_every_shape_that_was_measured():
    page = file_text("docs/low_acceptance.md")
    assert page.count("\n") <= 90
    for words in ("rising", "cliff", "near zero", "low at one temperature only"):
        assert words in page
