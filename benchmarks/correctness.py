"""How far each lossless decoder's distribution is from the target's: every outcome, no sampling.

    python -m benchmarks.correctness                 the table, as Markdown; half a minute
    python -m benchmarks.correctness verify block    rows with one of these words only

Each row runs the unchanged decoder through all outcomes of its random decisions
(exact/law.py) and compares the joint law of the ids with the product of the target's rows.

    case       (outcomes, expected): a function of rng to enumerate, and the law it should have
    deviation  largest difference of the two probabilities of one text, over all cases of a row
    branches   ways in which the random decisions can fall
"""

import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np

from lib.checkpoints.weights import random_params
from gpt2 import GPT2
from sampling import warp, with_sampling
from speculative import (autoregressive_sampling, complete, draft_and_verify, guess,
                         speculative_sampling, speculative_step, verify)
from exact.law import branches, distance, rounds_law, text_law
from exact.toys import PAIRS, counted, path_by_path, remembered, toy
from tests.variants.registered import text_and_law, write_heads
from utils import MODELS_DIR, load_encoder_hparams_and_params
from variants import DECODERS, settings
from variants.assisted import assisted
from variants.block import block_verify
from variants.kseq import guess_chains, verify_kseq
from variants.lookup import lookup_guess
from variants.medusa import cartesian, guess_by_heads
from variants.staged import staged_guess, staged_tree
from variants.tree import SIBLINGS, guess_tree, verify_tree

SMALL = [PAIRS[name] for name in ("dense", "sparse", "equal", "one ulp away", "greedy draft",
                                  "greedy target", "both greedy")]
SETTINGS = [dict(temperature=0.5), dict(temperature=0), dict(top_k=2), dict(top_p=0.7),
            dict(repetition_penalty=1.8),
            dict(temperature=2.0, top_k=3, top_p=0.8, repetition_penalty=1.3)]
PROMPTS = ["Once upon a time there was a", "The king said", "\"I am", "It was dark. The girl"]


# ---- cases

def text(new_step, draft, target, N, stop=(), x=(0,)):
    """A decoder's text against the target's; a new step for every run, as some keep a state."""
    return (lambda rng: tuple(complete(x, new_step(draft, target), N, rng, stop)),
            text_law(x, target, N, stop))


def each_pair(new_step, N, pairs=SMALL, x=(0,)):
    """The text of `new_step(draft, target)` for some pairs of toys."""
    return [text(new_step, *pair, N, x=x) for pair in pairs]


def plain():
    return [(lambda rng, model=model: tuple(autoregressive_sampling([0, 1], model, 4, rng)),
             text_law([0, 1], model, 4)) for _, model in PAIRS.values()]


def verify_then_target():
    def outcomes(rng, draft, target):
        guesses, p_draft = guess([0], 2, rng, draft)
        ids = verify(guesses, p_draft, target([0] + guesses, 3), rng)
        return tuple(autoregressive_sampling([0] + ids, target, 3 - len(ids), rng))

    return [(partial(outcomes, draft=draft, target=target), text_law([0], target, 3))
            for draft, target in PAIRS.values()]


def fractions():
    draft, target = toy(3, 21, exact=True), toy(3, 22, exact=True)
    return [text(partial(draft_and_verify, K=K), draft, target, K + 1) for K in (1, 2, 3)]


def passes():
    def outcomes(rng, draft, target):
        target = counted(target)
        ids = tuple(speculative_sampling([0], draft, target, 4, 2, rng))
        return ids, len(target.calls)

    return [(partial(outcomes, draft=draft, target=target), rounds_law([0], draft, target, 4, 2))
            for draft, target in PAIRS.values()]


def stops():
    return [text(partial(draft_and_verify, K=K), *PAIRS["dense"], 4, stop)
            for K in (1, 2, 3) for stop in ({0}, {2}, {0, 2}, {0, 1, 2})]


def cuts():
    return [text(partial(draft_and_verify, K=K), *PAIRS["sparse"], N)
            for N in range(4) for K in (1, 2, 5)]


def sampling():
    def shifted(model, chosen):  # the toy's rows, shifted, serve as logits
        return lambda ids, n_last=1: warp(4 * model(ids, n_last) - 40, ids=ids, **chosen)

    sides = [(a, b) for some in SETTINGS for a, b in ((some, some), (some, {}), ({}, some))]
    pairs = [(shifted(toy(4, 31), a), shifted(toy(4, 32), b)) for a, b in sides]
    return each_pair(partial(draft_and_verify, K=2), 3, pairs)


def past():
    def step(x, n_left, rng, draft, target):
        return draft_and_verify(draft, target, 1 + (sum(x) + len(x)) % 3)(x, n_left, rng)

    def new_step(draft, target):
        return partial(step, draft=draft, target=target)

    return [text(new_step, *PAIRS["dense"], 4)]


def lookup(draft, target):
    guess = partial(lookup_guess, n_vocab=len(target([0])[0]), max_ngram=2)
    return partial(speculative_step, target=target, K=2, make_guesses=guess)


def block(draft, target):
    return draft_and_verify(draft, target, 2, block_verify)


def kseq(draft, target):
    return partial(speculative_step, target=path_by_path(target), K=1, test=verify_kseq,
                   make_guesses=partial(guess_chains, draft=draft, chains=2))


def tree(draft, target, widths, siblings):
    guess = partial(guess_tree, drafts=[path_by_path(draft)], widths=widths, siblings=siblings)
    return partial(speculative_step, target=path_by_path(target), K=len(widths), make_guesses=guess,
                   test=verify_tree)


def trees():
    shapes = [("dense", (2, 1), 3), ("sparse", (2, 2), 4), ("sparse", (3, 1), 4),
              ("four tokens", (2, 1), 3)]
    return [text(partial(tree, widths=widths, siblings=siblings), *PAIRS[name], N)
            for siblings in SIBLINGS for name, widths, N in shapes]


def staged(draft, target):
    inner = draft_and_verify(toy(3, 77, zeros=0), draft, 2)
    return partial(speculative_step, target=target, K=2, make_guesses=partial(staged_guess, inner=inner))


def staged_with_tree(draft, target):
    inner = draft_and_verify(toy(3, 77, zeros=0), draft, 2)
    return partial(speculative_step, target=path_by_path(target), K=1, test=verify_tree,
                   make_guesses=partial(staged_tree, inner=inner, width=2))


def with_heads(draft, target):
    """Medusa's exact test; states are the prefixes themselves, heads are toys of them."""
    heads = lambda state: np.array([toy(3, seed, zeros=0)(state)[0] for seed in (70, 71)])
    guess = partial(guess_by_heads, state_after=tuple, heads=heads, choices=cartesian((2, 2)))
    return partial(speculative_step, target=path_by_path(target), K=2, make_guesses=guess,
                   test=verify_tree)


def entry(name, flags=()):
    """A decoder as the command line builds it, with each sampling setting."""
    with tempfile.TemporaryDirectory() as folder:
        heads = write_heads(Path(folder) / "medusa.npz", n_embd=3)
        for some in [{}, *SETTINGS]:
            yield text_and_law(name, dict(flags), {"temperature": 1.0} | some, heads)


def cached():
    """A GPT-2 with its cache, called in an order full of rewinds, against one that forgets."""
    hparams = dict(n_vocab=3, n_ctx=8, n_embd=4, n_head=2, n_layer=2)
    params = [random_params(hparams, np.random.default_rng(seed), np.float64) for seed in (1, 2)]
    draft, target = (with_sampling(remembered(GPT2(p, 2)), temperature=0.01) for p in params)
    fresh = with_sampling(lambda ids, n_last: GPT2(params[1], 2)(ids, n_last), temperature=0.01)
    outcomes, _ = text(partial(draft_and_verify, K=2), draft, target, 4)
    return [(outcomes, text_law([0], fresh, 4))]


def bundled():
    """The next three ids of the real pair, in float64, top-k 3."""
    models = []
    for size in ("tales-small", "tales-large"):
        encoder, hparams, params = load_encoder_hparams_and_params(size, MODELS_DIR, np.float64)
        models.append(remembered(with_sampling(GPT2(params, hparams["n_head"]), top_k=3)))
    return [text(partial(draft_and_verify, K=2), *models, 3, x=encoder.encode(prompt))
            for prompt in PROMPTS]


TOYS, MORE = "toys, 3 tokens", "10 pairs of toys, 3-5 tokens"
EVERY = PAIRS.values()
ROWS = [  # decoder, joint law of, models, () -> cases
    ("`autoregressive_sampling`", "4 tokens", "10 toys, 3-5 tokens", plain),
    ("`verify`, K = 2", "3 tokens: one round, then the target", MORE, verify_then_target),
    ("`speculative_sampling`, K = 1", "3 tokens", MORE,
     lambda: each_pair(partial(draft_and_verify, K=1), 3, EVERY)),
    ("K = 2", "4 tokens", MORE, lambda: each_pair(partial(draft_and_verify, K=2), 4, EVERY)),
    ("K = 3", "5 tokens", "7 pairs of toys, 3 tokens",
     lambda: each_pair(partial(draft_and_verify, K=3), 5)),
    ("K = 1, 2, 3, on Fractions", "K + 1 tokens, bit by bit", TOYS, fractions),
    ("K = 2", "4 tokens and the number of target passes", MORE, passes),
    ("K = 1, 2, 3, with stop ids", "up to 4 tokens", TOYS, stops),
    ("K = 1, 2, 5, N = 0 .. 3", "N tokens", TOYS, cuts),
    ("K by the text so far", "4 tokens", TOYS, past),
    ("temperature, top-k, top-p, penalty on either side", "3 tokens", "18 pairs of toys, 4 tokens",
     sampling),
    ("lookup", "4 tokens", TOYS, lambda: each_pair(lookup, 4, x=(0, 1, 0))),
    ("assisted, stops when unsure", "4 tokens", TOYS,
     lambda: each_pair(partial(assisted, K=2, schedule="constant", threshold=0.4), 4)),
    ("block verification", "4 tokens", TOYS, lambda: each_pair(block, 4)),
    ("token trees, all kinds of siblings", "3-4 tokens", "toys, 3-4 tokens", trees),
    ("K-SEQ, 2 chains", "3 tokens", TOYS, lambda: each_pair(kseq, 3)),
    ("staged", "3 tokens", TOYS, lambda: each_pair(staged, 3)),
    ("staged, with a tree", "3 tokens", TOYS, lambda: each_pair(staged_with_tree, 3)),
    ("Medusa's heads, exact test", "4 tokens", TOYS, lambda: each_pair(with_heads, 4)),
    *((f"`--decoder {name}`", "3 tokens", "toys, 3 tokens, 7 settings", partial(entry, name))
      for name in DECODERS if DECODERS[name].exact(settings(name, {}))
      and not DECODERS[name].greedy),
    ("`--decoder medusa --markov`", "3 tokens", "toys, 3 tokens, 7 settings",
     partial(entry, "medusa", {"markov": True})),
    ("`--decoder eagle --widths dynamic`", "3 tokens", "toys, 3 tokens, 7 settings",
     partial(entry, "eagle", {"widths": "dynamic", "total": 3})),
    ("`--decoder tree --widths dynamic`", "3 tokens", "toys, 3 tokens, 7 settings",
     partial(entry, "tree", {"widths": "dynamic", "total": 3})),
    ("GPT-2 with its cache, K = 2", "4 tokens, against a GPT-2 that forgets",
     "random GPT-2, 3 tokens", cached),
    ("the bundled pair, K = 2, top-k 3", "3 tokens", "tales-small, tales-large, 4 prompts",
     bundled),
]


def measure(cases):
    """Largest deviation and number of branches of all cases together."""
    worst, n_branches = 0, 0
    for outcomes, expected in cases:
        got = defaultdict(int)
        for outcome, probability in branches(outcomes):
            got[outcome] += probability
            n_branches += 1
        worst = max(worst, distance(got, expected))
    return worst, n_branches


def main(words):
    print("| decoder | joint law of | models | worst deviation | branches | seconds |")
    print("|---|---|---|---|---|---|")
    for path, compared, models, cases in ROWS:
        if not words or any(word in f"{path} {compared} {models}" for word in words):
            start = time.perf_counter()
            worst, n_branches = measure(cases())
            seconds = time.perf_counter() - start
            deviation = f"{float(worst):.0e}" if worst else "0"
            print(f"| {path} | {compared} | {models} | {deviation} | {n_branches:,} | "
                  f"{seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
