"""Cai et al. (2024), "Medusa". Lossless with the exact test, not lossless with the typical one.

Adds to tree.py: a draft without a model. A few small heads on the target's last hidden state guess
the next tokens, each head one position further on, and their best guesses form a tree.

    state      the hidden state, after ln_f, of the row for the last token of x
    heads      callable state -> [n_heads, n_vocab] of scores: row 0 is for the token after x. (The
               model card counts from the state, which is one token earlier: row k is head k + 1,
               k + 2 ahead)
    choices    the tree: (0,) is head 0's best guess, (0, 2) head 1's third best after it; a
               prefix of a choice is a choice
    epsilon, delta    of the typical test: accept if p_target > min(epsilon, delta exp(-H))
    H          the entropy of p_target, in nats

The state of the next round is a by-product of this round's pass (states.py). The paper's round ends
with the root of the next tree; ours counts it as the round's last token.
"""

import itertools
import re
from functools import partial
from pathlib import Path

import numpy as np

from gpt2 import to_host, unembed
from lib.checkpoints import tensors
from sampling import sample
from speculative import make_step
from variants.registry import Decoder, Flag, wholes
from variants.shared.branches import Tree, best_ids, plant, with_tree_sampling
from variants.shared.states import States
from variants.tree import verify_tree


def heads_file(models):
    """Return the path of the heads trained for the target; ValueError if there is no such file."""
    path = models.folder and Path(models.folder) / "heads.safetensors"
    if not path or not path.exists():
        raise ValueError(f"need heads trained for this target (tales-large has some; see "
                         f"models/training), got no file {path}")
    return path


def read_arrays(path, names):
    """Return arrays of a file of heads; ValueError if one is absent, or has NaN or inf."""
    stored, _ = tensors.open_file(path)
    arrays = [np.array(tensors.read(stored, name, path)) for name in names]
    for name, array in zip(names, arrays):
        if not np.isfinite(array).all():
            raise ValueError(f"need finite heads in {path}, got NaN or inf in {name}")
    return arrays


def load_heads(path, params):
    """Return the heads in a file as a callable [n_embd] -> [n_heads, n_vocab].

    Head k is unembed((h + SiLU(h @ w[k] + b[k])) @ a[k]): Sec. 3.1.1 with W_2 = wte a[k], so that
    a head needs no separate unembedding. w and a are [n_heads, n_embd, n_embd], b is [n_heads,
    n_embd]. ValueError if the file was made for a model of a different width.
    """
    wte, n_embd = params["wte"], params["wte"].shape[1]
    w, b, a = (np.asarray(array, wte.dtype, like=wte)
               for array in read_arrays(path, ("medusa/w", "medusa/b", "medusa/a")))
    if w.shape[1:] != (n_embd, n_embd) or b.shape != w.shape[:2] or a.shape != w.shape:
        raise ValueError(f"need heads of width {n_embd} in {path}, got w {w.shape}, a {a.shape} "
                         f"and b {b.shape}")

    def heads(h):
        z = h @ w + b  # [n_heads, n_embd]
        x = h + z * (1 + np.tanh(z / 2)) / 2  # SiLU, without overflow
        return to_host(unembed((x[:, None, :] @ a)[:, 0, :], params))

    return heads


def load_heads_of(models):
    """Return the target's own heads."""
    return load_heads(heads_file(models), models.target.params)


def cartesian(widths):
    """Return all paths of head 0's widths[0] best guesses, head 1's widths[1] best, and so on."""
    levels = [itertools.product(*map(range, widths[: n + 1])) for n in range(len(widths))]
    return [choice for level in levels for choice in level]


def chosen_tree(scores, choices, depth):
    """Return the tree of the choices for `depth` positions."""
    n_heads, n_vocab = scores.shape
    choices = sorted((c for c in choices if len(c) <= min(depth, n_heads) and max(c) < n_vocab),
                     key=len)
    best = [best_ids(row, 1 + max(c[-1] for c in choices)) for row in scores] if choices else []
    return plant([(choice, best[len(choice) - 1][choice[-1]]) for choice in choices], n_vocab)


def guess_by_heads(x, k, rng, state_after, heads, choices):
    """Return the heads' tree for the next k positions; an empty one if x has a single token."""
    tree = chosen_tree(heads(state_after(x[:-1])), choices, k) if len(x) > 1 else Tree()
    return tree, tree.rows()


def typical(row, epsilon, delta):  # [n_vocab] -> [n_vocab] of bool
    """Return which tokens pass the typical test."""
    entropy = -(row * np.log(np.where(row > 0, row, 1))).sum()
    return row > min(epsilon, delta * np.exp(-entropy))


def verify_typical(tree, p_draft, p_target, rng, epsilon=0.09, delta=0.3):
    """Accept the longest path of typical tokens, of equal ones the most probable; draw one more."""
    probability, length = {-1: 1.0}, {-1: 0}
    for i, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
        if parent in length and typical(p_target[1 + parent], epsilon, delta)[token]:
            probability[i] = probability[parent] * p_target[1 + parent][token]
            length[i] = length[parent] + 1
    end = max(length, key=lambda node: (length[node], probability[node]))
    return [*tree.paths(), []][end] + [sample(p_target[1 + end], rng)]


def medusa_step(model, heads, choices, test, **settings):
    """Return the step of one text, for any test of a tree (blockwise.py has its own)."""
    guess = partial(guess_by_heads, state_after=model.state_after, heads=heads, choices=choices)
    return make_step(with_tree_sampling(model, **settings), max(map(len, choices), default=0),
                     guess, test)


def choices(text):
    """Read "0 1 0.0" as the sparse tree (0,), (1,), (0, 0)."""
    if not re.fullmatch(r" *(\d+(\.\d+)*( +|$))*", text):
        raise ValueError(f"need ranks such as '0 1 0.0 0.1', got {text!r}")
    tuples = [tuple(int(part) for part in word.split(".")) for word in text.split()]
    for choice in tuples:
        if choice[:-1] and choice[:-1] not in tuples:
            raise ValueError(f"need the start of each path to be a path, got {choice} in {text!r}")
    return tuples


def build(models,
          widths: Flag(wholes, "children for each node, level by level (default: 3,2,1)"
                       ) = None,
          sparse: Flag(choices, "a sparse tree in place of widths, each node by its path's ranks: "
                       "'0 1 0.0 0.1 0.0.0'") = None,
          acceptance: Flag(str, "which test: exact or typical", ("exact", "typical")) = "exact",
          epsilon: Flag(float, "threshold of the typical test (default: 0.09)") = None,
          delta: Flag(float, "threshold of the typical test (default: 0.3)") = None):
    """Return the step of the paper's heads with either test, over either kind of tree."""
    if sparse and widths:
        raise ValueError("need --widths or --sparse, got both")
    typical = {name: value for name, value in (("epsilon", epsilon), ("delta", delta))
               if value is not None}
    if typical and acceptance == "exact":
        raise ValueError(f"need --acceptance typical for --{next(iter(typical))}, got exact")
    verify = verify_tree if acceptance == "exact" else partial(verify_typical, **typical)
    return medusa_step(States(models.target), load_heads_of(models),
                       sparse or cartesian(widths or (3, 2, 1)), verify, **models.sampling)


DECODER = Decoder(
    "medusa", "Cai et al. (2024)", "https://arxiv.org/abs/2401.10774",
    idea="guesses with small heads on the target's last hidden state",
    guess=guess_by_heads, test=verify_tree, build=build, needs=("heads",),
    exact="with --acceptance exact", exact_if=lambda settings: settings["acceptance"] == "exact")
