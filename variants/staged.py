"""Spector and Ré (2023), "Accelerating ... with Staged Speculative Decoding". Lossless.

Adds to speculative.py: the draft is itself decoded speculatively, with a smaller draft; and its
rows can widen the chain of guesses into a tree.

    inner     a lossless step for the middle model: over a draft or an n-gram model, or staged

Subtle: the inner step is lossless, so a guess has the middle model's distribution. The outer
test takes the middle model's rows, `Round.p_target`; the inner draft's would bias the text.
"""

from functools import partial
from typing import Annotated

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sampling import one_hot_rows
from speculative import Step, draft_and_verify, generate, make_step, verify
from variants.registry import GUESSES, Decoder, Flag, Models, whole
from variants.shared.branches import Tree, with_tree_sampling
from variants.shared.states import prefixes
from variants.tree import draw_siblings, verify_tree


def staged_guess(x, k, rng, inner):
    """Decode k tokens with the inner step; return them and the rows of its target."""
    guesses, p_draft = [], []
    for result in generate(x, inner, k, rng):
        guesses += result.ids
        p_draft += list(result.p_target[: len(result.ids)])
    return guesses, p_draft


def staged_tree(x, k, rng, inner, width):
    """Return the guesses of staged_guess in a tree, each with width - 1 siblings of its row."""
    tree = Tree()
    node = -1
    for token, row in zip(*staged_guess(x, k, rng, inner)):
        rest = row * (np.arange(len(row)) != token)
        siblings = [(token, row), *draw_siblings(rest, width - 1, "distinct", rng)]
        children = [tree.add(node, *sibling) for sibling in siblings]
        node = children[0]  # the chain continues below the guess itself
    return tree, tree.rows()


def ngram(n_vocab, order):
    """Return a draft that counts what followed the last tokens earlier in the text.

    Order 3 looks at the last two tokens, and backs off to the last one and to none. The shorter
    context's row counts as one occurrence. MacKay and Peto (1995).
    """
    def row_after(ids):
        text = np.array(ids)
        row = np.full(n_vocab, 1 / n_vocab)
        for n in range(min(order, len(text))):
            runs = sliding_window_view(text, n + 1)  # all runs of n + 1 tokens
            same = (runs[:, :n] == text[len(text) - n :]).all(axis=1)
            counts = np.bincount(runs[same, n], minlength=n_vocab)
            row = (counts + row) / (counts.sum() + 1)
        return row

    return lambda ids, n_last=1: np.array([row_after(text) for text in prefixes(ids, n_last)])


def build(models: Models,
          K: GUESSES = 4,
          inner_K: Annotated[int, Flag(whole, "guesses per round of the inner step")] = 2,
          order: Annotated[int, Flag(whole, "order of the n-gram model: 3 looks at two "
              "tokens")] = 3,
          width: Annotated[int, Flag(whole, "guesses per position; above 1 the chain becomes "
              "a tree")] = 1) -> Step:
    """Return the step of an n-gram model under the draft under the target."""
    if models.is_greedy and width > 1:
        raise ValueError(f"--width {width} does not apply at --temperature 0, where one token "
                         "has all the mass")
    n_vocab = models.target.n_vocab
    small = counts = ngram(n_vocab, order)
    if models.is_greedy:
        small = lambda ids, n_last=1: one_hot_rows(counts(ids, n_last).argmax(axis=-1), n_vocab)
    inner = draft_and_verify(small, models.draft_rows, inner_K)
    if width == 1:
        return make_step(models.target_rows, K, partial(staged_guess, inner=inner))
    target = with_tree_sampling(models.target, **models.sampling)
    return make_step(target, K, partial(staged_tree, inner=inner, width=width), verify_tree)


DECODER = Decoder(
    "staged", "Spector and Ré (2023)", "https://arxiv.org/abs/2308.04623",
    idea="decodes the draft itself speculatively, with an n-gram model",
    family="a cheaper draft, or a K that adapts",
    guess=staged_guess, test=verify, build=build, tree=(staged_tree, verify_tree))
