"""Define the tasks: language models, a distilled draft, Medusa heads, a Markov table.

    x, y       [B, T] ids; y is x one token later
    first      [B, 1] the position of column 0 in its text
    k          the number of a head, from 1 on: head k predicts the token k positions after y

A task is a module with `loss(x, y, first)`. EAGLE's head is in models/training/eagle.py.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

DISTILLED = dict(KL=0.3, TV=1.2, text=0.1)  # weights of the draft's loss


def new_gpt2(shape):
    """Return an untrained GPT-2 of transformers, without dropout."""
    return GPT2LMHeadModel(GPT2Config(
        **shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=None, eos_token_id=None, attn_implementation="eager"))


def hidden(gpt2, ids, first):  # [B, T] -> [B, T, n_embd]
    """Return the states after ln_f of ids at the positions first, first + 1, .."""
    positions = first + torch.arange(ids.shape[1], device=ids.device)  # [B, T]
    return gpt2.transformer(ids, position_ids=positions).last_hidden_state


class LanguageModel(nn.Module):
    """Train one GPT-2 by next-token cross-entropy."""

    def __init__(self, gpt2):
        super().__init__()
        self.gpt2 = gpt2

    def logits(self, x, first):  # [B, T] -> [B, T, n_vocab]
        return self.gpt2.lm_head(hidden(self.gpt2, x, first)).float()

    def loss(self, x, y, first):
        scores = self.logits(x, first).flatten(0, 1)  # [B T, n_vocab]
        return F.cross_entropy(scores, y.flatten())


def draft_distances(p_target, log_p_draft):  # 2 x [.., n_vocab] -> scalars
    """Return two mean distances of a draft from its target, as terms of a loss.

    KL is the cross-entropy, which is KL(target, draft) plus a constant: Hinton et al. (2015).
    TV = sum |p_target - p_draft| / 2 is the probability that a guess is rejected: Leviathan et
    al. (2023) Thm. 3.5.
    """
    return {"KL": -(p_target * log_p_draft).sum(-1).mean(),
            "TV": (p_target - log_p_draft.exp()).abs().sum(-1).mean() / 2}


class Distilled(LanguageModel):
    """Train a draft on the target's distribution at every position, and a little on the text.

    The loss is a weighted sum of both distances and the text's cross-entropy. Zhou et al.
    (2023) compare such losses; their draft, too, is trained on text that the target wrote.
    """

    def __init__(self, gpt2, target, weights=DISTILLED):
        super().__init__(gpt2)
        self.target = target.requires_grad_(False)
        self.weights = weights

    def loss(self, x, y, first):
        if not torch.is_grad_enabled():  # validation: the text's cross-entropy alone
            return super().loss(x, y, first)
        log_p_draft = F.log_softmax(self.logits(x, first), -1)
        p_target = F.softmax(self.target.lm_head(hidden(self.target, x, first)).float(), -1)
        terms = {"text": F.nll_loss(log_p_draft.flatten(0, 1), y.flatten()),
                 **draft_distances(p_target, log_p_draft)}
        return sum(weight * terms[name] for name, weight in self.weights.items())


class Heads(nn.Module):
    """Hold Medusa heads on a frozen target: logits_k = (h + SiLU(h w_k + b_k)) a_k wte.T.

    The target itself predicts y, the next token; head k predicts the token k positions after y.
    The paper's W_2 is wte a_k.T (variants/medusa.py), so that a head learns n_embd x n_embd
    numbers instead of n_vocab x n_embd. a_k starts as the identity, so W_2 starts as the
    target's own unembedding, as in the paper.
    """

    def __init__(self, target, n_heads=3):
        super().__init__()
        n_embd = target.config.n_embd
        self.w = nn.Parameter(torch.zeros(n_heads, n_embd, n_embd))
        self.b = nn.Parameter(torch.zeros(n_heads, n_embd))
        self.a = nn.Parameter(torch.eye(n_embd).repeat(n_heads, 1, 1))
        self.target = target.requires_grad_(False)

    def logits(self, h):  # [B, T, n_embd] -> a list of [B, T, n_vocab], one per head
        logits_of_heads = []
        for w, b, a in zip(self.w, self.b, self.a):
            state = (h + F.silu(h @ w + b)) @ a
            logits_of_heads.append(self.target.lm_head(state).float())
        return logits_of_heads

    def loss(self, x, y, first):
        logits_of_heads = self.logits(hidden(self.target, x, first))
        losses = []
        for k, logits in enumerate(logits_of_heads, start=1):
            # Row i of head k predicts y[i + k]; the last k rows have no token to predict.
            losses.append(F.cross_entropy(logits[:, :-k].flatten(0, 1), y[:, k:].flatten()))
        return sum(losses) / len(losses)


class Markov(nn.Module):
    """Train a table for the trained heads: the previous guess's effect on each head's scores.

    The scores are logits_k + w1[previous guess] @ w2, of rank 64. The loss is DSpark's
    (DeepSeek, 2026). For guess k it is 0.1 times the cross-entropy, plus 0.9 sum |p_target -
    p_draft|; guess k has the weight exp(-k / 4). In training the previous guess is a token of
    the text, which the target wrote, as if the target had accepted the guess.
    """

    def __init__(self, heads, rank=64):
        super().__init__()
        n_vocab = heads.target.config.vocab_size
        self.w1 = nn.Parameter(torch.randn(n_vocab, rank) / rank**0.5)
        self.w2 = nn.Parameter(torch.zeros(rank, n_vocab))  # starts without an effect
        self.heads = heads.requires_grad_(False)

    def loss(self, x, y, first):
        h = hidden(self.heads.target, x, first)
        p_target = F.softmax(self.heads.target.lm_head(h).float(), -1)
        total = 0.0
        weights = 0.0
        for k, logits in enumerate(self.heads.logits(h), start=1):
            # Row i of head k predicts y[i + k]. The token before it is y[i + k - 1].
            predicted = y[:, k:]
            previous = y[:, k - 1 : -1]
            logits = logits[:, :-k] + (self.w1[previous] @ self.w2).float()
            from_text = F.cross_entropy(logits.flatten(0, 1), predicted.flatten())
            # Row j of the target predicts y[j], so rows k, k + 1, .. predict the same tokens.
            from_target = (p_target[:, k:] - F.softmax(logits, -1)).abs().sum(-1).mean()
            weight = math.exp(-k / 4)
            total += weight * (0.1 * from_text + 0.9 * from_target)
            weights += weight
        return total / weights
