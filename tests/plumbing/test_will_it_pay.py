"""The advice is the formulas', its thresholds hold, and the report says what was found."""

import json
import os
import re

import pytest

from tests.checkpoints import HPARAMS, write_converted
from theory.speedup import best_K, walltime_improvement
from tools import will_it_pay
from variants.registry import Costs

SIZES = HPARAMS | {"n_ctx": 96}


def test_the_figures_by_hand():
    """A draft step 2 ms, passes 10, 11 and 14 ms, acceptance 0.6: c = 0.2, costs 1, 1.1, 1.4.

    K = 1: 1.6 tokens for 0.2 + 1.1, K = 2: 1.96 for 0.4 + 1.4. One guess gains if 1 + alpha > 1.3;
    two need alpha + alpha^2 > 0.8, so more. At 0.6 one guess allows c = 1.6 - 1.1, two 0.56 / 2.
    """
    case = will_it_pay.predict(Costs(2.0, [10.0, 11.0, 14.0]), [0.6, 0.1])
    assert (case["c"], case["acceptance"]) == (0.2, 0.6)
    assert case["predicted"] == pytest.approx({1: 1.6 / 1.3, 2: 1.96 / 1.8})
    assert case["needed_acceptance"] == pytest.approx(0.3)
    assert case["allowed_c"] == pytest.approx(0.5)
    assert case["tree"] == {"predicted": pytest.approx(1.6 / 1.3), "guesses": 1, "levels": 1}
    nothing = will_it_pay.predict(Costs(0.5, [1.0, 2.0, 3.0]), [1.0])  # a row costs a row
    assert (nothing["needed_acceptance"], nothing["allowed_c"]) == (None, None)


@pytest.mark.parametrize("c, passes, alpha", [
    (0.02, [1, 1.2, 1.3, 1.9], 0.6), (0.3, [1, 2, 2.9, 3.5], 0.9), (0.3, [1, 1.1, 1.1, 1.2], 0.3),
    (0.1, [1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1, 5], 0.9)])  # 8 rows cheaper than 2
def test_some_k_gains_above_the_thresholds_and_none_below(c, passes, alpha):
    found = will_it_pay.predict(Costs(c, passes), [alpha])
    needed, allowed = found["needed_acceptance"], found["allowed_c"]
    assert best_K(1, c, passes) == 0 if needed is None else (
        best_K(max(0, needed - 1e-9), c, passes) == 0 < best_K(min(1, needed + 1e-9), c, passes))
    assert best_K(alpha, 0, passes) == 0 if allowed is None else (
        best_K(alpha, allowed + 1e-9, passes) == 0 < best_K(alpha, allowed - 1e-9, passes))


def ran(slowest, speedup, fastest, predicted=1.2):
    return dict(slowest=slowest, speedup=speedup, fastest=fastest, predicted=predicted)


@pytest.mark.parametrize("rows, words", [
    ({"--K 1": ran(1.1, 1.2, 1.3), "--K 2": ran(1.2, 1.4, 1.5)},
     "it pays; best measured: --K 2, 1.40x (median of 3; predicted 1.20x)."),
    ({"stopping": ran(0.7, 0.8, 0.9, None)},
     "it does not pay; best measured: stopping, 0.80x (median of 3; no prediction)."),
    ({"--K 1": ran(1.0, 1.2, 1.3)}, "it is too close to call; best measured: --K 1, 1.20x")])
def test_it_pays_only_if_every_run_was_faster(rows, words):
    case = will_it_pay.predict(Costs(0.5, [1.0, 2.0]), [0.7]) | {"repeats": 3, "N": 60}
    assert will_it_pay.verdict(case | {"rows": rows}).startswith(words)
    assert will_it_pay.verdict(case | {"rows": rows, "N": 1}) == (
        "no verdict from runs of fewer than 16 tokens (--N 1).")
    assert will_it_pay.verdict(case) == "it should not pay; best predicted: --K 1, 0.68x."
    assert will_it_pay.conditions(case) == (
        "At these costs no acceptance is enough (yours: 0.70). At this acceptance no draft is "
        "cheap enough (yours: 0.50).")
    assert will_it_pay.conditions(case | {"needed_acceptance": 0.3, "allowed_c": 0.6}) == (
        "To gain at these costs, you need acceptance above 0.30 (yours: 0.70). To gain at this "
        "acceptance, you need a draft step cheaper than 0.60 target passes (yours: 0.50).")


# ---- the command

@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    """Three models, of two vocabularies, and two prompts, one of them as JSON."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("target", "draft")):
        write_converted(folder / name, SIZES | {"n_layer": 2 - seed}, seed)
    write_converted(folder / "wide", SIZES | {"n_vocab": 260})
    (folder / "prompts.txt").write_text('A fox\n\n{"prompt": "Two hens"}\n')
    (folder / "bad.txt").write_bytes(b"A fox\nTwo \xff hens\n")
    return folder


def call(models_dir, *flags, target="target", draft="draft"):
    return will_it_pay.main(["--target", target, "--draft", draft, "--models_dir", str(models_dir),
                             "--prompts", str(models_dir / "prompts.txt"), "--N", "16",
                             "--repeats", "2", *map(str, flags)])


def test_the_answer_and_its_json_agree(models_dir, capsys, tmp_path):
    assert call(models_dir, "--json", tmp_path / "a.json", draft="target") == 0
    out, figures = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    assert [case["name"] for case in figures["cases"]] == ["Temperature 0", "Temperature 1"]
    assert ", 2 prompts of 16 new tokens each: of" in out  # the blank line is none
    for case, costs in zip(figures["cases"], figures["costs"].values()):
        row, *passes = costs["passes"]
        assert case["c"] == costs["draft"] / row and len(passes) == 8
        for K, cost in enumerate(passes, 1):
            assert case["predicted"][str(K)] == pytest.approx(
                walltime_improvement(1, K, case["c"], cost / row))
        assert case["acceptances"] == [1, 0, 0, 0]  # the draft is the target
        assert f"{case['name']}: {will_it_pay.verdict(case)} " in out
        for name, row in case["rows"].items():
            assert re.search(rf"\| {name} \| .*{row['speedup']:.2f}", out)
            if name.startswith("--K"):
                assert row["tokens_per_pass"] == 16 / -(-16 // (int(name[4:]) + 1))


def test_random_weights_are_timed_and_acceptance_is_given(models_dir, capsys, monkeypatch):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    assert call(models_dir, "--random", target="124M", draft="124M") == 0
    out = capsys.readouterr().out
    assert out.count(": it should") == 4 and "measured:" not in out and "| Acceptance 0.9 |" in out


@pytest.mark.parametrize("flags, models, message", [
    ([], {"draft": "wide"}, "different vocabularies"),
    (["--random"], {}, "need two of 124M, 355M, 774M, 1558M with --random, got draft and target"),
    (["--temperature", -1], {}, "need 0 <= temperature < inf, got -1.0"),
    (["--N", 90], {}, "need prompts of 1 .. 6 tokens (n_ctx = 96, --N 90), got 8"),  # "Two hens"
    (["--prompts", "{}/bad.txt"], {}, "bad.txt, line 2: need UTF-8 text, got byte 0xff"),
    (["--prompts", os.devnull], {}, "need at least one prompt in "),
    (["--prompts", "no-such-file"], {}, "no-such-file")])
def test_what_cannot_be_is_refused_in_a_line_before_anything_is_measured(
        flags, models, message, models_dir, capsys, monkeypatch):
    monkeypatch.setattr(will_it_pay, "measure_costs", None)
    flags = [str(flag).format(models_dir) for flag in flags]
    assert call(models_dir, *flags, **models) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err and err.startswith("will_it_pay: ")
