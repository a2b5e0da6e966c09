"""Run the rules of the register on arrays, as engines do.

    guesses    [B, K]           p_draft   [B, K, V]        p_target   [B, K + 1, V]
    uniforms   [B, K + 1]       u_t tests guess t; the last one draws the replacement or bonus
    tokens     [B, K + 1]       the accepted guesses and that token, then -1

EXACT and WRONG are {name of a rule: its function}. exact/oracle.py is tested with these functions,
and benchmarks/power.py runs the tests of engines on them. A test here is the batched form of the
test with the same name in exact/rules/verifiers.py, and has the same parts. Rules about the way to
guess are left out, because the guesses are arguments here.
"""

from functools import partial

import numpy as np

from exact.rules import guesses as ways
from exact.rules import verifiers
from exact.rules.register import RULES
from exact.rules.verifiers import from_residual, ratio, surplus, unscaled, whole_rest
from exact.toys import best
from speculative import guess, verify
from variants.match import match_verify

PAD_ROW = ((0, 0), (0, 1), (0, 0))  # one row of zeros after p_draft: its residual is the target


# ---- parts

def at(rows, tokens):  # [B, k, V], [B, k] -> [B, k]
    """Return the probabilities of the tokens."""
    return np.take_along_axis(rows, tokens[..., None], axis=-1)[..., 0]


def draw(weights, uniforms):  # [.., V], [..] -> [..]
    """Return the token in whose interval the uniform is."""
    cumulative = weights.cumsum(axis=-1)
    total = np.where(cumulative[..., -1:] > 0, cumulative[..., -1:], 1)
    # the token is the number of interval ends at or below the uniform
    return (uniforms[..., None] >= cumulative / total).sum(axis=-1)


def written(guesses, n, token):  # [B, K], [B], [B] -> [B, K + 1]
    """Return the first n guesses and the token, then -1."""
    tokens = np.pad(guesses, ((0, 0), (0, 1)))  # one more column
    tokens[np.arange(tokens.shape[1]) > n[:, None]] = -1
    tokens[np.arange(len(n)), n] = token
    return tokens


def n_leading(flags):  # [B, K] -> [B]
    """Return how many flags of each row are true before the first false one."""
    # a product of flags is 1 up to the first false flag, and 0 from there on
    return np.cumprod(flags, axis=1).sum(axis=1)


def last_passed(passed):  # [B, K] -> [B]
    """Return the largest number n of guesses that passes; n = 0 always passes."""
    passed = np.pad(passed, ((0, 0), (1, 0)), constant_values=True)  # column n: n guesses pass
    # the first true column from the right
    return passed.shape[1] - 1 - passed[:, ::-1].argmax(axis=1)


def probabilities(guesses, p_draft, p_target):  # -> [B, K], [B, K]
    """Return the guesses' probabilities: the target's, and the draft's (1 instead of 0)."""
    drafts = at(p_draft, guesses)
    return at(p_target[:, :-1], guesses), np.where(drafts > 0, drafts, 1)


# ---- how many guesses are tested: (guesses, p_draft) -> [B]

def all_of(guesses, p_draft):
    """Test all guesses; -1 is padding."""
    return (guesses >= 0).sum(axis=1)


def before_unsure_row(guesses, p_draft):
    """Test the guesses before the first row without a confident token."""
    return n_leading(ways.is_confident(p_draft.max(axis=-1)))


def before_unsure_guess(guesses, p_draft, extra=0):
    """Test the guesses before the first one with a low probability, and `extra` more."""
    n = n_leading(ways.is_confident(at(p_draft, guesses)))
    return np.minimum(n + extra, guesses.shape[1])


def n_planned(guesses, p_draft, choose=np.argmax, costs=ways.COSTS):
    """Test the number of guesses that `choose` picks from the rates of 0 .. K guesses."""
    return choose(ways.rates(p_draft.max(axis=-1), costs), axis=-1)


# ---- tests

def chain(guesses, p_draft, p_target, uniforms, p_accept=ratio, replace=from_residual, bonus=-1,
          numbers="separate", scaled=unscaled, n_tested=all_of):
    """Accept guess after guess; draw a replacement at the first rejection, or the bonus token.

    `bonus`, `numbers` and `scaled` are the arguments of verifiers.chain. The uniforms 0 .. K - 1
    test the guesses, and uniform K draws the last token.
    """
    each = np.arange(len(guesses))
    K = guesses.shape[1]
    k = n_tested(guesses, p_draft)
    guesses = np.maximum(guesses, 0)  # padding becomes token 0, which is never tested: n <= k
    tests = uniforms[:, :1] if numbers == "one" else uniforms[:, :K]
    accepted = tests < p_accept(*probabilities(guesses, p_draft, scaled(p_target)))
    n = np.minimum(n_leading(accepted), k)  # the round writes n guesses and one token
    replaced = replace(guesses, p_target[:, :K], p_draft, p_target[:, 1:])  # [B, K, V]
    replacement_row = replaced[each, np.minimum(n, K - 1)]  # any row if n is K: not used below
    bonus_row = p_target[each, np.maximum(k + 1 + bonus, 0)]  # bonus -1 is row k, the last
    weights = np.where((n == k)[:, None], bonus_row, replacement_row)
    # "twice": uniform n, which rejected guess n; if n is K it is the last uniform in any case
    number = uniforms[each, n] if numbers == "twice" else uniforms[:, K]
    return written(guesses, n, draw(weights, number))


def match(guesses, p_draft, p_target, uniforms, n_tested=all_of):
    """Draw the target's tokens; write them up to the first token that is not the guess."""
    drawn = draw(p_target, uniforms)  # [B, K + 1]
    n = np.minimum(n_leading(drawn[:, :-1] == guesses), n_tested(guesses, p_draft))
    return written(guesses, n, drawn[np.arange(len(n)), n])


def best_tokens(guesses, p_draft, p_target, uniforms):
    """Compare the guesses with the target's most probable tokens."""
    one_hot = np.eye(p_target.shape[-1])[p_target.argmax(axis=-1)]
    return match(guesses, p_draft, one_hot, uniforms)


def next_rows(guesses, p_draft, p_target, uniforms):
    """Test guess t with row t + 1 of the target."""
    rows = np.concatenate([p_target[:, 1:], p_target[:, -1:]], axis=1)
    return chain(guesses, p_draft, rows, uniforms)


def first_untested(guesses, p_draft, p_target, uniforms):
    """Accept the first guess without a test; test the others."""
    # as if the target's row were the draft's: the ratio is 1
    rows = np.concatenate([p_draft[:, :1], p_target[:, 1:]], axis=1)
    return chain(guesses, p_draft, rows, uniforms)


def best_bonus(guesses, p_draft, p_target, uniforms):
    """Test as `chain`; the bonus token is the target's most probable token."""
    rows = p_target.copy()
    rows[:, -1] = np.eye(p_target.shape[-1])[p_target[:, -1].argmax(axis=-1)]
    return chain(guesses, p_draft, rows, uniforms)


def no_bonus(guesses, p_draft, p_target, uniforms):
    """Test as `chain`, and draw no bonus token."""
    tokens = chain(guesses, p_draft, p_target, uniforms)
    tokens[:, -1] = -1
    return tokens


def shares(guesses, p_draft, p_target):  # -> [B, K + 1]
    """Return the shares of block verification after 0 .. K guesses, as variants/block.py does."""
    target, draft = probabilities(guesses, p_draft, p_target)
    # column n is the share after n guesses
    share = np.ones((len(guesses), 1 + guesses.shape[1]), dtype=p_target.dtype)
    for t in range(guesses.shape[1]):
        share[:, t + 1] = ratio(share[:, t] * target[:, t], draft[:, t])
    return share


def joint_ratios(guesses, p_draft, p_target):  # -> [B, K + 1]
    """Return the product of the first t ratios p_target / p_draft, for t = 0 .. K."""
    target, draft = probabilities(guesses, p_draft, p_target)
    # column 0 is the product of no ratio, 1
    return np.pad((target / draft).cumprod(axis=1), ((0, 0), (1, 0)), constant_values=1)


def last_uncapped(guesses, p_draft, p_target):  # -> [B, K + 1]
    """Return the shares of block verification, but the last one as if no other were capped."""
    share = shares(guesses, p_draft, p_target)
    share[:, -1] = np.minimum(joint_ratios(guesses, p_draft, p_target)[:, -1], 1)
    return share


def capped_at_maxima(guesses, p_draft, p_target):  # -> [B, K + 1]
    """Return the shares of verifiers.capped_at_maxima."""
    joint = joint_ratios(guesses, p_draft, p_target)
    _, draft = probabilities(guesses, p_draft, p_target)
    share = np.ones_like(joint)
    share[:, 1:] /= draft.cumprod(axis=1)
    largest = np.maximum.accumulate(joint, axis=1)
    is_maximum = joint[:, 1:] > largest[:, :-1]  # larger than all products before it
    share[:, 1:][is_maximum] = 1
    share[:, -1] = np.minimum(joint[:, -1], 1)
    return share


def traversal(guesses, p_draft, p_target, uniforms, rest=whole_rest, shares=shares):
    """Accept the longest start that passes, tried from its end."""
    each = np.arange(len(guesses))
    K = guesses.shape[1]
    share = shares(guesses, p_draft, p_target)
    # weights[:, n] are for the token after n guesses; for n = K they are the target's row alone
    weights = np.maximum(share[..., None] * p_target - np.pad(p_draft, PAD_ROW), 0)
    mass = weights[:, :K].sum(axis=-1)
    divisor = rest(mass, share[:, :K], at(p_draft, guesses))
    # n < K guesses pass with probability mass / divisor; where that is 0 / 0 it is not used, and 1
    safe_divisor = np.where(divisor > 0, divisor, 1)
    p_shorter = np.where(divisor > 0, mass / safe_divisor, 1)
    # n = 0 always passes and has no column, so column n - 1 of p_accept is for n guesses
    p_accept = np.concatenate([p_shorter[:, 1:], share[:, K:]], axis=1)
    n = last_passed(uniforms[:, :K] < p_accept)
    return written(guesses, n, draw(weights[each, n], uniforms[:, K]))


def one_product(guesses, p_draft, p_target, uniforms):
    """Accept up to the last guess at which the ratios' product reaches the uniforms' product."""
    ratios = ratio(*probabilities(guesses, p_draft, p_target))
    K = guesses.shape[1]
    n = last_passed(np.cumprod(ratios, axis=1) >= np.cumprod(uniforms[:, :K], axis=1))
    weights = surplus(p_target, np.pad(p_draft, PAD_ROW))[np.arange(len(n)), n]
    return written(guesses, n, draw(weights, uniforms[:, K]))


# ---- the rules

TESTS = {  # a test of one round: the test of a batch
    verify: chain,
    verifiers.chain: chain,
    match_verify: match,
    verifiers.best_tokens: best_tokens,
    verifiers.next_rows: next_rows,
    verifiers.first_untested: first_untested,
    verifiers.best_bonus: best_bonus,
    verifiers.no_bonus: no_bonus,
    verifiers.traversal: traversal,
    verifiers.one_product: one_product}
PARTS = {  # a part of a test of one round that is not for arrays: the part for a batch
    verifiers.last_uncapped: last_uncapped,
    verifiers.capped_at_maxima: capped_at_maxima}
COUNTS = {  # a way to guess: how many of the guesses are tested
    guess: all_of,
    best: all_of,  # the oracle draws the guesses of these rules too
    ways.stop_before: before_unsure_row,
    ways.drop_improbable: before_unsure_guess,
    ways.planned: n_planned}


def function_and_settings(function):
    """Return the function and the settings of a partial, or of a plain function."""
    return getattr(function, "func", function), getattr(function, "keywords", {})


def batched_rules(exact):
    """Return {name: test of a batch} of the rules that can test guesses from another function."""
    tests = {}
    for rule in RULES:
        way, options = function_and_settings(rule.guess)
        test, settings = function_and_settings(rule.verify)
        # with "guess" in the options the rule is about how guesses are made
        has_parts = test in TESTS and way in COUNTS and "guess" not in options
        if rule.exact != exact or not has_parts:
            continue
        settings = {name: PARTS.get(part, part) for name, part in settings.items()}
        if COUNTS[way] is not all_of:
            settings = {**settings, "n_tested": partial(COUNTS[way], **options)}
        tests[rule.name] = partial(TESTS[test], **settings)
    return tests


EXACT = batched_rules(exact=True)
WRONG = batched_rules(exact=False)
