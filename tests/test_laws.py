"""Properties of every decoder of the registry, each written once, through `variants.build`.

A decoder is covered as soon as it is registered: with --K 2, or with its flags in
tests/small.py. Distributions are enumerated (exact/law.py), so no test here has a false alarm.
A decoder whose entry says exact=False need not have the target's distribution, but has to have
the one that tests/small.py predicts for it.
"""

from functools import cache, partial

import numpy as np
import pytest

from exact.law import expectation, law, text_law, total_variation
from gpt2 import GPT2
from lib.checkpoints.weights import open_arrays, random_params
from run.rounds import log_probabilities
from sampling import warp, with_sampling
from speculative import autoregressive_sampling, complete, generate, verify
from tests import bundled
from tests.distributions import assert_same_law
from tests.llamas import llama_params
from tests.small import (
    COSTS,
    LOSSY,
    PARAMS,
    Logits,
    forms,
    models_of,
    n_rejected,
    needs,
    sampling_of,
    stepper,
)
from tests.toys import PAIRS, Automaton, mapped, toy
from utils import MODELS_DIR
from variants import DECODERS, Models, build
from variants.registry import always, never
from variants.shared.branches import Tree
from variants.shared.tree_gpt2 import TreeGPT2, TreeLlama
from wrappers.batch import batch_model, generate_batch
from wrappers.window import window, windowed

X = [0, 1, 0]
N_NEW = 3  # tokens that most texts get
WARM = dict(temperature=0.7)
GREEDY = dict(temperature=0.0)
ALL_SETTINGS = WARM | dict(top_k=2, top_p=0.8, repetition_penalty=1.3)
PENALTY = WARM | dict(repetition_penalty=1.3)  # each row depends on all tokens before it
SETTINGS = [WARM, GREEDY, ALL_SETTINGS]
MASKED = [sampling | dict(allowed=Automaton()) for sampling in (WARM, GREEDY)]
EXACT = [name for name in DECODERS if DECODERS[name].exact is not never]  # with some flags
ALL = [(name, i) for name in EXACT for i in range(len(forms(name)))]
NOT_GREEDY = [name for name in EXACT if not DECODERS[name].greedy]
ACCEPT_EQUALS = [name for name in EXACT if "draft" in needs(name)
                 and forms(name)[0].equal is not None]
# Decoders with one test, such as verify, differ in their guesses only.
OF_EACH_TEST = {DECODERS[name].test: name for name in reversed(EXACT)}.values()
NO_HEADS = [name for name in DECODERS if "heads" not in needs(name)]


def sharp(row):
    """Return a row whose smallest entry is subnormal."""
    row = np.where(row == row.min(), 5e-322, row)
    return row / row.sum()


ALL_PAIRS = PAIRS | {
    "two left": (toy(3, 64, zeros=0), toy(3, 104, zeros=0)),  # a residual of two tokens
    "sharp": (mapped(toy(3, 45, zeros=0), sharp), mapped(toy(3, 46, zeros=0), sharp)),
    "two tokens": (toy(2, 47, zeros=0), toy(2, 48, zeros=0)),
}


@pytest.fixture(autouse=True, scope="module")
def computed_once():
    """Warp each row once, and read each file of heads once: every run needs them again."""
    distributions = {}

    def warp_once(logits, *, ids=(), **settings):
        key = np.asarray(logits).tobytes(), np.shape(logits), tuple(ids), *settings.items()
        if key not in distributions:
            distributions[key] = warp(logits, ids=ids, **settings)
        return distributions[key].copy()  # the caller may overwrite it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sampling.warp", warp_once)
        patch.setattr("variants.shared.branches.warp", warp_once)
        patch.setattr("variants.shared.heads.open_arrays", cache(open_arrays))
        yield


@pytest.fixture
def new_stepper(heads):
    """Return `stepper` for a pair's name, with heads for the pair's vocabulary."""
    def stepper_of(name, flags, pair, sampling):
        n_vocab = Logits(ALL_PAIRS[pair][1]).n_vocab
        return stepper(name, flags, ALL_PAIRS[pair], sampling, heads(PARAMS[n_vocab]))

    return stepper_of


def warped_target(pair, sampling):
    """Return the target of a pair with these sampling settings."""
    return with_sampling(Logits(ALL_PAIRS[pair][1]), **sampling)


def fits(name, i, sampling):
    """Return whether form i of a decoder runs with these settings."""
    if sampling["temperature"] > 0:
        return not DECODERS[name].greedy
    return not forms(name)[i].warm_only


def flags_with_equals(name):
    """Return flags with which no guess of a draft equal to the target is rejected."""
    form = forms(name)[0]
    return form.flags | form.equal


def assert_exact(new_step, pair, sampling, N=N_NEW, stop=()):
    """Refuse a decoder whose text has a different distribution from the target's."""
    got = law(lambda rng: tuple(complete(X, new_step(), N, rng, stop)))
    assert_same_law(got, text_law(X, warped_target(pair, sampling), N, stop))


# ---- the distribution

def daily_cases():
    """Yield (decoder, number of its form, pair, settings, new tokens)."""
    for name, i in ALL:
        settings = [WARM, GREEDY] if i > 0 else [GREEDY, ALL_SETTINGS, *MASKED]
        for sampling in settings:
            if fits(name, i, sampling):
                is_slow = forms(name)[i].slow and sampling == WARM
                yield name, i, "dense", sampling, 2 if is_slow else N_NEW
    for name in EXACT:
        yield name, 0, "sparse", sampling_of(name), N_NEW
    for name in OF_EACH_TEST:  # whose divisions may round
        for pair in ("disjoint", "equal", "one ulp away", "sharp"):
            yield name, 0, pair, sampling_of(name), N_NEW
        if name in NOT_GREEDY:
            yield name, 0, "two left", PENALTY, N_NEW


@pytest.mark.parametrize("name, i, pair, sampling, N", [
    *daily_cases(),
    *(pytest.param(name, i, "dense", WARM, N_NEW, marks=pytest.mark.weekly)
      for name, i in ALL if forms(name)[i].slow)], ids=str)
def test_the_text_is_distributed_as_the_targets_own(name, i, pair, sampling, N, new_stepper):
    new_step = new_stepper(name, forms(name)[i].flags, pair, sampling)
    assert_exact(new_step, pair, sampling, N)


@pytest.mark.parametrize("name, i", [form for form in ALL if fits(*form, GREEDY)])
def test_a_greedy_token_has_the_largest_logit_even_if_probabilities_tie(
        name, i, new_stepper, monkeypatch):
    monkeypatch.setattr("tests.small.log_row", lambda model, text: [0, 1e-17, -1])
    step = new_stepper(name, forms(name)[i].flags, "dense", GREEDY)()
    assert complete([0], step, 3, np.random.default_rng(0)) == [0, 1, 1, 1]


@pytest.mark.parametrize("name", EXACT)
def test_a_fault_that_begins_at_the_third_guess_would_be_seen(name, new_stepper):
    form = forms(name)[0]
    new_step = new_stepper(name, form.flags | form.deep, "two tokens", sampling_of(name))
    assert_exact(new_step, "two tokens", sampling_of(name), N=1 + form.deep.get("K", 3))


@pytest.mark.parametrize("name", NOT_GREEDY)
@pytest.mark.parametrize("stop", [{1}, lambda new: new.count(0) == 2], ids=["id", "count"])
def test_a_stop_ends_the_text_where_it_ends_the_targets(name, stop, new_stepper):
    """The second 0 ends a text inside a round; the first may be of a round before."""
    new_step = new_stepper(name, forms(name)[0].flags, "two tokens", WARM)
    assert_exact(new_step, "two tokens", WARM, stop=stop)


@pytest.mark.parametrize("name, i", ALL, ids=str)
def test_each_token_has_the_targets_log_probability(name, i, new_stepper):
    """In chains and in trees; the reference reads the target's rows once more."""
    sampling = ALL_SETTINGS if fits(name, i, ALL_SETTINGS) else GREEDY
    new_step = new_stepper(name, forms(name)[i].flags, "dense", sampling)
    target = warped_target("dense", sampling)
    for seed in range(6):
        x = list(X)
        for result in generate(X, new_step(), 8, np.random.default_rng(seed)):
            for token, got in zip(
                    result.ids, log_probabilities(result, sampling is GREEDY), strict=True):
                assert got == pytest.approx(np.log(target(x, 1)[-1][token]), abs=1e-12)
                x.append(token)


@pytest.mark.parametrize("name", NOT_GREEDY)
def test_two_texts_one_after_the_other_are_independent(name, new_stepper):
    """A step's state must not reach into the next text."""
    new_step = new_stepper(name, forms(name)[0].flags, "two tokens", WARM)

    def two_texts(rng):
        step = new_step()
        return tuple(complete(X, step, 2, rng)), tuple(complete([1], step, 2, rng))

    target = warped_target("two tokens", WARM)
    first = text_law(X, target, 2)
    second = text_law([1], target, 2)
    product = {(a, b): first[a] * second[b] for a in first for b in second}
    assert_same_law(law(two_texts), product)


@pytest.mark.parametrize("name", EXACT)
def test_in_a_window_the_text_is_the_windowed_targets(name, new_stepper):
    n_ctx = 4
    sampling = sampling_of(name, 0.7)
    new_step = new_stepper(name, forms(name)[0].flags, "two tokens", sampling)
    target = warped_target("two tokens", sampling)
    target_in_window = lambda ids, n_last: target(window(list(ids), len(X), n_ctx), n_last)
    got = law(lambda rng: tuple(complete(X, windowed(new_step(), len(X), n_ctx), 4, rng)))
    assert_same_law(got, text_law(X, target_in_window, 4))


def test_a_decoder_that_is_not_exact_is_seen():
    new_step = stepper("lenient", {"K": 2, "lenience": 0.5}, PAIRS["dense"], WARM)
    with pytest.raises(AssertionError, match="a different distribution"):
        assert_exact(new_step, "dense", WARM)


# a greedy decoder has no distribution
@pytest.mark.parametrize("name", [
    name for name, entry in DECODERS.items()
    if not entry.greedy and (entry.family == "a lossy rule" or entry.exact is never)])
def test_a_lossy_decoder_deviates_as_its_formula_says(name):
    flags, formula = LOSSY[name]
    entry = DECODERS[name]
    assert not entry.exact(entry.settings(flags))
    new_step = stepper(name, flags, PAIRS["dense"], WARM)
    distances = []
    for x in ([0, 1, 0], [1], [2, 2]):
        p_draft, p_target = (with_sampling(Logits(model), **WARM)(x)[-1]
                             for model in PAIRS["dense"])
        first_token = law(lambda rng: complete(x, new_step(), 2, rng)[len(x)])  # noqa: B023
        assert_same_law(first_token, dict(enumerate(formula(p_draft, p_target))))
        distances.append(total_variation(first_token, dict(enumerate(p_target))))
    assert max(distances) > 0.01


def test_every_decoder_is_exact_with_its_small_flags():
    for name in EXACT:
        entry = DECODERS[name]
        assert all(entry.exact(entry.settings(form.flags)) for form in forms(name)), name


@pytest.mark.parametrize("name", DECODERS)
def test_an_entry_of_a_lossy_test_says_when_it_is_exact(name):
    entry = DECODERS[name]
    assert entry.family != "a lossy rule" or entry.exact is not always
    # the words are a condition if, and only if, the flags decide
    words = {always: "exact", never: "no"}
    assert entry.exact_words == words.get(entry.exact, entry.exact_words)
    assert (entry.exact in words) == (entry.exact_words in words.values())


@pytest.mark.parametrize("name", [name for name in DECODERS if DECODERS[name].test is verify])
def test_a_decoder_with_the_ratio_rule_runs_the_rule_of_its_models(name, heads):
    tested = []

    def test(guesses, p_draft, p_target, rng):
        tested.append(len(guesses))
        return verify(guesses, p_draft, p_target, rng)

    models = models_of(PAIRS["dense"], WARM, heads(PARAMS[3]))._replace(test=test)
    step = build(name, models, forms(name)[0].flags)
    rounds = list(generate([0, 1, 2, 1, 0, 0, 1], step, 20, np.random.default_rng(0)))
    assert tested == [len(result.guesses) for result in rounds] and any(tested)


# ---- how many tokens, in how many passes

@pytest.mark.parametrize("name, sampling", [
    (name, sampling) for name in ACCEPT_EQUALS for sampling in SETTINGS
    if fits(name, 0, sampling)], ids=str)
def test_no_guess_of_a_draft_equal_to_the_target_is_rejected(name, sampling):
    """So it needs the fewest passes; exactness alone cannot see a useless draft."""
    target = PAIRS["dense"][1]
    new_step = stepper(name, flags_with_equals(name), (target, target), sampling)
    mean = expectation(lambda rng: n_rejected(new_step(), X, N_NEW, rng), float)
    assert mean == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", DECODERS)
def test_a_round_is_one_target_pass_and_only_decoders_with_a_draft_call_it(name, heads):
    models = models_of(PAIRS["dense"], sampling_of(name), heads(PARAMS[3]))
    step = build(name, models, forms(name)[0].equal or {})
    rounds = list(generate([0, 1, 2, 1, 0, 0, 1], step, 20, np.random.default_rng(0)))
    n_extra = "heads" in needs(name)  # heads need a state before the first round
    assert models.target.n_calls == len(rounds) + n_extra
    assert (models.draft.n_calls > len(rounds) / 2) == ("draft" in needs(name))


# ---- the same text again: seeds, caches, batches, the bundled pair

N_LAYERS = (1, 2)  # of the draft, of the target
TINY = {
    TreeGPT2: [random_params(dict(n_vocab=13, n_ctx=24, n_embd=12, n_head=3, n_layer=n_layer),
                             np.random.default_rng(n_layer), np.float64) for n_layer in N_LAYERS],
    TreeLlama: [llama_params(n_layer, n_embd=12, n_head=3, n_kv=1, n_layer=n_layer)
                for n_layer in N_LAYERS]}
def tiny(kind, sampling, folder):
    """Return a draft and a target that have read nothing yet."""
    return Models(*(kind(params, 3) for params in TINY[kind]), sampling, folder, COSTS)


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("name", DECODERS)
def test_a_used_cache_gives_the_rows_of_a_fresh_one_in_every_round(kind, name, heads):
    sampling = sampling_of(name) | dict(top_k=7, repetition_penalty=1.2)
    models = tiny(kind, sampling, heads(TINY[kind][1]))
    step = build(name, models, forms(name)[0].flags)
    x = [1, 2, 3]
    for result in generate(x, step, 21, np.random.default_rng(0)):  # to the end of the context
        # a greedy decoder whose test has a threshold reads rows at temperature 1
        rows = [with_sampling(models.target.fresh(), **sampling | dict(temperature=T))(x)[-1]
                for T in (sampling["temperature"], 1.0)]
        assert any(np.allclose(result.p_target[0], row, atol=1e-10) for row in rows)
        x = x + result.ids
    assert len(x) == 24


@pytest.mark.parametrize("kind", TINY)
@pytest.mark.parametrize("name", NO_HEADS)
def test_a_text_in_a_batch_is_the_text_alone_or_a_tree_is_refused(kind, name):
    shared = [batch_model(model, turn) for turn, model in enumerate(tiny(kind, {}, None)[:2])]
    new_shared_step = partial(build, name, Models(*shared, sampling_of(name), None, COSTS))
    new_step = lambda: build(name, tiny(kind, sampling_of(name), None))
    jobs = lambda: [([i, 1, 2], 6 + i, np.random.default_rng(i)) for i in range(5)]
    if isinstance(new_step()([0, 1, 0], 5, np.random.default_rng(0)).guesses, Tree):
        with pytest.raises(ValueError, match="models that read trees"):
            list(generate_batch(jobs(), new_shared_step))
        return
    alone = [complete(x, new_step(), N, rng)[len(x) :] for x, N, rng in jobs()]
    for batch in (1, 3):
        together = [[token for result in rounds for token in result.ids]
                    for rounds in generate_batch(jobs(), new_shared_step, batch)]
        assert together == alone


THREE = [llama_params(seed, n_vocab=3, n_embd=8, n_head=2, n_kv=1, n_layer=3) for seed in (1, 2)]


@pytest.mark.parametrize("name, i, keep", [
    *((name, 0, None) for name in EXACT),
    *(("eagle", i, keep) for i in range(3) for keep in ([0, 2], [1])),
    ("suffix", 4, [0, 2]), ("suffix", 5, [0, 2]), ("quantized", 2, [0, 2])], ids=str)
def test_a_llama_of_three_tokens_has_its_distribution_by_every_decoder(name, i, keep, heads):
    N = 2 if keep is None else N_NEW  # the head's own guesses begin with the second one
    sampling, folder = sampling_of(name), heads(THREE[1], keep=keep)
    draft, target = (TreeLlama(params, 2) for params in THREE)
    fresh = lambda ids, n_last=1: target.fresh()(ids, n_last)
    right = text_law(X, with_sampling(fresh, **sampling), N)

    def write(rng):
        # The models keep what they have read: each path of the enumeration goes back.
        step = build(name, Models(draft, target, sampling, folder, COSTS), forms(name)[i].flags)
        return tuple(complete(X, step, N, rng))

    # The prompt is read before: the last bits of a row depend on how many rows are read with it.
    write(np.random.default_rng(0))
    assert_same_law(law(write), right)


PENALISED = dict(temperature=0.0, repetition_penalty=1.3)  # a penalty reads all ids


@pytest.fixture(scope="module")
def plain_text():
    """Return a prompt of the bundled target, and its greedy text."""
    x = bundled.encoder().encode("The fox looked up at the raven and said")
    target = with_sampling(GPT2(*bundled.weights("tales-large")), **PENALISED)
    return x, autoregressive_sampling(x, target, 8, np.random.default_rng(0))


@pytest.mark.parametrize("name, i", [form for form in ALL if fits(*form, GREEDY)])
def test_greedy_texts_of_the_bundled_pair_are_the_targets(name, i, plain_text):
    """With real weights, caches and heads."""
    x, plain = plain_text
    pair = (TreeGPT2(*bundled.weights(size)) for size in ("tales-small", "tales-large"))
    models = Models(*pair, PENALISED, MODELS_DIR / "tales-large", COSTS)
    step = build(name, models, forms(name)[i].flags)
    assert complete(x, step, 8, np.random.default_rng(1)) == plain
