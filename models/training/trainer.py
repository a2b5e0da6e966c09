"""Train the target, the draft and the heads with one loop: resumable, seeded, of set length.

    task      an nn.Module with `loss(x, y, first)`
    x, y      [B, T] ids, y one token later; `first` is the position of column 0, [B, 1]
    plan      a dict of: steps, batch (tokens per step), lr, muon_lr, decay_from, seed,
              save_seconds, compile;
              T, T_last and long_part: windows have T ids, and T_last ids in the last part of
              the run, which is long_part of its steps;
              aligned: whether windows begin at multiples of T ids, as the rows of the text that
              the target wrote
    progress  0 .. 1, the fraction of the steps that are done
"""
import functools
import json
import math
import re
import time

import numpy as np
import torch

from lib.checkpoints.files import atomic

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """Return the windows' order in one pass over the text, and their shift, up to a window."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def batch(ids, plan, T, step):  # -> x, y [B, T], first [B, 1]
    """Return the windows of a step. Each pass over the text has all windows in a new order.

    Short windows get different first positions, so that every row of wpe is trained.
    """
    # A window has T + 1 ids: x and y are its first and its last T ids. All windows of a pass
    # are shifted by less than one window. One window fewer leaves room for the shift.
    n_windows = (len(ids) - 1) // T - 1
    B = plan["batch"] // T
    rows = []
    first_positions = []
    for i in range(step * B, (step + 1) * B):  # i counts windows from the start of the run
        order, shift = epoch_order(n_windows, i // n_windows, plan["seed"])
        window = int(order[i % n_windows])
        if plan["aligned"]:
            shift = 0
        start = int((window + shift) * T)
        rows.append(ids[start : start + T + 1])
        # With T = 128 and T_last = 512 a window begins at position 0, 128, 256 or 384.
        n_first_positions = plan["T_last"] // T
        first_positions.append(T * (window % n_first_positions))
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:], torch.tensor(first_positions)[:, None]


def learning_rate(progress, decay_from, warmup=0.02):
    """Return the fraction of the peak rate: short warm-up, plateau, linear decay to 0."""
    rising = (progress + 1e-4) / warmup  # 1e-4, so that the first step learns too
    falling = (1 - progress) / (1 - decay_from)  # above 1 before decay_from, so not the minimum
    return min(1.0, rising, falling)


def orthogonal(g, n_iterations=5):
    """Return about the nearest orthogonal matrix, by Newton and Schulz's iteration of Muon."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)  # the first gradient of a matrix may be 0
    if x.shape[0] > x.shape[1]:
        return orthogonal(g.T, n_iterations).T
    for _ in range(n_iterations):
        xx = x @ x.T
        x = a * x + (b * xx + c * xx @ xx) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Step by orthogonal matrices: Jordan et al. (2024), for matrices [n_in, n_out].

    torch.optim.Muon computes in bfloat16, which takes ten times as long on a processor without
    instructions for it, and takes n_in for n_out.
    """

    def __init__(self, matrices, lr, weight_decay, momentum=0.95):
        super().__init__(matrices, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                average.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(average, group["momentum"]))
                n_in, n_out = p.shape
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(update, alpha=group["lr"] * math.sqrt(max(1, n_out / n_in)))


def make_optimizers(task, lr, muon_lr, weight_decay=0.05):
    """Return AdamW, and Muon for the blocks' matrices if there are any."""
    matrices = []
    others = []
    for name, p in task.named_parameters():
        # A block's weights begin with h.0 in PyTorch's names, and with h0 in ours.
        is_of_block = re.search(r"\bh\.?\d", name)
        if p.requires_grad and is_of_block and p.ndim == 2:
            matrices.append(p)
        elif p.requires_grad:
            others.append(p)
    optimizers = [torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0,
                                    fused=True)]
    if matrices:
        optimizers.append(Muon(matrices, muon_lr, weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]  # of which `take_step` sets a fraction
    return optimizers


def train(task, plan, path, train_ids, valid_ids):
    """Train a task until its steps are done; resume from the checkpoint `path` if it exists."""
    shortest = 2 * max(plan["T"], plan["T_last"]) + 1  # two of the longest windows
    for text, ids in ("training", train_ids), ("validation", valid_ids):
        if len(ids) < shortest:
            raise ValueError(f"need {shortest} or more ids of text for {text}, got {len(ids)}")
    task.to(DEVICE)
    loss = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
    optimizers = make_optimizers(task, plan["lr"], plan["muon_lr"])
    run_steps(task, optimizers, plan["steps"], path, plan["save_seconds"],
              lambda step: learn(loss, optimizers, train_ids, plan, step))
    log(path, step=plan["steps"], valid_loss=validate(task, valid_ids, plan["T_last"]))


def run_steps(task, optimizers, n_steps, path, save_seconds, learn, measure=dict):
    """Train from the checkpoint `path` on, if it exists; log and save every save_seconds.

    `learn(step)` takes a step and returns its loss; `measure()` returns figures for the log.
    """
    step = 0
    losses = []
    saved = time.perf_counter()
    if path.exists():
        step = resume(path, task, optimizers)
        log(path, resumed_at_step=step)
    while step < n_steps:
        losses.append(learn(step))
        step += 1
        # Step 1 is saved at once, so that a folder that cannot be written fails early.
        if time.perf_counter() - saved >= save_seconds or step in (1, n_steps):
            log(path, step=step, train_loss=float(np.mean(losses)), **measure())
            save(path, task, optimizers, step)
            losses = []
            saved = time.perf_counter()


def learn(loss_of, optimizers, ids, plan, step):
    """Take one step of every optimizer; return the loss."""
    progress = step / plan["steps"]
    T = plan["T"] if progress < 1 - plan["long_part"] else plan["T_last"]
    x, y, first = (tensor.to(DEVICE) for tensor in batch(ids, plan, T, step))
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = loss_of(x, y, first)
    take_step(loss, optimizers, learning_rate(progress, plan["decay_from"]))
    return loss.item()


def take_step(loss, optimizers, rate):
    """Take one step of every optimizer at this fraction of its peak rates."""
    loss.backward()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    torch.nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], 1.0)
    for group in groups:
        group["lr"] = group["peak"] * rate
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def validate(task, ids, T, B=4):
    """Return the mean loss over consecutive windows of ids."""
    losses = []
    first = torch.zeros((1, 1), dtype=torch.int64, device=DEVICE)
    # A window has T + 1 ids and begins T ids after the window before it. So its first id is the
    # last id of the window before it.
    windows = np.lib.stride_tricks.sliding_window_view(ids, T + 1)[::T]
    n_batches = -(-len(windows) // B)  # rounded up
    for rows in np.array_split(windows, n_batches):
        rows = torch.from_numpy(rows.astype(np.int64)).to(DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = task.loss(rows[:, :-1], rows[:, 1:], first).item()
        losses += [loss] * len(rows)  # each window counts once
    return float(np.mean(losses))


def resume(path, task, optimizers):
    """Load a checkpoint; return its step."""
    state = torch.load(path, DEVICE)
    task.load_state_dict(state["task"])
    for optimizer, saved in zip(optimizers, state["optimizers"]):
        optimizer.load_state_dict(saved)
    return state["step"]


def save(path, task, optimizers, step):
    """Write a checkpoint; the old one stays whole if the writing is interrupted."""
    state = dict(task=task.state_dict(), step=step,
                 optimizers=[optimizer.state_dict() for optimizer in optimizers])
    with atomic(path) as file:
        torch.save(state, file)


def log(path, **entry):
    """Append a line of JSON to the log of a checkpoint, and print it."""
    with path.with_suffix(".pt.log").open("a", encoding="utf-8") as file:
        print(json.dumps(entry), file=file)
    print(json.dumps(entry), flush=True)
