"""docs/wild.md: every rule is as far from the target as the page says, and no figure is typed."""

from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

from exact import toys
from exact.law import completed, law, text_law, total_variation
from exact.rules import __main__ as tables
from exact.rules import guesses as ways
from exact.rules import register, settings, verifiers
from exact.rules.register import BY_NAME, RULES, enumerated_rule, tokens_per_round
from exact.rules.settings import enumerated_setting
from exact.toys import TOYS, X, one_hot
from sampling import residual, sample
from speculative import complete, guess, make_step, speculative_step
from tests.commands import outcome, refusal
from tests.pages import file_text, output

PAGE = file_text("docs/wild.md")


def distance(name, toy, K):
    """Return how far what a rule writes is from the target's distribution."""
    return enumerated_rule(name, toy, K).distance


# {wrong rules on how several guesses are tested: the fewest guesses with which they are wrong}
FEWEST = {"one uniform for all tests of a round": 2,
          "traversal, divided by what the draft has left": 2,
          "products of ratios and of uniforms, then the residual of one row": 2,
          "block verification, the last product of ratios not capped": 2,
          "the same, the others capped only at a new maximum": 2,
          "the number of guesses that pays best; ratio test": 2,
          "two one-hot paths as blocks, the accepted tokens' probability kept": 3}


# Toy A has all K, as the page does; with one guess only toy C hides a fault that is tested here.
CASES = [("A", 1), ("A", 2), ("A", 3), ("B", 2), ("C", 1), ("C", 2)]


@pytest.mark.parametrize("rule", register.EXACT_RULES, ids=lambda rule: rule.name)
def test_an_exact_rule_has_the_targets_distribution(rule):
    assert rule.exact and not any(distance(rule.name, *case) for case in CASES)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.exact],
                         ids=lambda rule: rule.name)
def test_a_wrong_rule_differs_from_the_targets_distribution(rule):
    fewest = FEWEST.get(rule.name, 1)
    is_wrong = [distance(rule.name, "A", K) > 1e-12 for K in (1, 2, 3)]
    assert is_wrong == [K >= fewest for K in (1, 2, 3)]
    # on toy B the first guess always pays, so the plan of the best number is the whole round
    is_planner = rule.name.startswith("the number of guesses")
    assert bool(distance(rule.name, "B", max(2, fewest))) != is_planner


def test_every_rule_is_in_the_group_of_what_is_wrong():
    assert register.EXACT_RULES == [rule for rule in RULES if rule.exact]
    for rules in register.INEXACT.values():
        # rules that were met in public come first
        met = [bool(rule.seen) for rule in rules]
        assert met == sorted(met, reverse=True)


@pytest.mark.parametrize("rule", settings.SETTINGS, ids=lambda rule: rule.name)
def test_a_setting_is_exact_where_every_row_has_that_of_the_tokens_before_it(rule):
    others = [("B", 2), ("C", 2)] if rule.exact else [("B", 1)]
    cases = [*product("A", (1, 2, 3)), *others]
    distances = [enumerated_setting(rule.name, *case).distance for case in cases]
    assert not any(distances) if rule.exact else all(distances)


def test_the_pages_tables_are_enumerated():
    assert len(RULES) == len(BY_NAME) and len(settings.SETTINGS) == len(settings.SETTING_OF_NAME)
    for group in register.GROUPS:
        assert output(PAGE, f'exact.rules --group "{group}"') == tables.group_table(group)
    assert output(PAGE, "exact.rules --settings") == tables.settings_table()
    assert toys.toys_table() in PAGE


def test_what_was_called_inexact_is_exact_and_is_linked_from_the_page():
    assert all(f"doubted in {where}" in PAGE for *_, where in register.ALARMS)
    assert all(BY_NAME[name].exact for name, *_ in register.ALARMS)
    assert all(row.endswith("| 0 |") for row in tables.alarms_table().split("\n")[2:])


REGISTERS = {"rules": (RULES, ()), "settings": (settings.SETTINGS, ("--settings",))}


@pytest.mark.parametrize("word, flags, names", [
    ("TRAVERSAL", (), 2), ("MINIMUM length: counted in t", ("--settings",), 1)])
def test_the_command_shows_the_rules_with_a_word_on_every_toy(word, flags, names):
    status, out, _ = outcome(tables.main, *flags, word)
    rows = out.splitlines()[2:]
    assert status == 0 and len(rows) == 3 * names
    assert all(word.lower() in row.lower() for row in rows)


@pytest.mark.parametrize("rules, flags", REGISTERS.values(), ids=REGISTERS)
@pytest.mark.parametrize("word", ["no rule's words", "", " "])
def test_a_word_of_no_rule_is_refused(word, rules, flags):
    assert refusal(tables.main, *flags, word).endswith(f"no rule has {word!r} in its name\n")


def test_a_word_of_the_other_register_is_refused():
    assert "no rule has 'traversal' in its name" in refusal(tables.main, "--settings", "traversal")
    assert "no rule has 'mask:' in its name" in refusal(tables.main, "mask:")
    assert "not allowed with" in refusal(tables.main, "--settings", "--alarms")


def test_the_command_shows_every_rule_once(monkeypatch, capsys):
    """No rule is enumerated here: the cells are constants."""
    monkeypatch.setattr(tables, "distance_cells", lambda *args: ["1", "2", "3"])
    for head in ("tokens/round", "texts"):
        monkeypatch.setitem(tables.COLUMNS, head, lambda rule, toy: "4")
    assert tables.main([]) == 0
    tables_of_groups = capsys.readouterr().out.rstrip("\n").split("\n\n")
    assert [table.split(" | ")[0] for table in tables_of_groups] == [
        f"| {group}" for group in register.GROUPS]
    lines = [line for table in tables_of_groups for line in table.split("\n")[2:]]
    shown = [line.split(" | ")[0][2:] for line in lines]
    assert shown == [rule.name for rule in RULES] and len(RULES) == len(set(shown))
    assert tables.main(["--settings"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[0][2:] for line in lines] == [*settings.SETTING_OF_NAME]
    assert tables.main(["--group", "random numbers"]) == 0
    assert capsys.readouterr().out.startswith("| random numbers | K = 1 |")
    assert "leave out pays" in refusal(tables.main, "--group", "the test", "pays")


def test_a_rule_in_a_file_is_shown_above_the_registers(tmp_path, capsys):
    path = tmp_path / "mine.py"
    for name, line in (("variants.block import block_verify", "exact | 0 | 0 | 0 | 3.082 |"),
                       ("exact.rules.verifiers import next_rows",
                        "**no** | 0.4000 | 0.4400 | 0.4640 | 2.635 |")):
        path.write_text(f"from {name} as verify", encoding="utf-8")
        assert tables.main([str(path)]) == 0
        _, _, first, *others = capsys.readouterr().out.splitlines()
        assert first == f"| {path} | {line}" and len(others) == len(register.RULES)


@pytest.mark.parametrize("text, sentence", [
    ("x = 1", "mine.py: need a function verify, guess or step"),
    ("def verify(g, q, p, rng): return [9]", "mine.py: need a list of 1 to 2 tokens of 0 .. 2"),
    ("from variants.block import DECODER", "for a step or a DECODER: python -m exact.judge")])
def test_a_file_without_a_rule_gets_one_sentence(tmp_path, capsys, text, sentence):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    assert tables.main([str(path)]) == 2 and sentence in capsys.readouterr().err


def test_the_alarms_are_shown_whole():
    status, out, _ = outcome(tables.main, "--alarms")
    assert status == 0 and out == tables.alarms_table() + "\n"
    assert "all its rules: leave out traversal" in refusal(tables.main, "--alarms", "traversal")


def test_a_text_that_the_target_cannot_write_shows_a_rule():
    """By hand: one text in four is impossible, so n texts show none with probability 0.75^n."""
    wanted = {"a": Fraction(1)}
    found = lambda impossible: toys.Found(
        "C", 3, {text: p for text, p in (("a", 1 - impossible), ("b", impossible)) if p}, wanted)
    assert tables.texts_needed(found(Fraction(1, 4))) == "49"
    assert 0.75**49 < tables.ERROR < 0.75**48
    assert tables.texts_needed(found(Fraction(1))) == "1"
    assert tables.texts_needed(found(Fraction(0))) == "-"


def test_the_distance_round_by_round_is_that_of_the_whole_text():
    draft, target = TOYS["B"]
    for rule in RULES[2::8]:
        step = partial(speculative_step, target=target, K=2, test=rule.verify,
                       make_guesses=partial(rule.guess, draft=draft))
        texts = law(lambda rng, step=step: complete(list(X), step, 3, rng))
        assert texts == enumerated_rule(rule.name, "B", 2).texts


def test_settings_round_by_round_are_those_of_the_whole_text():
    """Run three of them through `complete`, with a record that lives in the step."""
    for rule in (settings.SETTINGS[1], settings.SETTINGS[5], settings.SETTINGS[7]):
        def text(rng, rule=rule):
            record = ()

            def step(x, n_left, rng):
                nonlocal record
                rows = lambda ids, n: np.array([
                    settings.row_under(rule.setting, "A", last,
                                       rule.given(record, ids[len(x) :], t))
                    for t, last in enumerate(ids[-n:])])
                done = speculative_step(x, n_left, rng, rows, 1,
                                        partial(guess, draft=TOYS["A"][0]))
                record = rule.keep(record, done)
                return done

            return complete(list(X), step, settings.N_NEW, rng)

        assert law(text) == enumerated_setting(rule.name, "A", 1).texts


# ---- distances by hand, K = 1: the first token's, because the second is the target's own

def first_rows(toy):
    return (model([0])[0] for model in TOYS[toy])


def tv(got, p):
    return abs(got - p).sum() / 2


@pytest.mark.parametrize("toy", TOYS)
def test_the_distances_of_one_guess_are_the_closed_forms(toy):
    q, p = first_rows(toy)
    both = np.minimum(p, q)
    assert distance("ratio test, then a draw from the target", toy, 1) == tv(
        both + (1 - both.sum()) * p, p)
    assert distance("match, then a fresh draw", toy, 1) == tv(q * p + (1 - p @ q) * p, p)
    best = one_hot(np.argmax(q))
    ratio = min(1, (p @ best) / (q @ best))
    surplus = np.maximum(p - q, 0)
    assert distance("argmax guesses, softmax rows", toy, 1) == tv(
        ratio * best + (1 - ratio) * surplus / surplus.sum(), p)
    accepted = q * (p >= q)
    assert distance("accept if p_target >= p_draft", toy, 1) == tv(
        accepted + (1 - accepted.sum()) * surplus / surplus.sum(), p)


def test_masked_guesses_have_the_closed_forms_and_argmax_guesses_may_be_dropped(monkeypatch):
    """The first token of a round after token 1, which the mask then forbids; one guess."""
    draft, target = TOYS["A"]
    q, p = draft([0, 1])[0], settings.no_repeat(target([0, 1])[0], (1,))
    p = p / p.sum()
    names = ["mask: guesses that it forbids are dropped before the test",
             "mask: guesses drawn under it, and tested with the draft's whole rows"]
    first = []
    for name in names:
        a_round = partial(settings.one_round, (0, 1), (1,), settings.SETTING_OF_NAME[name], "A", 1)
        row = np.array([Fraction(0)] * 3)
        for (text, *_), probability in law(a_round).items():
            row[text[2]] += probability
        first.append(row)
    both = np.minimum(p, q)
    rest = residual(p, q)
    dropped, drawn_under = first
    assert (dropped == both + (1 - q[1] - both.sum()) * rest + q[1] * p).all()
    accepted = both / (1 - q[1])  # a guess is drawn from q without token 1
    assert (drawn_under == accepted + (1 - accepted.sum()) * rest).all()
    assert tv(dropped, p) > 0 and tv(drawn_under, p) > 0
    best = toys.mapped(draft, lambda row: one_hot(np.argmax(row)))
    monkeypatch.setitem(TOYS, "A, argmax", (best, target))
    assert enumerated_setting(names[0], "A, argmax", 3).distance == 0


def test_two_races_with_the_same_numbers_are_as_the_integral_says():
    q, p = first_rows("B")
    rest = residual(p, q)
    numbers = np.random.default_rng(0).exponential(size=(200_000, 3))
    rejected = numbers[np.argmin(numbers / q.astype(float), axis=1) == 0]
    winners = np.argmin(rejected[:, 1:] / rest[1:].astype(float), axis=1)
    row = verifiers.from_same_race(0, p, q, None)
    assert row.sum() == 1 and row[0] == 0 and abs(row[2] - rest[2]) > Fraction(1, 50)
    assert abs(np.mean(winners) - float(row[2])) < 0.005
    assert distance("one Gumbel vector for a guess and its replacement", "B", 1) == tv(
        np.minimum(p, q) + Fraction(1, 2) * row, p)


@pytest.mark.parametrize("parts, texts", [(1, "267"), (2, "1,112"), (4, "4,529")])
def test_the_closer_the_draft_the_more_texts_show_a_fault(parts, texts, monkeypatch):
    draft, target = TOYS["A"]
    nearer = lambda ids, n_last=1: (draft(ids, n_last) + (parts - 1) * target(ids, n_last)) / parts
    monkeypatch.setitem(TOYS, f"A/{parts}", (nearer, target))
    found = enumerated_rule("ratio test, then a draw from the target", f"A/{parts}", 3)
    assert tables.texts_needed(found) == texts and f" {texts}" in PAGE.replace("(", " ")


def test_the_erratum_of_clay_has_its_distances():
    page = file_text("docs/papers.md")
    one, three = (distance("ratio test, then a draw from the target", "A", K) for K in (1, 3))
    assert f"the total variation is {float(one):.4f} with one guess" in page
    assert f"and {float(three):.4f} with three guesses" in page


def test_a_product_of_uniforms_is_as_the_integrals_say():
    uniforms = np.random.default_rng(0).random((400_000, 3))
    for bounds in ([1, 0.5], [1, 1, 0.4], [1, 0.7, 0.6, 0.2], [1, 1, 0.5, 0]):
        below = np.cumprod(uniforms[:, : len(bounds) - 1], axis=1) <= bounds[1:]
        last = np.where(below, np.arange(1, len(bounds)), 0).max(axis=1)
        counted = np.bincount(last, minlength=len(bounds)) / len(last)
        # five standard errors of a frequency: a false alarm in less than 1 of 100,000 runs
        assert abs(verifiers.longest(bounds) - counted).max() < 5 * 0.5 / np.sqrt(len(last))


def of_one_rule(guess, verify, monkeypatch, name="a rule of a test"):
    """Put a rule into the register for one test; return its name."""
    monkeypatch.setitem(BY_NAME, name, register.Rule(name, guess, verify, True))
    register.round_law.cache_clear()  # the name may have been another rule's
    enumerated_rule.cache_clear()
    return name


def test_block_verification_with_the_cap_of_every_guess_is_the_uncapped_rules_right_form():
    """On two coins: the texts of two tokens, and the mean number of accepted guesses."""
    third = Fraction(1, 3)
    draft_row, target_row = np.array([2 * third, third]), np.array([third, 2 * third])
    coin = lambda row: lambda ids, n_last=1: np.array([row] * n_last)
    texts, accepted = [], []
    for shares in (verifiers.shares, verifiers.last_uncapped):
        step = make_step(coin(target_row), 2, partial(guess, draft=coin(draft_row)),
                         partial(verifiers.traversal, shares=shares))
        tokens = law(lambda rng, step=step: step([0], 3, rng).ids)
        accepted.append(sum((len(ids) - 1) * p for ids, p in tokens.items()))
        whole = completed(tokens, [0], coin(target_row), 3)
        texts.append([sum(p for text, p in whole.items() if text[1:3] == start)
                      for start in product(range(2), repeat=2)])
    assert texts == [[Fraction(n, 9) for n in (1, 2, 2, 4)], [Fraction(n, 9) for n in (1, 2, 3, 3)]]
    assert accepted == [Fraction(11, 9), Fraction(12, 9)]


def test_a_share_is_the_product_of_ratios_over_its_largest_value_so_far():
    """On random fractions; without the maximum a share is only the product, cut at 1."""
    rng = np.random.default_rng(0)
    fractions = lambda n: [np.array([Fraction(int(part), 12) for part in row])
                           for row in rng.multinomial(9, [1 / 3] * 3, size=n) + 1]
    n_different = 0
    for _ in range(200):
        p_draft, p_target = fractions(4), fractions(5)
        guesses = rng.integers(3, size=4).tolist()
        joint = verifiers.joint_ratios(guesses, p_draft, p_target)
        largest = [max(joint[: t + 1]) for t in range(5)]
        share = verifiers.shares(guesses, p_draft, p_target)
        assert share == [product / most for product, most in zip(joint, largest)]
        n_different += share[-1] != min(joint[-1], 1)
    assert n_different > 20


def test_a_product_of_ratios_that_equals_its_maximum_is_no_new_maximum():
    """By hand: ratios 1, 3 / 2 and 1 on rows of halves and thirds."""
    half, third = Fraction(1, 2), Fraction(1, 3)
    p_draft = [np.array([half, half]), np.array([third, 2 * third]), np.array([half, half])]
    p_target = [np.array([half, half])] * 3
    share = verifiers.capped_at_maxima([0, 0, 0], p_draft, p_target)
    assert share == [1, 2, 1, 1]


def test_one_hot_paths_are_exact_if_a_share_begins_with_1(monkeypatch):
    right = partial(verifiers.one_hot_paths, kept=False)
    name = of_one_rule(ways.two_best_paths, right, monkeypatch)
    assert {distance(name, *case) for case in product("AB", (1, 2, 3))} == {0}
    wrong = "two one-hot paths as blocks, the accepted tokens' probability kept"
    assert [round(float(distance(wrong, toy, 3)), 4) for toy in "AB"] == [0.0234, 0.039]


def test_an_argmax_guess_that_is_not_tested_is_as_wrong_as_it_is_improbable(monkeypatch):
    """The first token is always the draft's best: with one guess nothing else goes wrong."""
    name = of_one_rule(toys.best, verifiers.first_untested, monkeypatch)
    for toy in TOYS:
        q, p = first_rows(toy)
        assert distance(name, toy, 1) == 1 - p[np.argmax(q)]
    assert [round(float(distance(name, "A", K)), 4) for K in (1, 2, 3)] == [0.4, 0.4, 0.496]


def test_a_row_in_bfloat16_has_eight_bits():
    row = ways.in_bfloat16([Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(0)])
    assert row.tolist() == [Fraction(171, 512), Fraction(1, 2), Fraction(171, 256), 0]


def test_the_better_of_two_paths_has_its_own_rows(monkeypatch):
    """With its own rows the rule is variants/multipath.py, which is exact; K = 1 by hand."""
    wrong = "the better of two drawn paths as a block, the draft's rows"
    q, p = first_rows("A")  # token 0 has the largest ratio, then 1, then 2
    best = np.array([1 - (1 - q[0]) ** 2, (1 - q[0]) ** 2 - q[2] ** 2, q[2] ** 2])
    accepted = best * np.minimum(p / q, 1)
    rest = np.maximum(p - q, 0)
    assert distance(wrong, "A", 1) == tv(accepted + (1 - accepted.sum()) * rest / rest.sum(), p)
    assert distance(wrong, "A", 1) == Fraction(3, 25)


# ---- random numbers that several texts or tokens share

def test_texts_that_share_all_numbers_are_each_exact_and_not_independent():
    """Both texts are equal: the distance of the pair from two independent texts."""
    for n, by_hand in ((1, 0.56), (2, 0.8064), (3, 0.9148)):
        texts = text_law(X, TOYS["A"][1], n)
        pair = {(text, text): p for text, p in texts.items()}
        independent = {(a, b): texts[a] * texts[b] for a, b in product(texts, repeat=2)}
        found = total_variation(pair, independent)
        assert found == 1 - sum(p**2 for p in texts.values())
        assert round(float(found), 4) == by_hand and f"{by_hand}" in PAGE


def test_numbers_that_the_last_token_decides_repeat_with_it():
    """The token after a token that came before is the one that came after it then."""
    target = TOYS["A"][1]

    def keyed(ids, n_last=1):
        *before, last = ids
        row = target([last], 1)[-1]
        if last in before:
            row = one_hot(ids[before.index(last) + 1])
        return [row]

    for n, by_hand in ((2, 0.16), (3, 0.512), (4, 0.7488), (5, 0.8634)):
        found = total_variation(text_law(X, keyed, n), text_law(X, target, n))
        assert round(float(found), 4) == by_hand and f"{by_hand}" in PAGE


# ---- the three statements of the page, and the smallest examples beyond them

WAYS = [guess, toys.best, partial(ways.as_drawn, guess=ways.colder), ways.colder,
        partial(ways.as_drawn, guess=ways.beam), ways.stop_before, ways.drop_improbable,
        partial(ways.drop_improbable, guess=toys.best), ways.planned]


@pytest.mark.parametrize("verify", [verifiers.q_is_one, register.match_verify])
@pytest.mark.parametrize("guess", WAYS)
def test_guesses_of_any_origin_may_be_tested_as_one_hot_or_by_match(guess, verify, monkeypatch):
    name = of_one_rule(guess, verify, monkeypatch)
    assert not any(distance(name, toy, 2) for toy in "AB")


def test_a_guess_and_its_test_must_not_share_a_number():
    """Enumerated with the number itself: the guess by inverse CDF, then u < p_target."""
    def first_token(rng, q, p):
        u = rng.random()
        token = int(np.argmax(u < np.cumsum(q)))
        return token if u < p[token] else sample(residual(p, one_hot(token)), rng)

    for toy, by_hand in (("A", 0.2), ("B", 0.0971), ("C", 0.08)):
        q, p = first_rows(toy)
        got = law(partial(first_token, q=q, p=p))
        found = distance("\"q = 1\", with the number that drew the guess", toy, 1)
        assert total_variation(got, dict(enumerate(p))) == found
        assert float(found) == pytest.approx(by_hand, abs=5e-5)


def test_with_match_an_argmax_guess_is_accepted_more_often_where_both_prefer_the_same_token():
    accepted = lambda name, toy: tokens_per_round(name, toy, 1) - 1
    for toy, better in (("A", True), ("B", False)):
        q, p = first_rows(toy)
        assert (np.argmax(q) == np.argmax(p)) == better
        drawn, best = accepted("match; guesses drawn", toy), accepted("match; argmax guesses", toy)
        assert drawn == p @ q <= accepted(RULES[0].name, toy)
        assert best == p[np.argmax(q)] and (best > drawn) == better


def test_a_drawn_guess_may_be_dropped_for_what_it_is_but_not_with_the_ratio_test():
    wrong, *right = ["drop a low-confidence guess; drawn, ratio test",
                     "drop a low-confidence guess; drawn, \"q = 1\"",
                     "drop a low-confidence guess; drawn, match",
                     "drop a low-confidence guess; argmax, one-hot rows",
                     "stop before drawing from a low-confidence row",
                     "stop after a low-confidence guess, which is tested"]
    assert all(BY_NAME[name].exact for name in right)
    assert {distance(name, *case) for name in right for case in CASES} == {0}
    assert [bool(distance(wrong, *case)) for case in CASES] == [c != ("C", 1) for c in CASES]


def test_a_planner_is_exact_to_the_first_descent_and_not_at_the_best_of_all():
    first, match, best = [rule.name for rule in RULES if " pay" in rule.name]
    assert {distance(name, *case) for name in (first, match) for case in CASES} == {0}
    found = [distance(best, *case) for case in CASES]
    assert found[:3] == [0, Fraction(1, 5), Fraction(2254, 10_000)] and not any(found[3:])
    assert 1 < tokens_per_round(first, "A", 3) < tokens_per_round(RULES[0].name, "A", 3)


def after_a_round(make_guesses, toy, K=2):
    """Return the distance of K + 1 tokens: one round with the ratio test, then the target."""
    draft, target = TOYS[toy]
    guess_by_draft = partial(make_guesses, draft=draft)
    one_round = law(lambda rng: speculative_step([0], K + 1, rng, target, K, guess_by_draft).ids)
    texts = completed(one_round, [0], target, K + 1)
    return total_variation(texts, text_law([0], target, K + 1))


@pytest.mark.parametrize("costs", [(10, 16, 17, 18), (10, 14, 17, 18), (10, 11, 16, 17)])
def test_at_any_costs_a_first_descent_is_exact(costs):
    plan = partial(ways.planned, choose=ways.first_descent, costs=costs)
    assert not any(after_a_round(plan, toy, K) for toy in TOYS for K in (1, 2, 3))


def keep_while(x, k, rng, draft, tested):
    """Draw k guesses; keep guess t if all before it are kept and tested(guesses, t)."""
    guesses, p_draft = guess(x, k, rng, draft)
    n = ways.count_leading(tested(guesses, t) for t in range(k))
    return guesses[:n], p_draft[:n]


@pytest.mark.parametrize("toy", TOYS)
def test_every_stopping_time_of_two_guesses_is_exact(toy):
    for first, *second in product((True, False), repeat=4):
        def tested(guesses, t, first=first, second=second):
            return second[guesses[0]] if t else first

        assert after_a_round(partial(keep_while, tested=tested), toy) == 0


@pytest.mark.parametrize("toy", "AB")
def test_of_all_choices_to_test_one_guess_only_those_that_ignore_it_are_exact(toy):
    for chosen in product((True, False), repeat=3):
        def tested(guesses, t, chosen=chosen):
            return chosen[guesses[t]]

        exact = after_a_round(partial(keep_while, tested=tested), toy, K=1) == 0
        assert exact == (len(set(chosen)) == 1)
