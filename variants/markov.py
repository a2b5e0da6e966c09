"""DeepSeek (2026), "DSpark": its Markov head, for Medusa's heads. Lossless.

Adds to medusa.py: guesses that depend on one another. Medusa's heads all read the same hidden
state, so the second guess does not depend on the first. Here a table of low rank adds what a
token implies for the next position. Guesses are drawn one after another, each with a
distribution that depends on the guess before it, as from any draft. So speculative.py's guess
and test apply at every temperature.

    here             DSpark
    heads            as in medusa.py; their scores are the "base logits" of a block
    w1, w2           W_1 [n_vocab, rank], W_2 [rank, n_vocab]: the Markov head
    follows(token)   w1[token] @ w2, which is added to the scores of the next position
    p_draft, row t   sampling.warp of heads(state)[t] + follows(the token before guess t)
"""

from functools import partial
from typing import Annotated

from cache import check_ids, to_host
from sampling import with_sampling
from speculative import Step, guess, make_step, verify
from variants.medusa import load_heads
from variants.registry import Decoder, Flag, Models, needing, whole
from variants.shared.heads import open_heads


def guess_by_chain(x, k, rng, state_after, heads, follows, **settings):
    """Return up to k guesses, one per head, and the distributions they were sampled from."""
    if len(x) == 1:  # no state before a single token
        return [], []
    # The target has not read the last token of x yet, so the last state is that of x[:-1].
    scores = heads(state_after(x[:-1]))  # [n_heads, n_vocab]

    def draft(ids, n_last):  # -> [1, n_vocab]
        head = len(ids) - len(x)  # ids is x and the guesses so far: one head for each
        return scores[[head]] + follows(ids[-1])  # [[head]] keeps the axis of rows

    return guess(x, min(k, len(scores)), rng, with_sampling(draft, **settings))


def load_table(weight, n_vocab):
    """Return the target's own table as a callable token -> [n_vocab]."""
    rank = len(weight("markov/w2"))  # read without a shape, because only the file has the rank
    w1 = weight("markov/w1", n_vocab, rank)
    w2 = weight("markov/w2", rank, n_vocab)

    def follows(token):  # -> [n_vocab]
        check_ids([token], n_vocab)
        return to_host(w1[token] @ w2)

    return follows


def build(models: Models,
          K: Annotated[int, Flag(whole, "guesses per round, at most one per head")] = 3
          ) -> Step:
    """Return the step: a chain of guesses, one per head."""
    weight = open_heads(models)
    make_guesses = partial(guess_by_chain, state_after=models.target.state_after,
                           heads=load_heads(weight, models.target.params),
                           follows=load_table(weight, models.target.n_vocab),
                           **models.sampling)
    return make_step(models.target_rows, K, make_guesses, models.test)


DECODER = Decoder(
    "markov", "DeepSeek (2026)", "https://github.com/deepseek-ai/DeepSpec",
    idea="chains Medusa's heads, so that each guess depends on the guess before it",
    family="heads on the target",
    guess=guess_by_chain, test=verify, build=build, needs=needing("heads"))
