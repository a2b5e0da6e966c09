"""Train the bundled pair: python -m models.training.train_pair --corpus FOLDER --out models --work DIR

Stages, each skipped when its result stands in --work, and gone on with when it was interrupted:
    bpe        byte-level BPE of 4,096 entries in GPT-2's format, and the corpus as ids
    begin      with --begin FOLDER: the vocabulary and the target of that folder in place of bpe's
               and of half, deep and long; its draft, if it has one, in place of early
    half       the target's training, first part: half its depth, windows of 256 ids
    deep       second part: begun as the half one stacked twice
    long       third part: windows of 512 ids, so that far places learn to look back
    target     fourth part: the same windows, several times as many of them
    early      a one-layer GPT-2 on the text alone, which is quick
    write      the target goes on with pieces of the corpus, greedily and at temperature 1
    draft      the early one, distilled from the target on what the target wrote
    control    the early one on more of the text alone, to see what that gives;
               not if --begin gave the early one, which has listened to a target before
    heads      three Medusa heads on the frozen target, trained on what it wrote
    markov     a table for the heads: the previous guess's effect on the next one's scores
    states     EAGLE's head: a block that goes on from the frozen target's states, learns them
    eagle      the head as it then learns to guess
    export     OpenAI's TensorFlow layout, then the project's own conversion, into --out
    baselines  unigram, bigram and trigram losses on the same held-out ids
    report     acceptance of the converted pair on held-out prompts, samples, repeats

Sizes and plans: models/training/plans.py.
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads, as in main.py

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from models.training import bpe, eagle_task, markov_task, report, tasks, trainer
from models.training.plans import NAMES, PARTS, PLANS, STAGES, make_config

# glibc gives large arrays back to the system at every free, and the next one costs fresh pages.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11),
          "MALLOC_TOP_PAD_": str(2**28), "THP_MEM_ALLOC_ENABLE": "1"}


def join(rank, world, work):
    """Meet the other processes of a stage."""
    if world > 1:
        torch.set_num_threads(1)
        meeting = "file://" + os.path.abspath(os.path.join(work, "rendezvous"))
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)


def train_worker(rank, world, stage, config):
    """One of `world` processes that train a stage together."""
    work, plan, device = config["work"], config["plans"][stage], config["device"]
    join(rank, world, work)
    task = tasks.make_task(stage, work, config["shapes"], plan["seed"], device)
    run = trainer.Run(task, plan, os.path.join(work, stage + ".pt"), rank, world, device)
    trainer.train(run, tasks.load_ids(work, plan["text"]), tasks.load_ids(work, "valid"))
    if world > 1:
        dist.destroy_process_group()


def write_worker(rank, world, stage, config):
    """One of `world` processes that let the target write: rows of given and new ids, one stream."""
    join(rank, world, config["work"])
    how, device = config["write"], config["device"]
    target = tasks.load_trained(config["work"], "target", config["shapes"]).to(device)
    with torch.autocast(device, torch.bfloat16):
        rows = tasks.write(target, tasks.load_ids(config["work"], "train"), rank, world, **how)
    if world > 1:
        parts = [torch.empty_like(rows) for _ in range(world)]
        dist.all_gather(parts, rows)
        rows = torch.cat(parts)
        dist.destroy_process_group()
    if rank == 0:
        path = os.path.join(config["work"], "written.npy")
        np.save(path + ".part.npy", rows.numpy().astype(np.uint16).reshape(-1))
        os.replace(path + ".part.npy", path)


def is_done(stage, work):
    """Does the stage's result stand in --work? A part of the target's does if a later part's does.
    """
    if stage == "write":
        return os.path.exists(os.path.join(work, "written.npy"))
    if stage == "control" and tasks.result("early", work).get("begun_from"):
        return True
    parts = PARTS[PARTS.index(stage) :] if stage in PARTS else (stage,)
    return any(tasks.result(part, work).get("done", False) for part in parts)


def begin_stage(config):
    """Checkpoints of the stages long and early from the models that --begin names."""
    from models.training.export_pair import read_model  # imports utils, which a training run does not need

    work, shapes = config["work"], config["shapes"]
    for stage, name in (("long", NAMES["target"]), ("early", NAMES["draft"])):
        folder, path = os.path.join(config["begin"], name), os.path.join(work, stage + ".pt")
        if os.path.exists(path) or stage == "early" and not os.path.exists(folder):
            continue
        task = tasks.LanguageModel(tasks.shape(stage, shapes))
        task.gpt2.load_state_dict(read_model(folder).state_dict())
        run = trainer.Run(task, {**config["plans"][stage], "compile": False}, path)
        losses = trainer.losses(run, tasks.load_ids(work, "train"), tasks.load_ids(work, "valid"))
        run.save(done=True, begun_from=name, **losses)


def run_stage(worker, stage, config):
    """Run a stage unless it is done; on a CPU in several processes (their ids: the file pid)."""
    work, world = config["work"], config["processes"]
    if is_done(stage, work):
        return
    print(f"--- {stage} {time.strftime('%H:%M:%S')}", flush=True)
    if world == 1:
        return worker(0, 1, stage, config)
    if os.path.exists(os.path.join(work, "rendezvous")):
        os.remove(os.path.join(work, "rendezvous"))
    os.environ.update(MALLOC)  # read when a process starts
    workers = mp.spawn(worker, (world, stage, config), nprocs=world, join=False)
    with open(os.path.join(work, "pid"), "w") as f:
        f.write(" ".join(str(pid) for pid in (os.getpid(), *workers.pids())))
    while not workers.join():
        pass


def export_stage(config):
    """Model folders under --work/models, all of them, and the pair in --out."""
    from models.training import export_pair  # imports utils, which a training run does not need

    work, shapes = config["work"], config["shapes"]
    made = {stage: os.path.join(work, "models", name) for stage, name in NAMES.items()}
    for stage, folder in made.items():
        if tasks.result(stage, work):
            export_pair.export(tasks.load_trained(work, stage, shapes), work, folder)
    heads = tasks.load_heads(work, tasks.load_trained(work, "target", shapes))
    table = markov_task.load_markov(work, heads) if tasks.result("markov", work) else None
    export_pair.export_heads(heads, made["target"], table)
    export_eagle_stage(config)
    for stage in ("target", "draft"):
        export_pair.install(made[stage], os.path.join(config["out"], NAMES[stage]))


def export_eagle_stage(config):
    """The head that stage eagle trained, if it has, beside its target in --work/models."""
    from models.training import export_pair

    work = config["work"]
    if tasks.result("eagle", work):
        target = tasks.load_trained(work, "target", config["shapes"])
        folder = os.path.join(work, "models", NAMES["target"])
        export_pair.export_eagle(eagle_task.load_eagle(work, target), folder)


def parse_args(argv):
    parser = argparse.ArgumentParser(description="Train the bundled pair of models.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add, minutes = parser.add_argument, sum(plan["minutes"] for plan in PLANS.values())
    add("--corpus", required=True, help="folder with train.txt and valid.txt")
    add("--out", default="models", help="where the two model folders go")
    add("--work", default="train-work", help="folder for checkpoints and logs")
    add("--begin", metavar="FOLDER", help="train on from the models in this folder")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="only these")
    add("--minutes", type=float, default=minutes, help="of training; each stage's share is fixed")
    add("--processes", type=int, default=0, help="0: one a core (4 at most), one on a GPU")
    add("--config", help="JSON file: shapes, plans, write or report instead of the built-in ones")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = make_config(args, device, os.cpu_count())
    os.makedirs(args.work, exist_ok=True)
    for stage in STAGES:
        if stage not in args.stages:
            continue
        if stage in PLANS:
            run_stage(train_worker, stage, config)
        elif stage == "write":
            run_stage(write_worker, stage, config)
        elif stage == "bpe":
            bpe.prepare(args.corpus, args.work, config["shapes"]["target"]["n_vocab"],
                        args.begin and os.path.join(args.begin, NAMES["target"]))
        elif stage == "begin" and args.begin:
            begin_stage(config)
        elif stage == "export":
            export_stage(config)
        elif stage == "baselines":
            report.save(config["work"], {"baselines": report.baselines_stage(config)})
        elif stage == "report":
            report.save(config["work"], report.report_stage(config))


if __name__ == "__main__":
    main()
