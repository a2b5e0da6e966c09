"""Santilli et al. (2023), "Accelerating Transformer Inference ... Parallel Decoding". Lossless.

Adds to speculative.py: guesses without a draft, from the target's own rows of the last pass.

    y       a block of K tokens y_1 .. y_K after x: the guesses
    F(y)_t  the target's best token after x and y_1 .. y_(t - 1)

1. Greedy decoding solves K equations, y = F(y). The greedy text is their only solution: y_1
   follows from x, y_2 from x and y_1, and so on.
2. Jacobi's method solves them by steps y <- F(y), which compute all positions from the values
   of the previous step (their Alg. 1). One pass over x and y is one step.
3. F(y)_t is greedy text if y_1 .. y_(t - 1) are. If y_t equals F(y)_t, y_t is greedy text too,
   and the same holds one position later. So F(y) is greedy text up to and including the first
   position where y and F(y) differ. At temperature 0 `verify` appends exactly these tokens.
4. The later tokens of F(y) are the next guesses. K tokens take at most K passes, because each
   pass fixes at least one more token.

Here K = 4. The text grows by a b e, and the next block begins with f g.

    y       a b c d
    F(y)    a b e f g      g follows after d: a pass over K guesses gives K + 1 tokens

The paper decodes greedily, and solves one block before it begins the next; here the block moves
with the text. A guess is not drawn, so its row is one-hot, and the test is exact at every
temperature.
"""

from functools import partial

from sampling import one_hot_rows
from speculative import Step, speculative_step, verify
from variants.registry import GUESSES, Decoder, Models, needing


def guess_block(x, k, rng, block, n_vocab):
    """Return k guesses of a block, and one-hot rows; a short block repeats its last token."""
    last = block[-1] if block else x[-1]
    guesses = (block + [last] * k)[:k]
    return guesses, one_hot_rows(guesses, n_vocab)


def build(models: Models, K: GUESSES = 4) -> Step:
    """Return the step of one text, which keeps the next block between its rounds."""
    target = models.target_rows
    next_block: list[int] = []

    def step(x, n_left, rng):
        nonlocal next_block
        guess = partial(guess_block, block=next_block, n_vocab=models.target.n_vocab)
        result = speculative_step(x, n_left, rng, target, K, guess, models.test)
        # The rows after those of positions that are text now give the end of F(y).
        later_rows = result.p_target[len(result.ids) :]
        next_block = later_rows.argmax(axis=-1).tolist()
        return result

    return step


DECODER = Decoder(
    "jacobi", "Santilli et al. (2023)", "https://arxiv.org/abs/2305.10427",
    idea="guesses with the target's own predictions from the last pass",
    family="no draft model",
    guess=guess_block, test=verify, build=build, needs=needing())
