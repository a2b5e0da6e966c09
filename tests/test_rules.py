"""docs/wild_tables.md: every rule is as far from the target as it says; no figure is typed."""

from fractions import Fraction
from functools import partial
from itertools import product
from math import comb

import numpy as np
import pytest

from exact import toys
from exact.law import completed, law, text_law, total_variation
from exact.rules import __main__ as tables
from exact.rules import guesses as ways
from exact.rules import register, settings, verifiers
from exact.rules.register import BY_ID, RULES, enumerated_rule
from exact.rules.settings import enumerated_setting
from exact.toys import TOYS, X, one_hot
from sampling import residual, sample
from speculative import guess, speculative_step
from tests.commands import outcome
from tests.distributions import surprise
from tests.pages import file_text, output

PAGE = file_text("docs/wild_tables.md")
ROUNDING = 1e-12  # of the one rule that is computed in floats


def distance(rule_id, toy, K):
    """Return how far what a rule writes is from the target's distribution."""
    return enumerated_rule(BY_ID[rule_id], toy, K).distance


ONE_GUESS = "A1 B1 C1"  # toy and K
CASES = f"{ONE_GUESS} A2 A3"
# {a wrong rule: the cases in which it has the target's distribution}; other wrong rules have none
RIGHT_IN = {
    # on how several guesses are tested together
    **dict.fromkeys(["one-uniform", "drafts-rest", "last-uncapped", "capped-at-maxima",
                     "plan-ratio"], ONE_GUESS),
    "paths-kept": "A1 B1 C1 A2",
    "next-rows": "B1",
    # on what toy C, whose rows have zeros, does not show
    **dict.fromkeys(["hard-ratio-draw", "half-best-draw", "best-two-guesses", "common-tokens",
                     "last-row-bonus", "one-gumbel", "one-uniform-twice", "drop-ratio",
                     "match-per-path"], "C1"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_the_targets_distribution_in_all_cases_only_if_it_is_exact(rule):
    cases = f"{CASES} B2 C2" if rule.exact else CASES
    distances = {case: distance(rule.id, case[0], int(case[1])) for case in cases.split()}
    if rule.exact:
        assert {*distances.values()} == {0}
    else:
        right_in = [case for case in distances if distances[case] < ROUNDING]
        assert right_in == RIGHT_IN.get(rule.id, "").split()


@pytest.mark.parametrize("rule", settings.SETTINGS, ids=lambda rule: rule.id)
def test_a_setting_is_exact_if_each_row_is_warped_for_the_tokens_before_it(rule):
    """On toy B; the page has toy A, for K = 1, 2 and 3."""
    assert (enumerated_setting(rule, "B", 2 if rule.exact else 1).distance == 0) == rule.exact


def printed(*words):
    """Return what the command prints."""
    status, out, _ = outcome(tables.main, *words)
    assert status == 0
    return out


def test_the_pages_tables_are_what_the_command_enumerates():
    assert register.EXACT_RULES == [rule for rule in RULES if rule.exact]
    assert len(RULES) == len(BY_ID)
    assert len(settings.SETTINGS) == len({rule.id for rule in settings.SETTINGS})
    tables_of_groups = printed().split("\n\n")
    for group, table in zip(register.GROUPS, tables_of_groups, strict=True):
        assert output(PAGE, f'exact.rules --group "{group}"') == table.strip()
    assert printed("--group", group) == table
    assert output(PAGE, "exact.rules --public") == printed("--public").strip()
    assert toys.toys_table() in PAGE


@pytest.mark.weekly
def test_the_pages_table_of_settings_is_enumerated():
    """On toy A; the test of settings above is on B and C."""
    assert output(PAGE, "exact.rules --settings") == printed("--settings").strip()


def test_what_was_called_inexact_is_exact_and_is_linked_from_the_page():
    for rule_id, links in register.DOUBTS.items():
        assert BY_ID[rule_id].exact and all(f"doubted in {where}" in PAGE for where in links)


@pytest.mark.parametrize("word, flags, names", [
    ("TRAVERSAL", (), 2), ("MINIMUM length: counted in t", ("--settings",), 1)])
def test_the_command_shows_the_rules_with_a_word_on_every_toy(word, flags, names):
    _, _, *rows = printed(*flags, word).splitlines()
    assert len(rows) == 3 * names
    assert all(word.lower() in row.lower() for row in rows)


def test_a_text_that_the_target_cannot_write_shows_a_rule():
    """By hand: one text in four is impossible, so n texts show none with probability 0.75^n."""
    def texts_needed(texts):
        return tables.texts_needed(toys.Found("C", 3, texts, wanted={"possible": Fraction(1)}))

    quarter = Fraction(1, 4)
    assert texts_needed({"possible": 1 - quarter, "impossible": quarter}) == "49"
    assert 0.75**49 < tables.ERROR < 0.75**48
    assert texts_needed({"impossible": Fraction(1)}) == "1"
    assert texts_needed({"possible": Fraction(1)}) == "-"


def test_so_many_texts_are_enough_whatever_their_source_is():
    """By hand: the least a(s) is that of s = 1/2, because the source's .4 and .6 are swapped."""
    texts = {"a": Fraction(2, 5), "b": Fraction(3, 5)}
    found = toys.Found("C", 3, texts, wanted={"a": texts["b"], "b": texts["a"]})
    n = int(tables.texts_needed(found))
    affinity = 2 * 0.24**0.5  # sum of the roots of .4 * .6
    assert affinity**n <= tables.ERROR < affinity ** (n - 1)
    # of n texts the likelier source is the one of their more frequent text
    mistakes = sum(comb(n, i) * 0.6**i * 0.4 ** (n - i) for i in range((n + 1) // 2))
    assert 2 * mistakes < tables.ERROR


# ---- distances by hand, K = 1: only the first token can be wrong, the target draws the second

# q is the draft's row, p the target's

def first_rows(toy):
    """Return q and p of the first token."""
    draft, target = TOYS[toy]
    return draft([0])[0], target([0])[0]


def tv(accepted, replacement, p):
    """Return the distance of one token that is an accepted guess or a replacement.

    accepted       [n_vocab], the probability that a token is guessed and accepted
    replacement    [n_vocab], the distribution that replaces a rejected guess
    """
    token = accepted + (1 - accepted.sum()) * replacement
    return abs(token - p).sum() / 2


@pytest.mark.parametrize("toy", TOYS)
def test_the_distances_of_one_guess_are_the_closed_forms(toy):
    q, p = first_rows(toy)
    rest = residual(p, q)
    best = one_hot(np.argmax(q))
    ratio_of_best = min(1, (p @ best) / (q @ best))
    for rule_id, accepted, replacement in [
            ("target-draw", np.minimum(p, q), p),
            ("match-redraw", q * p, p),
            ("argmax-softmax-rows", ratio_of_best * best, rest),
            ("hard-ratio", q * (p >= q), rest)]:
        assert distance(rule_id, toy, 1) == tv(accepted, replacement, p)
    weights = np.exp(np.maximum(p - q, 0).astype(float))  # of the softmax of the residual
    assert float(distance("softmax-residual", toy, 1)) == pytest.approx(
        float(tv(np.minimum(p, q), weights / weights.sum(), p)))


def test_two_races_with_the_same_numbers_are_as_the_integral_says():
    """On toy B a guess of token 0 may be rejected, and tokens 1 and 2 have a surplus.

    The frequency of token 2 differs from a right probability with a probability of at most 1e-9.
    """
    q, p = first_rows("B")
    rest = residual(p, q)
    row = verifiers.from_same_race(0, p, q, None)
    assert row.sum() == 1 and row[0] == 0
    # of 200,000 races those that token 0 wins are run again with the residual's rates
    numbers = np.random.default_rng(0).exponential(size=(200_000, 3))
    of_token_0 = numbers[np.argmin(numbers / q.astype(float), axis=1) == 0]
    is_token_2 = np.argmin(of_token_0[:, 1:] / rest[1:].astype(float), axis=1)
    differs = [surprise(len(is_token_2), np.mean(is_token_2), float(p_of_2)) > np.log(2 / 1e-9)
               for p_of_2 in (row[2], rest[2])]
    assert differs == [False, True]
    assert distance("one-gumbel", "B", 1) == tv(np.minimum(p, q), row, p)


@pytest.mark.parametrize("parts, texts", [(1, "1,062"), (2, "4,449"), (4, "18,130")])
def test_the_closer_the_draft_the_more_texts_show_a_fault(parts, texts, monkeypatch):
    """A draft's row is its old row plus parts - 1 target's rows, divided by parts."""
    draft, target = TOYS["A"]

    def nearer(ids, n_last=1):
        return (draft(ids, n_last) + (parts - 1) * target(ids, n_last)) / parts

    monkeypatch.setitem(TOYS, f"A/{parts}", (nearer, target))
    found = enumerated_rule(BY_ID["target-draw"], f"A/{parts}", 3)
    assert tables.texts_needed(found) == texts and f" {texts}" in PAGE.replace("(", " ")


def test_the_erratum_of_clay_has_its_distances():
    for K, number in ((1, "one guess"), (3, "three guesses")):
        words = f"{float(distance('target-draw', 'A', K)):.4f} with {number}"
        assert words in file_text("docs/papers.md")


def test_a_row_in_bfloat16_has_eight_bits():
    row = ways.in_bfloat16([Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(0)])
    assert row.tolist() == [Fraction(171, 512), Fraction(1, 2), Fraction(171, 256), 0]


# ---- random numbers that several texts or tokens share

def test_texts_that_share_all_numbers_are_each_exact_and_not_independent():
    """The distance of two equal texts from two independent ones, which are equal by chance."""
    _, target = TOYS["A"]
    for n, by_hand in ((1, 0.56), (2, 0.8064), (3, 0.9148)):
        apart = 1 - sum(p**2 for p in text_law(X, target, n).values())
        assert round(float(apart), 4) == by_hand and str(by_hand) in PAGE


def test_numbers_that_the_last_token_decides_repeat_with_it():
    """If the last token was in the text before, the token that followed it then is repeated."""
    _, target = TOYS["A"]

    def keyed(ids, n_last=1):
        *before, last = ids
        if last in before:
            return [one_hot(ids[before.index(last) + 1])]
        return target([last], 1)

    for n, by_hand in ((2, 0.16), (3, 0.512), (4, 0.7488), (5, 0.8634)):
        apart = total_variation(text_law(X, keyed, n), text_law(X, target, n))
        assert round(float(apart), 4) == by_hand and str(by_hand) in PAGE


# ---- statements of the page

def test_a_guess_and_its_test_must_not_share_a_number():
    """Enumerated with the number itself: the guess by inverse CDF, then u < p_target."""
    def first_token(rng, q, p):
        u = rng.random()
        token = int(np.argmax(u < np.cumsum(q)))
        return token if u < p[token] else sample(residual(p, one_hot(token)), rng)

    for toy, by_hand in (("A", 0.2), ("B", 0.0971), ("C", 0.08)):
        q, p = first_rows(toy)
        got = law(partial(first_token, q=q, p=p))
        found = distance("guess-number", toy, 1)
        assert total_variation(got, dict(enumerate(p))) == found
        assert float(found) == pytest.approx(by_hand, abs=5e-5)


@pytest.mark.parametrize("toy", TOYS)
def test_every_stopping_time_of_two_guesses_is_exact(toy):
    """Whether the first guess is tested, and the second after each of the three first guesses."""
    draft, target = TOYS[toy]
    for first, *second_after in product((True, False), repeat=4):
        def guess_while(x, k, rng, first=first, second_after=second_after):
            guesses, p_draft = guess(x, k, rng, draft)
            n = 1 + second_after[guesses[0]] if first else 0
            return guesses[:n], p_draft[:n]

        one_round = law(lambda rng, guess_while=guess_while: speculative_step(
            [0], 3, rng, target, 2, guess_while).ids)
        assert completed(one_round, [0], target, 3) == text_law([0], target, 3)
