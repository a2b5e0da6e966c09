"""The oracle: right verifiers pass, every wrong rule is seen and named, others get one sentence."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from itertools import count, cycle, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from exact import oracle, toys
from exact.law import completed, law, text_law, total_variation
from exact.oracle import check, check_by_sampling
from exact.rules import verifiers
from exact.rules.batched import EXACT, WRONG, draw
from exact.rules.batched import batch_chain as chain
from exact.rules.guesses import bfloat16
from exact.rules.register import BY_ID, rule_step
from speculative import draft_and_verify, guess, make_step
from tests.commands import outcome, refusal, written
from tests.pages import ROOT, code, file_text
from tests.test_rules import ONE_GUESS, RIGHT_IN

pytestmark = pytest.mark.usefixtures("own_path")


# ---- rules

KNOWN = {name.partition(": ")[0]: figures for name, figures in oracle.KNOWN.items()}


def with_drawn_guesses(rule):
    """Return the rule as the oracle tests it: the oracle draws every guess, even for `best`."""
    return rule._replace(guess=guess) if rule.guess is toys.best else rule


@pytest.mark.parametrize("name, dtype", [*zip(WRONG, cycle(oracle.DTYPES))])
def test_every_wrong_rule_is_seen_and_named(name, dtype):
    """The figures of KNOWN, which are enumerated without the oracle, are of the first toys."""
    # where no token has a weight, a rule draws token 3, which does not exist
    report = check(lambda *arrays: np.minimum(WRONG[name](*arrays), 2), dtype=dtype)
    assert report.exact is False and str(report).startswith("NOT exact: ")
    position, before, token = report.first_wrong_token
    assert f"position {position}, after {before}: token {token} occurs too often" in str(report)
    assert len(before) == position
    assert report.rule == f"{name}: {BY_ID[name].name}"
    assert f"\nlikely fault: {report.rule}\n" in str(report)
    assert report.distance > max(KNOWN[name][:-1]) - 2e-6


@pytest.mark.parametrize("name, K, V, dtype", [
    (name, *case) for name, case in zip(WRONG, cycle([
        (1, 3, "float32"), (2, 3, "float64"), (1, 4, "float64")]))])
def test_a_wrong_rule_is_seen_wherever_it_is_wrong(name, K, V, dtype):
    """A rule may be refused: where no residual is left it draws a token that does not exist."""
    report = check(WRONG[name], K, V, dtype)
    is_right = K == 1 and RIGHT_IN.get(name, "").startswith(ONE_GUESS)
    assert (report.exact is True) == is_right
    assert report.rule is None  # named with K = V = 3 only


def test_the_first_wrong_token_is_at_the_first_position_with_a_wrong_distribution():
    """By hand: guesses of 0 and 2 pass. A guess of 1 is replaced by 0 or 2.

    The surplus of 0 is .18 and the surplus of 2 is .02. So 0 comes with probability .23 + .5 * .9.
    """
    rows = [[[0.23, 0.5, 0.27]] * 4, [[0.41, 0.3, 0.29]] * 4]
    report = check(WRONG["hard-ratio"], rows=rows)
    assert report.first_wrong_token == (0, [], 0)
    assert "returned  [0.68, 0.0, 0.32]\n  p_target  [0.41, 0.3, 0.29]" in str(report)
    position, _, _ = check(WRONG["last-row-bonus"]).first_wrong_token
    assert position == 3
    rows = [np.divide(model, np.sum(model, axis=1, keepdims=True)) for model in oracle.TOYS[3][0]]
    report = check(WRONG["one-uniform"], rows=rows)
    position, before, _ = report.first_wrong_token
    assert position == 1
    assert f"p_draft   {rows[0][1 + before[-1]].round(6).tolist()}\n" in str(report)


def test_own_rows_are_divided_by_their_sums():
    draft, target = [0.3333333333] * 3, [0.1428571428, 0.2857142857, 0.5714285714]
    assert check(chain, K=1, rows=[[draft] * 4, [target] * 4]).exact


# ---- kernels and the register's rules

ABOUT_GUESSES = {  # rules of the register that no function over arrays can be
    "colder-draft", "colder-guesses", "best-two-guesses", "common-tokens", "argmax-softmax-rows",
    "bfloat16-guesses", "better-path", "paths-kept", "match-tree", "match-per-path",
    "beam-softmax-rows", "guess-number", "one-gumbel", "drop-one-hot-argmax"}


def test_the_kernels_are_the_rules_of_the_register():
    assert BY_ID.keys() - EXACT.keys() - WRONG.keys() == ABOUT_GUESSES


def of_one_round(kernel):
    """Return the batched test as a test of one round, which exact.law can enumerate."""
    def test(guesses, p_draft, p_target, rng):
        batch = [np.array([array]) for array in (guesses, p_draft, p_target)]  # of one round
        (tokens,) = kernel(*batch, rng.random((1, len(p_target))))
        return [int(token) for token in tokens if token >= 0]

    return test


@pytest.mark.parametrize("name", EXACT | WRONG)
def test_a_kernel_has_the_distribution_of_its_rule(name):
    """The distributions of one round on fractions are equal, and equal up to rounding in floats."""
    kernel = (EXACT | WRONG)[name]
    rule = with_drawn_guesses(BY_ID[name])
    draft, target = toys.TOYS["A"]
    by_rows = make_step(target, 2, partial(rule.guess, draft=draft), rule.verify)
    in_batches = draft_and_verify(draft, target, 2, of_one_round(kernel))
    rounds, batches = (law(lambda rng, step=step: step([0], 3, rng).ids)
                       for step in (by_rows, in_batches))
    assert total_variation(rounds, batches) < 1e-15


# ---- KNOWN

def known_figures(rule_id):
    """Return a rule's distance on each toy and its mean tokens per round: its entry in KNOWN.

    exact.law enumerates it on Fractions. A text is a first round, completed to K + 1 tokens by
    draws from the target, as in the oracle.
    """
    K = 3
    distances, lengths = [], []
    for pair in oracle.TOYS[3]:
        draft, target = (toys.numbered(toys.rows_of_numbers(model), toys.by_later_token)
                         for model in pair)
        step = rule_step(with_drawn_guesses(BY_ID[rule_id]), draft, target, K)
        one_round = toys.law_of_round(step, toys.X, K)
        texts = completed(one_round, toys.X, target, K + 1)
        distance = total_variation(texts, text_law(toys.X, target, K + 1))
        distances.append(round(float(distance), 6))
        lengths.append(float(sum(len(ids) * p for ids, p in one_round.items())))
    return *distances, round(sum(lengths) / len(lengths), 6)


def test_known_has_every_wrong_rule_with_enumerated_figures():
    """If a rule is missing, its entry is printed. The oracle's figures are compared above."""
    names = {f"{rule_id}: {BY_ID[rule_id].name}": rule_id for rule_id in WRONG}
    missing = {name: known_figures(names[name]) for name in names.keys() - oracle.KNOWN.keys()}
    assert missing == {} and [*oracle.KNOWN] == [*names]
    for name in [*names][-2:]:
        assert oracle.KNOWN[name] == known_figures(names[name])


# ---- small faults

@pytest.mark.parametrize("part, with_epsilon", [
    ("p_accept", verifiers.ratio_with_epsilon),
    ("replace", verifiers.from_residual_with_epsilon)])
def test_an_epsilon_of_1_over_100_000_is_seen_in_float32(part, with_epsilon):
    report = check(partial(chain, **{part: partial(with_epsilon, n=10**5)}), dtype="float32")
    assert report.exact is False and 2e-7 < report.distance < 6e-5


def wrong_where(is_wrong):
    """Return the ratio rule, but with one other token in the rows [B] of is_wrong(g, u)."""
    def verify(guesses, p_draft, p_target, uniforms):
        tokens = chain(guesses, p_draft, p_target, uniforms)
        rows = is_wrong(guesses, uniforms)
        tokens[rows] = -1
        tokens[rows, 0] = p_target.shape[2] - 1
        return tokens

    return verify


def test_a_narrow_interval_between_equal_answers_is_seen_on_every_path():
    """The distance is the interval's width, but for what is right there: the token 2 may be."""
    report = check(wrong_where(lambda g, u: abs(u[:, 1] - 0.7) < 0.0001))
    assert report.exact is False and 0.7 * 0.0002 < report.distance < 0.0002 + 1e-9


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("is_greedy", [
    lambda largest: largest == 1, lambda largest: (0.99 < largest) & (largest < 1)],
    ids=["one-hot", "nearly one-hot"])
def test_a_fault_that_depends_on_the_first_row_is_seen_for_any_number_of_guesses(is_greedy, K):
    """A round whose first row has such a largest probability is greedy at all positions."""
    def verify(*arrays):
        greedy = is_greedy(arrays[2][:, 0].max(axis=1))
        return np.where(greedy[:, None], WRONG["greedy-match"](*arrays), chain(*arrays))

    assert check(verify, K).exact is False


# ---- right verifiers whose answers change in intervals of uniforms

def shifted(u, by=0.5):
    return (u + np.asarray(by, u.dtype)) % 1


def on_uniforms(change, rule=chain):
    """Return the rule with its uniforms changed."""
    return lambda *arrays: rule(*arrays[:3], change(arrays[3]))


INTERVALS = {
    "shifted": on_uniforms(shifted),
    "match, shifted": on_uniforms(shifted, EXACT["match"]),
    "block, shifted": on_uniforms(partial(shifted, by=0.7109375), EXACT["traversal"])}
RIGHT = EXACT | INTERVALS
OF_EACH = cycle([((2, 3), "float64"), ((1, 3), "float32"), ((1, 4), "float64")])
WHATEVER = product(RIGHT, [(1, 3), (2, 3), (3, 3), (2, 4), (3, 4)], oracle.DTYPES)


@pytest.mark.parametrize("name, size, dtype", [
    *((name, *case) for name, case in zip(RIGHT, OF_EACH)),
    ("plan-match", (4, 3), "float64"), ("traversal", (3, 4), "float64"),
    *(pytest.param(*case, marks=pytest.mark.weekly) for case in WHATEVER)])
def test_a_right_verifier_is_exact_whatever_it_does_to_its_uniforms(name, size, dtype):
    report = check(RIGHT[name], *size, dtype)
    assert report.exact is True and str(report).startswith("exact: ")
    assert report.distance < (1e-6 if dtype == "float32" else 1e-12)
    assert report.first_wrong_token is None and report.rule is None


def test_a_point_that_contradicts_a_box_cuts_it():
    """Of one uniform of 1,000 the interval from 600 to 602 has a different answer."""
    def answer(case, points):
        return 1 * (abs(points - 601) < 2)

    search = oracle.Search(answer, np.random.default_rng(0), n_samples=1)
    boxes = search.find(search.cubes(1, 1, 999))
    assert len(boxes.case) == 1  # a single point is tried, the last one
    boxes = search.tried(boxes, np.ones(1), 10_000)
    assert sorted(zip(*boxes.low.T, *boxes.high.T, *boxes.tokens.T)) == [
        (0, 599, 0), (600, 602, 1), (603, 999, 0)]


def test_a_fault_in_one_round_of_5000_is_seen():
    """It concerns an interval of one uniform, and one path of guesses."""
    cases = oracle.Cases(3, 3, "float64", np.asarray, False, None, None)
    path = [0, 1, 2]
    share = cases.weight[(cases.guesses == path).all(axis=1)].sum() / cases.n_toys
    width = 1 / 5000 / share
    short = wrong_where(lambda g, u: (g == path).all(axis=1) & (abs(u[:, 0] - 0.5) < width / 2))
    assert check(short).exact is False


def test_a_verifier_may_overwrite_its_arguments():
    def in_place(guesses, p_draft, p_target, uniforms):
        tokens = chain(guesses, p_draft, p_target, uniforms)
        for array in (guesses, p_draft, p_target, uniforms):
            array[:] = -1
        return tokens

    assert check(in_place, K=1).exact is True


def test_a_distance_that_random_points_cannot_confirm_is_not_known(monkeypatch):
    """A distance of 0.0008 needs 28,783 points."""
    short = wrong_where(lambda g, u: abs(u[:, 1] - 0.7) < 0.0004)
    assert check(short, K=1).exact is False
    monkeypatch.setattr(oracle, "MOST_POINTS", 28_000)
    report = check(short, K=1)
    assert report.exact is None and report.is_checked
    assert str(report).startswith("not known: the distance is so small that ")


@pytest.mark.parametrize("bonus, row, tolerance", [
    (lambda u: 1 * ((u >= 0.5101) | (abs(u - 0.31015) < 0.00015)), [0.5, 0.5], 0.01),
    (lambda u: np.where(u < 1 / 3 + 1e-6, 1 * (u >= 1 / 3), 2 * (u >= 0.800001)),
     [0.8, 1e-6, 0.199999], None)], ids=["within a tolerance", "Walker's alias method"])
def test_a_right_rule_with_an_interval_that_no_point_meets_is_not_called_wrong(
        bonus, row, tolerance):
    right = lambda g, q, p, u: np.c_[g, bonus(u[:, 1])]
    rows = [[row] * (len(row) + 1)] * 2
    assert check(right, K=1, rows=rows, tolerance=tolerance).exact is not False


def test_the_rounding_and_the_boxes_of_a_draw_grow_with_the_vocabulary(monkeypatch):
    monkeypatch.setattr(oracle, "SAMPLES", 4)
    draft = np.tile(np.eye(100)[0], (101, 1))
    target = np.random.default_rng(0).dirichlet(np.ones(100), size=101)
    report = check(chain, K=1, dtype="float32", rows=(draft, target))
    assert report.exact is True and 1e-6 < report.distance < 100 / 2**24


@pytest.mark.parametrize("limit, number", [("MOST_TRIES", 0), ("MOST_BOXES", 100), ("PER_CASE", 2)])
def test_a_verifier_that_needs_too_many_boxes_is_sampled(limit, number, monkeypatch):
    """A false alarm has a probability of at most 1e-9."""
    monkeypatch.setattr(oracle, limit, number)
    monkeypatch.setattr(oracle, "ROUNDS", FEW)
    report = check(INTERVALS["shifted"], K=1)
    assert report.exact is None and str(report).startswith("no fault seen: ")


# ---- ways to be called

LAMBDAS = re.findall(r"^ {4}check\((lambda .+)\)$", oracle.__doc__, re.MULTILINE)


def last_uniforms_apart(guesses, p_draft, p_target, uniforms, last_uniforms):
    assert uniforms.shape == guesses.shape
    return chain(guesses, p_draft, p_target, np.c_[uniforms, last_uniforms])


def without_p_draft(guesses, p_target, uniforms):
    q_is_one = EXACT["one-hot"]
    return q_is_one(guesses, np.eye(3)[guesses], p_target, uniforms)


def with_a_bonus_token(guesses, p_draft, p_target, uniforms, bonus):
    assert p_target.shape == p_draft.shape
    bonus_row = np.eye(3)[bonus][:, None]
    return chain(guesses, p_draft, np.concatenate([p_target, bonus_row], axis=1), uniforms)


def in_a_tuple(*arrays):
    tokens = chain(*arrays)
    return np.where(tokens < 0, 7, tokens), (tokens >= 0).sum(axis=1) - 1


def with_zeros(guesses, p_draft, p_target, uniforms):
    assert not p_draft[guesses < 0].any()
    return chain(guesses, p_draft, p_target, uniforms)


def cut(tokens, n_accepted):
    return np.where(np.arange(tokens.shape[1]) <= n_accepted[:, None], tokens, -1)


@pytest.mark.parametrize("verify, line", [*zip(
    [last_uniforms_apart, without_p_draft, with_a_bonus_token, in_a_tuple, with_zeros], LAMBDAS,
    strict=True)])
def test_the_lambdas_of_the_docstring_serve_verifiers_with_other_arguments(verify, line):
    function = eval(line, {"verify": verify, "draw": draw, "cut": cut})
    assert check(function, K=2, padding=verify == with_zeros).exact


def test_padding_allows_rounds_of_any_number_of_guesses():
    assert check(chain, padding=True).exact and check(chain, dtype="float32", padding=True).exact
    for k in (0, 1):
        wrong = wrong_where(lambda g, u, k=k: (g >= 0).sum(axis=1) == k)
        assert check(wrong, K=2).exact and check(wrong, K=2, padding=True).exact is False


def test_rows_that_belong_to_no_guess_are_not_zeros():
    """A bonus token from max(p_target - p_draft, 0) is right only if the draft's row is zeros."""
    def verify(guesses, p_draft, p_target, uniforms):
        tokens = chain(guesses, p_draft, p_target, uniforms)
        has_no_guess = guesses[:, 0] < 0
        weights = np.maximum(p_target - np.pad(p_draft, ((0, 0), (0, 1), (0, 0))), 0)[:, 0]
        last = np.minimum(draw(weights, uniforms[:, -1]), 2)
        tokens[has_no_guess, 0] = last[has_no_guess]
        return tokens

    assert check(verify, padding=True).exact is False and check(verify).exact


def test_arrays_of_another_library_are_converted_both_ways():
    on_device = lambda array: SimpleNamespace(cpu=lambda: array)

    def verify(*arrays):
        return on_device(chain(*(array.cpu() for array in arrays)))

    assert check(verify, asarray=on_device).exact


def with_own_numbers(verify, seed):
    """Return the verifier with uniforms of its own."""
    rng = np.random.default_rng(seed)
    return lambda g, q, p: verify(g, q, p, rng.random((len(g), p.shape[1])))


def test_calls_are_of_bounded_size(monkeypatch):
    sizes = []

    def verify(guesses, *arrays):
        sizes.append(len(guesses))
        return chain(guesses, *arrays)

    monkeypatch.setattr(oracle, "CHUNK", 600)
    assert check(verify).exact
    assert max(sizes) == 600


# ---- what cannot be judged

RNG = np.random.default_rng(0)


EXAMPLE = r" for guesses \[\d, \d, \d\] and uniforms \[[\d., e-]+\]"


@pytest.mark.parametrize("change, sentence", [
    (lambda tokens: tokens[:, :-1], r"\[1024, 4\], got int64 of shape \[1024, 3\]"),
    (lambda tokens: tokens.astype(np.uint8), "need signed integers .*, got uint8"),
    (lambda tokens: (tokens, tokens[:, 0]), r"need one array of tokens, got a tuple"),
    (lambda tokens: np.full_like(tokens, 7),
     r"need 1 to 4 tokens of 0 .. 2 for 3 guesses, then -1, got \[7, 7, 7, 7\]" + EXAMPLE),
    (lambda tokens: np.full_like(tokens, -1), r"got \[-1, -1, -1, -1\]" + EXAMPLE),
    (lambda tokens: tokens[:, ::-1], r"then -1, got \[-1, "),
    (lambda tokens: np.where(tokens < 0, -2, tokens), r"then -1, got \[\d, .*-2\]"),
    (lambda tokens: tokens[::-1], "depend on more than its arguments: on other rows"),
    (lambda tokens: np.c_[RNG.integers(3, size=len(tokens)), np.full_like(tokens[:, 1:], -1)],
     r"on random numbers drawn inside \(then use check_by_sampling, or --sampling\)")])
def test_what_cannot_be_judged_gets_one_sentence(change, sentence):
    """The ratio rule's tokens are changed."""
    report = check(lambda *arrays: change(chain(*arrays)))
    assert report.exact is None and np.isnan(report.distance)
    assert re.search(f"^not checked: .*{sentence}", str(report)) and "\n" not in str(report)
    assert re.search(rf" \({re.escape(oracle.ORIGIN)}\)$", str(report))
    assert not report.is_checked


CALLS = count(1)


@pytest.mark.parametrize("rows_of_batch, place", [
    (lambda B: np.arange(B) % 32 == 31, ""),
    (lambda B: np.arange(B) == B - 1, ""),
    (lambda B: np.arange(B) == 700,
     r"other rows, .* row \d+ of a call with B = \d+ got .* as row 700 of a call with B = 1,024 "),
    (lambda B: np.arange(B) == 5000, ""),
    (lambda B: np.arange(B) >= 60_000, "got other tokens than in an earlier call"),
    (lambda B: np.full(B, B == 1), ""),
    (lambda B: np.full(B, B == 4), r"row 0 of a call with B = 4 got .* row \d+ .* B = 1,024 "),
    (lambda B: np.full(B, B == 256), ""),
    (lambda B: np.full(B, B == 2**16), ""),
    (lambda B: np.full(B, next(CALLS) % 10 == 0), "")])
def test_a_row_that_depends_on_its_batch_or_on_earlier_calls_is_told(rows_of_batch, place):
    verify = wrong_where(lambda g, u: rows_of_batch(len(g)))
    for K in (1, 3):
        assert re.search(f"depend on more than its arguments.*{place}", str(check(verify, K)))


@pytest.mark.parametrize("n_right", [0, 1, 2, 3])
def test_an_answer_that_changes_while_a_threshold_is_sought_is_told(n_right):
    """The answer is that of a threshold for some calls, and then it is 0 everywhere."""
    calls = count(1)

    def answer(case, points):
        return 1 * (points >= 500) * (next(calls) <= 2 + n_right)

    search = oracle.Search(answer, np.random.default_rng(0), n_samples=4)
    with pytest.raises(oracle.Refused, match="more than its arguments"):
        search.find(search.cubes(n_cases=1, n_axes=1, top=999))


def test_more_tokens_than_the_guesses_of_a_row_allow_are_refused():
    four = lambda g, q, p, u: np.zeros((len(g), 4), dtype=int)
    assert check(four).distance > 0
    assert re.search(r"guesses, then -1, got \[0, 0, 0, 0\] for", str(check(four, padding=True)))


def in_float32(guesses, *arrays):
    p_draft, p_target, uniforms = (array.astype(np.float32) for array in arrays)
    below_1 = 1 - np.float32(2**-24)  # a uniform near 1 is rounded to 1
    return chain(guesses, p_draft, p_target, np.minimum(uniforms, below_1))


def test_a_right_verifier_in_float32_is_told_to_say_so():
    advice = 'for a verifier in float32 say dtype="float32", or --dtype float32'
    report = check(in_float32, K=1)
    assert report.exact is None and 1e-12 < report.distance < 1e-6 and advice in str(report)
    assert check(in_float32, K=1, dtype="float32").exact
    assert advice not in str(check(WRONG["target-draw"], K=1))
    rounded_up = lambda g, q, p, u: chain(g, q, p, u.astype(np.float32))
    assert 'needs dtype="float32", or --dtype float32)' in str(check(rounded_up, K=1))


def test_a_tolerance_accepts_a_kernel_that_rounds_and_no_more():
    """In bfloat16, as in tests/faults.py, on whole toys and in a sample."""
    rounded = lambda g, q, p, u: chain(g, bfloat16(q), bfloat16(p), u)
    assert check(rounded).exact is False
    report = check(rounded, tolerance=0.01)
    assert report.exact is True and str(report).startswith("exact to within 0.01: total variation")
    assert check(rounded, tolerance=report.distance * 0.9).exact is False
    wrong = with_own_numbers(WRONG["target-draw"], seed=2)
    distance = max(KNOWN["target-draw"][:-1])
    assert check_by_sampling(wrong, FEW, tolerance=distance).exact is None
    assert check_by_sampling(wrong, FEW, tolerance=distance / 4).exact is False


def test_a_token_after_an_impossible_token_of_tolerated_mass_is_shown_with_the_targets_row():
    def verify(g, q, p, u):
        is_impossible = u[:, 0] < 0.008
        return np.c_[1 * is_impossible, np.where(is_impossible, -1, u[:, 1] >= 0.503 / 0.992)]

    rows = [[[1, 0]] * 3, [[1, 0], [0.5, 0.5], [0.5, 0.5]]]
    report = check(verify, K=1, rows=rows, tolerance=0.01)
    assert report.first_wrong_token[:2] == (1, [1]) and "p_target  [0.5, 0.5]" in str(report)


@pytest.mark.parametrize("arguments, sentence", [
    ({"tolerance": 0}, "need 0 < tolerance < 1, got 0"),
    ({"tolerance": np.nan}, "need 0 < tolerance < 1, got nan"),
    ({"K": 0}, "need a whole number K >= 1, got 0"),
    ({"K": 3.0}, "need a whole number K >= 1, got 3.0"),
    ({"V": 5}, r"need V in \[3, 4\] \(or, in Python, your own rows=\), got 5"),
    ({"V": "3"}, "need a whole number V >= 2, got '3'"),
    ({"K": 7}, r"need V \*\* K <= 1,000, because every path of guesses is tried, got 3 \*\* 7"),
    ({"K": 10**9}, r"got 3 \*\* 1000000000"),
    ({"dtype": "float16"}, r"need dtype of \['float32', 'float64'\], got 'float16'"),
    ({"asarray": 3}, "need a function asarray, got 3"),
    ({"rows": 3}, r"need rows=\(draft, target\), \[V \+ 1, V\] each, of numbers"),
    ({"rows": np.ones((2, 3, 3))}, r"each, got an array of shape \[2, 3, 3\]"),
    ({"rows": np.ones((2, 2, 1)), "K": 70}, r"for V >= 2 tokens, .* \[2, 2, 1\]"),
    ({"rows": np.ones((2, 3, 2))}, "need rows= of probabilities that sum to 1"),
    ({"rows": np.full((2, 3, 2), [2, -1])}, "need rows= of probabilities that sum to 1")])
def test_other_arguments_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(chain, **arguments)


# ---- by sampling

FEW = 200_000  # rounds, a tenth of the default


def test_alarms_are_as_rare_as_stated_and_not_impossible():
    """200 runs that may fail with 1/2 each: more than 150 with a probability below 1e-10."""
    verify = with_own_numbers(chain, seed=1)
    rows = [[[0.5, 0.5]] * 3] * 2  # of two tokens, so that few events share the probability
    alarms = sum(
        check_by_sampling(verify, 200, 1, rows=rows, false_alarm=0.5, seed=seed).exact is False
        for seed in range(200))
    assert 0 < alarms <= 150


def test_sampling_sees_a_wrong_rule():
    """It is missed with a probability below 1e-9: a first token comes .23 too rarely."""
    report = check_by_sampling(with_own_numbers(WRONG["target-draw"], seed=2), FEW)
    assert report.exact is False and report.rule is None and "uniforms" not in str(report)
    # 1 instead of 0: the token 2 comes as often as it should
    def two_is_right(*arrays):
        tokens = chain(*arrays)
        return np.where(tokens == 0, 1, tokens)

    assert check_by_sampling(with_own_numbers(two_is_right, seed=2), FEW).exact is False


@pytest.mark.parametrize("share, deed", [(0.002, "often"), (0, "rarely")])
def test_a_sample_names_a_token_at_fault_and_not_the_noise_of_other_tokens(share, deed):
    """The other tokens' frequencies have a standard deviation of .0016, and are right."""
    right = [0.49975, 0.49975, 0.0005]
    rows = [[[1, 0, 0]] * 4, [right] * 4]
    comes = np.array([(1 - share) / 2, (1 - share) / 2, share])
    rng = np.random.default_rng(0)
    verify = lambda g, q, p: np.c_[rng.choice(3, len(g), p=comes), np.full(len(g), -1)]
    report = check_by_sampling(verify, 100_000, K=1, rows=rows)
    assert report.first_wrong_token == (0, [], 2) and f"2 occurs too {deed}" in str(report)


def test_a_sample_says_which_faults_it_would_have_shown():
    """The smallest fault is missed with a probability of at most 1e-9."""
    def report(by):
        rng = np.random.default_rng(0)

        def verify(guesses, p_draft, p_target):
            token = rng.random((len(guesses), 1)) < 0.5 + by
            return np.pad(1 * token, ((0, 0), (0, 1)), constant_values=-1)

        return check_by_sampling(verify, 20_000, K=1, rows=[[[0.5, 0.5]] * 3] * 2)

    right = str(report(by=0))
    smallest = re.search(r"tokens by ([\d.]+) or more .* at most 1e-09\)$", right, re.MULTILINE)
    assert right.startswith("no fault seen: ") and "noise included" in right
    assert report(by=float(smallest[1])).exact is False
    assert report(by=float(smallest[1]) / 4).exact is None


@pytest.mark.parametrize("change", [  # of uniforms into uniforms, without boxes
    lambda u: (u + np.pad(u[:, :-1], ((0, 0), (1, 0)))) % 1,  # each and the one before it
    lambda u: u * 2**24 % 1], ids=["sheared", "by the low bits"])
def test_a_verifier_without_thresholds_is_sampled_and_not_called_exact(change, monkeypatch):
    """A false alarm has a probability of at most 1e-9."""
    monkeypatch.setattr(oracle, "ROUNDS", FEW)
    report = check(on_uniforms(change), K=1)
    assert report.exact is None and "200,000 sampled rounds" in str(report)
    assert str(report).startswith("no fault seen: total variation 0.0")


def test_sampling_refuses_what_cannot_be_judged():
    report = check_by_sampling(lambda g, q, p: g, n=100)
    assert report.exact is None and str(report).startswith("not checked: need signed integers")
    for n in (0, 1, 10.5):
        with pytest.raises(ValueError, match=f"need a whole number n >= 16, got {n}"):
            check_by_sampling(lambda g, q, p: g, n)


# ---- the file alone

NEXT_ROW = """
import numpy as np
def verify(guesses, p_draft, p_target, uniforms):
    token = (uniforms[:, :1] >= p_target[:, 1].cumsum(axis=-1)).sum(axis=-1)
    return np.where(np.arange(p_target.shape[1]) == 0, token[:, None], -1)
"""


def test_a_copy_of_the_file_works_without_the_project(tmp_path):
    shutil.copy(oracle.__file__, tmp_path / "oracle.py")
    written(tmp_path, NEXT_ROW)
    command = [sys.executable, "-I", "oracle.py", "--K", "2", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(rf"NOT exact: .*\n\({re.escape(oracle.ORIGIN)}\)\n", done.stdout, re.DOTALL)


def test_a_copy_says_where_it_is_from():
    project = tomllib.loads(file_text("pyproject.toml"))["project"]
    assert oracle.ORIGIN == f"exact/oracle.py of {project['name']} {project['version']}"
    assert f"# {oracle.ORIGIN}\n" in Path(oracle.__file__).read_text("utf-8")


@pytest.mark.parametrize("text, sentence", [
    ("x = 1", "need a function verify in mine.py"),
    ("# Title\n* a list", "need a Python file: invalid syntax (mine.py, line 2)"),
    ("from pathlib import Path\nPath('other.py').write_text('\\nx = (')\nimport other",
     "need a Python file: '(' was never closed (other.py, line 2)"),
    ("verify = max", "operands could not be broadcast"),
    ("\nimport nosuch", "mine.py, line 2: ModuleNotFoundError: No module named 'nosuch'"),
    ("raise SystemExit", "mine.py, line 1: SystemExit:"),
    ("def verify(guesses, p_draft, p_target, rng): pass",
     "this verify takes an rng; check it with: python -m exact.judge mine.py"),
    ("def verify(guesses, p_target, uniforms): pass", "need verify(guesses, p_draft, p_target, "
     "uniforms), got verify(guesses, p_target, uniforms); if it draws its own numbers, say "
     "--sampling (in Python: check_by_sampling)"),
    ("def verify(guesses): pass", "p_target, uniforms), got verify(guesses)\n"),
    ("def verify(g, q, p, u):\n    return p[:, 9]", "mine.py, line 2: IndexError: index 9 is out "),
    ("def verify(g, q, p, u):\n    raise ValueError('no\\nway')",
     "mine.py, line 2: ValueError: no way"),
    ("from exact.rules.batched import batch_chain as verify\nasarray = 1",
     "need a function asarray, got 1"),
])
def test_a_wrong_file_gets_one_sentence(text, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text)
    error = refusal(oracle.main, "mine.py")
    assert error.startswith(f"{oracle.PROGRAM}: ") and sentence in error


@pytest.mark.parametrize("last, uniforms, flags", [
    ("uniforms, rng=None", "uniforms", "--K 1"),
    ("rng=np.random.default_rng(0)", "rng.random(p.shape[:2])", "--sampling --n 20000")])
def test_a_verifier_may_have_an_rng_that_it_does_not_need(last, uniforms, flags, tmp_path):
    imports = "import numpy as np\nfrom exact.rules.batched import batch_chain\n"
    rule = f"def verify(g, q, p, {last}): return batch_chain(g, q, p, {uniforms})"
    got, out, error = outcome(oracle.main, written(tmp_path, imports + rule), *flags.split())
    assert (got, error) == (0, "") and "total variation" in out


def test_ctrl_c_ends_in_one_line(tmp_path):
    path = written(tmp_path, "def verify(g, q, p, u):\n    raise KeyboardInterrupt")
    assert outcome(oracle.main, path) == (130, "", f"{oracle.PROGRAM}: interrupted\n")


def test_a_reader_that_stops_is_no_traceback(tmp_path):
    written(tmp_path, "from exact.rules.batched import WRONG\nverify = WRONG['next-rows']")
    command = f"set -o pipefail; {sys.executable} -m exact.oracle mine.py --K 1 | true"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (1, "")


# ---- docs/oracle.md

def test_the_verifier_for_pytorch_is_exact_and_its_fault_is_named_as_shown(tmp_path):
    pytest.importorskip("torch")
    page = file_text("docs/oracle.md")
    example = code(page, "python", "import torch\n")
    fault = code(page, "text", "NOT exact")
    assert re.findall(r"import .*|from .*", example) == ["import torch"]  # nothing of the project
    right, wrong = "(p_target - p_draft).clamp(min=0)[each, n]", "p_target[each, n]"
    assert right in example and f"`weights = {wrong}.cumsum(-1)`" in page
    path = written(tmp_path, example)
    assert outcome(oracle.main, path)[0] == 0
    assert outcome(oracle.main, path, "--dtype", "float32")[0] == 0
    assert outcome(oracle.main, path, "--padding")[0] == 0
    written(tmp_path, example.replace(right, wrong))
    assert outcome(oracle.main, path) == (1, fault, "")
