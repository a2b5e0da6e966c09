"""What is learned: language models, a draft from its target, Medusa heads, a Markov table.

Letters: x, y [B, T] ids, y one token later; `first` the position of column 0; k the head, 1, 2, ..
A task is a module with `loss(x, y, first)`. EAGLE's head is in models/training/eagle.py.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from models.training.torch_gpt2 import TorchGPT2

DISTILLED = dict(KL=0.3, TV=1.2, text=0.1)  # weights of the draft's loss


class LanguageModel(nn.Module):
    """Next-token cross-entropy of one GPT-2."""

    def __init__(self, hparams):
        super().__init__()
        self.gpt2 = TorchGPT2(**hparams)

    def loss(self, x, y, first):
        return F.cross_entropy(self.gpt2(x, first).float().flatten(0, 1), y.flatten())


class Frozen:
    """A trained GPT-2 that keeps the states of every row of ids it has read, as float16.

    A draft or head reads the same text several times, and the target's pass takes most of the time:
    from the second time on it is saved. Costs 2 n_embd bytes per id and length of window.
    """

    def __init__(self, gpt2):
        self.gpt2, self.known = gpt2.requires_grad_(False), {}

    @torch.no_grad()
    @torch.compiler.disable(recursive=False)  # a dict of bytes cannot be compiled
    def hidden(self, ids, first=0):  # [B, T] at positions first .. -> [B, T, n_embd]
        """Return the states after ln_f; `first` is a number, or one per row, [B, 1]."""
        positions = torch.as_tensor(first).expand(len(ids), 1)
        keys = [(int(start), row.tobytes()) for start, row in zip(positions, ids.cpu().numpy())]
        if any(key not in self.known for key in keys):  # the whole batch: one shape to compile
            self.known.update(zip(keys, self.gpt2.hidden(ids, first).half()))
        return torch.stack([self.known[key].to(self.gpt2.wte.weight.dtype) for key in keys])

    def __call__(self, ids, first=0):  # [B, T] -> [B, T, n_vocab]
        return F.linear(self.hidden(ids, first), self.gpt2.wte.weight)


def distances(p_target, log_p_draft):  # 2 x [.., n_vocab] -> scalars
    """Return how far a draft is from its target on average, for losses.

    KL(target, draft) up to a constant, Hinton et al. (2015); and the probability that a guess is
    rejected, TV = sum |p_target - p_draft| / 2, Leviathan et al. (2023) Thm. 3.5.
    """
    return {"KL": -(p_target * log_p_draft).sum(-1).mean(),
            "TV": (p_target - log_p_draft.exp()).abs().sum(-1).mean() / 2}


class Distilled(LanguageModel):
    """A draft that learns the target's distribution at every position, and a little from the text.

    The loss is a weighted sum of the two distances and the text's cross-entropy. Zhou et al. (2023)
    compare such losses and train the draft on text that the target wrote, as we do.
    """

    def __init__(self, hparams, target, weights):
        super().__init__(hparams)
        self.target, self.weights = Frozen(target), weights

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
    section 3.1.1, with their unembedding W_2 = wte a_k: n_embd x n_embd to learn instead of
    n_vocab x n_embd. a_k starts as the identity, so W_2 starts as the target's own, as theirs does.
    """

    def __init__(self, target, n_heads=3):
        super().__init__()
        n_embd = target.hparams["n_embd"]
        self.w = nn.Parameter(torch.zeros(n_heads, n_embd, n_embd))
        self.b = nn.Parameter(torch.zeros(n_heads, n_embd))
        self.a = nn.Parameter(torch.eye(n_embd).repeat(n_heads, 1, 1))
        self.target = Frozen(target)

    def logits(self, x, first=0):  # [B, T] -> a list of [B, T, n_vocab], one per head
        h, wte = self.target.hidden(x, first), self.target.gpt2.wte.weight
        return [F.linear((h + F.silu(h @ w + b)) @ a, wte)
                for w, b, a in zip(self.w, self.b, self.a)]

    def loss(self, x, y, first):
        losses = [F.cross_entropy(logits[:, :-k].float().flatten(0, 1), y[:, k:].flatten())
                  for k, logits in enumerate(self.logits(x, first), start=1)]
        return sum(losses) / len(losses)


class Markov(nn.Module):
    """A table for the trained heads: the previous guess's effect on each head's scores.

    logits_k + w1[previous guess] @ w2, of rank 64. The loss is that of DSpark (DeepSeek, 2026): for
    guess k, 0.1 cross-entropy + 0.9 sum |p_target - p_draft|, times exp(-k / 4). The target wrote
    the text, so its tokens are what accepted guesses are.
    """

    def __init__(self, heads, rank=64):
        super().__init__()
        n_vocab = heads.target.gpt2.hparams["n_vocab"]
        self.w1 = nn.Parameter(torch.randn(n_vocab, rank) / rank**0.5)
        self.w2 = nn.Parameter(torch.zeros(rank, n_vocab))  # starts without an effect
        self.heads = [heads.requires_grad_(False)]  # in a list: not a part of this module

    def logits(self, x, y, first=0):  # 3 x [B, T] -> a list of [B, T - k, n_vocab], one per head
        """Return scores for y[:, k:], k = 1, 2, .., after the true tokens before."""
        return [logits[:, :-k] + self.w1[y[:, k - 1 : -1]] @ self.w2
                for k, logits in enumerate(self.heads[0].logits(x, first), start=1)]

    def loss(self, x, y, first):
        with torch.no_grad():
            p_target = F.softmax(self.heads[0].target(x, first).float(), -1)
        total = weights = 0
        for k, logits in enumerate(self.logits(x, y, first), start=1):
            p_draft = F.softmax(logits.float(), -1)
            from_text = F.cross_entropy(logits.float().flatten(0, 1), y[:, k:].flatten())
            from_target = (p_target[:, k:] - p_draft).abs().sum(-1).mean()
            total += math.exp(-k / 4) * (0.1 * from_text + 0.9 * from_target)
            weights += math.exp(-k / 4)
        return total / weights


def stack(deep, shallow):
    """Start a deep model from a shallow one, its blocks repeated. Gong et al. (2019)."""
    for name in ("wte", "wpe", "ln_f"):
        getattr(deep, name).load_state_dict(getattr(shallow, name).state_dict())
    for i, block in enumerate(deep.blocks):
        block.load_state_dict(shallow.blocks[i % len(shallow.blocks)].state_dict())


def start_from_target(draft, target):
    """Start the draft's tables from the best rank-n_embd approximation of the target's (SVD).

    They are scaled to the spread of fresh ones: at the target's scale the first logits are too
    large.
    """
    n_embd = draft.hparams["n_embd"]
    _, _, V = torch.linalg.svd(target.wte.weight.detach().cpu(), full_matrices=False)
    scale = (draft.wte.weight.std() / target.wte.weight.std()).item()
    for name in ("wte", "wpe"):
        table = getattr(target, name).weight.detach().cpu() @ V[:n_embd].T
        getattr(draft, name).weight.data.copy_(scale * table)
