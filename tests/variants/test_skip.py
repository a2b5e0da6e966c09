"""The target without some of its blocks as its own draft, and the search for those blocks."""

import numpy as np
import pytest

from lib.checkpoints.weights import cut_params, n_params
from lib.demo.task import load_task
from gpt2 import GPT2, causal_mask, layer_norm, transformer_block, unembed
from main import parse_args
from sampling import softmax, with_sampling
from speculative import complete, generate
from exact.law import assert_same_law, expectation, law, text_law, total_variation
from theory.speedup import acceptance_rate
from models.training import find_skip
from variants import Models, settings
from variants.skip import DECODER, block_numbers, blocks_kept, middle, whole_or_last, with_blocks

HPARAMS = dict(n_vocab=3, n_ctx=12, n_embd=4, n_head=2, n_layer=4)


def wild_params(seed=1):
    """Weights large enough for every block to matter."""
    rng = np.random.default_rng(seed)
    return cut_params(np.empty(n_params(HPARAMS)), HPARAMS,
                      lambda name, *shape: (0.5 if "wte" in name else 0.7) * rng.normal(size=shape))


PARAMS = wild_params()


def target():
    """A model that has read nothing yet."""
    return GPT2(PARAMS, 2)


def build(sampling, K=2, skip="middle", exit="last", model=None):
    return DECODER.build(Models(None, model or target(), sampling), K=K, skip=skip, exit=exit)


# ---- lossless

@pytest.mark.parametrize("flags, sampling", [
    (dict(K=1), dict(temperature=1.0)), ({}, dict(temperature=1.0, top_p=0.7)),
    ({}, dict(temperature=0.5, top_k=2, repetition_penalty=1.8)), ({}, dict(temperature=0.0)),
    (dict(skip=(0, 1, 2, 3)), dict(temperature=0.5, top_k=2)),
    (dict(exit=1), dict(temperature=0.0, repetition_penalty=1.8)),
    (dict(exit=1), dict(temperature=0.5, top_k=2))], ids=str)
def test_the_joint_distribution_is_the_targets(flags, sampling):
    got = law(lambda rng: complete([0, 1], build(sampling, **flags), 3, rng))
    assert_same_law(got, text_law([0, 1], with_sampling(target(), **sampling), 3))


@pytest.mark.parametrize("K, N, stop", [(1, 3, {2}), (3, 3, {0, 1}), (4, 2, ()), (1, 1, ())])
def test_stop_tokens_and_other_K_keep_it(K, N, stop):
    sampling = dict(temperature=1.0, top_k=2)
    got = law(lambda rng: complete([0], build(sampling, K), N, rng, stop))
    assert_same_law(got, text_law([0], with_sampling(target(), **sampling), N, stop))


# ---- the draft

def through(ids, kept):
    """The logits after ids of these blocks one after another, nothing remembered."""
    n, x = len(ids), PARAMS["wte"][ids] + PARAMS["wpe"][: len(ids)]
    for i in kept:
        x = transformer_block(x, **PARAMS["blocks"][i], n_head=2, n_past=0,
                              cache=np.zeros((2, 2, n, 2)), mask=causal_mask(n, x))
    return unembed(layer_norm(x, **PARAMS["ln_f"]), PARAMS)


@pytest.mark.parametrize("flags, kept", [
    (dict(skip="middle", exit="last"), [0, 1, 3]), (dict(skip=(0, 3), exit="last"), [1, 2]),
    (dict(skip="middle", exit=2), [0, 1]), (dict(skip="middle", exit=4), [0, 1, 2, 3]),
    (dict(skip=(3, 2, 1, 0), exit="last"), [])], ids=str)
def test_the_draft_is_the_target_without_the_blocks(flags, kept):
    assert blocks_kept(4, **flags) == kept
    x, rows = [0, 2, 1, 1], through([0, 2, 1, 1], kept)
    assert np.allclose(with_blocks(target(), kept)(x, 4), rows)
    round = build(dict(temperature=1.0), **flags)(x, 2, np.random.default_rng(0))
    assert np.allclose(round.p_draft[0], softmax(rows[-1]))


def test_every_choice_of_blocks_is_another_draft():
    rows = [softmax(through([0, 2, 1], kept))[-1] for kept in ([], [0], [0, 1], [0, 2], [0, 1, 2])]
    assert all(abs(a - b).max() > 0.01 for i, a in enumerate(rows) for b in rows[:i])


def test_draft_and_target_share_the_weights_and_no_cache():
    model = target()
    before = model([0, 1, 2], 3)
    draft = with_blocks(model, [0, 2])
    draft([0, 2, 2, 1])
    assert draft.params["wte"] is model.params["wte"]
    assert draft.params["blocks"][1] is model.params["blocks"][2]
    assert len(model.params["blocks"]) == 4
    assert not np.shares_memory(draft.cache, model.cache)
    assert np.array_equal(model([0, 1, 2], 3), before)


def test_two_texts_in_turn_are_those_of_two_runs():
    """One step, called with texts that do not continue each other, and two steps of one model."""
    sampling, model = dict(temperature=1.0), target()
    one, other = build(sampling, model=model), build(sampling, model=model, exit=1)
    for x in ([0, 1], [2], [0, 1, 2, 2], [1, 1]):
        for step, fresh in ((one, build(sampling)), (other, build(sampling, exit=1))):
            used, new = (step_(x, 5, np.random.default_rng(3)) for step_ in (step, fresh))
            assert used.ids == new.ids and np.allclose(used.p_draft, new.p_draft)


@pytest.mark.parametrize("sampling", [
    dict(temperature=0.4, top_k=2), dict(temperature=1.0, top_p=0.6),
    dict(temperature=1.0, top_k=2, repetition_penalty=2.5), dict(temperature=0.0)], ids=str)
def test_with_all_blocks_no_guess_is_lost(sampling):
    lost = lambda rng: sum(len(round.guesses) + 1 - len(round.ids)
                           for round in generate([0], build(sampling, exit=4), 3, rng))
    assert expectation(lost, float) == pytest.approx(0, abs=1e-9)
    rounds = generate([0], build(sampling, K=3, exit=4), 8, np.random.default_rng(0))
    assert [len(round.ids) for round in rounds] == [4, 4]


@pytest.mark.parametrize("skip, exit, message", [
    ((1,), 2, "need --skip or --exit, got both"), ("middle", 5, "need --exit <= n_layer = 4"),
    ((0, 4), "last", "need --skip in 0 .. n_layer - 1 = 3, got 4")])
def test_blocks_that_are_not_there_are_refused(skip, exit, message):
    with pytest.raises(ValueError, match=message):
        build(dict(temperature=1.0), skip=skip, exit=exit)


def test_the_middle_leaves_the_first_and_the_last_quarter():
    assert [list(middle(n_layer)) for n_layer in (1, 2, 3, 4, 12, 16)] == [
        [], [1], [1, 2], [2], [4, 5, 6, 7, 8], [5, 6, 7, 8, 9, 10, 11]]
    for n_layer in range(2, 49):
        kept = set(blocks_kept(n_layer, "middle", "last"))
        assert kept >= {*range(n_layer // 4 + 1), *range(n_layer - n_layer // 4, n_layer)}
        assert 0 < n_layer - len(kept) <= n_layer / 2 + 1


def test_block_numbers_are_read_and_checked():
    assert block_numbers("0,12,3") == (0, 12, 3) and block_numbers("middle") == "middle"
    for text in ("", "a", "1,", "-1", "1.5"):
        with pytest.raises(ValueError, match="need middle or numbers of blocks"):
            block_numbers(text)


def test_an_exit_is_read_and_checked():
    assert whole_or_last("last") == "last" and whole_or_last("3") == 3
    with pytest.raises(ValueError, match="need last or a number of blocks"):
        whole_or_last("1.5")
    with pytest.raises(ValueError, match="need --exit >= 1, got 0"):
        settings("skip", {"exit": 0})


def test_no_draft_model_is_looked_for():
    task = load_task(parse_args(["--decoder", "skip", "--draft_model_size", "there-is-none"]))
    assert task.new_draft is None


# ---- the search

def test_the_search_drops_the_block_whose_loss_costs_least():
    worth = {0: 5, 1: 1, 2: 3, 3: 2, 4: 4}
    found = list(find_skip.greedy_search(5, 1, lambda kept: sum(worth[i] for i in kept)))
    assert found == [(1, 14), (3, 12), (2, 9), (4, 5)]


def test_the_first_step_of_the_search_is_the_best_of_all_single_blocks():
    model = target()
    texts = find_skip.write_texts(model, [[0], [1, 2]], 6)
    assert [(n, len(ids)) for n, ids in texts] == [(1, 7), (2, 8)]
    p_target = find_skip.rows_of(model, texts)
    assert np.allclose(p_target[0], softmax(through([0], range(4)))[-1])
    alphas = [acceptance_rate(p_target, find_skip.rows_of(
        with_blocks(model, [i for i in range(4) if i != gone]), texts)).mean() for gone in range(4)]
    *lines, best = find_skip.table(model, HPARAMS, texts, 1, None)
    cells = [line.split(" | ") for line in lines]
    assert [row[0] for row in cells] == ["| 1", "| 2", "| 3"]
    assert int(cells[0][1]) == np.argmax(alphas) and float(cells[0][2]) == round(max(alphas), 3)
    assert best.startswith("\nFastest by the formula: ")


def test_the_acceptance_is_one_minus_total_variation_and_the_share_of_equal_bests():
    p_target, p_draft = np.array([[0.5, 0.5, 0], [0.2, 0.2, 0.6]]), np.array([[0.3, 0.7, 0]] * 2)
    rows = [dict(enumerate(row)) for row in (*p_target, p_draft[0])]
    alpha, same = find_skip.agreement(p_target, p_draft)
    assert alpha == pytest.approx(1 - (total_variation(rows[0], rows[2])
                                       + total_variation(rows[1], rows[2])) / 2)
    assert same == 0 and find_skip.agreement(p_target, p_target) == (1, 1)


def test_the_speed_up_is_the_papers_and_costs_of_rows_lower_it():
    assert find_skip.predict(0.9, 0.5) == (3, pytest.approx((1 + 0.9 + 0.81 + 0.729) / 2.5))
    assert find_skip.predict(0.4, 0.5) == (0, 1)  # alpha < c: no guess pays
    assert find_skip.predict(0.9, 0.5, [1, 1.2, 1.9]) == (1, pytest.approx(1.9 / 1.7))
    assert find_skip.share_of_pass(HPARAMS, 4) == 1 > find_skip.share_of_pass(HPARAMS, 2) > 0.5
