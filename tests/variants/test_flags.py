"""Flags reach the right argument, thresholds are read at temperature 1, bad flags are refused.

All through `variants.build`, as in main.py.
"""

import ast
import inspect
import re
from functools import partial
from itertools import product, repeat, takewhile

import numpy as np
import pytest

from sampling import with_sampling
from tests.distributions import Scripted
from tests.small import PARAMS, WARM_SETTINGS, Logits, sampling_of
from tests.toys import PAIRS, context_free
from variants import DECODERS, Costs, Models, block, build
from variants.blockwise import blockwise_verify
from variants.lenient import lenient_greedy_verify
from variants.registry import costs, either, whole, wholes

DRAFT, TARGET = PAIRS["dense"]
WARM = dict(temperature=1.0)
GREEDY = dict(temperature=0.0)
TEXTS = [[0, 1], [1, 2, 0], [2, 2], [0, 1, 0, 2], [1], [2, 0], [0, 0, 1]]


@pytest.fixture
def folder(heads):
    return heads(PARAMS[3])


def models(sampling, folder=None, costs=None):
    """Return the toys as new models."""
    return Models(Logits(DRAFT), Logits(TARGET), sampling, folder, costs)


# ---- a decoder inside a decoder

@pytest.mark.parametrize("name, flag", [("suffix", "otherwise"), ("block", "guesser")])
@pytest.mark.parametrize("text, message", [
    ("", "need one of the decoders"), ("nothing", "need one of the decoders"),
    ("eagle --widths", "need a decoder with its flags"), ("eagle widths 2", "with its flags"),
    ("eagle --total x", "--total: need a whole number"),
    ("blockwise", "exact at every temperature, got 'blockwise'"),
    ("lenient --lenience 0.5", "exact at every temperature")])
def test_an_inner_decoder_is_named_with_flags_and_exact(name, flag, text, message, folder):
    with pytest.raises(ValueError, match=f"--{flag}: .*{message}"):
        build(name, models(WARM, folder), {flag: text})


def test_block_tests_the_guesses_of_its_guesser_by_its_own_rule(folder, monkeypatch):
    monkeypatch.setattr(block, "block_verify", lambda guesses, *rest: guesses[:1] + [2])
    got = first_round("block", {"guesser": "eagle"}, WARM, [0, 1], folder)
    assert got.ids == got.guesses[:1] + [2]


def test_the_flags_of_an_inner_decoder_reach_it_and_K_is_its_K(folder):
    for flags, n in (({"K": 3}, 3), ({"guesser": "eagle --K 2"}, 2)):
        assert len(first_round("block", flags, WARM, [0, 1], folder).guesses) == n
    got = first_round("suffix", {"sure": 99.0, "otherwise": "eagle --widths 2,1"}, WARM, [0, 1],
                      folder)
    assert got.guesses.parents == [-1, -1, 0, 1]


# ---- flags that could be taken for each other, and thresholds

def first_round(name, flags, sampling, x, folder=None, u=0.5):
    """Return the first round of a decoder after x; every uniform of it is u."""
    step = build(name, models(sampling, folder), flags)
    return step(x, 9, Scripted(repeat(u)))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name, flags", [
    ("tree", lambda n: {"widths": "dynamic", "total": n}),
    ("suffix", lambda n: {"sure": 99.0, "K": n}), ("suffix", lambda n: {"sure": 0.0, "cap": n}),
    ("blockwise", lambda n: {"block": 1 + n})])
def test_a_round_has_the_number_of_guesses_asked_for(name, flags, n, folder):
    result = first_round(name, flags(n), sampling_of(name), [0, 1] * 6, folder)
    assert len(result.guesses) == n


@pytest.mark.parametrize("selection", [2, 3])
def test_selection_reaches_blockwises_test(selection, folder):
    for x in TEXTS[:4]:
        got = first_round("blockwise", dict(block=3, selection=selection), GREEDY, x, folder)
        assert got.ids == blockwise_verify(got.guesses, None, got.p_target, None,
                                           top_k=selection)


EACH_SETTING = pytest.mark.parametrize("at_1", WARM_SETTINGS, ids=str)


def best_chain(model, x, n):
    """Return a model's n best tokens, one after another, and their probabilities."""
    ids = list(x)
    probs = []
    for _ in range(n):
        row = model(ids)[-1]
        ids.append(int(row.argmax()))
        probs.append(row.max())
    return ids[len(x) :], probs


def n_above(probs, threshold):
    """Return how many of the first probabilities are at least the threshold."""
    return len([*takewhile(lambda prob: prob >= threshold, probs)])


@EACH_SETTING
def test_greedy_confidence_and_fallback_are_read_at_temperature_1(at_1):
    for x, threshold in product(TEXTS, (0.5, 0.6, 0.8)):
        best, probs = best_chain(with_sampling(Logits(DRAFT), **at_1), x, 4)
        n = n_above(probs, threshold)
        got = first_round("assisted", {"K": 4, "confidence": threshold}, at_1 | GREEDY, x)
        assert got.guesses == best[: n + 1]
        got = first_round("big_little", {"run": 4, "fallback": threshold}, at_1 | GREEDY, x)
        assert got.guesses == best[:n]


@EACH_SETTING
def test_greedy_lenience_and_rollback_read_the_target_at_temperature_1(at_1):
    for x, rollback in product(TEXTS, (0.5, 1.0, 2.0)):
        best, _ = best_chain(with_sampling(Logits(DRAFT), **at_1), x, 3)
        rows = with_sampling(Logits(TARGET), **at_1)(x + best, 4)
        got = first_round("lenient", {"K": 3, "lenience": 0.5}, at_1 | GREEDY, x)
        assert got.ids == lenient_greedy_verify(best, None, rows, None, 0.5)
        flags = {"run": 3, "fallback": 0.0, "rollback": rollback}
        got = first_round("big_little", flags, at_1 | GREEDY, x)
        n = n_above([row[token] for row, token in zip(rows, best)], np.exp(-rollback))
        assert got.ids == best[:n] + [rows[n].argmax()]


@EACH_SETTING
def test_siblings_are_the_best_at_temperature_0_and_distinct_above(at_1):
    for x in TEXTS:
        row = with_sampling(Logits(DRAFT), **at_1)(x)[-1]
        best = np.argsort(-row, kind="stable")[: np.count_nonzero(row)].tolist()
        greedy = first_round("tree", {"widths": (3,)}, at_1 | GREEDY, x)
        assert greedy.guesses.tokens == best
        warm = first_round("tree", {"widths": (3,)}, at_1, x, u=0.1)
        assert sorted(warm.guesses.tokens) == sorted(best)  # not three times the first token


@EACH_SETTING
@pytest.mark.parametrize("name, flags", [("medusa", {"acceptance": "typical"}),
                                         ("blockwise", {"selection": 2})])
def test_the_target_of_lossy_heads_has_every_setting(name, flags, at_1, folder):
    for x in TEXTS[:3]:
        got = first_round(name, flags, at_1 | sampling_of(name), x, folder)
        assert np.allclose(got.p_target[0], with_sampling(Logits(TARGET), **at_1)(x)[-1])


# ---- types, defaults, refusals

@pytest.mark.parametrize("name", DECODERS)
def test_every_default_can_be_typed(name):
    for default, flag in DECODERS[name].flags.values():
        if default is not None:
            typed = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
            assert flag.type(typed) == default and (not flag.choices or default in flag.choices)


@pytest.mark.parametrize("name", DECODERS)
def test_None_is_a_value_only_of_a_flag_whose_default_it_is(name):
    entry = DECODERS[name]
    for flag, (default, _) in entry.flags.items():
        if default is None:
            assert entry.settings({flag: None}) == entry.settings({})
        else:
            message = f"--{flag}: need a value, got None (the default is {default})"
            with pytest.raises(ValueError, match=re.escape(message)):
                entry.settings({flag: None})


@pytest.mark.parametrize("name", DECODERS)
def test_build_reads_every_flag(name):
    body = ast.parse(inspect.getsource(DECODERS[name].build))
    read = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
    assert DECODERS[name].flags.keys() <= read


@pytest.mark.parametrize("read, good, bad", [
    (whole, {"3": 3, "007": 7}, ("0", "-1", "1.5", "a", "")),
    (either(whole, "auto"), {"auto": "auto", "2": 2}, ("0", "all")),
    (either(wholes, "auto"), {"3,2,1": (3, 2, 1), "auto": "auto"}, ("0,1", "", "a", "dynamic")),
    (costs, {"0.1,1,2": (0.1, [1.0, 2.0]), "0,1,2": (0.0, [1.0, 2.0])},
     ("1", "1,1", "1,0,1", "1,nan,1", "1,inf,2", "-1,1,1")),
    (partial(wholes, least=0), {"0,7": (0, 7)}, ("-1", "a", ""))])
def test_the_text_of_a_flag_is_read_and_checked(read, good, bad):
    assert {text: read(text) for text in good} == good
    for value in good.values():
        assert read is costs or read(value) == value  # a value may be given as itself
    assert wholes([3, 2]) == (3, 2)  # which JSON has instead of a tuple
    for text in bad:
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("name, flags, temperature, message", [
    ("block", {"K": 0}, 1.0, "--K: need a whole number >= 1, got '0'"),
    *(("block", {"guesser": text}, 1.0, "need a decoder that tests a chain")
      for text in ("match", "tree", "eagle --widths 2,1", "suffix")),
    ("tree", {"widths": ()}, 1.0, "--widths: "),
    ("match", {"guesses": "worst"}, 1.0, "--guesses: need best or drawn, got 'worst'"),
    ("nope", {}, 1.0, "need one of the decoders speculative, .*, got 'nope'"),
    ("big_little", {}, 1.0, "needs --temperature 0, because it is greedy; got 1.0"),
    ("tree", {"siblings": "distinct"}, 0.0, "--siblings distinct does not apply .*only top"),
    ("tree", {"siblings": "distinct", "widths": "dynamic"}, 1.0, "--siblings distinct does not"),
    ("cascade", {"price": np.nan}, 1.0, "--price: need a finite number, got nan"),
    ("tree", {"total": 3}, 1.0, "--total needs --widths dynamic"),
    ("tree", {"widths": "auto"}, 1.0, "--decoder tree needs Models.costs"),
    ("stopping", {}, 1.0, "needs Models.costs"),
    ("eagle", {"siblings": "top"}, 1.0, "--siblings and --total need a tree"),
    ("eagle", {"total": 5}, 1.0, "--siblings and --total need a tree"),
    ("eagle", {"widths": (2,), "K": 3}, 1.0, "--K needs --widths chain or --widths dynamic"),
    ("skip", {"skip": (0,), "exit": 1}, 1.0, "--skip and --exit are both given: choose one"),
    ("skip", {"exit": 4}, 1.0, "need --exit <= n_layer = 3"),
    ("skip", {"skip": (0, 3)}, 1.0, "need --skip in 0 .. n_layer - 1 = 2, got 3"),
    ("lookahead", {"ngram": 1}, 1.0, "need --ngram >= 2, got 1"),
    ("suffix", {"sure": -1.0}, 1.0, "need --sure >= 0, got -1.0"),
    ("suffix", {"sure": 0.0, "otherwise": "lookup"}, 1.0, "--otherwise does not apply"),
    ("block", {"guesser": 5}, 1.0, "--guesser: need one of the decoders"),
    ("block", {"K": 3, "guesser": "eagle --K 1"}, 1.0, "--K 3 and 'eagle --K 1' both give"),
    ("lenient", {"lenience": 5e-324}, 1.0, "need 1e-99 <= lenience <= 1"),
    ("lenient", {"lenience": 2.0}, 1.0, "lenience"),
    ("speculative", {"K": True}, 1.0, "--K: need auto or a whole number >= 1, got 'True'")])
def test_flags_that_do_not_fit_are_refused(name, flags, temperature, message):
    with pytest.raises(ValueError, match=message):
        step = build(name, models(dict(temperature=temperature)), flags)
        step([1, 2], 5, np.random.default_rng(0))


@pytest.mark.parametrize("wrong", [
    Costs(0.1, []), Costs(0, [0, 0]), Costs(-0.1, [1, 1]), Costs(0.1, [1, np.nan]),
    Costs(0.1, [1, np.inf]), Costs(np.nan, [1, 1])], ids=str)
def test_costs_that_no_machine_has_are_refused(wrong):
    with pytest.raises(ValueError, match="need Costs of a draft pass >= 0 and of passes"):
        build("speculative", models(WARM, costs=wrong), {"K": "auto"})
    assert build("speculative", models(WARM, costs=Costs(0, [1.0, 1.1])), {"K": "auto"})


def test_lenience_1_at_temperature_0_rejects_a_guess_that_only_ties_with_the_best():
    draft, target = (Logits(context_free(row)) for row in ([0.1, 0.9, 0.0], [0.5, 0.5, 0.0]))
    step = build("lenient", Models(draft, target, GREEDY), {"K": 1, "lenience": 1.0})
    assert step([0], 2, np.random.default_rng(0)).ids == [0]
