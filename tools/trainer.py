"""One training loop for the target, the draft and the heads: resumable, seeded, and done in time.

On a CPU it runs as several processes of one thread each that average their gradients once a step: other work on the machine
then costs its share of time only, while threads that meet in every matrix product wait for the slowest of them each time.

Letters: a `task` is an nn.Module with `loss(x, y, first)`, x and y [B, T] (y is x one token later), `first` the position of column 0.
"""
import functools
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist


@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """A shuffled order of the windows of one pass over the text, and where its first window begins."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def batch(ids, T, first_window, B, seed):  # -> x, y [B, T]
    """Windows number first_window .. first_window + B - 1 of an endless shuffled reading of ids."""
    n_windows = (len(ids) - 1) // T - 1
    rows = []
    for i in range(first_window, first_window + B):
        order, shift = epoch_order(n_windows, i // n_windows, seed)
        start = int((order[i % n_windows] + shift) * T)
        rows.append(ids[start : start + T + 1])
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


def learning_rate(progress, decay_from, warmup=0.02):
    """Fraction of the peak rate: a short warm-up, a plateau, then a line to zero at progress 1."""
    decay = (1 - progress) / (1 - decay_from) if progress > decay_from else 1.0
    return max(0.0, min(1.0, (progress + 1e-4) / warmup, decay))


def make_optimizers(task, lr, muon_lr):
    """Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for everything else."""
    named = [(n, p) for n, p in task.named_parameters() if p.requires_grad]
    hidden = [p for n, p in named if "blocks." in n and p.ndim == 2]
    other = [p for n, p in named if not ("blocks." in n and p.ndim == 2)]
    optimizers = [torch.optim.AdamW(other, lr=lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)]
    if hidden:
        optimizers.append(torch.optim.Muon(hidden, lr=muon_lr, weight_decay=0.05))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def average(world, tensors, *numbers):
    """Average the tensors (in place) and the numbers over all processes; returns the numbers."""
    flat = torch.cat([t.reshape(-1) for t in tensors] + [torch.tensor(numbers, device=tensors[0].device)])
    if world > 1:
        dist.all_reduce(flat)
        flat /= world
    for t, part in zip(tensors, flat.split([t.numel() for t in tensors] + [len(numbers)])):
        t.copy_(part.view_as(t))
    return flat[len(flat) - len(numbers) :].tolist()


def autocast(device):
    return torch.autocast(device, torch.bfloat16)


@torch.no_grad()
def validate(task, ids, T, device, rank=0, world=1, n_windows=None, B=4):
    """Mean loss over consecutive windows of ids, each process taking its share of them."""
    n_windows = min(n_windows or len(ids), (len(ids) - 1) // T)
    total, count = 0.0, 0
    for i in range(rank * B, n_windows, world * B):
        rows = [ids[j * T : j * T + T + 1] for j in range(i, min(i + B, n_windows))]
        rows = torch.from_numpy(np.stack(rows).astype(np.int64)).to(device)
        with autocast(device):
            loss = task.loss(rows[:, :-1], rows[:, 1:], 0)
        total, count = total + loss.item() * len(rows), count + len(rows)
    total, count = average(world, [torch.zeros(1, device=device)], total, float(count))
    return total / count


def save(path, state):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)  # a kill while writing leaves the former file whole


class Log:
    """Lines of JSON beside the checkpoint; process 0 writes them, and prints them too."""

    def __init__(self, path, rank):
        self.path, self.rank = path, rank

    def __call__(self, **entry):
        if self.rank == 0:
            with open(self.path, "a") as f:
                f.write(json.dumps(entry) + "\n")
            print(" ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in entry.items()),
                  flush=True)


def train(task, train_ids, valid_ids, plan, path, rank=0, world=1, device="cpu"):
    """Train `task` until its planned tokens or minutes are used up, whichever comes first.

    Parameters
    ----------
    task : nn.Module with loss(x, y, first)
    train_ids, valid_ids : arrays of token ids
    plan : dict with tokens, minutes, T (window), T_last (window of the last part), batch (tokens a step),
        lr, muon_lr, seed, log_seconds, save_seconds
    path : checkpoint file; training goes on from it when it is there
    rank, world : this process and how many there are
    """
    n_ctx, log = plan["T_last"], Log(path + ".log", rank)
    optimizers = make_optimizers(task, plan["lr"], plan["muon_lr"])
    params = [p for o in optimizers for g in o.param_groups for p in g["params"]]
    step, tokens, elapsed = 0, 0, 0.0
    if os.path.exists(path):
        state = torch.load(path, map_location=device)
        step, tokens, elapsed = state["step"], state["tokens"], state["elapsed"]
        task.load_state_dict(state["task"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        log(resumed_at_step=step)
    loss_fn = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
    clock, logged, saved, losses, compiled_for = time.time() - elapsed, elapsed, elapsed, [], None
    while (progress := max(tokens / plan["tokens"], elapsed / 60 / plan["minutes"])) < 1:
        T = plan["T"] if progress < 1 - plan["long_part"] else plan["T_last"]
        B = max(1, plan["batch"] // T // world)
        # Short windows are cheap; a random place for them trains every row of wpe.
        first = T * int(np.random.default_rng([plan["seed"], step]).integers(n_ctx // T))
        x, y = batch(train_ids, T, tokens // T + rank * B, B, plan["seed"])
        began = time.time()
        with autocast(device):
            loss = loss_fn(x.to(device), y.to(device), torch.tensor(first, device=device))
        loss.backward()
        if T != compiled_for:  # the planned minutes are for training, not for torch.compile
            clock, compiled_for = clock + time.time() - began, T
        loss, elapsed = average(world, [p.grad for p in params], loss.item(), time.time() - clock)
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * learning_rate(progress, plan["decay_from"])
            optimizer.step()
            optimizer.zero_grad()
        step, tokens, losses = step + 1, tokens + B * T * world, losses + [loss]
        if elapsed - logged >= plan["log_seconds"] or step == 1:
            log(step=step, tokens=tokens, seconds=elapsed, progress=progress, T=T, train_loss=float(np.mean(losses)))
            logged, losses = elapsed, []
        if elapsed - saved >= plan["save_seconds"]:
            valid = validate(task, valid_ids, T, device, rank, world, n_windows=16384 // T)
            log(step=step, tokens=tokens, seconds=elapsed, valid_slice=valid)
            if rank == 0:
                save(path, checkpoint(task, optimizers, step, tokens, elapsed))
            saved = elapsed
    found = {}
    for split, ids in (("valid", valid_ids), ("train", train_ids[: len(valid_ids)])):
        found[split + "_loss"] = validate(task, ids, n_ctx, device, rank, world)
    log(step=step, tokens=tokens, seconds=elapsed, **found)
    if rank == 0:
        save(path, checkpoint(task, optimizers, step, tokens, elapsed, done=True, **found))


def checkpoint(task, optimizers, step, tokens, elapsed, **more):
    return dict(task=task.state_dict(), optimizers=[o.state_dict() for o in optimizers],
                step=step, tokens=tokens, elapsed=elapsed, **more)
