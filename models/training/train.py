"""Train the bundled pair of models.

    python -m models.training.train --corpus FOLDER --work DIR --out models
    python -m models.training.report --work DIR        # the card's table of acceptances

FOLDER holds train.txt and valid.txt. A finished stage is skipped; an interrupted one resumes.

    bpe        byte-level BPE of 4,096 entries in GPT-2's format, and the corpus as ids
    begin      with --begin FOLDER: take vocabulary, target and draft from there instead of from
               bpe, half, deep, long and early
    half       the target's training, part 1: half the depth, windows of 256 ids
    deep       part 2: starts from the half model stacked twice
    long       part 3: windows of 512 ids, so that attention learns to look far back
    target     part 4: the same windows, several times as many of them
    early      a one-layer GPT-2 on the text alone, which is quick
    write      the target continues pieces of the corpus, greedily and at temperature 1
    draft      the early model, distilled from the target on what the target wrote
    heads      three Medusa heads on the frozen target, trained on what it wrote
    markov     a table for the heads: the previous guess's effect on the next one's scores
    states     EAGLE's head, part 1: a block that predicts the frozen target's next state
    eagle      part 2: the head learns to guess
    export     model folders, with all heads in heads.safetensors, into --out

Sizes and plans: models/training/plans.py.
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads, as in main.py

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from models.training import bpe, tasks, trainer
from models.training.eagle import LOSSES, Eagle
from models.training.plans import NAMES, PARTS, PLANS, SHAPE_OF, STAGES, SHAPES, WRITE

BEFORE = {"deep": "half", "long": "deep", "target": "long", "draft": "early"}  # starts from


# ---- what stands in --work

def load_ids(work, split):
    """Return a text as ids: "train", "valid" or "written"."""
    return np.load(work / f"{split}.npy", mmap_mode="r")


def result(stage, work):
    """Return what a training stage has saved so far, or {}."""
    path = work / f"{stage}.pt"
    return torch.load(path, map_location="cpu") if path.exists() else {}


def load_into(task, stage, work):
    """Return a task with the weights that a stage has trained."""
    task.load_state_dict(result(stage, work)["task"])
    return task


def load_trained(work, stage, shapes):
    """Return the GPT-2 that a stage has trained, in evaluation mode on the CPU."""
    shape = shapes[SHAPE_OF.get(stage, stage)]
    return load_into(tasks.LanguageModel(shape), stage, work).gpt2.eval()


def is_done(stage, work):
    """Return whether a stage is finished; a part of the target's is if a later part is."""
    parts = PARTS[PARTS.index(stage) :] if stage in PARTS else (stage,)
    return any(result(part, work).get("done", False) for part in parts)


# ---- the stages

def make_task(stage, work, shapes, seed, device="cpu"):
    """Return the untrained task of a stage."""
    torch.manual_seed(seed)
    if stage in ("heads", "markov", *LOSSES, "draft"):
        target = load_trained(work, "target", shapes).to(device)
    if stage == "heads":
        return tasks.Heads(target).to(device)
    if stage == "markov":
        return tasks.Markov(load_into(tasks.Heads(target), "heads", work).to(device)).to(device)
    if stage in LOSSES:
        task = Eagle(target, LOSSES[stage])
        return (load_into(task, "states", work) if result("states", work) else task).to(device)
    shape = shapes[SHAPE_OF.get(stage, stage)]
    task = (tasks.Distilled(shape, target, tasks.DISTILLED) if stage == "draft"
            else tasks.LanguageModel(shape))
    if stage in BEFORE:
        tasks.stack(task.gpt2, load_trained(work, BEFORE[stage], shapes))
    if stage == "early":
        tasks.start_from_target(task.gpt2, load_trained(work, "target", shapes))
    return task.to(device)


def train_stage(stage, config):
    """Train a stage unless it is done."""
    work, plan, device = config["work"], config["plans"][stage], config["device"]
    if is_done(stage, work):
        return
    print(f"--- {stage} {time.strftime('%H:%M:%S')}", flush=True)
    task = make_task(stage, work, config["shapes"], plan["seed"], device)
    run = trainer.Run(task, plan, work / f"{stage}.pt", device)
    trainer.train(run, load_ids(work, plan["text"]), load_ids(work, "valid"))


def write_stage(config):
    """Let the target write the text that draft and heads are trained on."""
    work, path = config["work"], config["work"] / "written.npy"
    if path.exists():
        return
    target = load_trained(work, "target", config["shapes"]).to(config["device"])
    with torch.autocast(config["device"], torch.bfloat16):
        rows = write(target, load_ids(work, "train"), **config["write"])
    part = path.with_suffix(".part.npy")
    np.save(part, rows.numpy().astype(np.uint16).reshape(-1))
    part.replace(path)


def write(target, ids, n_rows, n_given, n_new, B, seed):
    """Return n_rows rows: n_given ids of the text, then n_new of the target's.

    Every second row is greedy, the others are drawn at temperature 1.
    """
    rng, rows, device = np.random.default_rng(seed), [], target.wte.weight.device
    generator = torch.Generator(device).manual_seed(seed)
    for _ in range(max(1, n_rows // B)):
        starts = rng.integers(len(ids) - n_given, size=B)
        given = np.stack([ids[i : i + n_given] for i in starts]).astype(np.int64)
        given, temperature = torch.from_numpy(given).to(device), torch.arange(B, device=device) % 2
        rows.append(target.write(given, n_new, temperature.float(), generator))
    return torch.cat(rows).cpu()


def begin_stage(config):
    """Save the models that --begin names as results of the stages long and early."""
    from models.training.export import read_model  # a training run does not need utils

    for stage, name in (("long", NAMES["target"]), ("early", NAMES["draft"])):
        folder, path = config["begin"] / name, config["work"] / f"{stage}.pt"
        if path.exists() or stage == "early" and not folder.exists():
            continue
        task = tasks.LanguageModel(config["shapes"][SHAPE_OF[stage]])
        task.gpt2.load_state_dict(read_model(folder).state_dict())
        torch.save({"task": task.state_dict(), "done": True}, path)


def export_stage(config):
    """Write the model folders into --out, with all trained heads beside the target."""
    from models.training import export  # a training run does not need utils

    work, shapes, out = config["work"], config["shapes"], config["out"]
    target = load_trained(work, "target", shapes)
    heads = tasks.Heads(target)
    learned = {name: load_into(task, name, work) for name, task in (
        ("heads", heads), ("markov", tasks.Markov(heads)), ("eagle", Eagle(target)))
        if result(name, work)}
    export.export(target, work, out / NAMES["target"])
    export.export_heads(target, learned, out / NAMES["target"])
    export.export(load_trained(work, "draft", shapes), work, out / NAMES["draft"])


# ---- the command

def parse_args(argv):
    """Return shapes, plans and folders of one run."""
    parser = argparse.ArgumentParser("python -m models.training.train",
                                     description="Train the bundled pair of models.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, required=True, help="folder with train.txt and valid.txt")
    add("--out", type=Path, default="models", help="where the two model folders go")
    add("--work", type=Path, default="train-work", help="folder for checkpoints and logs")
    add("--begin", type=Path, metavar="FOLDER", help="start from the models in this folder")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="only these")
    add("--config", type=Path, help="JSON file of shapes, plans or write, for plans.py's")
    args = parser.parse_args(argv)
    given = json.loads(args.config.read_text()) if args.config else {}
    plans = {stage: plan | given.get("plans", {}).get(stage, {}) for stage, plan in PLANS.items()}
    return vars(args) | {"shapes": SHAPES | given.get("shapes", {}), "plans": plans,
                         "write": WRITE | given.get("write", {}),
                         "device": "cuda" if torch.cuda.is_available() else "cpu"}


def main(argv=None):
    config = parse_args(argv)
    work, begin = config["work"], config["begin"]
    work.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        if stage not in config["stages"]:
            continue
        if stage in PLANS:
            train_stage(stage, config)
        elif stage == "write":
            write_stage(config)
        elif stage == "bpe":
            bpe.prepare(config["corpus"], work, config["shapes"]["target"]["n_vocab"],
                        begin and begin / NAMES["target"])
        elif stage == "begin" and begin:
            begin_stage(config)
        elif stage == "export":
            export_stage(config)


if __name__ == "__main__":
    main()
