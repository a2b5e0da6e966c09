"""Decoders with heads: their file, the target's states, medusa, blockwise and markov."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from exact.expected import along_paths
from exact.law import law, text_law
from gpt2 import GPT2
from sampling import warp
from speculative import autoregressive_sampling, complete, generate, make_step
from tests.distributions import assert_same_law
from tests.reuse import assert_used_is_fresh, some_edits, tokens_read
from tests.small import SETTINGS, eagle_weights, tiny_params, write_heads
from tests.toys import mapped, one_hot, toy, tree_of
from variants import Models, build
from variants.blockwise import blockwise_verify
from variants.markov import guess_by_chain, load_table
from variants.medusa import guess_by_heads, is_typical, load_heads, verify_typical
from variants.shared import heads
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import Tree
from variants.shared.eagle_head import load_head
from variants.shared.heads import fingerprint, open_heads
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2
from variants.tree import verify_tree

PARAMS = tiny_params()
GAINS = PARAMS["ln_f"]["g"]
ALL = [("medusa", {}), ("blockwise", {}), ("markov", {}), ("eagle", {}),
       ("eagle", {"widths": (2, 1)}), ("eagle", {"widths": "dynamic", "K": 2})]


def models(folder, params=PARAMS, **sampling):
    """Return a target that has read nothing yet, and no draft."""
    return Models(None, TreeGPT2(params, 3), {"temperature": 0.0, **sampling}, folder)


# ---- the file

@pytest.fixture
def saved(tmp_path):
    """Return a function that saves heads, with changes, and returns Models that use them."""
    def save(metadata=None, **changes):
        path = write_heads(tmp_path, PARAMS) / "heads.safetensors"
        arrays = {**load_file(path), **changes}
        save_file({name: w for name, w in arrays.items() if w is not None}, path, metadata)
        return models(tmp_path)
    return save


def test_a_file_is_read_for_the_target_that_it_names(saved):
    head = load_head(saved({"target": fingerprint(GAINS)}))
    assert np.array_equal(head["fc"]["w"], eagle_weights(PARAMS)["fc/w"])
    assert head["wte"] is PARAMS["wte"]


def test_a_target_has_one_fingerprint_in_every_precision():
    gains = GAINS.astype(np.float16)
    assert len({fingerprint(gains.astype(dtype)) for dtype in (np.float32, np.float64)}) == 1
    assert fingerprint(gains) != fingerprint(gains[::-1])


@pytest.mark.parametrize("name, changes, message", [
    ("medusa", dict(metadata={"target": "0" * 64}), "trained for this target"),
    ("medusa", {"medusa/w": np.zeros((2, 8, 8))}, r"medusa/w .* shape \(3, 12, 12\), got"),
    ("medusa", {"medusa/b": np.zeros(())}, r"a row for each head, got shape \(\)"),
    ("markov", {"markov/w2": np.zeros((0, 13))}, r"a row for each head, got shape \(0, 13\)"),
    ("markov", {"markov/w1": None}, "need markov/w1"),
    ("markov", {"markov/w2": np.zeros((3, 13))}, r"shape \(13, 3\), got \(13, 2\)"),
    ("eagle", {"eagle/h0/ln_1/g": np.zeros(12, int)}, "floating-point numbers"),
    ("eagle", {"eagle/ln_f/b": np.full(12, np.nan)}, "finite"),
    *(("eagle", {"eagle/keep": np.array(keep)}, r"ascending ids below n_vocab = 13, got")
      for keep in ([1, 1], [2, 1], [-1, 2], [3, 13], [1.0, 2.0], [[1, 2]], np.zeros(0, int)))],
    ids=str)
def test_heads_that_do_not_fit_are_named(saved, name, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        build(name, saved(**changes))
    assert "\n" not in str(caught.value) and "heads.safetensors" in str(caught.value)


def test_heads_in_models_are_found_by_the_fingerprint(saved, monkeypatch, tmp_path_factory):
    """A GGUF file has no folder of its own; a folder's own heads come first."""
    bundled = tmp_path_factory.mktemp("models")
    monkeypatch.setattr(heads, "MODELS_DIR", bundled)
    for name, target in (("a", "0" * 64), ("b", fingerprint(GAINS))):
        (bundled / name).mkdir()
        file = saved({"target": target}).folder / "heads.safetensors"
        file.rename(bundled / name / "heads.safetensors")
    for folder in (None, bundled, bundled / "x.gguf"):
        assert open_heads(models(folder)).where == bundled / "b" / "heads.safetensors"
    own = saved().folder
    assert open_heads(models(own)).where == own / "heads.safetensors"


@pytest.mark.parametrize("n_bytes", [0, 100, 4000])
def test_a_file_that_is_not_whole_or_not_there_is_named(saved, n_bytes):
    target = saved()
    path = target.folder / "heads.safetensors"
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(ValueError, match="heads.safetensors"):
        open_heads(target)
    path.unlink()
    for folder, path in ((None, "no file in"), (target.folder, "heads.safetensors")):
        with pytest.raises(ValueError, match=f"there are no heads for this target.*{path}"):
            open_heads(models(folder))


def test_a_level_without_a_head_and_models_that_are_missing_are_refused(saved):
    target = saved()
    for name, flags in (("blockwise", {"block": 5}), ("medusa", {"widths": (1, 1, 1, 1)})):
        with pytest.raises(ValueError, match="at most 3 levels of guesses, one per head"):
            build(name, target, flags)
    with pytest.raises(ValueError, match="--decoder tree needs a draft"):
        build("tree", target)
    # a draft that the decoder does not use may be any model
    build("medusa", target._replace(draft=GPT2(PARAMS, 3)))


@pytest.mark.parametrize("name, flags", [
    *ALL, ("jacobi", {}), ("lookup", {}), ("suffix", {"sure": 0})], ids=str)
def test_an_unknown_id_and_a_text_beyond_the_context_are_refused_by_name(saved, name, flags):
    for x, words in (([1, 99, 1, 99], "need ids in 0 .. n_vocab - 1 = 12, got 99"),
                     ([1] * 31, "<= n_ctx")):
        with pytest.raises(ValueError, match=words):
            complete(x, build(name, saved(), flags), 6, np.random.default_rng(0))


def test_loaded_heads_are_the_formula(saved):
    target = saved()
    h = 100 * GPT2(PARAMS, 3).hidden([1, 2])[0]  # both tails of SiLU
    file = load_file(target.folder / "heads.safetensors")
    for k, row in enumerate(load_heads(open_heads(target), target.target.params)(h)):
        z = h @ file["medusa/w"][k] + file["medusa/b"][k]
        state = (h + z / (1 + np.exp(-z))) @ file["medusa/a"][k]
        assert np.allclose(row, PARAMS["wte"] @ state)


# ---- the states

@pytest.mark.parametrize("name, flags", ALL, ids=str)
def test_every_token_is_read_once(saved, name, flags):
    step = build(name, saved(), flags)
    # no state comes before a single token
    assert len(step([4], 9, np.random.default_rng(0)).guesses) == 0
    with tokens_read() as numbers:
        rounds = list(generate([1, 2, 3], step, 29, np.random.default_rng(0)))  # to n_ctx
    # the heads need the state of the prompt's second token; then each pass reads a round
    assert numbers == [2] + [1 + len(result.guesses) for result in rounds]


@pytest.mark.parametrize("widths, of_head", [("chain", 4), ("3,1,1", 9)])
def test_after_copied_rounds_the_head_needs_no_pass_for_the_states(saved, widths, of_head):
    flags = {"sure": 0.5, "cap": 3, "otherwise": f"eagle --widths {widths}"}
    step = build("suffix", saved()._replace(sampling={"temperature": 1.0}), flags)
    x = [1, 2, 3] * 3  # which the first round would copy, if the head did not need its states
    with tokens_read() as numbers:
        rounds = list(generate(x, step, 23, np.random.default_rng(2)))
    n_guesses = [len(result.guesses) for result in rounds]
    assert numbers == [8] + [1 + n for n in n_guesses]
    two_copied_then_the_head = (False, False, True)
    by_head = [n == of_head for n in n_guesses]
    assert two_copied_then_the_head in zip(by_head, by_head[1:], by_head[2:])


@pytest.mark.parametrize("guesses", [[0, 2, 1], tree_of([0, 1, 2, 1], [-1, -1, 0, 2])], ids=str)
@given(some_edits(range(3)))  # so few tokens that texts continue along the guesses
@settings(max_examples=40)
def test_a_state_is_that_of_its_text_whatever_was_read_before(guesses, edits):
    states = States(TreeGPT2(PARAMS, 3))

    def used(ids, n_last):
        result = states.states_of(ids, n_last)
        states(ids + guesses, 1 + len(guesses))  # the target's pass of this round
        return result

    def fresh(ids, n_last):
        return GPT2(PARAMS, 3).hidden(ids, n_last)

    assert_used_is_fresh(used, fresh, edits, n_ctx=20)


# ---- medusa and blockwise, on toys whose states are their prefixes

SPARSE_TREE = [(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
BLOCK = [(0,), (0, 0), (0, 0, 0)]


def medusa(model, heads, choices, verify=verify_tree):
    guess = partial(guess_by_heads, state_after=tuple, heads=heads, choices=choices)
    return make_step(along_paths(model), 3, guess, verify)


def head_toy(n_heads, n_vocab, seed):
    """Return heads whose scores are toys of the state, a prefix."""
    models = [toy(n_vocab, seed + k, zeros=0) for k in range(n_heads)]
    return lambda state: np.array([model(list(state))[0] for model in models])


@pytest.mark.parametrize("choices, verify", [(uniform_shape((2, 1, 1)), verify_tree),
                                             (BLOCK, blockwise_verify)])
def test_perfect_heads_need_the_fewest_passes(choices, verify):
    model = mapped(toy(5, 3, zeros=0), one_hot)

    def heads(state):
        text = autoregressive_sampling(list(state), model, 4, np.random.default_rng(0))
        return np.eye(5)[text[len(state) + 1 :]]

    rounds = generate([0, model([0])[0].argmax()], medusa(model, heads, choices, verify), 16,
                      np.random.default_rng(0))
    assert [len(result.ids) for result in rounds] == [4] * 4


def test_choices_become_paths_of_the_heads_best_ids():
    scores = np.array([[1, 9, 8, 0], [5, 6, 0, 7], [0, 0, 0, 1.0]])
    # no head has a rank of 9, and there is no fourth head
    choices = [(1, 2), (0,), (1,), (0, 0), (0, 0, 0), (9,), (0, 0, 0, 0)]
    all_paths = [[1], [2], [2, 0], [1, 3], [1, 3, 3]]
    for k, paths in ((9, all_paths), (3, all_paths), (1, [[1], [2]]), (0, [])):
        tree, _ = guess_by_heads([3, 2], k, None, tuple, lambda state: scores, choices)
        assert tree.paths() == paths


def test_typical_is_the_papers_inequality():
    row = np.array([0.5, 0.25, 0.125, 0.125])  # H = 1.75 bits
    threshold = np.exp(-1.75 * np.log(2))
    assert is_typical(row, 1, 1).tolist() == (row > threshold).tolist() == [True] + [False] * 3
    assert is_typical(row, 0.2, 1).tolist() == [True, True, False, False]
    assert is_typical(row, 1, 0.2 / threshold).tolist() == [True, True, False, False]
    assert is_typical(np.array([1.0, 0, 0]), 0.09, 0.3).tolist() == [True, False, False]


@pytest.mark.parametrize("row, passes", [
    ([0.8, 0.1, 0.1], True),  # delta exp(-H) is 0.158 and 0.171: epsilon = 0.09 decides
    ([0.84, 0.08, 0.08], False),
    ([0.305, 0.085, 0.305, 0.305], True),  # delta exp(-H) is 0.082 and 0.083: delta = 0.3 decides
    ([0.31, 0.08, 0.31, 0.3], False)])
def test_the_thresholds_are_the_papers_unless_they_are_given(row, passes):
    tree = Tree()
    tree.add(-1, 1, None)
    ids = verify_typical(tree, None, np.array([row, row]), np.random.default_rng(0))
    assert (len(ids) == 2) == passes


def test_without_typical_guesses_medusa_is_plain_sampling():
    model = toy(4, 6)
    verify = partial(verify_typical, epsilon=1, delta=np.inf)
    step = medusa(model, head_toy(3, 4, 70), uniform_shape((2, 2)), verify)
    got = law(lambda rng: complete([0, 1], step, 3, rng))
    assert_same_law(got, text_law([0, 1], model, 3))


@given(st.integers(0, 99), st.floats(0.01, 1), st.floats(0.1, 2))
@settings(max_examples=40)
def test_the_longest_typical_path_is_accepted_the_most_probable_of_equal_length(
        seed, epsilon, delta):
    model = toy(4, seed)
    verify = partial(verify_typical, epsilon=epsilon, delta=delta)
    step = medusa(model, head_toy(3, 4, 70), SPARSE_TREE, verify)
    x = [0, 1]
    for result in generate(x, step, 8, np.random.default_rng(seed)):
        typical = {(): (0, 1.0)}  # path: its length and its probability
        for path in map(tuple, result.guesses.paths()):
            rows = [model([*x, *path[:t]])[0] for t in range(len(path))]
            if all(is_typical(row, epsilon, delta)[token] for row, token in zip(rows, path)):
                prob = np.prod([row[token] for row, token in zip(rows, path)])
                typical[path] = len(path), prob
        assert typical[tuple(result.ids[:-1])] == max(typical.values())
        x = x + result.ids


@given(st.integers(0, 99), st.integers(1, 3))
@settings(max_examples=40)
def test_a_blockwise_guess_is_accepted_if_it_is_in_the_top_k(seed, top_k):
    model = toy(5, seed)
    verify = partial(blockwise_verify, top_k=top_k)
    step = medusa(model, head_toy(3, 5, seed), BLOCK, verify)
    x = [0, 1]
    for result in generate(x, step, 15, np.random.default_rng(0)):
        *accepted, last = result.ids
        # the accepted guesses, and the one that was rejected
        for t, token in enumerate(result.guesses.tokens[: len(accepted) + 1]):
            row = model(x + result.guesses.tokens[:t])[0]
            in_top_k = row[token] > 0 and token in np.argsort(-row, kind="stable")[:top_k]
            assert in_top_k == (t < len(accepted))
        assert last == model(x + accepted)[0].argmax()
        x = x + result.ids


# ---- markov: each guess depends on the one before

SCORES_AFTER = head_toy(3, 4, 70)  # of the state, a text
EFFECTS = np.random.default_rng(80).normal(size=(4, 4))  # of a token on the scores after it


@given(st.integers(0, 10**6), st.sampled_from(SETTINGS), st.integers(1, 4))
@settings(max_examples=60)
def test_each_row_is_a_heads_scores_plus_the_tables_row_of_the_token_before(seed, sampling, k):
    x = [2, 0, 1]
    guesses, rows = guess_by_chain(x, k, np.random.default_rng(seed), tuple, SCORES_AFTER,
                                   EFFECTS.__getitem__, **sampling)
    assert len(guesses) == len(rows) == min(k, 3)
    for t, (token, row) in enumerate(zip(guesses, rows)):
        before = [*x, *guesses][: len(x) + t]
        expected = warp(SCORES_AFTER((2, 0))[t] + EFFECTS[before[-1]], ids=before, **sampling)
        assert np.allclose(row, expected) and row[token] > 0


def test_a_loaded_table_is_the_product_of_its_two_parts(saved):
    target = saved()
    file = load_file(target.folder / "heads.safetensors")
    follows = load_table(open_heads(target), n_vocab=13)
    product = file["markov/w1"] @ file["markov/w2"]
    assert np.allclose([follows(token) for token in range(13)], product)
