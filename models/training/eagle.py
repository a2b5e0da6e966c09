"""Train EAGLE's head: first on the target's states, then on its own (variants/eagle.py).

    h          [B, T, n_embd] states after ln_f: the target's (true), or predicted states
    e          [B, T, n_embd] the embeddings of the tokens one position later
    step s     a pass of the head over all rows. Row i attends to the true states 0 .. i - s,
               and to s states after them, which steps 0 .. s - 1 predicted. In step 0 all are
               true
    past       [(keys, values)] of every step so far

Training has two parts. The first loss is from Li et al. (2024a), EAGLE-1: the distance of the
states, and a tenth of the cross-entropy to the target's distribution. This loss falls fast, but
soon stops falling. The second loss is the draft's (models/training/tasks.py), with a little of
the states' distance instead of the text's cross-entropy. The second loss scores the guesses;
the states are only a means, as in Li et al. (2025), EAGLE-3. Steps 1, 2, .. are the
training-time test of EAGLE-3: when the head drafts, its inputs are its own predictions, so the
head is trained on predictions too.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.pytorch_utils import Conv1D

from models.training.tasks import draft_distances, hidden

# {stage: weights of the terms of its loss}
LOSSES = {"states": dict(states=1, KL=0.1),
          "eagle": dict(states=0.1, KL=0.3, TV=1.2)}


def later(x, n):  # [.., T, d_head] -> [.., T, d_head]
    """Return every row n positions later; the first n rows are 0, the last n are dropped."""
    n_kept = x.shape[-2] - n
    n_left_and_right = (0, 0)  # of the last axis, which is not padded
    n_above_and_below = (n, 0)  # of the axis T
    return F.pad(x[..., :n_kept, :], n_left_and_right + n_above_and_below)


def attend(q, k, v, past):  # 3 x [B, n_head, T, d_head] -> [B, n_head, T, d_head]
    """Attend from row i of step s to rows 0 .. i - s of step 0 and a row of each later step.

    The row of step r > 0 is i - s + r. For example, row 7 of step 2 attends to the rows 0 .. 5
    of step 0, whose states are true, to row 6 of step 1 and to row 7 of step 2. The keys and
    values of this step are appended to `past`.
    """
    T = q.shape[2]
    past.append((k, v))
    s = len(past) - 1  # this step

    # Row i - s + r of step r is s - r rows above row i. `later` moves it to row i.
    k_true, v_true = past[0]
    predicted = []
    for r in range(1, s + 1):
        k_r, v_r = past[r]
        predicted.append((later(k_r, s - r), later(v_r, s - r)))

    # -1e9 in row i of the columns after i - s, so that these columns get weight 0. triu(d)
    # keeps the columns from i + d on, so d is 1 - s.
    mask = torch.full((T, T), -1e9, dtype=q.dtype, device=q.device).triu(1 - s)
    scores = [q @ k_true.transpose(-1, -2) + mask]  # [B, n_head, T, T]
    for k_r, _ in predicted:
        # Each row of q times the one row of step r: [B, n_head, T, 1].
        scores.append((q * k_r).sum(-1, keepdim=True))
    scaled = torch.cat(scores, -1) / math.sqrt(q.shape[-1])  # [B, n_head, T, T + s]
    weights = scaled.softmax(-1).to(v.dtype)

    out = weights[..., :T] @ v_true  # [B, n_head, T, d_head]
    for r, (_, v_r) in enumerate(predicted, start=1):
        column = T + r - 1  # the weights of step r follow the T weights of step 0
        out = out + weights[..., column, None] * v_r
    return out


def predictions(step, h, e, n_steps):  # -> n_steps x [B, T, n_embd]
    """Return the states that each step predicts. The first s rows of step s have no meaning.

    These rows have fewer than s rows before them, so their inputs are the zeros of `later`.
    """
    states = []
    past: list = []
    for _ in range(n_steps):
        states.append(step(h, e, past))
        # The next step reads predictions: row i gets the state that row i - 1 predicted.
        h = later(states[-1], 1)
    return states


def loss_of_step(states, aims, p_target, unembed, weights):
    """Return the weighted sum of a step's distances: of the states, and of the guesses."""
    log_p_draft = F.log_softmax(unembed(states).float(), -1)
    terms = {"states": F.smooth_l1_loss(states.float(), aims.float()),
             **draft_distances(p_target, log_p_draft)}
    return sum(weight * terms[name] for name, weight in weights.items())


def mean_of_steps(losses, decay=0.8):
    """Return the mean of the losses; step s has the weight decay**s."""
    weights = [decay**s for s in range(len(losses))]
    return sum(weight * loss for weight, loss in zip(weights, losses)) / sum(weights)


def gpt2_attention(attn, x, past):  # [B, T, n_embd] -> [B, T, n_embd]
    """Apply the attention of a GPT-2's block, an `attn` of transformers, as `attend` does."""
    B, T, n_embd = x.shape
    qkv = attn.c_attn(x)  # [B, T, 3 n_embd]
    qkv = qkv.view(B, T, 3, attn.num_heads, -1)  # [B, T, 3, n_head, d_head]
    heads = attend(*qkv.permute(2, 0, 3, 1, 4), past)  # q, k, v: 3 x [B, n_head, T, d_head]
    return attn.c_proj(heads.transpose(1, 2).reshape(B, T, n_embd))  # the heads side by side


class Eagle(nn.Module):
    """Apply one block to pairs of a state and the next token; the target is frozen."""

    def __init__(self, target, weights, n_steps=2):
        super().__init__()
        n_embd = target.config.n_embd
        self.ln_token = nn.LayerNorm(n_embd)
        self.ln_state = nn.LayerNorm(n_embd)
        self.ln_f = nn.LayerNorm(n_embd)
        # The input of fc is a token's embedding and then a state. At the start the output is
        # near the state.
        self.fc = Conv1D(n_embd, 2 * n_embd)
        self.fc.weight.data[n_embd:] = torch.eye(n_embd)
        self.h = nn.ModuleList([GPT2Block(target.config)])  # as GPT-2 names its blocks
        self.ln_f.load_state_dict(target.transformer.ln_f.state_dict())
        self.target = target.requires_grad_(False)
        self.weights = weights
        self.n_steps = n_steps

    def step(self, h, e, past):  # -> [B, T, n_embd]
        """Return the states predicted at the tokens whose embeddings are e."""
        (block,) = self.h
        x = self.fc(torch.cat([self.ln_token(e), self.ln_state(h)], -1))
        x = x + gpt2_attention(block.attn, block.ln_1(x), past)
        return self.ln_f(x + block.mlp(block.ln_2(x)))

    def embeddings(self, x, first):  # [B, T] -> [B, T - 1, n_embd]
        """Return wte + wpe, the target's inputs, of all tokens but the first."""
        positions = torch.arange(1, x.shape[1], device=x.device) + first  # [B, T - 1]
        return self.target.transformer.wte(x[:, 1:]) + self.target.transformer.wpe(positions)

    def loss(self, x, y, first):
        """Return the mean loss of the steps."""
        h = hidden(self.target, x, first)  # [B, T, n_embd]
        unembed = self.target.lm_head
        # Row i predicts state i + 1. So the inputs are all states but the last, and the aims
        # are all states but the first.
        h_next = h[:, 1:]
        p_target = F.softmax(unembed(h_next).float(), -1)
        predicted = predictions(self.step, h[:, :-1], self.embeddings(x, first), self.n_steps)
        # [:, s:] leaves out the rows that have no meaning.
        return mean_of_steps([
            loss_of_step(states[:, s:], h_next[:, s:], p_target[:, s:], unembed, self.weights)
            for s, states in enumerate(predicted)])
