"""What is learned: language models, a draft that listens to its target, Medusa heads.

Letters: x, y [B, T] ids, y one token later; `first` the position of column 0.
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tools.torch_gpt2 import TorchGPT2


class LanguageModel(nn.Module):
    """Next-token cross-entropy of one GPT-2."""

    def __init__(self, hparams):
        super().__init__()
        self.gpt2 = TorchGPT2(**hparams)

    def loss(self, x, y, first):
        return F.cross_entropy(self.gpt2(x, first).float().flatten(0, 1), y.flatten())


class Distilled(LanguageModel):
    """A draft that learns the target's distribution at every position, and a little from the text.

    loss = weight * KL(target, draft) + (1 - weight) * cross-entropy. Hinton et al. (2015); for
    speculation Zhou et al. (2023). With weight 0 it is a plain language model.
    """

    def __init__(self, hparams, target, weight):
        super().__init__(hparams)
        self.target = [target.requires_grad_(False)]  # in a list: no part of state_dict
        self.weight = weight

    def loss(self, x, y, first):
        if self.weight == 0 or not torch.is_grad_enabled():  # validation: the text only
            return super().loss(x, y, first)
        log_p_draft = F.log_softmax(self.gpt2(x, first).float(), -1)
        with torch.no_grad():
            p_target = F.softmax(self.target[0](x, first).float(), -1)
        from_target = -(p_target * log_p_draft).sum(-1).mean()  # KL up to a constant
        from_text = F.nll_loss(log_p_draft.flatten(0, 1), y.flatten())
        return self.weight * from_target + (1 - self.weight) * from_text


class Heads(nn.Module):
    """Medusa heads on a frozen target: logits_k = wte . (h + SiLU(h w_k + b_k)), k = 1, 2, ...

    The target itself predicts y, one token ahead; head k the token k further. Cai et al. (2024)
    section 3.1.1, with their second matrix shared with wte and frozen.
    """

    def __init__(self, target, n_heads=3):
        super().__init__()
        n_embd = target.hparams["n_embd"]
        self.w = nn.Parameter(torch.zeros(n_heads, n_embd, n_embd))
        self.b = nn.Parameter(torch.zeros(n_heads, n_embd))
        self.target = [target.requires_grad_(False)]

    def logits(self, x, first=0):  # [B, T] -> a list of [B, T, n_vocab], one a head
        with torch.no_grad():
            h = self.target[0].hidden(x, first)
        wte = self.target[0].wte.weight
        return [F.linear(h + F.silu(h @ w + b), wte) for w, b in zip(self.w, self.b)]

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
    """Begin the draft's tables as the best rank-n_embd picture of the target's (by its SVD)."""
    n_embd = draft.hparams["n_embd"]
    _, _, V = torch.linalg.svd(target.wte.weight.detach().cpu(), full_matrices=False)
    for name in ("wte", "wpe"):
        table = getattr(target, name).weight.detach().cpu() @ V[:n_embd].T
        getattr(draft, name).weight.data.copy_(table)


def load_trained(work, stage, shapes):
    """The GPT-2 that a stage has trained, in evaluation mode on the CPU."""
    task = LanguageModel(shapes["draft" if stage == "control" else stage])
    task.load_state_dict(torch.load(os.path.join(work, stage + ".pt"), map_location="cpu")["task"])
    return task.gpt2.eval()


def load_heads(work, target):
    heads = Heads(target)
    heads.load_state_dict(torch.load(os.path.join(work, "heads.pt"), map_location="cpu")["task"])
    return heads


def make_task(stage, work, shapes, seed, device="cpu"):
    """The untrained task of a stage."""
    torch.manual_seed(seed)
    if stage in ("half", "deep", "target"):
        task, before = LanguageModel(shapes[stage]), {"deep": "half", "target": "deep"}.get(stage)
        if before:
            stack(task.gpt2, load_trained(work, before, shapes))
        return task.to(device)
    target = load_trained(work, "target", shapes).to(device)
    if stage == "heads":
        return Heads(target).to(device)
    task = Distilled(shapes["draft"], target, weight=0.9 if stage == "draft" else 0.0)
    start_from_target(task.gpt2, target)
    return task.to(device)


@torch.no_grad()
def agreement(draft, target, ids, T, n_windows=64):
    """On a text as it stands: how often the argmaxes agree, mean sum of min(p_draft, p_target).

    They are the chances that one guess is accepted at temperature 0 and 1, at places of that text.
    """
    same, overlap = [], []
    for i in np.linspace(0, len(ids) - T, n_windows).astype(int):
        x = torch.from_numpy(ids[i : i + T].astype(np.int64))[None]
        p_draft, p_target = F.softmax(draft(x), -1), F.softmax(target(x), -1)
        same.append((p_draft.argmax(-1) == p_target.argmax(-1)).float().mean().item())
        overlap.append(torch.minimum(p_draft, p_target).sum(-1).mean().item())
    return float(np.mean(same)), float(np.mean(overlap))


@torch.no_grad()
def head_accuracy(heads, ids, T, n_windows=64):
    """How often the target (first number) and each head find the true token most probable."""
    hits = []
    for i in np.linspace(0, len(ids) - T, n_windows).astype(int):
        x = torch.from_numpy(ids[i : i + T].astype(np.int64))[None]
        rows = [heads.target[0](x)] + heads.logits(x)
        hits.append([(row.argmax(-1)[:, : T - 1 - k] == x[:, 1 + k :]).float().mean().item()
                     for k, row in enumerate(rows)])
    return [float(v) for v in np.mean(hits, axis=0)]
