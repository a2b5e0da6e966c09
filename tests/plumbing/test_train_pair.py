"""Test models/training, tiny, on a generated text: it learns, resumes, exports what it trained."""

import json
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("transformers", exc_type=ImportError)

from gpt2 import GPT2  # noqa: E402  after what may skip
from models.training import plans, stages, tasks, train, trainer  # noqa: E402
from models.training.eagle import Eagle, predictions  # noqa: E402
from tests.commands import refusal  # noqa: E402
from utils import load_encoder_hparams_and_params  # noqa: E402
from variants import Models, build  # noqa: E402
from variants.shared.tree_gpt2 import TreeGPT2  # noqa: E402

torch.set_num_threads(1)
SMALL = dict(T=16, T_last=32, batch=256, lr=1e-2, compile=False, save_seconds=0)
STEPS = dict(target=20, early=16, draft=4, heads=4, markov=10, states=16, eagle=16)
SIZES = dict(vocab_size=275, n_positions=32, n_embd=32, n_head=2)
DRAFT = dict(SIZES, n_embd=16, n_head=1, n_layer=1)
TOY = dict(  # constants of plans.py
    SHAPES=dict(target=dict(SIZES, n_layer=2), early=DRAFT, draft=DRAFT),
    WRITE=dict(n_rows=64, n_given=8, n_new=24, B=32, seed=1),
    PLANS={stage: plan | SMALL | {"steps": STEPS[stage]} for stage, plan in plans.PLANS.items()})


def logged(folder, stage, name):
    """Return the entries of a stage's log that have this name."""
    text = (folder / "work" / f"{stage}.pt.log").read_text("utf-8")
    return [entry for entry in map(json.loads, text.splitlines()) if name in entry]


def rate_or_interrupt(progress, decay_from):
    """Return a learning rate; in the middle of a stage, raise an error."""
    assert progress < 0.5
    return 1.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a run that was interrupted in its first stage and started again."""
    folder = tmp_path_factory.mktemp("train")
    rng = np.random.default_rng(0)
    words = ["king", "queen", "frog", "said", "golden"]
    for split, n_tales in (("train", 300), ("valid", 30)):
        tales = [" ".join(rng.choice(words, 20)).capitalize() + "." for _ in range(n_tales)]
        (folder / f"{split}.txt").write_text("\n\n\n".join(tales), "utf-8")
    flags = ["--corpus", str(folder), "--work", f"{folder}/work"]
    with mock.patch.multiple(plans, **TOY):
        with mock.patch.object(trainer, "learning_rate", rate_or_interrupt), \
                pytest.raises(AssertionError):
            train.main(flags)
        train.main(flags)
        yield folder


def test_a_corpus_that_is_too_short_is_refused_before_anything_is_trained(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("A fox.", encoding="utf-8")
    assert "need enough text for 4095 entries, got " in refusal(
        train.main, "--corpus", tmp_path, "--work", tmp_path / "work")
    assert not any((tmp_path / "work").iterdir())


def test_a_text_shorter_than_two_windows_is_refused_before_the_first_step():
    plan, long, short = {"T": 4, "T_last": 8}, range(17), range(16)
    for ids, name in ((short, long), "training"), ((long, short), "validation"):
        with pytest.raises(ValueError, match=f"need 17 or more ids of text for {name}, got 16"):
            trainer.train(None, plan, None, *ids)


# ---- training

def test_an_interrupted_run_resumes(trained):
    resumed, = logged(trained, "target", "resumed_at_step")
    assert resumed["resumed_at_step"] == 10
    steps = [entry["step"] for entry in logged(trained, "target", "train_loss")]
    assert steps == list(range(1, 21))
    assert [entry["step"] for entry in logged(trained, "target", "valid_loss")] == [20]


@pytest.mark.parametrize("stage, fraction", [
    ("target", 0.7), ("early", 0.7), ("states", 0.9), ("eagle", 0.99), ("markov", 1.0)])
def test_the_loss_falls(trained, stage, fraction):
    first, *_, last = logged(trained, stage, "train_loss")
    assert last["train_loss"] < fraction * first["train_loss"]


@pytest.mark.parametrize("stage, name", [("target", "tales-large"), ("draft", "tales-small")])
def test_the_exported_model_gives_the_trained_models_logits(trained, stage, name):
    theirs = stages.trained(stage, trained / "work").gpt2.half().float()  # as on disk
    encoder, hparams, params = load_encoder_hparams_and_params(name, trained / "work/models")
    ids = list(range(0, 270, 11))
    logits = GPT2(params, hparams["n_head"])(ids, len(ids))
    with torch.no_grad():
        np.testing.assert_allclose(logits, theirs(torch.tensor([ids])).logits[0], atol=1e-4)
    assert encoder.decode(encoder.encode("vu\n")) == "vu\n" and encoder.end_of_text == 274


@pytest.mark.parametrize("decoder", ["medusa", "markov", "eagle"])
def test_the_exported_heads_guess(trained, decoder):
    _, hparams, params = load_encoder_hparams_and_params("tales-large", trained / "work/models")
    models = Models(None, TreeGPT2(params, hparams["n_head"]), {"temperature": 0.0},
                    trained / "work/models" / "tales-large")
    assert len(build(decoder, models)([1, 2, 3], 8, np.random.default_rng(0)).guesses) > 0


@pytest.mark.parametrize("n_in, n_out", [(6, 24), (24, 6)])
def test_muon_steps_by_an_orthogonal_matrix_as_large_as_its_outputs_need(n_in, n_out):
    """Newton and Schulz's iteration brings every singular value between 0.6 and 1.3."""
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.ones(n_in, n_out))
    p.grad = torch.randn(n_in, n_out)
    trainer.Muon([p], lr=0.5, weight_decay=0.1).step()
    change = (0.95 * torch.ones(n_in, n_out) - p.detach()) / 0.5
    sizes = torch.linalg.svdvals(change) / max(1, n_out / n_in) ** 0.5
    assert 0.6 < sizes.min() and sizes.max() < 1.3


# ---- the losses

FIRST = torch.zeros((1, 1), dtype=torch.int64)


@pytest.fixture
def target():
    """Return a random model of 9 tokens."""
    torch.manual_seed(0)
    target = tasks.new_gpt2(dict(vocab_size=9, n_positions=8, n_embd=8, n_head=2, n_layer=2))
    target.transformer.wte.weight.data.normal_()
    return target


def rejection(p_target, p_draft):
    """Return the mean probability that a guess is rejected: 1 - sum min(p_target, p_draft)."""
    return 1 - torch.minimum(p_target, p_draft).sum(-1).mean().item()


def test_a_drafts_loss_is_the_probability_of_a_rejection(target):
    draft = tasks.new_gpt2(dict(vocab_size=9, n_positions=8, n_embd=8, n_head=2, n_layer=1))
    task = tasks.Distilled(draft, target, {"TV": 1})
    x, y = torch.randint(0, 9, (2, 2, 6))
    p_target, p_draft = (model(x).logits.softmax(-1).detach() for model in (target, draft))
    assert task.loss(x, y, FIRST).item() == pytest.approx(rejection(p_target, p_draft), abs=1e-5)


def test_eagles_loss_is_the_mean_rejection_of_both_steps_and_the_second_counts_less(target):
    head = Eagle(target, {"TV": 1}).requires_grad_(False)
    x = torch.randint(0, 9, (2, 6))
    h = tasks.hidden(target, x, FIRST)
    step_0, step_1 = predictions(head.step, h[:, :-1], head.embeddings(x, FIRST), 2)
    p = lambda states: torch.softmax(states @ target.transformer.wte.weight.T, -1)
    # Row i of a step predicts state i + 1. Row 0 of step 1 has no meaning.
    tv_0 = rejection(p(h[:, 1:]), p(step_0))
    tv_1 = rejection(p(h[:, 2:]), p(step_1[:, 1:]))
    assert head.loss(x, None, FIRST).item() == pytest.approx((tv_0 + 0.8 * tv_1) / 1.8, 1e-3)
