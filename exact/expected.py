"""Compute the expected tokens per round of every test from the guesses and the rows.

    guesses    k tokens, drawn from p_draft unless a function says otherwise
    p_draft    [k, n_vocab], row t: the distribution that guess t was drawn from
    p_target   [k + 1, n_vocab], row t: the target's distribution at that position
    passed[t]  the probability that guess t is accepted, if all guesses before it were accepted
    tree       a Tree of guesses; p_target[1 + node] is the target's row after this node, and
               p_target[0] is the row after the text, which is node -1

If two decoders are compared by their texts, part of the difference comes from the random seeds.
These functions draw no random numbers. Each function returns the mean over all random numbers
of a test, for given guesses. So tests that guess in the same way are compared on the same
guesses. tests/test_expected.py compares each function with the enumeration of its test.

    python -m exact.expected    the ladder: what each idea adds on one toy
"""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from exact.law import expectation
from exact.optimum import best_accepted, best_independent, guesses_law
from exact.toys import TOYS, X, best
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from sampling import residual
from speculative import Rows, guess
from variants.kseq import find_rho, shared
from variants.shared.branches import Tree
from variants.tree import draw_siblings

# (guesses, p_draft, p_target) -> tokens; rows of floats or Fractions
ChainTokens = Callable[[list[int], Rows, Rows], Any]


# ---- chains

def until_rejected(passed: Iterable) -> Any:
    """Return the expected tokens of a round that ends at the first rejected guess.

    The first t guesses are all accepted with probability passed[0] * .. * passed[t - 1]. The
    sum of these products is the expected number of accepted guesses, and one more token follows
    them.
    """
    return 1 + sum(accumulate(passed, mul))


def ratio_tokens(guesses: list[int], p_draft: Rows, p_target: Rows, lenience: float = 1) -> Any:
    """Return the expected tokens of a round with the ratio test, the last token included.

    A lenience below 1 gives the test of variants/lenient.py, which is not lossless. With one
    drawn guess the mean is 1 + (1 - TV), the most that any lossless test reaches:

    >>> p_draft, p_target = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> float(sum(p_draft[0][g] * ratio_tokens([g], p_draft, p_target) for g in (0, 1)))
    1.75
    >>> float(1 + np.minimum(p_draft[0], p_target[0]).sum())
    1.75
    """
    passed = []
    for t, g in enumerate(guesses):
        ratio = p_target[t][g] / (lenience * p_draft[t][g])
        passed.append(min(1, ratio))
    return until_rejected(passed)


def match_tokens(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return the expected tokens of a round with `match`, or with "q = 1".

    Both accept guess g with probability p_target[t][g], whatever its draft row.
    """
    return until_rejected(p_target[t][g] for t, g in enumerate(guesses))


def chain_bound(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return a number whose mean over drawn guesses no lossless test of a chain can exceed.

     1. Let p be the target's probability of the first n guesses together, and d the draft's.
     2. A test can accept all n of them with probability min(p, d) / d at most. Otherwise it
        would write these n tokens more often than with probability p.
     3. The mean of min(p, d) / d over drawn guesses is 1 - TV, where TV is the total variation
        between the two models' distributions of n tokens.
     4. The bound is the sum of min(p, d) / d over n = 1 .. k, and 1 for the token after the
        accepted guesses.

    A test reaches the bound only if the tokens after its round may depend on the rejected
    guesses. In a decoder here the tokens after a round are draws from the target, and block is
    the optimum (tests/test_optimum.py).
    """
    ratios = [p_target[t][g] / p_draft[t][g] for t, g in enumerate(guesses)]
    # the product of the first n ratios is p / d, and min(p, d) / d is min(1, p / d)
    products = accumulate(ratios, mul)
    return 1 + sum(min(1, product) for product in products)


# ---- trees

def tokens_below(siblings: list[tuple[int, Any, Any]], remaining: Any) -> Any:
    """Return the expected tokens from one node on, by multi-step sampling.

    siblings     a triple of each child, in the order drawn: its token, the row it was drawn
                 from, and the expected tokens from this child on
    remaining    the target's row at the node; after a rejected child, its residual
    """
    all_rejected: Any = 1  # P(all siblings so far are rejected)
    total: Any = 1  # one token is always written here: a child, or a token of a residual
    for token, row, below in siblings:
        # this child is tested only if all siblings before it were rejected
        passed = min(remaining[token] / row[token], 1)
        total += all_rejected * passed * below
        all_rejected *= 1 - passed
        remaining = residual(remaining, row)
    return total


def tree_tokens(tree: Tree, p_target: Rows, node: int = -1) -> Any:
    """Return the expected tokens of a round with multi-step sampling of a tree.

    Siblings that are not drawn ("top" in variants/tree.py) have one-hot rows, so their test is
    "q = 1" on a tree.
    """
    siblings = []
    for child, row in tree.guesses_at(node):
        below = tree_tokens(tree, p_target, child)  # the expected tokens from this child on
        siblings.append((tree.tokens[child], row, below))
    return tokens_below(siblings, p_target[1 + node])


def traversal_tokens(tree: Tree, p_target: Rows) -> Any:
    """Return the expected tokens of a round with traversal verification of a tree.

    It tests whole paths from their leaves. The names are those of variants/traversal.py.
    """
    def visit(node, share):
        """Return P(a path through the node is accepted), and the mean of the tokens after it.

        The tokens after the node count 0 if no path through the node is accepted.
        """
        remaining = p_target[1 + node]
        none_accepted = 1  # P(no path through the children so far is accepted)
        tokens_after = 0
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            share_of_child = min(share * remaining[token] / row[token], 1)
            p_child, tokens_after_child = visit(child, share_of_child)
            # the child itself is one token
            tokens_after += none_accepted * (p_child + tokens_after_child)
            none_accepted *= 1 - p_child
            # after the rejected child, as in variants/traversal.py
            surplus = np.maximum(share * remaining - row, 0).sum()
            remaining = residual(share * remaining, row)
            mass = surplus + (1 - share)
            share = surplus / mass if mass > 0 else 1

        # the path that ends at this node is tested last; the root's is always accepted
        p_own_test = 1 if node == -1 else share
        ends_here = none_accepted * p_own_test
        tokens_after += ends_here  # one token is drawn after this path
        # the accepted path goes through a child, or ends here
        through_child = 1 - none_accepted
        return through_child + ends_here, tokens_after

    _, tokens_of_round = visit(-1, 1)
    return tokens_of_round


def block_tokens(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return the expected tokens of a round with block verification.

    Block verification is traversal verification of a chain.
    """
    # a chain is a tree in which each guess is the only child of the guess before it
    tree = Tree()
    node = -1  # the text
    for token, row in zip(guesses, p_draft):
        node = tree.add(node, token, row)
    return traversal_tokens(tree, p_target)


# ---- means over the guesses

def chain_mean(make_guesses: Callable, tokens: ChainTokens, toy: str, K: int) -> Any:
    """Return the mean of a formula for chains, `tokens`, over all guesses after X.

    The guesses are enumerated. The test's random numbers are not, because the formula is a mean
    over them.
    """
    draft, target = TOYS[toy]

    def guesses_and_rows(rng):
        guesses, p_draft = make_guesses(list(X), K, rng, draft)
        return guesses, p_draft, target([*X, *guesses], K + 1)

    return expectation(guesses_and_rows, lambda chain: tokens(*chain))


def tree_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with multi-step sampling of distinct siblings.

    widths    siblings at each position: (2, 1) is two guesses, and one guess after each of them

    The mean is computed level by level. Subtrees are drawn independently, so each child counts
    with the mean of its subtree.
    """
    if not widths:
        return 1  # no guess is left to test, and one token is drawn from the target
    draft, target = TOYS[toy]
    p_draft = draft(x, 1)[-1]
    p_target = target(x, 1)[-1]
    # below[token]: the mean tokens from this child on. Any token can be the child, and its
    # subtree is the tree without its first position
    below = [tree_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]

    def tokens(drawn):
        siblings = [(token, row, below[token]) for token, row in drawn]
        return tokens_below(siblings, p_target)

    return expectation(lambda rng: draw_siblings(p_draft, widths[0], "distinct", rng), tokens)


def best_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with the best test of siblings at each node of a tree.

     1. If a test accepts token t with probability accepted[t], the mean is 1 + the sum of
        accepted[t] * below[t]. Here below[t] is the mean tokens after token t is accepted.
     2. Let f(S) be the largest probability that a lossless test accepts some token of a set S.
        It is `best_accepted` (exact/optimum.py) of the target's row with 0 for all tokens
        outside S.
     3. Tokens join S in falling order of below[t]. The token that joins gets the increase of
        f(S) as its accepted[t]. More is not possible, because the tokens that joined before it
        have the rest of f(S). As f is a maximal flow, no other choice of accepted[t] has a
        larger mean.
    """
    if not widths:
        return 1  # no guess is left to test, and one token is drawn from the target
    draft, target = TOYS[toy]
    p_draft = draft(x, 1)[-1]
    p_target = target(x, 1)[-1]
    guesses = guesses_law(p_draft, widths[0])
    # as in `tree_mean`, the mean tokens from each child on
    below = [best_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]
    # the token with the largest mean below is first
    order = sorted(range(len(below)), key=lambda token: below[token], reverse=True)
    total: Any = 1
    f_before: Any = 0  # f of the empty set
    row = p_target * 0  # zeros of the row's own number type: Fractions stay exact
    for token in order:
        row[token] = p_target[token]  # the token joins S
        f = best_accepted(guesses, row)
        total += below[token] * (f - f_before)
        f_before = f
    return total


# ---- n independent guesses for one position

def multi_step(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of multi-step sampling. Miao et al. (2023)."""
    all_rejected = 1.0
    remaining = p_target  # the row that the next guess is tested with
    for _ in range(n):
        # the ratio test accepts a guess with probability sum of min(remaining, p_draft)
        all_rejected *= 1 - np.minimum(remaining, p_draft).sum()
        remaining = residual(remaining, p_draft)
    return 1 - all_rejected


def kseq(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of K-SEQ: 1 - (1 - beta)^n. Sun et al. (2023)."""
    # each of the n guesses is accepted with probability beta, whatever the others are
    rho = find_rho(p_draft, p_target, n)
    beta = shared(p_draft, p_target, rho).sum()
    return 1 - (1 - beta) ** n


def match_accepted(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of match: the target's own draw is one of the guesses."""
    is_guessed = 1 - (1 - p_draft) ** n  # the probability that a token is among the guesses
    return (p_target * is_guessed).sum()


# (p_draft, p_target, n) -> the probability that one of n independent guesses is accepted
FORMS: dict[str, Callable[[np.ndarray, np.ndarray, int], float]] = {
    "optimum": best_independent,
    "multi-step": multi_step,
    "K-SEQ": kseq,
    "match": match_accepted}


def along_paths(model: Callable) -> Callable:
    """Return the tree model that runs the model on the text of each path alone."""
    def rows(ids, n_last):
        # texts() has a text for each row of a tree model, in the order of the rows
        texts = ids.texts()[-n_last:]
        return np.array([model(text, 1)[-1] for text in texts])

    return rows


# ---- the ladder

# (rung, what it adds to the rung below, a function (toy, K) -> expected tokens per round)
Rung = tuple[str, str, Callable[[str, int], Any]]
LADDER: list[Rung] = [
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
    before = 1.0  # tokens of the rung below; the first rung, plain decoding, is compared with 1
    for rung, adds, tokens in climb(toy, K):
        rows.append([rung, adds, f"{tokens:.3f}", f"{tokens - before:+.3f}"])
        before = tokens
    table = markdown_table(["test", "what it adds", "tokens per round", "more"], rows)
    bound = float(chain_mean(guess, chain_bound, toy, K))
    return "\n".join([
        table, "",
        f"Toy {toy}, K = {K}, at most {K + 1} tokens per round. Block is the best lossless "
        "test of one chain of drawn guesses. If later rounds may depend on its guesses too, no "
        f"test exceeds {bound:.3f}."])


@command("exact.expected")
def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = Parser("python -m exact.expected", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print_safely(ladder_table(), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
