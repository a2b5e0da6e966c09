"""Print the table of acceptances in models/README.md: python -m models.training.report --work DIR

The prompts are held-out text, DIR/valid.npy, and the models those in models/. NumPy only.
"""
import argparse
import os

import numpy as np

from benchmarks.tables import table
from speculative import generate
from utils import MODELS_DIR, load_pair
from variants import Models, build

KS, TEMPERATURES = range(1, 9), (0.0, 1.0)


def held_out_prompts(ids, n_prompts=32, n_ids=64):
    """Return pieces of n_ids ids, evenly spaced over a text."""
    starts = np.linspace(0, len(ids) - n_ids, n_prompts).astype(int)
    return [[int(i) for i in ids[s : s + n_ids]] for s in starts]


def acceptance(prompts, step, N):
    """Return accepted / tested guesses, and tokens per pass of the target, over all prompts."""
    rng, accepted, tested, tokens, passes = np.random.default_rng(0), 0, 0, 0, 0
    for x in prompts:
        for round in generate(x, step, N, rng):
            accepted, tested = accepted + round.n_accepted, tested + round.n_tested
            tokens, passes = tokens + len(round.ids), passes + 1
    return accepted / tested, tokens / passes


def columns(models_dir, prompts, N=64):
    """Return {column: [acceptance / tokens per pass for every K]}, for the draft and EAGLE's head.
    """
    _, draft, target = load_pair("tales-small", "tales-large", models_dir)
    found = {}
    for decoder, name in (("speculative", "tales-small"), ("eagle", "eagle")):
        for temperature in TEMPERATURES:
            models = Models(draft, target, {"temperature": temperature},
                            folder=models_dir / "tales-large")
            figures = [acceptance(prompts, build(decoder, models, {"K": K}), N) for K in KS]
            found[f"{name}, temperature {temperature:g}"] = [
                f"{rate:.3f} / {tokens:.2f}" for rate, tokens in figures]
    return found


def main(argv=None):
    parser = argparse.ArgumentParser("python -m models.training.report",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--work", default="train-work", help="folder with valid.npy")
    args = parser.parse_args(argv)
    found = columns(MODELS_DIR, held_out_prompts(np.load(os.path.join(args.work, "valid.npy"))))
    print(table(["K", *found], [[K, *row] for K, row in zip(KS, zip(*found.values()))]))


if __name__ == "__main__":
    main()
