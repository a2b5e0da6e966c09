"""One training loop for the target, the draft and the heads: resumable, seeded, and done in time.

On a CPU it runs as several processes of one thread each that average their gradients once a step:
other work on the machine then costs its share of time only, while threads that meet in every matrix
product wait for the slowest of them each time.

    task      an nn.Module with `loss(x, y, first)`
    x, y      [B, T] ids, y one token later; `first` is the position of column 0, [B, 1]
    plan      tokens and minutes (the first to be used up ends the run; minutes of work, so that a
              pause or other work on the machine costs none), T, T_last and long_part
              (windows of T ids, in the last long_part of the run of T_last), batch (tokens a step),
              aligned (windows begin at multiples of T ids, where written pieces begin too), lr,
              muon_lr, decay_from, seed, log_seconds, save_seconds, compile
    progress  0 .. 1, the larger of the fractions of tokens and of minutes
    world     how many processes there are, `rank` which one this is
"""
import functools
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from tqdm import tqdm


# ---- text

@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """A shuffled order of the windows of one pass over the text, and where its first one begins."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def to_batch(rows):  # -> x, y [B, T]
    """Windows of T + 1 ids as inputs and targets."""
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


def batch(ids, plan, T, first_window, B, rank=0, world=1):  # -> x, y [B, T], first [B, 1]
    """Windows first_window .. first_window + B - 1 of an endless, shuffled reading of ids.

    Each process reads every world-th window, and a window always has the same places, so that who
    has read it may remember (models/training/frozen.py). Short windows are cheap; they lie at places of their
    own, which trains every row of wpe.
    """
    n_windows, rows, first = ((len(ids) - 1) // T - 1) // world, [], []
    for i in range(first_window, first_window + B):
        order, shift = epoch_order(n_windows, i // n_windows, plan["seed"])
        window = int(order[i % n_windows]) * world + rank
        start = int((window + (0 if plan["aligned"] else shift)) * T)
        rows.append(ids[start : start + T + 1])
        first.append(T * (window // world % (plan["T_last"] // T)))
    return *to_batch(rows), torch.tensor(first)[:, None]


# ---- learning

def learning_rate(progress, decay_from, warmup=0.02):
    """Fraction of the peak rate: a short warm-up, a plateau, then a line to zero at progress 1."""
    decay = (1 - progress) / (1 - decay_from) if progress > decay_from else 1.0
    return max(0.0, min(1.0, (progress + 1e-4) / warmup, decay))


def make_optimizers(task, plan):
    """Muon (Jordan et al. 2024) for the blocks' matrices, AdamW for everything else."""
    named = [(n, p) for n, p in task.named_parameters() if p.requires_grad]
    matrices = [p for n, p in named if "blocks." in n and p.ndim == 2]
    other = [p for n, p in named if not ("blocks." in n and p.ndim == 2)]
    optimizers = [torch.optim.AdamW(other, lr=plan["lr"], betas=(0.9, 0.95), weight_decay=0.0,
                                    fused=True)]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, lr=plan["muon_lr"], weight_decay=0.05))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def average(world, tensors, *numbers):
    """Average tensors (in place) and numbers over all processes; returns the numbers."""
    if world == 1:
        return list(numbers)
    sizes = [t.numel() for t in tensors] + [len(numbers)]
    numbers = torch.tensor(numbers, device=tensors[0].device)
    flat = torch.cat([t.reshape(-1) for t in tensors] + [numbers])
    dist.all_reduce(flat)
    flat /= world
    *parts, numbers = flat.split(sizes)
    for t, part in zip(tensors, parts):
        t.copy_(part.view_as(t))
    return numbers.tolist()


def save(path, state):
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)  # a kill while writing leaves the former file whole


class Run:
    """A training run: a task, its optimizers, and how far it has come.

    Parameters
    ----------
    task, plan : as above
    path : str
        Checkpoint; the run goes on from it when it is there. Beside it, path + ".log", JSON lines.
    rank, world : int
    device : "cpu" or "cuda"
    """

    def __init__(self, task, plan, path, rank=0, world=1, device="cpu"):
        self.task, self.plan, self.path = task, plan, path
        self.rank, self.world, self.device = rank, world, device
        self.optimizers = make_optimizers(task, plan)
        self.params = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        self.loss = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
        self.step, self.tokens, self.elapsed, self.T = 0, 0, 0.0, None
        if os.path.exists(path):
            self.resume(torch.load(path, map_location=device))
        self.clock = time.process_time() - self.elapsed

    def resume(self, state):
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.task.load_state_dict(state["task"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.log(resumed_at_step=self.step)

    def save(self, **more):
        if self.rank == 0:
            optimizers = [o.state_dict() for o in self.optimizers]
            save(self.path, dict(task=self.task.state_dict(), optimizers=optimizers, step=self.step,
                                 tokens=self.tokens, elapsed=self.elapsed, **more))

    def log(self, **entry):
        """A line of JSON in the log, and the same for people."""
        if self.rank == 0:
            entry = dict(step=self.step, tokens=self.tokens, seconds=self.elapsed, **entry)
            with open(self.path + ".log", "a") as f:
                f.write(json.dumps(entry) + "\n")
            shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in entry.items()}
            tqdm.write(" ".join(f"{name} {value}" for name, value in shown.items()))

    def progress(self):
        plan = self.plan
        return max(self.tokens / plan["tokens"], self.elapsed / 60 / plan["minutes"])

    def learn(self, ids):
        """One step on the next windows of ids; returns the loss."""
        plan, progress, began = self.plan, self.progress(), time.process_time()
        T = plan["T"] if progress < 1 - plan["long_part"] else plan["T_last"]
        B = max(1, plan["batch"] // T // self.world)
        windows = batch(ids, plan, T, self.tokens // T // self.world, B, self.rank, self.world)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.loss(*(part.to(self.device) for part in windows))
        loss.backward()
        if T != self.T:  # the planned minutes are for training, not for torch.compile
            self.clock, self.T = self.clock + time.process_time() - began, T
        loss, self.elapsed = average(self.world, [p.grad for p in self.params], loss.item(),
                                     time.process_time() - self.clock)
        self.update(learning_rate(progress, plan["decay_from"]))
        self.step, self.tokens = self.step + 1, self.tokens + B * T * self.world
        return loss

    def update(self, fraction):
        """Let every optimizer step at this fraction of its peak rate."""
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * fraction
            optimizer.step()
            optimizer.zero_grad()

    @torch.no_grad()
    def validate(self, ids, T, n_windows=None, B=4):
        """Mean loss over consecutive windows of ids, each process taking its share of them."""
        n_windows = min(n_windows or len(ids), (len(ids) - 1) // T)
        total, count = 0.0, 0
        for i in range(self.rank * B, n_windows, self.world * B):
            rows = [ids[j * T : j * T + T + 1] for j in range(i, min(i + B, n_windows))]
            x, y = to_batch(rows)
            with torch.autocast(self.device, torch.bfloat16):
                loss = self.task.loss(x.to(self.device), y.to(self.device), 0)
            total, count = total + loss.item() * len(rows), count + len(rows)
        nothing = [torch.zeros(1, device=self.device)]
        total, count = average(self.world, nothing, total, float(count))
        return total / count


def losses(run, train_ids, valid_ids):
    """The losses on the held-out text and on as much of what is trained on."""
    return {split + "_loss": run.validate(ids, run.plan["T_last"])
            for split, ids in (("valid", valid_ids), ("train", train_ids[: len(valid_ids)]))}


def train(run, train_ids, valid_ids):
    """Train until the planned tokens or minutes are used up, whichever comes first."""
    plan, recent, logged, saved = run.plan, [], run.elapsed, run.elapsed
    off = None if run.rank == 0 else True  # None: shown on a terminal only
    with tqdm(total=100, unit="%", disable=off, bar_format="{l_bar}{bar}| {postfix}") as bar:
        while run.progress() < 1:
            recent.append(run.learn(train_ids))
            bar.update(min(100 * run.progress(), 100) - bar.n)
            bar.set_postfix(loss=recent[-1], refresh=False)
            if run.elapsed - logged >= plan["log_seconds"] or run.step == 1:
                run.log(progress=run.progress(), T=run.T, train_loss=float(np.mean(recent)))
                logged, recent = run.elapsed, []
            if run.elapsed - saved >= plan["save_seconds"]:
                run.log(valid_slice=run.validate(valid_ids, run.T, n_windows=16384 // run.T))
                run.save()
                saved = run.elapsed
    found = losses(run, train_ids, valid_ids)
    run.log(**found)
    run.save(done=True, **found)
