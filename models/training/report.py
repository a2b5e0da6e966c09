"""Print the table of acceptances in models/README.md: python -m models.training.report --work DIR

The prompts are pieces of held-out text, DIR/valid.npy; the models are those in models/.
"""
import argparse
import os

import numpy as np

from benchmarks.command import table
from speculative import generate
from utils import MODELS_DIR, load_pair
from variants import Models, build
from variants.shared.tree_gpt2 import TreeGPT2

KS, TEMPERATURES = range(1, 9), (0.0, 1.0)


def acceptance(prompts, step, N):
    """Return "accepted / tested guesses / tokens per pass of the target", over all prompts."""
    rng, rounds = np.random.default_rng(0), []
    for x in prompts:
        rounds += [(round.n_accepted, round.n_tested, len(round.ids))
                   for round in generate(x, step, N, rng)]
    accepted, tested, tokens = map(sum, zip(*rounds))
    return f"{accepted / tested:.3f} / {tokens / len(rounds):.2f}"


def columns(models_dir, prompts, N):
    """Return {column: a cell for every K}: the draft and EAGLE's head, greedy and sampled."""
    pair, found = load_pair("tales-small", "tales-large", models_dir)[1:], {}
    draft, target = (TreeGPT2(model.params, model.n_head) for model in pair)
    for decoder, name in (("speculative", "tales-small"), ("eagle", "eagle")):
        for temperature in TEMPERATURES:
            models = Models(draft, target, {"temperature": temperature}, models_dir / "tales-large")
            found[f"{name}, temperature {temperature:g}"] = [
                acceptance(prompts, build(decoder, models, {"K": K}), N) for K in KS]
    return found


def main(argv=None):
    parser = argparse.ArgumentParser("python -m models.training.report",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--work", default="train-work", help="folder with valid.npy")
    add("--prompts", type=int, default=32)
    add("--ids", type=int, default=64, help="tokens per prompt")
    add("--N", type=int, default=64, help="new tokens per prompt")
    args = parser.parse_args(argv)
    text = np.load(os.path.join(args.work, "valid.npy"))
    starts = np.linspace(0, len(text) - args.ids, args.prompts).astype(int)  # evenly spaced
    found = columns(MODELS_DIR, [text[i : i + args.ids].tolist() for i in starts], args.N)
    print(table(["K", *found], [[K, *row] for K, row in zip(KS, zip(*found.values()))]))


if __name__ == "__main__":
    main()
