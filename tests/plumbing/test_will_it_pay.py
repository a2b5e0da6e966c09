"""The advice is the formulas', and the report says what was found."""

import json
import math
from itertools import chain
from statistics import mean

import numpy as np
import pytest

from demo.answer import allowed_c, answer_of, conditions, raced_speedup
from demo.race import race
from tests.checkpoints import HPARAMS, write_converted
from tests.commands import outcome, refusal
from theory.speedup import best_K, needed_alpha, walltime_improvement
from tools import will_it_pay
from variants.registry import Costs

SIZES = HPARAMS | {"n_ctx": 96}
QUIET = Costs(0.2, np.linspace(1, 1.8, 9).tolist())


def test_the_figures_by_hand():
    """A draft step 2 ms, passes 10, 11 and 14 ms, acceptance 0.6: c = 0.2, costs 1, 1.1, 1.4."""
    costs = Costs(2.0, [10.0, 11.0, 14.0])
    # K = 1 writes 1 + 0.6 tokens for 0.2 + 1.1, and K = 2 writes 1 + 0.6 + 0.36 for 0.4 + 1.4.
    predicted = will_it_pay.predicted_speedups(costs, 0.6)
    assert predicted == pytest.approx({1: 1.6 / 1.3, 2: 1.96 / 1.8})
    # One guess gains if alpha > 0.3; two need alpha + alpha^2 > 0.8, which is more. At 0.6 one
    # guess allows c < 1.6 - 1.1, and two allow (1.96 - 1.4) / 2, which is less.
    assert conditions(costs, 0.6) == (
        "By the formula, to gain at these costs, you need acceptance above 0.30 (yours: 0.60). "
        "To gain at this acceptance, you need a draft step cheaper than 0.50 target passes "
        "(yours: 0.20).")
    assert conditions(Costs(0.5, [1.0, 2.0, 3.0]), 0.7) == (  # a row costs a row
        "By the formula, at these costs no acceptance is enough (yours: 0.70). At this acceptance "
        "no draft is cheap enough (yours: 0.50).")


@pytest.mark.parametrize("c, passes, alpha", [
    (0.02, [1, 1.2, 1.3, 1.9], 0.6), (0.3, [1, 1.1, 1.1, 1.2], 0.3),
    (0.1, [1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1, 5], 0.9)])  # 8 rows cheaper than 2
def test_some_k_gains_above_the_thresholds_and_none_below(c, passes, alpha):
    needed = needed_alpha(c, passes)
    assert best_K(needed - 1e-9, c, passes) == 0 < best_K(min(1, needed + 1e-9), c, passes)
    allowed = allowed_c(Costs(c, passes), alpha)
    assert best_K(alpha, allowed + 1e-9, passes) == 0 < best_K(alpha, allowed - 1e-9, passes)


def test_without_thresholds_no_k_gains():
    costs = Costs(0.3, [1, 2, 2.9, 3.5])  # a row costs nearly a pass
    assert needed_alpha(*costs) is None and best_K(1, *costs) == 0
    assert allowed_c(costs, 0.9) is None and best_K(0.9, 0, costs.passes) == 0


# ---- figures that were stored

DISTURBED = Costs(0.2, [12.07, 8.34, 12.97, 8.30])


def old_figures(costs):
    """Return figures as they were stored before there were intervals."""
    row = dict(slowest=1.1, speedup=1.2, fastest=1.3, tokens_per_pass=2, predicted=1.25)
    case = {"name": "Temperature 0", "rows": {"--K 1": row}, "repeats": 3, "N": 60,
            "acceptance": 0.7}
    return {"target": "a", "draft": "b", "measured": "On a day.", "texts": "6 prompts",
            "given": {}, "costs": {"temperature 0": costs._asdict()}, "cases": [case]}


def test_from_disturbed_costs_nothing_is_concluded():
    *_, said, _, _, end = will_it_pay.paragraphs(old_figures(DISTURBED))
    assert said == (
        "The costs at temperature 0 are disturbed: a pass over 2 rows took 0.69 of the time of 1 "
        "row, which no idle machine does. Nothing follows from them. Run this again when the "
        "machine is idle.")
    assert end == ("Temperature 0: it is not known, because the costs are disturbed: run this "
                   "again when the machine is idle.")


def test_figures_of_before_the_intervals_are_still_shown(tmp_path):
    page = tmp_path / "old.html"
    (tmp_path / "old.json").write_text(json.dumps(old_figures(Costs(0.2, [1.0, 1.1]))), "utf-8")
    status, out, _ = outcome(will_it_pay.main, "--show", tmp_path / "old.json", "--out", page)
    assert status == 0 and "| --K 1 | 1.25 | 1.20 (1.10 - 1.30) | 2.00 |" in out
    assert "Temperature 0: it is not known, because these figures were stored before" in out
    assert "It is not known, because these figures" in page.read_text("utf-8")


def test_a_page_needs_a_race(tmp_path):
    figures = old_figures(Costs(0.2, [1.0, 1.1])) | {"cases": []}  # as --random stores them
    (tmp_path / "random.json").write_text(json.dumps(figures), "utf-8")
    out = ("--out", tmp_path / "a.html")
    assert "--out needs figures of a race" in refusal(
        will_it_pay.main, "--show", tmp_path / "random.json", *out)
    assert "--out does not apply to --random" in refusal(will_it_pay.main, "--random", *out)
    assert not (tmp_path / "a.html").exists()


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
    monkeypatch.setattr(will_it_pay, "costs_at", lambda *args: QUIET)


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


def seconds_of_passes(runs, role):
    """Return the seconds of all passes of the draft or the target in a race."""
    return [seconds for text in chain(*runs) for seconds in getattr(text, role)]


def cases_of(path):
    """Return the cases of a file of figures."""
    return json.loads(path.read_text("utf-8"))["cases"]


def test_the_answer_and_its_json_agree(models_dir, tmp_path, quiet):
    out = report(models_dir, "--json", tmp_path / "a.json", draft="target")
    cases = cases_of(tmp_path / "a.json")
    assert [case["name"] for case in cases] == ["Temperature 0", "Temperature 1"]
    assert ", 2 prompts of 16 new tokens each: 1.00 of the guesses" in out  # the blank line is none
    for case in cases:
        assert case["acceptance"] == 1  # the draft is the target
        assert case["answer"] == answer_of(case, QUIET)._asdict()
        assert f"{case['name']}: {case['answer']['words']}" in out
        assert case["candidates"] == 8 + 3 and case["n_prompts"] == 2
        assert case["rows"]["--decoder quantized"]["tokens_per_pass"] > 3
        for name, row in case["rows"].items():
            speedup, low, high = (f"{row[end]:.2f}" for end in ("speedup", "low", "high"))
            assert f"{speedup} ({low} - {high})" in out
            # the file has all that is needed
            again = raced_speedup(row["texts"], case["plain"]["texts"], case["candidates"])
            assert row.items() >= again.items()
            if name.startswith("--K"):
                K = int(name[4:])
                assert row["tokens_per_pass"] == 16 / math.ceil(16 / (K + 1))


def test_the_speed_up_is_predicted_from_the_passes_of_the_race(models_dir, tmp_path, quiet, races):
    report(models_dir, "--temperature", 1, "--json", tmp_path / "a.json", draft="target")
    case, = cases_of(tmp_path / "a.json")
    _, raced = races  # the first race measured the acceptance, which is 1
    row_cost = mean(seconds_of_passes(raced["plain"], "target"))
    rows_of_K = {int(name[4:]): name for name in raced if name.startswith("--K")}
    assert len(rows_of_K) == 3
    for K, name in rows_of_K.items():
        c = mean(seconds_of_passes(raced[name], "draft")) / row_cost
        pass_cost = mean(seconds_of_passes(raced[name], "target")) / row_cost
        wanted = walltime_improvement(1, K, c, pass_cost)
        assert case["rows"][name]["predicted"] == pytest.approx(wanted)


def test_the_three_best_K_are_raced_and_the_parts_of_a_time_are_the_passes_and_the_rest(
        models_dir, quiet, races, tmp_path):
    """The draft of `quantized` is a copy that the race does not load, and is timed too."""
    report(models_dir, "--temperature", 1, "--json", tmp_path / "a.json")
    case, = cases_of(tmp_path / "a.json")
    gains = [place["predicted"]["speedup"] for place in case["positions"]]  # of K = 1, 2, ..
    assert len(gains) == 8
    best = np.argsort(gains)[-3:] + 1
    assert {name for name in case["rows"] if name.startswith("--K")} == {f"--K {K}" for K in best}

    _, raced = races
    assert case["plain"]["time"]["draft"] == 0
    for name, row in case["rows"].items():
        texts = list(chain(*raced[name]))
        n_tokens = sum(len(text.ids) for text in texts)
        for role in ("draft", "target"):
            seconds = sum(seconds_of_passes(raced[name], role))
            assert row["time"][role] == pytest.approx(seconds / n_tokens) and seconds > 0
        total = sum(text.seconds for text in texts)
        assert sum(row["time"].values()) == pytest.approx(total / n_tokens)


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


@pytest.mark.parametrize("name, words", [
    ("a.txt", "--out {} cannot be written: choose a name that ends in .html"),
    ("none/a.html", "cannot be written"), ("folder.html", "cannot write --out")])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(
        models_dir, tmp_path, monkeypatch, name, words):
    monkeypatch.setattr(will_it_pay, "load_models", None)
    (tmp_path / "folder.html").mkdir()
    why = refusal(will_it_pay.main, "--out", tmp_path / name)
    assert words.format(tmp_path / name) in why


def test_one_token_tests_no_guess_and_gets_no_answer(models_dir):
    out = report(models_dir, "--N", 1, "--temperature", 0)
    assert out.endswith("it is not known, because texts of fewer than 16 tokens are too short "
                        "(--N 1): choose a larger --N.\n")


RANDOM = ("--random", "--target", "124M", "--draft", "124M")


def test_random_weights_are_timed_and_acceptance_is_given(monkeypatch, quiet):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    _, out, _ = outcome(will_it_pay.main, *RANDOM)
    assert out.count("| Acceptance 0.") == 4 and "measured:" not in out


def test_from_disturbed_costs_of_random_weights_nothing_is_predicted(monkeypatch):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    monkeypatch.setattr(will_it_pay, "costs_at", lambda *args: DISTURBED)
    status, out, _ = outcome(will_it_pay.main, *RANDOM)
    assert status == 0 and "The costs at temperature 1 are disturbed: " in out
    assert "Acceptance" not in out
