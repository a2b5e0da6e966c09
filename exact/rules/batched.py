"""Run the rules of the register on arrays, as engines do.

A batch has B rounds with K guesses each, over a vocabulary of V tokens:

    guesses    [B, K]           p_draft   [B, K, V]        p_target   [B, K + 1, V]
    uniforms   [B, K + 1]       uniform t tests guess t; uniform K draws the last token, which
                                is the replacement of a rejected guess or the bonus token
    tokens     [B, K + 1]       the accepted guesses, the last token, then -1: [5, 7, 2, -1] is
                                a round of K = 3 with the guesses 5 and 7 accepted

EXACT and WRONG are {id of a rule: its function}. exact/oracle.py is tested with these
functions, and benchmarks/power.py runs the tests of engines on them. A test here is the batched
form of a test of exact/rules/verifiers.py (TESTS), and has the same parts. Rules
about the way to guess are left out, because the guesses are arguments here.
"""

from functools import partial

import numpy as np

from exact.rules import verifiers
from exact.rules.guesses import first_tested, n_leading
from exact.rules.register import RULES
from exact.toys import best
from speculative import guess, verify
from variants.match import match_verify

# ---- parts

def draw(weights, uniforms):  # [.., V], [..] -> [..]
    """Return the token in whose interval the uniform is."""
    cumulative = weights.cumsum(axis=-1)
    total = cumulative[..., -1:]
    # where all weights are 0, 1 stands for the total, so that nothing is divided by 0
    ends = cumulative / np.where(total > 0, total, 1)
    return (uniforms[..., None] >= ends).sum(axis=-1)


def entry_per_round(array, n):  # [B, K, ..], [B] -> [B, ..]
    """Return entry n of each round: array[0, n[0]], array[1, n[1]], .."""
    rounds = np.arange(len(n))
    return array[rounds, n]


def written(guesses, n, token):  # [B, K], [B], [B] -> [B, K + 1]
    """Return each round's tokens: its first n guesses, its last token, then -1."""
    tokens = np.pad(guesses, ((0, 0), (0, 1)))  # column K is new
    columns = np.arange(tokens.shape[1])
    tokens[columns > n[:, None]] = -1
    rounds = np.arange(len(n))
    tokens[rounds, n] = token
    return tokens


def all_of(guesses, p_draft):  # -> [B]
    """Test all guesses; -1 is padding."""
    return (guesses >= 0).sum(axis=1)


# ---- tests that go from guess to guess

def batch_chain(guesses, p_draft, p_target, uniforms, p_accept=verifiers.ratio,
                replace=verifiers.from_residual, bonus=-1, numbers="separate",
                scaled=verifiers.unscaled, n_tested=all_of):
    """Accept guess after guess; draw a replacement at the first rejection, or the bonus token.

    `bonus`, `numbers` and `scaled` are the arguments of verifiers.chain. `n_tested` returns how
    many guesses of each round are tested, as in guesses.py.
    """
    K = guesses.shape[1]
    k = n_tested(guesses, p_draft)
    # token 0 stands for padding; padding is never accepted, because a round accepts k at most
    guesses = np.maximum(guesses, 0)

    tests = uniforms[:, :1] if numbers == "one" else uniforms[:, :K]
    targets, drafts = verifiers.probabilities(guesses, p_draft, scaled(p_target))
    # the guesses before the first rejected one are accepted, but not more than are tested
    accepted = tests < p_accept(targets, drafts)
    n = np.minimum(n_leading(accepted), k)

    weights = last_weights(guesses, p_draft, p_target, n, k, replace, bonus)
    number = uniforms[:, K]
    if numbers == "twice":
        # uniform n rejected guess n; if n is K, uniform n is the last uniform as before
        number = entry_per_round(uniforms, n)
    return written(guesses, n, draw(weights, number))


def last_weights(guesses, p_draft, p_target, n, k, replace, bonus):  # -> [B, V]
    """Return the weights of the last token of each round with n of k guesses accepted."""
    K = guesses.shape[1]
    # the weights of a replacement of every guess; p_target[:, 1:] has each guess's next row
    replaced = replace(guesses, p_target[:, :K], p_draft, p_target[:, 1:])  # [B, K, V]
    # a round with n = K has no replacement; any row is taken, and is not used
    replacement_row = entry_per_round(replaced, np.minimum(n, K - 1))
    # a round with k guesses has k + 1 rows: bonus = -1 is row k, and bonus = -2 is row k - 1.
    # A round without guesses has row 0 alone
    bonus_row = entry_per_round(p_target, np.maximum(k + 1 + bonus, 0))
    is_bonus = n == k
    return np.where(is_bonus[:, None], bonus_row, replacement_row)


def batch_match(guesses, p_draft, p_target, uniforms, n_tested=all_of):
    """Draw the target's tokens; write them up to the first token that is not the guess."""
    drawn = draw(p_target, uniforms)  # [B, K + 1]
    n_matches = n_leading(drawn[:, :-1] == guesses)
    n = np.minimum(n_matches, n_tested(guesses, p_draft))
    return written(guesses, n, entry_per_round(drawn, n))


def batch_no_bonus(guesses, p_draft, p_target, uniforms):
    """Test as `batch_chain`, and draw no bonus token."""
    tokens = batch_chain(guesses, p_draft, p_target, uniforms)
    tokens[:, -1] = -1  # only a bonus token is in the last column
    return tokens


# ---- tests of several guesses at once

def batch_traversal(guesses, p_draft, p_target, uniforms, rest=verifiers.whole_rest,
                    shares=verifiers.right_shares):
    """Accept the largest number n of guesses whose test passes.

    `rest` and `shares` are the arguments of verifiers.traversal.
    """
    share = shares(guesses, p_draft, p_target)
    weights, p_accept = verifiers.block_tests(guesses, p_draft, p_target, share, rest)
    K = guesses.shape[1]
    passed = uniforms[:, :K] < p_accept
    n = (passed * np.arange(1, K + 1)).max(axis=1)  # a test that fails counts 0
    token = draw(entry_per_round(weights, n), uniforms[:, K])
    return written(guesses, n, token)


# ---- the rules

TESTS = {  # {a test of one round: the same test of a batch}
    verify: batch_chain,
    verifiers.chain: batch_chain,
    match_verify: batch_match,
    verifiers.no_bonus: batch_no_bonus,
    verifiers.traversal: batch_traversal,
    verifiers.with_rows: verifiers.with_rows}
# the oracle draws all guesses, also for a rule with argmax guesses
WAYS = guess, best, first_tested


def function_and_settings(function):
    """Return the function and the settings of a partial, or of a plain function."""
    # only a partial has these attributes
    return getattr(function, "func", function), getattr(function, "keywords", {})


def batched_rules(exact):
    """Return {id: test of a batch} of the exact rules, or of the others.

    A rule is left out if it is about how guesses are made, because a batch is given its
    guesses.
    """
    tests = {}
    for rule in RULES:
        way, way_settings = function_and_settings(rule.guess)
        test, settings = function_and_settings(rule.verify)
        is_known = test in TESTS and way in WAYS
        # a way with a setting `guess` makes its guesses by a different function
        is_about_guesses = "guess" in way_settings
        if rule.exact != exact or not is_known or is_about_guesses:
            continue

        settings = dict(settings)
        if test is verifiers.with_rows:
            settings["test"] = TESTS[settings["test"]]
        # only batch_chain and batch_match have the argument n_tested; no other test needs it
        if way is first_tested:
            others = dict(way_settings)
            settings["n_tested"] = partial(others.pop("n_tested"), **others)
        tests[rule.id] = partial(TESTS[test], **settings)
    return tests


EXACT = batched_rules(exact=True)
WRONG = batched_rules(exact=False)
