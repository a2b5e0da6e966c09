"""How much of its own text a model says again: python -m models.training.repeats [--model FOLDER]

The share of tokens that lie in a repeat of n = 8 tokens or more: those covered by an n-gram that
occurred before in the same text,

    |{j : i <= j < i + n for some i with x[i : i + n] = x[h : h + n], h < i}| / |x|,

over the greedy texts of the benchmark's six openings. The two n-grams may overlap; only the later
one counts, and the opening is part of the text that can be repeated, not of what is counted.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.prompts import OPENINGS
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling
from utils import MODELS_DIR, load_encoder_hparams_and_params


def repeated(ids, n=8):  # [len(ids)] of bool
    """Which tokens lie in an n-gram that occurred before.

    >>> repeated([1, 2, 3, 1, 2, 3, 1, 9], n=2).astype(int)
    array([0, 0, 0, 1, 1, 1, 1, 0])
    """
    covered, seen = np.zeros(len(ids), bool), set()
    for i in range(len(ids) - n + 1):
        gram = tuple(ids[i : i + n])
        covered[i : i + n] |= gram in seen
        seen.add(gram)
    return covered


def repeated_share(x, model, N):
    """The share of N greedy tokens after x."""
    greedy = with_sampling(model, temperature=0)
    ids = autoregressive_sampling(x, greedy, N, np.random.default_rng(0))
    return float(repeated(ids)[len(x) :].mean())


def repeated_shares(models_dir, name, N=200):
    """The share of each opening's text; in a small context both are cut to half of it."""
    encoder, hparams, params = load_encoder_hparams_and_params(name, models_dir)
    model, half = GPT2(params, hparams["n_head"]), hparams["n_ctx"] // 2
    return [repeated_share(encoder.encode(opening)[:half], model, min(N, half))
            for opening in OPENINGS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=MODELS_DIR / "tales-large", metavar="FOLDER")
    folder = parser.parse_args().model
    shares = repeated_shares(folder.parent, folder.name)
    for opening, share in zip(OPENINGS, shares):
        print(f"{share:.3f}  {opening}")
    print(f"{np.mean(shares):.3f}  all")


if __name__ == "__main__":
    main()
