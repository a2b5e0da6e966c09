"""Which blocks the draft of variants/skip.py can best do without, by acceptance.

    python -m models.training.find_skip
    python -m models.training.find_skip --model 124M --keep 6 --N 40

The model writes a few texts at temperature 1. At each of their positions its own distribution is
compared with that of a draft that leaves out some of its blocks. The search is greedy: of the
blocks that are left, the one goes whose loss costs least. Printed for each number of blocks:

    gone        the block that goes next; those above it in the table are gone already
    acceptance  mean of sum(min(p_target, p_draft)): the chance that a drawn guess is kept
    same best   at how many positions both have one best token: the acceptance at temperature 0
    c           operations of a draft step / of a target pass
    exit        the acceptance of a draft that ends early, with as many blocks

then K and the speed-up that the papers predict for that acceptance at temperature 1, where a pass
over K + 1 rows costs no more than over one. K = 0: no guess pays. With the costs of 1, 2, 3 .. rows
on your machine, --costs 1,1.1,1.3, they are those of your machine (docs/speed.md measures them).
"""

import argparse
from functools import partial

import numpy as np

from lib.backend.arrays import limit_blas_threads
from gpt2 import GPT2
from sampling import with_sampling
from speculative import autoregressive_sampling
from theory.hardware import pass_flops
from theory.speedup import acceptance_rate, best_K, walltime_improvement
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants.skip import with_blocks

PROMPTS = [  # in no training text
    "In a village behind the seven hills there lived a baker who",
    "\"Who has eaten my porridge?\" asked the giant, and",
    "The youngest of the four sisters could speak with birds. One morning",
    "A fox and a heron agreed to build a boat together, but",
]


def write_texts(model, prompts, N):
    """The model's own texts at temperature 1: pairs of the prompt's length and all tokens."""
    model = with_sampling(model)
    return [(len(x), autoregressive_sampling(x, model, N, np.random.default_rng(i)))
            for i, x in enumerate(prompts)]


def rows_of(model, texts):  # -> [positions, n_vocab]
    """The distribution of every token that was written."""
    model = with_sampling(model)
    return np.concatenate([model(ids[:-1], len(ids) - n) for n, ids in texts])


def agreement(p_target, p_draft):
    """The two acceptances: at temperature 1 and at temperature 0."""
    same = p_target.argmax(axis=-1) == p_draft.argmax(axis=-1)
    return acceptance_rate(p_target, p_draft).mean(), same.mean()


def greedy_search(n_layer, keep, score):
    """Leave out one block after another, down to `keep`: yields (block, score of the rest).

    >>> [gone for gone, _ in greedy_search(4, 1, score=sum)]  # whose sum is largest
    [0, 1, 2]
    """
    kept = list(range(n_layer))
    while len(kept) > keep:
        scores = {gone: score([i for i in kept if i != gone]) for gone in kept}
        gone = max(scores, key=scores.get)
        kept.remove(gone)
        yield gone, scores[gone]


def predict(alpha, c, costs=None):
    """The best K and its speed-up; `costs` are those of 1, 2, 3 .. rows, all 1 if None."""
    K = best_K(alpha, c, costs)
    return K, walltime_improvement(alpha, K, c, costs[K] if costs else 1)


def share_of_pass(hparams, n_layer):
    """c: the operations of a pass with so many blocks, in units of the whole model's."""
    operations = partial(pass_flops, n_past=hparams["n_ctx"] // 2)
    return operations({**hparams, "n_layer": n_layer}) / operations(hparams)


def table(model, hparams, texts, keep, costs):
    """The rows of the table, and the flag that is predicted to be fastest ("": none is)."""
    p_target, n_layer = rows_of(model, texts), hparams["n_layer"]
    score = lambda kept: agreement(p_target, rows_of(with_blocks(model, kept), texts))
    left_out, best = [], (1.0, "")
    for gone, (alpha, same) in greedy_search(n_layer, keep, score):
        left_out.append(gone)
        n_accepted = n_layer - len(left_out)
        c = share_of_pass(hparams, n_accepted)
        K, speedup = predict(alpha, c, costs)
        yield (f"| {len(left_out)} | {gone} | {alpha:.3f} | {same:.3f} | {c:.2f} "
               f"| {score(range(n_accepted))[0]:.3f} | {K} | {speedup:.2f} |")
        flag = f"--K {K} --skip {','.join(map(str, sorted(left_out)))}"
        best = max(best, (speedup, flag))  # the first of equals: "" is less than any flag
    yield f"\nFastest by the formula: {best[1] or 'none of them'}, {best[0]:.2f}"


def main(argv=None):
    parser = argparse.ArgumentParser("python -m models.training.find_skip",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", default="tales-large", help="124M, 355M, .. or a folder in models_dir")
    add("--models_dir", default=str(MODELS_DIR))
    add("--keep", type=int, default=4, help="blocks that are left at the end")
    add("--N", type=int, default=60, help="tokens that are written after each prompt")
    add("--costs", type=lambda text: [float(cost) for cost in text.split(",")],
        help="of 1, 2, 3 .. rows in one pass, in units of one row")
    args = parser.parse_args(argv)
    encoder, hparams, params = load_encoder_hparams_and_params(args.model, args.models_dir)
    limit_blas_threads()
    model = GPT2(params, hparams["n_head"])
    texts = write_texts(model, [encoder.encode(prompt) for prompt in PROMPTS], args.N)
    print(f"{args.model}: {hparams['n_layer']} blocks, {len(texts)} texts of {args.N} new tokens\n")
    print("| left out | gone | acceptance | same best | c | exit | K | speed-up |\n"
          "|---|---|---|---|---|---|---|---|")
    for line in table(model, hparams, texts, args.keep, args.costs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
