"""EAGLE: its head against its formulas, token by token, and what the decoder makes of it."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import gpt2
from exact.toys import toy
from gpt2 import GPT2
from lib.checkpoints.weights import random_params
from sampling import warp, with_sampling
from speculative import autoregressive_sampling, complete, generate
from tests import bundled
from tests.small import Logits, eagle_weights
from utils import MODELS_DIR
from variants import eagle
from variants.dynamic_tree import dynamic_tree
from variants.eagle import DECODER
from variants.eagle_head import Head, build_head, fingerprint, load_head
from variants.registry import Models
from variants.shared import tree_gpt2
from variants.shared.long_context import windowed
from variants.shared.states import States
from variants.shared.tree_gpt2 import TreeGPT2
from variants.tree import Tree

TARGET = toy(3, 42, zeros=0)
DEFAULTS = DECODER.settings({})
SHAPES = [dict(widths="chain", K=2), dict(widths=(2,)), dict(widths="dynamic", K=2, total=3)]
SAMPLING = [dict(temperature=1.0), dict(temperature=0.4), dict(temperature=0.0),
            dict(temperature=1.0, top_k=2), dict(temperature=1.0, repetition_penalty=2.5)]
PARAMS = random_params(dict(n_vocab=13, n_ctx=32, n_embd=12, n_head=3, n_layer=2),
                       np.random.default_rng(0), np.float64)
PARAMS["wte"], PARAMS["wpe"] = 20 * PARAMS["wte"], 20 * PARAMS["wpe"]  # so that texts differ
N_HEAD = 3


WEIGHTS = {n_embd: eagle_weights(n_embd) for n_embd in (3, 12)}  # laws allow no chance of ours


def head_of(target, weights=None):
    """A random head, or one of these weights, with the tables of a target."""
    n_embd = target["wpe"].shape[1]
    found = {**(weights or WEIGHTS[n_embd]), **target}
    return build_head(n_embd, lambda name, *shape: found[name])


def step_of(target, sampling, weights=None, **flags):
    """The decoder, without a file."""
    with mock.patch.object(eagle, "load_head_of",
                           lambda models: head_of(models.target.params, weights)):
        return eagle.build(Models(None, target, sampling), **{**DEFAULTS, **flags})


# ---- the head is its formulas

def norm(x, g, b):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * g + b


def by_hand(head, states, x, path=()):
    """Logits after x and a path of guesses: pair after pair, with lists of keys and values."""
    ids, f, (block,), keys, values = [*x, *path], list(states[: len(x) - 1]), head["blocks"], [], []
    for i in range(len(ids) - 1):
        e = head["wte"][ids[i + 1]] + head["wpe"][i + 1]
        pair = np.concatenate([norm(e, **head["ln_token"]), norm(f[i], **head["ln_state"])])
        z = pair @ head["fc"]["w"] + head["fc"]["b"]
        c_attn, c_proj = block["attn"]["c_attn"], block["attn"]["c_proj"]
        qkv = norm(z, **block["ln_1"]) @ c_attn["w"] + c_attn["b"]
        query, key, value = qkv.reshape(3, N_HEAD, -1)
        keys, values, heads = [*keys, key], [*values, value], []
        for h in range(N_HEAD):
            weights = np.exp([query[h] @ key[h] / np.sqrt(len(key[h])) for key in keys])
            heads.append(sum(w * v[h] for w, v in zip(weights / weights.sum(), values)))
        z = z + np.concatenate(heads) @ c_proj["w"] + c_proj["b"]
        inside = gpt2.gelu(norm(z, **block["ln_2"]) @ block["mlp"]["c_fc"]["w"]
                           + block["mlp"]["c_fc"]["b"])
        z = z + inside @ block["mlp"]["c_proj"]["w"] + block["mlp"]["c_proj"]["b"]
        state = norm(z, **head["ln_f"])
        if i >= len(x) - 2:  # a state that the target has not given
            f.append(state)
    return head["wte"] @ state


def states_of(ids):
    """The target's states of a text: what its logits are the unembedding of."""
    return GPT2(PARAMS, N_HEAD).hidden(ids, len(ids))


def read_level_by_level(head, x, tree):
    """Logits at the root and at every node, as a tree grows."""
    part, rows = Tree(), [*head(x, Tree(), [-1])]
    depths = tree.ancestors().sum(axis=1)
    for depth in range(1, max(depths, default=0) + 1):
        level = [part.add(tree.parents[i], tree.tokens[i], None)
                 for i in np.flatnonzero(depths == depth)]
        rows += [*head(x, part, level)]
    return rows


BUSH = Tree()
for token, parent in ((5, -1), (6, -1), (7, 0), (8, 1), (5, 1), (1, 3), (2, 2)):
    BUSH.add(parent, token, None)


@given(st.lists(st.integers(-1, 6) | st.lists(st.integers(0, 12), min_size=2, max_size=6),
                max_size=5))
@example([2, 2, 5, 0])  # along the guesses that were read
@example([[1, 2, 5, 4, 3], [1, 2, 5, 7, 4, 4]])
@settings(deadline=None, max_examples=20)
def test_the_head_is_its_formula_whatever_it_read_before(then):
    """Before: guesses on the way that the text took, other ones, other texts, the same again."""
    model = States(TreeGPT2(PARAMS, N_HEAD))
    head = Head(head_of(PARAMS), N_HEAD, model.states_of)
    x = [3, 1, 2]
    for what in [*then, -1]:
        rows = read_level_by_level(head, x, BUSH)
        for row, path in zip(rows, [[], *BUSH.paths()]):
            assert np.allclose(row, by_hand(head.params, states_of(x), x, path), atol=1e-9)
        model(x + BUSH, 1 + len(BUSH))
        x = what if isinstance(what, list) else (x + BUSH).texts()[1 + what] + [9]
        x = x if len(x) < 24 else [7, 7]


def test_a_bush_larger_than_the_context_has_room():
    x, tree = [1] * 29, Tree()
    for token in range(13):
        tree.add(-1, token, None)
    rows = read_level_by_level(Head(head_of(PARAMS), N_HEAD, lambda ids, n: states_of(ids)[-n:]),
                               x, tree)
    assert np.allclose(rows[13], by_hand(head_of(PARAMS), states_of(x), x, [12]), atol=1e-9)


# ---- what the decoder makes of it

@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
def test_a_chain_is_drawn_from_the_heads_rows_with_every_setting(sampling):
    step, x = step_of(TreeGPT2(PARAMS, N_HEAD), sampling, K=4), [3, 1, 4, 1]
    for round in generate(x, step, 12, np.random.default_rng(0)):
        for t, row in enumerate(round.p_draft):
            path = round.guesses[:t]
            logits = by_hand(head_of(PARAMS), states_of(x), x, path)
            assert np.allclose(row, warp(logits, ids=x + path, **sampling), atol=1e-9)
        x = x + round.ids


def rows_by_hand(x, sampling):
    """What a tree is grown from: at temperature 0 rows at temperature 1, which still branch."""
    at_1 = {**sampling, "temperature": sampling["temperature"] or 1.0}

    def rows_after(tree, nodes):
        paths = [x + path for path in [*tree.paths(), []]]
        return np.array([warp(by_hand(head_of(PARAMS), states_of(x), x, path[len(x) :]), ids=path,
                              **at_1) for path in [paths[node] for node in nodes]])
    return rows_after


@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
def test_a_dynamic_tree_is_the_likeliest_by_the_heads_rows(sampling):
    x, flags = [3, 1, 4, 1], dict(widths="dynamic", K=3, total=6)
    got = step_of(TreeGPT2(PARAMS, N_HEAD), sampling, **flags)(x, 9, np.random.default_rng(0))
    assert got.guesses.paths() == dynamic_tree(rows_by_hand(x, sampling), 6, 3).paths()


@pytest.mark.parametrize("sampling", SAMPLING, ids=str)
def test_a_tree_is_drawn_from_the_row_of_each_guess_and_has_the_best_at_temperature_0(sampling):
    x, rows_after = [3, 1, 4, 1], rows_by_hand([3, 1, 4, 1], sampling)
    step = step_of(TreeGPT2(PARAMS, N_HEAD), sampling, widths=(3, 1))
    tree = step(x, 9, np.random.default_rng(0)).guesses
    for parent in range(-1, 2):
        children, (expected,) = tree.guesses_at(parent), rows_after(tree, [parent])
        if sampling["temperature"]:
            assert np.allclose(children[0][1], expected)
        else:
            head_dynamic_tree = np.argsort(-expected, kind="stable")[: len(children)]
            assert [tree.tokens[node] for node, _ in children] == head_dynamic_tree.tolist()


@pytest.mark.parametrize("flags", [*SHAPES, dict(widths=(2, 2, 1))], ids=str)
def test_greedy_text_is_the_targets_and_every_token_is_read_once(flags):
    step = step_of(TreeGPT2(PARAMS, N_HEAD), dict(temperature=0.0), **flags)
    with (mock.patch.object(tree_gpt2, "forward", side_effect=gpt2.forward) as trees,
          mock.patch.object(gpt2, "forward", side_effect=gpt2.forward) as lists,
          mock.patch.object(Head, "read", autospec=True, side_effect=Head.read) as read):
        rounds = list(generate([1, 2, 3], step, 20, np.random.default_rng(0)))
    text = [1, 2, 3] + sum((round.ids for round in rounds), [])
    plain = with_sampling(GPT2(PARAMS, N_HEAD), temperature=0.0)
    assert text == autoregressive_sampling([1, 2, 3], plain, 20, np.random.default_rng(0))
    passes = [len(call.args[0]) for call in lists.call_args_list + trees.call_args_list]
    assert passes == [2] + [1 + len(round.guesses) for round in rounds]
    assert read.call_count == sum(len(round.guesses) > 0 for round in rounds)


def counting(n_vocab):
    """A target that counts up, and a head that knows: the token after the one just drawn."""
    up = np.roll(np.eye(n_vocab), 1, axis=1)
    count = Logits(lambda ids, n_last=1: 0.9 * up[list(ids[-n_last:])] + 0.1 / n_vocab)
    count.params = {**count.params, "wpe": np.zeros((32, n_vocab))}
    weights = {name: np.zeros_like(weight) if "/c_" in name or name.endswith("/b")
               else np.ones_like(weight) for name, weight in eagle_weights(n_vocab).items()}
    return count, {**weights, "fc/w": np.concatenate([up, np.zeros_like(up)])}


@pytest.mark.parametrize("flags", [dict(K=3), dict(widths=(2, 1, 1)),
                                   dict(widths="dynamic", K=3, total=12)], ids=str)
def test_a_head_that_knows_gives_the_most_tokens_a_pass(flags):
    target, weights = counting(5)
    step = step_of(target, dict(temperature=0.0), weights, **flags)
    rounds = list(generate([2, 3], step, 12, np.random.default_rng(0)))
    assert [len(round.ids) for round in rounds] == [4, 4, 4]
    assert sum((round.ids for round in rounds), []) == [(4 + i) % 5 for i in range(12)]


@pytest.mark.parametrize("flags", SHAPES, ids=str)
def test_the_last_token_wanted_costs_no_guess_and_the_first_has_none(flags):
    step = step_of(TreeGPT2(PARAMS, N_HEAD), dict(temperature=1.0), **flags)
    assert len(step([1, 2, 3], 1, np.random.default_rng(0)).guesses) == 0
    assert len(step([1], 9, np.random.default_rng(0)).guesses) == 0


@pytest.mark.parametrize("temperature, flags, message", [
    (0.0, dict(widths=(2,), siblings="distinct"), "need --siblings top"),
    (1.0, dict(widths="dynamic", siblings="distinct"), "need --siblings top"),
    (1.0, dict(siblings="top"), "need a tree in --widths for --siblings, got chain"),
    (1.0, dict(widths=(2,), K=3), "need --widths chain or dynamic for --K"),
    (1.0, dict(total=5), "need --widths dynamic for --total, got chain")])
def test_a_flag_without_effect_is_refused(temperature, flags, message):
    with pytest.raises(ValueError, match=message):
        step_of(Logits(TARGET), dict(temperature=temperature), **flags)


@pytest.mark.parametrize("flags", [dict(widths="dynamic", total=9), {}, dict(widths=(2, 1, 1))],
                         ids=str)
@pytest.mark.parametrize("n_ctx", [2, 3, 4, 7])
def test_no_guess_is_beyond_a_small_context_or_window(n_ctx, flags):
    params = PARAMS | {"wpe": PARAMS["wpe"][:n_ctx]}
    for n_prompt in range(1, n_ctx + 3):
        step = step_of(TreeGPT2(params, N_HEAD), dict(temperature=1.0), **flags)
        for N in [n_ctx - n_prompt] * (n_prompt < n_ctx):
            assert len(complete([1] * n_prompt, step, N, np.random.default_rng(0))) == n_ctx
        step = windowed(step, n_prompt, n_ctx)
        x = complete([1] * n_prompt, step, 20, np.random.default_rng(0))
        assert len(x) == n_prompt + 20
    step = step_of(TreeGPT2(params, N_HEAD), dict(temperature=1.0), **flags)
    if n_ctx > 2:
        with pytest.raises(ValueError, match=f"n_ctx = {n_ctx}, got"):
            step([1] * (n_ctx - 1), 9, np.random.default_rng(0))


# ---- the file

@pytest.fixture
def saved(tmp_path):
    """A function that saves a head, with changes, and returns the path."""
    def save(metadata=None, **changes):
        path, weights = tmp_path / "heads.safetensors", {**eagle_weights(12), **changes}
        save_file({f"eagle/{name}": w for name, w in weights.items() if w is not None}, path,
                  metadata)
        return path
    return save


def test_a_file_is_read_for_the_target_that_it_names(saved):
    path = saved({"target": fingerprint(PARAMS["wte"])})
    assert np.array_equal(load_head(path, PARAMS)["fc"]["w"], eagle_weights(12)["fc/w"])
    assert load_head(path, PARAMS)["wte"] is PARAMS["wte"]


def test_a_target_has_one_fingerprint_in_every_precision():
    wte = PARAMS["wte"].astype(np.float16)
    assert len({fingerprint(wte.astype(dtype)) for dtype in (np.float32, np.float64)}) == 1
    assert fingerprint(wte) != fingerprint(wte[::-1])


@pytest.mark.parametrize("changes, message", [
    (dict(metadata={"target": "0" * 64}), "trained for this target"),
    ({"fc/b": None}, "need eagle/fc/b"), ({"fc/w": np.zeros((12, 12))}, r"shape \(24, 12\)"),
    ({"h0/ln_1/g": np.zeros(12, int)}, "floating-point numbers"),
    ({"ln_f/b": np.full(12, np.nan)}, "finite")], ids=str)
def test_a_head_that_does_not_fit_is_named(saved, changes, message):
    with pytest.raises(ValueError, match=message):
        load_head(saved(**changes), PARAMS)


@pytest.mark.parametrize("n_bytes", [0, 7, 100, 4000])
def test_a_file_that_is_not_whole_is_named(saved, n_bytes):
    path = saved()
    path.write_bytes(path.read_bytes()[:n_bytes])
    with pytest.raises(ValueError, match="heads.safetensors"):
        load_head(path, PARAMS)


def test_a_target_without_a_head_is_told_where_it_was_looked_for(tmp_path):
    for heads, path in ((None, "None"), (tmp_path, "heads.safetensors")):
        with pytest.raises(ValueError, match=f"need heads trained for this target.*{path}"):
            eagle.build(Models(None, Logits(TARGET), dict(temperature=1.0), heads), **DEFAULTS)


def test_the_trained_head_is_the_one_that_drafts(tmp_path):
    """PyTorch's predictions, step by step on its own ones, are ours after a round trip."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("transformers", exc_type=ImportError)
    from models.training import export, tasks
    from models.training.eagle import LOSSES, Eagle

    torch.manual_seed(0)
    target = tasks.new_gpt2(dict(vocab_size=13, n_positions=32, n_embd=12, n_head=3, n_layer=1))
    task = Eagle(target, LOSSES["eagle"])
    for weight in task.parameters():
        weight.data = (weight + torch.randn_like(weight) / 4).half().float()
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        x = torch.tensor([ids])
        h = tasks.hidden(target, x, torch.tensor([[0]]))
        theirs = task.predicted(h[:, :-1], task.embeddings(x, 0))
    export.export_heads(target, export.eagle_weights(task), tmp_path)
    tables = {name: getattr(target.transformer, name).weight.detach().numpy()
              for name in ("wte", "wpe")}
    head = Head(load_head(tmp_path / "heads.safetensors", tables), N_HEAD,
                lambda ids, n_last: h[0].numpy()[len(ids) - n_last : len(ids)])
    for n in range(2, 7):
        tree, node = Tree(), -1
        for step in range(3):
            head(ids[:n], tree, [node])
            ours = head.predicted[-1]
            assert np.allclose(ours, theirs[step][0, n - 2 + step], atol=1e-4)
            if n + step < len(ids):
                node = tree.add(node, ids[n + step], None)


BUNDLED = MODELS_DIR / "tales-large" / "heads.safetensors"


@pytest.mark.skipif(not BUNDLED.exists(), reason=f"no {BUNDLED} is bundled yet")
def test_the_bundled_head_is_worth_its_passes():
    """Of greedy text, where drawing at random would keep one guess in a thousand."""
    target = TreeGPT2(*bundled.weights("tales-large"))
    models = Models(None, target, dict(temperature=0.0), BUNDLED.parent)
    x = bundled.encoder().encode("Once upon a time there was a")
    rounds = list(generate(x, eagle.build(models, **DEFAULTS), 60, np.random.default_rng(0)))
    assert 60 / len(rounds) > 1.8
