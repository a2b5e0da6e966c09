"""What every decoder of the registry must keep, enumerated on toys as small as its flags allow."""

from functools import partial

import numpy as np

from sampling import with_sampling
from speculative import complete
from tests.enumerating import assert_same_law, law, text_law
from tests.toys import Logits, toy
from variants import DECODERS, Models, build

SMALL = {"K": 2, "widths": (2, 1), "inner_K": 1, "run": 2, "block": 3}
SMALLER = {"kseq": {"K": 1, "chains": 2},  # one level: the branches of two chains multiply
           "coupled": {"sampler": "inverse"}}  # a race has no intervals to cut
N, X = 3, [0, 1, 0]


def write_heads(path, n_embd, n_heads=3):
    """Random heads: bad guesses, which is what losslessness is for."""
    rng = np.random.default_rng(1)
    w, a = rng.normal(size=(2, n_heads, n_embd, n_embd)) / np.sqrt(n_embd)
    np.savez(path, w=w, a=a, b=rng.normal(size=(n_heads, n_embd)))
    return path


def assert_keeps_the_distribution(name, flags, sampling, heads=None, x=X):
    """Refuse a decoder under which three tokens have another distribution than the target's."""
    draft, target = (partial(Logits, toy(3, seed, zeros=0)) for seed in (41, 42))
    small = {flag: value for flag, value in SMALL.items() if flag in DECODERS[name].flags}
    flags = small | SMALLER.get(name, {}) | flags

    def text(rng):  # a new decoder for every run, as some keep a state
        step = build(name, Models(draft(), target(), sampling, heads), flags)
        return complete(x, step, N, rng)

    assert_same_law(law(text), text_law(x, with_sampling(target(), **sampling), N))
