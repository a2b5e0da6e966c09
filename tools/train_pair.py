"""Train the bundled pair: python -m tools.train_pair --corpus FOLDER --out models --work DIR

Stages, each skipped when its result stands in --work, and gone on with when it was interrupted:
    bpe        byte-level BPE of 4,096 entries in GPT-2's format, and the corpus as ids
    half       the target's training, first part: half its depth, windows of 256 ids
    deep       second part: begun as the half one stacked twice
    target     third part: windows of 512 ids, so that far places learn to look back
    early      a one-layer GPT-2 on the text alone, which is quick
    write      the target goes on with pieces of the corpus, greedily and at temperature 1
    draft      the early one, distilled from the target on what the target wrote
    control    the early one on as many tokens more of the text alone, to see what that gives
    heads      three Medusa heads on the frozen target, trained on what it wrote
    export     OpenAI's TensorFlow layout, then the project's own conversion, into --out
    baselines  unigram, bigram and trigram losses on the same held-out ids
    report     acceptance of the converted pair on held-out prompts, samples
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads, as in main.py

import argparse
import copy
import json
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tools import baselines, bpe, tasks, trainer

SHAPES = {
    "half": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=8),
    "deep": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16),
    "target": dict(n_vocab=4096, n_ctx=512, n_embd=192, n_head=3, n_layer=16),
    "draft": dict(n_vocab=4096, n_ctx=512, n_embd=128, n_head=4, n_layer=1),
}
PLAN = dict(T=256, T_last=512, long_part=0.1, decay_from=0.2, batch=8192, lr=3e-3, muon_lr=0.02,
            text="train", seed=1, log_seconds=30, save_seconds=180, compile=True)
PLANS = {
    "half": dict(PLAN, tokens=12e6, minutes=22, long_part=0.0, decay_from=1.0),
    "deep": dict(PLAN, tokens=24e6, minutes=42, long_part=0.0),
    "target": dict(PLAN, tokens=4e6, minutes=12, T=512, lr=1.2e-3, muon_lr=8e-3, decay_from=0.0),
    "early": dict(PLAN, tokens=40e6, minutes=11, T=512),
    "draft": dict(PLAN, tokens=7e6, minutes=15, T=512, lr=1.5e-3, muon_lr=0.01, text="written"),
    "control": dict(PLAN, tokens=7e6, minutes=15, T=512, lr=1.5e-3, muon_lr=0.01),
    "heads": dict(PLAN, tokens=3e6, minutes=8, T=512, text="written"),
}
WRITE = dict(n_rows=8192, n_given=32, n_new=96, B=128, seed=1)  # half of the rows greedy
# glibc gives large arrays back to the system at every free, and the next one costs fresh pages.
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(10**11),
          "MALLOC_TOP_PAD_": str(2**28), "THP_MEM_ALLOC_ENABLE": "1"}
NAMES = {"target": "tales-large", "draft": "tales-small", "control": "tales-small-undistilled"}
STAGES = ("bpe", "half", "deep", "target", "early", "write", "draft", "control", "heads", "export",
          "baselines", "report")


def load_ids(work, split):
    return np.load(os.path.join(work, split + ".npy"), mmap_mode="r")


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
    trainer.train(run, load_ids(work, plan["text"]), load_ids(work, "valid"))
    if world > 1:
        dist.destroy_process_group()


def write_worker(rank, world, stage, config):
    """One of `world` processes that let the target write: rows of given and new ids, one stream."""
    join(rank, world, config["work"])
    how, device = config["write"], config["device"]
    target = tasks.load_trained(config["work"], "target", config["shapes"]).to(device)
    with torch.autocast(device, torch.bfloat16):
        rows = tasks.write(target, load_ids(config["work"], "train"), rank, world, **how)
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
    """Does the stage's result stand in --work?"""
    if stage == "write":
        return os.path.exists(os.path.join(work, "written.npy"))
    path = os.path.join(work, stage + ".pt")
    return os.path.exists(path) and torch.load(path, map_location="cpu").get("done", False)


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
    from tools import export_pair  # imports utils, which a training run does not need

    work, shapes = config["work"], config["shapes"]
    made = {stage: os.path.join(work, "models", name) for stage, name in NAMES.items()}
    for stage, folder in made.items():
        if os.path.exists(os.path.join(work, stage + ".pt")):
            export_pair.export(tasks.load_trained(work, stage, shapes), work, folder)
    heads = tasks.load_heads(work, tasks.load_trained(work, "target", shapes))
    export_pair.export_heads(heads, made["target"])
    for stage in ("target", "draft"):
        export_pair.install(made[stage], os.path.join(config["out"], NAMES[stage]))


def baselines_stage(config):
    """Losses of n-gram models on the held-out ids."""
    train, valid = (load_ids(config["work"], split) for split in ("train", "valid"))
    n_vocab = config["shapes"]["target"]["n_vocab"]
    losses = baselines.ngram_losses(train, valid, n_vocab)
    return dict(zip(("unigram", "bigram", "trigram"), losses))


def losses_stage(config):
    """Losses, accuracies and agreement of the trained models, in PyTorch and float32."""
    work, shapes, valid = config["work"], config["shapes"], load_ids(config["work"], "valid")
    T, found = shapes["target"]["n_ctx"], {}
    kept = ("valid_loss", "train_loss", "tokens", "step", "elapsed")
    for stage in config["plans"]:
        state = torch.load(os.path.join(work, stage + ".pt"), map_location="cpu")
        found[stage] = {name: state[name] for name in kept}
    target = tasks.load_trained(work, "target", shapes)
    for stage in ("draft", "control"):
        draft = tasks.load_trained(work, stage, shapes)
        same, overlap = tasks.agreement(draft, target, valid, T)
        found[stage].update(agreement=same, overlap=overlap)
    found["heads"]["accuracy"] = tasks.head_accuracy(tasks.load_heads(work, target), valid, T)
    return found


def report_stage(config):
    """All figures of the model card, as one dict."""
    from tools import acceptance  # NumPy only: the project's own models and loop

    folder, valid = os.path.join(config["work"], "models"), load_ids(config["work"], "valid")
    target, draft, control = NAMES.values()
    table = acceptance.acceptance_table(folder, (draft, control), target, valid, **config["report"])
    return {"training": losses_stage(config), "acceptance": table,
            "samples": acceptance.samples(folder, draft, target)}


def save_figures(config, figures):
    """Add figures to report.json in --work and print them."""
    path, known = os.path.join(config["work"], "report.json"), {}
    if os.path.exists(path):
        with open(path) as f:
            known = json.load(f)
    with open(path, "w") as f:
        json.dump({**known, **figures}, f, indent=1)
    print(json.dumps(figures, indent=1), flush=True)


def parse_args(argv):
    parser = argparse.ArgumentParser(description="Train the bundled pair of models.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add, minutes = parser.add_argument, sum(plan["minutes"] for plan in PLANS.values())
    add("--corpus", required=True, help="folder with train.txt and valid.txt")
    add("--out", default="models", help="where the two model folders go")
    add("--work", default="train-work", help="folder for checkpoints and logs")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="only these")
    add("--minutes", type=float, default=minutes, help="of training; each stage's share is fixed")
    add("--processes", type=int, default=0, help="0: one a core (4 at most), one on a GPU")
    add("--config", help="JSON file: shapes, plans, write or report instead of the built-in ones")
    return parser.parse_args(argv)


def make_config(args):
    """Shapes, plans and places of one run."""
    shapes, plans, write, report = copy.deepcopy(SHAPES), copy.deepcopy(PLANS), dict(WRITE), {}
    scale = args.minutes / sum(p["minutes"] for p in PLANS.values())
    for plan in plans.values():
        plan.update(minutes=plan["minutes"] * scale, tokens=plan["tokens"] * max(1, scale))
    if args.config:
        with open(args.config) as f:
            given = json.load(f)
        for stage in plans:
            plans[stage].update(given.get("plans", {}).get(stage, {}))
        shapes.update(given.get("shapes", {}))
        write.update(given.get("write", {}))
        report.update(given.get("report", {}))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    processes = args.processes or (1 if device == "cuda" else min(4, os.cpu_count()))
    return dict(work=args.work, out=args.out, device=device, processes=processes,
                shapes=shapes, plans=plans, write=write, report=report)


def main(argv=None):
    args = parse_args(argv)
    config = make_config(args)
    os.makedirs(args.work, exist_ok=True)
    for stage in STAGES:
        if stage not in args.stages:
            continue
        if stage in PLANS:
            run_stage(train_worker, stage, config)
        elif stage == "write":
            run_stage(write_worker, stage, config)
        elif stage == "bpe":
            bpe.prepare(args.corpus, args.work, config["shapes"]["target"]["n_vocab"])
        elif stage == "export":
            export_stage(config)
        elif stage == "baselines":
            save_figures(config, {"baselines": baselines_stage(config)})
        elif stage == "report":
            save_figures(config, report_stage(config))


if __name__ == "__main__":
    main()
