"""Train EAGLE's head on the texts and states that write.py has stored (variants/eagle.py).

    ids        [B, T]              texts of a batch, padded at the end
    h          [B, T - 1, n_embd]  states after ln_f: the target's, or those that the head
                                   predicted in the step before
    e          [B, T - 2, n_embd]  embeddings of tokens 1, 2, ..
    row i      state i and token i + 1 give state i + 1, which predicts token i + 2
    is_scored  [B, T - 2]          whether row i predicts a token of the answer
    past       [(keys, values)]    of every step so far
    keep       [N_KEPT]            tokens that the head can guess, the most frequent ones: Zhao
                                   et al. (2025), "FR-Spec"

models/training/eagle.py explains the steps, in which the head learns from its own predictions.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from lib.checkpoints.weights import flatten
from models.training import export, trainer
from models.training.eagle import attend, loss_of_step, mean_of_steps, predictions

N_KEPT = 8192
N_STEPS = 3  # the first on the target's states, the others on the head's own predictions
BATCH = 4096  # tokens of a step, with the padding
SAVE_SECONDS = 600
RIDGE = 0.003
# Weights of the loss before and after FIRST of the training: first mostly KL, which teaches the
# distribution, then mostly TV, which is the probability of a rejection.
FIRST = 0.2
LOSSES = (dict(states=0.1, KL=1, TV=0.3), dict(states=0.1, KL=0.3, TV=1.2))


def load_texts(paths):
    """Return the texts of some shards: dicts of temperature, n_prompt, ids and states h."""
    texts = []
    for path in paths:
        with np.load(path) as arrays:
            starts = arrays["lengths"].cumsum()[:-1]  # of all texts but the first
            all_ids = np.split(arrays["ids"].astype(np.int64), starts)
            states = np.split(arrays["states"], starts)
            for temperature, n_prompt, ids, h in zip(
                    arrays["temperatures"], arrays["n_prompts"], all_ids, states):
                texts.append(dict(temperature=float(temperature), n_prompt=int(n_prompt),
                                  ids=ids, h=h))
    return texts


def most_frequent(texts, n_vocab):  # -> [N_KEPT], ascending
    """Return the tokens that the model wrote most often; of equals the lower ids."""
    counts = np.zeros(n_vocab)
    for text in texts:
        counts += np.bincount(text["ids"][text["n_prompt"]:], minlength=n_vocab)
    return np.sort(np.argsort(-counts, kind="stable")[:N_KEPT])


def batches(texts, n_tokens, rng):
    """Return lists of texts of similar length, each of at most n_tokens with padding."""
    # sorted keeps the random order of texts that are about equally long.
    by_length = sorted(rng.permutation(len(texts)), key=lambda i: len(texts[i]["ids"]) // 16)
    found = [[]]
    for text in (texts[i] for i in by_length):
        longest = max(len(other["ids"]) for other in [*found[-1], text])
        if longest * (len(found[-1]) + 1) > n_tokens:
            found.append([])
        found[-1].append(text)
    return [found[i] for i in rng.permutation(len(found))]


def padded(texts):
    """Return ids, h and is_scored of a batch."""
    T = max(len(text["ids"]) for text in texts)
    ids = torch.zeros(len(texts), T, dtype=torch.int64)
    h = torch.zeros(len(texts), T - 1, texts[0]["h"].shape[1])
    is_scored = torch.zeros(len(texts), T - 2, dtype=torch.bool)
    for row, text in enumerate(texts):
        n = len(text["ids"])
        ids[row, :n] = torch.from_numpy(text["ids"])
        h[row, : n - 1] = torch.from_numpy(text["h"][:-1])
        # Row i predicts token i + 2. The answer's tokens are n_prompt .. n - 1.
        is_scored[row, text["n_prompt"] - 2 : n - 2] = True
    return ids, h, is_scored


def rotated(x, rotations):  # [.., T, d_head], [T, d_head / 2] -> [.., T, d_head]
    """Turn each pair of neighbouring numbers, as one complex number, by its angle."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotations).flatten(-2)


class Head(nn.Module):
    """Hold the head: one block of the target's kind on pairs of a state and the next token."""

    def __init__(self, model, keep):
        super().__init__()
        params = model.params
        n_embd = params["wte"].shape[1]
        self.n_head, self.n_kv = model.n_head, params["n_kv"]
        self.eps = params["ln_f"]["eps"]
        self.wte = torch.from_numpy(params["wte"])
        self.keep = torch.from_numpy(keep)
        self.unembed = self.wte[self.keep]
        self.frequencies = torch.from_numpy(model.frequencies.astype(np.float32))
        self.target_gain = torch.from_numpy(params["ln_f"]["g"])
        # The block starts as the target's last one.
        weights = {f"h0/{name}": np.ascontiguousarray(weight)
                   for name, weight in flatten(params["blocks"][-1])
                   if isinstance(weight, np.ndarray)}
        self.w = nn.ParameterDict({name: torch.tensor(weight)
                                   for name, weight in weights.items()})
        self.w["ln_token/g"] = torch.ones(n_embd)
        self.w["ln_state/g"] = torch.ones(n_embd)
        self.w["fc/w"] = torch.zeros(2 * n_embd, n_embd)
        self.w["ln_f/g"] = self.target_gain.clone()

    def norm(self, x, name):
        return F.rms_norm(x, x.shape[-1:], self.w[f"{name}/g"], self.eps)

    def qkv(self, x):  # [B, T, n_embd] -> 3 x [B, n_head, T, d_head]
        """Return queries, keys and values, each key and value once per head of its group."""
        B, T, _ = x.shape
        heads = (x @ self.w["h0/attn/c_attn/w"]).view(B, T, self.n_head + 2 * self.n_kv, -1)
        q, k, v = heads.transpose(1, 2).split([self.n_head, self.n_kv, self.n_kv], dim=1)
        group = self.n_head // self.n_kv
        angles = torch.arange(T)[:, None] * self.frequencies
        rotations = torch.polar(torch.ones_like(angles), angles)  # [T, d_head / 2]
        q, k = rotated(q, rotations), rotated(k, rotations)
        return q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def step(self, h, e, past):  # -> [B, T, n_embd]
        """Return the states predicted at tokens of embeddings e; append to `past`."""
        x = self.pairs(h, e) @ self.w["fc/w"]
        heads = attend(*self.qkv(self.norm(x, "h0/ln_1")), past)
        x = x + heads.transpose(1, 2).flatten(2) @ self.w["h0/attn/c_proj/w"]
        gate, inner = (self.norm(x, "h0/ln_2") @ self.w["h0/mlp/c_fc/w"]).chunk(2, dim=-1)
        x = x + (F.silu(gate) * inner) @ self.w["h0/mlp/c_proj/w"]
        return self.norm(x, "ln_f")

    def pairs(self, h, e):  # -> [B, T, 2 n_embd]
        return torch.cat([self.norm(e, "ln_token"), self.norm(h, "ln_state")], dim=-1)

    def predicted(self, ids, h, n_steps):  # -> n_steps x [B, T - 2, n_embd]
        """Return the predictions of every step; row i is the state at token i + 1."""
        return predictions(self.step, h[:, :-1], self.wte[ids[:, 1:-1]], n_steps)

    def logits(self, states):  # [.., n_embd] -> [.., N_KEPT]
        return states @ self.unembed.T

    def loss(self, batch, n_steps, weights):
        """Return the mean loss of the steps over the answers, among the kept tokens."""
        ids, h, is_scored = batch
        aims = h[:, 1:][is_scored]  # [n, n_embd]
        p_target = F.softmax(self.logits(aims), dim=-1)
        return mean_of_steps([
            loss_of_step(states[is_scored], aims, p_target, self.logits, weights)
            for states in self.predicted(ids, h, n_steps)])


@torch.no_grad()
def start_by_ridge(head, texts):
    """Set fc to the ridge regression of the next state; the block adds nothing yet."""
    h = torch.from_numpy(np.concatenate([text["h"] for text in texts[:64]]).astype(np.float32))
    # With this gain norm(h) is about h / target_gain, as the aim below.
    head.w["ln_state/g"].copy_(h.square().mean(-1).sqrt().mean() / head.target_gain)
    n = len(head.w["fc/w"])
    xx, xy, n_rows = torch.zeros(n, n), torch.zeros(n, n // 2), 0
    for text in texts:
        h = torch.from_numpy(text["h"][:-1].astype(np.float32))
        x = head.pairs(h[:-1], head.wte[text["ids"][1:-1]])
        xx += x.T @ x
        xy += x.T @ (h[1:] / head.target_gain)  # the state before the gain of the last norm
        n_rows += len(x)
    head.w["fc/w"].copy_(torch.linalg.solve(xx / n_rows + RIDGE * torch.eye(n), xy / n_rows))
    for name in ("h0/attn/c_proj/w", "h0/mlp/c_proj/w"):
        head.w[name].zero_()


# ---- measuring

@torch.no_grad()
def measure(head, texts, n_steps=5, K=3):
    """Return the head's figures on held-out texts.

    `agree`: at temperature 0, how often each guess of a chain is the text's token, if the
    text's tokens stand in for the guesses before it. `overlap`: the mean sum of min(p_draft,
    p_target) of each guess of a chain along drawn texts, at their temperature.
    `tokens_per_pass`: of a chain of K guesses, which is walked along the greedy texts.
    """
    agree, overlap, walks = [], [], []
    for text in texts:
        ids, h, is_scored = padded([text])
        guesses = torch.stack([  # [n_steps, n, N_KEPT]
            head.logits(states[is_scored]) for states in head.predicted(ids, h, n_steps)])
        if text["temperature"] == 0:
            written = ids[0, 2:][is_scored[0]]
            agree.append(head.keep[guesses.argmax(-1)] == written)
            walks.append(walked(agree[-1].numpy(), K))
        else:
            T = text["temperature"]
            p = F.softmax(h[:, 1:][is_scored] @ head.wte.T / T, dim=-1)[:, head.keep]
            overlap.append(torch.minimum(p, F.softmax(guesses / T, dim=-1)).sum(-1))
    figures = {name: [round(x, 3) for x in torch.cat(rows, dim=1).float().mean(dim=1).tolist()]
               for name, rows in (("agree", agree), ("overlap", overlap)) if rows}
    n_tokens, n_passes = np.sum(walks, axis=0)
    return figures | {"tokens_per_pass": round(n_tokens / n_passes, 3)}


def walked(hits, K):
    """Return tokens and passes of a greedy text; hits[s, i] is whether guess s is token i."""
    n = hits.shape[1]
    i, n_passes = 1, 0  # token 0 comes from the prompt's pass
    while i < n:
        n_accepted = 0
        while n_accepted < K and i + n_accepted < n and hits[n_accepted, i + n_accepted]:
            n_accepted += 1
        i += n_accepted + 1
        n_passes += 1
    return min(i, n) - 1, n_passes


# ---- learning

def new_head(model, texts, seed=1):
    """Return a head that ridge regression has started."""
    torch.manual_seed(seed)
    head = Head(model, most_frequent(texts, model.n_vocab))
    start_by_ridge(head, texts)
    return head


def train_head(head, texts, held_out, path, n_read, seed=1):
    """Train on about n_read tokens, in as many epochs as that takes; resume from `path`."""
    n_tokens = sum(len(text["ids"]) for text in texts)
    epochs = range(-(-int(n_read) // n_tokens))  # rounded up
    groups = [group for epoch in epochs
              for group in batches(texts, BATCH, np.random.default_rng([seed, epoch]))]
    share = n_read / (n_tokens * len(epochs))  # of all epochs; the last one is cut
    n_steps = int(share * len(groups))
    # The ridge regression has set fc, so its rate is low.
    optimizers = trainer.make_optimizers(head, lr=5e-4, muon_lr=0.007, weight_decay=0.02)
    trainer.run_steps(
        head, optimizers, n_steps, path, SAVE_SECONDS,
        lambda step: learn_batch(head, padded(groups[step]), optimizers, step / n_steps),
        lambda: measure(head, held_out, N_STEPS))


def learn_batch(head, batch, optimizers, progress):
    """Take one step of every optimizer; return the loss."""
    n_steps = min(N_STEPS, 1 + int(4 * progress))  # at first more would cost time and not help
    loss = head.loss(batch, n_steps, LOSSES[progress >= FIRST])
    trainer.take_step(loss, optimizers, trainer.learning_rate(progress, decay_from=0.4))
    return loss.item()


def export_head(head, folder):
    """Write heads.safetensors, as variants/shared/eagle_head.py reads it, in float16."""
    weights = export.to_arrays({f"eagle/{name}": w for name, w in head.w.items()})
    weights["eagle/keep"] = head.keep.numpy().astype(np.int32)
    export.export_heads(head.target_gain, weights, folder)
