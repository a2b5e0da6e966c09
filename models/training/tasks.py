"""What is learned: language models, a draft that listens to its target, Medusa heads.

Letters: x, y [B, T] ids, y one token later; `first` the position of column 0.
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from models.training.eagle_task import LOSSES, Eagle
from models.training.frozen import Frozen, distances, windows
from models.training.markov_task import Markov
from models.training.torch_gpt2 import TorchGPT2


DISTILLED = dict(KL=0.3, TV=1.2, text=0.1)  # weights of the draft's loss


class LanguageModel(nn.Module):
    """Next-token cross-entropy of one GPT-2."""

    def __init__(self, hparams):
        super().__init__()
        self.gpt2 = TorchGPT2(**hparams)

    def loss(self, x, y, first):
        return F.cross_entropy(self.gpt2(x, first).float().flatten(0, 1), y.flatten())


class Distilled(LanguageModel):
    """A draft that learns the target's distribution at every position, and a little from the text.

    A weighted sum of its distances from the target (models/training/frozen.py) and of the text's
    cross-entropy. Zhou et al. (2023) compare such losses, and let the draft learn on what the
    target writes, as we do.
    """

    def __init__(self, hparams, target, weights):
        super().__init__(hparams)
        self.target = Frozen(target)
        self.weights = weights

    def loss(self, x, y, first):
        if not torch.is_grad_enabled():  # validation: the text only
            return super().loss(x, y, first)
        log_p_draft = F.log_softmax(self.gpt2(x, first).float(), -1)
        with torch.no_grad():
            p_target = F.softmax(self.target(x, first).float(), -1)
        parts = {"text": F.nll_loss(log_p_draft.flatten(0, 1), y.flatten()),
                 **distances(p_target, log_p_draft)}
        return sum(weight * parts[name] for name, weight in self.weights.items())


class Heads(nn.Module):
    """Medusa heads on a frozen target: logits_k = wte . ((h + SiLU(h w_k + b_k)) a_k), k = 1, 2, ..

    The target itself predicts y, one token ahead; head k the token k further. Cai et al. (2024)
    section 3.1.1, with their unembedding W_2 = wte a_k: n_embd x n_embd to learn in place of
    n_vocab x n_embd, and a_k begins as the identity, so W_2 as the target's own, as theirs does.
    """

    def __init__(self, target, n_heads=3):
        super().__init__()
        n_embd = target.hparams["n_embd"]
        self.w = nn.Parameter(torch.zeros(n_heads, n_embd, n_embd))
        self.b = nn.Parameter(torch.zeros(n_heads, n_embd))
        self.a = nn.Parameter(torch.eye(n_embd).repeat(n_heads, 1, 1))
        self.target = Frozen(target)

    def logits(self, x, first=0):  # [B, T] -> a list of [B, T, n_vocab], one a head
        h, wte = self.target.hidden(x, first), self.target.gpt2.wte.weight
        return [F.linear((h + F.silu(h @ w + b)) @ a, wte)
                for w, b, a in zip(self.w, self.b, self.a)]

    def loss(self, x, y, first):
        losses = [F.cross_entropy(logits[:, :-k].float().flatten(0, 1), y[:, k:].flatten())
                  for k, logits in enumerate(self.logits(x, first), start=1)]
        return sum(losses) / len(losses)


def stack(deep, shallow):
    """Begin a deep model as a shallow one whose blocks run over and over. Gong et al. (2019)."""
    for name in ("wte", "wpe", "ln_f"):
        getattr(deep, name).load_state_dict(getattr(shallow, name).state_dict())
    for i, block in enumerate(deep.blocks):
        block.load_state_dict(shallow.blocks[i % len(shallow.blocks)].state_dict())


def start_from_target(draft, target):
    """Begin the draft's tables as the best rank-n_embd picture of the target's (by its SVD).

    They are scaled to the spread of fresh ones: at the target's own, the first logits are wild.
    """
    n_embd = draft.hparams["n_embd"]
    _, _, V = torch.linalg.svd(target.wte.weight.detach().cpu(), full_matrices=False)
    scale = (draft.wte.weight.std() / target.wte.weight.std()).item()
    for name in ("wte", "wpe"):
        table = getattr(target, name).weight.detach().cpu() @ V[:n_embd].T
        getattr(draft, name).weight.data.copy_(scale * table)


def load_ids(work, split):
    """A text as ids: "train", "valid" or "written"."""
    return np.load(os.path.join(work, split + ".npy"), mmap_mode="r")


def result(stage, work):
    """What a training stage has saved so far, or {}."""
    path = os.path.join(work, stage + ".pt")
    return torch.load(path, map_location="cpu") if os.path.exists(path) else {}


def shape(stage, shapes):
    """The sizes of the model that a stage trains."""
    same = {"deep": "target", "long": "target", "early": "draft", "control": "draft"}
    return shapes[same.get(stage, stage)]


def load_trained(work, stage, shapes):
    """The GPT-2 that a stage has trained, in evaluation mode on the CPU."""
    task = LanguageModel(shape(stage, shapes))
    task.load_state_dict(torch.load(os.path.join(work, stage + ".pt"), map_location="cpu")["task"])
    return task.gpt2.eval()


def load_heads(work, target):
    heads = Heads(target)
    heads.load_state_dict(torch.load(os.path.join(work, "heads.pt"), map_location="cpu")["task"])
    return heads


def make_task(stage, work, shapes, seed, device="cpu"):
    """The untrained task of a stage."""
    torch.manual_seed(seed)
    before = {"deep": "half", "long": "deep", "target": "long", "draft": "early",
              "control": "early"}.get(stage)
    trained = load_trained(work, before or "target", shapes) if stage != "half" else None
    if stage == "heads":
        return Heads(trained.to(device)).to(device)
    if stage == "markov":
        return Markov(load_heads(work, trained.to(device)).to(device)).to(device)
    if stage in LOSSES:
        task = Eagle(trained.to(device), LOSSES[stage])
        if result("states", work):
            task.load_state_dict(result("states", work)["task"])
        return task.to(device)
    if stage == "draft":
        target = load_trained(work, "target", shapes).to(device)
        task = Distilled(shape(stage, shapes), target, DISTILLED)
    else:
        task = LanguageModel(shape(stage, shapes))
    if before:
        stack(task.gpt2, trained)
    if stage == "early":
        start_from_target(task.gpt2, trained)
    return task.to(device)


def write(target, ids, rank, world, n_rows, n_given, n_new, B, seed):
    """This process's share of n_rows pieces of a text, each gone on with by the target.

    Returns [n_rows / world, n_given + n_new]: n_given ids of the text, then n_new of the target's,
    every second row greedy and the others at temperature 1.
    """
    rng, rows, device = np.random.default_rng([seed, rank]), [], target.wte.weight.device
    generator = torch.Generator(device).manual_seed(1000 * seed + rank)
    for _ in range(max(1, n_rows // world // B)):
        starts = rng.integers(len(ids) - n_given, size=B)
        given = np.stack([ids[i : i + n_given] for i in starts]).astype(np.int64)
        given, temperature = torch.from_numpy(given).to(device), torch.arange(B, device=device) % 2
        rows.append(target.write(given, n_new, temperature.float(), generator))
    return torch.cat(rows).cpu()


@torch.no_grad()
def agreement(draft, target, ids, T, n_windows=64):
    """On a text as it stands: how often the argmaxes agree, mean sum of min(p_draft, p_target).

    They are the chances that one guess is accepted at temperature 0 and 1, at places of that text.
    """
    same, overlap = [], []
    for x in windows(ids, T, n_windows):
        p_draft, p_target = F.softmax(draft(x), -1), F.softmax(target(x), -1)
        same.append((p_draft.argmax(-1) == p_target.argmax(-1)).float().mean().item())
        overlap.append(torch.minimum(p_draft, p_target).sum(-1).mean().item())
    return float(np.mean(same)), float(np.mean(overlap))


@torch.no_grad()
def head_accuracy(heads, ids, T, n_windows=64):
    """How often the target (first number) and each head find the true token most probable."""
    hits = []
    for x in windows(ids, T, n_windows):
        rows = [heads.target(x)] + heads.logits(x)
        hits.append([(row.argmax(-1)[:, : T - 1 - k] == x[:, 1 + k :]).float().mean().item()
                     for k, row in enumerate(rows)])
    return [float(v) for v in np.mean(hits, axis=0)]
