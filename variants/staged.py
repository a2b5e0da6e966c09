"""Spector and Ré (2023), "Accelerating ... with Staged Speculative Decoding". Lossless.

Adds to speculative.py: the draft is itself decoded speculatively, with a smaller draft.
The draft's rows can widen the chain of guesses into a tree.

    middle    the draft of the outer step, and the target of the inner step
    inner     a lossless step for the middle model, which has an even smaller draft

Subtle: the inner step is lossless, so a guess has the middle model's distribution, and the
outer test gets the middle model's rows, `p_target` of the inner rounds. With the inner draft's
rows the text would be biased.
"""

from functools import partial
from typing import Annotated

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sampling import with_sampling
from speculative import Step, draft_and_verify, generate, make_step, verify
from variants.registry import GUESSES, Decoder, Flag, Models, whole
from variants.shared.branches import Tree, texts_of_rows, with_tree_sampling
from variants.tree import draw_siblings, verify_tree, without


def staged_guess(x, k, rng, inner):
    """Decode k tokens with the inner step; return the tokens and the middle model's rows."""
    guesses, p_draft = [], []
    for result in generate(x, inner, k, rng):
        guesses += result.ids
        # Row t is for the position of token t; rows after a rejection follow discarded tokens.
        p_draft += list(result.p_target[: len(result.ids)])
    return guesses, p_draft


def staged_tree(x, k, rng, inner, width):
    """Return the guesses of staged_guess as a chain, with width - 1 siblings of each guess."""
    tree = Tree()
    node = -1  # the root
    guesses, p_draft = staged_guess(x, k, rng, inner)
    for token, row in zip(guesses, p_draft):
        # The guess is the first of `width` draws without replacement; the siblings follow.
        siblings = draw_siblings(without(row, token), width - 1, "distinct", rng)
        parent = node
        node = tree.add(parent, token, row)  # the chain continues below the guess itself
        for sibling, its_row in siblings:
            tree.add(parent, sibling, its_row)
    return tree, tree.rows()


def ngram(n_vocab, order=3):
    """Return a draft that counts what followed the last tokens earlier in the text.

    A context is the last n tokens: order 3 uses n = 0, 1 and 2. Its row adds the counts of the
    tokens that followed it and the row of the next shorter context, which counts as one
    occurrence. MacKay and Peto (1995).
    """
    def row_of_next(text):  # -> [n_vocab]
        ids = np.array(text)
        row = np.full(n_vocab, 1 / n_vocab)
        for n in range(min(order, len(ids))):
            runs = sliding_window_view(ids, n + 1)  # all runs of n + 1 tokens
            context = ids[len(ids) - n :]  # ids[-n:] would be the whole text for n = 0
            begins_with_it = (runs[:, :n] == context).all(axis=1)  # [number of runs] of bool
            next_tokens = runs[begins_with_it, n]
            counts = np.bincount(next_tokens, minlength=n_vocab)
            row = (counts + row) / (counts.sum() + 1)
        return row

    def draft(ids, n_last=1):  # -> [n_last, n_vocab]
        return np.array([row_of_next(text) for text in texts_of_rows(ids, n_last)])

    return draft


def build(models: Models,
          K: GUESSES = 4,
          inner_K: Annotated[int, Flag(whole, "guesses per round of the inner step")] = 2,
          width: Annotated[int, Flag(whole, "guesses per position; above 1 they form a tree "
              "instead of a chain")] = 1) -> Step:
    """Return the step of the target, whose draft is decoded with an n-gram model as draft."""
    if models.is_greedy and width > 1:
        raise ValueError(f"--width {width} does not apply at --temperature 0, where one "
                         "token has all the probability")
    smallest = ngram(models.target.n_vocab)
    if models.is_greedy:
        smallest = with_sampling(smallest, temperature=0)  # also of a row of probabilities
    inner = draft_and_verify(smallest, models.draft_rows, inner_K)
    if width == 1:
        return make_step(models.target_rows, K, partial(staged_guess, inner=inner),
                         models.test)
    target = with_tree_sampling(models.target, **models.sampling)
    return make_step(target, K, partial(staged_tree, inner=inner, width=width), verify_tree)


DECODER = Decoder(
    "staged", "Spector and Ré (2023)", "https://arxiv.org/abs/2308.04623",
    idea="decodes the draft itself speculatively, with an n-gram model",
    family="a cheaper draft, or a K that adapts",
    guess=staged_guess, test=verify, build=build, tree=(staged_tree, verify_tree),
    needs=lambda settings: {"draft", "tree"} if settings["width"] > 1 else {"draft"})
