"""Train EAGLE's head: first on the target's states, then on its own (variants/eagle.py).

    h          [B, T, n_embd] states after ln_f: the target's (true), or predicted ones
    e          [B, T, n_embd] the embeddings of the tokens one position later
    step       0: all states are true; s: the last s of them are the head's own predictions
    past       the keys and values of every step so far

Training has two parts. The first loss is from Li et al. (2024a), EAGLE-1: the distance of the
states, and a tenth of the cross-entropy to the target's distribution. It falls fast, but soon
stops falling. The second loss is the draft's (models/training/tasks.py), with a little of the
states' distance instead of the text's cross-entropy. It scores the guesses; the states are only
a means, as in Li et al. (2025), EAGLE-3. The steps after the first are their training-time
test: the head learns on the inputs that it has when drafting.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.pytorch_utils import Conv1D

from models.training.tasks import distances, hidden

LOSSES = {"states": dict(states=1, KL=0.1),  # by stage
          "eagle": dict(states=0.1, KL=0.3, TV=1.2)}


def later(x, n):  # [.., T, d_head] -> [.., T, d_head]
    """Return every row n positions later; the first n are 0."""
    return F.pad(x[..., : x.shape[-2] - n, :], (0, 0, n, 0))


def attend(block, x, past):  # [B, T, n_embd] -> [B, T, n_embd]
    """Attend from row i of step s to rows <= i - s of step 0, and i - s + r of step r > 0."""
    B, T, n_embd = x.shape
    qkv = block.attn.c_attn(x)  # [B, T, 3 n_embd]
    qkv = qkv.view(B, T, 3, block.attn.num_heads, -1)  # [B, T, 3, n_head, d_head]
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x [B, n_head, T, d_head]
    past.append((k, v))
    step = len(past) - 1
    k_true, v_true = past[0]
    # row i attends to one row of each later step r, which `later` moves to row i
    own = [(later(k, step - r), later(v, step - r)) for r, (k, v) in enumerate(past) if r]
    mask = torch.full((T, T), -1e9, dtype=q.dtype, device=q.device).triu(1 - step)
    scores = [q @ k_true.transpose(-1, -2) + mask,  # [B, n_head, T, T]
              *((q * k).sum(-1, keepdim=True) for k, _ in own)]  # each [B, n_head, T, 1]
    weights = (torch.cat(scores, -1) / math.sqrt(q.shape[-1])).softmax(-1).to(v.dtype)
    out = weights[..., :T] @ v_true  # [B, n_head, T, d_head]
    for r, (_, v) in enumerate(own):
        out = out + weights[..., T + r, None] * v
    return block.attn.c_proj(out.transpose(1, 2).reshape(B, T, n_embd))


class Eagle(nn.Module):
    """Apply one block to pairs of a state and the next token; the target is frozen."""

    def __init__(self, target, weights, n_steps=2, decay=0.8):
        super().__init__()
        n_embd = target.config.n_embd
        self.ln_token, self.ln_state, self.ln_f = (nn.LayerNorm(n_embd) for _ in range(3))
        self.fc = Conv1D(n_embd, 2 * n_embd)
        self.fc.weight.data[n_embd:] = torch.eye(n_embd)  # starts near its input state
        self.h = nn.ModuleList([GPT2Block(target.config)])  # as GPT-2 names its blocks
        self.ln_f.load_state_dict(target.transformer.ln_f.state_dict())
        self.target = target.requires_grad_(False)
        self.weights = weights
        self.n_steps = n_steps
        self.decay = decay

    def step(self, h, e, past):  # -> [B, T, n_embd]
        """Return the states predicted for the positions of the tokens."""
        (block,) = self.h
        x = self.fc(torch.cat([self.ln_token(e), self.ln_state(h)], -1))
        x = x + attend(block, block.ln_1(x), past)
        return self.ln_f(x + block.mlp(block.ln_2(x)))

    def embeddings(self, x, first):  # [B, T] -> [B, T - 1, n_embd]
        """Return the target's inputs for the tokens after the first: wte and wpe."""
        positions = torch.arange(1, x.shape[1], device=x.device) + first
        return self.target.transformer.wte(x[:, 1:]) + self.target.transformer.wpe(positions)

    def predicted(self, h, e, n_steps=3):  # -> n_steps x [B, T, n_embd]
        """Return the predictions of every step; ignore the first s rows of step s.

        From step 1 on, a row's state is the prediction of the row before it in the last step.
        """
        found = []
        past = []
        for _ in range(n_steps):
            found.append(self.step(later(found[-1], 1) if found else h, e, past))
        return found

    def loss(self, x, y, first):
        """Return the mean loss of the steps; each has `decay` times the weight of the last."""
        h = hidden(self.target, x, first)
        unembed = self.target.lm_head
        p_target = F.softmax(unembed(h[:, 1:]).float(), -1)
        total = 0.0
        predicted = self.predicted(h[:, :-1], self.embeddings(x, first), self.n_steps)
        for s, state in enumerate(predicted):
            log_p = F.log_softmax(unembed(state[:, s:]).float(), -1)
            parts = {"states": F.smooth_l1_loss(state[:, s:].float(), h[:, 1 + s :].float()),
                     **distances(p_target[:, s:], log_p)}
            step = sum(weight * parts[name] for name, weight in self.weights.items())
            total = total + self.decay**s * step
        return total / sum(self.decay**s for s in range(self.n_steps))
