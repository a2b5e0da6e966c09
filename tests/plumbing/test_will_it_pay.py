"""The advice is the formulas', and the report says what was found."""

import json
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from demo.race import race
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import outcome, refusal
from theory.speedup import best_K, needed_alpha, walltime_improvement
from tools import will_it_pay
from variants.registry import Costs

RESULTS = Path(will_it_pay.__file__).parent.parent / "benchmarks" / "results"
SIZES = HPARAMS | {"n_ctx": 96}


def test_the_figures_by_hand():
    """A draft step 2 ms, passes 10, 11 and 14 ms, acceptance 0.6: c = 0.2, costs 1, 1.1, 1.4.

    K = 1: 1.6 tokens for 0.2 + 1.1, K = 2: 1.96 for 0.4 + 1.4. One guess gains if 1 + alpha > 1.3;
    two need alpha + alpha^2 > 0.8, so more. At 0.6 one guess allows c = 1.6 - 1.1, two 0.56 / 2.
    """
    costs = Costs(2.0, [10.0, 11.0, 14.0])
    predicted = will_it_pay.predicted_speedups(costs, 0.6)
    assert predicted == pytest.approx({1: 1.6 / 1.3, 2: 1.96 / 1.8})
    assert will_it_pay.conditions(costs, 0.6) == (
        "By the formula, to gain at these costs, you need acceptance above 0.30 (yours: 0.60). "
        "To gain at this acceptance, you need a draft step cheaper than 0.50 target passes "
        "(yours: 0.20).")
    assert will_it_pay.conditions(Costs(0.5, [1.0, 2.0, 3.0]), 0.7) == (  # a row costs a row
        "By the formula, at these costs no acceptance is enough (yours: 0.70). At this acceptance "
        "no draft is cheap enough (yours: 0.50).")


@pytest.mark.parametrize("c, passes, alpha", [
    (0.02, [1, 1.2, 1.3, 1.9], 0.6), (0.3, [1, 2, 2.9, 3.5], 0.9), (0.3, [1, 1.1, 1.1, 1.2], 0.3),
    (0.1, [1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1, 5], 0.9)])  # 8 rows cheaper than 2
def test_some_k_gains_above_the_thresholds_and_none_below(c, passes, alpha):
    needed = needed_alpha(c, passes)
    allowed = will_it_pay.allowed_c(Costs(c, passes), alpha)
    assert best_K(1, c, passes) == 0 if needed is None else (
        best_K(max(0, needed - 1e-9), c, passes) == 0 < best_K(min(1, needed + 1e-9), c, passes))
    assert best_K(alpha, 0, passes) == 0 if allowed is None else (
        best_K(alpha, allowed + 1e-9, passes) == 0 < best_K(alpha, allowed - 1e-9, passes))


def measured(slowest, speedup, fastest, **more):
    """Return the row of a decoder: its speed-ups in three runs."""
    return dict(slowest=slowest, speedup=speedup, fastest=fastest, **more)


QUIET = Costs(0.2, [1.0, 1.1, 1.2, 1.15])
DISTURBED = Costs(0.2, [12.07, 8.34, 12.97, 8.30])


@pytest.mark.parametrize("rows, N, words", [
    ({"--K 1": measured(1.1, 1.2, 1.3), "--K 2": measured(1.2, 1.4, 1.5)}, 60,
     "it pays; best measured: --K 2, 1.40x (median of 3)."),
    ({"stopping": measured(0.7, 0.8, 0.9)}, 16,
     "it does not pay; best measured: stopping, 0.80x (median of 3)."),
    ({"--K 1": measured(1.0, 1.2, 1.3)}, 60,
     "it is too close to call; best measured: --K 1, 1.20x (median of 3)."),
    ({"--K 1": measured(0.92, 0.96, 1.01, predicted=1.14)}, 60,  # two of three runs were slower
     "it does not pay; best measured: --K 1, 0.96x (median of 3). By the formula it pays (1.14x); "
     "sampling and Python's own time, which the formula leaves out, took the rest."),
    ({"--K 1": measured(0.9, 1.02, 1.1, predicted=0.98), "stopping": measured(0.8, 0.9, 1.0)}, 60,
     "it is too close to call; best measured: --K 1, 1.02x (median of 3)."),
    ({"--K 1": measured(1.1, 1.2, 1.3, predicted=1.4)}, 60,
     "it pays; best measured: --K 1, 1.20x (median of 3)."),
    ({"--K 1": measured(1.1, 1.2, 1.3)}, 15,
     "no verdict from texts of fewer than 16 tokens (--N 15).")])
def test_it_pays_only_if_every_run_was_faster(rows, N, words):
    assert will_it_pay.verdict({"rows": rows, "repeats": 3, "N": N}, QUIET) == words


@pytest.mark.parametrize("repeats, costs, words", [
    (1, QUIET, "no verdict from fewer than 3 runs (--repeats 1)."),
    (2, QUIET, "no verdict from fewer than 3 runs (--repeats 2)."),
    (3, DISTURBED, "no verdict, because the costs are disturbed.")])
def test_few_runs_and_costs_that_no_idle_machine_has_get_no_verdict(repeats, costs, words):
    case = {"rows": {"--K 1": measured(1.1, 1.2, 1.3)}, "repeats": repeats, "N": 60}
    assert will_it_pay.verdict(case, costs) == words


@pytest.mark.parametrize("passes, words", [
    (DISTURBED.passes, "a pass over 2 rows took 0.69 of the time of 1 row"),
    ([1.0, 1.1, 0.94], "a pass over 3 rows took 0.94 of the time of 1 row"),
    ([1.0, 1.8, 1.2], "a pass over 3 rows took 0.67 of the time of 2 rows"),
    ([1.0, 1.1, 1.5, 1.7, 1.11], "a pass over 5 rows took 0.65 of the time of 4 rows"),
    ([1.0, 0.96, 1.17, 1.10], ""), ([1.0, 2.6, 3.02, 2.34], ""), ([1.0], "")])
def test_costs_that_contradict_each_other_are_named(passes, words):
    assert will_it_pay.disturbance(Costs(0.1, passes)) == words


@pytest.mark.parametrize("size", ["pair", "124M", "1558M"])
def test_no_table_of_an_idle_machine_is_called_disturbed(size):
    """Neither with Numba's products nor with NumPy's, whose pass over eight rows is cheap."""
    figures = json.loads((RESULTS / f"speed-{size}.json").read_text(encoding="utf-8"))["passes"]
    for library in ("rows_ms", "numpy_rows_ms"):
        times = [figures[library][str(n_rows)]["median"] for n_rows in range(1, 10)]
        assert will_it_pay.disturbance(Costs(0.1, times)) == ""


def test_from_disturbed_costs_nothing_is_concluded():
    case = {"name": "Temperature 0", "rows": {"--K 1": measured(1.1, 1.2, 1.3, tokens_per_pass=2)},
            "repeats": 3, "N": 60, "acceptance": 0.7}
    found = {"target": "a", "draft": "b", "measured": "", "texts": "", "given": {},
             "costs": {"temperature 0": DISTURBED._asdict()}, "cases": [case]}
    *_, said, _, _, end = will_it_pay.paragraphs(found)
    assert said == (
        "The costs at temperature 0 are disturbed: a pass over 2 rows took 0.69 of the time of 1 "
        "row, which no idle machine does. Nothing follows from them. Run this again when the "
        "machine is idle.")
    assert end == "Temperature 0: no verdict, because the costs are disturbed."


# ---- the command

@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    """Return a folder with three models, of two vocabularies, and a file of prompts."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("target", "draft")):
        write_converted(folder / name, SIZES | {"n_layer": 2 - seed}, seed)
    write_converted(folder / "short", SIZES | {"n_ctx": 32})
    write_converted(folder / "wide", SIZES | {"n_vocab": 260})
    (folder / "prompts.txt").write_text('A fox\n\n{"prompt": "Two hens"}\n', "utf-8")
    return folder


@pytest.fixture
def quiet(monkeypatch):
    """Replace the measured costs, because a busy machine's may contradict each other."""
    costs = Costs(0.2, np.linspace(1, 1.8, 9).tolist())
    monkeypatch.setattr(will_it_pay, "costs_at", lambda *args: costs)


@pytest.fixture
def races(monkeypatch):
    """Return a list to which every race adds its results."""
    results = []

    def recorded_race(*args, **settings):
        results.append(race(*args, **settings))
        return dict(results[-1])  # will_it_pay removes plain decoding's

    monkeypatch.setattr(will_it_pay, "race", recorded_race)
    return results


def report(models_dir, *flags, draft="draft"):
    """Return what will_it_pay prints of two small models."""
    status, out, _ = outcome(
        will_it_pay.main, "--models_dir", models_dir, "--prompts", models_dir / "prompts.txt",
        "--N", 16, "--repeats", 3, "--target", "target", "--draft", draft, *flags)
    assert status == 0
    return out


def mean_seconds(runs, role):
    """Return the mean seconds of all passes of the draft or the target in a race."""
    seconds = [getattr(text, role) for text in chain(*runs)]
    return sum(map(sum, seconds)) / sum(map(len, seconds))


def test_the_answer_and_its_json_agree(models_dir, tmp_path, quiet, races):
    out = report(models_dir, "--json", tmp_path / "a.json", draft="target")
    figures = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [case["name"] for case in figures["cases"]] == ["Temperature 0", "Temperature 1"]
    assert ", 2 prompts of 16 new tokens each: 1.00 of the guesses" in out  # the blank line is none
    for case, costs in zip(figures["cases"], figures["costs"].values()):
        assert case["acceptance"] == 1 and len(costs["passes"]) == 9  # the draft is the target
        assert f"{case['name']}: {will_it_pay.verdict(case, Costs(**costs))}" in out
        assert case["rows"]["--decoder quantized"]["tokens_per_pass"] > 3
        for name, found in case["rows"].items():
            assert re.search(rf"\| {name} \| .*{found['speedup']:.2f}", out)
            if name.startswith("--K"):
                K = int(name[4:])
                assert found["tokens_per_pass"] == 16 / -(-16 // (K + 1))
    cases = zip(figures["cases"], races[1::2])  # races[::2] measured the acceptance
    for (name, found), results in ((row, results) for case, results in cases
                                   for row in case["rows"].items()):
        if name.startswith("--K"):  # predicted from the race's own passes
            row = mean_seconds(results["plain"], "target")
            c = mean_seconds(results[name], "draft") / row
            pass_cost = mean_seconds(results[name], "target") / row
            assert found["predicted"] == pytest.approx(
                walltime_improvement(1, int(name[4:]), c, pass_cost))


def test_every_decoder_runs_as_often_as_asked(models_dir, quiet, races):
    report(models_dir, "--repeats", 4, "--temperature", 0)
    counted, raced = races
    assert [len(runs) for runs in counted.values()] == [1]
    assert {name: len(runs) for name, runs in raced.items()} == dict.fromkeys(raced, 4)
    assert len(raced) == 7


def test_the_shorter_context_of_the_two_models_counts(models_dir):
    """Nothing is measured: a prompt of 8 tokens and 25 new ones need 33 positions."""
    flags = ("--models_dir", models_dir, "--prompts", models_dir / "prompts.txt", "--N", 25)
    for pair in (("short", "target"), ("target", "short")):
        why = refusal(will_it_pay.main, *flags, "--draft", pair[0], "--target", pair[1])
        assert "--N 25 more do not fit in n_ctx = 32" in why


def test_a_draft_with_a_different_vocabulary_is_measured_and_named(models_dir, quiet):
    out = report(models_dir, "--temperature", 0, draft="wide")
    assert "\nVocabularies differ: 257 tokens in common, 99 % of the draft's" in out
    assert "Temperature 0: it " in out and "--decoder tree --widths auto" in out


def test_one_token_tests_no_guess_and_gets_no_verdict(models_dir):
    out = report(models_dir, "--N", 1, "--temperature", 0)
    assert out.endswith("no verdict from texts of fewer than 16 tokens (--N 1).\n")


def test_random_weights_are_timed_and_acceptance_is_given(monkeypatch, quiet):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    flags = ("--random", "--target", "124M", "--draft", "124M")
    _, out, _ = outcome(will_it_pay.main, *flags)
    assert out.count("| Acceptance 0.") == 4 and "measured:" not in out


def test_from_disturbed_costs_of_random_weights_nothing_is_predicted(monkeypatch):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    monkeypatch.setattr(will_it_pay, "costs_at", lambda *args: DISTURBED)
    status, out, _ = outcome(will_it_pay.main, "--random", "--target", "124M", "--draft", "124M")
    assert status == 0 and "The costs at temperature 1 are disturbed: " in out
    assert "Acceptance" not in out
