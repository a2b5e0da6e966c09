"""Faults in a draft: their texts stay exact, and the table of their acceptance."""

from functools import partial

import numpy as np
import pytest

from benchmarks import low_acceptance
from docs.tables import stored
from exact.law import law, text_law
from gpt2 import GPT2
from measure.models import OPENINGS
from measure.passes import Run
from sampling import with_sampling
from speculative import Round, complete, draft_and_verify, generate
from tests.distributions import assert_same_law
from tests.small import lively_params

K = low_acceptance.GUESSED


# ---- the planted faults

@pytest.mark.parametrize("n_more, wanted", [
    (0, [1, 2, 9, 8]), (-1, [1, 2, 3, 9, 8]), (-2, [1, 2, 3, 4, 9, 8]), (1, [1, 9, 8]),
    (2, [9, 8])])
def test_a_wrong_cut_keeps_or_loses_tokens_for_good(n_more, wanted):
    """The draft read 1 2, guessed 3 and 4, and the text went on with 9 8."""
    read = []
    draft = low_acceptance.WrongCut(lambda ids, n_last: read.append(ids), n_more)
    guessing = [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
    for text in [*guessing, [1, 2, 9], [1, 2, 9, 8]]:
        draft(text)
    assert read[:3] == guessing and read[-1] == wanted


def test_a_zero_filled_round_has_guesses_without_a_draft():
    two = lambda x, k, rng: ([7] * k, np.eye(8)[[7] * k])
    guesses, rows = low_acceptance.zero_filled([1], 4, None, two, n_drafted=2, n_vocab=8)
    assert guesses == [7, 7, 0, 0] and np.argmax(rows, axis=1).tolist() == guesses
    assert low_acceptance.zero_filled([1], 1, None, two, n_drafted=2, n_vocab=8)[0] == [7]


def two_token_model(seed):
    """Return a random GPT-2 of two tokens, whose weights are so large that its rows differ."""
    hparams = dict(n_vocab=2, n_ctx=192, n_embd=6, n_head=2, n_layer=1)
    return GPT2(lively_params(hparams, seed, scale=1), hparams["n_head"])


def prompt_of(n):
    """Return n tokens."""
    return np.random.default_rng(2).integers(2, size=n).tolist()


def toy_rounds(step_of):
    """Return the tokens and the draft's rows of some rounds, beyond position 128."""
    step = step_of(two_token_model(0), two_token_model(1), temperature=1.0)
    rounds = generate(prompt_of(130), step, 40, np.random.default_rng(3))
    return [(result.ids, np.array(result.p_draft).tolist()) for result in rounds]


@pytest.mark.parametrize("name", low_acceptance.FAULTS)
def test_every_fault_changes_what_the_draft_computes_and_no_fault_does_not(name):
    def healthy(draft, target, temperature):
        return draft_and_verify(with_sampling(draft, temperature=temperature),
                                with_sampling(target, temperature=temperature), K)

    found = toy_rounds(partial(low_acceptance.faulty_step, fault=low_acceptance.FAULTS[name]))
    assert (found == toy_rounds(healthy)) == (name == "none")


def test_first_guesses_are_counted_by_the_round_before_them():
    """Two guesses a round: 2 accepted, then 0, 1 and 2; the last round has no guess."""
    rounds = [Round([0] * (n + 1), [0] * 2, [], [], n) for n in (2, 0, 1, 2)]
    text = Run(None, None, rounds=[*rounds, Round([0], [], [], [], 0)])
    tested, accepted = low_acceptance.first_guess_counts([[text, text], [text, text]])
    assert (tested.tolist(), accepted.tolist()) == ([[4, 2]] * 2, [[4, 0]] * 2)


# ---- exactness

@pytest.mark.parametrize("name", [
    "cache cut one token too late", "draft at temperature 0.3", "zero-filled from guess 3 on",
    "another tokenizer"])
def test_the_text_of_a_draft_with_a_fault_is_exact(name):
    """Three guesses, or a rejection and rounds after it, are four tokens."""
    draft, target = two_token_model(0), two_token_model(1)
    prompt = prompt_of(3)

    def text(rng):
        # Each text has a new step, because a cache that is cut wrongly depends on earlier texts.
        step = low_acceptance.faulty_step(draft.fresh(), target.fresh(), temperature=1.0,
                                          fault=low_acceptance.FAULTS[name])
        return complete(prompt, step, 4, rng)

    wanted = text_law(prompt, with_sampling(target, temperature=1.0), 4)
    assert_same_law(law(text), wanted)


def test_all_stored_greedy_texts_are_those_of_plain_decoding():
    rows = stored("low_acceptance")["rows"]
    assert rows.keys() == low_acceptance.FAULTS.keys()
    assert {row["identical"] for row in rows.values()} == {len(OPENINGS)}


# ---- the table

def test_the_table_shows_a_text_that_differs_and_untested_guesses():
    half = {"tested": 2, "acceptance": 0.5, "low": 0.4, "high": 0.6}
    none = {"tested": 0, "acceptance": 0.0, "low": 0.0, "high": 0.0}
    row = {"temperatures": {"0": {"by_position": [half, none], "first_guess": [none, half],
                                  "tokens_per_pass": 1.5}}, "identical": 0}
    _, table, _, second = low_acceptance.paragraphs(
        {"texts": "1 prompt", "repeats": 2, "rows": {"none": row}}, None)
    assert table.endswith("| none | 0.50 (0.40 - 0.60) | - | 1.50 | 0 |")
    assert second.endswith("| none | - | 0.50 (0.40 - 0.60) |")
