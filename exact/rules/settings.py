"""Compute how far a text is from the target's when settings around the test are misapplied.

    python -m exact.rules --settings [WORDS]

A setting (a penalty, a mask, a minimum length) changes a row of the target, and the change
depends on the new tokens before this row. The engine keeps these tokens on a record. In a round
it computes the rows of all positions at once, before it is known which guesses are accepted. So
an engine can give the wrong tokens to the setting, and can put the wrong tokens on record. A
rule has these functions:

    setting    (row, new_tokens) -> the weights of the next token: see exact/toys.py
    given      (record, guesses, t) -> the tokens that the setting is given for row t;
               None: the setting is not applied to row t
    keep       (record, done) -> the record after the round `done`
    cut        (ids, stop, is_last) -> the tokens of a round that become text; is_last: the
               round reaches the limit of length
    propose    (x, k, rng, draft, under) -> guesses, and the draft's rows for the test;
               under(row, guesses) is the row under the setting after these guesses

The record holds the new tokens of the text, if the engine is right. Guesses are drawn from the
draft's rows without the setting, unless `propose` says otherwise, and the ratio rule tests
them. Texts have four new tokens, or end with a stop token. All outcomes are enumerated, on
Fractions.
"""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from exact.law import composed_law, law, text_law
from exact.rules.guesses import unchanged_rows
from exact.rules.register import MLX_SWIFT, SGLANG, commit, file_at, pull
from exact.toys import N_NEW, TOYS, Found, Setting, X, row_under, under
from speculative import Model, guess, speculative_step, up_to_stop

STOP = 2  # the stop token
FEWEST = 2  # new tokens that must come before STOP


# ---- setting(row, seen): the weights of the next token, given the new tokens before it, `seen`

def penalty(row, seen):
    """Halve the probability of a token for each time that the token was seen."""
    factors = [Fraction(1, 2 ** seen.count(token)) for token in range(len(row))]
    return row * factors


def forbidding(row, tokens):
    """Give these tokens the weight 0."""
    return row * [int(token not in tokens) for token in range(len(row))]


# no token directly follows itself
no_repeat = lambda row, seen: forbidding(row, seen[-1:])
# STOP is not among the first FEWEST new tokens
min_length = lambda row, seen: forbidding(row, (STOP,) if len(seen) < FEWEST else ())
half_temperature = lambda row, seen: row**2
no_setting = lambda row, seen: row  # for the rules about stop tokens


# ---- given(record, guesses, t): the tokens that the setting is given for row t, or None

# right: the tokens before row t are the record and the first t guesses
own_tokens = lambda record, guesses, t: (*record, *guesses[:t])
tokens_before_the_round = lambda record, guesses, t: record
# the bonus row follows all guesses
bonus_only = lambda record, guesses, t: record if t == len(guesses) else None
all_but_bonus = lambda record, guesses, t: (
    None if t == len(guesses) else own_tokens(record, guesses, t))


def last_twice(record, guesses, t):
    """Return the right tokens for row 0; for later rows the record's last token comes twice."""
    tokens = own_tokens(record, guesses, t)
    if t == 0:
        return tokens
    last = record[-1:]  # one token, or none in the first round
    # the penalty counts tokens in any order, so the second copy can come first
    return (*last, *tokens)


# ---- keep(record, done): the record after the round `done`

keep_text = lambda record, done: (*record, *done.ids)  # right
keep_last = lambda record, done: (*record, done.ids[-1])


def keep_rejected(record, done):
    """Add the round's tokens to the record, and all its guesses that were not accepted."""
    not_accepted = done.guesses[done.n_accepted :]
    # a penalty counts tokens in any order, so records with equal counts are sorted to be equal
    return tuple(sorted((*record, *done.ids, *not_accepted)))


# ---- cut(ids, stop, is_last): the tokens of a round that become text

until_stop = lambda ids, stop, is_last: up_to_stop(ids, stop)  # right
whole_round = lambda ids, stop, is_last: ids
limit_first = lambda ids, stop, is_last: ids if is_last else up_to_stop(ids, stop)


# ---- propose(x, k, rng, draft, under): guesses, and the draft's rows for the test

draft_alone = lambda x, k, rng, draft, under: guess(x, k, rng, draft)


def drop_forbidden(x, k, rng, draft, under):
    """Draw from the draft's rows; drop the first guess of weight 0, and all later guesses."""
    guesses, rows = guess(x, k, rng, draft)
    for t, token in enumerate(guesses):
        weights = under(rows[t], guesses[:t])
        if weights[token] == 0:
            return guesses[:t], rows[:t]
    return guesses, rows


def draw_under(x, k, rng, draft, under):
    """Draw from the draft's rows under the setting; return the rows without the setting."""
    def draft_under(ids, n_last):
        guesses = ids[len(x) :]
        return [under(draft(ids, n_last)[-1], guesses)]

    guesses, _ = guess(x, k, rng, draft_under)
    return guesses, unchanged_rows(x, guesses, draft)


# ---- the rules

class SettingRule(NamedTuple):
    """Hold a setting, how an engine uses it, whether the use is exact, and links to engines."""

    id: str
    name: str
    setting: Setting
    exact: bool
    given: Callable = own_tokens
    keep: Callable = keep_text
    cut: Callable = until_stop
    stop: tuple[int, ...] = ()
    propose: Callable = draft_alone
    # links to engines that do so. The argument `seen` of a setting is different: tokens
    seen: str = ""
    status: str = "shipped"  # as in register.Rule


def sglang_link(path: str, name: str) -> str:
    """Return a link to a file of SGLang."""
    return file_at(SGLANG, "v0.5.23", f"python/sglang/srt/{path}", f"SGLang 0.5.23, {name}")


SETTINGS = [
    SettingRule("penalty", "penalty: each row for the tokens before it", penalty, True),
    SettingRule("penalty-of-round", "penalty: every row for the tokens before the round",
                penalty, False, given=tokens_before_the_round,
                seen=sglang_link("speculative/eagle_utils.py", "verify")),
    SettingRule("penalty-of-bonus",
                "penalty: only the bonus row, for the tokens before the round",
                penalty, False, given=bonus_only),
    SettingRule("penalty-twice",
                "penalty: the last token before the round counts twice from row 1 on",
                penalty, False, given=last_twice),
    SettingRule("penalty-of-last", "penalty: of a round's tokens only the last goes on record",
                penalty, False, keep=keep_last,
                seen=sglang_link("managers/schedule_batch.py", "one token per round")),
    SettingRule("penalty-of-rejected", "penalty: rejected guesses stay on record",
                penalty, False, keep=keep_rejected,
                seen=commit(MLX_SWIFT, "6f609be9ee85159ac69a9fdfea2ad74d8eab8629", "2026-08"),
                status="fixed"),
    SettingRule("min-tokens", "minimum length: counted in tokens", min_length, True),
    SettingRule("min-rounds", "minimum length: counted in rounds, one mask for a round",
                min_length, False, given=tokens_before_the_round, keep=keep_last,
                seen=sglang_link("sampling/penaltylib/min_new_tokens.py", "a step counts 1")),
    SettingRule("mask", "mask: each row for the tokens before it", no_repeat, True,
                seen=pull("ollama/ollama", 18105)),
    SettingRule("mask-not-bonus", "mask: the bonus row has none",
                no_repeat, False, given=all_but_bonus),
    SettingRule("mask-of-round", "mask: every row has that of the round's start",
                no_repeat, False, given=tokens_before_the_round),
    SettingRule("mask-drops", "mask: guesses that it forbids are dropped untested",
                no_repeat, False, propose=drop_forbidden),
    SettingRule("mask-whole-rows",
                "mask: guesses drawn under it, and tested with the draft's whole rows",
                no_repeat, False, propose=draw_under),
    SettingRule("warp-bonus", "sampling setting: the bonus row only",
                half_temperature, False, given=bonus_only),
    SettingRule("stop", "stop token: the round is cut after it",
                no_setting, True, stop=(STOP,)),
    SettingRule("stop-rest-kept", "stop token: the rest of its round is kept",
                no_setting, False, cut=whole_round, stop=(STOP,),
                seen=commit("openvinotoolkit/openvino.genai",
                            "bcdf67b0d29c1e6c354a7a95549003978d02a19b", "2025-03"),
                status="fixed"),
    SettingRule("stop-at-limit",
                "stop token: ignored in the round that reaches the limit of length",
                no_setting, False, cut=limit_first, stop=(STOP,),
                seen=sglang_link("managers/schedule_batch.py", "a comment on it")),
]


# ---- enumeration

def setting_round(rule: SettingRule, draft: Model, target: Model, K: int, n_left: int,
                  x: list[int], record: tuple[int, ...], rng: Any) -> tuple[tuple, tuple]:
    """Return the tokens of a round that become text, and the record after the round."""
    def target_rows(ids, n_last):
        guesses = ids[len(x) :]
        rows = []
        for t, row in enumerate(target(ids, n_last)):
            seen = rule.given(record, guesses, t)
            rows.append(row if seen is None else row_under(rule.setting, row, seen))
        return np.array(rows)

    def under(row, guesses):
        return rule.setting(row, (*record, *guesses))

    def make_guesses(x, k, rng):
        return rule.propose(x, k, rng, draft, under)

    done = speculative_step(x, n_left, rng, target_rows, K, make_guesses)
    # `keep` makes the record from the uncut round
    is_last = len(done.ids) == n_left
    return tuple(rule.cut(done.ids, rule.stop, is_last)), rule.keep(record, done)


@cache
def enumerated_setting(rule: SettingRule, toy: str, K: int) -> Found:
    """Return the distribution of whole texts under a rule, and the right one."""
    draft, target = TOYS[toy]

    def one_round(x, record, n_left):
        return law(partial(setting_round, rule, draft, target, K, n_left, list(x), record))

    texts: dict[tuple, Any] = defaultdict(int)
    # later rounds depend on the text and on the record
    by_record = composed_law(X, one_round, N_NEW, rule.stop, memory=())
    for (text, _), p in by_record.items():
        texts[text] += p
    wanted = text_law(X, under(rule.setting, target, len(X)), N_NEW, rule.stop)
    return Found(toy, K, texts, wanted)
