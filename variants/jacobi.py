"""Santilli et al. (2023), "Accelerating Transformer Inference ... Parallel Decoding". Lossless.

Adds to speculative.py: guesses without a draft, from the target's own rows of the last pass.

    y       a block of K tokens y_1 .. y_K after x: the guesses
    F(y)_t  the target's best token after x and y_1 .. y_(t - 1)

Greedy decoding solves K equations, y = F(y), and the greedy text is their only solution. One pass
computes all of F(y). This is one step of Jacobi's method, y <- F(y), which computes all positions
from the values of the previous step (their Alg. 1). Up to and including the first
position where y and F(y) differ, F(y) is greedy text: `verify` appends exactly these tokens. The
later tokens of F(y) are the next guesses. K tokens take at most K passes, because each pass fixes
at least one more token.

The paper decodes greedily, and solves one block before it begins the next; here the block moves
with the text. A guess is not drawn, so its row is one-hot, and the test is exact at every
temperature.
"""

from functools import partial

from sampling import one_hot_rows
from speculative import Step, speculative_step, verify
from variants.registry import GUESSES, Decoder, Models


def guess_block(x, k, rng, block, n_vocab):
    """Return the k guesses of a block, and one-hot rows.

    A block of fewer than k tokens is continued by repeating its last token.
    """
    last = (x + block)[-1]  # the text's last token if the block is empty
    guesses = (block + [last] * k)[:k]
    return guesses, one_hot_rows(guesses, n_vocab)


def build(models: Models, K: GUESSES = 4) -> Step:
    """Return the step of one text, which keeps the next block between its rounds."""
    target = models.target_rows
    next_block: list[int] = []

    def step(x, n_left, rng):
        nonlocal next_block
        guess = partial(guess_block, block=next_block, n_vocab=models.target.n_vocab)
        result = speculative_step(x, n_left, rng, target, K, guess)
        # Row t is for the position of guess t. The first len(ids) positions are text now.
        rows_after_text = result.p_target[len(result.ids) :]
        next_block = rows_after_text.argmax(axis=-1).tolist()  # F(y)
        return result

    return step


DECODER = Decoder(
    "jacobi", "Santilli et al. (2023)", "https://arxiv.org/abs/2305.10427",
    idea="guesses with the target's own rows from the last pass",
    family="no draft model",
    guess=guess_block, test=verify, build=build, needs=())
