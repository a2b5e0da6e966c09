"""The closed forms against their definitions, and against numbers in papers and articles."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toys import rows_of_four
from theory.hardware import GPT2_SIZES, n_params, pass_bytes, pass_latency
from theory.speedup import (
    acceptance_by_position,
    acceptance_rate,
    alpha_of_report,
    best_K,
    expected_tokens,
    main,
    needed_alpha,
    walltime_improvement,
)

lookaheads = st.integers(0, 12)
alphas = st.integers(0, 100).map(lambda n: Fraction(n, 100))  # exact arithmetic, ends included
ratios = st.integers(0, 150).map(lambda n: Fraction(n, 100))
pass_costs = st.lists(st.integers(50, 900).map(lambda n: Fraction(n, 100)),
                      min_size=1, max_size=13)


def improvement(alpha, K, c, cost=1):
    """Return Leviathan et al. (2023) Theorem 3.8 as printed, at alpha = 1 its limit."""
    tokens = Fraction(K + 1) if alpha == 1 else (1 - alpha ** (K + 1)) / (1 - alpha)
    return tokens / (K * c + cost)


def test_the_acceptance_rate_is_one_per_row_and_never_exceeds_one_by_rounding():
    row = [0.5, 0.5 + 1e-7]  # float32 rows can sum to more than 1
    assert acceptance_rate([row, [0.25, 0.75]], [row, [0.5, 0.5]]).tolist() == [1.0, 0.75]


@given(rows_of_four, rows_of_four)
def test_the_acceptance_rate_is_1_minus_TV_and_1_minus_D_LK(p_draft, p_target):
    alpha = acceptance_rate(p_target, p_draft)
    mean = (p_target + p_draft) / 2
    assert alpha == pytest.approx(1 - abs(p_target - p_draft).sum() / 2, abs=1e-12)  # TV
    assert alpha == pytest.approx(1 - abs(p_target - mean).sum(), abs=1e-12)  # D_LK


@given(alphas, lookaheads, ratios)
def test_walltime_improvement_is_theorem_3_8_at_every_alpha(alpha, K, c):
    assert walltime_improvement(alpha, K, c) == improvement(alpha, K, c)


@given(alphas, ratios)
def test_some_K_improves_if_and_only_if_alpha_exceeds_c(alpha, c):
    best = max(walltime_improvement(alpha, K, c) for K in range(1, 13))
    assert (best > 1) == (alpha > c)
    if alpha > c:
        assert best >= walltime_improvement(alpha, 1, c) == (1 + alpha) / (1 + c)


@given(alphas, ratios, st.none() | pass_costs)
@settings(max_examples=40)
def test_best_K_is_the_brute_force_argmax(alpha, c, pass_cost):
    gains = [improvement(alpha, K, c, cost) for K, cost in enumerate(pass_cost or [1] * 101)]
    assert best_K(alpha, c, pass_cost) == gains.index(max(gains))


# ---- printed numbers: Leviathan et al. (2023)

@pytest.mark.parametrize("alpha, K, operations, speed", [
    (0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44), (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)])
def test_table_1_of_leviathan_is_reproduced(alpha, K, operations, speed):
    assert round((K + 1) / expected_tokens(alpha, K), 2) == operations  # Theorem 3.11, c^ = 0
    assert round(walltime_improvement(alpha, K, c=0), 2) == speed


@pytest.mark.parametrize("K, alpha, c, printed, here", [
    (5, 0.68, 0.04, 2.4, 2.3), (3, 0.71, 0.11, 2.0, 1.9), (3, 0.56, 0.11, 1.6, 1.5)])
def test_three_rows_of_table_4_of_leviathan_agree_within_the_rounding_of_alpha_and_c(
        K, alpha, c, printed, here):
    assert round(walltime_improvement(alpha, K, c), 1) == here < printed
    assert walltime_improvement(alpha - 0.005, K, c + 0.005) < printed + 0.05
    assert walltime_improvement(alpha + 0.005, K, c - 0.005) > printed - 0.05


@pytest.mark.parametrize("alpha, printed, here", [
    (0.62, 2.5, 2.33), (0.71, 3.1, 2.94), (0.76, 3.6, 3.45), (0.84, 5.0, 4.79)])
def test_lenience_of_leviathan_appendix_a_5_is_a_misprint_at_temperature_1(
        alpha, printed, here):
    best = walltime_improvement(alpha, best_K(alpha, 0.015), 0.015)
    assert round(best, 2) == here < printed - 0.05  # no K reaches the printed factor


# ---- printed numbers: articles

def test_crossover_at_161_needs_no_second_factor_two():
    memory, compute = pass_latency(1, 2 * 2, bandwidth=1935e9, flop_rate=312e12)
    assert int(memory / compute) == 322  # the formula as printed, float16


# ---- a whole pass

def test_the_sizes_are_named_after_their_numbers_of_parameters():
    for size, hparams in GPT2_SIZES.items():
        assert f"{n_params(hparams) / 1e6:.0f}M" == size


def test_pass_bytes_are_the_parameters_and_the_cache():
    hparams = GPT2_SIZES["124M"]
    per_token = 4 * 2 * 12 * 768  # float32; a key and a value of every layer
    unread = 1023 * 768  # a pass of one token reads one row of wpe
    assert pass_bytes(hparams, 1024, 0) == 4 * n_params(hparams) + 1024 * per_token
    assert pass_bytes(hparams, 1, 7) == 4 * (n_params(hparams) - unread) + 8 * per_token
    assert pass_bytes(hparams, 1, 7, n_bytes=2) == pass_bytes(hparams, 1, 7) / 2


# ---- front doors

EVEN = [0.5, 0.5]


@pytest.mark.parametrize("formula, arguments, message", [
    (acceptance_rate, (EVEN, [0.5, 0.25, 0.25]), r"same tokens, got shapes \(2,\) and \(3,\)"),
    (acceptance_rate, (EVEN, [0.5, 0.6]), "sum 1, got smallest 0.5 and sum 1.1"),
    (acceptance_rate, ([-0.5, 1.5], EVEN), "probabilities >= 0"),
    (acceptance_rate, (EVEN, [0.5, 0.49999]), "sum 1, got"),
    (expected_tokens, (1.1, 4), "need 0 <= alpha <= 1, got 1.1"),
    (expected_tokens, (0.5, -1), "need K a whole number >= 0, got -1"),
    (walltime_improvement, (0.5, 1, 0.1, 0), "need 0 < pass_cost < inf, got 0"),
])
def test_arguments_out_of_range_are_refused_with_what_must_hold(formula, arguments, message):
    with pytest.raises(ValueError, match=message):
        formula(*arguments)


def test_the_calculator_by_hand(capsys):
    """(0.5 + 0.25) / 2 = 0.375, so alpha is 0.5; with c = 0.25 one guess gains 1.5 / 1.25."""
    assert main("--accepted_per_drafted 0.375 --K 2 --c 0.25 --m 1 1.25".split()) == 0
    out = capsys.readouterr().out
    assert out.startswith("alpha = 0.50. The best K of 0 .. 2 is 1: 1.20 times the speed of plain ")
    assert "alpha must exceed 0.25.\n" in out and out.endswith("| 2 | 1.25 | 1.75 | 1.00 |\n")
    assert main("--alpha 0.123456789 --c 1".split()) == 0  # a draft as slow as its target
    out = capsys.readouterr().out
    assert out.startswith("alpha = 0.123456789. The best K of 0 .. 8 is 0: 1.00 times")
    assert "no alpha is enough" in out
    assert out.count("\n|") == 11  # two of the heads, K = 0 .. 8
    assert main("--alpha 0.5 --K 2 --c 0".split()) == 2


def test_an_engine_may_accept_nothing():
    assert acceptance_by_position([0.5, 0.0, 0.0]) == [0.5, 0.0, 0.0]
    assert alpha_of_report(0.0, 4) == 0.0 == needed_alpha(0.0, [1, 0.5])


def test_rates_per_position_are_products_of_the_acceptances(capsys):
    """0.5 and 0.5 * 0.5 are accepted / drafted at each position, so alpha is 0.5 as above."""
    assert main("--accepted_by_position 0.5 0.25 --c 0.25 --m 1 1.25 1.5".split()) == 0
    first, _, rest = capsys.readouterr().out.split("\n", 2)
    assert first == "Acceptance by position, if the guesses before it were accepted: 0.500 0.500"
    assert main("--accepted_per_drafted 0.375 --K 2 --c 0.25 --m 1 1.25 1.5".split()) == 0
    assert "alpha = 0.50. " + rest == capsys.readouterr().out


def test_the_best_K_of_rates_per_position_has_their_tokens(capsys):
    """By hand: 1.9 / 1.1 = 1.73, 2.4 / 1.2 = 2.00, 2.5 / 1.3 = 1.92 and 2.52 / 1.4 = 1.80."""
    assert main("--accepted_by_position .9 .5 .1 --c 0.1 --m 1 1 1 1".split()) == 0
    out = capsys.readouterr().out
    assert " is 2: 2.00 times" in out
    assert [line.split(" | ")[2:] for line in out.splitlines()[-4:]] == [
        ["1.90", "1.73 |"], ["2.40", "2.00 |"], ["2.50", "1.92 |"], ["2.52", "1.80 |"]]
