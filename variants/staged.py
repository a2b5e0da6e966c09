"""Spector and Re (2023), "Accelerating LLM Inference with Staged Speculative Decoding". Lossless.

What it adds to speculative.py: the draft is itself decoded speculatively, by a smaller draft; and
what it wrote on the way serves to widen the chain of guesses into a tree.

    target    the large model
    inner     a lossless step for the middle model: a draft under it, or an n-gram model, or again
              a staged step; whatever it is, its `Round.p_target` holds the middle model's rows
    ngram     a draft that only counts: no weights, never a row without mass

Subtle: a guess is distributed as the middle model's own tokens, for the inner step is lossless. So
the outer test takes the middle model's rows; with the inner draft's the text would be biased.
"""

from functools import partial

import numpy as np

from sampling import one_hot_rows
from speculative import draft_and_verify, generate, make_step, verify
from variants.registry import GUESSES, Decoder, Flag, whole
from variants.tree import Tree, draw_siblings, verify_tree, with_tree_sampling


def staged_guess(x, k, rng, inner):
    """k tokens decoded by the inner step, and the rows that they are distributed by: its target's.

    A model that counts up, guessed two tokens at a time by one that does too:

    >>> count_up = lambda ids, n_last: np.eye(10)[np.array(ids[-n_last:]) + 1]
    >>> inner = draft_and_verify(count_up, count_up, K=1)
    >>> staged_guess([0], 4, np.random.default_rng(0), inner)[0]
    [1, 2, 3, 4]
    """
    guesses, p_draft = [], []
    for round in generate(x, inner, k, rng):
        guesses += round.ids
        p_draft += list(round.p_target[: len(round.ids)])
    return guesses, p_draft


def staged_tree(x, k, rng, inner, width):
    """The same as a tree: beside every guess, width - 1 others from the row it was drawn from.

    The rows are there already, so the other guesses cost nothing but their rows in the target's
    pass.
    """
    tree, node = Tree(), -1
    for token, row in zip(*staged_guess(x, k, rng, inner)):
        rest = row * (np.arange(len(row)) != token)
        others = draw_siblings(rest, width - 1, "distinct", rng)
        trunk = tree.add(node, token, row)
        for other, its_row in others:
            tree.add(node, other, its_row)
        node = trunk
    return tree, tree.rows()


def ngram(n_vocab, order=3, corpus=(), weight=1.0):
    """A draft that counts what followed the last tokens earlier in the text, with back-off.

    Parameters
    ----------
    n_vocab : int
    order : int, >= 1
        3 looks at the last two ids, and backs off to the last one and to none.
    corpus : sequence of int
        More text to count in, put before the sequence.
    weight : float, > 0
        How many occurrences the shorter context's row counts for. MacKay and Peto (1995).

    Returns
    -------
    callable `(ids, n_last) -> [n_last, n_vocab]` of probabilities, all of them above 0
    """
    def row_after(ids):
        text, row = np.array([*corpus, *ids]), np.full(n_vocab, 1 / n_vocab)
        for n in range(min(order, len(text))):
            ends = np.ones(len(text) - n, dtype=bool)  # is text[i : i + n] the last n tokens?
            for j in range(n):
                ends &= text[j : len(text) - n + j] == text[len(text) - n + j]
            counts = np.bincount(text[n:][ends], minlength=n_vocab)
            row = (counts + weight * row) / (counts.sum() + weight)
        return row

    return lambda ids, n_last=1: np.array([row_after(ids[: len(ids) - i])
                                           for i in reversed(range(n_last))])


def build(models, K: GUESSES = 4,
          inner_K: Flag(whole, "guesses per round of the inner stage") = 2,
          order: Flag(whole, "of the n-gram model: 3 looks at two tokens") = 3,
          width: Flag(whole, "guesses per position; above 1 the chain becomes a tree") = 1):
    """Return the step of an n-gram model under the draft under the target."""
    if models.is_greedy and width > 1:
        raise ValueError(f"need --width 1 at --temperature 0, where one token has all the mass, "
                         f"got {width}")
    n_vocab = models.target.n_vocab
    small = counts = ngram(n_vocab, order)
    if models.is_greedy:
        small = lambda ids, n_last=1: one_hot_rows(counts(ids, n_last).argmax(axis=-1), n_vocab)
    inner = draft_and_verify(small, models.probabilities("draft"), inner_K)
    if width == 1:
        return make_step(models.probabilities("target"), K, partial(staged_guess, inner=inner))
    target = with_tree_sampling(models.target, **models.sampling)
    return make_step(target, K, partial(staged_tree, inner=inner, width=width), verify_tree)


DECODER = Decoder(
    "staged", "Spector and Re (2023)", "https://arxiv.org/abs/2308.04623",
    idea="decodes the draft itself speculatively, with an n-gram model",
    guess=staged_guess, test=verify, build=build, tree=(staged_tree, verify_tree))
