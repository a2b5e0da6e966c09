"""models/training/train_pair.py, tiny, on a generated text: it learns, resumes, exports what it trained."""

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
pytest.importorskip("tensorflow", exc_type=ImportError)

from gpt2 import GPT2  # noqa: E402  after what may skip
from models.training import eagle_task, model_card, plans, repeats, tasks, train_pair, trainer  # noqa: E402
from models.training.average import average  # noqa: E402
from models.training.average import main as average_main  # noqa: E402
from models.training.tasks import load_trained  # noqa: E402
from models.training.torch_gpt2 import TorchGPT2  # noqa: E402
from utils import load_encoder_hparams_and_params  # noqa: E402
from variants.medusa import read_arrays  # noqa: E402
from variants.eagle_head import load_head  # noqa: E402

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads that wait for each other spin
SMALL = dict(T=16, T_last=32, batch=512, tokens=40 * 512, minutes=10, lr=1e-2, compile=False,
             log_seconds=0, save_seconds=60)
CONFIG = {
    "shapes": {
        "half": dict(n_vocab=275, n_ctx=32, n_embd=32, n_head=2, n_layer=1),
        "target": dict(n_vocab=275, n_ctx=32, n_embd=32, n_head=2, n_layer=2),
        "draft": dict(n_vocab=275, n_ctx=32, n_embd=16, n_head=1, n_layer=1),
    },
    "plans": {"half": dict(SMALL, tokens=100 * 512, save_seconds=0), "deep": SMALL, "long": SMALL,
              "target": SMALL, "early": SMALL, "draft": dict(SMALL, text="written", T=32),
              "control": SMALL, "heads": dict(SMALL, text="written"),
              "markov": dict(SMALL, text="written"), "states": dict(SMALL, text="written"),
              "eagle": dict(SMALL, text="written")},
    "write": dict(n_rows=64, n_given=8, n_new=24, B=32),
    "report": dict(n_prompts=2, n_ids=8, N=8),
}


def write_corpus(folder):
    """Tales of five words in random order."""
    rng, words = np.random.default_rng(0), ["king", "queen", "frog", "said", "golden"]
    for split, n_tales in (("train", 300), ("valid", 30)):
        tales = [" ".join(rng.choice(words, 20)).capitalize() + "." for _ in range(n_tales)]
        (folder / f"{split}.txt").write_text("\n\n\n".join(tales))


def command(folder, *more):
    return [sys.executable, "-m", "models.training.train_pair", "--corpus", folder, "--work", folder / "work",
            "--out", folder / "models", "--config", folder / "config.json", *more]


def log_of(folder, stage):
    lines = (folder / "work" / f"{stage}.pt.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A whole run that was killed in its first training stage and started again."""
    folder = tmp_path_factory.mktemp("train_pair")
    write_corpus(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    quiet = dict(cwd=ROOT, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = subprocess.Popen(command(folder, "--processes", "2"), **quiet)
    saved, deadline = folder / "work" / "half.pt", time.time() + 60
    while not saved.exists() and first.poll() is None and time.time() < deadline:
        time.sleep(0.01)
    first.kill()
    first.wait()
    done = subprocess.run(command(folder, "--processes", "1"), cwd=ROOT, env=ENV,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_killed_run_goes_on_where_it_stood(trained):
    log = log_of(trained, "half")
    resumed = [entry["resumed_at_step"] for entry in log if "resumed_at_step" in entry]
    assert len(resumed) == 1 and 1 <= resumed[0] < 100
    assert [entry["step"] for entry in log if "valid_loss" in entry] == [100]


@pytest.mark.parametrize("stage", ["half", "early"])
def test_the_loss_falls(trained, stage):
    losses = [entry["train_loss"] for entry in log_of(trained, stage) if "progress" in entry]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("stage", ["half", "deep", "long", "target", "early", "draft", "control"])
def test_a_stage_ends_far_below_the_uniform_loss(trained, stage):
    assert log_of(trained, stage)[-1]["valid_loss"] < 0.7 * np.log(275)


def test_writing_id_by_id_with_a_cache_is_greedy_where_it_should_be():
    torch.manual_seed(0)
    gpt2 = TorchGPT2(n_vocab=50, n_ctx=32, n_embd=16, n_head=2, n_layer=2)
    for weight in gpt2.parameters():
        weight.data += torch.randn_like(weight) / 5  # so that every prefix has another best id
    ids = given = torch.randint(0, 50, (4, 5))
    for _ in range(20):  # every second row greedy, without a cache
        ids = torch.cat([ids, gpt2(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    wrote = gpt2.write(given, 20, torch.tensor([0.0, 1, 0, 1]), torch.Generator().manual_seed(0))
    assert (wrote[::2] == ids[::2]).all() and (wrote[:, :5] == given).all()
    assert not (wrote[1::2] == ids[1::2]).all() and len(set(wrote[0].tolist())) > 5


def test_the_target_writes_from_pieces_of_the_corpus(trained):
    rows = np.load(trained / "work" / "written.npy").reshape(-1, 8 + 24)
    text = np.load(trained / "work" / "train.npy")
    pieces = np.lib.stride_tricks.sliding_window_view(text, 8)
    assert len(rows) == 64 and all((pieces == row[:8]).all(axis=1).any() for row in rows)


@pytest.mark.parametrize("stage, name", [("target", "tales-large"), ("draft", "tales-small")])
def test_the_exported_model_gives_the_trained_models_logits(trained, stage, name):
    theirs = load_trained(trained / "work", stage, CONFIG["shapes"]).half().float()  # as on disk
    encoder, hparams, params = load_encoder_hparams_and_params(name, trained / "models")
    ids, text = list(range(0, 270, 11)), "The king said: déjà vu\n"
    logits = GPT2(params, hparams["n_head"])(ids, len(ids))
    np.testing.assert_allclose(logits, theirs(torch.tensor([ids]))[0].detach(), atol=1e-4)
    assert encoder.end_of_text == hparams["n_vocab"] - 1
    assert encoder.decode(encoder.encode(text)) == text


def test_the_medusa_heads_are_beside_the_target(trained):
    w, a, b = read_arrays(heads_of(trained), ("medusa/w", "medusa/a", "medusa/b"))
    assert w.shape == a.shape == (3, 32, 32) and b.shape == (3, 32)
    assert w.dtype == np.float16 and np.abs(w).max() > 0


def heads_of(trained):
    return trained / "models" / "tales-large" / "heads.safetensors"


def test_the_table_of_the_heads_is_in_their_file_and_helps_them(trained):
    w1, w2 = read_arrays(heads_of(trained), ("markov/w1", "markov/w2"))
    assert w1.shape == w2.T.shape == (275, 64) and np.abs(w2).max() > 0
    alone, with_it = json.loads((trained / "work" / "report.json").read_text()
                                )["training"]["markov"]["overlap"]
    assert len(alone) == len(with_it) == 3 and sum(with_it) > sum(alone)


def test_eagles_head_is_beside_its_target_and_has_learned(trained):
    _, hparams, params = load_encoder_hparams_and_params("tales-large", trained / "models")
    head = load_head(heads_of(trained), params)
    assert head["fc"]["w"].shape == (64, 32) and len(head["blocks"]) == 1
    for stage, fraction in (("states", 0.9), ("eagle", 0.98)):
        losses = [entry["train_loss"] for entry in log_of(trained, stage) if "progress" in entry]
        assert losses[-1] < fraction * losses[0]
    steps = json.loads((trained / "work" / "report.json").read_text())["training"]["eagle"]
    assert len(steps["agreement"]) == 3 and all(0 < same <= 1 for same, _ in steps["agreement"])


def test_eagles_head_goes_on_from_its_first_part(trained):
    states, head = (tasks.result("states", trained / "work")["task"],
                    tasks.make_task("eagle", trained / "work", CONFIG["shapes"], seed=1))
    assert all(torch.equal(weight, states[name]) for name, weight in head.state_dict().items())
    assert head.weights == eagle_task.LOSSES["eagle"] != eagle_task.LOSSES["states"]


def test_the_heads_loss_is_a_sum_of_distances_after_each_step():
    torch.manual_seed(0)
    target = TorchGPT2(n_vocab=9, n_ctx=8, n_embd=8, n_head=2, n_layer=1)
    target.wte.weight.data.normal_()
    x, h = torch.randint(0, 9, (2, 6)), target.hidden(torch.zeros(2, 6, dtype=int))
    h = h.detach().half().float()  # as the frozen target remembers them
    target.hidden = lambda ids, first: h
    head = eagle_task.Eagle(target).requires_grad_(False)
    p = lambda state: torch.softmax(state @ target.wte.weight.T, -1)
    first, second = head.predicted(h[:, :-1], head.embeddings(x, 0), 2)
    pairs = [(first, h[:, 1:]), (second[:, 1:], h[:, 2:])]
    by_hand = {"TV": [1 - torch.minimum(p(a), p(b)).sum(-1).mean() for a, b in pairs],
               "states": [torch.nn.functional.smooth_l1_loss(a, b) for a, b in pairs]}
    for name, (a, b) in by_hand.items():
        head.weights = {name: 2.0}
        assert head.loss(x, None, 0).item() == pytest.approx(2 * (a + 0.8 * b).item() / 1.8, 1e-4)


def test_a_table_that_knows_nothing_leaves_the_heads_scores():
    torch.manual_seed(0)
    target = TorchGPT2(n_vocab=20, n_ctx=16, n_embd=8, n_head=2, n_layer=1)
    heads = tasks.Heads(target)
    table, x, y = tasks.Markov(heads, rank=4), *torch.randint(0, 20, (2, 3, 9))
    for k, (with_it, alone) in enumerate(zip(table.logits(x, y), heads.logits(x)), start=1):
        assert torch.equal(with_it, alone[:, :-k])
    table.w2.data.normal_()
    for k, (with_it, alone) in enumerate(zip(table.logits(x, y), heads.logits(x)), start=1):
        effect = torch.stack([table.w1[y[:, t + k - 1]] @ table.w2 for t in range(9 - k)], dim=1)
        assert torch.allclose(with_it, alone[:, :-k] + effect, atol=1e-5)


def test_a_frozen_target_reads_a_row_once_at_each_place():
    torch.manual_seed(0)
    target = TorchGPT2(n_vocab=20, n_ctx=16, n_embd=8, n_head=2, n_layer=1)
    target.wte.weight.data.normal_()
    hidden, read = target.hidden, []
    target.hidden = lambda ids, first: (read.append(first), hidden(ids, first))[1]
    frozen, x = tasks.Frozen(target), torch.randint(0, 20, (2, 4))
    for ids, first, n_read in ((x, 0, 1), (x, 0, 1), (x, 3, 2), (x.flip(0), 3, 2), (x + 0, 0, 2),
                               ((x + 1) % 20, 0, 3)):
        states = frozen.hidden(ids, first)
        assert torch.equal(states, hidden(ids, first).half().float()) and len(read) == n_read
    assert not states.requires_grad
    states = frozen.hidden(x, torch.tensor([[0], [3]]))  # a place a row: both are known
    assert len(read) == 3 and torch.equal(states[1], frozen.hidden(x, 3)[1])
    assert torch.allclose(frozen(x), target(x), atol=0.02)  # float16 keeps 11 bits


def test_distillation_is_a_sum_of_three_losses():
    torch.manual_seed(0)
    sizes, (x, y) = dict(n_vocab=9, n_ctx=8, n_embd=8, n_head=2), torch.randint(0, 9, (2, 2, 6))
    target = TorchGPT2(**sizes, n_layer=2)
    target.wte.weight.data.normal_()
    loss_of = lambda **weights: tasks.Distilled(draft.hparams, target, weights)
    draft = TorchGPT2(**sizes, n_layer=1)
    p_target, p_draft = (model(x).softmax(-1).detach() for model in (tasks.Frozen(target), draft))

    def loss(**weights):
        task = loss_of(**weights)
        task.gpt2.load_state_dict(draft.state_dict())
        return task.loss(x, y, 0).item()

    shared = torch.minimum(p_target, p_draft).sum(-1).mean().item()
    assert loss(TV=1) == pytest.approx(1 - shared, abs=1e-5)
    assert loss(KL=1) == pytest.approx(-(p_target * p_draft.log()).sum(-1).mean().item(), abs=1e-5)
    assert loss(text=1) == pytest.approx(
        -p_draft.log().gather(-1, y[..., None]).mean().item(), abs=1e-5)
    assert loss(KL=0.5, TV=2) == pytest.approx(loss(KL=1) / 2 + 2 * loss(TV=1), abs=1e-5)


# ---- on from former models

@pytest.fixture(scope="module")
def begun(trained, tmp_path_factory):
    """The work folder of a run that begins with the models of the first one."""
    work = tmp_path_factory.mktemp("begun")
    train_pair.main(["--corpus", str(trained), "--config", str(trained / "config.json"), "--work",
                     str(work), "--begin", str(trained / "models"), "--stages", "bpe", "begin"])
    return work


@pytest.mark.parametrize("stage, name", [("long", "target"), ("early", "draft")])
def test_a_run_can_begin_with_models(trained, begun, stage, name):
    was, now = (load_trained(folder, which, CONFIG["shapes"]).state_dict()
                for folder, which in ((trained / "work", name), (begun, stage)))
    assert all(torch.equal(now[key], was[key].half().float()) for key in was)  # as on disk


def test_what_it_begins_with_takes_the_place_of_the_stages_before(begun):
    done = {stage for stage in plans.PLANS if train_pair.is_done(stage, begun)}
    assert done == {"half", "deep", "long", "early", "control"}
    saved = tasks.result("long", begun)
    assert saved["begun_from"] == "tales-large" and saved["valid_loss"] < 0.7 * np.log(275)


def test_it_keeps_the_models_vocabulary(trained, begun):
    for name in ("encoder.json", "vocab.bpe", "valid.npy"):
        assert (begun / name).read_bytes() == (trained / "work" / name).read_bytes()


@pytest.mark.parametrize("aligned", [True, False])
def test_windows_begin_where_written_pieces_do_if_asked(aligned):
    plan = dict(seed=3, aligned=aligned, T_last=32)
    x, y, first = trainer.batch(np.arange(1000), plan, 8, 0, 100)
    assert ((x[:, 0] % 8 == 0).all().item()) == aligned and (y == x + 1).all()
    assert first.shape == (100, 1) and set(first.flatten().tolist()) == {0, 8, 16, 24}


def test_each_process_reads_its_own_windows_each_always_at_its_place():
    plan, read = dict(seed=3, aligned=True, T_last=32), []
    for rank in range(2):  # three times over 60 windows each
        x, _, first = trainer.batch(np.arange(8 * 121 + 1), plan, 8, 0, 180, rank, world=2)
        pairs = list(zip(x[:, 0].tolist(), first[:, 0].tolist()))
        assert all(set(pairs[i : i + 60]) == set(pairs[:60]) for i in (60, 120))
        assert pairs[:60] != pairs[60:120]  # in another order
        read.append({start for start, _ in pairs})
        assert len(read[rank]) == len(set(pairs)) == 60
    assert read[0] | read[1] == set(range(0, 960, 8))


# ---- the report

def test_repeats_are_the_later_ones():
    text = [*range(10), *range(9), 50, *range(8)]
    assert repeats.repeated(text).tolist() == [False] * 10 + [True] * 9 + [False] + [True] * 8
    assert not repeats.repeated([*range(7)] * 1).any() and repeats.repeated([3] * 9)[1:].all()
    assert not repeats.repeated([3] * 8).any()


def test_the_card_tells_the_stages_that_were_run():
    stage = dict(step=1, tokens=1e6, elapsed=60.0, train_loss=3.0, valid_loss=3.1)
    begun = dict(stage, begun_from="tales-large")
    table = model_card.losses({"training": {"long": begun, "target": stage}, "baselines": {}})
    assert len(table.splitlines()) == 4 and "the former tales-large |  |  |  | 3.000" in table
    assert "fourth part: the model | 1 | 1.00 M | 1.0 | 3.000" in table


def test_the_report_has_every_figure(trained):
    report = json.loads((trained / "work" / "report.json").read_text())
    assert len(report["repeats"]) == 6 and all(0 <= share <= 1 for share in report["repeats"])
    assert report["baselines"]["trigram"] < np.log(275)
    for draft in ("tales-small", "tales-small-undistilled", "eagle"):
        for rows in report["acceptance"][draft].values():
            assert [K for K, _, _ in rows] == list(range(1, 9))
            assert all(0 <= a <= 1 and 1 <= tokens <= K + 1 for K, a, tokens in rows)


# ---- the mean of two checkpoints

def test_the_mean_of_two_checkpoints_is_theirs_weight_by_weight():
    a, b = ({"w": torch.randn(3, 2), "b": torch.randn(3)} for _ in range(2))
    mean = average(a, b)
    assert list(mean) == ["w", "b"] and all(
        torch.allclose(mean[name] - a[name], b[name] - mean[name]) for name in mean)
    with pytest.raises(ValueError, match="one model, .*'c'"):
        average(a, {**a, "c": a["b"]})


def test_a_mean_that_is_there_is_not_gone_on_from(tmp_path, capsys):
    (tmp_path / "mean.pt").write_bytes(b"")
    with pytest.raises(SystemExit):
        average_main(["target", "a.pt", "b.pt", str(tmp_path / "mean.pt")])
    assert "need a new file for OUT" in capsys.readouterr().err
