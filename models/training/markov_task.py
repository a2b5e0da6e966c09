"""The Markov table of variants/markov.py: how it is learned, and what it is worth.

Letters: x, y [B, T] ids, y one token later; `first` the position of column 0; k the head, 1, 2, ..
"""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from models.training.frozen import windows


class Markov(nn.Module):
    """A table for Medusa's frozen heads: the previous guess's effect on each head's scores.

    logits_k + w1[previous guess] @ w2, of rank 64. DSpark (DeepSeek, 2026), whose loss this is: at
    place k, 0.1 cross-entropy + 0.9 sum |p_target - p_draft|, times exp(-k / 4). The text here was
    written by the target, so its tokens are what accepted guesses are.
    """

    def __init__(self, heads, rank=64):
        super().__init__()
        n_vocab = heads.target.gpt2.hparams["n_vocab"]
        self.w1 = nn.Parameter(torch.randn(n_vocab, rank) / rank**0.5)
        self.w2 = nn.Parameter(torch.zeros(rank, n_vocab))  # so the heads alone, to begin with
        self.heads = [heads.requires_grad_(False)]

    def logits(self, x, y, first=0):  # 3 x [B, T] -> a list of [B, T - k, n_vocab], one a head
        """Scores for y[:, k:], k = 1, 2, .., after the true tokens before."""
        return [logits[:, :-k] + self.w1[y[:, k - 1 : -1]] @ self.w2
                for k, logits in enumerate(self.heads[0].logits(x, first), start=1)]

    def loss(self, x, y, first):
        """The mean over the places, each with its weight."""
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


def load_markov(work, heads):
    table = Markov(heads)
    table.load_state_dict(torch.load(os.path.join(work, "markov.pt"), map_location="cpu")["task"])
    return table


@torch.no_grad()
def markov_overlap(table, ids, T, n_windows=64):
    """The mean sum of min(p_target, p_draft) of each head, without the table and with it."""
    found = []
    for row in windows(ids, T + 1, n_windows):
        x, y = row[:, :-1], row[:, 1:]
        p_target, heads = F.softmax(table.heads[0].target(x), -1), table.heads[0].logits(x)
        pairs = zip([logits[:, :-k] for k, logits in enumerate(heads, start=1)], table.logits(x, y))
        found.append([[torch.minimum(p_target[:, k:], F.softmax(row, -1)).sum(-1).mean().item()
                       for row in pair] for k, pair in enumerate(pairs, start=1)])
    return np.mean(found, axis=0).T.tolist()  # [2, n_heads]
