"""The mean of two checkpoints of models.training.train_pair: python -m models.training.average STAGE A B OUT

The second must have gone on from the first, each until its rate was zero. Their mean often lies
lower than either (Izmailov et al. (2018), "Averaging Weights Leads to Wider Optima and Better
Generalization"): what both have in common is kept, and what pushed them about last is halved.
STAGE is target or draft. The losses are the mean's, on the held-out text and on what it reads.
"""
import argparse
import os

import torch

from models.training import tasks, trainer
from models.training.plans import PLANS, SHAPES


def average(state_a, state_b):
    """{name: weight} of both as {name: their mean}."""
    if state_a.keys() != state_b.keys():
        raise ValueError("need two checkpoints of one model, got other names of weights: "
                         f"{sorted(state_a.keys() ^ state_b.keys())[:3]}")
    return {name: (weight + state_b[name]) / 2 for name, weight in state_a.items()}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stage", choices=["target", "draft"])
    for name in ("a", "b", "out"):
        parser.add_argument(name, help="a checkpoint of that stage")
    args = parser.parse_args(argv)
    if os.path.exists(args.out):  # trainer.Run would go on from what is there
        parser.error(f"need a new file for OUT, got {args.out}")
    first, last = (torch.load(path, map_location="cpu") for path in (args.a, args.b))
    task = tasks.LanguageModel(SHAPES[args.stage])
    task.load_state_dict(average(first["task"], last["task"]))
    run = trainer.Run(task.eval(), {**PLANS[args.stage], "compile": False}, args.out)
    work = os.path.dirname(os.path.abspath(args.b))
    found = trainer.losses(run, *(tasks.load_ids(work, split)
                                  for split in (PLANS[args.stage]["text"], "valid")))
    trainer.save(args.out, {**last, "task": task.state_dict(), "mean_of": 2, **found})
    print(found)


if __name__ == "__main__":
    main()
