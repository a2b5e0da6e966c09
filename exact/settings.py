"""Compute how far a text is from the target's when settings around the test are misapplied.

    python -m exact.settings            the table of docs/wild.md
    python -m exact.settings WORDS      the rules with one of these words, on every toy

A setting (a penalty, a mask, a minimum length) changes the target's row, by the new tokens
before it. A round needs the rows of all positions at once, before it is known which guesses are
accepted, and the engine keeps a record of the text from round to round. A rule says

    record    the tokens on record before a round: the new text, if the engine is right
    given     (record, guesses, t) -> the tokens that the setting is given for row t;
              None: no setting for this row
    keep      (record, done) -> the record after the round `done`
    cut       (ids, stop, is_last) -> the tokens of a round that become text; the last round
              reaches the limit of length

Guesses are drawn from the draft's rows, without any setting, and tested by the ratio test.
Texts have four tokens, or end with a stop token. All outcomes are enumerated, on Fractions.
"""

import sys
from collections import defaultdict
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from exact.law import law, text_law
from exact.rules import MLX_SWIFT, SGLANG, TOYS, Found, X, commit, file_at
from exact.tables import distances_table, parser_of
from lib.terminal import command, print_safely
from speculative import guess, speculative_step, up_to_stop

N_NEW = 4
STOP = 2
FEWEST = 2  # new tokens before STOP is allowed


# ---- settings: (row, new tokens before it) -> weights

def penalty(row, seen):
    """Halve the probability of a token for each time that it was seen."""
    return row * [Fraction(1, 2 ** seen.count(token)) for token in range(len(row))]


def no_repeat(row, seen):
    """Mask the last token, as a grammar may."""
    return row * [int((token,) != seen[-1:]) for token in range(len(row))]


def min_length(row, seen):
    """Mask STOP among the first FEWEST tokens."""
    is_masked = len(seen) < FEWEST
    return row * [int(token != STOP or not is_masked) for token in range(len(row))]


def sharper(row, seen):
    """Square the row, as temperature 1/2 does."""
    return row**2


def no_setting(row, seen):
    return row


# ---- what the setting is given for row t

own_tokens = lambda record, guesses, t: (*record, *guesses[:t])
tokens_before_the_round = lambda record, guesses, t: record
bonus_only = lambda record, guesses, t: record if t == len(guesses) else None


def all_but_bonus(record, guesses, t):
    return None if t == len(guesses) else own_tokens(record, guesses, t)


def last_twice(record, guesses, t):
    counted = (*record[-1:], *record) if t else record
    return own_tokens(counted, guesses, t)


# ---- the record after a round

keep_text = lambda record, done: (*record, *done.ids)
keep_last = lambda record, done: (*record, done.ids[-1])


def keep_rejected(record, done):
    """Return the record with rejected guesses; sorted, because a penalty only counts."""
    return tuple(sorted((*record, *done.ids, *done.guesses[done.n_accepted :])))


# ---- the tokens of a round that become text

until_stop = lambda ids, stop, is_last: up_to_stop(ids, stop)
whole_round = lambda ids, stop, is_last: ids
limit_first = lambda ids, stop, is_last: ids if is_last else up_to_stop(ids, stop)


# ---- the rules

class Rule(NamedTuple):
    """Hold a setting, how an engine applies it, whether that is exact, and where it is met."""

    name: str
    setting: object
    exact: bool
    given: object = own_tokens
    keep: object = keep_text
    cut: object = until_stop
    stop: tuple = ()
    seen: str = ""


def sglang(path, name):
    return file_at(SGLANG, "v0.5.23", f"python/sglang/srt/{path}", f"SGLang 0.5.23, {name}")


RULES = [
    Rule("penalty: each row for the tokens before it", penalty, True),
    Rule("penalty: every row for the tokens before the round", penalty, False,
         given=tokens_before_the_round, seen=sglang("speculative/eagle_utils.py", "verify")),
    Rule("penalty: only the bonus row, for the tokens before the round", penalty, False,
         given=bonus_only),
    Rule("penalty: the last token before the round counts twice from row 1 on", penalty, False,
         given=last_twice),
    Rule("penalty: of a round's tokens only the last goes on record", penalty, False,
         keep=keep_last, seen=sglang("managers/schedule_batch.py", "one token per round")),
    Rule("penalty: rejected guesses stay on record", penalty, False, keep=keep_rejected,
         seen=commit(MLX_SWIFT, "6f609be9ee85159ac69a9fdfea2ad74d8eab8629", "fixed")),
    Rule("minimum length: counted in tokens", min_length, True),
    Rule("minimum length: counted in rounds, one mask for a round", min_length, False,
         given=tokens_before_the_round, keep=keep_last,
         seen=sglang("sampling/penaltylib/min_new_tokens.py", "a step counts 1")),
    Rule("mask: each row for the tokens before it", no_repeat, True),
    Rule("mask: the bonus row has none", no_repeat, False, given=all_but_bonus),
    Rule("mask: every row has that of the round's start", no_repeat, False,
         given=tokens_before_the_round),
    Rule("sampling setting: the bonus row only", sharper, False, given=bonus_only),
    Rule("stop token: the round is cut after it", no_setting, True, stop=(STOP,)),
    Rule("stop token: the rest of its round is kept", no_setting, False, cut=whole_round,
         stop=(STOP,), seen=commit("openvinotoolkit/openvino.genai",
                                   "bcdf67b0d29c1e6c354a7a95549003978d02a19b", "fixed")),
    Rule("stop token: ignored in the round that reaches the limit of length", no_setting,
         False, cut=limit_first, stop=(STOP,),
         seen=sglang("managers/schedule_batch.py", "a comment on it")),
]
BY_NAME = {rule.name: rule for rule in RULES}


# ---- enumeration

@cache
def row_under(setting, toy, last, seen):
    """Return the target's row after token `last`, under a setting that is given `seen`."""
    row = TOYS[toy][1]([last])[-1]
    weights = row if seen is None else setting(row, seen)
    return weights / weights.sum()


def one_round(x, record, rule, toy, K, rng):
    """Return the text after a round, its record, and whether the text has ended."""
    def target(ids, n_last):
        guesses = ids[len(x) :]
        return np.array([row_under(rule.setting, toy, last, rule.given(record, guesses, t))
                         for t, last in enumerate(ids[-n_last:])])

    n_left = len(X) + N_NEW - len(x)
    done = speculative_step(list(x), n_left, rng, target, K, partial(guess, draft=TOYS[toy][0]))
    ids = rule.cut(done.ids, rule.stop, is_last=len(done.ids) == n_left)
    has_ended = len(ids) == n_left or any(token in rule.stop for token in ids)
    return (*x, *ids), rule.keep(record, done), has_ended


@cache
def find(name, toy, K):
    """Return what a rule does to texts, round by round from every text and record so far."""
    rule = BY_NAME[name]
    texts = defaultdict(int)
    begun = {(X, ()): 1}
    while begun:
        longer = defaultdict(int)
        for (x, record), p in begun.items():
            outcomes = law(partial(one_round, x, record, rule, toy, K))
            for (text, next_record, has_ended), p_round in outcomes.items():
                if has_ended:
                    texts[text] += p * p_round
                else:
                    longer[text, next_record] += p * p_round
        begun = longer

    def target(ids, n_last=1):
        return [row_under(rule.setting, toy, ids[-1], tuple(ids[len(X) :]))]

    return Found(toy, K, texts, text_law(X, target, N_NEW, rule.stop))


# ---- as Markdown

def settings_table(words=()):
    """Show what each rule does, and where it is met."""
    columns = {"used or fixed in": lambda rule, toy: rule.seen}
    return distances_table(RULES, TOYS, words, find, columns)


@command("exact.settings")
def main(argv=None):
    """Print the rules, or those with some words."""
    words = parser_of("exact.settings", __doc__, RULES).parse_args(argv).words
    print_safely(settings_table(words), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
