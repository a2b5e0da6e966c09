"""Compute how far a text is from the target's when settings around the test are misapplied.

    python -m exact.rules --settings [WORDS]

A setting (a penalty, a mask, a minimum length) changes the target's row, given the new
tokens before this row. A round needs the rows of all positions at once, before it is known which
guesses are accepted, and the engine keeps a record of the text from round to round. A rule has:

    setting    (row, new tokens before it) -> the weights of the next token
    given      (record, guesses, t) -> the tokens that the setting is given for row t;
               None: no setting for this row
    keep       (record, done) -> the record after the round `done`
    cut        (ids, stop, is_last) -> the tokens of a round that become text; is_last: the
               round reaches the limit of length
    propose    (x, k, rng, draft, under) -> guesses, and the draft's rows for the test;
               under(row, guesses) is the row under the setting, after the record and guesses
    record     the tokens on record before a round: the new text, if the engine is right

Guesses are drawn from the draft's rows, without any setting unless `propose` says otherwise, and
tested by the ratio test. Texts have four tokens, or end with a stop token. All outcomes are
enumerated, on Fractions.
"""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from exact.law import law, text_law
from exact.rules.register import MLX_SWIFT, SGLANG, commit, file_at, pull
from exact.toys import TOYS, Found, X
from speculative import Model, Round, guess, speculative_step, up_to_stop

N_NEW = 4  # tokens of a text
STOP = 2
FEWEST = 2  # new tokens before STOP is allowed

Record = tuple[int, ...]
Setting = Callable[[np.ndarray, Record], np.ndarray]
Given = Callable[[Record, list[int], int], Record | None]
Keep = Callable[[Record, Round], Record]
Cut = Callable[[list[int], tuple[int, ...], bool], list[int]]
Under = Callable[[np.ndarray, list[int]], np.ndarray]
Propose = Callable[[list[int], int, Any, Model, Under], tuple[list[int], list[np.ndarray]]]


# ---- setting(row, seen): the weights of the next token, after the new tokens `seen`

def penalty(row, seen):
    """Halve the probability of a token for each time that the token was seen."""
    return row * [Fraction(1, 2 ** seen.count(token)) for token in range(len(row))]


def no_repeat(row, seen):
    """Mask the last token, as a grammar may."""
    last = seen[-1] if seen else None  # None: no token yet
    return row * [int(token != last) for token in range(len(row))]


def min_length(row, seen):
    """Mask STOP among the first FEWEST tokens."""
    if len(seen) >= FEWEST:
        return row
    return row * [int(token != STOP) for token in range(len(row))]


def half_temperature(row, seen):
    """Square the row, as temperature 1/2 does."""
    return row**2


def no_setting(row, seen):
    """Return the row: only the stop token matters."""
    return row


# ---- given(record, guesses, t): the tokens that the setting is given for row t; None: no setting

# right: row t comes after the first t guesses
own_tokens = lambda record, guesses, t: (*record, *guesses[:t])
tokens_before_the_round = lambda record, guesses, t: record


def bonus_only(record, guesses, t):
    """Give the bonus row, which follows the last guess, the record; give other rows nothing."""
    return record if t == len(guesses) else None


def all_but_bonus(record, guesses, t):
    """Give each row its own tokens, except the bonus row."""
    return None if t == len(guesses) else own_tokens(record, guesses, t)


def last_twice(record, guesses, t):
    """Give each row its own tokens; from row 1 on count the record's last token twice."""
    if t == 0:
        return own_tokens(record, guesses, t)
    last = record[-1:]  # empty in the first round
    return own_tokens((*last, *record), guesses, t)


# ---- keep(record, done): the record after the round `done`

keep_text = lambda record, done: (*record, *done.ids)  # right
keep_last = lambda record, done: (*record, done.ids[-1])


def keep_rejected(record, done):
    """Return the record with rejected guesses; sorted, because a penalty only counts."""
    rejected = done.guesses[done.n_accepted :]  # the guesses that were not tested are among them
    return tuple(sorted((*record, *done.ids, *rejected)))


# ---- cut(ids, stop, is_last): the tokens of a round that become text

until_stop = lambda ids, stop, is_last: up_to_stop(ids, stop)  # right
whole_round = lambda ids, stop, is_last: ids
limit_first = lambda ids, stop, is_last: ids if is_last else up_to_stop(ids, stop)


# ---- propose(x, k, rng, draft, under): guesses, and the draft's rows for the test

draft_alone = lambda x, k, rng, draft, under: guess(x, k, rng, draft)


def drop_forbidden(x, k, rng, draft, under):
    """Draw from the draft's rows; drop the first guess that is forbidden, and all after it."""
    guesses, rows = guess(x, k, rng, draft)
    for t, token in enumerate(guesses):
        weights = under(rows[t], guesses[:t])
        if weights[token] == 0:
            return guesses[:t], rows[:t]
    return guesses, rows


def draw_under(x, k, rng, draft, under):
    """Draw from the draft's rows under the setting; test with the rows as they were before."""
    def draft_under(ids, n_last):
        return [under(draft(ids, n_last)[-1], ids[len(x) :])]

    guesses, _ = guess(x, k, rng, draft_under)
    return guesses, [draft(x + guesses[:t], 1)[-1] for t in range(k)]


# ---- the rules

class SettingRule(NamedTuple):
    """Hold a setting, whether its use is exact, how an engine uses it, and where that is met."""

    name: str
    setting: Setting
    exact: bool
    given: Given = own_tokens
    keep: Keep = keep_text
    cut: Cut = until_stop
    stop: tuple[int, ...] = ()
    propose: Propose = draft_alone
    seen: str = ""  # links


def sglang_link(path: str, name: str) -> str:
    """Return a link to a file of SGLang."""
    return file_at(SGLANG, "v0.5.23", f"python/sglang/srt/{path}", f"SGLang 0.5.23, {name}")


SETTINGS = [
    SettingRule("penalty: each row for the tokens before it", penalty, True),
    SettingRule(
        "penalty: every row for the tokens before the round", penalty, False,
        given=tokens_before_the_round, seen=sglang_link("speculative/eagle_utils.py", "verify")),
    SettingRule(
        "penalty: only the bonus row, for the tokens before the round", penalty, False,
        given=bonus_only),
    SettingRule(
        "penalty: the last token before the round counts twice from row 1 on", penalty, False,
        given=last_twice),
    SettingRule(
        "penalty: of a round's tokens only the last goes on record", penalty, False,
        keep=keep_last, seen=sglang_link("managers/schedule_batch.py", "one token per round")),
    SettingRule(
        "penalty: rejected guesses stay on record", penalty, False, keep=keep_rejected,
        seen=commit(MLX_SWIFT, "6f609be9ee85159ac69a9fdfea2ad74d8eab8629", "fixed")),
    SettingRule("minimum length: counted in tokens", min_length, True),
    SettingRule(
        "minimum length: counted in rounds, one mask for a round", min_length, False,
        given=tokens_before_the_round, keep=keep_last,
        seen=sglang_link("sampling/penaltylib/min_new_tokens.py", "a step counts 1")),
    SettingRule(
        "mask: each row for the tokens before it", no_repeat, True,
        seen=pull("ollama/ollama", 18105)),
    SettingRule("mask: the bonus row has none", no_repeat, False, given=all_but_bonus),
    SettingRule(
        "mask: every row has that of the round's start", no_repeat, False,
        given=tokens_before_the_round),
    SettingRule(
        "mask: guesses that it forbids are dropped before the test", no_repeat, False,
        propose=drop_forbidden),
    SettingRule(
        "mask: guesses drawn under it, and tested with the draft's whole rows", no_repeat, False,
        propose=draw_under),
    SettingRule(
        "sampling setting: the bonus row only", half_temperature, False, given=bonus_only),
    SettingRule("stop token: the round is cut after it", no_setting, True, stop=(STOP,)),
    SettingRule(
        "stop token: the rest of its round is kept", no_setting, False, cut=whole_round,
        stop=(STOP,), seen=commit("openvinotoolkit/openvino.genai",
                                  "bcdf67b0d29c1e6c354a7a95549003978d02a19b", "fixed")),
    SettingRule(
        "stop token: ignored in the round that reaches the limit of length", no_setting, False,
        cut=limit_first, stop=(STOP,),
        seen=sglang_link("managers/schedule_batch.py", "a comment on it")),
]
SETTING_OF_NAME = {rule.name: rule for rule in SETTINGS}


# ---- enumeration

@cache
def row_under(setting: Setting, toy: str, last: int, seen: Record | None) -> np.ndarray:
    """Return the target's row after token `last`, under a setting that is given `seen`."""
    _, target = TOYS[toy]
    row = target([last], 1)[-1]
    # a setting returns weights: a penalty or a mask takes mass from the row
    weights = row if seen is None else setting(row, seen)
    return weights / weights.sum()


def one_round(x: tuple[int, ...], record: Record, rule: SettingRule, toy: str, K: int,
              rng: Any) -> tuple[tuple[int, ...], Record, bool]:
    """Return the text after a round, its record, and whether the text has ended."""
    draft, _ = TOYS[toy]

    def target(ids, n_last):
        guesses = ids[len(x) :]
        rows = []
        # row 0 follows x's last token, row t follows guess t - 1
        for t, last in enumerate(ids[-n_last:]):
            seen = rule.given(record, guesses, t)
            rows.append(row_under(rule.setting, toy, last, seen))
        return np.array(rows)

    def under(row, guesses):
        return rule.setting(row, (*record, *guesses))

    def make_guesses(x, k, rng):
        return rule.propose(x, k, rng, draft, under)

    n_left = len(X) + N_NEW - len(x)
    done = speculative_step(list(x), n_left, rng, target, K, make_guesses)
    # the tokens that become text; the engine's record is made of the uncut round
    ids = rule.cut(done.ids, rule.stop, len(done.ids) == n_left)
    has_ended = len(ids) == n_left or any(token in rule.stop for token in ids)
    return (*x, *ids), rule.keep(record, done), has_ended


@cache
def enumerated_setting(name: str, toy: str, K: int) -> Found:
    """Return what a rule does to texts, round by round from every text and record so far."""
    rule = SETTING_OF_NAME[name]
    texts: dict[tuple, Any] = defaultdict(int)
    unfinished: dict[tuple, Any] = {(X, ()): 1}  # {(text, record): probability}
    while unfinished:
        longer: dict[tuple, Any] = defaultdict(int)
        for (x, record), p in unfinished.items():
            # later rounds depend on the record too: equal texts with two records stay apart
            outcomes = law(partial(one_round, x, record, rule, toy, K))
            for (text, next_record, has_ended), p_round in outcomes.items():
                if has_ended:
                    texts[text] += p * p_round
                else:
                    longer[text, next_record] += p * p_round
        unfinished = longer

    # the right text: the setting is given all new tokens; text_law asks for one row at a time
    def target(ids, n_last=1):
        return [row_under(rule.setting, toy, ids[-1], tuple(ids[len(X) :]))]

    return Found(toy, K, texts, text_law(X, target, N_NEW, rule.stop))
