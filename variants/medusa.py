"""Cai et al. (2024), "Medusa". Lossless with the exact test, not lossless with the typical one.

What it adds to tree.py: no draft model. A few small heads on the target's own last hidden state
guess the next ids, each head one place further on, and their best guesses are combined into a tree.

    state      the hidden state, after ln_f, that the law of the last id of x came from
    heads      callable state -> [n_heads, n_vocab] of scores: row k for the place k behind x
    choices    the tree: (0,) is head 0's best guess, (0, 2) head 1's third best behind it; a
               prefix of a choice is a choice
    epsilon, delta    of the typical test: keep a guess if p_target > min(epsilon, delta exp(-H))
    H          the entropy of p_target, in nats

The state of the next round is a by-product of this round's pass, so `target` is here a callable
`(ids, tokens, parents) -> ([1 + n_nodes, n_vocab] probabilities, [1 + n_nodes, ..] states)`.
The paper's round ends with the root of the next tree; ours counts it as the round's last id.
"""

import itertools

import numpy as np

from gpt2 import unembed
from sampling import sample
from utils import to_host
from variants.lookup import one_hot_rows
from variants.tree import (Tree, ancestors, best_ids, node_of, paths, tree_round, verify_tree,
                           warp_nodes)


def load_heads(path, params):
    """The heads in a file of w, a [n_heads, n_embd, n_embd] and b [n_heads, n_embd].

    Head k is unembed((h + SiLU(h @ w[k] + b[k])) @ a[k]): Sec. 3.1.1 with W_2 = wte a[k], so that
    a head needs no unembedding of its own.

    Returns
    -------
    callable [n_embd] -> [n_heads, n_vocab]

    Raises
    ------
    ValueError
        If the file was made for a model of another width.
    """
    wte, n_embd = params["wte"], params["wte"].shape[1]
    xp = wte.__array_namespace__()
    try:
        with open(path, "rb") as file, np.load(file) as arrays:
            w, b, a = (xp.asarray(arrays[name], dtype=wte.dtype) for name in "wba")
    except OSError:
        raise
    except Exception as error:  # the readers of archive, header and numbers have many
        raise ValueError(f"need a whole file of heads in {path}, got: {error}") from None
    if w.shape[1:] != (n_embd, n_embd) or b.shape != w.shape[:2] or a.shape != w.shape:
        raise ValueError(f"need heads of width {n_embd} in {path}, got w {w.shape}, a {a.shape} "
                         f"and b {b.shape}")

    def heads(h):
        z = h @ w + b  # [n_heads, n_embd]
        x = h + z * (1 + xp.tanh(z / 2)) / 2  # SiLU, without overflow
        return to_host(unembed((x[:, None, :] @ a)[:, 0, :], params))

    return heads


def with_states(model, **knobs):
    """Probabilities and hidden states from a GPT2's tree attention."""
    def target(ids, tokens, parents):
        states = model.tree_hidden(ids, tokens, ancestors(parents))
        logits = to_host(unembed(states, model.params))
        return warp_nodes(logits, ids, tokens, parents, **knobs), states

    return target


# ---- the tree

def cartesian(widths):
    """Every combination of head 0's widths[0] best guesses, head 1's widths[1] best, and so on."""
    levels = [itertools.product(*map(range, widths[: n + 1])) for n in range(len(widths))]
    return [choice for level in levels for choice in level]


def plant(scores, choices, depth):
    """The tree of the choices for `depth` places; no chance made it, so its laws are one-hot."""
    choices = sorted((c for c in choices if len(c) <= min(depth, len(scores))), key=len)
    order = [best_ids(row, 1 + max(c[-1] for c in choices)) for row in scores] if choices else []
    tokens = [order[len(c) - 1][c[-1]] for c in choices]
    parents = [choices.index(c[:-1]) if c[:-1] else -1 for c in choices]
    return Tree(tokens, parents, list(enumerate(one_hot_rows(tokens, scores.shape[-1]))))


# ---- the test

def typical(row, epsilon, delta):  # [n_vocab] -> [n_vocab] of bool
    """The ids that the target finds typical enough."""
    entropy = -(row * np.log(np.where(row > 0, row, 1))).sum()
    return row > min(epsilon, delta * np.exp(-entropy))


def verify_typical(tree, p_target, rng, epsilon=0.09, delta=0.3):
    """Keep the longest path of typical ids, of equally long ones the likeliest; draw one more."""
    chance, length = {-1: 1.0}, {-1: 0}
    for i, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
        if parent in chance and typical(p_target[1 + parent], epsilon, delta)[token]:
            chance[i], length[i] = chance[parent] * p_target[1 + parent][token], length[parent] + 1
    end = max(chance, key=lambda node: (length[node], chance[node]))
    path = paths(tree.tokens, tree.parents)[end] if end >= 0 else []
    return path + [sample(p_target[1 + end], rng)]


# ---- the round

def medusa(target, heads, choices, verify=verify_tree):
    """Build the step of one text; it remembers the state that the last round ended in.

    `verify` is `verify_tree` (lossless at any temperature: the guesses are no draws, so each is
    kept with the target's probability of it), `verify_typical`, or blockwise.py's.
    """
    seen, state = None, None

    def step(x, room, rng):
        nonlocal seen, state
        if len(x) > 1 and x[:-1] != seen:  # a first round: the prompt, without its last id
            seen, state = x[:-1], target(x[:-1], [], [])[1][0]
        tree = plant(heads(state), choices, room - 1) if len(x) > 1 else Tree([], [], [])
        states = []

        def score(ids, tokens, parents):
            p_target, found = target(ids, tokens, parents)
            states.extend(found)
            return p_target

        round = tree_round(tree, x, score, verify, rng)
        seen, state = x + round.ids[:-1], states[1 + node_of(tree, round.ids[:-1])]
        return round

    return step
