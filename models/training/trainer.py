"""Train the target, the draft and the heads with one loop: resumable, seeded, of a given length.

    task      an nn.Module with `loss(x, y, first)`
    x, y      [B, T] ids, y one token later; `first` is the position of column 0, [B, 1]
    plan      tokens and minutes (the run ends with the first to be used up), T, T_last and
              long_part (windows of T ids, of T_last in the last long_part of the run), batch
              (tokens per step), aligned (windows begin at multiples of T ids, as written rows
              do), lr, muon_lr, decay_from, seed, log_seconds, save_seconds, compile
    progress  0 .. 1, the larger of the fractions of tokens and of minutes
"""
import functools
import json
import os
import time

import numpy as np
import torch
from tqdm import tqdm


@functools.lru_cache(maxsize=2)
def epoch_order(n_windows, epoch, seed):
    """Return a shuffled order of the windows for one pass over the text, and a shift in 0 .. 1."""
    rng = np.random.default_rng([seed, epoch])
    return rng.permutation(n_windows), rng.random()


def to_batch(rows):  # -> x, y [B, T]
    """Return windows of T + 1 ids as inputs and targets."""
    rows = torch.from_numpy(np.stack(rows).astype(np.int64))
    return rows[:, :-1], rows[:, 1:]


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
    return *to_batch(rows), torch.tensor(first)[:, None]


def learning_rate(progress, decay_from, warmup=0.02):
    """Return the fraction of the peak rate: a short warm-up, a plateau, a line to 0 at the end."""
    decay = (1 - progress) / (1 - decay_from) if progress > decay_from else 1.0
    return max(0.0, min(1.0, (progress + 1e-4) / warmup, decay))


def make_optimizers(task, plan):
    """Return AdamW, and Muon (Jordan et al. 2024) for the blocks' matrices."""
    named = [(name, p) for name, p in task.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if "blocks." in name and p.ndim == 2]
    other = [p for name, p in named if not ("blocks." in name and p.ndim == 2)]
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

    It resumes from the checkpoint `path` if that exists; path + ".log" has lines of JSON.
    """

    def __init__(self, task, plan, path, device="cpu"):
        self.task, self.plan, self.path, self.device = task, plan, path, device
        self.optimizers = make_optimizers(task, plan)
        self.params = [p for o in self.optimizers for g in o.param_groups for p in g["params"]]
        self.loss = torch.compile(task.loss, dynamic=False) if plan["compile"] else task.loss
        self.step, self.tokens, self.elapsed, self.T = 0, 0, 0.0, None
        if os.path.exists(path):
            self.resume(torch.load(path, map_location=device))
        self.clock = time.perf_counter() - self.elapsed

    def resume(self, state):
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.task.load_state_dict(state["task"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.log(resumed_at_step=self.step)

    def save(self, **more):
        """Write the checkpoint; a kill while writing leaves the old one whole."""
        torch.save(dict(task=self.task.state_dict(), step=self.step, tokens=self.tokens,
                        optimizers=[o.state_dict() for o in self.optimizers],
                        elapsed=self.elapsed, **more), self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def log(self, **entry):
        """Append a line of JSON to the log, and print it."""
        entry = dict(step=self.step, tokens=self.tokens, seconds=self.elapsed, **entry)
        with open(self.path + ".log", "a") as f:
            f.write(json.dumps(entry) + "\n")
        shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in entry.items()}
        tqdm.write(" ".join(f"{name} {value}" for name, value in shown.items()))

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
    def validate(self, ids, n_windows=None, B=4):
        """Return the mean loss over consecutive windows of ids."""
        T, losses = self.plan["T_last"], []
        n_windows = min(n_windows or len(ids), (len(ids) - 1) // T)
        for i in range(0, n_windows, B):
            rows = [ids[j * T : j * T + T + 1] for j in range(i, min(i + B, n_windows))]
            x, y = (part.to(self.device) for part in to_batch(rows))
            with torch.autocast(self.device, torch.bfloat16):
                losses += [self.task.loss(x, y, 0).item()] * len(rows)
        return float(np.mean(losses))


def losses(run, train_ids, valid_ids):
    """Return the losses on the held-out text and on as much of the training text."""
    return {"valid_loss": run.validate(valid_ids),
            "train_loss": run.validate(train_ids[: len(valid_ids)])}


def train(run, train_ids, valid_ids):
    """Train until the planned tokens or minutes are used up."""
    plan, recent, logged, saved = run.plan, [], run.elapsed, run.elapsed
    with tqdm(total=100, unit="%", disable=None, bar_format="{l_bar}{bar}| {postfix}") as bar:
        while run.progress() < 1:
            recent.append(run.learn(train_ids))
            bar.update(min(100 * run.progress(), 100) - bar.n)
            bar.set_postfix(loss=recent[-1], refresh=False)
            if run.elapsed - logged >= plan["log_seconds"] or run.step == 1:
                run.log(progress=run.progress(), T=run.T, train_loss=float(np.mean(recent)))
                logged, recent = run.elapsed, []
            if run.elapsed - saved >= plan["save_seconds"]:
                run.log(valid_slice=run.validate(valid_ids, n_windows=32))
                run.save()
                saved = run.elapsed
    found = losses(run, train_ids, valid_ids)
    run.log(**found)
    run.save(done=True, **found)
