"""All decoders through their registry: flags, greedy identity on the bundled pair, true caches."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import benchmarks.variants as benchmark
from gpt2 import GPT2
from sampling import warped
from speculative import autoregressive_sampling, generate
from utils import load_encoder_hparams_and_params, random_params
from variants import DECODERS, FLAGS, Models, build, choices, numbers, settings

MODELS = Path(__file__).parents[1] / "models"
LOSSLESS = [name for name in DECODERS if DECODERS[name].exact(settings(name, {}))]
PROMPTS = ["Once upon a time there was a", "The fox looked up at the raven and said"]
EXTRA = [("medusa", {"sparse": [(0,), (1,), (0, 0), (0, 0, 0)]}), ("tree", {"widths": (3, 3, 2, 1)}), ("tree", {"siblings": "top"}),
         ("assisted", {"schedule": "heuristic", "K": 5, "confidence": 0.0}), ("lenient", {"lenience": 1.0}),
         ("bild", {"fallback": 1.5}), ("lookup", {"K": 3, "max_ngram": 1})]
CASES = [(name, {}) for name in LOSSLESS] + EXTRA


@lru_cache
def pair():
    encoder, hparams, params = load_encoder_hparams_and_params("tales-large", MODELS, np.float64)
    _, draft_hparams, draft_params = load_encoder_hparams_and_params("tales-small", MODELS, np.float64)
    return encoder, (params, hparams["n_head"]), (draft_params, draft_hparams["n_head"])


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    """Random heads as wide as the bundled target: bad guesses, which is what losslessness is for."""
    n_embd, rng = pair()[1][0]["wte"].shape[1], np.random.default_rng(0)
    path = tmp_path_factory.mktemp("heads") / "medusa.npz"
    w, a = rng.normal(size=(2, 3, n_embd, n_embd)) / n_embd
    np.savez(path, w=w, a=a, b=rng.normal(size=(3, n_embd)))
    return path


@lru_cache
def plain(prompt, penalty):
    encoder, target, _ = pair()
    knobs = dict(temperature=0.0, repetition_penalty=penalty)
    return autoregressive_sampling(encoder.encode(prompt), warped(GPT2(*target), **knobs), 30, np.random.default_rng(0))


@pytest.mark.parametrize("name, flags", CASES, ids=str)
@pytest.mark.parametrize("prompt, penalty", [*zip(PROMPTS, (1.0, 1.3))])
def test_greedy_texts_of_the_bundled_pair_are_the_targets(name, flags, prompt, penalty, heads):
    encoder, target, draft = pair()
    knobs = dict(temperature=0.0, repetition_penalty=penalty)
    step = build(name, Models(GPT2(*draft), GPT2(*target), knobs, heads), flags)
    x = encoder.encode(prompt)
    for round in generate(x, step, 30, np.random.default_rng(1)):
        x = x + round.ids
    assert x == plain(prompt, penalty)


TOYS = [random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=n_layer),
                      np.random.default_rng(n_layer), np.float64) for n_layer in (1, 2)]


@pytest.fixture
def toy_heads(tmp_path):
    rng = np.random.default_rng(1)
    w, a = rng.normal(size=(2, 3, 12, 12))
    np.savez(tmp_path / "medusa.npz", w=w, a=a, b=rng.normal(size=(3, 12)))
    return tmp_path / "medusa.npz"


ALL = [(name, temperature) for name in DECODERS for temperature in (0.0, 1.0)
       if temperature == 0 or not DECODERS[name].greedy]


@pytest.mark.parametrize("name, temperature", ALL)
def test_a_used_cache_gives_the_rows_of_a_fresh_one_in_every_round(name, temperature, toy_heads):
    knobs = dict(temperature=temperature, top_k=7, repetition_penalty=1.2)
    step = build(name, Models(*(GPT2(params, 3) for params in TOYS), knobs, toy_heads))
    x, N = [1, 2, 3], 21  # as far as the context goes
    for round in generate(x, step, N, np.random.default_rng(0)):
        if len(round.guesses) + 1 == len(round.p_target):  # warped as the decoder's test wants it
            rows = [warped(GPT2(TOYS[1], 3), **{**knobs, "temperature": hot})(x)[-1] for hot in (temperature, 1.0)]
            assert any(np.allclose(round.p_target[0], row, atol=1e-10) for row in rows)
        assert 1 <= len(round.ids) <= len(round.guesses) + 1
        x = x + round.ids
    assert len(x) == 24


@pytest.mark.parametrize("name, temperature", ALL)
def test_the_same_seed_gives_the_same_text(name, temperature, toy_heads):
    texts = []
    for _ in range(2):
        step = build(name, Models(*(GPT2(params, 3) for params in TOYS), dict(temperature=temperature), toy_heads))
        texts.append([round.ids for round in generate([1], step, 20, np.random.default_rng(5))])
    assert texts[0] == texts[1]


def test_every_flag_has_a_user_and_every_default_can_be_typed():
    used = {flag for decoder in DECODERS.values() for flag in decoder.flags}
    assert used == set(FLAGS)
    for decoder in DECODERS.values():
        for flag, value in decoder.flags.items():
            typed = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
            assert FLAGS[flag].type(typed) == value
            assert not FLAGS[flag].choices or value in FLAGS[flag].choices


def test_settings_fill_in_defaults():
    assert settings("lookup", {"K": 3, "lenience": None}) == {"K": 3, "max_ngram": 3}


@pytest.mark.parametrize("name, given, message", [
    ("lookup", {"lenience": 0.5}, "no --lenience with the decoder lookup"),
    ("medusa", {"K": 4}, "no --K"), ("block", {"K": 0}, "--K >= 1"), ("kseq", {"chains": 0}, "--chains >= 1")])
def test_a_flag_that_a_decoder_does_not_use_is_an_error(name, given, message):
    with pytest.raises(ValueError, match=message):
        settings(name, given)


@pytest.mark.parametrize("name, flags, temperature, message", [
    ("bild", {}, 1.0, "temperature 0"), ("blockwise", {}, 0.5, "temperature 0"),
    ("tree", {"siblings": "distinct"}, 0.0, "siblings top"), ("medusa", {}, 0.0, "heads"), ("staged", {"width": 2}, 0.0, "width 1"),
    ("lenient", {"lenience": 2.0}, 1.0, "lenience")])
def test_what_does_not_go_together_is_named(name, flags, temperature, message):
    with pytest.raises(ValueError, match=message):
        step = build(name, Models(GPT2(TOYS[0], 3), GPT2(TOYS[1], 3), dict(temperature=temperature), None), flags)
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
    benchmark.main()
    first, second = capsys.readouterr().out.split("Temperature 1")
    for name, decoder in DECODERS.items():
        if "heads" not in decoder.needs:
            assert f"\n| {name} |" in first
            assert (f"\n| {name} |" in second) == (not decoder.greedy)


def test_every_variant_has_its_paragraph_and_says_whether_it_is_lossless():
    text = (MODELS.parent / "docs" / "variants.md").read_text(encoding="utf-8")
    for path in (MODELS.parent / "variants").glob("[!_]*.py"):
        assert f"| {path.name} |" in text
        assert "ossless" in path.read_text(encoding="utf-8").split("\n")[0], path.name


def test_a_fallback_of_0_is_not_the_default(toy_heads):
    """The small model then writes a whole run, however unsure it is."""
    step = build("bild", Models(*(GPT2(params, 3) for params in TOYS), dict(temperature=0.0)), {"fallback": 0.0})
    assert len(step([1, 2], 15, None).guesses) == 10
