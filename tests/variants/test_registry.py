"""All decoders through their registry: flags, greedy identity on the bundled pair, true caches."""

import argparse
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import benchmarks.variants as benchmark
from gpt2 import GPT2
from lib.checkpoints.weights import random_params
from sampling import with_sampling
from speculative import autoregressive_sampling, complete, generate
from tests import bundled
from tests.variants.registered import assert_keeps_the_distribution, write_heads
from variants import DECODERS, FLAGS, Models, build, settings
from variants.medusa import choices
from variants.registry import numbers
from variants.shared.tree_gpt2 import TreeGPT2

ROOT = Path(__file__).parents[2]
LOSSLESS = [name for name in DECODERS if DECODERS[name].exact(settings(name, {}))]
PROMPTS = ["Once upon a time there was a", "The fox looked up at the raven and said"]
EXTRA = [("medusa", {"sparse": [(0,), (1,), (0, 0), (0, 0, 0)]}),
         ("tree", {"widths": (3, 3, 2, 1)}), ("tree", {"siblings": "top"}),
         ("tree", {"widths": "dynamic"}), ("tree", {"widths": "auto"}),
         ("assisted", {"schedule": "heuristic", "K": 5, "confidence": 0.0}),
         ("lenient", {"lenience": 1.0}), ("big_little", {"fallback": 1.5}),
         ("lookup", {"K": 3, "max_ngram": 1})]
CASES = [(name, {}) for name in LOSSLESS] + EXTRA
ENUMERATED = [(name, {}) for name in LOSSLESS] + [("lenient", {"lenience": 1.0}),
                                                  ("big_little", {"fallback": 1.5})]


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """Random heads as wide as the bundled target."""
    n_embd = bundled.load("tales-large")[1]["n_embd"]
    return write_heads(tmp_path_factory.mktemp("heads"), n_embd)


@cache
def plain(prompt, penalty):
    """The target's own greedy text."""
    target = with_sampling(GPT2(*bundled.weights("tales-large")), temperature=0.0,
                           repetition_penalty=penalty)
    x = bundled.encoder().encode(prompt)
    return autoregressive_sampling(x, target, 30, np.random.default_rng(0))


@pytest.mark.parametrize("name, flags", CASES, ids=str)
@pytest.mark.parametrize("prompt, penalty", [*zip(PROMPTS, (1.0, 1.3))])
def test_greedy_texts_of_the_bundled_pair_are_the_targets(name, flags, prompt, penalty, heads):
    draft, target = (TreeGPT2(*bundled.weights(size)) for size in ("tales-small", "tales-large"))
    chosen = dict(temperature=0.0, repetition_penalty=penalty)
    step = build(name, Models(draft, target, chosen, heads), flags)
    x = bundled.encoder().encode(prompt)
    assert complete(x, step, 30, np.random.default_rng(1)) == plain(prompt, penalty)


@pytest.mark.parametrize("name, flags, temperature", [
    (name, flags, temperature) for name, flags in ENUMERATED for temperature in (0.0, 0.7)
    if temperature == 0 or not DECODERS[name].greedy])
def test_every_exact_decoder_keeps_the_targets_joint_distribution(name, flags, temperature,
                                                                  tmp_path):
    heads = write_heads(tmp_path, n_embd=3)
    assert_keeps_the_distribution(name, flags, dict(temperature=temperature), heads)


def test_a_decoder_that_is_not_exact_is_refused_by_that():
    with pytest.raises(AssertionError, match="a different distribution"):
        assert_keeps_the_distribution("lenient", {"lenience": 0.5}, dict(temperature=0.7))


TOYS = [random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=n_layer),
                      np.random.default_rng(n_layer), np.float64) for n_layer in (1, 2)]


@pytest.fixture
def toy_heads(tmp_path):
    return write_heads(tmp_path, n_embd=12)


def toy_models(temperature, heads=None):
    """Draft and target that have read nothing yet."""
    return Models(*(TreeGPT2(params, 3) for params in TOYS), dict(temperature=temperature), heads)


ALL = [(name, temperature) for name in DECODERS for temperature in (0.0, 1.0)
       if temperature == 0 or not DECODERS[name].greedy]


@pytest.mark.parametrize("name, temperature", ALL)
def test_a_used_cache_gives_the_rows_of_a_fresh_one_in_every_round(name, temperature, toy_heads):
    chosen = dict(temperature=temperature, top_k=7, repetition_penalty=1.2)
    step = build(name, Models(*(TreeGPT2(params, 3) for params in TOYS), chosen, toy_heads))
    x, N = [1, 2, 3], 21  # as far as the context goes
    for round in generate(x, step, N, np.random.default_rng(0)):
        if len(round.guesses) + 1 == len(round.p_target):  # temperature as its test wants it
            rows = [with_sampling(GPT2(TOYS[1], 3), **{**chosen, "temperature": T})(x)[-1]
                    for T in (temperature, 1.0)]
            assert any(np.allclose(round.p_target[0], row, atol=1e-10) for row in rows)
        assert 1 <= len(round.ids) <= len(round.guesses) + 1
        x = x + round.ids
    assert len(x) == 24


@pytest.mark.parametrize("name, temperature", ALL)
def test_the_same_seed_gives_the_same_text(name, temperature, toy_heads):
    texts = []
    for _ in range(2):
        step = build(name, toy_models(temperature, toy_heads))
        texts.append([round.ids for round in generate([1], step, 20, np.random.default_rng(5))])
    assert texts[0] == texts[1]


def test_every_flag_has_a_user_and_every_default_can_be_typed():
    used = {flag for decoder in DECODERS.values() for flag in decoder.flags}
    assert used == set(FLAGS)
    for decoder in DECODERS.values():
        for flag, entry in decoder.flags.items():
            value, seen = entry.default, FLAGS[flag]
            typed = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
            assert entry.type(typed) == value and entry.type is seen.type
            assert not entry.choices or value in entry.choices


def test_settings_fill_in_defaults():
    assert settings("lookup", {"K": 3, "lenience": None}) == {"K": 3, "max_ngram": 3}


@pytest.mark.parametrize("name, given, message", [
    ("lookup", {"lenience": 0.5}, "no --lenience with the decoder lookup"),
    ("medusa", {"K": 4}, "no --K"), ("block", {"K": 0}, "--K >= 1"),
    ("kseq", {"chains": 0}, "--chains >= 1")])
def test_a_flag_that_a_decoder_does_not_use_is_an_error(name, given, message):
    with pytest.raises(ValueError, match=message):
        settings(name, given)


@pytest.mark.parametrize("name, flags, temperature, message", [
    ("big_little", {}, 1.0, "temperature 0"), ("blockwise", {}, 0.5, "temperature 0"),
    ("tree", {"siblings": "distinct"}, 0.0, "siblings top"), ("medusa", {}, 0.0, "heads"),
    ("staged", {"width": 2}, 0.0, "width 1"), ("lenient", {"lenience": 2.0}, 1.0, "lenience")])
def test_what_does_not_go_together_is_named(name, flags, temperature, message):
    with pytest.raises(ValueError, match=message):
        step = build(name, toy_models(temperature), flags)
        step([1, 2], 5, np.random.default_rng(0))


def test_sparse_trees_are_read_and_must_be_closed_under_prefix():
    assert choices("0 1 0.0 0.1") == [(0,), (1,), (0, 0), (0, 1)] and choices("") == []
    for text in ("0 1.0", "0.0", "-1", "a"):
        with pytest.raises(ValueError):
            choices(text)


def test_numbers_are_read_and_checked():
    assert numbers("3,2,1") == (3, 2, 1)
    for text in ("0,1", "", "a"):
        with pytest.raises(ValueError):
            numbers(text)


def test_the_benchmark_has_a_line_for_every_decoder_that_can_run(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["variants", "--N", "2", "--repeats", "1"])
    monkeypatch.setitem(benchmark.PROMPTS, "openings", benchmark.OPENINGS[:1])
    benchmark.main()
    first, second = capsys.readouterr().out.split("Temperature 1")
    for name, decoder in DECODERS.items():
        if not decoder.has_heads:
            assert f"\n| {name} |" in first
            assert (f"\n| {name} |" in second) == (not decoder.greedy)


def test_the_benchmarks_rows_can_be_chosen(monkeypatch, capsys):
    rows = ["stopping", "speculative --K 3", "tree --widths 2,1"]
    monkeypatch.setattr("sys.argv", ["variants", "--N", "2", "--repeats", "1", "--seeds", "2",
                                     "--temperature", "1", "--rows", *rows])
    monkeypatch.setitem(benchmark.PROMPTS, "openings", benchmark.OPENINGS[:1])
    benchmark.main()
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in said[5:8]] == [f"| {row}" for row in rows]
    for text in ("none", "speculative --K", "speculative --widths 2", "speculative --K x"):
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            benchmark.row_of(text)


def test_every_variant_has_its_paragraph_and_says_whether_it_is_lossless():
    text = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    for path in set((ROOT / "variants").glob("[!_]*.py")) - {ROOT / "variants" / "registry.py"}:
        assert f"| [{path.name}](" in text and f"](../variants/{path.name})" in text
        assert "ossless" in path.read_text(encoding="utf-8").split('"""')[1], path.name


def test_a_fallback_of_0_is_not_the_default(toy_heads):
    """The small model then writes a whole run, however unsure it is."""
    step = build("big_little", toy_models(0.0), {"fallback": 0.0})
    assert len(step([1, 2], 15, None).guesses) == 10
