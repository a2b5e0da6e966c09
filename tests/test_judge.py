"""Test the judge: right answers pass, wrong ones are shown, what cannot be judged is refused."""

import inspect
import itertools
import os
import re
import signal
import subprocess
import sys
import types
from functools import partial

import numpy as np
import pytest

from exact import judge, rule_file
from exact.rules.register import BY_ID, RULES, enumerated_rule, rule_step
from tests import commands
from tests.commands import DEFAULT_CTRL_C, outcome, until, write_package
from tests.pages import ROOT, code, file_text
from variants.tree import verify_tree

RIGHT = """
from sampling import accept, residual, sample

def verify(guesses, p_draft, p_target, rng):
    for t, token in enumerate(guesses):
        if not accept(min(1, p_target[t][token] / p_draft[t][token]), rng):
            return guesses[:t] + [sample(residual(p_target[t], p_draft[t]), rng)]
    return guesses + [sample(p_target[-1], rng)]
"""
STEP = """
from sampling import sample

def step(x, n_left, rng, draft, target, K):
    ids = []
    while len(ids) < min(n_left, K + 1):
        guess = int(draft(x + ids)[0].argmax())
        ids.append(sample(target(x + ids)[0], rng))
        if ids[-1] != guess:
            break
    return ids
"""
TENSORS = """
import torch
from sampling import residual, sample

def verify(guesses, p_draft, p_target, rng):
    k = len(guesses)
    ratios = [p_target[t][token] / p_draft[t][token] for t, token in enumerate(guesses)]
    bounds = torch.tensor(ratios, dtype=torch.float64)
    accepted = torch.as_tensor(rng.random(k) < bounds)
    n = int(accepted.int().cumprod(0).sum())
    row = residual(p_target[n], p_draft[n]) if n < k else p_target[-1]
    return torch.tensor([*guesses[:n], sample(torch.tensor(row), rng)])
"""
RATIO = "min(1, p_target[t][token] / p_draft[t][token])"
RESIDUAL = "residual(p_target[t], p_draft[t])"
VERIFY = "def verify(g, q, p, rng): "


written = partial(commands.written, name="answer.py")


@pytest.fixture
def said_of_all(tmp_path):
    """Return a function that judges a file with this text: (status, output)."""
    def judged(text, **limits):
        path = written(tmp_path, text)
        status, out, _ = outcome(lambda words: judge.answer(*words, **limits), path)
        return status, out

    return judged


@pytest.fixture
def said(said_of_all, monkeypatch):
    """Return a function that judges a file with this text on few toys: (status, output)."""
    monkeypatch.setattr(judge, "FOR_VERIFY", {name: judge.FOR_VERIFY[name] for name in "AC"})
    monkeypatch.setattr(judge, "BY_ROUNDS", judge.MARKOV)
    monkeypatch.setattr(judge, "FOR_STEP", {"D": judge.D})
    return said_of_all


@pytest.mark.parametrize("text, toys", [(RIGHT, judge.FOR_VERIFY), (STEP, judge.FOR_STEP)])
def test_right_answers_are_exact_on_every_toy(said_of_all, text, toys):
    status, out = said_of_all(text)
    for name in toys:
        assert re.search(f"^toy {name}: exact for K = 1(, 2|, 2, 3)? and [234], ", out, re.M)
    verdict = "The distribution is the target's in all of these cases.\n"
    assert status == 0 and out.endswith(f"{verdict}{judge.NOT_ENUMERATED}\n")


def test_the_extreme_toys_are_explained_whichever_is_left(capsys):
    judge.print_toys(judge.judged_step(None).with_guesses(3))
    assert capsys.readouterr().out.count("The extreme toys are TOYS") == 1


SLIGHTLY_WRONG = RIGHT.replace(RATIO, RATIO.replace("p_target", "1.0001 * p_target", 1))
ONE_UNIFORM = "    accept = lambda prob, rng, u=rng.random(): u < prob\n"
ROUNDED = "import numpy as np" + RIGHT.replace(RATIO, f"np.float32({RATIO})")


@pytest.mark.parametrize("text, K, distance", [
    (SLIGHTLY_WRONG, 1, "2e-05"),
    # the third guess is tested by a wrong ratio
    (RIGHT.replace(RATIO, f"{RATIO} if t < 2 else p_target[t][token]"), 3, "0."),
    (RIGHT.replace("    for t", f"{ONE_UNIFORM}    for t"), 2, "0.04"),
])
def test_a_fault_is_shown_where_it_happens(said, text, K, distance):
    status, out = said(text)
    assert text != RIGHT and status == 1 and f"toy A, K = {K}: total variation {distance}" in out
    assert out.count("<- too high by") == 1


def test_the_first_difference_that_the_printed_digits_show_is_shown(said):
    """The first token is wrong by 1e-9, and the second one visibly."""
    factor = "(1 - 1e-9 if t == 0 else .5) ** (len(guesses) > 1)"
    text = RIGHT.replace(RATIO, f"{RATIO} * {factor}")
    status, out = said(text)
    where, _, *alternatives = out.splitlines()[-5:]
    assert status == 1 and where.startswith("toy A, K = 2: total variation 0.")
    assert all(re.match(r"  \[\d, \d\] ", line) for line in alternatives)


def test_the_token_with_the_largest_excess_is_shown(said):
    """The target has .2 .6 .2: token 1 exceeds it by .1, and token 0 by the larger factor."""
    row = "[0.28, 0.7, 0.02]"
    status, out = said(f"from sampling import sample\n{VERIFY}return [sample({row}, rng)]")
    assert status == 1 and "  [1]                      0.7000    0.6000   <- too high by 0.1" in out


def test_a_step_is_judged_where_both_are_functions(said):
    assert said(f"{RIGHT}\ndef step(x, n_left, rng, draft, target, K): return [0]")[0] == 1
    status, out = said(f"{STEP}\n{VERIFY}return [0]")
    assert status == 0
    assert out.endswith("\nOnly step was judged; verify only where step calls them.\n")
    assert "Only step" not in said(f"{STEP}\nfrom speculative import verify, guess")[1]
    assert said(f"{RIGHT}\nstep = None")[0] == 0
    # a helper beside a step may have any arguments
    assert said(f"{STEP}\ndef verify(tree): pass")[0] == 0


OWN_DECODER = """
from functools import partial
from sampling import with_sampling
from speculative import guess, make_step, verify
from variants.registry import GUESSES, Decoder

def build(models, K: GUESSES = 4):
    asked = [0]  # texts of this step: a step that is kept for a second text is refused
    step = make_step({target}, K, partial(guess, draft=models.draft_rows), models.test)
    def once(x, n_left, rng):
        asked[0] += len(x) == 1
        assert asked[0] == 1, "need a new step for each text"
        return step(x, n_left, rng)
    return once

DECODER = Decoder("mine", "", "", idea="", guess=guess, test=verify, build=build)
"""

WITHOUT = ("with_sampling(models.target, **{{key: value for key, value in "
           "models.sampling.items() if key != '{name}'}})")


@pytest.mark.parametrize("target, status, words", [
    ("models.target_rows", 0, "with temperature 0.5 and top_k 2:\ntoy D: exact for K = 2"),
    # one setting is forgotten
    (WITHOUT.format(name="top_p"), 1, "top_p 0.65:\ntoy D, K = 2: total "),
    (WITHOUT.format(name="repetition_penalty"), 1, "penalty 4:\ntoy D, K = 2: total "),
    (WITHOUT.format(name="temperature"), 1, "top_k 2:\ntoy D, K = 2: total variation"),
    (WITHOUT.format(name="top_k"), 1, "top_k 2:\ntoy D, K = 2: total variation")])
def test_a_decoder_is_judged_by_the_steps_that_it_builds_for_each_text(said, target, status, words):
    found, out = said(OWN_DECODER.format(target=target), K=2, N=3)
    assert found == status and words in out


def test_a_decoder_is_built_for_temperature_0(said):
    right = OWN_DECODER.format(target="models.target_rows")
    assert said(right, temperature=0)[0] == 0
    without = OWN_DECODER.format(target=WITHOUT.format(name="repetition_penalty"))
    assert said(without, temperature=0)[0] == 1
    # a greedy decoder is never judged at other temperatures
    status, out = said(right + "DECODER = DECODER._replace(greedy=True)")
    assert status == 0 and "The distribution is the target's at temperature 0 in all" in out
    assert "penalty 4:\ntoy D: exact for K = 2, " in out  # without --K


def test_a_decoder_without_K_is_judged_without_K(said):
    text = OWN_DECODER.format(target="models.target_rows")
    text = text.replace(", K: GUESSES = 4", "").replace(", K, partial", ", 2, partial")
    status, out = said(text, N=3)
    assert status == 0 and re.search("^toy D: exact, .* tokens$", out, re.M)
    wrong = text.replace("models.target_rows", "with_sampling(models.target, temperature=3)")
    status, out = said(wrong, N=3)
    assert status == 1 and "\ntoy D: total variation" in out
    status, out = said(text, K=5)
    assert status == 2 and "leave out --K, because the DECODER's build has no K" in out


def test_of_a_decoder_with_heads_the_test_alone_is_judged_and_the_last_line_says_so(said):
    """Its other names are not: a decoder may import a verify that it does not test with."""
    entry = "from variants.eagle import DECODER"
    status, out = said(f"{entry}\n{VERIFY}return [0]\ndef step(*args): return [0]")
    assert status == 0 and out.endswith("\nOnly the DECODER's test was judged, verify; how the "
                                        "decoder makes its guesses was not.\n")
    assert said(f"{entry}\n{VERIFY}return [0]\nDECODER = DECODER._replace(test=verify)")[0] == 1


# ---- steps, which may read a wrong history

HISTORY = """
import numpy as np
from functools import partial
from speculative import guess, speculative_step

old = []  # what a cache keeps from earlier rounds
full = []  # [True] if the last round accepted all guesses

def step(x, n_left, rng, draft, target, K):
    if len(x) == 1:
        old.clear()
        full.clear()
    def rows(ids, n_last):
        ends = range(len(ids) - n_last + 1, len(ids) + 1)
        return np.array([target({text}, 1)[-1] for end in ends])
    done = speculative_step(x, n_left, rng, rows, K, partial(guess, draft=draft))
    old.extend(done.guesses[done.n_accepted :])
    full[:] = [True] if done.n_accepted == K else []
    return done
"""


def wrong_on_D(folder, text):
    """Return the K for which a file with this text is wrong on toy D."""
    rule = judge.judged_file(written(folder, text))
    return [K for K in (1, 2) if rule.found("D", K).distance > judge.ROUNDING]


@pytest.mark.parametrize("text, wrong_for", [
    ("ids[:end]", []),
    ("ids[1:end] or [0]", [1, 2]),  # a lost prefix
    ("x + old + ids[len(x) : end]", [1, 2]),  # rejected guesses stay in the cache
    ("x + ids[len(x) : end][::-1]", [2]),  # the order of guesses
    ("x[:-2] + ids[len(x) - 1 : end] if full else ids[:end]", [1, 2])])
def test_a_step_that_reads_a_wrong_history_is_not_exact(tmp_path, text, wrong_for):
    """Rows that depend on the last token alone would not show most of these."""
    assert wrong_on_D(tmp_path, HISTORY.format(text=text)) == wrong_for


def test_a_test_that_keeps_a_row_of_the_last_round_is_told(said_of_all, monkeypatch):
    """Rounds that are enumerated alone repeat their rows, so only the whole texts of D show this.

    A guess that is surely rejected is spared: the first of all runs has one, and is repeated.
    """
    stale = """
    old, kept[:] = kept[0], [p_target[0]]
    p_rest = old if p_target[0] @ np.eye(3)[guesses[:1]].sum(0) else p_target[0]
    for t"""
    text = RIGHT.replace("\n    for t", stale)
    text = text.replace("residual(p_target[t]", "residual(p_target[t] if t else p_rest")
    monkeypatch.setattr(judge, "FOR_VERIFY", {name: judge.FOR_VERIFY[name] for name in "CD"})
    status, out = said_of_all("import numpy as np\nkept = [np.ones(3)]" + text)
    assert status == 2 and "toy C: exact" in out and "not deterministic: " in out


def test_a_hidden_generator_that_cannot_be_replaced_gives_no_answer(said):
    """The texts are enumerated again before they are called wrong."""
    own = "import numpy as np\nclass Own: rng = np.random.default_rng(0)"
    draw = f"Own.rng.choice(3, p={RESIDUAL})"
    status, out = said(own + RIGHT.replace(f"sample({RESIDUAL}, rng)", draw))
    assert status == 2 and "not deterministic: " in out


TREE_STEP = file_text("docs/tree_step.py").replace(
    "return [sample(p_target[0], rng)]", "return verify_tree(tree, None, p_target, rng)")
VERIFY_TREE = ("from sampling import accept, residual\n"
               "from variants.shared.branches import row_after\n" + inspect.getsource(verify_tree))


def test_a_tree_whose_nodes_see_their_siblings_is_not_exact_for_any_K(tmp_path):
    text = TREE_STEP + VERIFY_TREE
    # node i reads all nodes before it, as without a mask
    masked = "texts = ids.texts()[-n_last:]"
    unmasked = "texts = [ids.x + ids.tree.tokens[:i] for i in range(len(ids.tree) + 1)][-n_last:]"
    assert masked in text and wrong_on_D(tmp_path, text) == []
    assert wrong_on_D(tmp_path, text.replace(masked, unmasked)) == [1, 2]


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.exact],
                         ids=lambda rule: rule.id)
def test_the_rows_of_steps_show_every_wrong_rule(rule):
    """A step is given fewer guesses than a test, because its whole texts are enumerated."""
    of_steps = judge.judged_step(None).guesses_per_round
    by_rounds = judge.Judged(partial(rule_step, rule), judge.FOR_STEP, judge.FOR_STEP)
    assert not all(by_rounds.is_right(by_rounds.found(name, K))
                   for name in judge.FOR_STEP for K in of_steps(name))


@pytest.mark.parametrize("right, wrong, status", [
    ("", "", 0),
    # the second sibling is tested with the first sibling's row
    ("/ row[token]", "/ tree.guesses_at(node)[0][1][token]", 1),
    # all siblings are tested with the whole distribution
    ("remaining = residual(remaining, row)", "pass", 1)])
def test_wrong_tests_of_siblings_are_seen_on_rows_without_zeros(said_of_all, right, wrong, status):
    """On toys C, equal and D the second of two siblings is always accepted or impossible."""
    assert right in VERIFY_TREE
    assert said_of_all(TREE_STEP + VERIFY_TREE.replace(right, wrong))[0] == status


def test_up_to_four_guesses_are_judged_as_in_main_pys_default_or_K_alone(said):
    wrong = RIGHT.replace(RATIO, f"1 if len(guesses) > 3 else {RATIO}")
    status, out = said(wrong)
    assert status == 1 and "toy C, K = 4: total variation" in out
    status, out = said(wrong, K=5)
    assert status == 1 and "toy C, K = 5: total variation" in out
    status, out = said(wrong, K=2)
    assert status == 0 and "toy A: exact for K = 2, 27 texts of 3 tokens" in out


GUESS_OF_A_LOST_TEXT = """
from sampling import sample
def guess(x, k, rng, draft):
    guesses, rows = [], []
    for t in range(k):
        text = x + guesses if t < 2 else x[:1] + guesses[-1:]
        guesses.append(sample(draft(text)[-1], rng))
        rows.append(draft(x + guesses[:t])[-1])
    return guesses, rows
"""


def test_a_third_guess_that_forgets_the_text_is_seen(said_of_all):
    """Only toy D's rows depend on more than the last token, and only for K = 3 it has a third."""
    rule = RIGHT.replace(RATIO, f"{RATIO} if p_draft[t][token] else 1")
    status, out = said_of_all(GUESS_OF_A_LOST_TEXT + rule)
    assert rule != RIGHT and status == 1 and "toy D, K = 3: total variation 0.17" in out


LATE = STEP.replace("rng))", "rng) if len(x) + len(ids) < 5 else 0)")


def test_N_is_the_number_of_new_tokens_of_a_text(said):
    """The fifth new token is wrong."""
    status, out = said(LATE)
    assert LATE != STEP and status == 0 and re.search("toy D: exact .* texts of 4 tokens", out)
    status, out = said(LATE, N=5, K=1)
    assert status == 1 and "toy D, K = 1: total variation" in out
    # a round of a test cannot have more guesses than tokens are wanted
    status, out = said(RIGHT, N=2, K=2)
    assert status == 0 and re.findall(r"of (\d) tokens", out) == ["3"] * 2 == ["3", "3"]
    assert re.findall(r"of (\d) tokens", said(RIGHT, N=4, K=1)[1]) == ["4", "4"]


# ---- tests that are wrong on extreme rows alone

@pytest.mark.parametrize("special", [
    "p_draft[t][token] == 1", "p_draft[t][token] < 0.002",
    "0 < p_target[t][token] < 0.002 * p_draft[t][token]"])
def test_a_test_that_is_wrong_on_extreme_rows_alone_is_seen_on_the_extreme_toys(tmp_path, special):
    text = RIGHT.replace(RATIO, f"1 if {special} else {RATIO}")
    rule = judge.judged_file(written(tmp_path, text))
    wrong = {name for name in rule.toys if rule.found(name, 2).distance > judge.ROUNDING}
    assert wrong and wrong <= judge.EXTREME.keys()


# ---- settings of the user's engine

BIASED = """
from functools import partial
import numpy as np
from speculative import guess, speculative_step

{names}

def step(x, n_left, rng, draft, target, K):
    def rows(ids, n_last):
        weights = []
        for i, row in enumerate(target(ids, n_last)):
            tokens = ids[1 : len(ids) - n_last + 1 + i]  # the new tokens before this row
            weights.append({weights})
        return np.array([row / row.sum() for row in weights])
    done = speculative_step(x, n_left, rng, rows, K, partial(guess, draft=draft))
    return done.ids{cut}
"""
BIAS = "setting = lambda row, new_tokens: row * [1, 2, .5]"
LENGTH = "setting = lambda row, new_tokens: row * [1, 1, len(new_tokens) >= 2]"
UP_TO_STOP = "[: done.ids.index(2) + 1 if 2 in done.ids else None]"


@pytest.mark.parametrize("names, weights, cut, status", [
    (BIAS, "setting(row, tokens)", "", 0),
    (LENGTH, "setting(row, tokens[:-1])", "", 1),  # a minimum length, one row off
    # a stop that is looked for only at the end of a batch
    ("STOP = 2", "row", "", 1),
    (LENGTH + "; STOP = 2", "setting(row, tokens)", UP_TO_STOP, 0)])
def test_a_step_is_compared_with_the_target_under_the_files_setting(said, names, weights, cut,
                                                                    status):
    found, out = said(BIASED.format(names=names, weights=weights, cut=cut))
    assert found == status
    assert ("The distribution is the target's under the file's setting" in out) == (status == 0)


def test_a_round_may_end_after_the_longest_right_text(said_of_all):
    """With both stop tokens of toy C's first row each right text has one new token."""
    assert said_of_all(BIASED.format(names="STOP = 0, 2", weights="row", cut=""), K=1)[0] == 1


@pytest.mark.parametrize("weights, status", [("setting(row, tokens)", 0), ("row", 1)])
def test_a_toy_without_a_token_under_the_setting_is_left_out(said_of_all, weights, status):
    """The rows of a step that divides by 0 would be NaN on these toys."""
    found, out = said_of_all(BIASED.format(names=LENGTH, weights=weights, cut=""), K=1)
    assert found == status
    assert status or out.endswith("\nNot judged on toy extreme 4, extreme 1, where the file's "
                                  "setting leaves no token after a text.\n")


@pytest.mark.parametrize("names, row, status", [
    ("setting = lambda row, new: row * [3, 1, 1]", "setting(row, ())", 0),
    ("setting = lambda row, new: row * [3, 1, 1]", "row", 1)])
def test_at_temperature_0_a_setting_comes_before_the_choice_of_a_token(said, names, row, status):
    step = STEP.replace("sample(target(x + ids)[0], rng)", "int(row.argmax())")
    step = step.replace("ids.append", f"row = target(x + ids)[0]; row = {row}; ids.append")
    found, out = said(f"{names}\n{step}", temperature=0)
    assert found == status and ("which are not one-hot: it must choose" in out) == (status == 1)


def test_a_setting_may_return_a_list_and_STOP_may_be_a_token_or_several_or_None():
    setting = rule_file.checked_setting(lambda row, new: [1, 0])
    assert setting(np.ones(2), ()).tolist() == [1, 0]
    assert [*map(rule_file.stop_tokens, (2, {2}, None))] == [(2,), (2,), ()]


# ---- greedy verifiers

GREEDY = """
def verify(guesses, p_draft, p_target, rng):
    tokens = [int(row.argmax()) for row in p_target]
    n = 0
    while n < len(guesses) and guesses[n] == tokens[n]:
        n += 1
    return tokens[: n + 1]
"""


def test_a_greedy_test_is_judged_at_temperature_0(said):
    status, out = said(GREEDY)
    rule = BY_ID["greedy-match"]
    assert status == 1 and f"the same figures as {rule.id}: {rule.name} (docs/wild.md)" in out
    assert "it draws no random number, so it can be right for greedy decoding only: " in out
    assert out.endswith("answer.py --temperature 0\n")
    own_guesses = GUESS.format(rows="np.eye(3)[guesses]")
    assert "it draws no random number" in said(own_guesses + GREEDY)[1]
    status, out = said(GREEDY, temperature=0)
    assert status == 0 and "The distribution is the target's at temperature 0 in all" in out
    status, out = said(VERIFY + "return [0]", temperature=0)
    assert status == 1 and "it draws no random number" not in out
    needs_one_hot = "    assert p_target.max() == 1\n    n = 0"
    assert said(GREEDY.replace("    n = 0", needs_one_hot), temperature=0)[0] == 0
    # a test that is right at all temperatures is right at this one, and draws
    assert said(RIGHT, temperature=0)[0] == 0
    assert "it draws" not in said(RIGHT.replace(RESIDUAL, "p_target[t]"))[1]


# ---- names of wrong rules

def test_the_registers_rules_are_told_apart_by_the_cases_of_the_judge():
    """Each pair of wrong rules differs on one of the cases, or in no case at all."""
    texts = {rule.id: [enumerated_rule(rule, *case).texts for case in judge.CASES_OF_RULES]
             for rule in RULES if not rule.exact}
    for a, b in itertools.combinations(texts, 2):
        if texts[a] == texts[b]:
            assert all(enumerated_rule(BY_ID[a], toy, 3).texts ==
                       enumerated_rule(BY_ID[b], toy, 3).texts for toy in "ABC"), (a, b)


def test_a_rule_that_the_register_does_not_have_gets_no_name(said_of_all):
    """On the register's toys it writes the target's texts."""
    certain = RIGHT.replace(RATIO, f"1 if p_draft[t][token] == 1 else {RATIO}")
    status, out = said_of_all(certain)
    assert status == 1 and "toy extreme" in out and "figures" not in out


# ---- the imports of a file

def test_a_verifier_may_live_in_a_package_with_modules_that_have_names_of_ours(tmp_path, capfd):
    path = write_package(tmp_path, ROUNDED.replace("    for t", "    import later\n    for t"))
    (path.parent / "later.py").touch()  # next to the file, imported when verify is called
    flags = ["--K", "1", "--tolerance", "1e-6", "--temperature", "0"]
    assert judge.main([str(path), *flags]) == 0
    out = capfd.readouterr().out
    assert "K = 1, " in out and "the target's at temperature 0 to within 1e-06 (--tol" in out


def test_a_hidden_generator_of_the_package_is_named(tmp_path, capfd):
    path = write_package(tmp_path, RIGHT.replace("    for t", "    utils.flip()\n    for t"))
    with open(tmp_path / "utils.py", "a", encoding="utf-8") as module:
        module.write("from random import random\ndef flip(): return random() < .5")
    assert judge.main([str(path)]) == 2
    assert "random has a hidden generator" in capfd.readouterr().out


GUESS = """
import numpy as np

def guess(x, k, rng, draft):
    guesses = [int(np.argmax(draft(x, 1)[-1]))] * k
    return np.array(guesses, int), {rows}
"""


@pytest.mark.parametrize("rows, status", [("np.eye(3)[guesses]", 0),
                                          ("[draft(x, 1)[-1]] * k", 1)])
def test_guesses_of_a_file_are_judged_with_the_rows_that_they_come_with(said, rows, status):
    """The most probable token is a guess of its one-hot row, and not of the draft's row."""
    text = GUESS.format(rows=rows)
    assert said(text)[0] == said(text + RIGHT)[0] == status


def test_an_error_on_a_later_toy_leaves_a_wrong_rule_wrong(said):
    """On toy A the second guess is accepted untested; on a row with a zero the file fails."""
    untested = f"{RATIO} if t == 0 else int('1' * all(p_target[t]))"  # int('') raises
    status, out = said(RIGHT.replace(RATIO, untested))
    assert status == 1 and "toy A, K = 2: total variation" in out
    assert "answer.py does not run: line 6: ValueError: " in out


def test_the_functions_of_a_file_may_change_their_lists():
    x = [1, 2]
    verify = rule_file.checked_verify(lambda guesses, *others: [guesses.pop()])
    step = rule_file.checked_step(lambda x, *others: [x.pop()])
    guess = rule_file.checked_guess(lambda x, *others: ([x.pop()], [np.ones(3)]))
    assert verify(x, None, np.zeros((3, 3)), None) == [2]
    assert step(x, 1, None, None, None, 1).ids == guess(x, 1, None, None)[0] == [2] and x == [1, 2]


def test_the_page_shows_what_the_judge_says(said):
    _, out = said(RIGHT.replace(RESIDUAL, "p_target[t]"))
    assert out.endswith("\n\n" + code(file_text("docs/exercises.md"), "text"))


@pytest.mark.parametrize("text, message", [
    ("import nothing_of_this_name", "does not run: line 1: ModuleNotFoundError"),
    ("x = 1\ndef verify(", "does not run: line 2: SyntaxError: "),
    ("x = 1", "need a function verify, guess or step"),
    (VERIFY + "return [3]", r"need a list of 1 to 2 tokens of 0 \.\. 2, got \[3\]$"),
    (VERIFY + "return g", r"need a list of 1 token of 0 .. 2, got \[\] \(called .* of a text\)$"),
    (VERIFY + "return [0] if q[0, g[0]] else []", r"\(guesses and p_draft are lists: p_draft\[t\]"),
    ("def guess(x, k, rng, draft): return [0] * k, []",
     r"need a list of up to 1 guesses, and as many rows, got \[0\] and 0 rows$"),
    ("def guess(x, k, rng, draft): return [0] * (k + 1), [draft(x)[0]] * (k + 1)",
     r"up to 1 guesses, and as many rows, got \[0, 0\] and 2 rows$"),
    ("from .inner import verify", "write a file next to the package that imports verify from it"),
    ("def guess(x, k, rng, draft): return [3] * k, [draft(x)[0]] * k",
     r"need guesses of 0 \.\. 2, got 3$"),
    ("def verify(g, q, p): pass", r"need verify\(guesses, .*, rng\), got verify\(g, q, p\)$"),
    ("def verify(g, q, p, uniforms): pass", "for a verify over arrays: python -m exact.oracle"),
    ("DECODER = 3", "need a DECODER with a test"),
    ("from variants.tree import DECODER", "verify_tree, tests a tree of guesses: write a step"),
    ("from variants.lenient import *\nDECODER = DECODER._replace(needs=lambda settings: {'costs'})",
     "lenient_verify, needs lenience: write a function"),
    (VERIFY + "u = rng.random(); u < 0.25; return str(u)", r"got u in \[0, 0.25\)"),
    (VERIFY + "return [1] if rng.random() / 2 < 1 else [2]",
     r"line 1: TypeError: a number of rng is an interval here: it can only be compared, "
     r"u < bound \(write u < p / q, not u \* q < p or log"),
    ("def step(x, n_left, *others): return [0] * (n_left + 1)", r"1 to 2 tokens .*got \[0, 0, 0\]"),
    ("def one(g):\n    return [g[9]]\n" + VERIFY + "return one(g)", "line 2: IndexError"),
    (VERIFY + "raise SystemExit(0)", "does not run: line 1: SystemExit"),
    (VERIFY + "\n    assert rng is None", "does not run: line 2: AssertionError$"),
    ("n = []\n" + VERIFY + "\n    n.append(1)\n    return [len(n) % 3]", "not deterministic"),
    (VERIFY + "\n    while rng.random() < 2: pass", "does not end"),
    (VERIFY + "return [rng.choice(3)]", r"line 1: .*use rng\.random\(\), accept or sample"),
    # a setting without a step, or a wrong one
    (f"{RIGHT}\nSTOP = 2", "setting and STOP say what a step does"),
    (f"{STEP}\nSTOP = 50256", "need STOP among the tokens of the toys, 0, 1 and 2, got 50256"),
    (f"from variants.speculative import DECODER\n{BIAS}", "and STOP say what a step does"),
    (VERIFY + "return [rng.random(dtype='f')]", r"has no dtype or out here, .*: use rng.random"),
    (f"{STEP}\nSTOP = 'x'", "need STOP to be a sequence of token ids"),
    (f"{STEP}\nsetting = lambda row, new: row[:2]", "need a setting that returns 3 weights"),
    (f"{STEP}\nsetting = lambda row, new: row - .1", "setting that returns 3 weights >= 0"),
    (f"{STEP}\nsetting = lambda row, new: 0 * row", r"leaves a token after .* got \[0. 0. 0.\]"),
    (f"{STEP}\nsetting = lambda row, new: row + float('inf')", r"not all 0, got \[inf inf inf\]"),
    (f"{STEP}\nsetting = lambda row: row", r"need setting\(row, new_tokens\), got setting\(row\)"),
    (BIAS, "need a function verify, guess or step"),
])
def test_what_cannot_be_judged_gets_one_line(said, text, message):
    status, out = said(text)
    complaint = out.splitlines()[-1]
    assert status == 2 and re.search(message, complaint) and "answer.py" in complaint


@pytest.mark.parametrize("text, name", [
    ("import numpy as np\n" + VERIFY + "return [np.random.binomial(2, .5)]",
     "numpy.random.binomial"),
    ("from random import randrange as draw\n" + VERIFY + "return [draw(3)]", "draw"),
    ("import numpy as np; RNG = np.random.default_rng(0)\n" + VERIFY + "return [RNG.integers(3)]",
     "RNG"),
    ("import numpy as np; RNG = np.random.RandomState(0)\n" + VERIFY + "return [RNG.randint(3)]",
     "RNG"),
    ("import random\n" + VERIFY + "return [random.getrandbits(1)]", "random.getrandbits"),
    ("import random; draw = random.Random(0).randrange\n" + VERIFY + "return [draw(3)]", "draw"),
])
def test_a_hidden_generator_is_named_with_its_line(said, text, name):
    status, out = said(text)
    assert status == 2
    assert out.endswith("answer.py: line 2: randomness must come from rng alone, but "
                        f"{name} has a hidden generator\n")


def test_a_generator_that_is_imported_and_not_used_is_no_fault(said):
    """Also in a file that defines several functions, whose names are forbidden once."""
    unused = f"import numpy as np\nfrom numpy.random import default_rng\n{GUESS}{RIGHT}"
    assert said(unused.format(rows="np.eye(3)[guesses]"), K=1)[0] == 0


def test_the_packages_below_the_files_folder_keep_their_generators(tmp_path, monkeypatch):
    """As in a project whose folder has the interpreter's packages in .venv."""
    def module(name, file):
        made = types.ModuleType(name)
        made.__file__ = str(tmp_path / file)
        monkeypatch.setitem(sys.modules, name, made)
        return vars(made)

    installed = module("some_package", ".venv/lib/site-packages/some_package.py")
    pythons = module("random", ".venv/lib/python3/random.py")
    own = module("some_module", "src/some_module.py")
    found = rule_file.namespaces(tmp_path / "answer.py", [None])
    assert own in found and installed not in found and pythons not in found


@pytest.mark.parametrize("text", [
    f"import random\nrandom.random(){RIGHT}",
    "import random\nkept = []" + RIGHT.replace("    for t", """
    if not kept:
        kept.append(random.random())
    for t""")])
def test_a_file_and_its_first_call_may_draw_as_the_imports_of_pytorch_do(said, text):
    assert said(text)[0] == 0


def test_a_test_written_for_pytorch_is_judged(said, tmp_path):
    pytest.importorskip("torch")
    rule = judge.judged_file(written(tmp_path, TENSORS))
    assert rule.found("A", 2).distance <= judge.ROUNDING
    _, out = said(TENSORS.replace("rng.random(k)", "torch.ones(k).exponential_()"))
    assert "line 9: randomness must come from rng alone, but torch.Tensor.exponential_ has" in out


def test_the_tolerance_is_stated_and_covers_rounding_only(said):
    status, out = said(ROUNDED)
    assert status == 1
    assert out.endswith("  this is within float32 rounding: --tolerance 1e-06 accepts it\n")
    status, out = said(ROUNDED, tolerance=1e-6)
    assert status == 0
    assert re.search(r"^toy A: total variation \de-0[789] for K = 1, 2 and 3", out, re.M)
    assert "The distribution is the target's to within 1e-06 (--tolerance) in all" in out
    # figures are compared to within rounding, whatever the tolerance is
    status, out = said(RIGHT.replace(RESIDUAL, "p_target[t]"), tolerance=0.15, K=3)
    assert status == 1 and "the same figures as target-draw: " in out
    status, out = said(SLIGHTLY_WRONG, tolerance=1e-6)
    assert status == 1 and "float32" not in out and "figures" not in out


def test_the_command_names_its_file_and_returns_the_judgement(tmp_path, capfd):
    """A thread of the file that goes on does not delay the answer."""
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[999]).start()\n"
    path = written(tmp_path, f"{thread}{VERIFY}return [0]")
    assert judge.main([str(path)]) == 1
    assert "  <- too high by " in capfd.readouterr().out
    written(tmp_path, "while True: pass")
    assert judge.main([str(path), "--seconds", "0.2"]) == 2
    assert capfd.readouterr().out.endswith(
        "still running after 0.2 s: an endless loop, or --seconds must be larger. "
        "Only what is printed above was judged\n")


@pytest.mark.parametrize("name, why", [("", "need a Python file, FILE.py"),
                                       ("answer.txt", "need a Python file, FILE.py"),
                                       ("missing.py", "no such file")])
def test_what_is_no_python_file_is_refused(name, why, tmp_path):
    (tmp_path / "answer.txt").touch()
    status, out, _ = outcome(lambda words: judge.answer(*words), tmp_path / name)
    assert (status, out) == (2, f"{tmp_path / name}: {why}\n")



def test_a_process_that_ends_itself_is_no_answer(tmp_path, capfd):
    assert judge.main([str(written(tmp_path, "import os; os._exit(0)"))]) == 2
    assert "ended its process without an answer (exit status 0)" in capfd.readouterr().out


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_is_one_line(tmp_path):
    """The signal reaches both processes, as from a terminal, once the file runs."""
    started = tmp_path / "started"
    path = written(tmp_path, f"open({str(started)!r}, 'w').close()\nwhile True: pass")
    process = subprocess.Popen([sys.executable, "-m", "exact.judge", str(path)], cwd=ROOT,
                               stderr=subprocess.PIPE, start_new_session=True, text=True,
                               preexec_fn=DEFAULT_CTRL_C)
    until(started.exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "exact.judge: interrupted\n"
    assert process.returncode == 130


def test_a_reader_that_stops_is_no_traceback(tmp_path):
    path = written(tmp_path, RIGHT)
    process = subprocess.Popen([sys.executable, "-m", "exact.judge", str(path)], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() in (0, 2)  # 0: it was faster
    process.stderr.close()


