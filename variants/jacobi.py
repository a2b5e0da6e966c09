"""Santilli et al. (2023), "Accelerating Transformer Inference ... Parallel Decoding". Lossless.

Adds to speculative.py: no draft. The guesses are the target's own, from rows of the last pass.

    y = F(y)   greedy decoding of a block y_1 .. y_K, written as K equations whose only solution
               is its text: F(y)_t is the target's best token after x and y_1 .. y_(t - 1)

One pass computes all of F(y). It is one step of Jacobi's method for these equations, y <- F(y):
all positions at once, each from the values of the previous step (their Alg. 1). As far as y and
F(y) agree, both are greedy text, and so is one more token of F(y): `verify` returns exactly
these. The rest of F(y) are the next guesses. K tokens take at most K passes, because each pass
fixes at least one more token.

The paper decodes greedily, and solves one block before it begins the next; here the block moves
with the text. A guess is not drawn: its row is one-hot, and the test exact at any temperature.
"""

from functools import partial

from sampling import one_hot_rows
from speculative import Step, speculative_step, verify
from variants.registry import GUESSES, Decoder, Models


def guess_block(x, k, rng, block, n_vocab):
    """Return the block, cut or continued with its last token to k guesses, and one-hot rows."""
    guesses = (block + (x + block)[-1:] * k)[:k]
    return guesses, one_hot_rows(guesses, n_vocab)


def build(models: Models, K: GUESSES = 4) -> Step:
    """Return the step of one text, which keeps the block between its rounds: no draft model."""
    target = models.target_rows
    block: list[int] = []
    guess = partial(guess_block, block=block, n_vocab=models.target.n_vocab)

    def step(x, n_left, rng):
        result = speculative_step(x, n_left, rng, target, K, guess)
        rows = result.p_target[len(result.ids) :]  # past the text
        block[:] = rows.argmax(axis=-1).tolist()  # F(y)
        return result

    return step


DECODER = Decoder(
    "jacobi", "Santilli et al. (2023)", "https://arxiv.org/abs/2305.10427",
    idea="guesses with the target's own rows from the last pass",
    family="no draft model",
    guess=guess_block, test=verify, build=build, needs=())
