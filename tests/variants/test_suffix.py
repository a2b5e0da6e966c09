"""Suffix decoding: counts and guesses compared with a search by hand, the file of --memory."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib import memory
from lib.memory import add_to_memory, read_memory
from run.flags import parse_args
from speculative import generate
from tests.commands import json_of_run
from tests.distributions import Scripted
from tests.small import of_probabilities
from tests.toys import count_up, counted, mapped, toy
from variants.suffix import DECODER, Counts, best_guess

one_text = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def suffix(draft=None, target=None, n_vocab=3, **flags):
    """Return the step of one text, on toys."""
    target = target or toy(n_vocab, 1)
    return DECODER.build(of_probabilities(draft, target, n_vocab=n_vocab),
                         **DECODER.settings(flags))


def guesses_of(step, x):
    return step(x, 10, np.random.default_rng(0)).guesses


# ---- guesses, by hand

def followed_by_hand(text, run, n, min_prob):
    """Return `most_frequent_path` without a table: search the text again for every guess."""
    guesses = []
    prob = 1.0
    score = 0.0
    while len(guesses) < n:
        so_far = [*run, *guesses]
        after = [text[i + len(so_far)] for i in range(len(text) - len(so_far))
                 if text[i : i + len(so_far)] == so_far]
        if not after:
            break
        token = max(reversed(after), key=after.count)
        prob *= after.count(token) / len(after)
        if prob < min_prob:
            break
        guesses.append(token)
        score += prob
    return guesses, score


@given(one_text, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.1, 0.4, 0.7]),
       st.integers(0, 6))
@example([0, 0, 0, 0, 1, 0, 0], 2.0, 0.0, 3)  # two scores that differ by a rounding
@example([0, 1, 0, 2, 0], 2.0, 0.7, 5)  # 1 and 2 follow 0 equally often, below the least of 0.7
@example([1, 0, 0, 0, 1, 2, 0, 0, 0, 2, 1, 0, 0, 0], 2.0, 0.0, 1)  # only the longest run is clear
@example([0, 1, 3, 0, 2, 4, 0, 2, 5, 0, 1, 6, 0], 2.0, 0.0, 1)  # 1 follows 0 first and last
def test_the_guess_is_the_best_that_counting_by_hand_finds(x, factor, min_prob, k):
    depth = 5
    candidates = []  # the guesses after the last m tokens, the longest run first
    for m in range(min(depth - 1, len(x)), 0, -1):
        n = min(k, int(factor * m), depth - m)
        candidates.append(followed_by_hand(x, x[-m:], n, min_prob))
    guesses, score = best_guess(x, [Counts(depth, [x])], k, factor, min_prob)
    best_score = max(score for _, score in candidates)  # the sums have the same order
    assert score == best_score
    assert guesses == next(ids for ids, score in candidates if score == best_score)


# ---- efficiency

def test_a_text_that_repeats_itself_is_copied_as_fast_as_the_cap_allows():
    wrong = mapped(count_up(5), lambda row: np.roll(row, 1))
    step = suffix(wrong, count_up(5), 5, cap=9, depth=20)
    rounds = generate(list(range(5)) * 3, step, 40, np.random.default_rng(0))
    assert [len(result.ids) for result in rounds] == [10] * 4


def test_the_draft_is_called_if_and_only_if_the_score_is_below_the_threshold():
    x = [0, 1, 2, 0, 1, 2, 0]
    draft = counted(toy(3, 1, zeros=0))
    _, score = best_guess(x, [Counts(16, [x])], 3)
    for threshold, n_calls in ((score, 0), (score + 1e-9, 2)):
        draft.calls.clear()
        suffix(draft, K=2, sure=threshold)(x, 4, np.random.default_rng(0))
        assert len(draft.calls) == n_calls


@pytest.mark.parametrize("sure", [0.0, 99.0])
@pytest.mark.parametrize("n_left", [1, 2, 3, 30])
def test_no_round_overshoots_and_each_source_has_its_own_limit(sure, n_left):
    model = count_up(3)
    step = suffix(model, model, cap=7, sure=sure)  # K is 4
    result = step([0, 1, 2] * 9, n_left, Scripted([0.5] * 9))
    assert len(result.guesses) == min(n_left - 1, 7 if sure == 0 else 4)


# ---- one text after another

FIRST = [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("second", [[0, 2, 1, 0, 2, 1, 0, 2], FIRST[:4], [2, *FIRST],
                                    FIRST[:-1] + [1, 0, 1, 0]])
def test_a_new_text_has_new_counts(second):
    used, fresh = (suffix(sure=0.0) for _ in range(2))
    guesses_of(used, FIRST)
    assert guesses_of(used, second) == guesses_of(fresh, second) != []


def test_no_token_is_counted_twice_as_a_text_grows():
    """Otherwise the oldest tokens count most: here 1 after 0, though 2 came twice."""
    x = [0, 1, 0, 2, 0, 2, 0]
    used = suffix(sure=0.0)
    text = []  # one list, as in `generate`
    for token in x:
        text.append(token)
        assert guesses_of(used, text) == guesses_of(suffix(sure=0.0), text)
    assert guesses_of(used, x)[0] == 2


def test_remembered_texts_serve_every_text_and_its_own_counts_come_first(tmp_path):
    for text in ([1, 1, 2], [0]):
        add_to_memory(tmp_path / "texts", text, 3)
    step = suffix(sure=0.0, memory=str(tmp_path / "texts"))
    for x in ([0, 1, 1], [2, 1, 1]):
        assert guesses_of(step, x)[:1] == [2]
    assert guesses_of(step, [1, 1, 0, 1, 1])[:1] == [0]
    assert guesses_of(step, [0, 2]) == []  # a text has ended with 2


# ---- the file of --memory

def test_remembered_texts_are_read_back_in_order_and_the_oldest_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "NEWEST", 5)
    assert read_memory(tmp_path / "texts", 5) == []
    for text in ([0, 0], np.array([1, 1]), [2, 2, 2]):
        add_to_memory(tmp_path / "texts", text, 5)
    assert read_memory(tmp_path / "texts", 5) == [[1, 1], [2, 2, 2]]
    add_to_memory(tmp_path / "texts", [3] * 9, 5)  # one text may be longer
    assert read_memory(tmp_path / "texts", 5) == [[3] * 9]


def test_texts_that_finish_together_are_all_remembered(tmp_path, monkeypatch):
    """Each writer waits after reading, so that without a lock all read the same old texts."""
    def slow_read(*args):
        texts = read_memory(*args)
        time.sleep(0.05)
        return texts

    monkeypatch.setattr(memory, "read_memory", slow_read)
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda token: add_to_memory(tmp_path / "texts", [token], 8), range(8)))
    assert sorted(read_memory(tmp_path / "texts", 8)) == [[token] for token in range(8)]
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


def test_a_text_that_cannot_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "NEWEST", 2)  # so that the old text would be dropped
    add_to_memory(tmp_path / "texts", [0, 1], 5)
    before = (tmp_path / "texts").read_bytes()
    with pytest.raises(ValueError):
        add_to_memory(tmp_path / "texts", [2, "three"], 5)
    assert (tmp_path / "texts").read_bytes() == before


def test_a_lock_file_that_cannot_be_made_is_named_at_once():
    with pytest.raises(OSError, match="cannot make the lock file /proc/nofile.lock: No such"):
        add_to_memory("/proc/nofile", [0], 5)


GOOD = '{"n_vocab": 5, "ids": [0, 1]}'


@pytest.mark.parametrize("line", [
    "", GOOD[:-1], "null", '{"ids": [0]}', "[" * 10**5, '{"n_vocab": 5, "ids": [5]}',
    '{"n_vocab": 5, "ids": [-1]}', '{"n_vocab": 5, "ids": [0.0]}', "\udcff",
    '{"n_vocab": 6, "ids": [0]}'])
def test_a_broken_or_different_file_is_named_and_left_as_it_is(line, tmp_path):
    path = tmp_path / "texts"
    path.write_text(f"{GOOD}\n{line}\n", encoding="utf-8", errors="surrogateescape")
    before = path.read_bytes()
    message = "is not a file of texts over a vocabulary of 5 tokens"
    for use in (partial(read_memory, path, 5), partial(add_to_memory, path, [0], 5)):
        with pytest.raises(ValueError, match=message):
            use()
    assert path.read_bytes() == before


def test_without_a_draft_of_its_own_a_target_has_none():
    """The default draft is the bundled target's."""
    mine = "--decoder suffix --target mine"
    for flags, sure in ((mine, 0), (f"{mine} --draft tales-small", 3), (f"{mine} --sure 3", 3),
                        ("--decoder suffix", 3)):
        args = parse_args(flags.split())
        assert args.settings["sure"] == sure and ("draft" in args.needs) == (sure > 0)


def test_main_adds_the_decoders_text_and_the_next_run_copies_it(tmp_path):
    path = tmp_path / "texts"
    flags = "--decoder", "suffix", "--n_tokens_to_generate", 18, "--memory", path
    one, two, warm = (json_of_run(*flags, "--temperature", T) for T in (0, 0, 1))
    first, second, third = read_memory(path, 4096)
    assert first == second and first[-18:] == two["suffix"]["ids"] and len(first) > 18
    assert two["target_passes"] <= 3 < one["target_passes"]
    assert one["identical"] and two["identical"]
    assert third[-18:] == warm["suffix"]["ids"] != warm["autoregressive"]["ids"]
