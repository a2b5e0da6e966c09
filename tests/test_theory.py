"""The closed forms against their definitions, and against what papers and articles print."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exact.law import expectation
from speculative import draft_and_verify
from theory.__main__ import main
from theory.hardware import (
    GPT2_SIZES,
    cache_bytes,
    crossover_batch,
    intensity_table,
    linear_cost,
    n_params,
    pass_bytes,
    pass_flops,
    pass_latency,
)
from theory.speedup import (
    acceptance_rate,
    best_K,
    chen_speedup,
    expected_tokens,
    operations_factor,
    walltime_improvement,
)
from utils import load_encoder_hparams_and_params

MODELS_DIR = Path(__file__).parent.parent / "models"
EXACT = 1e-12

lookaheads = st.integers(0, 12)
shares = st.integers(0, 100).map(lambda n: Fraction(n, 100))  # exact arithmetic, ends included
ratios = st.integers(0, 150).map(lambda n: Fraction(n, 100))
pass_costs = st.lists(st.integers(50, 900).map(lambda n: Fraction(n, 100)), min_size=1, max_size=13)


@st.composite
def law_pairs(draw):
    """Two laws over the same few tokens, zeros included."""
    n_vocab = draw(st.integers(1, 6))
    weights = st.lists(st.integers(0, 9), min_size=n_vocab, max_size=n_vocab).filter(any)
    return [np.array(w) / sum(w) for w in (draw(weights), draw(weights))]


def improvement(alpha, K, c, cost=1):
    """Leviathan et al. (2023) Theorem 3.8 as printed, its limit at alpha = 1."""
    tokens = Fraction(K + 1) if alpha == 1 else (1 - alpha ** (K + 1)) / (1 - alpha)
    return tokens / (K * c + cost)


# ---- acceptance

@given(law_pairs())
def test_the_acceptance_rate_has_the_three_forms_of_the_papers(laws):
    """The mean of min(1, p / q) under the draft, 1 - total variation, and 1 - D_LK."""
    p_target, p_draft = laws
    drawn = p_draft > 0
    mean = np.minimum(1, p_target[drawn] / p_draft[drawn]) @ p_draft[drawn]
    events = product([False, True], repeat=len(p_target))
    variation = max(p_target[list(event)].sum() - p_draft[list(event)].sum() for event in events)
    d_lk = abs(p_draft - (p_target + p_draft) / 2).sum()
    rate = acceptance_rate(np.array([p_target] * 2), np.array([p_draft] * 2))
    assert rate == pytest.approx([mean] * 2, abs=EXACT)
    assert [1 - variation, 1 - d_lk] == pytest.approx([mean] * 2, abs=EXACT)


def test_acceptance_rate_never_exceeds_one_by_rounding():
    law = [0.5, 0.5 + 1e-7]  # as a float32 row might be
    assert acceptance_rate(law, law) == 1.0


# ---- ids a round

@given(shares, lookaheads)
def test_expected_tokens_is_the_mean_of_the_capped_geometric_law(alpha, K):
    law = {t + 1: alpha**t * (1 - alpha) for t in range(K)} | {K + 1: alpha**K}
    assert sum(law.values()) == 1
    assert expected_tokens(alpha, K) == sum(n * chance for n, chance in law.items())


@pytest.mark.parametrize("K", [0, 1, 2, 3])
def test_expected_tokens_is_what_the_loop_yields_when_rows_do_not_depend_on_the_past(K):
    p_target, p_draft = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.625, 0.125])
    draft, target = (lambda x, n, row=row: np.array([row] * n) for row in (p_draft, p_target))
    mean = expectation(lambda rng: draft_and_verify(draft, target, K)([0], 9, rng),
                       lambda round: len(round.ids))
    assert mean == pytest.approx(expected_tokens(acceptance_rate(p_target, p_draft), K), abs=EXACT)


@given(shares, shares, lookaheads)
def test_expected_tokens_grows_with_alpha_and_K_from_1_to_K_plus_1(a, b, K):
    low, high = sorted((a, b))
    assert 1 <= expected_tokens(low, K) <= expected_tokens(high, K) <= K + 1
    assert expected_tokens(low, K) <= expected_tokens(low, K + 1)


# ---- speed

@given(shares, lookaheads, ratios)
def test_walltime_improvement_is_theorem_3_8_at_every_alpha(alpha, K, c):
    assert walltime_improvement(alpha, K, c) == improvement(alpha, K, c)


@given(shares, ratios)
def test_some_K_improves_if_and_only_if_alpha_exceeds_c(alpha, c):
    best = max(walltime_improvement(alpha, K, c) for K in range(1, 13))
    assert (best > 1) == (alpha > c)
    if alpha > c:
        assert best >= walltime_improvement(alpha, 1, c) == (1 + alpha) / (1 + c)


@given(shares, lookaheads, ratios)
def test_operations_factor_is_theorem_3_11_and_at_least_one(alpha, K, c_hat):
    operations = operations_factor(alpha, K, c_hat)
    assert operations * improvement(alpha, K, 0) == K * c_hat + K + 1
    assert operations >= 1


@given(shares, lookaheads, st.integers(1, 50), st.integers(1, 50))
def test_chen_speedup_is_the_improvement_with_ids_a_round_as_r(alpha, K, t_draft, t_target):
    r = expected_tokens(alpha, K) / Fraction(K + 1)
    c = Fraction(t_draft, t_target)
    assert chen_speedup(r, K, t_draft, t_target) == walltime_improvement(alpha, K, c)


# ---- the best K

@given(shares, ratios, st.one_of(st.none(), pass_costs), st.integers(0, 13))
def test_best_K_is_the_brute_force_argmax(alpha, c, pass_cost, K_max):
    costs = (pass_cost or [1] * 14)[: K_max + 1]
    gains = [improvement(alpha, K, c, cost) for K, cost in enumerate(costs)]
    assert best_K(alpha, c, pass_cost, K_max) == gains.index(max(gains))


def test_best_K_sees_past_a_dear_pass_to_a_cheap_one():
    assert best_K(0.9, 0.05, pass_cost=[1, 2.6, 2.5, 2.7, 3.3, 4.0, 4.0, 2.1]) == 7


@pytest.mark.parametrize("alpha, c, K, best", [
    (0.6, 0.01, 7, 2.297), (0.8, 0.01, 14, 4.232), (0.8, 0.05, 8, 3.092), (0.9, 0.08, 11, 3.817),
    (0.9, 0.2, 7, 2.373)])
def test_best_K_reproduces_values_worked_out_elsewhere(alpha, c, K, best):
    assert best_K(alpha, c) == K
    assert round(walltime_improvement(alpha, K, c), 3) == best


# ---- printed numbers: Leviathan et al. (2023)

@pytest.mark.parametrize("alpha, K, operations, speed", [
    (0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44), (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)])
def test_table_1_of_leviathan_is_reproduced(alpha, K, operations, speed):
    assert round(operations_factor(alpha, K, c_hat=0), 2) == operations
    assert round(walltime_improvement(alpha, K, c=0), 2) == speed


TABLE_4 = [  # Leviathan et al. (2023) Table 4: task, draft, temperature, K, alpha, c, EXP
    ("EnDe", "T5-small", 0, 7, 0.75, 0.02, 3.2), ("EnDe", "T5-base", 0, 7, 0.80, 0.04, 3.3),
    ("EnDe", "T5-large", 0, 7, 0.82, 0.11, 2.5), ("EnDe", "T5-small", 1, 7, 0.62, 0.02, 2.3),
    ("EnDe", "T5-base", 1, 5, 0.68, 0.04, 2.4), ("EnDe", "T5-large", 1, 3, 0.71, 0.11, 2.0),
    ("CNNDM", "T5-small", 0, 5, 0.65, 0.02, 2.4), ("CNNDM", "T5-base", 0, 5, 0.73, 0.04, 2.6),
    ("CNNDM", "T5-large", 0, 3, 0.74, 0.11, 2.0), ("CNNDM", "T5-small", 1, 5, 0.53, 0.02, 1.9),
    ("CNNDM", "T5-base", 1, 3, 0.55, 0.04, 1.8), ("CNNDM", "T5-large", 1, 3, 0.56, 0.11, 1.6)]
TABLE_4_OFF = {  # what the formula gives where the table says 0.1 more
    ("EnDe", "T5-base", 1): 2.3, ("EnDe", "T5-large", 1): 1.9, ("CNNDM", "T5-large", 1): 1.5}


@pytest.mark.parametrize("task, draft, temperature, K, alpha, c, printed", TABLE_4)
def test_table_4_of_leviathan_is_reproduced_but_for_three_rows(task, draft, temperature, K, alpha,
                                                               c, printed):
    """Those three agree within the rounding of alpha and c."""
    expected = TABLE_4_OFF.get((task, draft, temperature), printed)
    assert round(walltime_improvement(alpha, K, c), 1) == expected
    assert walltime_improvement(alpha - 0.005, K, c + 0.005) < printed + 0.05
    assert walltime_improvement(alpha + 0.005, K, c - 0.005) > printed - 0.05


def test_the_bigram_draft_of_leviathan_section_3_6_is_reproduced():
    assert round(walltime_improvement(0.2, 3, c=0), 2) == 1.25


def test_lenience_of_leviathan_appendix_a_5_is_reproduced_at_temperature_0():
    speeds = [round(walltime_improvement(alpha, 8, 0.015), 1) for alpha in (0.75, 0.75, 0.8, 0.87)]
    assert speeds == [3.3, 3.3, 3.9, 4.9]


@pytest.mark.parametrize("alpha, printed, here", [
    (0.62, 2.5, 2.33), (0.71, 3.1, 2.94), (0.76, 3.6, 3.45), (0.84, 5.0, 4.79)])
def test_lenience_of_leviathan_appendix_a_5_is_a_misprint_at_temperature_1(alpha, printed, here):
    best = walltime_improvement(alpha, best_K(alpha, 0.015), 0.015)
    assert round(best, 2) == here < printed - 0.05  # no K reaches the printed factor


# ---- printed numbers: Chen et al. (2023), and the article that compares

@pytest.mark.parametrize("r, predicted", [(0.8, 2.65), (0.62, 2.05)])
def test_predictions_for_chinchilla_are_reproduced(r, predicted):
    assert round(chen_speedup(r, K=4, t_draft=1.8, t_target=14.1), 2) == predicted


@pytest.mark.parametrize("benchmark, ms, printed, quotient", [
    ("XSum, nucleus", 7.52, 1.92, 1.88), ("XSum, greedy", 7.00, 2.01, 2.01),
    ("HumanEval, nucleus", 5.73, 2.46, 2.46)])
def test_speed_ups_of_chen_table_1_are_quotients_of_its_times_but_for_the_first(
        benchmark, ms, printed, quotient):
    assert round(14.1 / ms, 2) == quotient
    assert (printed == quotient) == (benchmark != "XSum, nucleus")


# ---- the latency model

def test_crossover_at_161_needs_two_bytes_and_no_second_factor_two():
    a100 = dict(bandwidth=1935e9, flop_rate=312e12)
    assert int(crossover_batch(2, **a100)) == 161
    assert int(crossover_batch(2 * 2, **a100)) == 322  # the formula as printed, float16
    assert int(crossover_batch(2 * 16, **a100)) == 2579  # and with "16 bytes"
    assert round(crossover_batch(2, bandwidth=1555e9, flop_rate=312e12)) == 201  # 40 GB


@pytest.mark.parametrize("n_rows, weight_bytes, megabytes, printed", [
    (1024, 2, 288.9, 274), (1024, 0.5, 110.0, 110), (1, 2, 238.6, 238), (1, 0.5, 59.7, 60)])
def test_bytes_of_the_4090_example_are_reproduced_but_for_274(n_rows, weight_bytes, megabytes,
                                                              printed):
    moved, _ = linear_cost(n_rows, 6656, 17920, weight_bytes)
    assert round(moved / 1e6, 1) == megabytes
    assert (abs(moved / 1e6 - printed) < 1) == (printed != 274)
    assert abs(moved / 2**20 - 274) > 1  # nor is 274 the same in MiB


@pytest.mark.parametrize("n_rows, printed", [(1024, 122e9), (1, 120e6)])
def test_flops_of_the_4090_example_are_printed_as_multiply_adds(n_rows, printed):
    _, flops = linear_cost(n_rows, 6656, 17920)
    assert flops / 2 == pytest.approx(printed, rel=0.01)


def test_times_of_the_4090_example_are_reproduced_but_computing_takes_twice_as_long():
    moved, flops = zip(linear_cost(1024, 6656, 17920), linear_cost(1, 6656, 17920))
    four_bit = [linear_cost(n_rows, 6656, 17920, weight_bytes=0.5)[0] for n_rows in (1024, 1)]
    assert [m / 1e12 * 1e3 for m in moved] == pytest.approx([0.3, 0.25], abs=0.012)  # ms
    assert [m / 1e12 * 1e3 for m in four_bit] == pytest.approx([0.1, 0.05], abs=0.0101)
    computing = [f / 330e12 for f in flops]
    assert computing == pytest.approx([0.74e-3, 0.72e-6], rel=0.01)  # printed: 0.3 ms, 0.3 us
    assert round(moved[1] / 1e12 / (computing[0] / 1024)) == 330  # "almost three orders"


# ---- arithmetic intensity

STEPS = ["Q", "K", "V", "Score", "Z", "Out", "A", "x'"]


def counted(table):
    """The rows that have an intensity, by the name left of the equals sign."""
    return {row.step.split(" =")[0]: row for row in table if row.flops}


@given(st.integers(1, 2048), st.integers(1, 64), st.integers(1, 128))
def test_the_intensities_are_the_slides(L, n_head, H):
    D = n_head * H
    prefill = L * D / (2 * L + D), L * H / (2 * H + L), 4 * L * D / (5 * L + 4 * D)
    decode = D / (2 + D), (H + L * H) / (2 * H + L + L * H + 1), 4 * D / (5 + 4 * D)
    for n_new, n_past, (square, heads, wide) in ((L, 0, prefill), (1, L, decode)):
        rows = counted(intensity_table(n_new, n_past, D, n_head))
        assert list(rows) == STEPS
        assert [row.intensity for row in rows.values()] == pytest.approx(
            [square, square, square, heads, heads, square, wide, wide], rel=EXACT)


def test_decoding_is_memory_bound_and_prefill_is_not():
    balance = 312e12 / 1935e9  # FLOP a byte that an A100 needs to be busy
    decode = counted(intensity_table(1, 1023, 1600, 25))
    prefill = counted(intensity_table(1024, 0, 1600, 25))
    assert all(row.intensity < 1 for row in decode.values())
    assert all(prefill[step].intensity > balance for step in STEPS if step not in ("Score", "Z"))
    assert prefill["Score"].intensity < balance  # at L = 1024: only H L / (2 H + L) = 57


# ---- GPT-2's sizes

def test_n_params_are_the_names_of_the_sizes():
    for size, hparams in GPT2_SIZES.items():
        assert f"{n_params(hparams) / 1e6:.0f}M" == size


@pytest.mark.parametrize("model_size", ["tales-small", "tales-large"])
def test_n_params_counts_the_bundled_models(model_size):
    def total(node):
        nodes = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        return node.size if hasattr(node, "size") else sum(map(total, nodes))

    _, hparams, params = load_encoder_hparams_and_params(model_size, str(MODELS_DIR))
    assert n_params(hparams) == total(params)


@given(st.integers(1, 100), st.integers(0, 900), st.sampled_from(list(GPT2_SIZES.values())))
def test_pass_flops_are_two_a_matrix_element_and_four_a_score(n_new, n_past, hparams):
    D, n_layer = hparams["n_embd"], hparams["n_layer"]
    dense = 2 * n_new * 12 * D**2 * n_layer + 2 * n_new * hparams["n_vocab"] * D
    scores = 4 * n_new * (n_past + n_new) * D * n_layer
    assert pass_flops(hparams, n_new, n_past, n_last=n_new) == dense + scores


def test_pass_bytes_are_the_parameters_and_the_cache():
    hparams = GPT2_SIZES["124M"]
    assert pass_bytes(hparams, 1024, 0) == 4 * n_params(hparams) + cache_bytes(hparams)
    read = n_params(hparams) - 1023 * 768
    assert pass_bytes(hparams, 1, 7) == 4 * read + cache_bytes(hparams, 8)
    assert pass_bytes(hparams, 1, 7, n_bytes=2) == pass_bytes(hparams, 1, 7) / 2


def test_cache_bytes_are_those_of_the_array():
    cache = np.zeros((12, 2, 12, 1024, 64), np.float32)  # n_layer 2 n_head n_ctx d_head
    assert cache_bytes(GPT2_SIZES["124M"]) == cache.nbytes


# ---- the command line

@pytest.mark.parametrize("table, rows", [("prefill", 13), ("decode", 15)])
@pytest.mark.parametrize("size", GPT2_SIZES)
def test_the_command_prints_the_slides_rows_and_values(capsys, table, rows, size):
    main(["--table", table, "--size", size, "--n_seq", "512"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == rows + 4
    assert lines[1 + rows].startswith(f"{rows}  x' = A' W_2")
    if (table, size) == ("prefill", "1558M"):
        assert lines[2].split()[-1] == f"{512 * 1600 / (2 * 512 + 1600):.2f}"
        assert lines[8].split()[-1] == f"{512 * 64 / (2 * 64 + 512):.2f}"


@pytest.mark.parametrize("flags, message", [
    (["--table", "decode", "--n_seq", "1024"], "error"), (["--table", "x"], "error"), ([], "error"),
    (["--table", "prefill", "--n_seq", "0"], "error"),
    (["--table", "decode", "--K", "-3"], "need --K >= 0, got -3")])
def test_the_command_refuses_what_cannot_be(capsys, flags, message):
    with pytest.raises(SystemExit) as exit:
        main(flags)
    assert exit.value.code == 2 and message in capsys.readouterr().err


# ---- front doors

NAN, LAW = float("nan"), [0.5, 0.5]


@pytest.mark.parametrize("call, message", [
    (lambda: acceptance_rate(LAW, [0.5, 0.25, 0.25]), r"same tokens, got shapes \(2,\) and \(3,\)"),
    (lambda: acceptance_rate(LAW, [0.5, 0.6]), "sum 1, got smallest 0.5, sum 1.1"),
    (lambda: acceptance_rate([-0.5, 1.5], LAW), "probabilities >= 0"),
    (lambda: expected_tokens(1.1, 4), "need 0 <= alpha <= 1, got 1.1"),
    (lambda: expected_tokens(0.5, -1), "need K a whole number >= 0, got -1"),
    (lambda: walltime_improvement(0.5, 1, -0.1), "need 0 <= c < inf, got -0.1"),
    (lambda: walltime_improvement(0.5, 1, 0.1, 0), "need 0 < pass_cost < inf, got 0"),
    (lambda: operations_factor(0.5, 1, NAN), "need 0 <= c_hat < inf, got nan"),
    (lambda: best_K(0.5, 0.1, []), "pass_cost of one row at least"),
    (lambda: best_K(0.5, 0.1, K_max=-1), "need K_max a whole number >= 0, got -1"),
    (lambda: chen_speedup(0, 4, 1.8, 14.1), "need 0 < r <= 1, got 0"),
    (lambda: chen_speedup(0.8, 4, -1.8, 14.1), "need 0 <= t_draft < inf, got -1.8"),
    (lambda: chen_speedup(0.8, 4, 1.8, 0), "need 0 < t_target < inf, got 0"),
    (lambda: pass_latency(1, 2, 0, 1), "need 0 < bandwidth < inf, got 0"),
    (lambda: crossover_batch(2, 1, NAN), "need 0 < flop_rate < inf, got nan"),
    (lambda: linear_cost(1, 0, 1), "need 0 < n_in < inf, got 0"),
    (lambda: intensity_table(0, 5, 6, 2), "n_new >= 1, n_past >= 0, got 0, 5"),
    (lambda: intensity_table(1, 5, 6, 4), "need n_head to divide n_embd, got 4, 6"),
    (lambda: intensity_table(1, 5, 6, 2, 0), "need 0 < n_bytes < inf, got 0"),
    (lambda: pass_flops(GPT2_SIZES["124M"], 1, 1024), "n_ctx = 1024, got 1, 1024"),
    (lambda: pass_flops(GPT2_SIZES["124M"], 2, 0, 3), "need 1 <= n_last <= n_new = 2, got 3"),
    (lambda: cache_bytes(GPT2_SIZES["124M"], 1025), "n_ctx = 1024, got 1025"),
])
def test_what_cannot_be_is_refused_with_what_must_hold(call, message):
    with pytest.raises(ValueError, match=message):
        call()
