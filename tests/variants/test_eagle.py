"""EAGLE: its head against its formulas, token by token, and the guesses of the decoder."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings

import gpt2
import llama
from cache import cached, causal_mask, linear
from sampling import warp
from speculative import complete, generate
from tests import bundled
from tests.llamas import llama_params
from tests.reuse import assert_close, edited_texts, some_edits
from tests.small import SETTINGS, tiny_params
from tests.toys import tree_of
from utils import MODELS_DIR
from variants import Costs, Models, build
from variants.shared.best_tree import START_ACCEPTANCES, best_shape, n_levels
from variants.shared.branches import Branches, with_tree_sampling
from variants.shared.eagle_head import Head, load_head
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2, TreeLlama
from variants.tree import Tree
from wrappers.window import windowed

SHAPES = [dict(K=4), dict(widths=(3, 1)), dict(widths="dynamic", total=6)]
N_HEAD = 3
PARAMS = tiny_params()
PARAMS |= {name: 20 * PARAMS[name] for name in ("wte", "wpe")}  # so that texts differ
LLAMA = llama_params(n_ctx=32, n_embd=12, n_head=N_HEAD, n_kv=1)
KEEP = [0, 1, 2, 5, 11]
KINDS = {"gpt2": (TreeGPT2, PARAMS, None), "llama": (TreeLlama, LLAMA, None),
         "llama, its own unembedding": (
             TreeLlama, LLAMA | {"lm_head": LLAMA["wte"][::-1].copy()}, KEEP),
         "few tokens": (TreeLlama, LLAMA, KEEP)}


@pytest.fixture(scope="module")
def folder(heads):
    return heads(PARAMS)


@pytest.fixture(scope="module")
def head(folder):
    """Return the head's weights, with the tables of the target."""
    return load_head(models(folder))


def models(folder, sampling=None, draft=None, params=PARAMS):
    return Models(draft, TreeGPT2(params, N_HEAD), sampling or dict(temperature=1.0), folder)


# ---- the head is its formulas

def block_by_hand(z, head):
    """Return the block's output for the pairs 0, 1, .. of a text, without a cache."""
    [block] = head["blocks"]
    n_pairs, d_head = len(z), z.shape[1] // N_HEAD
    n_kv = head.get("n_kv", N_HEAD)
    attend = cached(np.zeros((2, n_kv, n_pairs, d_head)), 0, causal_mask(n_pairs, z))
    if "rope" not in head:
        return gpt2.transformer_block(z, **block, n_head=N_HEAD, attend=attend)
    # Scores depend on differences of positions alone, so any position may be the first.
    angles = np.arange(7, 7 + n_pairs)[:, None] * llama.frequencies(**head["rope"])
    return llama.transformer_block(z, **block, n_head=N_HEAD, attend=attend,
                                   rotations=np.exp(1j * angles))


def by_hand(head, x, path=(), params=PARAMS):
    """Return the logits after x and a path of guesses: the head on all pairs, no cache."""
    ids = [*x, *path]
    is_gpt2 = "wpe" in params
    target = gpt2.GPT2(params, N_HEAD) if is_gpt2 else llama.Llama(params, N_HEAD)
    norm = gpt2.layer_norm if is_gpt2 else llama.rms_norm
    states = [*target.hidden(x, len(x))[:-1]]  # the target's, then predicted ones
    while True:
        n = len(states)
        tokens = params["wte"][ids[1 : n + 1]]  # after each state
        if is_gpt2:
            tokens = tokens + params["wpe"][1 : n + 1]
        pairs = np.concatenate([norm(tokens, **head["ln_token"]),
                                norm(np.array(states), **head["ln_state"])], axis=1)
        z = block_by_hand(linear(pairs, **head["fc"]), head)
        state = norm(z, **head["ln_f"])[-1]
        if n == len(ids) - 1:
            return params.get("lm_head", params["wte"]) @ state
        states.append(state)


def assert_head(rows, expected, keep):
    """Refuse rows that are not the formula's at the tokens that the head can guess."""
    if keep is None:
        return assert_close(rows, expected)
    others = np.setdiff1d(np.arange(len(expected[0])), keep)
    assert_close(np.array(rows)[:, keep], np.array(expected)[:, keep])
    assert (warp(np.array(rows))[:, others] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@given(some_edits(range(3)))  # so few tokens that texts continue along the guesses
@settings(max_examples=10)
def test_the_head_is_its_formula_whatever_it_read_before(kind, heads, edits):
    model_kind, params, keep = KINDS[kind]
    target = model_kind(params, N_HEAD)
    head = load_head(Models(None, target, {}, heads(params, keep=keep)))
    states = States(target)
    read = Head(head, target, states.states_of)
    whole_tree = tree_of([0, 1, 2, 0, 2, 1, 1], [-1, -1, 0, 1, 1, 3, 2])
    for texts, i, _ in edited_texts(edits, n_ctx=20):
        x = texts[i]
        if len(x) < 2:  # a pair has two tokens
            continue
        at_once = read(x + whole_tree, 8)
        tree = Tree()
        rows = [*read(Branches(x, tree), 1)]
        for token, parent in zip(whole_tree.tokens, whole_tree.parents):
            tree.add(parent, token, None)
            rows += [*read(Branches(x, tree), 1)]
        paths = [[], *tree.paths()]
        assert_head(rows, [by_hand(head, x, path, params) for path in paths], keep)
        assert_head(at_once, rows, keep)
        states(x + whole_tree, 8)  # the target's pass of this round


def test_an_interrupted_pass_leaves_no_pair_of_its_text(head):
    """Ctrl-C comes after the pass has written the pairs to the cache."""
    target = TreeGPT2(PARAMS, N_HEAD)
    read = Head(head, target, States(target).states_of)
    read([3, 1, 4, 1, 5] + Tree(), 1)

    def run(*args):
        Head.run(read, *args)
        raise KeyboardInterrupt

    with mock.patch.object(read, "run", run), pytest.raises(KeyboardInterrupt):
        read([3, 9, 2, 6, 5] + Tree(), 1)
    x = [3, 1, 4, 1, 5, 9]
    assert_close(read(x + Tree(), 1), [by_hand(head, x)])


def test_a_tree_may_have_more_nodes_than_the_head_has_positions_left(head):
    x = [1] * 29
    tree = tree_of(range(13), [-1] * 13)
    target = TreeGPT2(PARAMS, N_HEAD)
    rows = Head(head, target, States(target).states_of)(x + tree, 14)
    assert np.allclose(rows[13], by_hand(head, x, [12]))


@pytest.mark.parametrize("sampling", [*SETTINGS, pytest.param(
    {"allowed": lambda ids: np.arange(13) != ids[-1]}, id="a mask")], ids=str)
def test_the_rows_of_few_tokens_are_those_of_all_logits(heads, sampling):
    kind, params, keep = KINDS["few tokens"]
    target = kind(params, N_HEAD)
    states = States(target)
    head = Head(load_head(Models(None, target, {}, heads(params, keep=keep))), target,
                states.states_of)
    x, tree = [3, 1, 4, 1], tree_of([0, 1, 2], [-1, 0, 0])
    logits = head(x + tree, 4)
    rows = with_tree_sampling(head, **sampling)(x + tree, 4)
    texts = [x + path for path in [[], *tree.paths()]]
    expected = [warp(row, ids=text, **sampling) for row, text in zip(logits, texts)]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-12)


# ---- the guesses of the decoder

@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_a_chain_is_drawn_from_the_heads_rows_with_every_setting(head, folder, sampling):
    step = build("eagle", models(folder, sampling))
    x = [3, 1, 4, 1]
    for result in generate(x, step, 12, np.random.default_rng(0)):
        for t, row in enumerate(result.p_draft):
            path = result.guesses[:t]
            assert np.allclose(row, warp(by_hand(head, x, path), ids=x + path, **sampling))
        x = x + result.ids


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("flags", SHAPES[1:], ids=str)
def test_a_tree_is_that_of_the_decoder_tree_with_the_head_as_its_draft(
        head, folder, flags, sampling):
    def draft(ids, n_last):
        paths = [[], *ids.tree.paths()]
        return np.array([by_hand(head, ids.x, path) for path in paths[-n_last:]])

    both = models(folder, sampling, draft)
    got, expected = (build(name, both, flags)([3, 1, 4, 1], 4, np.random.default_rng(0)).guesses
                     for name in ("eagle", "tree"))
    assert got.paths() == expected.paths() and np.allclose(got.rows(), expected.rows())


@pytest.mark.parametrize("K, n_guesses", [(1, 13), (2, 40)])
def test_a_dynamic_tree_has_K_levels_at_most(folder, K, n_guesses):
    """Level 1 has no more guesses than the vocabulary, so a second one would be needed."""
    flags = {"widths": "dynamic", "K": K, "total": 40}
    tree = build("eagle", models(folder), flags)([3, 1, 4], 9, np.random.default_rng(0)).guesses
    assert len(tree) == n_guesses and max(map(len, tree.paths())) == K


def test_auto_is_the_best_tree_at_the_costs_of_the_heads_own_weights(folder):
    both = models(folder)._replace(costs=Costs(9.0, [2.0, 2.2, 2.4, 2.6, 3.2]))  # 9: no draft
    tree = build("eagle", both, {"widths": "auto"})([3, 1, 4], 9, np.random.default_rng(0)).guesses
    block = 12 * 12**2 + 13 * 12  # linear maps; biases and norms
    c = (13 * 12 + block + 2 * 12**2 + 12) / (13 * 12 + 2 * block)
    acceptances = (START_ACCEPTANCES + [3, 0, 0, 0]) / [5, 1, 1, 1]
    _, shape = best_shape(acceptances.round(2), c, [1.0, 1.1, 1.2, 1.3, 1.6])
    assert len(shape) == len(tree) > 0
    assert n_levels(shape) == max(map(len, tree.paths()))


@pytest.mark.parametrize("flags", SHAPES, ids=str)
def test_the_head_reads_the_text_once_a_round(folder, flags):
    step = build("eagle", models(folder), flags)
    with mock.patch.object(Head, "read", autospec=True, side_effect=Head.read) as read:
        rounds = list(generate([1, 2, 3], step, 20, np.random.default_rng(0)))
    assert read.call_count == sum(len(result.guesses) > 0 for result in rounds)


@pytest.mark.parametrize("flags", SHAPES, ids=str)
@pytest.mark.parametrize("n_ctx", [2, 7])
def test_no_guess_is_beyond_a_small_context_or_window(folder, n_ctx, flags):
    params = PARAMS | {"wpe": PARAMS["wpe"][:n_ctx]}
    for n_prompt in range(1, n_ctx + 3):
        step = build("eagle", models(folder, params=params), flags)
        if n_prompt < n_ctx:
            complete([1] * n_prompt, step, n_ctx - n_prompt, np.random.default_rng(0))
        step = windowed(step, n_prompt, n_ctx)
        x = complete([1] * n_prompt, step, 20, np.random.default_rng(0))
        assert len(x) == n_prompt + 20


def test_the_head_predicts_after_its_export_what_it_predicts_in_training(tmp_path):
    """Step by step, each on the states that the step before predicted."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("transformers", exc_type=ImportError)
    from models.training import export, tasks
    from models.training.eagle import LOSSES, Eagle, predictions

    torch.manual_seed(0)
    target = tasks.new_gpt2(dict(vocab_size=13, n_positions=32, n_embd=12, n_head=3, n_layer=1))
    task = Eagle(target, LOSSES["eagle"])
    for weight in task.parameters():
        weight.data = (weight + torch.randn_like(weight) / 4).half().float()
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        x = torch.tensor([ids])
        h = tasks.hidden(target, x, torch.tensor([[0]]))
        theirs = predictions(task.step, h[:, :-1], task.embeddings(x, 0), 3)
    arrays = export.to_arrays(export.eagle_weights(task))
    export.export_heads(target.transformer.ln_f.weight, arrays, tmp_path)
    tables = {name: getattr(target.transformer, name).weight.detach().numpy()
              for name in ("wte", "wpe")}
    norm = dict(zip("gb", (w.detach().numpy() for w in target.transformer.ln_f.parameters())))
    both = models(tmp_path, params=PARAMS | tables | {"ln_f": norm})
    head = Head(load_head(both), both.target,
                lambda ids, n_last: h[0].numpy()[len(ids) - n_last : len(ids)])
    for n in range(2, 7):
        tree = Tree()
        for step, token in enumerate([*ids, None][n : n + 3]):
            head(ids[:n] + tree, 1)
            assert np.allclose(head.predicted[-1], theirs[step][0, n - 2 + step], atol=1e-4)
            tree.add(step - 1, token, None)


def test_the_bundled_head_yields_more_than_1_8_tokens_per_pass():
    """In greedy text; at random one guess in a thousand would be accepted."""
    target = TreeGPT2(*bundled.weights("tales-large"))
    step = build("eagle", Models(None, target, dict(temperature=0.0),
                                 MODELS_DIR / "tales-large"))
    x = bundled.encoder().encode("Once upon a time there was a")
    rounds = list(generate(x, step, 60, np.random.default_rng(0)))
    assert 60 / len(rounds) > 1.8
