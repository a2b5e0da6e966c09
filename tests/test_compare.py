"""Every figure of a run, against a count by hand on models whose text and seconds are known.

    target    after token t comes t + 1; a pass takes 10 seconds, and one more for each row
    draft     the same, but after 3 it says 0; its second best is t + 5; a pass takes 1 second
"""

import shlex
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from pytest import approx

import main
import measure.costs
import measure.passes
import run.task
from lib.prefix import common_prefix
from measure.costs import SECONDS, measure_costs
from measure.passes import Run, Timed, acceptance_figures
from run.compare import difference_of_texts, parting_of_texts, speedups
from run.describe import comparison_in_words, judge_command, next_step, table_lines
from run.flags import parse_args
from run.task import Task, load_task
from speculative import Round
from theory.speedup import walltime_improvement
from utils import MODELS_DIR
from variants import DECODERS, Models
from variants.shared.branches import tree_of_paths

N_VOCAB = 30


class Clock:
    """Count seconds that pass only when a model adds them."""

    def __init__(self):
        self.now = 0.0
        self.delay = 0.0  # of a draft's pass right after one of the target
        self.target_was_last = False

    def perf_counter(self):
        return self.now


class Counting:
    """Continue by counting: the draft or the target of this file's first lines."""

    n_vocab = N_VOCAB
    cache = SimpleNamespace(dtype=np.dtype("float64"))

    def __init__(self, clock, is_draft):
        self.clock = clock
        self.is_draft = is_draft

    def fresh(self):
        return self  # it keeps nothing

    def __call__(self, ids, n_last=1):
        return self.logits(self.hidden(ids, n_last))

    def hidden(self, ids, n_last=1):
        self.clock.now += 1 if self.is_draft else 10
        if self.is_draft and self.clock.target_was_last:
            self.clock.now += self.clock.delay
        self.clock.target_was_last = not self.is_draft
        # A tree has a text for each node; a sequence is its own last token.
        last_ids = [text[-1] for text in ids.texts()] if hasattr(ids, "texts") else ids
        return last_ids[-n_last:]

    def logits(self, states):
        self.clock.now += 0 if self.is_draft else len(states)
        rows = np.zeros((len(states), N_VOCAB))
        for row, token in zip(rows, states):
            row[(token + 5) % N_VOCAB] = 20.0
            row[0 if self.is_draft and token == 3 else (token + 1) % N_VOCAB] = 40.0
        return rows


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (measure.passes, measure.costs, main, run.task):
        monkeypatch.setattr(module, "time", clock)
    return clock


def run_figures(clock, decoder="speculative", N=99, stop=(), x=(2,), on_seen=None, **flags):
    """Return the figures of a run of the two models above."""
    entry = DECODERS[decoder]
    models = Models(Counting(clock, True), Counting(clock, False), {"temperature": 0.0})
    return main.both_decoders(
        Task(SimpleNamespace(decode=str, decode_bytes=bytes), models, entry,
             entry.settings(flags), set(stop), N=N, seed=0, n_ctx=1024, x=list(x)), on_seen)


def assert_figures(figures, **by_hand):
    """Assert that figures of a run are as counted by hand."""
    assert {name: figures[name] for name in by_hand} == by_hand


NO_GUESS_COUNTS = dict.fromkeys(("accepted", "tested", "acceptance"))  # None for trees
TOO_SHORT = "\nspeed-up                 1.00   -  (a text has fewer than 8 tokens)\n"


def test_a_run_that_a_stop_token_ends_inside_a_round(clock):
    """Round 1 accepts 3, rejects 0 and adds 4; round 2 accepts 5 6 7 and adds 8; round 3 accepts
    9 10 11, and the stop token 10 cuts off 11 and 12, so that guess 11 does not count."""
    got = run_figures(clock, K=3, stop={10})
    assert got["speculative"]["ids"] == got["autoregressive"]["ids"] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert_figures(got, rounds_by_accepted=[0, 1, 1, 1], accepted=1 + 3 + 2, tested=2 + 3 + 2,
                   acceptance=6 / 7, target_passes=3, reading_passes=0,
                   tokens_per_target_pass=8 / 3, rows_per_target_pass=4.0)
    plain = 8 * 11  # seconds of eight passes over one row
    fast = 3 * 14 + 9 * 1  # of three passes over four rows, and of nine guesses
    # The first rounds read the prompt. The writing after them: 7 tokens, and 6 in two rounds.
    plain_rate, fast_rate = 7 / (7 * 11), 6 / (2 * 14 + 6 * 1)
    gain = 1 + 6 / 7 + (6 / 7) ** 2 + (6 / 7) ** 3
    assert_figures(got, draft_ms=1000, target_ms=11_000, target_pass_ms=14_000,
                   speedup_measured=approx(fast_rate / plain_rate),
                   speedup_with_prompt=approx(plain / fast),
                   speedup_predicted=approx(gain / (3 * 1 / 11 + 14 / 11)))
    for name, seconds, prompt, rate in (("autoregressive", plain, 11, plain_rate),
                                        ("speculative", fast, 17, fast_rate)):
        assert_figures(got[name], time_s=seconds, prompt_s=prompt, tokens=8,
                       tokens_per_second=rate, ended_by="stop")
    assert [" ".join(row.split()) for row in table_lines(got, "speculative")] == [
        "plain speculative", "speed-up 1.00 1.94 (theory, from this run's passes: 2.08)",
        "with the prompt 1.00 1.73", "time 88.00 s 51.00 s",
        "to the first token 11.00 s 17.00 s", "tokens/s after it 0.1 0.2", "target passes 8 3",
        "tokens per pass 1.00 2.67", "ms per target pass 11000.00 14000.00 for 4.0 positions",
        "ms per draft pass - 1000.00", "guesses accepted - 6 of 7 tested, 86 %",
        "accepted per round - 2.00 (0 in 0 rounds, 1 in 1, 2 in 1, 3 in 1)", "texts identical yes"]
    assert_figures(got, prompt="[2]", exact=True, n_ctx=1024, window_moved=False)
    assert got["speculative"]["text"] == str([*range(2, 11)])


def test_a_run_of_trees(clock):
    """Each tree has two chains of two guesses, and no guess of the second chain is accepted.

    Round 1 accepts 3 and rejects 0, round 2 accepts 5 6, and round 3 accepts 8 9.
    """
    got = run_figures(clock, "tree", widths=(2, 1), stop=(10,))
    assert_figures(got, rounds_by_accepted=[0, 1, 2], **NO_GUESS_COUNTS, target_passes=3,
                   reading_passes=0, tokens_per_target_pass=8 / 3, rows_per_target_pass=5)
    seconds = 3 * (10 + 5) + 6 * 1  # of three passes over five rows, and of six draft passes
    # The first round brings 2 tokens, in a pass over 5 rows and 2 draft passes.
    assert_figures(got, draft_ms=1000, target_pass_ms=15_000,
                   speedup_measured=approx(6 * 11 / (seconds - 17)), speedup_predicted=None)
    assert_figures(got["tree"], ids=[*range(3, 11)], time_s=seconds)


def test_without_a_draft_and_without_tokens_nothing_is_counted(clock):
    got = run_figures(clock, K=3, N=0)
    assert_figures(got, accepted=0, tested=0, acceptance=None, target_passes=0,
                   reading_passes=0, tokens_per_target_pass=None, rows_per_target_pass=None)
    assert TOO_SHORT in comparison_in_words(got, parse_args([]))
    one_round = comparison_in_words(run_figures(clock, N=2, K=2), parse_args([]))
    assert "\nms per target pass" not in one_round and " positions" not in one_round
    assert TOO_SHORT in one_round and "\nTry: --trace" in one_round
    got = run_figures(clock, "lookup", N=4)
    assert_figures(got, draft_ms=None, target_passes=4, tested=0)
    assert "accepted" not in comparison_in_words(got, parse_args(["--decoder", "lookup"]))


# ---- what is counted of other decoders

def test_guesses_are_counted_as_the_rule_accepted_them_and_rounds_of_trees_too():
    """The second round rejects a guess, and then writes the same token."""
    rounds = [Round([1, 9], [1, 2, 3], None, None, 1), Round([1], [1, 2, 3], None, None, 0)]
    assert acceptance_figures(rounds) == {"rounds_by_accepted": [1, 1, 0, 0], "accepted": 1,
                                          "tested": 3, "acceptance": 1 / 3}
    tree = tree_of_paths([[5, 6, 7], [7]], N_VOCAB)
    assert acceptance_figures([Round([7, 9], tree, None, None, 1)] * 2) == {
        "rounds_by_accepted": [0, 2, 0, 0], **NO_GUESS_COUNTS}


def test_a_pass_that_only_reads_states_is_counted_apart(clock):
    target = Timed(Counting(clock, is_draft=False))
    target.hidden([1, 2, 3, 4], 4)  # 10 seconds, and no logits
    target([1, 2, 3, 4, 5], 2)  # 10 + 2
    target([1, 2, 3, 4, 5, 6, 7], 3)  # 10 + 3
    assert (target.seconds, target.rows) == ([10, 12, 13], [0, 2, 3])
    assert target.n_passes() == 2 and target.ms() == 12_500


def test_the_prompt_that_eagles_head_reads_is_not_a_pass_of_many_rows():
    got = main.both_decoders(loaded_task(
        "--decoder", "eagle", "--prompt", "One day a merchant " * 20, "--n_tokens_to_generate", 12))
    assert got["reading_passes"] == 1 and got["rows_per_target_pass"] <= 5
    assert got["target_passes"] == sum(got["rounds_by_accepted"])
    assert got["tokens_per_target_pass"] == 12 / got["target_passes"]
    said = comparison_in_words(got, parse_args(["--decoder", "eagle"]))
    assert f" {got['target_passes']} + 1 for the heads alone\n" in said


def test_theory_is_the_formula_at_the_sums_of_the_passes(clock):
    """Every guess is accepted and only passes take time, so the formula is what is measured.

    The draft's median pass takes 1 second, but each round's first one 7.
    """
    clock.delay = 6
    got = run_figures(clock, K=3, N=12, x=(4,))
    speedup = approx(12 * 11 / (3 * (7 + 1 + 1 + 14)))
    assert_figures(got, rounds_by_accepted=[0, 0, 0, 3],
                   draft_ms=approx(1000 * (7 + 1 + 1) / 3),
                   speedup_predicted=speedup, speedup_measured=speedup)
    got = run_figures(clock, K=3, N=9, x=(4,))  # the last round has no guess
    costs = got["draft_ms"] / got["target_ms"], got["target_pass_ms"] / got["target_ms"]
    assert_figures(got, rounds_by_accepted=[1, 0, 0, 2],
                   speedup_predicted=approx(walltime_improvement(1, 3, *costs)))


def test_only_the_papers_decoder_has_a_prediction(clock):
    for decoder in ("block", "match", "cascade"):  # cascade reads the draft's last row too
        assert run_figures(clock, decoder, K=3, N=8)["speedup_predicted"] is None


@pytest.mark.parametrize("plain, fast, speedup", [
    ((100, 50.0), (28, 7.0), approx(2.0)),  # 2 and 4 tokens per second; 50 s / 7 s is 7.14
    ((100, 5.0), (20, 2.0), approx(0.5)), ((100, 50.0), (7, 7.0), None),
    ((7, 50.0), (100, 7.0), None)])
def test_the_speedup_of_texts_of_two_lengths_is_that_of_tokens_per_second(plain, fast, speedup):
    runs = [Run(None, None, [1] * n, [], seconds) for n, seconds in (plain, fast)]
    found = speedups(task_of_target([2]), *runs, alpha=None)
    assert found["speedup_measured"] == found["speedup_with_prompt"] == speedup


def test_a_speedup_that_one_round_leaves_unknown_has_its_reason(clock):
    assert "-  (a text ended in its first round)" in comparison_in_words(
        run_figures(clock, N=8, K=20, x=(4,)), parse_args([]))


@pytest.mark.parametrize("flags, speedup, tip", [
    ("", 2.0, "--trace run.html, and open run.html"), ("--trace run.html", 2.0, None),
    ("--target ./m --draft 'a b' --models_dir d --decoder block", 0.5,
     "python -m tools.will_it_pay --target ./m --draft 'a b' --models_dir d --decoder block "
     "(other flags do not apply to it), because this was slower than plain decoding")])
def test_the_tip_for_a_slow_run_measures_its_models(flags, speedup, tip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = parse_args(shlex.split(flags))
    assert next_step({"speedup_measured": speedup}, args) == tip


def test_the_judges_command_has_the_temperature_0_that_was_given():
    for flags in ("", "--temperature 1", "--temperature 0"):
        args = parse_args(shlex.split(flags))
        args.decoder = "my rule.py"
        given = " --temperature 0" * flags.endswith(" 0")
        assert judge_command(args) == f"python -m exact.judge 'my rule.py'{given}"


def test_a_target_that_ends_by_itself_is_named_with_the_way_to_chat(clock):
    """The stop token 3 is the first token of both texts."""
    got = run_figures(clock, stop={3})
    ended = "The target ended its text after 1 token (end of text)."
    said = comparison_in_words(got, parse_args([]))
    assert ended in said and "--chat" not in said
    has_chats = got | {"has_chats": True}
    assert "To chat: --chat TEXT" in comparison_in_words(has_chats, parse_args([]))
    assert "--chat" not in comparison_in_words(has_chats, parse_args(["--chat", "Hi"]))
    assert ended not in comparison_in_words(got, parse_args(["--stop", "a"]))  # as was asked
    assert ended not in comparison_in_words(run_figures(clock, N=1), parse_args([]))


@pytest.mark.parametrize("lenience, is_exact", [(0.5, False), (1.0, True)])
def test_a_run_says_whether_its_method_is_exact(clock, lenience, is_exact):
    got = run_figures(clock, "lenient", lenience=lenience, N=4)
    said = comparison_in_words(got, parse_args(["--decoder", "lenient"]))
    assert got["exact"] == is_exact != ("This method is not exact" in said)
    in_int8 = comparison_in_words(got, parse_args(["--decoder", "lenient", "--dtype", "int8"]))
    assert "rounded to int8" in in_int8 and "int8" not in said


# ---- costs

def model_of_rows(clock, seconds_per_row, slow_calls=()):
    """Return a model that computes as many rows as GPT2; slow calls take 5 times longer."""
    read = []
    calls = count()

    def model(ids, n_last=1):
        n_past = min(common_prefix(read, ids), len(ids) - n_last)
        factor = 5.0 if next(calls) in slow_calls else 1.0
        clock.now += factor * seconds_per_row * (len(ids) - n_past)
        read[:] = ids

    return model


def measured(clock, draft_row, target_row, ids, n_rows, slow_calls=()):
    """Return the costs of two models with these seconds per row."""
    models = model_of_rows(clock, draft_row), model_of_rows(clock, target_row, slow_calls)
    return measure_costs(*models, ids, n_rows)


@pytest.mark.parametrize("ids", [[0], [0] * 30])
@pytest.mark.parametrize("n_rows", [1, 4, 9])
def test_a_pass_costs_its_new_rows_and_neither_the_text_nor_a_slow_turn_matters(
        clock, ids, n_rows):
    first_turn = range(1, 1 + n_rows)  # call 0 reads the text
    costs = measured(clock, 1e-4, 4e-4, ids, n_rows, slow_calls=first_turn)
    assert costs.draft == approx(1e-4)
    assert costs.passes == approx([4e-4 * n for n in range(1, n_rows + 1)])


def test_slow_models_are_measured_once(clock):
    measured(clock, SECONDS, SECONDS, [0] * 9, 3)
    assert clock.now == approx(SECONDS * (9 + 9 + 1 + 1 + 2 + 3))


def test_the_seconds_of_measuring_are_counted_and_shown(clock):
    got = run_figures(clock, K="auto", N=30, x=(4,))  # the draft is right: 8 guesses, 9 tokens
    measuring = 1 + 11 + 1 + sum(10 + n for n in range(1, 10))  # read the text; one of each
    assert_figures(got, measuring_s=measuring,
                   costs={"draft": 1.0, "passes": [10.0 + n for n in range(1, 10)]})
    passes = got["target_passes"]
    rows = passes * got["rows_per_target_pass"]
    decoding = 10 * passes + rows + (rows - passes)  # all rows but one a pass are for guesses
    assert got["speculative"]["time_s"] == measuring + decoding
    printed = comparison_in_words(got, parse_args([]))
    assert f"of which measuring          -   {measuring:.2f} s" in printed


def test_costs_that_are_given_are_not_measured():
    got = main.both_decoders(loaded_task("--K", "auto", "--costs", "0.1,1,1.1,1.2,1.3",
                                         "--n_tokens_to_generate", 20))
    assert "measuring_s" not in got


# ---- where two greedy texts part

def task_of_target(x, **sampling):
    """Return a greedy task of the target alone."""
    models = Models(None, Counting(Clock(), False), {"temperature": 0.0, **sampling})
    return Task(None, models, DECODERS["speculative"], {}, set(), N=9, seed=0, n_ctx=99, x=x)


def test_the_first_difference_is_between_the_logits_that_greedy_decoding_compared():
    task = task_of_target([2, 4], repetition_penalty=1.6)
    # after 3 comes 4, which was there before, by 40 / 1.6 = 25, and 8 by 20
    got = parting_of_texts(task, [3, 4], [3, 8])
    assert got == {"token": 1, "gap_of_the_two_best_logits": 5.0}


def test_a_token_that_is_the_only_one_has_no_gap_in_json():
    task = task_of_target([2])._replace(models=Models(
        None, lambda ids, n_last=1: np.array([[-np.inf, 0.0]]), {}))
    assert parting_of_texts(task, [1], [0])["gap_of_the_two_best_logits"] is None


def test_a_text_that_ends_earlier_than_the_other_is_not_identical():
    task = task_of_target([2])
    ends_at_1 = {"identical": False,
                 "first_difference": {"token": 1, "gap_of_the_two_best_logits": 20.0}}
    assert difference_of_texts(task, [3, 4], [3]) == ends_at_1
    assert difference_of_texts(task, [3], [3, 4]) == ends_at_1
    assert difference_of_texts(task, [3, 4], [3, 4]) == {"identical": True}


# ---- one model given twice

def loaded_task(*flags):
    """Return the Task of these flags."""
    return load_task(parse_args([*map(str, flags)]))


def test_weights_that_are_the_same_are_read_and_kept_once(tmp_path):
    (tmp_path / "link").symlink_to(MODELS_DIR / "tales-small")
    (tmp_path / "tales-small").symlink_to(MODELS_DIR / "tales-small")
    for draft in ("tales-small", "link"):
        task = loaded_task("--models_dir", tmp_path, "--draft_model_size", draft,
                           "--target_model_size", "tales-small")
        draft, target, *_ = task.models
        assert draft.params is target.params
        assert draft is not target and draft.cache is not target.cache


# ---- what is shown

def test_the_seconds_in_which_rounds_are_shown_are_no_part_of_the_run(clock):
    """Rounds of 4, 4 and 2 rows take 14, 14 and 12 s and, for their guesses, 3, 3 and 1 s."""
    ends = []

    def show(seen):
        clock.now += 1000
        ends.append(seen["end"])

    shown = run_figures(clock, K=3, N=8, on_seen=show)
    assert ends == [17, 34, 47] and shown["speculative"]["time_s"] == 47


# ---- the text on which costs are measured

@pytest.mark.parametrize("ids, read", [
    ([1, 2, 3], [1, 2, 3, 1, 2]), ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6])])
def test_costs_are_measured_on_the_text_itself_repeated_if_it_is_short(ids, read):
    calls = []
    model = lambda ids, n_last: calls.append((n_last, ids))
    measure_costs(model, model, ids, n_rows=5)
    assert all(called == read for _, called in calls)
    assert {n_last for n_last, _ in calls} == {1, 2, 3, 4, 5}
