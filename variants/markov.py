"""DeepSeek (2026), "DSpark": its Markov head, for Medusa's heads. Lossless.

Adds to medusa.py: guesses that depend on one another. All heads read the same hidden state, so the
second guess does not depend on the first. A table of low rank adds the missing scores: a token's
row, times one matrix, is added to the scores of the next position. Guesses are then drawn one after
another, each from a distribution given those before it. That is all a draft is, so speculative.py's
guess and test apply as they are, at every temperature.

    here              DSpark
    state, heads      as in medusa.py; the scores of its heads are the "base logits" of a block
    w1, w2            W_1 [n_vocab, rank], W_2 [rank, n_vocab]: the Markov head
    follows(token)    w1[token] @ w2, which is added to the scores of the position after the token
    p_draft, row t    softmax(heads(state)[t] + follows(token before)), after the sampling settings

DSpark's third part, a head that chooses the number of guesses, is not here.
"""

from functools import partial

import numpy as np

from sampling import with_sampling
from speculative import guess, make_step, verify
from variants import medusa
from variants.registry import Decoder, Flag, whole
from variants.shared.states import States


def guess_by_chain(x, k, rng, state_after, heads, follows, **settings):
    """Return up to k guesses, one per head, and the distributions they were sampled from.

    The last known state is the one after x[:-1], because no pass has read the end of x. The first
    head depends on that last token by its row of the table alone.
    """
    if len(x) == 1:  # no state before it
        return [], []
    scores = heads(state_after(x[:-1]))  # [n_heads, n_vocab]

    def draft(ids, n_last):
        return scores[[len(ids) - len(x)]] + follows(ids[-1])

    return guess(x, min(k, len(scores)), rng, with_sampling(draft, **settings))


def load_table(path, n_vocab, dtype):
    """Return the arrays w1 and w2 in a file of heads as a callable token -> [n_vocab].

    ValueError if the file has none, or was made for a different vocabulary.
    """
    w1, w2 = (np.asarray(array, dtype)
              for array in medusa.read_arrays(path, ("markov/w1", "markov/w2")))
    if not (w1.ndim == w2.ndim == 2 and w1.shape == w2.shape[::-1] and len(w1) == n_vocab):
        raise ValueError(f"need w1 [{n_vocab}, rank] and w2 [rank, {n_vocab}] in {path}, got "
                         f"{w1.shape} and {w2.shape}")
    return lambda token: w1[token] @ w2


def build(models, K: Flag(whole, "guesses per round, at most one per head") = 3):
    """Return the step: a chain of guesses, one per head."""
    heads, model = medusa.load_heads_of(models), States(models.target)
    follows = load_table(medusa.heads_file(models), models.target.n_vocab,
                         models.target.params["wte"].dtype)
    guess = partial(guess_by_chain, state_after=model.state_after, heads=heads, follows=follows,
                    **models.sampling)
    return make_step(with_sampling(model, **models.sampling), K, guess)


DECODER = Decoder(
    "markov", "DeepSeek (2026)", "https://github.com/deepseek-ai/DeepSpec",
    idea="chains Medusa's heads: each guess depends on the one before it",
    guess=guess_by_chain, test=verify, build=build, needs=("heads",))
