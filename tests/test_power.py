"""benchmarks/power.py: what the tests of engines see, and docs/power.md."""

import re

import numpy as np
import pytest

from benchmarks import power
from benchmarks.__main__ import main
from benchmarks.power import PROTOCOLS, VERIFIERS, fits, rounds, share
from docs.tables import stored
from exact.rules.batched import EXACT
from sampling import softmax
from tests.commands import outcome, refusal
from tests.pages import ROOT

STORED = ROOT / "benchmarks/results/power.json"
RATIO, MATCH, _ = power.RIGHT
SMALLER = {"vLLM wide": {"V": 512, "n": 5_120}}  # the whole one takes seconds
SEEN = {  # protocol: a rule that it is known to see
    "vLLM V1": "ratio test, then a draw from the target",
    "vLLM wide": "ratio test, then a draw from the target",
    "vLLM narrow": "ratio test, then a draw from the target",
    "SGLang": "bonus token from the last guess's row",
    "TensorRT-LLM": "ratio test, then a draw from the target",
    "transformers": "match with the target's best token, at any temperature",
    "FlashInfer": "\"q = 1\"; argmax guesses, always rejected",
    "oracle": "ratio test, then a draw from the target"}


def passes(protocol, rule, seed=0):
    test = PROTOCOLS[protocol].passes
    return test(VERIFIERS[rule], np.random.default_rng(seed), **SMALLER.get(protocol, {}))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exact_rules_pass(protocol):
    """A right rule fails a test by chance with a probability that the page gives as 0."""
    assert passes(protocol, RATIO) and passes(protocol, MATCH)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_can_fail(protocol):
    assert not passes(protocol, SEEN[protocol])


@pytest.mark.parametrize("protocol", ["vLLM V1", "vLLM narrow"])
def test_equal_rows_hide_faults_of_rows(protocol):
    """The rule's rounds are those of the ratio test, number by number."""
    assert passes(protocol, "bonus token from the last guess's row")
    assert not passes("oracle", "bonus token from the last guess's row")


# ---- the limits of the protocols, each passed and exceeded

@pytest.mark.parametrize("times, is_right", [(19, False), (21, True)])
def test_the_distance_to_the_target_must_fall_20_times_as_much(times, is_right, monkeypatch):
    """The frequencies are so near the target's row that their distances to other rows stay equal.

    Five samples are drawn, and the last is `times` as near as the others.
    """
    _, target, *_ = softmax(np.random.default_rng(0).random((102, 10)))
    distances = iter([1e-3] * 4 + [1e-3 / times])
    monkeypatch.setattr(power, "rounds", lambda *args: np.zeros((1, 2), int))
    monkeypatch.setattr(power, "frequencies",
                        lambda tokens, V: target + next(distances) * np.eye(10)[0])
    assert power.vllm_v1(None, np.random.default_rng(0)) == is_right


@pytest.mark.parametrize("deviations, is_right", [(9, True), (11, False)])
def test_chi_squared_must_be_below_df_and_10_standard_deviations(deviations, is_right):
    """Five tokens, 10,000 of each expected, so df = 4; two have x more and x fewer."""
    chi_squared = 4 + deviations * np.sqrt(2 * 4)
    x = round(np.sqrt(10_000 * chi_squared / 2))
    tokens = np.repeat(range(5), [10_000 + x, 10_000 - x, 10_000, 10_000, 10_000])
    assert fits(tokens, np.full(5, 0.2)) == is_right


@pytest.mark.parametrize("n, is_right", [(10_000, False), (4_000, True)])
def test_rare_tokens_are_one_bin_if_five_are_expected_in_it(n, is_right):
    """Ten tokens are expected once, and together 10 times, or 4 times: they come 100 times."""
    row = np.array([0.999, *[1e-4] * 10])
    tokens = np.repeat([0, 1], [n - 100, 100])
    assert fits(tokens, row) == is_right


@pytest.mark.parametrize("change, is_right", [(0.1, True), (0.2, False)])
def test_first_tokens_may_diverge_by_a_hundredth(change, is_right, monkeypatch):
    """Every other token is more and less frequent by this part: the divergence is change^2 / 2.

    50,000 draws of 100 tokens add about 0.001 to it: 0.005 passes, and 0.02 does not.
    """
    def first_tokens(verify, p_draft, p_target, n, rng):
        row = p_target[0].copy()
        tokens = np.argsort(row)[-100:]  # by their probability, so that the sums are nearly equal
        row[tokens] *= 1 + change * (-1.0) ** np.arange(100)
        return rng.choice(len(row), (n, 1), p=row / row.sum())

    monkeypatch.setattr(power, "rounds", first_tokens)
    assert power.tensorrt_llm(None, np.random.default_rng(0)) == is_right


def test_chi_squared_is_below_its_bound_for_the_right_row_only():
    row = np.array([0.5, 0.25, 0.125, 0.125 - 1e-6, 1e-6])
    tokens = np.random.default_rng(0).choice(5, 10_000, p=row)
    assert fits(tokens, row) and not fits(tokens, row[[1, 0, 2, 3, 4]])
    assert fits(tokens[:5], row)  # too few for two bins


def test_the_narrow_test_has_a_draft_that_prefers_what_the_target_does_not(monkeypatch):
    rows = []

    def no_rounds(verify, p_draft, p_target, n, rng):
        rows.append((p_draft, p_target))
        return np.zeros((1, 4), int)

    monkeypatch.setattr(power, "rounds", no_rounds)
    for protocol in ("vLLM narrow", "vLLM wide"):
        passes(protocol, RATIO)
    (narrow_draft, narrow_target), (wide_draft, wide_target) = rows
    # the product is constant where the draft's row is the inverse of the target's
    assert np.ptp(narrow_draft * narrow_target[:-1]) < 1e-15
    assert np.ptp(wide_draft * wide_target[:-1]) > 1e-6
    assert narrow_target.shape == (4, 16) and wide_target.shape == (4, 512)


@pytest.mark.parametrize("replacements, is_right", [
    ([1, 1, 1, 8, 8, 8, 3, 3, 7], True), ([3, 3, 3, 1, 1, 8, 8, 8, 7], False),
    ([1, 1, 1, 8, 8, 3, 3, 7], False), ([1, 1, 1, 8, 8, 8, 3, 3], False),
    ([1, 1, 1, 8, 8, 8, 3, 3, 7, 5], False)])
def test_the_replacements_of_the_third_guess_have_an_order(replacements, is_right, monkeypatch):
    """Tokens 1 and 8 are more frequent than 3, and 3 than 7, which comes; no other token does."""
    tokens = np.array([[1, 4, token, -1] for token in replacements])
    monkeypatch.setattr(power, "rounds", lambda *args: tokens)
    assert power.transformers(None, None, n=len(tokens)) == is_right


@pytest.mark.parametrize("token, is_right", [(110, True), (111, False)])
def test_of_rows_that_are_not_one_hot_only_the_range_of_the_ids_is_seen(token, is_right):
    """The verifier is right on one-hot rows, and writes one token on all other rows."""
    def verify(guesses, p_draft, p_target, uniforms):
        best = p_target.argmax(axis=-1)
        is_one_hot = p_target.max() == 1
        return best if is_one_hot else np.full_like(best, token)

    assert power.flashinfer(verify, np.random.default_rng(0)) == is_right


def test_rounds_of_many_parts_have_the_rows_that_are_given(monkeypatch):
    monkeypatch.setattr(power, "NUMBERS", 100)
    rows = np.eye(3)[[1, 2, 0]]
    assert (rounds(VERIFIERS[RATIO], rows[:2], rows, 100, np.random.default_rng(0))
            == [1, 2, 0]).all()


def test_shares_have_their_standard_error():
    assert [share(0, 20), share(20, 20), share(5, 20)] == ["0", "1", "0.25 +- 0.10"]


def test_the_figures_are_of_all_rules_and_protocols():
    """Five wrong rules pass the wide test, and never the narrow one."""
    figures = stored("power")
    assert [*figures] == [*VERIFIERS]
    n_wide_alone = 0
    for rule, row in figures.items():
        assert [*row] == [*PROTOCOLS] and row["oracle"] == [int(rule in EXACT), 1]
        n_wide_alone += row["vLLM wide"][0] > 0 and row["vLLM narrow"][0] == 0
    assert n_wide_alone == 5


def test_the_command_shows_the_figures_of_its_file():
    status, out, err = outcome(main, "power", "--show", STORED)
    assert (status, err) == (0, "") and out.count("\n") == 2 + len(VERIFIERS) + 1


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"traversal": {}}', '{"traversal": [0, 0]}'])
def test_a_file_without_figures_is_one_line(text, tmp_path):
    path = tmp_path / "figures.json"
    path.write_text(text, encoding="utf-8")
    why = refusal(main, "power", "--show", path)
    assert f"--show {path} does not contain figures of this" in why


def test_what_cannot_be_written_is_refused_before_anything_is_simulated(tmp_path, monkeypatch):
    monkeypatch.setattr(power, "BENCHMARK", power.BENCHMARK._replace(all_figures=None))
    assert f"cannot write --json {tmp_path}: Is a dir" in refusal(main, "power", "--json", tmp_path)
    assert not any(tmp_path.iterdir())


def test_sources_are_files_at_a_commit():
    sources = [protocol.source for name, protocol in PROTOCOLS.items() if name != "oracle"]
    pattern = r"https://github.com/[\w-]+/[\w-]+/blob/[0-9a-f]{40}/[\w/-]+\.py"
    assert all(re.fullmatch(pattern, source) for source in sources)
