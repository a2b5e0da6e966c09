"""Run one stage of the training (models/training/train.py): train, write a text, or export."""

import numpy as np
import torch

from models.training import export, plans, tasks, trainer
from models.training.eagle import LOSSES, Eagle


def untrained(stage, work):
    """Return the untrained task of a stage."""
    torch.manual_seed(plans.PLANS[stage]["seed"])
    if stage in ("target", "early"):
        return tasks.LanguageModel(tasks.new_gpt2(plans.SHAPES[stage]))
    if stage == "markov":
        return tasks.Markov(trained("heads", work))
    if stage == "eagle":
        head = trained("states", work)
        head.weights = LOSSES["eagle"]
        return head
    target = trained("target", work).gpt2
    if stage == "draft":
        return tasks.Distilled(trained("early", work).gpt2, target)
    return tasks.Heads(target) if stage == "heads" else Eagle(target, LOSSES["states"])


def trained(stage, work):
    """Return the task of a stage with its trained weights."""
    task = untrained(stage, work)
    task.load_state_dict(trainer.checkpoint(work / f"{stage}.pt", "cpu")["task"])
    return task


def train_stage(stage, work):
    """Train a stage unless it is done."""
    plan = plans.PLANS[stage]
    path = work / f"{stage}.pt"
    if path.exists() and trainer.checkpoint(path, "cpu")["step"] == plan["steps"]:
        return
    print(f"--- {stage}", flush=True)
    train_ids, valid_ids = (ids_of(work, text, plan) for text in (plan["text"], "valid"))
    trainer.train(untrained(stage, work), plan, path, train_ids, valid_ids)


def ids_of(work, text, plan):
    """Return the ids of a text; ValueError if it has no two windows of the largest size."""
    ids = np.load(work / f"{text}.npy")
    if len(ids) <= 2 * plan["T_last"]:
        raise ValueError(f"need a {text} text of more than {2 * plan['T_last']} ids, got "
                         f"{len(ids)}: choose a longer text, and a new --work")
    return ids


def write_stage(work):
    """Write the target's text, on which draft and heads are trained."""
    path = work / "written.npy"
    if path.exists():
        return
    target = trained("target", work).gpt2.to(trainer.DEVICE)
    with torch.autocast(trainer.DEVICE, torch.bfloat16):
        rows = written_rows(target, np.load(work / "train.npy"), **plans.WRITE)
    part = path.with_suffix(".part.npy")
    np.save(part, rows.numpy().astype(np.uint16).reshape(-1))
    part.replace(path)


def written_rows(target, ids, n_rows, n_given, n_new, B, seed):
    """Return n_rows rows: n_given ids of the text, then n_new of the target's.

    Every second batch is greedy, the others are drawn at temperature 1.
    """
    rng = np.random.default_rng(seed)
    rows = []
    torch.manual_seed(seed)
    for i in range(n_rows // B):
        starts = rng.integers(len(ids) - n_given, size=B)
        given = np.stack([ids[start : start + n_given] for start in starts]).astype(np.int64)
        given = torch.from_numpy(given).to(target.device)
        rows.append(target.generate(given, do_sample=i % 2 == 1, max_new_tokens=n_new, top_k=0,
                                    use_cache=True))
    return torch.cat(rows).cpu()


def export_stage(work, out):
    """Write the model folders into `out`, with all heads in the target's."""
    markov = trained("markov", work)
    eagle = trained("eagle", work)
    large = out / plans.MODELS["target"]
    export.export(eagle.target, work, large)
    heads = export.medusa_weights(markov) | export.eagle_weights(eagle)
    export.export_heads(eagle.target, heads, large)
    export.export(trained("draft", work).gpt2, work, out / plans.MODELS["draft"])
