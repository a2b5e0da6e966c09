"""models/training, tiny, on a generated text: it learns, resumes, and exports what it trained."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("tokenizers", exc_type=ImportError)

from gpt2 import GPT2  # noqa: E402  after what may skip
from models.training import plans, report, tasks, train  # noqa: E402
from models.training.eagle import Eagle  # noqa: E402
from models.training.torch_gpt2 import TorchGPT2  # noqa: E402
from utils import load_encoder_hparams_and_params  # noqa: E402
from variants import Models, build  # noqa: E402
from variants.shared.tree_gpt2 import TreeGPT2  # noqa: E402

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
SMALL = dict(T=16, T_last=32, batch=512, tokens=40 * 512, minutes=10, lr=1e-2, compile=False,
             save_seconds=0)
SIZES = dict(n_vocab=275, n_ctx=32, n_embd=32, n_head=2)
SHAPES = {"half": dict(SIZES, n_layer=1), "target": dict(SIZES, n_layer=2),
          "draft": dict(SIZES, n_embd=16, n_head=1, n_layer=1)}
PLANS = {stage: SMALL | {"text": plan["text"]} for stage, plan in plans.PLANS.items()}
CONFIG = {"shapes": SHAPES, "write": dict(n_rows=64, n_given=8, n_new=24, B=32),
          "plans": PLANS | {"half": dict(SMALL, tokens=100 * 512)}}


def log_of(folder, stage):
    text = (folder / "work" / f"{stage}.pt.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A whole run that was killed in its first training stage and started again."""
    folder = tmp_path_factory.mktemp("train")
    rng, words = np.random.default_rng(0), ["king", "queen", "frog", "said", "golden"]
    for split, n_tales in (("train", 300), ("valid", 30)):
        tales = [" ".join(rng.choice(words, 20)).capitalize() + "." for _ in range(n_tales)]
        (folder / f"{split}.txt").write_text("\n\n\n".join(tales))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "models.training.train", "--corpus", folder, "--work",
               folder / "work", "--out", folder / "models", "--config", folder / "config.json"]
    how = dict(cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first = subprocess.Popen(command, **how, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 60
    while not (folder / "work" / "half.pt").exists() and time.time() < deadline:
        time.sleep(0.01)
    first.kill()
    first.wait()
    done = subprocess.run(command, **how, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_killed_run_resumes(trained):
    log = log_of(trained, "half")
    resumed = [entry["resumed_at_step"] for entry in log if "resumed_at_step" in entry]
    assert len(resumed) == 1 and 1 <= resumed[0] < 100
    assert [entry["step"] for entry in log if "valid_loss" in entry] == [100]


@pytest.mark.parametrize("stage, fraction", [
    ("half", 0.7), ("early", 0.7), ("states", 0.9), ("eagle", 0.99), ("markov", 1.0)])
def test_the_loss_falls(trained, stage, fraction):
    losses = [entry["train_loss"] for entry in log_of(trained, stage) if "progress" in entry]
    assert losses[-1] < fraction * losses[0]


@pytest.mark.parametrize("stage, name", [("target", "tales-large"), ("draft", "tales-small")])
def test_the_exported_model_gives_the_trained_models_logits(trained, stage, name):
    theirs = train.load_trained(trained / "work", stage, SHAPES).half().float()  # as on disk
    encoder, hparams, params = load_encoder_hparams_and_params(name, trained / "models")
    ids = list(range(0, 270, 11))
    logits = GPT2(params, hparams["n_head"])(ids, len(ids))
    np.testing.assert_allclose(logits, theirs(torch.tensor([ids]))[0].detach(), atol=1e-4)
    assert encoder.decode(encoder.encode("vu\n")) == "vu\n" and encoder.end_of_text == 274


def test_the_report_has_a_column_for_the_draft_and_for_the_head(trained, monkeypatch, capsys):
    monkeypatch.setattr(report, "MODELS_DIR", trained / "models")
    monkeypatch.setattr(report, "KS", (1, 2))
    report.main(["--work", str(trained / "work"), "--prompts", "2", "--ids", "8", "--N", "8"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.count("tales-small, temperature") == head.count("eagle, temperature") == 2
    for K, row in zip((1, 2), rows):
        for cell in row.strip("| ").split(" | ")[1:]:
            rate, tokens = map(float, cell.split(" / "))
            assert 0 <= rate <= 1 <= tokens <= K + 1


@pytest.mark.parametrize("decoder", ["medusa", "markov"])
def test_the_exported_heads_guess(trained, decoder):
    _, hparams, params = load_encoder_hparams_and_params("tales-large", trained / "models")
    models = Models(None, TreeGPT2(params, hparams["n_head"]), {"temperature": 0.0},
                    trained / "models" / "tales-large")
    assert len(build(decoder, models)([1, 2, 3], 8, np.random.default_rng(0)).guesses) > 0


def test_a_run_can_begin_with_models(trained, tmp_path):
    train.main(["--corpus", str(trained), "--config", str(trained / "config.json"), "--work",
                str(tmp_path), "--begin", str(trained / "models"), "--stages", "bpe", "begin"])
    for stage, name in (("long", "target"), ("early", "draft")):
        was, now = (train.load_trained(folder, which, SHAPES).state_dict()
                    for folder, which in ((trained / "work", name), (tmp_path, stage)))
        assert all(torch.equal(now[key], was[key].half().float()) for key in was)  # as on disk
    assert train.is_done("half", tmp_path) and not train.is_done("target", tmp_path)


def test_the_losses_are_the_distances_they_name():
    torch.manual_seed(0)
    sizes, (x, y) = dict(n_vocab=9, n_ctx=8, n_embd=8, n_head=2), torch.randint(0, 9, (2, 2, 6))
    target = TorchGPT2(**sizes, n_layer=2)
    target.wte.weight.data.normal_()
    frozen, task = tasks.Frozen(target), tasks.Distilled(dict(sizes, n_layer=1), target, {"TV": 1})
    p_target, p_draft = (model(x).softmax(-1).detach() for model in (frozen, task.gpt2))
    rejected = 1 - torch.minimum(p_target, p_draft).sum(-1).mean().item()
    assert task.loss(x, y, 0).item() == pytest.approx(rejected, abs=1e-5)
    head, h = Eagle(target, {"TV": 1}).requires_grad_(False), frozen.hidden(x)
    first, second = head.predicted(h[:, :-1], head.embeddings(x, 0), 2)
    p = lambda state: torch.softmax(state @ target.wte.weight.T, -1)
    steps = [1 - torch.minimum(p(a), p(b)).sum(-1).mean().item()
             for a, b in ((first, h[:, 1:]), (second[:, 1:], h[:, 2:]))]
    assert head.loss(x, None, 0).item() == pytest.approx((steps[0] + 0.8 * steps[1]) / 1.8, 1e-3)
