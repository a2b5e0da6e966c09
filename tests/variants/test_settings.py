"""Every flag arrives: sampling settings at both models, a decoder's own flags at its step.

All through the builders, as main.py does, and by enumeration where chance is involved.
"""

from functools import partial
from operator import attrgetter

import numpy as np
import pytest

from exact.law import (
    Scripted,
    assert_same_law,
    distance,
    expectation,
    law,
    text_law,
    total_variation,
)
from exact.toys import toy
from sampling import with_sampling
from speculative import generate
from tests.variants.registered import (
    SMALL,
    SMALLER,
    Logits,
    N,
    X,
    assert_keeps_the_distribution,
    write_heads,
)
from variants import DECODERS, Models, build, settings
from variants.blockwise import blockwise_verify
from variants.coupled import SAMPLERS
from variants.lenient import lenient_greedy_verify, lenient_law
from variants.medusa import verify_typical

DRAFT, TARGET = toy(3, 41, zeros=0), toy(3, 42, zeros=0)
PENALTY = dict(repetition_penalty=2.5)
WARM = [dict(temperature=0.4), dict(temperature=1.0, top_k=2), dict(temperature=1.0, top_p=0.6),
        dict(temperature=1.0, **PENALTY)]
COLD = [dict(temperature=0.0, **PENALTY)]
EXACT = {"lenient": {"lenience": 1.0}, "big_little": {"fallback": 1.5},
         "cascade": {"alpha": -2.0}}  # of the lossy ones
CASES = [(name, EXACT.get(name, {}), sampling) for name in DECODERS
         for sampling in (COLD if DECODERS[name].greedy else WARM + COLD)]
CASES += [("staged", {"width": 2, "K": 1}, sampling) for sampling in WARM]
CASES += [("medusa", {"markov": True}, sampling) for sampling in WARM + COLD]


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    return write_heads(tmp_path_factory.mktemp("heads"), n_embd=3)


def small(name, flags=()):
    """The decoder's flags at values that can be enumerated."""
    known = {flag: value for flag, value in SMALL.items() if flag in DECODERS[name].flags}
    return known | SMALLER.get(name, {}) | dict(flags)


def x_of(sampling):
    """The text to start from: at temperature 0 one after which the penalty changes the best."""
    return X if sampling["temperature"] else [1]


# ---- sampling settings

@pytest.mark.parametrize("name, flags, sampling", CASES, ids=str)
def test_the_text_is_distributed_as_the_target_with_every_setting(name, flags, sampling, heads):
    assert_keeps_the_distribution(name, flags, sampling, heads, x_of(sampling))


@pytest.mark.parametrize("model", [DRAFT, TARGET])
def test_every_setting_matters(model):
    plain = text_law(X, with_sampling(Logits(model)), N)
    for sampling in WARM:
        other = text_law(X, with_sampling(Logits(model), **sampling), N)
        assert total_variation(plain, other) > 0.05
    greedy = [text_law([1], with_sampling(Logits(model), **sampling), N)
              for sampling in (dict(temperature=0.0), *COLD)]
    assert distance(*greedy) == 1


def n_levels(round):
    """For how many positions there was a guess."""
    return max(map(len, round.guesses.paths()), default=0) if hasattr(
        round.guesses, "paths") else len(round.guesses)


SHALLOW = {"tree": {"widths": (2,)}, "traversal": {"widths": (2,)},
           "suffix": {"sure": 99.0}}
DRAFTED = [case for case in CASES if "draft" in DECODERS[case[0]].needs and case[0] != "match"]


@pytest.mark.parametrize("name, flags, sampling", DRAFTED, ids=str)
def test_a_draft_equal_to_the_target_loses_no_guess_under_any_setting(name, flags, sampling):
    flags = small(name, {} if name == "big_little" else flags) | SHALLOW.get(name, {})

    def lost(rng):
        step = build(name, Models(Logits(TARGET), Logits(TARGET), sampling), flags)
        rounds = generate(x_of(sampling), step, N, rng)
        return sum(n_levels(round) + 1 - len(round.ids) for round in rounds)

    assert expectation(lost, float) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("sampling", WARM, ids=str)
def test_matched_guesses_are_kept_with_the_chance_that_two_draws_agree(sampling):
    draft, target = (with_sampling(Logits(model), **sampling)(X)[-1] for model in (DRAFT, TARGET))
    models = Models(Logits(DRAFT), Logits(TARGET), sampling)
    for guesses, chance in (("best", target[draft.argmax()]), ("drawn", (draft * target).sum())):
        step = build("match", models, {"K": 1, "guesses": guesses})
        assert expectation(partial(step, X, 2), attrgetter("n_accepted")) == pytest.approx(chance)


# ---- a decoder's own flags

OTHERS = {  # for each flag a value that must make a difference, and what it takes to see it
    "K": (1, {"confidence": 0.0, "chains": 1, "widths": "chain", "sure": 99.0}),
    "max_ngram": (1, {}),
    "schedule": ("heuristic", {"confidence": 0.0}), "confidence": (0.0, {}),
    "lenience": (0.7, {}), "run": (1, {"fallback": 0.0}), "fallback": (0.0, {"rollback": 9.0}),
    "rollback": (0.01, {"fallback": 0.0}), "widths": ((1, 1), {}),
    "siblings": ("independent", {"widths": (2,)}), "chains": (1, {}), "inner_K": (2, {"K": 3}),
    "order": (1, {}), "width": (2, {"K": 1}), "sparse": ([(1,)], {}),
    "acceptance": ("typical", {}), "epsilon": (0.9, {"acceptance": "typical", "delta": 1.0}),
    "delta": (0.9, {"acceptance": "typical", "epsilon": 1.0}), "block": (2, {}),
    "selection": (3, {}), "minimum": (3, {}), "guesses": ("drawn", {}),
    "total": (2, {"widths": "dynamic"}),
    "cap": (1, {"sure": 0.0}), "factor": (0.5, {"sure": 0.0}), "min_prob": (0.9, {"sure": 0.0}),
    "depth": (2, {"sure": 0.0}), "sure": (99.0, {}),
    "markov": (True, {}), "skip": ((0, 1), {}), "exit": (2, {}), "alpha": (0.9, {}),
    "costs": ((0.1, 1.0, 9.0), {}),
    "columns": (3, {}), "ngram": (3, {}), "pool": (1, {}),
}
LONGER = {"schedule": 4, "inner_K": 4}  # new tokens, where N are too few
COLDER = {"inner_K", "widths", "sparse"}  # seen, and faster, where nothing is drawn
UNSEEN = {("coupled", "sampler"),  # a race has no intervals to cut
          ("suffix", "memory")}  # a file: test_suffix.py
REPEATING = [0, 1, 2, 1, 0, 0, 1]  # 0 1 was followed by 2, and 1 last by 0


class Noted(Logits):
    """A toy that notes what it was asked."""

    def __init__(self, model):
        super().__init__(model)
        self.asked = []

    def __call__(self, ids, n_last=1):
        self.asked.append((tuple(ids.x if hasattr(ids, "x") else ids), n_last))
        return super().__call__(ids, n_last)


def rounds_seen(name, flags, heads, sampling, N):
    """The law of all rounds: guesses, text, and what the draft was asked on the way."""
    def seen(rng):
        draft = Noted(DRAFT)
        step = build(name, Models(draft, Logits(TARGET), sampling, heads), flags)
        rounds = [(tuple(round.guesses), tuple(round.ids), len(round.p_target))
                  for round in generate(REPEATING, step, N, rng)]
        return tuple(rounds), tuple(draft.asked)

    return law(seen)


@pytest.mark.parametrize("name, flag", [
    (name, flag) for name in DECODERS for flag in DECODERS[name].flags
    if (name, flag) not in UNSEEN])
def test_every_flag_arrives(name, flag, heads):
    value, others = OTHERS[flag]
    before = small(name, {key: other for key, other in others.items()
                          if key in DECODERS[name].flags and key != flag})
    if before.get(flag) == value:
        before[flag] = 2
    assert settings(name, before)[flag] != value
    cold = DECODERS[name].greedy or flag in COLDER
    laws = [rounds_seen(name, flags, heads, dict(temperature=0.0 if cold else 0.7),
                        LONGER.get(flag, N)) for flags in (before, before | {flag: value})]
    assert distance(*laws) > 1e-3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_sampler_arrives(sampler):
    row, u = with_sampling(Logits(DRAFT), temperature=0.7)(X)[-1], (np.arange(20) + 0.5) / 20
    drawn = [first_round("coupled", {"sampler": sampler, "K": 1}, dict(temperature=0.7),
                         u=[number, 0.5]).guesses[0] for number in u]
    expected = {name: [draw(row, Scripted([number])) for number in u]
                for name, draw in SAMPLERS.items()}
    assert drawn == expected[sampler] and expected["race"] != expected["inverse"]


@pytest.mark.parametrize("name", DECODERS)
def test_the_draft_guesses_and_the_target_scores_once_a_round(name, heads):
    draft, target = Noted(DRAFT), Noted(TARGET)
    sampling = dict(temperature=0.0 if DECODERS[name].greedy else 1.0)
    step = build(name, Models(draft, target, sampling, heads), {"fallback": 0.0}
                 if name == "big_little" else {})
    rounds = list(generate(REPEATING, step, 20, np.random.default_rng(0)))
    assert len(target.asked) == (0 if DECODERS[name].has_heads else len(rounds))
    assert (len(draft.asked) > len(rounds) / 2) == ("draft" in DECODERS[name].needs)


# ---- flags that could be taken for each other, and rows at another temperature

def first_round(name, flags, sampling, heads=None, x=X, n_left=9, u=()):
    """The first round of a decoder: its guesses, its text."""
    step = build(name, Models(Logits(DRAFT), Logits(TARGET), sampling, heads), flags)
    return step(x, n_left, Scripted(u))


@pytest.mark.parametrize("epsilon, delta", [(0.05, 0.9), (0.9, 0.05), (0.6, 0.9), (0.9, 0.6)])
def test_epsilon_and_delta_are_those_of_the_typical_test(epsilon, delta, heads):
    flags = {"acceptance": "typical", "epsilon": epsilon, "delta": delta, "widths": (2, 2)}
    for x in ([0, 1], [1, 2, 0], [2, 2], [0, 1, 0, 2]):
        got = first_round("medusa", flags, dict(temperature=1.0), heads, x, u=[0.5])
        again = verify_typical(got.guesses, None, got.p_target, Scripted([0.5]), epsilon, delta)
        assert got.ids == again


def test_selection_and_minimum_are_those_of_the_block(heads):
    for selection, minimum in ((2, 1), (1, 2), (3, 1), (1, 3)):
        flags = {"block": 3, "selection": selection, "minimum": minimum}
        for x in ([0, 1], [1, 2, 0], [2, 2], [0, 1, 0, 2]):
            got = first_round("blockwise", flags, dict(temperature=0.0), heads, x)
            assert got.ids == blockwise_verify(got.guesses, None, got.p_target, None,
                                               top_k=selection, minimum=minimum)


@pytest.mark.parametrize("sampling", WARM, ids=str)
def test_one_lenient_token_has_its_formula_under_every_setting(sampling):
    draft, target = (with_sampling(Logits(model), **sampling)(X)[-1] for model in (DRAFT, TARGET))
    step = build("lenient", Models(Logits(DRAFT), Logits(TARGET), sampling),
                 {"K": 1, "lenience": 0.7})
    expected = dict(enumerate(lenient_law(draft, target, 0.7)))
    assert_same_law(law(lambda rng: step(X, 2, rng).ids[0]), expected)


TEXTS = [[0, 1], [1, 2, 0], [2, 2], [0, 1, 0, 2], [1], [2, 0], [0, 0, 1]]
AT_1 = [dict(temperature=1.0), *WARM[1:]]  # what thresholds look at where the text is greedy


def best_chain(model, x, n):
    """The n tokens that a model finds best, one after another, and their chances."""
    ids, chances = list(x), []
    for _ in range(n):
        row = model(ids)[-1]
        ids.append(int(row.argmax()))
        chances.append(row.max())
    return ids[len(x) :], chances


@pytest.mark.parametrize("at_1", AT_1, ids=str)
@pytest.mark.parametrize("x", TEXTS, ids=str)
@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.8])
def test_greedy_confidence_and_fallback_are_read_at_temperature_1(at_1, x, threshold):
    best, chances = best_chain(with_sampling(Logits(DRAFT), **at_1), x, 4)
    sure = [*(chance >= threshold for chance in chances), False].index(False)
    sampling = at_1 | {"temperature": 0.0}
    got = first_round("assisted", {"K": 4, "confidence": threshold}, sampling, x=x, u=[0.5] * 9)
    assert got.guesses == best[: sure + 1]
    got = first_round("big_little", {"run": 4, "fallback": threshold}, sampling, x=x)
    assert got.guesses == best[:sure]


@pytest.mark.parametrize("at_1", AT_1, ids=str)
@pytest.mark.parametrize("x", TEXTS, ids=str)
def test_greedy_lenience_and_rollback_look_at_the_target_at_temperature_1(at_1, x):
    best, _ = best_chain(with_sampling(Logits(DRAFT), **at_1), x, 3)
    rows = with_sampling(Logits(TARGET), **at_1)(x + best, 4)
    sampling = at_1 | {"temperature": 0.0}
    got = first_round("lenient", {"K": 3, "lenience": 0.5}, sampling, x=x, u=[0.5] * 9)
    assert got.ids == lenient_greedy_verify(best, None, rows, None, 0.5)
    for rollback in (0.5, 1.0, 2.0):
        flags = {"run": 3, "fallback": 0.0, "rollback": rollback}
        got = first_round("big_little", flags, sampling, x=x)
        chances = [row[token] for row, token in zip(rows, best)]
        n = [*(chance >= np.exp(-rollback) for chance in chances), False].index(False)
        assert got.ids == best[:n] + [rows[n].argmax()]


@pytest.mark.parametrize("at_1", AT_1, ids=str)
@pytest.mark.parametrize("x", TEXTS, ids=str)
def test_siblings_are_the_best_at_temperature_0_and_distinct_above(at_1, x):
    row = with_sampling(Logits(DRAFT), **at_1)(x)[-1]
    wanted = np.argsort(-row, kind="stable")[: np.count_nonzero(row)].tolist()
    cold = first_round("tree", {"widths": (3,)}, at_1 | {"temperature": 0.0}, x=x, u=[0.5] * 9)
    assert cold.guesses.tokens == wanted
    warm = first_round("tree", {"widths": (3,)}, at_1, x=x, u=[0.1] * 9)
    assert sorted(warm.guesses.tokens) == sorted(wanted)  # all, although the first is drawn thrice


@pytest.mark.parametrize("at_1", AT_1, ids=str)
@pytest.mark.parametrize("name, flags", [("medusa", {"acceptance": "typical"}), ("blockwise", {})])
def test_the_target_of_lossy_heads_has_every_setting(name, flags, at_1, heads):
    sampling = at_1 | {"temperature": 0.0 if DECODERS[name].greedy else 1.0}
    for x in ([0, 1], [1, 2, 0], [2, 2]):
        got = first_round(name, flags, sampling, heads, x, u=[0.5])
        expected = with_sampling(Logits(TARGET), **at_1)(x)[-1]
        assert np.allclose(got.p_target[0], expected)
