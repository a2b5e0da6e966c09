"""GPT-2 in PyTorch, for training only: the formulas of gpt2.py, which runs what comes out of here.

Letters: B sequences of T tokens; n_vocab, n_ctx, n_embd, n_head, n_layer are GPT-2's.
Reference: Radford et al. (2019); layout of the variables: github.com/openai/gpt-2, src/model.py.
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
        self.c_attn, self.attn_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.c_fc, self.mlp_proj = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)
        for linear in (self.c_attn, self.c_fc, self.attn_proj, self.mlp_proj):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
        for linear in (self.attn_proj, self.mlp_proj):  # the residual sums 2 n_layer of these
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * n_layer))

    def attention(self, x):  # [B, T, n_embd] -> [B, T, n_embd]
        B, T, n_embd = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.n_head, n_embd // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # three times [B, n_head, T, d_head]
        # Spelled out: on a CPU the backward pass of F.scaled_dot_product_attention was far slower.
        mask = torch.full((T, T), -1e9, dtype=q.dtype, device=q.device).triu(1)  # row i sees j <= i
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        out = scores.softmax(-1).to(v.dtype) @ v  # [B, n_head, T, d_head]
        return self.attn_proj(out.transpose(1, 2).reshape(B, T, n_embd))

    def forward(self, x):  # [B, T, n_embd] -> [B, T, n_embd]
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


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

    def hidden(self, ids, first=0):  # [B, T] at positions first, first + 1, ... -> [B, T, n_embd]
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device) + first)
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x)

    def forward(self, ids, first=0):  # [B, T] -> [B, T, n_vocab]
        return F.linear(self.hidden(ids, first), self.wte.weight)
