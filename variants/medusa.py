"""Cai et al. (2024), "Medusa". Lossless with the exact test, not lossless with the typical one.

Adds to tree.py: a draft without a model. A few small heads on the target's last hidden state
guess the next tokens, each head one position further on, and their best guesses form a tree.

    state      the target's hidden state, after ln_f, of the last token that the target has
               read: the token before the last token of x
    heads      callable state -> [n_heads, n_vocab] of scores: row 0 is for the token after x
    choices    the shape of the tree, paths of ranks: (0,) is head 0's best token, (0, 2) is
               head 1's third best token below it. A prefix of a choice is a choice

This round's pass also computes the state that the next round reads (states.py). The last token
of a round is what the paper calls the root of the next tree.
"""

from functools import partial
from typing import Annotated

import numpy as np

from cache import to_host, unembed
from sampling import sample
from speculative import Step, make_step
from variants.registry import Decoder, Flag, Models, needing
from variants.shared import branches
from variants.shared.best_tree import n_levels, uniform_shape
from variants.shared.heads import open_heads
from variants.tree import WIDTHS, verify_tree


def load_heads(weight, params, n_levels=1):
    """Return the target's own heads, n_levels or more, as [n_embd] -> [n_heads, n_vocab].

    Head k is unembed((h + SiLU(h @ w[k] + b[k])) @ a[k]): Sec. 3.1.1 with W_2 = wte a[k].T
    (the paper's vectors are columns, ours are rows), without a separate unembedding.
    """
    n_embd = params["wte"].shape[1]
    # Read without a shape, because only the file has the number of heads.
    n_heads = len(weight("medusa/b"))
    if n_levels > n_heads:
        raise ValueError(f"need at most {n_heads} levels of guesses, one per head of this "
                         f"target, got {n_levels}")
    w = weight("medusa/w", n_heads, n_embd, n_embd)
    b = weight("medusa/b", n_heads, n_embd)
    a = weight("medusa/a", n_heads, n_embd, n_embd)

    def heads(h):
        z = h @ w + b  # [n_heads, n_embd]
        # SiLU is z times the sigmoid of z, here (1 + tanh(z / 2)) / 2, which never overflows.
        x = h + z * (1 + np.tanh(z / 2)) / 2
        # n_heads products, each of a head's row and the head's own matrix.
        states = (x[:, None, :] @ a)[:, 0, :]  # [n_heads, n_embd]
        return to_host(unembed(states, params))

    return heads


def guess_by_heads(x, k, rng, state_after, heads, choices):
    """Return the heads' tree for the next k positions, an empty one if x has a single token."""
    if len(x) == 1:  # no state before a single token
        return branches.Tree(), []
    # The target has not read the last token of x yet, so the last state is that of x[:-1].
    scores = heads(state_after(x[:-1]))
    n_heads, n_vocab = scores.shape
    deepest = min(k, n_heads)  # one level per head
    fitting = [ranks for ranks in choices if len(ranks) <= deepest and max(ranks) < n_vocab]
    largest_rank = max(map(max, fitting), default=0)
    # best[level][rank] is the token of this rank by the scores of the level's head.
    best = [branches.best_ids(row, 1 + largest_rank) for row in scores]
    paths = []
    for ranks in sorted(fitting, key=len):  # shorter paths first, because they are the parents
        paths.append([best[level][rank] for level, rank in enumerate(ranks)])
    tree = branches.tree_of_paths(paths, n_vocab)
    return tree, tree.rows()


def is_typical(row, epsilon, delta):  # [n_vocab] -> [n_vocab] of bool
    """Return whether each token has p_target > min(epsilon, delta exp(-H)), H in nats."""
    positive = np.where(row > 0, row, 1)  # so that 0 log 0 becomes 0 log 1, which is 0
    entropy = -(row * np.log(positive)).sum()
    return row > min(epsilon, delta * np.exp(-entropy))


def verify_typical(tree, p_draft, p_target, rng, epsilon=0.09, delta=0.3):
    """Accept the longest path of typical tokens, the most probable of equals; add one token."""
    # passed[node] is the length and the probability of the node's path. The root always passes.
    passed = {-1: (0, 1.0)}
    # Parents come before their children.
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
        row = branches.row_after(p_target, parent)
        if parent in passed and is_typical(row, epsilon, delta)[token]:
            length, probability = passed[parent]
            passed[node] = (length + 1, probability * row[token])
    # Pairs compare by length, and then by probability.
    end = max(passed, key=passed.get)
    path = [] if end == -1 else tree.paths()[end]
    return path + [sample(branches.row_after(p_target, end), rng)]


def medusa_step(models, choices, test, **settings):
    """Return the step of one text, for any test of a tree (blockwise.py has its own)."""
    target = models.target  # its passes leave the states that the heads read
    heads = load_heads(open_heads(models), target.params, n_levels(choices))
    guess = partial(guess_by_heads, state_after=target.state_after, heads=heads,
                    choices=choices)
    rows = branches.with_tree_sampling(target, **settings)
    return make_step(rows, n_levels(choices), guess, test)


def build(models: Models,
          widths: WIDTHS = (3, 2, 1),
          acceptance: Annotated[str, Flag(str, "acceptance rule; typical is lossy",
              ("exact", "typical"))] = "exact") -> Step:
    """Return the step of the paper's heads with either test, over a tree of these widths."""
    choices = uniform_shape(widths)
    test = verify_typical if acceptance == "typical" else verify_tree
    return medusa_step(models, choices, test, **models.sampling)


DECODER = Decoder(
    "medusa", "Cai et al. (2024)", "https://arxiv.org/abs/2401.10774",
    idea="guesses with small heads on the target's last hidden state",
    family="heads on the target",
    guess=guess_by_heads, test=verify_tree, build=build, needs=needing("heads", "tree"),
    exact_words="with --acceptance exact",
    exact=lambda settings: settings["acceptance"] == "exact")
