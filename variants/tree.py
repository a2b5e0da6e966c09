"""Miao et al. (2023), "SpecInfer: ... Tree-based Speculative Inference and Verification". Lossless.

What it adds to speculative.py: several guesses for one place. All of them, and what follows each,
form a tree that the target scores in one pass; the first guess that passes the test leads on.

    tokens      tokens[i] is the id at node i
    parents     parents[i] is the node before node i, -1 for a child of the root (the end of x)
    sees        [n_nodes, n_nodes], True where j is on the way from the root to i, i included
    proposals   (node, law) in the order drawn: a guess may be made twice, its node stands once
    widths      <k_1, .., k_m>, the expansion configuration: children for each node of each level
    siblings    how children of one node are drawn: "distinct" (without replacement), "independent"
                (with replacement) or "top" (the most probable ones, no chance involved)

`draft` and `target` are here callables `(ids, tokens, parents) -> [1 + n_nodes, n_vocab]` of
probabilities: row 0 follows `ids`, row 1 + i follows `ids` and the path to node i.
"""

from typing import NamedTuple

import numpy as np

from sampling import accept, residual, sample, warp
from speculative import Round
from variants.lookup import one_hot_rows

SIBLINGS = ("distinct", "independent", "top")


class Tree(NamedTuple):
    """Distinct token paths, parents before children, and the laws that they were drawn from."""

    tokens: list
    parents: list
    proposals: list


def ancestors(parents):  # -> [n_nodes, n_nodes]
    """`sees`, the mask of tree attention: a row's sum is a node's depth, its Trues are the path."""
    sees = np.eye(len(parents), dtype=bool)
    for i, parent in enumerate(parents):
        sees[i] |= sees[parent] & (parent >= 0)
    return sees


def paths(tokens, parents):
    """The ids from the root to each node."""
    return [[tokens[j] for j in np.flatnonzero(row)] for row in ancestors(parents)]


def children(tree, node):
    """The proposals at a node, in the order drawn."""
    return [(child, law) for child, law in tree.proposals if tree.parents[child] == node]


def node_of(tree, ids):
    """The node at the end of a path of ids, -1 for the root; None if there is none."""
    node = -1
    for token in ids:
        entries = zip(tree.tokens, tree.parents)
        node = next((i for i, entry in enumerate(entries) if entry == (token, node)), None)
    return node


# ---- the two kinds of model that a tree can be put to

def tree_warped(model, **knobs):
    """Probabilities from a GPT2's tree attention; every node warped with its own path."""
    return lambda ids, tokens, parents: warp_nodes(model.tree(ids, tokens, ancestors(parents)),
                                                   ids, tokens, parents, **knobs)


def warp_nodes(logits, ids, tokens, parents, **knobs):  # [1 + n_nodes, n_vocab] -> the same
    """`sampling.warp` for rows that follow paths of a tree: row i is penalised for its own path."""
    return np.array([warp(row, ids=ids + path, **knobs)
                     for row, path in zip(logits, [[], *paths(tokens, parents)])])


def path_by_path(model):
    """The same from any model, each path alone: slow, and what tree attention must equal."""
    return lambda ids, tokens, parents: np.array([model(ids + path, 1)[-1]
                                                  for path in [[], *paths(tokens, parents)]])


# ---- guess

def propose(tree, parent, token, law):
    """Enter one guess; returns its node, which is new unless the same path stood there before."""
    entries, new = zip(tree.tokens, tree.parents), len(tree.tokens)
    node = next((i for i, entry in enumerate(entries) if entry == (token, parent)), new)
    if node == new:
        tree.tokens.append(token)
        tree.parents.append(parent)
    tree.proposals.append((node, law))
    return node


def best_ids(row, n):
    """The n best ids of a row, the best first, of equal ones the lowest first."""
    n = min(n, len(row))
    near = np.flatnonzero(row >= np.partition(row, -n)[-n])  # sorting all is ten times slower
    return near[np.argsort(-row[near], kind="stable")][:n].tolist()


def draw_siblings(row, width, siblings, rng):
    """Up to `width` guesses for one place, each with the very law that it was drawn from."""
    if siblings == "top":
        best = [token for token in best_ids(row, width) if row[token] > 0]
        return list(zip(best, one_hot_rows(best, len(row))))
    drawn = []
    while len(drawn) < width and row.sum() > 0:
        drawn.append((sample(row, rng), row / row.sum()))
        if siblings == "distinct":
            row = row * (np.arange(len(row)) != drawn[-1][0])
    return drawn


def expand(tree, x, draft, widths, rng, siblings="distinct"):
    """Let a draft add its guesses level by level, one pass a level. Several may add to one tree."""
    level = [-1]
    for width in widths:
        rows = draft(x, tree.tokens, tree.parents)
        level = [propose(tree, node, token, law) for node in level
                 for token, law in draw_siblings(rows[1 + node], width, siblings, rng)]
        level = sorted(set(level))


# ---- verify

def verify_tree(tree, p_target, rng):
    """Multi-step speculative sampling: walk down while a child passes, then one token more.

    At each node the proposals are tested in the order drawn against what the earlier ones, all
    rejected, have left of the target's law. With one-hot rows this is SpecInfer's greedy
    verification. Miao et al. (2023), VerifyStochastic and VerifyGreedy.
    """
    ids, node = [], -1
    while True:
        law = p_target[1 + node]
        for child, p_draft in children(tree, node):
            token = tree.tokens[child]
            if accept(min(law[token] / p_draft[token], 1), rng):
                ids, node = ids + [token], child
                break
            law = residual(law, p_draft)
        else:
            return ids + [sample(law, rng)]


def tree_step(x, room, rng, drafts, target, widths, siblings="distinct"):
    """One round: every draft grows the tree, one pass of the target scores it.

    `Round.guesses` are the ids of the nodes and `p_draft` the law each was first drawn from;
    `p_target` has a row for the root, then one a node.
    """
    if siblings not in SIBLINGS:
        raise ValueError(f"need siblings {', '.join(SIBLINGS)}, got {siblings!r}")
    tree = Tree([], [], [])
    for draft in drafts:
        expand(tree, x, draft, widths[: room - 1], rng, siblings)
    return tree_round(tree, x, target, verify_tree, rng)


def tree_round(tree, x, target, verify, rng):
    """Score a tree, test it, and say what was done."""
    p_target = target(x, tree.tokens, tree.parents)
    laws = dict(reversed(tree.proposals))  # a node's first one
    p_draft = [laws[i] for i in sorted(laws)]
    return Round(verify(tree, p_target, rng), tree.tokens, p_draft, p_target)
