"""Run one stage of the training (models/training/train.py): train, write a text, or export."""

import numpy as np
import torch

from lib.checkpoints.files import atomic
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
        head.weights = LOSSES["eagle"]  # the second loss
        return head
    target = trained("target", work).gpt2
    if stage == "draft":
        return tasks.Distilled(trained("early", work).gpt2, target)
    if stage == "heads":
        return tasks.Heads(target)
    return Eagle(target, LOSSES["states"])  # stage "states"


def trained(stage, work):
    """Return the task of a stage with its trained weights."""
    task = untrained(stage, work)
    task.load_state_dict(torch.load(work / f"{stage}.pt", "cpu")["task"])
    return task


def train_stage(stage, work):
    """Train a stage unless it is done."""
    plan = plans.PLANS[stage]
    path = work / f"{stage}.pt"
    if path.exists() and torch.load(path, "cpu")["step"] == plan["steps"]:
        return
    print(f"--- {stage}", flush=True)
    train_ids, valid_ids = (np.load(work / f"{text}.npy") for text in (plan["text"], "valid"))
    trainer.train(untrained(stage, work), plan, path, train_ids, valid_ids)


def write_stage(work):
    """Write the target's text, on which draft and heads are trained."""
    path = work / "written.npy"
    if path.exists():
        return
    target = trained("target", work).gpt2.to(trainer.DEVICE)
    with torch.autocast(trainer.DEVICE, torch.bfloat16):
        rows = written_rows(target, np.load(work / "train.npy"), **plans.WRITE)
    with atomic(path) as file:
        np.save(file, rows.numpy().astype(np.uint16).reshape(-1))


def written_rows(target, ids, n_rows, n_given, n_new, B, seed):  # -> [n_rows, n_given + n_new]
    """Return rows of n_given ids of the text and n_new ids that the target appends."""
    rng = np.random.default_rng(seed)
    rows = []
    torch.manual_seed(seed)
    for i in range(n_rows // B):
        starts = rng.integers(len(ids) - n_given, size=B)
        prompts = np.stack([ids[start : start + n_given] for start in starts])  # [B, n_given]
        prompts = torch.from_numpy(prompts.astype(np.int64)).to(target.device)
        is_drawn = i % 2 == 1  # at temperature 1; the other batches are greedy
        # top_k=0 draws from all tokens. By default transformers draws from the best 50.
        rows.append(target.generate(prompts, do_sample=is_drawn, max_new_tokens=n_new, top_k=0,
                                    use_cache=True))
    return torch.cat(rows).cpu()


def export_stage(work):
    """Write the model folders, with all heads in the target's."""
    out = work / "models"
    markov = trained("markov", work)
    eagle = trained("eagle", work)
    large = out / plans.MODELS["target"]
    export.export(eagle.target, work, large)
    heads = export.medusa_weights(markov) | export.eagle_weights(eagle)
    export.export_heads(eagle.target.transformer.ln_f.weight, export.to_arrays(heads), large)
    export.export(trained("draft", work).gpt2, work, out / plans.MODELS["draft"])
