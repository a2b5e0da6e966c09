"""Compute the expected tokens per round of every test from the guesses and the rows.

    guesses    k tokens, drawn from p_draft unless a function says otherwise
    p_draft    [k, n_vocab], row t the distribution guess t was drawn from
    p_target   [k + 1, n_vocab], row t the target's distribution at that position
    passed[t]  probability that guess t is accepted if all guesses before it were
    tree       a Tree of guesses; p_target[1 + node] is the target's row after that node

If two decoders are compared by their texts, part of the difference comes from the random seeds.
These functions draw nothing. They sum over all random numbers of a test, so that only the guesses
are random, and tests with the same way to guess are compared on the same guesses.
tests/test_expected.py compares each function with the enumeration of its test.

    python -m exact.expected    the ladder: what each idea adds on one toy; then the tests of
                                several guesses per position, with equal numbers of guesses
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from exact.law import expectation
from exact.optimum import best_accepted, guesses_law
from exact.toys import TOYS, X, best
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from sampling import residual
from speculative import Rows, guess
from variants.multipath import best_row, worst_first
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import Tree
from variants.tree import draw_siblings, guess_shape

# (guesses, p_draft, p_target) -> tokens; rows of floats or Fractions
ChainTokens = Callable[[list[int], Rows, Rows], Any]


# ---- chains

def until_rejected(passed: Iterable) -> Any:
    """Return 1 + a_0 + a_0 a_1 + ...: a guess is tested only if all before it were accepted."""
    return 1 + sum(accumulate(passed, mul))


def ratio_tokens(guesses: list[int], p_draft: Rows, p_target: Rows, lenience: float = 1) -> Any:
    """Return the expected tokens of a round with the ratio test, the last token included.

    A lenience below 1 gives the test of variants/lenient.py, which is not lossless. The mean
    over one drawn guess is 1 + (1 - TV), the most any lossless test reaches:

    >>> p_draft, p_target = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> float(sum(p_draft[0][g] * ratio_tokens([g], p_draft, p_target) for g in (0, 1)))
    1.75
    >>> float(1 + np.minimum(p_draft[0], p_target[0]).sum())
    1.75
    """
    return until_rejected(min(1, p_target[t][g] / (lenience * p_draft[t][g]))
                          for t, g in enumerate(guesses))


def match_tokens(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return the expected tokens of a round with `match`, or with "q = 1".

    Both accept guess g with probability p_target[t][g], whatever its draft row.
    """
    return until_rejected(p_target[t][g] for t, g in enumerate(guesses))


def chain_bound(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return a bound: no lossless test of a chain exceeds its mean over drawn guesses.

    Let p be the target's probability of the first n guesses, and d the draft's. A test can
    accept all n with probability min(p, d) / d at most. The mean of this quotient over drawn
    guesses is 1 - TV of the two distributions of n tokens. The bound is 1 and the sum over n.

    A test reaches the bound only if the tokens after its round may depend on the rejected
    guesses. Here they are the target's, and block is the optimum (exact/optimum.py, `best_chain`).
    """
    ratios = (p_target[t][g] / p_draft[t][g] for t, g in enumerate(guesses))
    # the product of the first n ratios is p / d
    return 1 + sum(min(1, ratio) for ratio in accumulate(ratios, mul))


# ---- trees

def tokens_below(siblings: list[tuple[int, Any, Any]], left: Any) -> Any:
    """Return the expected tokens from one node on, by multi-step sampling.

    siblings    (token, row, expected tokens from this child on) in the order drawn
    left        the target's row at the node; after a rejection, what is left of it
    """
    all_rejected: Any = 1
    total: Any = 1  # the token of this position: an accepted child, or a draw from what is left
    for token, row, below in siblings:
        # this child is tested if all siblings before it were rejected
        passed = min(left[token] / row[token], 1)
        total += all_rejected * passed * below
        all_rejected *= 1 - passed
        left = residual(left, row)
    return total


def tree_tokens(tree: Tree, p_target: Rows, node: int = -1) -> Any:
    """Return the expected tokens of a round with multi-step sampling of a tree.

    Siblings "top" have one-hot rows, so their test is "q = 1" on a tree.
    """
    # each child with the expected tokens from this child on
    siblings = [(tree.tokens[child], row, tree_tokens(tree, p_target, child))
                for child, row in tree.guesses_at(node)]
    return tokens_below(siblings, p_target[1 + node])


def traversal_tokens(tree: Tree, p_target: Rows) -> Any:
    """Return the expected tokens of a round with traversal verification of a tree.

    It tests whole paths from their leaves.
    """
    def visit(node, share):
        """Return P(a path through the node passes), and the expected tokens after the node."""
        left = p_target[1 + node]  # row 0 follows the text, which is node -1
        none_passed = 1
        total = 0
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            share_of_child = min(share * left[token] / row[token], 1)
            passed, tokens = visit(child, share_of_child)
            total += none_passed * (passed + tokens)  # the child itself, and the tokens after it
            none_passed *= 1 - passed
            # the child's paths have all failed: what the target and the share have left
            surplus = np.maximum(share * left - row, 0).sum()
            left = residual(share * left, row)
            rest = surplus + (1 - share)
            share = surplus / rest if rest > 0 else 1
        # no child's path has passed, and this node's own test passes; then one token is drawn
        ends_here = none_passed * (1 if node == -1 else share)
        p_passed = 1 - none_passed + ends_here  # a child's path, or this node's own test
        return p_passed, total + ends_here

    _, tokens_of_round = visit(-1, 1)
    return tokens_of_round


def block_tokens(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return the expected tokens of a round with block verification.

    Block verification is traversal verification of a chain.
    """
    # each guess is the only child of the guess before
    tree = Tree()
    node = -1  # the text
    for token, row in zip(guesses, p_draft):
        node = tree.add(node, token, row)
    return traversal_tokens(tree, p_target)


# ---- means over the guesses

def chain_mean(make_guesses: Callable, tokens: ChainTokens, toy: str, K: int) -> Any:
    """Return the mean of a chain's formula over all its guesses after X."""
    draft, target = TOYS[toy]

    # only the guesses are random: the formula is a mean over the test's own random numbers
    def guesses_and_rows(rng):
        guesses, p_draft = make_guesses(list(X), K, rng, draft)
        return guesses, p_draft, target([*X, *guesses], K + 1)

    return expectation(guesses_and_rows, lambda found: tokens(*found))


def tree_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with multi-step sampling of distinct siblings.

    The mean is computed level by level. Subtrees are drawn independently, so each child counts
    with the mean of its subtree.
    """
    if not widths:
        return 1
    p_draft, p_target = (model(x, 1)[-1] for model in TOYS[toy])
    # below[token]: the mean from this child on
    below = [tree_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]

    def tokens(drawn):
        return tokens_below([(token, row, below[token]) for token, row in drawn], p_target)

    return expectation(lambda rng: draw_siblings(p_draft, widths[0], "distinct", rng), tokens)


def best_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with the best test of siblings at each node of a tree.

    The most that can be accepted of a set of tokens is `best_accepted` (exact/optimum.py) of the
    target's row with 0 for all other tokens. Tokens join the set in falling order of their mean
    below. Each contributes its mean times the increase of what can be accepted.
    """
    if not widths:
        return 1
    p_draft, p_target = (model(x, 1)[-1] for model in TOYS[toy])
    guesses = guesses_law(p_draft, widths[0])
    # below[token]: the mean after this token is accepted
    below = [best_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]
    total: Any = 1
    accepted: Any = 0
    row = p_target * 0  # zeros of the row's own kind: Fractions stay exact
    # the token with the largest mean below is first
    by_mean = sorted(range(len(below)), key=lambda token: below[token], reverse=True)
    for token in by_mean:
        row[token] = p_target[token]
        before = accepted
        accepted = best_accepted(guesses, row)
        total += below[token] * (accepted - before)
    return total


# ---- several paths

def along_paths(model: Callable) -> Callable:
    """Return the tree model that runs the model on the text of each path alone."""
    def rows(ids, n_last):
        return np.array([model(text, 1)[-1] for text in ids.texts()[-n_last:]])

    return rows


def traversal_mean(widths: tuple[int, ...], toy: str) -> Any:
    """Return the mean tokens of a round with traversal verification of distinct siblings."""
    draft, target = map(along_paths, TOYS[toy])

    # only the guesses are random: the formula is a mean over the test's own random numbers
    def drawn_tree(rng):
        return guess_shape(list(X), len(widths), rng, draft, uniform_shape(widths))[0]

    def tokens(tree):
        return traversal_tokens(tree, target(list(X) + tree, 1 + len(tree)))

    return expectation(drawn_tree, tokens)


def best_paths(toy: str, K: int, n_paths: int) -> Iterator[tuple[list[int], Rows, Rows, Any]]:
    """Yield (tokens, rows, target's rows, probability) of every path that can be the best one.

    The rows are the best path's distributions, as in variants/multipath.py.
    """
    draft, target = TOYS[toy]

    def follow(tokens, rows, mass, below, probability):
        text = [*X, *tokens]
        if len(tokens) == K:
            yield tokens, rows, target(text, K + 1), probability
            return
        p_draft = draft(text, 1)[-1]
        order = worst_first(p_draft, target(text, 1)[-1])
        row, below_token = best_row(p_draft, order, mass, below, n_paths)
        for token in np.flatnonzero(row):
            yield from follow([*tokens, int(token)], [*rows, row], mass * p_draft[token],
                              below_token[token], probability * row[token])

    return follow([], [], 1, 0, 1)


def multipath_mean(n_paths: int, toy: str, K: int) -> Any:
    """Return the mean tokens of a round with the best of n independent paths, tested as a block.

    One path is block verification:

    >>> multipath_mean(1, "A", 2) == chain_mean(guess, block_tokens, "A", 2)
    True
    """
    return sum(probability * block_tokens(tokens, rows, p_target)
               for tokens, rows, p_target, probability in best_paths(toy, K, n_paths))


# ---- the ladder

Rung = tuple[str, str, Callable[[str, int], Any]]
LADDER: list[Rung] = [  # (rung, what it adds, (toy, K) -> expected tokens per round)
    ("plain decoding", "one token per pass", lambda toy, K: 1),
    ("match", "drawn guesses, compared with the target's own draws",
     partial(chain_mean, guess, match_tokens)),
    ("one-hot", "the draft's most probable tokens as guesses: q = 1",
     partial(chain_mean, best, match_tokens)),
    ("ratio test", "drawn guesses again; the test knows p_draft",
     partial(chain_mean, guess, ratio_tokens)),
    ("block", "all guesses are tested together", partial(chain_mean, guess, block_tokens)),
    ("siblings", "ratio test, two guesses for the first position",
     lambda toy, K: tree_mean((2,) + (1,) * (K - 1), toy)),
    ("tree", "ratio test, two guesses for every position",
     lambda toy, K: tree_mean((2,) * K, toy)),
    ("optimum", "the same tree, the best test at every node",
     lambda toy, K: best_mean((2,) * K, toy)),
]


def climb(toy: str, K: int) -> list[tuple[str, str, float]]:
    """Return [(rung, what it adds, expected tokens per round)]."""
    return [(rung, adds, float(tokens(toy, K))) for rung, adds, tokens in LADDER]


def ladder_table(toy: str = "A", K: int = 3) -> str:
    """Return the ladder as Markdown, and the bound of a chain under it."""
    rows = []
    before = 1.0  # the rung below; plain decoding writes one token per round
    for rung, adds, tokens in climb(toy, K):
        rows.append([rung, adds, f"{tokens:.3f}", f"{tokens - before:+.3f}"])
        before = tokens
    bound = float(chain_mean(guess, chain_bound, toy, K))
    return "\n".join([
        markdown_table(["test", "what it adds", "tokens per round", "more"], rows), "",
        f"Toy {toy}, K = {K}, at most {K + 1} tokens per round. Block is the best lossless test "
        "of one chain of drawn guesses. If later rounds may depend on its guesses too, no test "
        f"exceeds {bound:.3f}."])


# ---- equal numbers of guesses

EQUAL: list[tuple[str, int, Callable[[str], Any]]] = [  # (test, guesses, toy -> expected tokens)
    ("block, K = 3", 3, lambda toy: chain_mean(guess, block_tokens, toy, 3)),
    ("block, K = 6", 6, lambda toy: chain_mean(guess, block_tokens, toy, 6)),
    ("tree 2,1,1, multi-step", 6, partial(tree_mean, (2, 1, 1))),
    ("tree 2,1,1, traversal", 6, partial(traversal_mean, (2, 1, 1))),
    ("multipath, 2 paths of 3", 6, lambda toy: multipath_mean(2, toy, 3)),
    ("multipath, 3 paths of 3", 9, lambda toy: multipath_mean(3, toy, 3)),
    ("multipath, 4 paths of 3", 12, lambda toy: multipath_mean(4, toy, 3)),
]


def equal_table() -> str:
    """Return the expected tokens of EQUAL on all toys as Markdown.

    The guesses are the most that the tree can have: paths with equal starts share nodes.
    """
    rows = [[test, guesses, *(f"{float(tokens(toy)):.3f}" for toy in TOYS)]
            for test, guesses, tokens in EQUAL]
    return markdown_table(["several guesses", "guesses", *TOYS], rows)


def tables() -> str:
    """Return both tables of RESULTS.md."""
    return f"{ladder_table()}\n\n{equal_table()}"


@command("exact.expected")
def main(argv: list[str] | None = None) -> None:
    """Print the tables."""
    parser = Parser("python -m exact.expected", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print_safely(tables(), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
