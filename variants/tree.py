"""Miao et al. (2023), "SpecInfer: ... Tree-based Speculative Inference and Verification". Lossless.

What it adds to speculative.py: several guesses for one position. All, and what follows each, form a
tree that the target scores in one pass; the first guess that passes the test leads on.

    tree        the guesses of a round: a Tree in place of a list
    node        a token in it, at the end of one path; -1 is the root, the end of x
    x + tree    the text x continued along every path: Branches, which a tree model reads
    widths      <k_1, .., k_m>, the expansion configuration: children for each node of each level
    siblings    how children of one node are drawn: "distinct" (without replacement), "independent"
                (with replacement) or "top" (the most probable ones, no chance involved)

A tree model is `model(x + tree, 1 + len(tree)) -> [1 + n_nodes, n_vocab]` of probabilities: row 0
follows x, row 1 + i follows x and the path to node i. So the step is speculative.py's own, with
another guess and another test; K is the depth of the tree.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from sampling import accept, one_hot_rows, residual, sample, warp
from speculative import speculative_step
from variants.registry import Decoder, Flag, Rounds, numbers

SIBLINGS = ("distinct", "independent", "top")


@dataclass
class Tree:
    """Distinct paths of guesses, parents first, and the rows that they were drawn from."""

    tokens: list = field(default_factory=list)  # tokens[i] is the token at node i
    parents: list = field(default_factory=list)  # the node before node i, -1: a child of the root
    proposals: list = field(default_factory=list)  # (node, row) as drawn: a guess may come twice

    def __len__(self):
        return len(self.tokens)

    def __iter__(self):
        return iter(self.tokens)

    def __radd__(self, x):
        return Branches(list(x), self)  # a copy, for the text will grow

    def add(self, parent, token, row):
        """Enter one guess; returns its node, which is new unless the same path was there before."""
        node = self.child(parent, token)
        if node is None:
            node = len(self)
            self.tokens.append(token)
            self.parents.append(parent)
        self.proposals.append((node, row))
        return node

    def child(self, parent, token):
        """The node of a token below a node, or None."""
        for node, entry in enumerate(zip(self.tokens, self.parents)):
            if entry == (token, parent):
                return node
        return None

    def find(self, ids):
        """The node at the end of a path of tokens, -1 for an empty one; None if there is none."""
        node = -1
        for token in ids:
            node = self.child(node, token)
        return node

    def guesses_at(self, node):
        """The proposals below a node, in the order drawn."""
        return [(child, row) for child, row in self.proposals if self.parents[child] == node]

    def rows(self):
        """The row that each node was first drawn from."""
        first = dict(reversed(self.proposals))
        return [first[node] for node in range(len(self))]

    def ancestors(self):  # -> [n_nodes, n_nodes]
        """True where j is on the path to i, i included: a row's sum is the depth of its node."""
        sees = np.eye(len(self), dtype=bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                sees[i] |= sees[parent]
        return sees

    def paths(self):
        """The tokens from the root to each node."""
        return [[self.tokens[j] for j in np.flatnonzero(row)] for row in self.ancestors()]


class Branches(NamedTuple):
    """A text that continues along every path of a tree."""

    x: list
    tree: Tree

    def texts(self):
        """x, and x with the path to each node."""
        return [self.x, *(self.x + path for path in self.tree.paths())]


def with_tree_sampling(model, **settings):
    """`sampling.with_sampling` for a tree model: every node is penalised for its own path."""
    def probabilities(ids, n_last):
        logits, texts = model(ids, n_last), ids.texts()
        return np.concatenate([warp(logits[i : i + 1], ids=texts[i], **settings)
                               for i in range(n_last)])

    return probabilities


# ---- guess

def best_ids(row, n):
    """The n best tokens of a row, the best first, of equal ones the lowest first."""
    n = min(n, len(row))
    near = np.flatnonzero(row >= np.partition(row, -n)[-n])  # sorting all is ten times slower
    return near[np.argsort(-row[near], kind="stable")][:n].tolist()


def draw_siblings(row, width, siblings, rng):
    """Up to `width` guesses for one position, each with the very row that it was drawn from."""
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
    """Let a draft add its guesses level by level, one pass per level."""
    level = [-1]
    for width in widths:
        rows = draft(x + tree, 1 + len(tree))
        nodes = [tree.add(node, token, row) for node in level
                 for token, row in draw_siblings(rows[1 + node], width, siblings, rng)]
        level = sorted(set(nodes))


def guess_tree(x, k, rng, drafts, widths, siblings="distinct"):
    """A tree of at most k levels, to which each draft adds, and the row of each node."""
    if siblings not in SIBLINGS:
        raise ValueError(f"need siblings {', '.join(SIBLINGS)}, got {siblings!r}")
    tree = Tree()
    for draft in drafts:
        expand(tree, x, draft, widths[:k], rng, siblings)
    return tree, tree.rows()


# ---- verify

def verify_tree(tree, p_draft, p_target, rng):
    """Multi-step speculative sampling: walk down while a child passes, then one token more.

    At each node the proposals are tested in the order drawn, each with its own row (not p_draft's),
    against what the earlier ones, all rejected, have left of the target's distribution. With
    one-hot rows this is SpecInfer's greedy verification. Miao et al. (2023), VerifyStochastic.
    """
    ids, node = [], -1
    while True:
        left = p_target[1 + node]
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            if accept(min(1, left[token] / row[token]), rng):
                ids, node = ids + [token], child
                break
            left = residual(left, row)
        else:
            return ids + [sample(left, rng)]


# ---- the entry

def build(models, widths, siblings):
    """At temperature 0 a draft's row has one token only, so it gives its best at temperature 1."""
    greedy = models.is_greedy
    if siblings == "auto":
        siblings = "top" if greedy else "distinct"
    if greedy and siblings != "top":
        raise ValueError(f"need --siblings top at --temperature 0, got {siblings}")
    draft = with_tree_sampling(models.draft,
                               **(models.at_temperature_1 if greedy else models.sampling))
    guess = partial(guess_tree, drafts=[draft], widths=widths, siblings=siblings)
    target = with_tree_sampling(models.target, **models.sampling)
    return partial(speculative_step, target=target, K=len(widths), guess=guess, verify=verify_tree)


DECODER = Decoder(
    "tree", build, source="Miao et al. (2023)", url="https://arxiv.org/abs/2305.09781",
    flags={"widths": Flag((2, 2, 1), numbers, "children for each node, level by level: 3,2,1"),
           "siblings": Flag("auto", str, "how children of one node are drawn; auto: top at "
                            "temperature 0, else distinct", ("auto", *SIBLINGS))},
    is_tree=lambda settings: True, rounds=Rounds())
