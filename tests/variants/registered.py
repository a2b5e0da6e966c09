"""What every decoder of the registry must keep, enumerated on toys as small as its flags allow."""

from functools import partial

import numpy as np
from safetensors.numpy import save_file

from exact.law import assert_same_law, law, text_law
from exact.toys import path_by_path, toy
from lib.checkpoints.weights import cut_params, n_params
from sampling import with_sampling
from speculative import complete
from variants import DECODERS, Models, build
from variants.eagle_head import build_head

SMALL = {"K": 2, "widths": (2, 1), "inner_K": 1, "run": 2, "block": 3, "sure": 1.0,
         "costs": (0.1, 1.0, 1.1, 1.2), "columns": 2, "ngram": 2, "pool": 2}
SMALLER = {"kseq": {"K": 1, "chains": 2},  # one level: the branches of two chains multiply
           "eagle": {"widths": (2,)},
           "skip": {"K": 1},  # its draft is a GPT2, and slow
           "coupled": {"sampler": "inverse"}}  # a race has no intervals to cut
N, X = 3, [0, 1, 0]


def params_of(n_vocab):
    """Return weights of a GPT-2 as wide as the vocabulary: wte of ones, three random blocks."""
    hparams = dict(n_vocab=n_vocab, n_ctx=32, n_embd=n_vocab, n_head=1, n_layer=3)
    rng = np.random.default_rng(0)
    params = cut_params(np.empty(n_params(hparams)), hparams, lambda _, *n: rng.normal(size=n))
    return {**params, "wte": np.eye(n_vocab)}


PARAMS = {n_vocab: params_of(n_vocab) for n_vocab in range(2, 7)}  # drawn before any enumeration


class Logits:
    """Give a toy without zeros as a model of logits, of sequences and of trees.

    Its hidden states are the logits. A decoder that runs some of its blocks runs `params`.
    """

    n_head = 1

    def __init__(self, model):
        self.model, self.n_vocab = model, len(model([0])[0])
        self.params = PARAMS[self.n_vocab]

    def __call__(self, ids, n_last=1):
        branches = hasattr(ids, "texts")
        return np.log((path_by_path(self.model) if branches else self.model)(ids, n_last))

    hidden = __call__


def write_heads(folder, n_embd, n_heads=3, n_vocab=3):
    """Random heads, and a table for --markov: bad guesses, which is what losslessness is for."""
    rng = np.random.default_rng(1)
    w, a = rng.normal(size=(2, n_heads, n_embd, n_embd)) / np.sqrt(n_embd)
    b = rng.normal(size=(n_heads, n_embd))
    w1, w2 = rng.normal(size=(n_vocab, 2)), rng.normal(size=(2, n_vocab))
    eagle = {f"eagle/{name}": weight for name, weight in eagle_weights(n_embd).items()}
    save_file({"medusa/w": w, "medusa/a": a, "medusa/b": b, "markov/w1": w1, "markov/w2": w2,
               **eagle}, folder / "heads.safetensors")
    return folder


def eagle_weights(n_embd, seed=1):
    """A random head for eagle.py, large enough that its rows are no even ones: weights by name."""
    rng, weights = np.random.default_rng(seed), {}

    def take(name, *shape):
        if name not in ("wte", "wpe"):  # the target's
            weights[name] = rng.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 1)

    build_head(n_embd, take)
    return weights


def text_and_law(name, flags, sampling, heads=None, x=X):
    """A function of rng that writes three tokens by a decoder, and the law it should have."""
    draft, target = (partial(Logits, toy(3, seed, zeros=0)) for seed in (41, 42))
    small = {flag: value for flag, value in SMALL.items() if flag in DECODERS[name].flags}
    flags = small | SMALLER.get(name, {}) | flags

    def text(rng):  # a new decoder for every run, as some keep a state
        step = build(name, Models(draft(), target(), sampling, heads), flags)
        return tuple(complete(x, step, N, rng))

    return text, text_law(x, with_sampling(target(), **sampling), N)


def assert_keeps_the_distribution(name, flags, sampling, heads=None, x=X):
    """Refuse a decoder under which three tokens have another distribution than the target's."""
    text, expected = text_and_law(name, flags, sampling, heads, x)
    assert_same_law(law(text), expected)
