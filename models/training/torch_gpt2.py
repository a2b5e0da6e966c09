"""GPT-2 in PyTorch, for training only: the formulas of gpt2.py, which runs the trained models.

Letters: B sequences of T tokens; n_vocab, n_ctx, n_embd, n_head, n_layer are GPT-2's.
Reference: Radford et al. (2019).
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-layer-norm transformer block: x + attention(ln_1(x)), then x + mlp(ln_2(x))."""

    def __init__(self, n_embd, n_head, n_layer):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(n_embd, 3 * n_embd),
                                   "c_proj": nn.Linear(n_embd, n_embd)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(n_embd, 4 * n_embd),
                                  "c_proj": nn.Linear(4 * n_embd, n_embd)})
        for linear in (*self.attn.values(), *self.mlp.values()):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
        for linear in (self.attn.c_proj, self.mlp.c_proj):  # the residual sums 2 n_layer of these
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * n_layer))

    def attention(self, x, past=None):  # [B, T, n_embd] -> [B, T, n_embd]
        """Attend to x and to the keys and values in `past`, a list that this call replaces."""
        B, T, n_embd = x.shape
        qkv = self.attn.c_attn(x).view(B, T, 3, self.n_head, n_embd // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # three times [B, n_head, T, d_head]
        if past is not None:
            past[:] = [torch.cat(pair, 2) for pair in zip(past, (k, v))] or [k, v]
            k, v = past
        n_seq = k.shape[2]
        # Written out: on a CPU the backward pass of F.scaled_dot_product_attention was far slower.
        mask = torch.full((T, n_seq), -1e9, dtype=q.dtype, device=q.device).triu(1 + n_seq - T)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        out = scores.softmax(-1).to(v.dtype) @ v  # [B, n_head, T, d_head]
        return self.attn.c_proj(out.transpose(1, 2).reshape(B, T, n_embd))

    def feed_forward(self, x):  # [B, T, n_embd] -> [B, T, n_embd]
        return self.mlp.c_proj(F.gelu(self.mlp.c_fc(x), approximate="tanh"))

    def forward(self, x, past=None):  # [B, T, n_embd] -> [B, T, n_embd]
        x = x + self.attention(self.ln_1(x), past)
        return x + self.feed_forward(self.ln_2(x))


class TorchGPT2(nn.Module):
    """GPT-2 with learned positions and the unembedding tied to wte."""

    def __init__(self, n_vocab, n_ctx, n_embd, n_head, n_layer):
        super().__init__()
        self.hparams = dict(n_vocab=n_vocab, n_ctx=n_ctx, n_embd=n_embd, n_head=n_head,
                            n_layer=n_layer)
        self.wte, self.wpe = nn.Embedding(n_vocab, n_embd), nn.Embedding(n_ctx, n_embd)
        self.blocks = nn.ModuleList(Block(n_embd, n_head, n_layer) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)

    def hidden(self, ids, first=0, pasts=None):  # [B, T] at positions first .. -> [B, T, n_embd]
        """Return the states after ln_f; `first` is a number, or one per row, [B, 1]."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device) + first)
        for block, past in zip(self.blocks, pasts or [None] * len(self.blocks)):
            x = block(x, past)
        return self.ln_f(x)

    def forward(self, ids, first=0):  # [B, T] -> [B, T, n_vocab]
        return F.linear(self.hidden(ids, first), self.wte.weight)

    @torch.no_grad()
    def write(self, ids, N, temperature, generator):  # [B, T] -> [B, T + N]
        """Continue every sequence by N ids, drawn at its temperature [B]; 0 is greedy."""
        T = ids.shape[1]
        pasts = [[] for _ in self.blocks]
        for n_past in [0, *range(T, T + N - 1)]:
            h = self.hidden(ids[:, n_past:], n_past, pasts)[:, -1]
            logits = F.linear(h, self.wte.weight)
            uniform = torch.rand(logits.shape, generator=generator, device=ids.device)
            uniform = uniform.clamp_(min=2**-25)  # of 0 the gumbel is -inf, and 0 * -inf NaN
            gumbel = -torch.log(-torch.log(uniform))  # argmax of logits + gumbel is a draw
            best = (logits + temperature[:, None] * gumbel).argmax(-1, keepdim=True)
            ids = torch.cat([ids, best], dim=1)
        return ids
