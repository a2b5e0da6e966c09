"""Stern et al. (2018), "Blockwise Parallel Decoding". Lossless with the exact criterion only.

The ancestor of all the others, and of Medusa in particular: heads, but one chain of their best
guesses instead of a tree, and greedy decoding only. What it adds to medusa.py is its test.

    here               Stern et al. (2018)
    row of p_target    p_1, the model itself, at temperature 1 (the criteria look at its order)
    guess t            the best id of p_(t + 2): head t
    kept + 1           k-hat, how far the block is right; the + 1 is p_1's own next id
    top_k              the top-k selection criterion of Sec. 5.1 (1: exact)
    minimum            the minimum block size, l in Sec. 5.3 (1: exact): ids a round at least

Proposing and scoring are one pass (Sec. 4), for the state that the heads look at comes with it. The
distance criterion of Sec. 5.2 is for ids that are numbers, such as pixels; text has none.
"""

import numpy as np

from variants.medusa import medusa


def in_top(row, token, top_k):
    """Is the id one of the row's top_k best (the lowest ids first among equals)?"""
    rank = np.count_nonzero(row > row[token]) + np.count_nonzero(row[:token] == row[token])
    return rank < top_k


def blockwise_verify(tree, p_target, rng, top_k=1, minimum=1):
    """Keep the guesses before the first to fail, minimum - 1 at least; add the target's best id."""
    guesses = tree.tokens
    fails = (t for t, token in enumerate(guesses)
             if t >= minimum - 1 and not in_top(p_target[t], token, top_k))
    n = next(fails, len(guesses))
    return guesses[:n] + [int(p_target[n].argmax())]


def blockwise(target, heads, block=4, top_k=1, minimum=1):
    """Build the step of one text: medusa.py's, with a chain for a tree.

    Parameters
    ----------
    target : callable `(ids, tokens, parents) -> (probabilities at temperature 1, states)`
    heads : callable state -> [n_heads, n_vocab]
    block : int, >= 1
        Ids a round at most: one from each head (fewer if there are fewer), and the target's own.
    top_k, minimum : int, >= 1
        Both 1: the text of the target's greedy decoding.

    Raises
    ------
    ValueError
        If one of them is below 1, or the minimum above the size of the block.
    """
    if top_k < 1 or not 1 <= minimum <= block:
        raise ValueError(f"need top_k >= 1 and 1 <= minimum <= block, got top_k = {top_k}, "
                         f"minimum = {minimum}, block = {block}")
    chain = [(0,) * n for n in range(1, block)]
    return medusa(target, heads, chain, lambda tree, p_target, rng: blockwise_verify(
        tree, p_target, rng, top_k, minimum))
