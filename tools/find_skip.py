"""Find the blocks that the draft of variants/skip.py can leave out, on any model.

    python -m tools.find_skip
    python -m tools.find_skip --model 124M --keep 6 --N 40 --passes 1,1.1,1.3

The model writes a few texts at temperature 1. At each position its distribution is compared with
that of a draft that leaves out some blocks. The search is greedy: of the remaining blocks it
removes the one that costs the least acceptance. Columns:

    removed     the block removed next; those in the rows above are removed already
    acceptance  mean of sum(min(p_target, p_draft)): the probability that a drawn guess is accepted
    same best   fraction of positions with the same most probable token: acceptance at temperature 0
    c           operations of a draft step / of a target pass
    speed-up    by Leviathan et al. (2023) Thm. 3.8 at the best K; K = 0: no guess pays
"""

import argparse

import numpy as np

from benchmarks.prompts import OPENINGS
from sampling import with_sampling
from speculative import autoregressive_sampling
from theory.hardware import pass_flops
from theory.speedup import acceptance_rate, best_K, walltime_improvement
from utils import MODELS_DIR, load_pair
from variants.skip import with_blocks


def rows_of(model, texts):  # -> [positions, n_vocab]
    """Return the distribution of every token written; texts are (prompt's length, ids)."""
    model = with_sampling(model)
    return np.concatenate([model(ids[:-1], len(ids) - n) for n, ids in texts])


def search(model, texts, keep, passes=None):
    """Yield the rows of the table: removed, acceptance, same best, c, K, speed-up."""
    p_target, n_layer = rows_of(model, texts), len(model.params["blocks"])
    rest = {"n_vocab": model.n_vocab, "n_ctx": model.n_ctx, "n_head": model.n_head,
            "n_embd": model.params["wpe"].shape[1]}
    operations = lambda n: pass_flops({**rest, "n_layer": n}, n_past=model.n_ctx // 2)
    kept = list(range(n_layer))
    while len(kept) > keep:
        drafts = {i: rows_of(with_blocks(model, [j for j in kept if j != i]), texts) for i in kept}
        alphas = {i: acceptance_rate(p_target, rows).mean() for i, rows in drafts.items()}
        removed = max(alphas, key=alphas.get)
        kept.remove(removed)
        alpha, c = alphas[removed], operations(len(kept)) / operations(n_layer)
        same, K = drafts[removed].argmax(-1) == p_target.argmax(-1), best_K(alpha, c, passes)
        gain = walltime_improvement(alpha, K, c, passes[K] if passes else 1)
        yield removed, alpha, same.mean(), c, K, gain


def main(argv=None):
    parser = argparse.ArgumentParser("python -m tools.find_skip",
                                     description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", default="tales-large", help="as main.py's --target_model_size")
    add("--models_dir", default=MODELS_DIR)
    add("--keep", type=int, default=4, help="blocks that remain at the end")
    add("--N", type=int, default=60, help="tokens written after each prompt")
    add("--passes", type=lambda text: [float(part) for part in text.split(",")],
        help="times of passes over 1, 2, .. rows; by default all are equal")
    args = parser.parse_args(argv)
    encoder, _, model = load_pair(None, args.model, args.models_dir)
    texts = []
    for seed, opening in enumerate(OPENINGS):
        x, rng = encoder.encode(opening), np.random.default_rng(seed)
        texts.append((len(x), autoregressive_sampling(x, with_sampling(model), args.N, rng)))
    print("| removed | acceptance | same best | c | K | speed-up |\n|---|---|---|---|---|---|")
    for removed, alpha, same, c, K, gain in search(model, texts, args.keep, args.passes):
        print(f"| {removed} | {alpha:.3f} | {same:.3f} | {c:.2f} | {K} | {gain:.2f} |", flush=True)


if __name__ == "__main__":
    main()
