"""Train the target, the draft and the heads with one loop: resumable, seeded, of a given length.

    task      an nn.Module with `loss(x, y, first)`
    x, y      [B, T] ids, y one token later; `first` is the position of column 0, [B, 1]
    plan      tokens and minutes (the run ends with the first to be used up), T, T_last and
              long_part (windows of T ids, of T_last in the last long_part of the run), batch
              (tokens per step), aligned (windows begin at multiples of T ids, as written rows
              do), lr, muon_lr, decay_from, seed, save_seconds, compile
    progress  0 .. 1, the larger of the fractions of tokens and of minutes
"""
import functools
import json
import time

import numpy as np
import torch


@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """Return a shuffled order of the windows for one pass over the text, and a shift in 0 .. 1."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def batch(ids, plan, T, first_window, B):  # -> x, y [B, T], first [B, 1]
    """Return windows first_window .. first_window + B - 1 of an endless, shuffled reading of ids.

    A window always has the same positions, so that its states can be kept (tasks.Frozen). Short
    windows begin at different positions, which trains every row of wpe.
    """
    n_windows, rows, first = (len(ids) - 1) // T - 1, [], []
    for i in range(first_window, first_window + B):
        order, shift = epoch_order(n_windows, i // n_windows, plan["seed"])
        window = int(order[i % n_windows])
        start = int((window + (0 if plan["aligned"] else shift)) * T)
        rows.append(ids[start : start + T + 1])
        first.append(T * (window % (plan["T_last"] // T)))
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:], torch.tensor(first)[:, None]


def learning_rate(progress, decay_from, warmup=0.02):
    """Return the fraction of the peak rate: a short warm-up, a plateau, a line to 0 at the end."""
    decay = (1 - progress) / (1 - decay_from) if progress > decay_from else 1.0
    return max(0.0, min(1.0, (progress + 1e-4) / warmup, decay))


def make_optimizers(task, plan):
    """Return AdamW, and Muon (Jordan et al. 2024) for the blocks' matrices."""
    matrices, other = [], []
    for name, p in task.named_parameters():
        if p.requires_grad:
            (matrices if "blocks." in name and p.ndim == 2 else other).append(p)
    optimizers = [torch.optim.AdamW(other, lr=plan["lr"], betas=(0.9, 0.95), weight_decay=0.0,
                                    fused=True)]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, lr=plan["muon_lr"], weight_decay=0.05))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


class Run:
    """A training run: a task, its optimizers, and its progress.

    It resumes from the checkpoint `path` if that exists; beside it, .pt.log has lines of JSON.
    """

    def __init__(self, task, plan, path, device="cpu"):
        self.task, self.plan, self.path, self.device = task, plan, path, device
        self.optimizers = make_optimizers(task, plan)
        self.params = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        self.loss = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
        self.step, self.tokens, self.elapsed, self.T = 0, 0, 0.0, None
        if path.exists():
            self.resume(torch.load(path, map_location=device))
        self.clock = time.perf_counter() - self.elapsed

    def resume(self, state):
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.task.load_state_dict(state["task"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.log(resumed_at_step=self.step)

    def save(self, done=False):
        """Write the checkpoint; a kill while writing leaves the old one whole."""
        part = self.path.with_suffix(".tmp")
        torch.save(dict(task=self.task.state_dict(), step=self.step, tokens=self.tokens,
                        optimizers=[o.state_dict() for o in self.optimizers],
                        elapsed=self.elapsed, done=done), part)
        part.replace(self.path)

    def log(self, **entry):
        """Append a line of JSON to the log, and print it."""
        line = json.dumps(dict(step=self.step, tokens=self.tokens, seconds=self.elapsed, **entry))
        with self.path.with_suffix(".pt.log").open("a") as file:
            print(line, file=file)
        print(line, flush=True)

    def progress(self):
        return max(self.tokens / self.plan["tokens"], self.elapsed / 60 / self.plan["minutes"])

    def learn(self, ids):
        """Take one step on the next windows of ids; return the loss."""
        plan, progress, began = self.plan, self.progress(), time.perf_counter()
        T = plan["T"] if progress < 1 - plan["long_part"] else plan["T_last"]
        B = max(1, plan["batch"] // T)
        windows = batch(ids, plan, T, self.tokens // T, B)
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.loss(*(part.to(self.device) for part in windows))
        loss.backward()
        if T != self.T:  # the time of torch.compile does not count
            self.clock, self.T = self.clock + time.perf_counter() - began, T
        self.update(learning_rate(progress, plan["decay_from"]))
        self.elapsed = time.perf_counter() - self.clock
        self.step, self.tokens = self.step + 1, self.tokens + B * T
        return loss.item()

    def update(self, fraction):
        """Let every optimizer take a step at this fraction of its peak rate."""
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * fraction
            optimizer.step()
            optimizer.zero_grad()

    @torch.no_grad()
    def validate(self, ids, B=4):
        """Return the mean loss over consecutive windows of ids."""
        T, losses = self.plan["T_last"], []
        windows = np.lib.stride_tricks.sliding_window_view(ids, T + 1)[::T]
        for rows in np.array_split(windows, -(-len(windows) // B)):
            x = torch.from_numpy(rows.astype(np.int64)).to(self.device)
            with torch.autocast(self.device, torch.bfloat16):
                losses += [self.task.loss(x[:, :-1], x[:, 1:], 0).item()] * len(rows)
        return float(np.mean(losses))


def train(run, train_ids, valid_ids):
    """Train until the planned tokens or minutes are used up."""
    recent, saved = [], run.elapsed
    while run.progress() < 1:
        recent.append(run.learn(train_ids))
        if run.elapsed - saved >= run.plan["save_seconds"] or run.step == 1:
            run.log(progress=run.progress(), T=run.T, train_loss=float(np.mean(recent)))
            run.save()
            saved, recent = run.elapsed, []
    run.log(valid_loss=run.validate(valid_ids))
    run.save(done=True)
