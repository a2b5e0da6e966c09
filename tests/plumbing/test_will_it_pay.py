"""The advice is the formulas', and the report says what was found."""

import json
import math
import shutil
from itertools import chain
from statistics import mean
from types import SimpleNamespace

import numpy as np
import pytest

from measure import race
from measure.answer import answer_of, conditions, raced_speedup
from tests.checkpoints import HPARAMS, write_converted
from tests.chromium import TELEPHONE
from tests.commands import outcome, refusal
from tests.pages import ROOT
from tests.small import write_heads
from theory.speedup import best_K, needed_alpha, walltime_improvement
from tools import will_it_pay
from utils import load_model
from variants.registry import Costs

SIZES = HPARAMS | {"n_ctx": 96}
QUIET = [[0.2, *np.linspace(1, 1.8, 9)]] * 2  # turns: a draft pass, and passes over 1 .. 9 rows
DISTURBED = [QUIET[0], [0.2, 1.5, *QUIET[0][2:]]]


def test_the_figures_by_hand():
    """A draft pass 2 ms, passes 10, 11 and 14 ms, acceptance 0.6: c = 0.2, costs 1, 1.1, 1.4."""
    costs = Costs(2.0, [10.0, 11.0, 14.0])
    # One guess gains if alpha > 0.3; two need alpha + alpha^2 > 0.8, which is more.
    assert conditions(costs, 0.6) == (
        "By the formula, speculation pays at these costs if the acceptance rate is above 0.30 "
        "(yours: 0.60).")
    assert conditions(Costs(0.5, [1.0, 2.0, 3.0]), 0.7) == (  # a row costs a row
        "By the formula, no acceptance rate is enough at these costs (yours: 0.70).")


@pytest.mark.parametrize("c, passes", [
    (0.02, [1, 1.2, 1.3, 1.9]), (0.3, [1, 1.1, 1.1, 1.2]),
    (0.1, [1, 2.6, 2.5, 2.7, 3.3, 4, 4, 2.1, 5])])  # 8 rows cheaper than 2
def test_some_k_gains_above_the_threshold_and_none_below(c, passes):
    needed = needed_alpha(c, passes)
    assert best_K(needed - 1e-9, c, passes) == 0 < best_K(min(1, needed + 1e-9), c, passes)


def test_without_a_threshold_no_k_gains():
    costs = Costs(0.3, [1, 2, 2.9, 3.5])  # a row costs nearly a pass
    assert needed_alpha(*costs) is None and best_K(1, *costs) == 0


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
def turns(monkeypatch):
    """Return a function that replaces the measured times, which a busy machine disturbs."""
    def replace(times):
        monkeypatch.setattr(will_it_pay, "timed_turns", lambda *args: times)

    replace(QUIET)
    return replace


@pytest.fixture
def races(monkeypatch):
    """Return a list to which every race adds {decoder: its runs}."""
    results = []
    true_race = race.race

    def recorded_race(*args, **named):
        results.append(true_race(*args, **named))
        return results[-1]

    monkeypatch.setattr(race, "race", recorded_race)
    return results


def report(models_dir, *flags, draft="draft", status=0):
    """Return what will_it_pay prints of two small models."""
    found, out, err = outcome(
        will_it_pay.main, "--models_dir", models_dir, "--prompts", models_dir / "prompts.txt",
        "--N", 16, "--repeats", 1, "--target", "target", "--draft", draft, *flags)
    assert found == status, err
    return out


def seconds_of_passes(runs, role):
    """Return the seconds of all passes of the draft or the target in a race."""
    return [seconds for text in chain(*runs)
            for seconds in getattr(text, role).writing()]


def cases_of(path):
    return json.loads(path.read_text("utf-8"))["cases"]


def test_the_answer_and_its_json_agree(models_dir, tmp_path, turns):
    out = report(models_dir, "--repeats", 3, "--json", tmp_path / "a.json", draft="target")
    cases = cases_of(tmp_path / "a.json")
    assert [case["name"] for case in cases] == ["Temperature 0", "Temperature 1"]
    # The blank line is no prompt.
    assert ", 2 prompts of 16 new tokens each: 1.00 of the tested guesses" in out
    for case in cases:
        assert case["acceptance"] == 1  # the draft is the target
        assert case["answer"] == answer_of(case)._asdict()
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


def test_the_three_best_K_are_raced_and_figures_are_those_of_the_races_passes(
        models_dir, turns, races, tmp_path):
    """The draft of `quantized` is a copy that the race does not load, and is timed too."""
    report(models_dir, "--temperature", 1, "--json", tmp_path / "a.json")
    case, = cases_of(tmp_path / "a.json")
    gains = [place["predicted"]["speedup"] for place in case["positions"]]  # of K = 1, 2, ..
    assert len(gains) == 8
    best = np.argsort(gains)[-3:] + 1
    assert {name for name in case["rows"] if name.startswith("--K")} == {f"--K {K}" for K in best}

    _, raced = races  # the first race measured the acceptance
    row_cost = mean(seconds_of_passes(raced["plain"], "target"))
    assert case["plain"]["time"]["draft"] == 0
    for name, row in case["rows"].items():
        texts = list(chain(*raced[name]))
        seconds = {role: seconds_of_passes(raced[name], role) for role in ("draft", "target")}
        for role, each in seconds.items():
            assert row["time"][role] == pytest.approx(sum(each)) and sum(each) > 0
        total = sum(text.writing_s for text in texts)
        assert sum(row["time"].values()) == pytest.approx(total)
        if name.startswith("--K"):
            c, pass_cost = (mean(each) / row_cost for each in seconds.values())
            wanted = walltime_improvement(row["acceptance"], int(name[4:]), c, pass_cost)
            assert row["predicted"] == pytest.approx(wanted)


def test_the_shorter_context_of_the_two_models_counts(models_dir):
    """Nothing is measured: a prompt of 8 tokens and 25 new ones need 33 positions."""
    flags = ("--models_dir", models_dir, "--prompts", models_dir / "prompts.txt", "--N", 25)
    for pair in (("short", "target"), ("target", "short")):
        why = refusal(will_it_pay.main, *flags, "--draft", pair[0], "--target", pair[1])
        assert "--N 25 more do not fit in n_ctx = 32" in why
    fitting = SimpleNamespace(prompts=models_dir / "prompts.txt", N=24)
    encoder, _ = load_model("short", models_dir)
    assert max(map(len, will_it_pay.prompts_as_ids(fitting, encoder, n_ctx=32))) == 8


def test_a_draft_with_a_different_vocabulary_is_measured_and_named(models_dir, turns):
    out = report(models_dir, "--temperature", 0, draft="wide")
    assert "\nVocabularies differ: 257 tokens in common, 99 % of the draft's" in out
    assert "Temperature 0: it " in out and "--decoder tree --widths auto" in out


def test_from_disturbed_costs_nothing_is_predicted(models_dir, turns):
    turns(DISTURBED)
    said = ("The costs at temperature 1 are disturbed: a pass over 1 row took 1.50 times as long "
            "in one half of the turns as in the other. No speed-up is predicted from them, "
            "only from the race's own times.")
    out = report(models_dir, "--temperature", 1)
    assert said in out and "By the formula" not in out
    assert out.count(") | - |\n") == 8  # the predictions by position


# ---- a model without a draft

def test_without_a_draft_the_decoders_that_need_none_are_raced(models_dir, turns, tmp_path):
    """Flags may have the names that they have in main.py."""
    out = report(models_dir, "--target_model_size", "draft", "--draft_model_size", "none",
                 "--n_tokens_to_generate", 17, "--temperature", 0, "--json", tmp_path / "a.json")
    case, = cases_of(tmp_path / "a.json")
    assert [*case["rows"]] == [f"--decoder {words}" for words in (
        "quantized", "lookup", "suffix --sure 0.0", "jacobi", "lookahead")]
    assert out.startswith("Target draft, draft none. ") and "a draft pass" not in out
    assert "were accepted" not in out and "Temperature 0: it " in out and case["N"] == 17
    for name, row in case["rows"].items():
        assert (row["time"]["draft"] > 0) == (name == "--decoder quantized")


@pytest.mark.parametrize("target, draft", [
    ("tales-large", "tales-small"), ("1558M", "124M"), ("124M", None), ("tales-small", None),
    ("owner/name", None)])
def test_a_target_has_a_default_draft_of_its_own_vocabulary_or_none(target, draft):
    assert will_it_pay.default_draft(target) == draft


def test_the_decoder_of_the_flag_is_raced_where_it_can_be(models_dir, turns, tmp_path):
    """A greedy decoder at temperature 0 alone; suffix without a draft as main.py runs it."""
    out = report(models_dir, "--decoder", "big_little", "--json", tmp_path / "a.json")
    cold, warm = cases_of(tmp_path / "a.json")
    assert "--decoder big_little" in cold["rows"] and "--decoder big_little" not in warm["rows"]
    assert "--decoder big_little is greedy, so it is raced at temperature 0 only." in out
    out = report(models_dir, "--decoder", "suffix", "--temperature", 0, draft="none")
    assert out.count("| --decoder suffix") == 1


def test_a_lossy_decoder_is_called_lossy(models_dir, turns):
    out = report(models_dir, "--decoder", "lenient", "--temperature", 1)
    assert "--decoder lenient is not exact: " in out


def test_heads_are_found_in_the_targets_folder(models_dir, turns, tmp_path):
    own = shutil.copytree(models_dir, tmp_path / "models")
    write_heads(own / "target", load_model("target", own)[1].params)
    out = report(own, "--decoder", "medusa", "--temperature", 0)
    assert "| --decoder medusa |" in out


def test_a_figure_of_nothing_is_null_in_the_file(models_dir, turns, tmp_path):
    out = report(models_dir, "--N", 1, "--temperature", 0, "--json", tmp_path / "a.json")
    assert "NaN" not in (tmp_path / "a.json").read_text("utf-8")
    assert outcome(will_it_pay.main, "--show", tmp_path / "a.json")[:2] == (0, out)


def test_too_few_runs_or_tokens_are_told_before_anything_is_measured(models_dir, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(will_it_pay, "timed_turns", interrupted)
    for flags, is_told in (("--repeats", 2), True), (("--N", 15), True), ((), False):
        said = []
        monkeypatch.setattr(will_it_pay, "notify", said.append)
        report(models_dir, "--repeats", 3, *flags, status=130)
        assert ("no answer, which needs --N 16 and --repeats 3" in "".join(said)) == is_told


# ---- the picture

def test_a_plot_is_a_picture_as_wide_as_a_telephone(tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="needs requirements/plots.txt")
    stored = ROOT / "benchmarks/results/will_it_pay.json"
    status, _, err = outcome(will_it_pay.main, "--show", stored, "--plot", tmp_path / "a.png")
    assert status == 0, err
    assert matplotlib.image.imread(tmp_path / "a.png").shape[1] == 2 * TELEPHONE
