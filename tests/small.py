"""Define what tests of decoders need: toys as models of logits, small flags, random weights.

    FORMS      decoder -> its forms, in which it is exact and can be enumerated
    LOSSY      lossy decoder -> flags, and the distribution of a round's first token with them
"""

from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from exact.expected import along_paths
from gpt2 import GPT2
from lib.checkpoints.weights import cut_params, n_params, random_params
from measure.passes import n_guesses_in_a_row
from sampling import residual
from speculative import generate, make_step, verify
from tests.toys import context_free
from variants import DECODERS, Models, build
from variants.registry import Costs
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import texts_of_rows
from variants.shared.eagle_head import build_head
from variants.tree import guess_shape, verify_tree

COSTS = Costs(0.1, [1.0, 1.1, 1.2, 1.3])
# one setting at a time, so that a test can see that it is dropped
WARM_SETTINGS = [dict(temperature=1.0), dict(temperature=1.0, top_k=2),
                 dict(temperature=1.0, top_p=0.6),
                 dict(temperature=1.0, repetition_penalty=2.5)]
SETTINGS = [*WARM_SETTINGS, dict(temperature=0.4), dict(temperature=0.0),
            dict(temperature=0.0, repetition_penalty=2.5)]

class Form(NamedTuple):
    """Flags with which a decoder is exact and can be enumerated, and where these differ.

    The last two are additions to the flags, in the first form of a decoder.
    """

    flags: dict
    warm_only: bool = False  # needs a temperature
    slow: bool = False  # with all tokens of the toys: rounds after the first are weekly
    deep: dict = {"K": 3}  # for rounds of three guesses one after the other
    equal: dict | None = {}  # so that no guess of a draft equal to the target is rejected


RIVALS = dict(warm_only=True, slow=True)  # three on one level
FORMS = {  # the first is run with every setting and pair
    "speculative": [Form({"K": 2}), Form({"K": "auto"}), Form({"K": 1})],
    "lookup": [Form({"K": 2, "max_ngram": 2})],
    "suffix": [Form({"K": 2, "sure": 1.0, "cap": 2}, deep={"cap": 3}, equal={"sure": 99.0}),
               Form({"sure": 0.0, "depth": 3}), Form({"sure": 99.0, "K": 2}),
               *(Form({"sure": 1.0, "cap": 2, "otherwise": words}, slow="2,1" in words)
                 for words in ("quantized --K 2 --guesser 'eagle --K 1'", "eagle --K 2",
                               "eagle --widths 2,1", "block --guesser eagle --K 2",
                               "quantized --K 2"))],
    "jacobi": [Form({"K": 2})],
    "skip": [Form({"K": 1}), Form({"K": 1, "exit": 2})],
    "quantized": [Form({"K": 2}), Form({"K": "auto"}),
                  *(Form({"K": 2, "guesser": words}) for words in ("eagle --K 1", "lookup"))],
    "assisted": [Form({"K": 2}, equal={"confidence": 0.0}),
                 Form({"K": 2, "schedule": "heuristic", "confidence": 0.0})],
    "stopping": [Form({}, deep={})],
    # match compares draws: only a greedy draft that equals the target has all guesses accepted
    "match": [Form({"K": 2}, equal=None), Form({"K": 2, "guesses": "drawn"})],
    "coupled": [Form({"K": 2, "sampler": "inverse"})],  # a race has no intervals to cut
    "block": [Form({"K": 2}), *(Form({"K": 2, "guesser": words}) for words in (
        "eagle", "assisted --confidence 0.4", "markov"))],
    "lenient": [Form({"K": 2, "lenience": 1.0})],
    "big_little": [Form({"run": 2, "fallback": 1.5}, deep={"run": 3}, equal={"fallback": 0.0})],
    "cascade": [Form({"K": 2, "price": -2.0}, equal={"price": 0.0})],
    "tree": [Form({"widths": (2, 1)}, deep={"widths": (2, 1, 1)}, equal={"widths": (2,)}),
             Form({"widths": "dynamic", "total": 3}), Form({"widths": "auto"}),
             Form({"widths": (3,), "siblings": "independent"}, **RIVALS),
             Form({"widths": (2, 2), "siblings": "top"})],
    "traversal": [Form({"widths": (2, 1)}, deep={"widths": (2, 1, 1)}, equal={"widths": (2,)}),
                  Form({"widths": (3,), "siblings": "independent"}, **RIVALS),
                  Form({"widths": (2, 2), "siblings": "top"})],
    # the best of several paths has rows of its own
    "multipath": [Form({"K": 1}, deep={"K": 3, "paths": 1}, equal={"K": 2, "paths": 1}),
                  Form({"K": 2}, slow=True), Form({"K": 1, "paths": 3}, slow=True)],
    "kseq": [Form({"K": 1, "chains": 2}, deep={"K": 2}),
             Form({"K": 1, "chains": 3}, slow=True)],
    "lookahead": [Form({"columns": 2, "ngram": 2, "pool": 2}, deep={"ngram": 4}),
                  Form({"columns": 3, "ngram": 3, "pool": 1})],
    "staged": [Form({"K": 2, "inner_K": 1}, equal={"inner_K": 2})],
    "medusa": [Form({"widths": (2, 1)}, deep={"widths": (2, 1, 1)})],
    "markov": [Form({"K": 2})],
    "eagle": [Form({"K": 2}), Form({"widths": (2,)}),
              Form({"widths": "dynamic", "total": 3, "K": 2}), Form({"widths": "auto"})],
    "blockwise": [Form({"block": 3}, deep={"block": 4})],
}


def forms(name):
    """Return the forms of a decoder to enumerate; --K 2 for a decoder that FORMS does not have."""
    return FORMS.get(name, [Form({"K": 2})])


def sampling_of(name, temperature=1.0):
    """Return this temperature as sampling settings, or 0 for a greedy decoder."""
    return dict(temperature=0.0 if DECODERS[name].greedy else temperature)


def lively_params(hparams, seed=0, scale=0.5, dtype=np.float64):
    """Return random weights of a GPT-2, so large that attention and GELU matter."""
    flat = scale * np.random.default_rng(seed).normal(size=n_params(hparams))
    return cut_params(flat.astype(dtype), hparams)


def params_of(n_vocab):
    """Return a GPT-2 as wide as the vocabulary: wte is the identity, the rest random."""
    hparams = dict(n_vocab=n_vocab, n_ctx=32, n_embd=n_vocab, n_head=1, n_layer=3)
    return {**lively_params(hparams, scale=1), "wte": np.eye(n_vocab)}


PARAMS = {n_vocab: params_of(n_vocab) for n_vocab in range(2, 7)}  # before any enumeration


@cache
def log_row(model, text):
    """Return a toy's row after a text as logits."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(model(list(text))[-1]), -1e6)  # finite; the probability is 0


class Logits:
    """Return a toy's rows as logits, for sequences and for trees.

    Its hidden states are the logits. A decoder that runs some of its blocks runs `params`.
    """

    def __init__(self, model):
        self.model = model
        self.n_vocab = len(model([0])[0])
        self.params = PARAMS[self.n_vocab]
        self.n_head = 1
        self.dtype = self.params["wte"].dtype
        self.n_calls = 0

    def __call__(self, ids, n_last=1):
        self.n_calls += 1
        texts = texts_of_rows(ids, n_last)
        rows = np.array([log_row(self.model, tuple(text)) for text in texts])
        rows.flags.writeable = False
        return rows

    hidden = __call__

    def with_params(self, params):
        return GPT2(params, n_head=1)

    def logits(self, states):
        return states


def tiny_params(n_ctx=32):
    """Return random weights of a GPT-2 of 13 tokens with three attention heads, 12 wide."""
    hparams = dict(n_vocab=13, n_ctx=n_ctx, n_embd=12, n_head=3, n_layer=2)
    return random_params(hparams, np.random.default_rng(0), np.float64)


def models_of(pair, sampling, folder=None):
    """Return fresh models: draft and target of a pair, with costs."""
    return Models(*map(Logits, pair), sampling, folder, COSTS)


def stepper(name, flags, pair, sampling, folder=None):
    """Return `() -> step`: a new decoder for every run, because some keep a state."""
    return lambda: build(name, models_of(pair, sampling, folder), flags)


def tree_step(draft, target, widths, siblings="distinct", verify=verify_tree):
    """Return the step of a tree for toys that give probabilities."""
    guess = partial(guess_shape, draft=along_paths(draft), shape=uniform_shape(widths),
                    siblings=siblings)
    return make_step(along_paths(target), len(widths), guess, verify)


def of_probabilities(draft, target, costs=None, n_vocab=None):
    """Return what a decoder's `build` reads of Models, for models that give probabilities."""
    models = SimpleNamespace(draft_rows=draft, target_rows=target, costs=costs,
                             is_greedy=False, target=SimpleNamespace(n_vocab=n_vocab),
                             test=verify)
    models.warm = models
    return models


def fixed_acceptance(alpha):
    """Return a context-free draft and target with this acceptance rate."""
    return context_free([alpha, 1 - alpha]), context_free([1.0, 0.0])


def n_rejected(step, x, N, rng):
    """Return for how many positions of a text there was a guess and none was accepted."""
    return sum(n_guesses_in_a_row(result.guesses) + 1 - len(result.ids)
               for result in generate(x, step, N, rng))


def write_heads(folder, params, n_heads=3, keep=None):
    """Write random heads of a target, whose guesses are bad, to a folder; return the folder."""
    rng = np.random.default_rng(1)
    n_vocab, n_embd = params["wte"].shape
    w, a = rng.normal(size=(2, n_heads, n_embd, n_embd)) / np.sqrt(n_embd)
    weights = {"medusa/w": w, "medusa/a": a, "medusa/b": rng.normal(size=(n_heads, n_embd)),
               "markov/w1": rng.normal(size=(n_vocab, 2)),
               "markov/w2": rng.normal(size=(2, n_vocab))}
    eagle = {f"eagle/{name}": weight for name, weight in eagle_weights(params).items()}
    if keep is not None:
        eagle["eagle/keep"] = np.array(keep, np.int32)
    save_file(weights | eagle, folder / "heads.safetensors")
    return folder


def eagle_weights(params, seed=1):
    """Return random weights of EAGLE's head by name, large enough that its rows are uneven."""
    rng = np.random.default_rng(seed)
    weights = {}

    def take(name, *shape):
        weights[name] = rng.normal(size=shape) / np.sqrt(shape[0] if len(shape) > 1 else 1)

    build_head(params, take)
    return weights


def lenient_law(p_draft, p_target, lenience):  # [n_vocab], [n_vocab] -> [n_vocab]
    """Return the distribution of one token under lenience, in closed form."""
    accepted = np.minimum(p_draft, p_target / lenience)
    return accepted + (1 - accepted.sum()) * residual(p_target, p_draft)


def more_confident(p_draft, p_target):  # [n_vocab], [n_vocab] -> [n_vocab]
    """Return the row that the cascade chooses at alpha = 0: the draft's if both are equal."""
    return max(p_draft, p_target, key=np.max)


# The flags make rounds of one guess. The function takes the draft's and the target's row.
LOSSY = {
    "lenient": ({"K": 1, "lenience": 0.5}, partial(lenient_law, lenience=0.5)),
    "cascade": ({"K": 1, "price": 0.0}, more_confident),
}


def needs(name, flags=None):
    """Return what a decoder needs with these flags, or with its defaults."""
    return DECODERS[name].needs(DECODERS[name].settings(flags or {}))
