"""The advice is the formulas', and the report says what was found."""

import json
import os
import re

import pytest

from tests.checkpoints import HPARAMS, write_converted
from theory.speedup import best_K, needed_alpha, walltime_improvement
from tools import will_it_pay
from variants.registry import Costs

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
     "no verdict from runs of fewer than 16 tokens (--N 15).")])
def test_it_pays_only_if_every_run_was_faster(rows, N, words):
    assert will_it_pay.verdict({"rows": rows, "repeats": 3, "N": N}) == words


# ---- the command

@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    """Return a folder with three models, of two vocabularies, and files of prompts."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("target", "draft")):
        write_converted(folder / name, SIZES | {"n_layer": 2 - seed}, seed)
    write_converted(folder / "wide", SIZES | {"n_vocab": 260})
    (folder / "prompts.txt").write_text('A fox\n\n{"prompt": "Two hens"}\n')
    (folder / "blank.txt").write_text("\n \n")
    (folder / "bad.txt").write_bytes(b"A fox\nTwo \xff hens\n")
    return folder


def run_command(models_dir, *flags, target="target", draft="draft"):
    """Run will_it_pay on two small models; return its status."""
    words = ["--target", target, "--draft", draft, *map(str, flags)]
    if "--random" not in flags:
        words = ["--models_dir", str(models_dir), "--prompts", str(models_dir / "prompts.txt"),
                 "--N", "16", "--repeats", "2", *words]
    return will_it_pay.main(words)


def test_the_answer_and_its_json_agree(models_dir, capsys, tmp_path):
    assert run_command(models_dir, "--json", tmp_path / "a.json", draft="target") == 0
    out = capsys.readouterr().out
    figures = json.loads((tmp_path / "a.json").read_text())
    assert [case["name"] for case in figures["cases"]] == ["Temperature 0", "Temperature 1"]
    assert ", 2 prompts of 16 new tokens each: 1.00 of the guesses" in out  # the blank line is none
    for case, costs in zip(figures["cases"], figures["costs"].values()):
        row, *passes = costs["passes"]
        assert case["acceptance"] == 1 and len(passes) == 8  # the draft is the target
        assert f"{case['name']}: {will_it_pay.verdict(case)}" in out
        assert case["rows"]["--decoder quantized"]["tokens_per_pass"] > 3
        for name, found in case["rows"].items():
            assert re.search(rf"\| {name} \| .*{found['speedup']:.2f}", out)
            if name.startswith("--K"):
                K = int(name[4:])
                assert found["tokens_per_pass"] == 16 / -(-16 // (K + 1))
                assert found["predicted"] == pytest.approx(
                    walltime_improvement(1, K, costs["draft"] / row, passes[K - 1] / row))


def test_a_draft_with_a_different_vocabulary_is_measured_and_named(models_dir, capsys):
    assert run_command(models_dir, "--temperature", 0, draft="wide") == 0
    out = capsys.readouterr().out
    assert "\nVocabularies differ: 257 tokens in common, 99 % of the draft's" in out
    assert "Temperature 0: it " in out and "--decoder tree --widths auto" in out


def test_one_token_tests_no_guess_and_gets_no_verdict(models_dir, capsys):
    assert run_command(models_dir, "--N", 1, "--temperature", 0) == 0
    out = capsys.readouterr().out
    assert out.endswith("no verdict from runs of fewer than 16 tokens (--N 1).\n")


def test_random_weights_are_timed_and_acceptance_is_given(models_dir, capsys, monkeypatch):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    assert run_command(models_dir, "--random", target="124M", draft="124M") == 0
    out = capsys.readouterr().out
    assert out.count("| Acceptance 0.") == 4 and "measured:" not in out


@pytest.mark.parametrize("flags, models, message", [
    (["--random"], {}, "--random has no weights of the shape of draft: choose"),
    (["--temperature", -1], {}, "need 0 <= temperature < inf, got -1.0"),
    (["--N", 89], {}, "the longest prompt has 8 tokens, and --N 89 more do not fit in n_ctx = 96"),
    (["--prompts", "{}/blank.txt"], {}, "blank.txt has blank lines only"),
    (["--random", "--N", 100], {}, "--N does not apply to --random"),
    (["--prompts", "{}/bad.txt"], {}, "bad.txt, line 2: need UTF-8 text, got byte 0xff"),
    (["--prompts", os.devnull], {}, "need at least one prompt in "),
    (["--prompts", "no-such-file"], {}, "no-such-file")])
def test_what_cannot_be_is_refused_in_a_line_before_anything_is_measured(
        flags, models, message, models_dir, capsys, monkeypatch):
    monkeypatch.setattr(will_it_pay, "costs_at", None)
    flags = [str(flag).format(models_dir) for flag in flags]
    assert run_command(models_dir, *flags, **models) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err and err.startswith("will_it_pay: ")
