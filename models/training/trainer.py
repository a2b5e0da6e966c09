"""Train the target, the draft and the heads with one loop: resumable, seeded, of set length.

    task      an nn.Module with `loss(x, y, first)`
    x, y      [B, T] ids, y one token later; `first` is the position of column 0, [B, 1]
    plan      steps, batch (tokens per step), lr, muon_lr, decay_from, seed, save_seconds,
              compile; T, T_last, long_part: windows have T ids, and T_last in the last
              long_part of the run; aligned: they begin at multiples of T ids, as the
              target's written rows do
    progress  0 .. 1, the fraction of the steps
"""
import functools
import json
import math
import time

import numpy as np
import torch

from lib.backend.arrays import in_one_line

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """Return the order of the windows in one pass over the text, and a shift in 0 .. 1."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def batch(ids, plan, T, step):  # -> x, y [B, T], first [B, 1]
    """Return the windows of a step; the windows of ids repeat for ever, shuffled.

    Short windows begin at different positions, so that every row of wpe is trained.
    """
    n_windows = (len(ids) - 1) // T - 1
    B = plan["batch"] // T
    rows, first = [], []
    for i in range(step * B, step * B + B):
        order, shift = epoch_order(n_windows, i // n_windows, plan["seed"])
        window = int(order[i % n_windows])
        start = int((window + (0 if plan["aligned"] else shift)) * T)
        rows.append(ids[start : start + T + 1])
        first.append(T * (window % (plan["T_last"] // T)))
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:], torch.tensor(first)[:, None]  # y is x one token later


def learning_rate(progress, decay_from, warmup=0.02):
    """Return the fraction of the peak rate: short warm-up, plateau, linear decay to 0."""
    decay = (1 - progress) / (1 - decay_from) if progress > decay_from else 1.0
    return min(1.0, (progress + 1e-4) / warmup, decay)


def make_optimizers(task, plan):
    """Return AdamW, and Muon (Jordan et al. 2024) for the blocks' matrices.

    Subtle: Muon takes a matrix as [n_out, n_in] and multiplies its rate by sqrt(n_out / n_in)
    if that is above 1. GPT-2's matrices are [n_in, n_out]; the factor below corrects for that.
    """
    matrices, other = [], []
    for name, p in task.named_parameters():
        if p.requires_grad:
            (matrices if "h." in name and p.ndim == 2 else other).append(p)
    optimizers = [torch.optim.AdamW(other, lr=plan["lr"], betas=(0.9, 0.95), weight_decay=0.0,
                                    fused=True)]
    if matrices:
        factors = [math.sqrt(p.shape[1] / p.shape[0]) for p in matrices]
        optimizers.append(torch.optim.Muon([
            dict(params=[p], lr=plan["muon_lr"] * factor, weight_decay=0.05 / factor)
            for p, factor in zip(matrices, factors)]))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def train(task, plan, path, train_ids, valid_ids):
    """Train a task until its steps are done; resume from the checkpoint `path` if it exists."""
    task.to(DEVICE)
    loss = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
    optimizers = make_optimizers(task, plan)
    step = 0
    losses = []
    saved = time.perf_counter()
    if path.exists():
        step = resume(path, task, optimizers)
        log(path, resumed_at_step=step)
    while step < plan["steps"]:
        losses.append(learn(loss, optimizers, train_ids, plan, step))
        step += 1
        if time.perf_counter() - saved >= plan["save_seconds"] or step == 1:
            log(path, step=step, train_loss=float(np.mean(losses)))
            save(path, task, optimizers, step)
            losses = []
            saved = time.perf_counter()
    log(path, step=step, valid_loss=validate(task, valid_ids, plan["T_last"]))
    save(path, task, optimizers, step)


def learn(loss_of, optimizers, ids, plan, step):
    """Take one step of every optimizer; return the loss."""
    progress = step / plan["steps"]
    T = plan["T"] if progress < 1 - plan["long_part"] else plan["T_last"]
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = loss_of(*(part.to(DEVICE) for part in batch(ids, plan, T, step)))
    loss.backward()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], 1.0)
    for group in groups:
        group["lr"] = group["peak"] * learning_rate(progress, plan["decay_from"])
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@torch.no_grad()
def validate(task, ids, T, B=4):
    """Return the mean loss over consecutive windows of ids."""
    losses = []
    first = torch.zeros((1, 1), dtype=torch.int64, device=DEVICE)
    windows = np.lib.stride_tricks.sliding_window_view(ids, T + 1)[::T]
    for rows in np.array_split(windows, -(-len(windows) // B)):
        x = torch.from_numpy(rows.astype(np.int64)).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            losses += [task.loss(x[:, :-1], x[:, 1:], first).item()] * len(rows)
    return float(np.mean(losses))


def checkpoint(path, device):
    """Return the state in a checkpoint; ValueError if the file is broken."""
    try:
        state = torch.load(path, map_location=device)
        if state.keys() == {"task", "step", "optimizers"}:
            return state
        why = f"got {', '.join(state)}"
    except Exception as error:  # PyTorch raises many kinds for a file that is not its own
        why = in_one_line(error)
    raise ValueError(f"need a whole checkpoint in {path} ({why}): remove it to train this stage "
                     "again")


def resume(path, task, optimizers):
    """Load a checkpoint; return its step."""
    state = checkpoint(path, DEVICE)
    task.load_state_dict(state["task"])
    for optimizer, saved in zip(optimizers, state["optimizers"]):
        optimizer.load_state_dict(saved)
    return state["step"]


def save(path, task, optimizers, step):
    """Write a checkpoint; the old one stays whole if the writing is interrupted."""
    part = path.with_suffix(".tmp")
    torch.save(dict(task=task.state_dict(), step=step,
                    optimizers=[optimizer.state_dict() for optimizer in optimizers]), part)
    part.replace(path)


def log(path, **entry):
    """Append a line of JSON to the log of a checkpoint, and print it."""
    with path.with_suffix(".pt.log").open("a", encoding="utf-8") as file:
        print(json.dumps(entry), file=file)
    print(json.dumps(entry), flush=True)
