"""The advice is the formulas', its thresholds are true ones, and what is told is what was found."""

import json
import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.race import ALPHAS, Result
from speculative import Round
from tests.checkpoints import HPARAMS, write_converted
from theory.speedup import best_K, walltime_improvement
from tools import advice, will_it_pay
from variants.auto import K_MAX, Costs
from variants.best_tree import best_shape, levels, nodes

SIZES = HPARAMS | {"n_ctx": 96}
QUICK = ["--N", "8", "--repeats", "2", "--passes", "2"]
rng = np.random.default_rng(0)
GIVEN = [(Costs(c, [1.0, *(1 + np.cumsum(rng.random(15) * slope)).tolist()]), ranks)
         for c in (0.02, 0.3) for slope in (0.02, 0.3, 1.0)
         for ranks in ([0.9, 0.05, 0.02, 0.01], [0.6, 0.2, 0.1, 0.05], [0.3, 0.1, 0.2, 0.0], [0.7])]
UNEVEN = Costs(0.1, [1.0, 2.6, 2.5, 2.7, 3.3, 4.0, 4.0, 2.1, 5.0])  # 8 rows cheaper than 2
HOPELESS = Costs(0.5, [1.0, 2.0, 3.0, 4.0])  # a row costs a row, as without a product for few


# ---- the formulas

@pytest.mark.parametrize("costs, ranks", GIVEN)
def test_the_advice_is_that_of_the_formulas(costs, ranks):
    case = advice.advise(costs, ranks)
    assert case["K"] == best_K(ranks[0], *costs)
    gain, shape = best_shape(np.minimum.accumulate(ranks), costs.c, costs.pass_cost[: K_MAX + 1])
    assert case["tree"] == {"predicted": gain, "guesses": nodes(shape), "levels": levels(shape)}
    assert case["predicted"] == {K: walltime_improvement(ranks[0], K, costs.c, costs.pass_cost[K])
                                 for K in range(1, 16)}
    best = max(case["predicted"], key=case["predicted"].get)
    assert best in advice.best_few(case) and case["K"] in (0, best)


def test_the_given_costs_have_all_kinds_of_advice():
    cases = [advice.advise(*given) for given in GIVEN]
    assert {0, 1} < {case["K"] for case in cases} and max(case["K"] for case in cases) > 3
    assert any(case["tree"]["guesses"] > case["tree"]["levels"] for case in cases)


@pytest.mark.parametrize("costs", [costs for costs, _ in GIVEN] + [UNEVEN])
def test_some_k_pays_above_the_acceptance_that_is_needed_and_none_below(costs):
    alpha = advice.needed_acceptance(costs)
    if alpha is None:
        assert best_K(1, *costs) == 0
    else:
        assert best_K(max(0, alpha - 1e-9), *costs) == 0 < best_K(min(1, alpha + 1e-9), *costs)


@pytest.mark.parametrize("costs, ranks", GIVEN + [(UNEVEN, [0.9])])
def test_some_k_pays_below_the_draft_cost_that_is_allowed_and_none_above(costs, ranks):
    c = advice.allowed_c(costs, ranks[0])
    if c is None:
        assert best_K(ranks[0], 0, costs.pass_cost) == 0
    else:
        assert best_K(ranks[0], c + 1e-9, costs.pass_cost) == 0
        assert best_K(ranks[0], c - 1e-9, costs.pass_cost) > 0


def test_both_thresholds_by_hand():
    costs = Costs(0.2, [1, 1.1])  # K = 1: 1 + alpha against 1.1 + c
    assert advice.needed_acceptance(costs) == pytest.approx(0.3)
    assert advice.allowed_c(costs, 0.7) == pytest.approx(0.6)


def test_where_a_row_costs_a_row_nothing_is_enough():
    case = advice.advise(HOPELESS, [1.0])
    assert (case["K"], case["needed_acceptance"], case["allowed_c"]) == (0, None, None)


def test_costs_are_in_units_of_a_row_and_straight_between_those_measured():
    rows = dict(zip((1, 2, 3, 4, 5, 6, 7, 8, 9, 16), (2, 4, 4, 4, 4, 4, 4, 4, 6, 20)))
    costs = advice.costs_of({"draft_ms": 1.0, "rows_ms": rows})
    assert costs.c == 0.5 and costs.pass_cost[:9] == [1, 2, 2, 2, 2, 2, 2, 2, 3]
    assert costs.pass_cost[9:] == [4, 5, 6, 7, 8, 9, 10]


def test_speed_is_told_of_all_repeats():
    rounds = [Round([1, 2, 3], [], None, None), Round([4], [], None, None)]
    found = advice.speed(Result([2.0, 3.0, 1.0], rounds, [], []), Result([4.0] * 3, [], [], []))
    assert found == {"measured": {"low": 4 / 3, "median": 2.0, "high": 4.0}, "tokens_per_pass": 2.0}


# ---- the words

def case_of(rows, costs=HOPELESS, alpha=0.7):
    return advice.advise(costs, [alpha]) | {"name": "Temperature 0", "rows": rows, "repeats": 3}


def ran(low, median, high, predicted=1.2):
    return {"predicted": predicted, "measured": dict(low=low, median=median, high=high)}


@pytest.mark.parametrize("rows, words", [
    ({"--K 1": ran(1.1, 1.2, 1.3), "--K 2": ran(1.2, 1.4, 1.5)}, "it pays; the fastest that was "
     "run, --K 2, was 1.40 times as fast as plain decoding (median of 3; 1.20 predicted)"),
    ({"stopping": ran(0.7, 0.8, 0.9, None)}, "it does not pay; the fastest that was run, stopping, "
     "was 0.80 times as fast as plain decoding (median of 3; no prediction)"),
    ({"--K 1": ran(0.9, 1.2, 1.3)}, "it is too close to call; "),
    ({"--K 1": {"predicted": 1.01}, "--K 2": {"predicted": 0.9}}, "it should pay; the best, --K 1, "
     "is predicted to be 1.01 times as fast as plain decoding"),
    ({"--K 1": {"predicted": 0.99}}, "it should not pay; the best, --K 1")])
def test_the_verdict_is_that_of_what_was_run_and_else_of_the_prediction(rows, words):
    assert f"Temperature 0: {words}" in advice.sentence(case_of(rows))


def test_what_would_have_to_change_is_said():
    rows = {"--K 1": ran(0.9, 0.9, 0.9)}
    assert advice.sentence(case_of(rows)).endswith(
        "at these costs no acceptance is enough (here 0.70), at this acceptance no draft is cheap "
        "enough (here 0.50).")
    assert advice.sentence(case_of(rows, Costs(0.2, [1, 1.1]))).endswith(
        "at these costs some K pays above an acceptance of 0.30 (here 0.70), at this acceptance "
        "with a draft step below 0.60 of a target row (here 0.20).")


# ---- the command

@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    """Four models, of three vocabularies, and two prompts."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("target", "draft", "other")):
        write_converted(folder / name, SIZES | {"n_layer": 2 - seed % 2}, seed)
    path = folder / "other" / "encoder.json"
    vocab = json.loads(path.read_text())
    path.write_text(json.dumps(vocab | {"a": vocab["b"], "b": vocab["a"]}))
    write_converted(folder / "wide", SIZES | {"n_vocab": 260})
    (folder / "prompts.txt").write_text("A fox\n\nTwo hens\n")
    return folder


def call(models_dir, *flags, target="target", draft="draft"):
    return will_it_pay.main(["--target", target, "--draft", draft, "--models_dir", str(models_dir),
                             "--prompts", str(models_dir / "prompts.txt"), *QUICK,
                             *map(str, flags)])


def test_the_answer_and_its_json_agree(models_dir, capsys, tmp_path):
    assert call(models_dir, "--json", tmp_path / "a.json") == 0
    out, figures = capsys.readouterr().out, json.loads((tmp_path / "a.json").read_text())
    assert [case["name"] for case in figures["cases"]] == ["Temperature 0", "Temperature 1"]
    assert f"few rows by {figures['product']}" in out and "Target target, draft draft; " in out
    for case, ms in zip(figures["cases"], figures["costs"].values()):
        rows = list(ms["rows_ms"].values())
        assert case["c"] == ms["draft_ms"] / rows[0] and len(rows) == 10
        for K in range(1, 9):
            assert case["predicted"][str(K)] == pytest.approx(
                walltime_improvement(case["acceptance"], K, case["c"], rows[K] / rows[0]))
        assert case["sentence"] == advice.sentence(case) and case["sentence"] in out.split("\n")
        name, row = max(case["rows"].items(), key=lambda item: item[1]["measured"]["median"])
        assert f"{name}, was {row['measured']['median']:.2f} times" in case["sentence"]
        assert len([name for name in case["rows"] if name.startswith("--K")]) == advice.CHAINS
        assert "--decoder stopping" in case["rows"]
        for name, row in case["rows"].items():
            assert re.search(rf"\| {name} \| .*{row['measured']['median']:.2f}", out)
            assert row["measured"]["low"] <= row["measured"]["median"] <= row["measured"]["high"]


def test_a_draft_that_is_the_target_is_always_kept(models_dir, tmp_path):
    assert call(models_dir, "--json", tmp_path / "a.json", draft="target") == 0
    for case in json.loads((tmp_path / "a.json").read_text())["cases"]:
        assert case["acceptances"] == [1, 0, 0, 0]
        for name, row in case["rows"].items():
            if name.startswith("--K"):  # 8 tokens a text
                assert row["tokens_per_pass"] == 8 / -(-8 // (int(name[4:]) + 1))


def test_a_tree_is_run_where_it_is_predicted_to_be_best(models_dir):
    encoder, draft, target = will_it_pay.load_pair(SimpleNamespace(
        target="target", draft="draft", models_dir=models_dir, random=False, backend="numba",
        cut_vocab=False))
    costs = Costs(0.3, [1.0 + n / 100 for n in range(16)])  # rows are nearly free
    models = will_it_pay.Models(draft, target, {"temperature": 1.0})
    case = advice.advise(costs, [0.5, 0.3, 0.1, 0.05])
    named = will_it_pay.contestants(models, case, costs)
    assert {*named} > {0, "--decoder stopping", "--decoder tree --widths auto"}
    results = will_it_pay.run({name: step for name, (_, step) in named.items()}, models,
                              [encoder.encode("A fox")], 8, 2, SimpleNamespace(update=int))
    for result in results.values():
        assert len(result.seconds) == 2 and sum(len(round.ids) for round in result.rounds) == 16
    chain = will_it_pay.contestants(models, advice.advise(costs, [0.99, 0.0]), costs)
    assert "--decoder tree --widths auto" not in chain


def test_no_race_has_a_prompt_to_read_and_every_repeat_draws_other_numbers(monkeypatch):
    seen, seeds = [], []
    monkeypatch.setattr(will_it_pay, "race", lambda steps, clocks, texts, N, repeats: (
        seen.append("race"), seeds.append(tuple(texts[0][1])))
        and {0: Result([0.5], [len(seen)], [], [])})
    models = SimpleNamespace(draft=seen.append, target=seen.append)
    found = will_it_pay.run({0: None}, models, [[1], [2]], 4, 2, SimpleNamespace(update=int))
    assert seen == [[1], [1], "race", [2], [2], "race"] * 2 and len(set(seeds)) == 4
    assert found[0].seconds == [1.0, 1.0] and len(found[0].rounds) == 4


@pytest.mark.parametrize("flags, alphas", [([], ALPHAS), (["--alpha", 0.5, 1], (0.5, 1.0))])
def test_random_weights_are_timed_and_acceptance_is_given(models_dir, flags, alphas, capsys,
                                                         monkeypatch, tmp_path):
    monkeypatch.setitem(will_it_pay.GPT2_SIZES, "124M", SIZES)
    flags = [*flags, "--random", "--json", tmp_path / "a.json"]
    assert call(models_dir, *flags, target="124M") == 0
    cases = json.loads((tmp_path / "a.json").read_text())["cases"]
    assert [case["acceptance"] for case in cases] == [*alphas]
    assert not any("measured" in row for case in cases for row in case["rows"].values())
    out = capsys.readouterr().out
    assert out.count(": it should") == len(alphas) and "tree" not in out  # it needs more than alpha
    for case in cases:
        assert case["sentence"] in out.split("\n") and f"| {case['name']} | " in out


def test_the_picture_shows_every_case(models_dir, tmp_path):
    pytest.importorskip("matplotlib")
    assert call(models_dir, "--alpha", 0.5, 0.9, "--plot", tmp_path / "a.svg") == 0
    for name in ("a.svg", "a-dark.svg"):
        assert "Acceptance 0.9" in (tmp_path / name).read_text()


@pytest.mark.parametrize("flags, models, message", [
    ([], {"draft": "wide"}, "need draft and target with one vocabulary, got wide (260 tokens) and "
     "target (257 tokens)"),
    ([], {"draft": "other"}, "need draft and target with one vocabulary, got other (257 tokens)"),
    (["--random", "--backend", "cupy"], {}, "need --backend numba or numpy with --random"),
    (["--alpha", 1.5], {}, "need 0 <= --alpha <= 1, got 1.5"),
    (["--temperature", -1], {}, "need 0 <= temperature < inf, got -1.0"),
    (["--N", 90], {}, "need prompts of 1 .. 6 tokens (n_ctx = 96, --N 90), got 8"),
    (["--prompts", os.devnull], {}, "need prompts of 1 .. 88 tokens (n_ctx = 96, --N 8), got none"),
    (["--repeats", 0], {}, "need --repeats >= 1, got 0"),
    (["--plot", "a.png"], {}, "need --plot to end in .svg, got a.png"),
    (["--prompts", "no-such-file"], {}, "no-such-file")])
def test_what_cannot_be_is_refused_in_a_line_before_anything_is_measured(
        flags, models, message, models_dir, capsys, monkeypatch):
    monkeypatch.setattr(will_it_pay, "measure", None)
    assert call(models_dir, *flags, **models) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err and err.startswith("will_it_pay: ")


def test_a_missing_plot_library_is_one_line_before_anything_is_loaded(
        models_dir, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(will_it_pay, "load_pair", None)
    assert call(models_dir, "--plot", "a.svg") == 2
    assert capsys.readouterr().err == ("will_it_pay: need matplotlib for --plot (pip install -r "
                                       "requirements/plots.txt), got none\n")
