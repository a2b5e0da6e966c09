"""docs/wild.md: every rule is as far from the target as the page says, and no figure is typed."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from speculative import complete
from exact import rules
from exact.law import law, total_variation
from exact.rules import BY_NAME, RULES, TOYS, X, find
from tools.readme import TABLE

PAGE = (Path(rules.__file__).parents[1] / "docs" / "wild.md").read_text(encoding="utf-8")
CASES = [*((toy, K) for toy in TOYS for K in (1, 2)), ("A", 3)]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.exact], ids=lambda rule: rule.name)
def test_an_exact_rule_has_the_targets_distribution_to_the_last_bit(rule):
    assert {find(rule.name, *case).distance for case in CASES} == {0}


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.exact],
                         ids=lambda rule: rule.name)
def test_a_wrong_rule_has_another_distribution_on_every_toy_it_is_shown_to_fail_on(rule):
    distances = {toy: [find(rule.name, toy, K).distance for K in (1, 2, 3)] for toy in TOYS}
    assert all(distances["A"][1:]) and all(distances["B"][1:])
    one_guess_is_no_test = ("one uniform", "traversal")
    assert bool(distances["A"][0]) != rule.name.startswith(one_guess_is_no_test)


@pytest.mark.parametrize("command, quoted", [
    pytest.param(match[3], match[4], id=match[3]) for match in TABLE.finditer(PAGE)])
def test_the_pages_tables_are_enumerated(command, quoted, capsys):
    rules.main(command.split()[3:])
    assert capsys.readouterr().out.rstrip("\n") == quoted


def test_the_page_has_all_four_tables_and_names_every_rule_once_in_the_first():
    assert len(list(TABLE.finditer(PAGE))) == len(rules.TABLES)
    assert len(RULES) == len(BY_NAME) >= 14
    for rule in RULES:
        assert rules.rules_table().count(f"| {rule.name} |") == 1


def test_who_meets_a_rule_is_a_paper_or_a_thread():
    for rule in RULES:
        links = re.findall(r"\]\((.*?)\)", rule.seen)
        assert all(re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{5}|"
                                r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link)
                   for link in links) and bool(links) == bool(rule.seen)


def test_the_distance_round_by_round_is_that_of_the_whole_text():
    draft, target = TOYS["B"]
    for rule in RULES[2::8]:
        def step(x, n_left, rng, rule=rule):
            guess = lambda x, k, rng: rule.guess(x, k, rng, draft)
            return rule.step(x, n_left, rng, target, 2, guess, rule.verify)
        texts = law(lambda rng, step=step: complete(list(X), step, 3, rng))
        assert texts == rules.written(rule.name, "B", X, 3)


# ---- distances by hand, K = 1: the first token's, for the second is the target's own

def first_rows(toy):
    return (model([0])[0] for model in TOYS[toy])


def tv(got, p):
    return abs(got - p).sum() / 2


@pytest.mark.parametrize("toy", TOYS)
def test_the_distances_of_one_guess_are_the_closed_forms(toy):
    q, p = first_rows(toy)
    both = np.minimum(p, q)
    assert find("ratio test, then a draw from the target", toy, 1).distance == tv(
        both + (1 - both.sum()) * p, p)
    assert find("match, then a fresh draw; guesses drawn", toy, 1).distance == tv(
        q * p + (1 - p @ q) * p, p)
    best = rules.one_hot(np.argmax(q))
    ratio = min(1, (p @ best) / (q @ best))
    surplus = np.maximum(p - q, 0)
    assert find("argmax guesses, softmax rows", toy, 1).distance == tv(
        ratio * best + (1 - ratio) * surplus / surplus.sum(), p)
    kept = q * (p >= q)
    assert find("keep if p_target >= p_draft", toy, 1).distance == tv(
        kept + (1 - kept.sum()) * surplus / surplus.sum(), p)


# ---- the three sentences at the head of the page

@pytest.mark.parametrize("guess", [rules.guess, rules.best, rules.best_as_drawn, rules.beam,
                                   rules.colder, rules.colder_unsaid, rules.stop_before])
@pytest.mark.parametrize("verify", [rules.q_is_one, rules.match_verify])
def test_any_proposal_may_be_tested_as_one_hot(guess, verify, monkeypatch):
    monkeypatch.setitem(BY_NAME, "any", rules.Rule("any", guess, verify, True))
    rules.round_of.cache_clear()
    texts = rules.written("any", "A", X, 3)
    rules.round_of.cache_clear()
    assert total_variation(texts, rules.text_law(X, TOYS["A"][1], 3)) == 0


def test_with_match_an_argmax_guess_is_kept_more_often_where_both_like_the_same_token():
    tokens = lambda name, toy: find(name, toy, 1).tokens - 1
    for toy, better in (("A", True), ("B", False)):
        q, p = first_rows(toy)
        assert (np.argmax(q) == np.argmax(p)) == better
        drawn, best = tokens("match; guesses drawn", toy), tokens("match; argmax guesses", toy)
        assert drawn == p @ q and best == p[np.argmax(q)] and (best > drawn) == better
        assert drawn <= find("ratio test, residual; guesses drawn", toy, 1).tokens - 1


def test_a_guess_may_be_dropped_only_by_a_rule_that_does_not_look_at_it():
    names = ["stop before drawing where the row is unsure", "drop an unsure guess; guesses drawn",
             "drop an unsure guess; argmax, one-hot rows"]
    assert [bool(find(name, "A", 2).distance) for name in names] == [False, True, False]


def test_what_is_too_likely_is_counted_per_position():
    found = find("ratio test, then a draw from the target", "A", 1)
    q, p = first_rows("A")
    got = np.minimum(p, q) + (1 - np.minimum(p, q).sum()) * p
    second = sum(p1 * TOYS["A"][1]([token])[0] for token, p1 in enumerate(got - p))
    assert list((got - p + second) / 2) == found.excess and sum(found.excess) == 0
    assert rules.too_likely([Fraction(1, 4), Fraction(-1, 2), Fraction(1, 4)]) == (
        "0 (+0.250), 2 (+0.250)")
