"""The oracle against single-line faults of a right verifier: it sees each that is wrong."""

from itertools import cycle

import numpy as np
import pytest

from exact import oracle
from exact.oracle import check
from tests.faults import FAULTS, RIGHT, mutants, verifier

MUTANTS = {name.split(" -> ")[1]: verify for name, verify in mutants().items()}

# the same distribution as the right verifier's
RIGHT_ANYWAY = {
    "accepted = (tests < ratio) & (p > 0)",  # a ratio of 0 rejects
    "accepted = tests * q < p",  # both sides multiplied by q
    "accepted = tests <= ratio",  # <= for <: one point
    # zeros of a shape that is equal
    "drafts = np.concatenate([p_draft, np.zeros_like(p_draft[:, :1])], axis=1)",
    # zeros of a shape that is equal
    "drafts = np.concatenate([p_draft, np.zeros_like(p_target[:, -1:])], axis=1)",
    "ratio = np.minimum(p / q, 1)",  # no uniform is above 1
    "ratio = np.where(p >= q, 1, p / q)",  # no uniform is above 1
    "tests = 1 - uniforms[:, :K]",  # 1 - u is uniform too, but for one point
    "tests = uniforms[:, :K][:, ::-1]",  # independent uniforms, in a different order
    # the first larger bound is the number of the others
    "token = (bounds > u[:, None]).argmax(axis=-1)",
    "token = (u[:, None] > bounds).sum(axis=-1)",  # > for >=: one point
    "tokens = np.concatenate([guesses, guesses[:, -1:]], axis=1)",  # a column that is overwritten
    # a residual does not contain the guess
    "tokens[each, n] = np.where((token == tokens_at(guesses, n)) & (n < K), 0, token)",
    "tokens[np.arange(K + 1) >= n[:, None]] = -1",  # token n is written in the next line
    "weights = np.fmax(target_row - draft_row, 0)",  # the same maximum, but for NaN
}
# wrong, but not with one guess, where there is one row, one test and one uniform for tests
RIGHT_WITH_ONE_GUESS = {
    "accepted = (tests < ratio) & ((guesses == guesses[:, :1]) | (tests > 0.001))",
    "draft_row = drafts[:, 0] * (n < K)[:, None]",
    "draft_row = drafts[:, K - 1] * (n < K)[:, None]",
    "draft_row = drafts[each, n] * (n == 0)[:, None]",
    "n = (accepted.cumprod(axis=1).sum(axis=1) // K) * K",
    "n = accepted.cumprod(axis=1).max(axis=1)",
    "n = accepted.cumprod(axis=1).prod(axis=1)",
    "n = accepted.cumsum(axis=1).sum(axis=1)",
    "n = accepted.sum(axis=1)",
    "n = np.logical_or.accumulate(accepted[:, ::-1], axis=1).sum(axis=1)",
    "n = np.where(accepted.all(axis=1), K, 0)",
    "p = at(rows, guesses[:, :1].repeat(K, axis=1))",
    "p = at(rows, np.roll(guesses, -1, axis=1))",
    "p = at(rows, np.roll(guesses, 1, axis=1))",
    "q = at(np.roll(p_draft, -1, axis=1), guesses)",
    "q = at(np.roll(p_draft, 1, axis=1), guesses)",
    "q = at(p_draft, np.roll(guesses, 1, axis=1))",
    "q = at(p_draft[:, -1:].repeat(K, axis=1), guesses)",
    "q = at(p_draft[:, :1].repeat(K, axis=1), guesses)",
    "ratio = (p / q).cumprod(axis=1)",
    "ratio = np.minimum.accumulate(p / q, axis=1)",
    "ratio = p / q.max(axis=1, keepdims=True)",
    "rows = np.roll(p_target[:, :K], 1, axis=1)",
    "rows = p_target[:, :1]",
    "rows = p_target[:, [0] * K]",
    "rows = p_target[:, [K - 1] * K]",
    "rows = p_target[:, np.maximum(np.arange(K) - 1, 0)]",
    "rows = p_target[:, np.minimum(np.arange(K) + 1, K - 1)]",
    "tests = uniforms[:, :1]",
    "tests = uniforms[:, :1].repeat(K, axis=1)",
    "tests = uniforms[:, :K].cumprod(axis=1)",
    "tests = uniforms[:, [*range(K - 1), 0]]",
    "tests = uniforms[:, [0, *range(K - 1)]]",
    "tokens = np.concatenate([guesses[:, :1], guesses], axis=1)",
    "tokens = np.concatenate([np.roll(guesses, 1, axis=1), guesses[:, :1]], axis=1)",
    "tokens[:, 1:] = -1",
    "u = uniforms[:, 1]",
}


def is_called_exact(line, K, V, dtype="float64"):
    """Return whether the oracle calls the mutant with this line exact."""
    try:
        return check(MUTANTS[line], K, V, dtype).exact is True
    except Exception:  # a fault may raise anything: it does not go unseen
        return False


def called_exact(lines, *options):
    """Return which of these mutants the oracle calls exact."""
    return {line for line in lines if is_called_exact(line, *options)}


def right_mutants(K):
    return {*RIGHT_ANYWAY, *(RIGHT_WITH_ONE_GUESS if K == 1 else ())}


def test_there_are_many_mutants_and_each_changes_one_line():
    assert len(MUTANTS) == len(mutants()) > 240 and not MUTANTS.keys() & {*RIGHT}
    assert FAULTS.keys() <= {*RIGHT}
    assert right_mutants(K=1) <= MUTANTS.keys()


@pytest.mark.parametrize("K, dtype", [(1, "float32"), (2, "float64"), (3, "float32")])
def test_the_right_verifier_is_exact(K, dtype):
    assert all(check(verifier(RIGHT), K, V, dtype=dtype).exact for V in oracle.TOYS)


CLASSES = {  # wrong mutants of each kind that the oracle's toys were chosen for
    "a guess that the target cannot write": [
        "ratio = np.where(p == 0, 1, p / q)", "ratio = (p / q).clip(0.01)",
        "ratio = np.exp(np.nan_to_num(np.log(p) - np.log(q), neginf=0))"],
    "the choice among several tokens of the residual": [
        "weights = best_of(np.maximum(target_row - draft_row, 0))",
        "weights = np.maximum(target_row - draft_row, 0) ** 2",
        "weights = target_row * (target_row > draft_row)", "u = uniforms[each, n]",
        "u = np.where(n == 0, uniforms[:, 0], uniforms[:, K])"],
    "truncation": [
        "rows = top_p(p_target[:, :K], 0.99)", "target_row = top_p(p_target[each, n], 0.99)",
        "q = at(top_p(p_draft, 0.95), guesses)"],
    "half precision": [
        "rows = (p_target[:, :K]).astype(np.float16)", "rows = bfloat16(p_target[:, :K])",
        "draft_row = (drafts[each, n]).astype(np.float16)", "q = in_8_bits(at(p_draft, guesses))"],
    "a batch of one row": [
        "n = accepted.cumprod(axis=1).sum(axis=1) * (B > 1)",
        "n = accepted.cumprod(axis=1).squeeze().sum(axis=-1)"],
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_kind_of_fault_is_seen(kind):
    assert called_exact(CLASSES[kind], 2, 3) == set()


SURPLUS = "weights = np.maximum(target_row - draft_row, 0)"
AT_EXTREMES = {  # faults that begin at an extreme value, or change late digits: the right line
    "rows = p_target[:, :K].round(3)": "rows = p_target[:, :K]",
    "rows = p_target[:, :K].round(5)": "rows = p_target[:, :K]",
    "accepted = (tests < ratio) | (p > 0.99)": "accepted = tests < ratio",
    "accepted = (tests < ratio) | (q < 0.001)": "accepted = tests < ratio",
    "accepted = (tests < ratio) | (ratio > 0.99)": "accepted = tests < ratio",
    "accepted = (tests < ratio) & (ratio > 0.001)": "accepted = tests < ratio",
    f"{SURPLUS}; few = weights.sum(axis=1) < 0.001; weights[few] = target_row[few]": SURPLUS,
    f"{SURPLUS}; few = weights < 0.01 * weights.max(axis=1, keepdims=True); "
    "weights[few & (n < K)[:, None]] = 0": SURPLUS,
}


def with_fault(fault):
    """Return the right verifier with one of AT_EXTREMES instead of its line."""
    right_line = AT_EXTREMES[fault]
    return verifier([fault if line == right_line else line for line in RIGHT])


@pytest.mark.parametrize("fault, case", [*zip(AT_EXTREMES, cycle([
    (1, 3, "float64"), (1, 4, "float32"), (3, 3, "float32")]))])
def test_a_fault_that_begins_at_an_extreme_value_is_seen_but_not_on_the_first_toy(
        fault, case, monkeypatch):
    verify = with_fault(fault)
    report = check(verify, *case)
    assert report.exact is False and report.rule is None
    monkeypatch.setattr(oracle, "TOYS", {3: oracle.TOYS[3][:1]})
    assert check(verify, K=1).exact


@pytest.mark.parametrize("V, dtype", [(4, "float64"), (3, "float32")])
def test_half_precision_is_seen_in_every_type_and_vocabulary(V, dtype):
    assert called_exact(CLASSES["half precision"], 1, V, dtype) == set()


def test_with_one_guess_a_part_of_the_mutants_is_judged_rightly():
    """Every fifth; `python -m pytest -m weekly tests/test_faults.py` judges all."""
    some = [*MUTANTS][::5]
    assert called_exact(some, 1, 3) == right_mutants(K=1) & {*some}


@pytest.mark.weekly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("V", oracle.TOYS)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_every_mutant_is_judged_rightly(K, V, dtype):
    assert called_exact(MUTANTS, K, V, dtype) == right_mutants(K)


@pytest.mark.parametrize("K, every", [
    (1, 8), *(pytest.param(K, 1, marks=pytest.mark.weekly) for K in (1, 2))])
def test_right_mutants_are_exact_on_random_toys_too(K, every):
    rows = np.random.default_rng(K).dirichlet([1, 1, 1], size=(2, 4))  # draft and target
    for line in sorted(right_mutants(K))[::every]:
        assert check(MUTANTS[line], K, rows=rows).exact, line
