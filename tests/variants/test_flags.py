"""Flags that could be taken for each other, and rows that are read at another temperature.

All through the builders, as main.py does.
"""

import ast
import inspect
from functools import partial
from operator import attrgetter

import numpy as np
import pytest

from exact.law import expectation, law
from sampling import with_sampling
from tests.distributions import Scripted, assert_same_law
from tests.small import Logits, lenient_law, write_heads
from tests.toys import toy
from variants import DECODERS, Models, build
from variants.blockwise import blockwise_verify
from variants.lenient import lenient_greedy_verify
from variants.medusa import sparse_tree, verify_typical
from variants.registry import costs, either, whole, wholes

DRAFT, TARGET = toy(3, 41, zeros=0), toy(3, 42, zeros=0)
X = [0, 1, 0]
WARM = [dict(temperature=0.4), dict(temperature=1.0, top_k=2), dict(temperature=1.0, top_p=0.6),
        dict(temperature=1.0, repetition_penalty=2.5)]


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    return write_heads(tmp_path_factory.mktemp("heads"), n_embd=3)


def test_the_name_of_a_decoder_leads_to_its_file():
    for name, entry in DECODERS.items():
        assert entry.build.__module__ == f"variants.{name}"


# ---- sampling settings

@pytest.mark.parametrize("sampling", WARM, ids=str)
def test_matched_guesses_are_kept_with_the_chance_that_two_draws_agree(sampling):
    draft, target = (with_sampling(Logits(model), **sampling)(X)[-1] for model in (DRAFT, TARGET))
    models = Models(Logits(DRAFT), Logits(TARGET), sampling)
    for guesses, chance in (("best", target[draft.argmax()]), ("drawn", (draft * target).sum())):
        step = build("match", models, {"K": 1, "guesses": guesses})
        assert expectation(partial(step, X, 2), attrgetter("n_accepted")) == pytest.approx(chance)


# ---- flags that could be taken for each other, and rows at another temperature

def first_round(name, flags, sampling, heads=None, x=X, n_left=9, u=()):
    """The first round of a decoder: its guesses, its text."""
    step = build(name, Models(Logits(DRAFT), Logits(TARGET), sampling, heads), flags)
    return step(x, n_left, Scripted(u))


def test_numbers_of_guesses_arrive():
    warm, u = dict(temperature=1.0), [0.5] * 20
    for n in (1, 2):
        flags = {"tree": {"widths": "dynamic", "total": n}, "suffix": {"K": n, "sure": 99.0}}
        assert [len(first_round(name, flags[name], warm, u=u).guesses) for name in flags] == [n, n]
        copied = first_round("suffix", {"cap": n, "sure": 0.0}, warm, x=[0, 1] * 6, u=u)
        assert len(copied.guesses) == n


@pytest.mark.parametrize("epsilon, delta", [(0.05, 0.9), (0.9, 0.05), (0.6, 0.9), (0.9, 0.6)])
def test_epsilon_and_delta_are_those_of_the_typical_test(epsilon, delta, heads):
    flags = {"acceptance": "typical", "epsilon": epsilon, "delta": delta, "widths": (2, 2)}
    for x in ([0, 1], [1, 2, 0], [2, 2], [0, 1, 0, 2]):
        got = first_round("medusa", flags, dict(temperature=1.0), heads, x, u=[0.5])
        again = verify_typical(got.guesses, None, got.p_target, Scripted([0.5]), epsilon, delta)
        assert got.ids == again


def test_a_sparse_tree_and_a_block_have_the_guesses_that_were_asked_for(heads):
    sparse = first_round("medusa", {"sparse": [(0,), (1,)]}, dict(temperature=1.0), heads, [0, 1],
                         u=[0.5] * 9)
    assert [len(path) for path in sparse.guesses.paths()] == [1, 1]
    for block in (2, 3):
        got = first_round("blockwise", {"block": block}, dict(temperature=0.0), heads, [0, 1])
        assert len(got.guesses) == block - 1


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


# ---- types, defaults, refusals

@pytest.mark.parametrize("name", DECODERS)
def test_every_default_can_be_typed(name):
    for default, flag in DECODERS[name].flags.values():
        if default is not None:
            typed = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
            assert flag.type(typed) == default and (not flag.choices or default in flag.choices)


@pytest.mark.parametrize("name", DECODERS)
def test_build_reads_every_flag(name):
    body = ast.parse(inspect.getsource(DECODERS[name].build))
    read = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
    assert DECODERS[name].flags.keys() <= read


@pytest.mark.parametrize("read, good, bad", [
    (whole, {"3": 3, "007": 7}, ("0", "-1", "1.5", "a", "")),
    (either(whole, "auto"), {"auto": "auto", "2": 2}, ("0", "all")),
    (either(wholes, "auto"), {"3,2,1": (3, 2, 1), "auto": "auto"}, ("0,1", "", "a", "dynamic")),
    (costs, {"0.1,1,2": (0.1, [1.0, 2.0])}, ("1", "1,1", "0,1,1", "1,nan,1", "1,inf,2", "-1,1,1")),
    (partial(wholes, least=0), {"0,7": (0, 7)}, ("-1", "a", "")),
    (sparse_tree, {"0 1 0.0": [(0,), (1,), (0, 0)], "": []}, ("0 1.0", "0.0", "-1", "0..1", "0.")),
])
def test_what_is_typed_is_read_and_checked(read, good, bad):
    assert {text: read(text) for text in good} == good
    for text in bad:
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("name, flags, temperature, message", [
    ("lookup", {"lenience": 0.5}, 1.0, "--lenience does not apply to --decoder lookup"),
    ("block", {"K": 0}, 1.0, "--K: need a whole number >= 1, got '0'"),
    ("block", {"K": "auto"}, 1.0, "--K: need a whole number >= 1, got 'auto'"),
    ("speculative", {"K": "aut"}, 1.0, "--K: need auto or a whole number >= 1, got 'aut'"),
    ("tree", {"widths": ()}, 1.0, "--widths: "), ("tree", {"widths": (2, 0)}, 1.0, "--widths: "),
    ("match", {"guesses": "worst"}, 1.0, "--guesses: need best or drawn, got 'worst'"),
    ("nope", {}, 1.0, "need one of the decoders speculative, .*, got 'nope'"),
    ("kseq", {"chains": 0}, 1.0, "--chains: need a whole number >= 1"),
    ("big_little", {}, 1.0, "temperature 0"), ("blockwise", {}, 0.5, "temperature 0"),
    ("tree", {"siblings": "distinct"}, 0.0, "siblings top"),
    ("tree", {"siblings": "distinct", "widths": "dynamic"}, 1.0, "siblings top"),
    ("cascade", {"alpha": np.nan}, 1.0, "--alpha: need a finite number, got nan"),
    ("big_little", {"rollback": np.inf}, 0.0, "--rollback: need a finite number, got inf"),
    ("tree", {"total": 3}, 1.0, "need --widths dynamic for --total"),
    ("tree", {"widths": "auto"}, 1.0, "need costs for the decoder tree"),
    ("speculative", {"K": "auto"}, 1.0, "need costs"), ("stopping", {}, 1.0, "need costs"),
    ("medusa", {}, 0.0, "heads"), ("eagle", {}, 0.0, "head"),
    ("medusa", {"widths": (2,), "sparse": [(0,)]}, 1.0, "--widths and --sparse"),
    ("medusa", {"epsilon": 0.5}, 1.0, "--epsilon needs --acceptance typical"),
    ("skip", {"skip": (0,), "exit": 1}, 1.0, "need --skip or --exit"),
    ("staged", {"width": 2}, 0.0, "width 1"), ("lenient", {"lenience": 2.0}, 1.0, "lenience")])
def test_what_does_not_go_together_is_refused(name, flags, temperature, message):
    with pytest.raises(ValueError, match=message):
        step = build(name, Models(Logits(DRAFT), Logits(TARGET), dict(temperature=temperature)),
                     flags)
        step([1, 2], 5, np.random.default_rng(0))


def test_settings_fill_in_defaults_and_decide_exactness():
    assert DECODERS["lookup"].settings({"K": 3}) == {"K": 3, "max_ngram": 3}
    lenient = DECODERS["lenient"]
    given = [lenient.settings(flags) for flags in ({}, {"lenience": 1.0})]
    assert [lenient.is_exact(flags) for flags in given] == [False, True]


def test_lenience_1_at_temperature_0_rejects_a_guess_that_only_ties_with_the_best():
    """Greedy decoding takes the lowest id of equal ones."""
    even = Logits(lambda ids, n_last=1: np.array([[0.5, 0.5, 0.0]] * n_last))
    second = Logits(lambda ids, n_last=1: np.array([[0.1, 0.9, 0.0]] * n_last))
    step = build("lenient", Models(second, even, dict(temperature=0.0)), {"K": 1, "lenience": 1.0})
    assert step([0], 2, np.random.default_rng(0)).ids == [0]
