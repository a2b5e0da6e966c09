"""Spector and Re (2023), "Accelerating LLM Inference with Staged Speculative Decoding". Lossless.

What it adds to speculative.py: the draft is itself decoded speculatively, by a smaller draft; and
what it wrote on the way serves to widen the chain of guesses into a tree.

    target    the large model
    inner     a lossless step for the middle model: a draft under it, or an n-gram model, or again
              a staged step; whatever it is, its `Round.p_target` holds the middle model's laws
    ngram     a draft that only counts: no weights, never a row without mass

Subtle: a guess has the middle model's law, for the inner step is lossless. So the middle model's
rows stand in the outer test; with the inner draft's rows the text would have a wrong law.
"""

import numpy as np

from speculative import Round, generate, verify
from variants.tree import Tree, draw_siblings, propose, tree_round, verify_tree


def staged_guess(x, inner, k, rng):
    """k ids decoded by the inner step, and the laws that they have: those of its own target."""
    guesses, p_draft = [], []
    for round in generate(x, inner, k, rng) if k else ():
        guesses += round.ids
        p_draft += list(round.p_target[: len(round.ids)])
    return guesses, p_draft


def staged_step(x, room, rng, inner, target, K):
    """One round of the outer stage. As it is a lossless step, it can be an inner one itself.

    Examples
    --------
    Three stages of models that all count up: 2 * 2 guesses in the middle, then 1 more at the top.

    >>> from functools import partial
    >>> from speculative import speculative_step
    >>> count_up = lambda ids, n_last: np.eye(10)[np.array(ids[-n_last:]) + 1]
    >>> inner = partial(speculative_step, draft=count_up, target=count_up, K=1)
    >>> staged_step([0], 9, np.random.default_rng(0), inner, count_up, K=4).ids
    [1, 2, 3, 4, 5]
    """
    guesses, p_draft = staged_guess(x, inner, min(K, room - 1), rng)
    p_target = target(x + guesses, len(guesses) + 1)
    return Round(verify(guesses, p_draft, p_target, rng), guesses, p_draft, p_target)


def staged_tree_step(x, room, rng, inner, target, K, width):
    """One round with a tree: beside every guess, width - 1 others from the row it was drawn from.

    The rows are there already, so the other guesses cost nothing but their places in the target's
    pass. `target` is a callable for trees (tree.py).
    """
    tree, node = Tree([], [], []), -1
    for token, law in zip(*staged_guess(x, inner, min(K, room - 1), rng)):
        rest = law * (np.arange(len(law)) != token)
        others = draw_siblings(rest, width - 1, "distinct", rng)
        trunk = propose(tree, node, token, law)
        for other, p_draft in others:
            propose(tree, node, other, p_draft)
        node = trunk
    return tree_round(tree, x, target, verify_tree, rng)


def ngram(n_vocab, order=3, corpus=(), weight=1.0):
    """A draft that counts what followed the last ids earlier in the text, with back-off.

    Parameters
    ----------
    n_vocab : int
    order : int, >= 1
        3 looks at the last two ids, and backs off to the last one and to none.
    corpus : sequence of int
        More text to count in, put before the sequence.
    weight : float, > 0
        How many occurrences the shorter context's law counts for. MacKay and Peto (1995).

    Returns
    -------
    callable `(ids, n_last) -> [n_last, n_vocab]` of probabilities, all of them above 0
    """
    def law(ids):
        text, row = np.array([*corpus, *ids]), np.full(n_vocab, 1 / n_vocab)
        for n in range(min(order, len(text))):
            ends = np.ones(len(text) - n, dtype=bool)  # is text[i : i + n] the last n ids?
            for j in range(n):
                ends &= text[j : len(text) - n + j] == text[len(text) - n + j]
            counts = np.bincount(text[n:][ends], minlength=n_vocab)
            row = (counts + weight * row) / (counts.sum() + weight)
        return row

    return lambda ids, n_last=1: np.array([law(ids[: len(ids) - i])
                                           for i in reversed(range(n_last))])
