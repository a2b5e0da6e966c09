"""Expected tokens per round of every test, given the guesses and the rows: nothing is drawn.

    guesses    k tokens, drawn from p_draft unless a function says otherwise
    p_draft    [k, n_vocab], row t the distribution guess t was drawn from
    p_target   [k + 1, n_vocab], row t the target's distribution at that position
    passed[t]  probability that guess t is accepted if all guesses before it were
    tree       a Tree of guesses; p_target[1 + node] is the target's row after that node

Two decoders compared by their texts differ by the luck of their seeds. These functions sum over all
random numbers of a test, so only the guesses are left to chance, and all tests that guess alike
share them. tests/test_expected.py compares each function with the enumeration of its test.

    python -m exact.expected    the ladder: what each idea adds on one toy
"""

from functools import partial
from itertools import accumulate
from operator import mul

import numpy as np

from exact.law import expectation
from exact.optimum import best_accepted, guesses_law
from exact.rules import TOYS, X, best, table
from lib.terminal import Parser
from sampling import residual
from speculative import guess
from variants.shared.branches import Tree
from variants.tree import draw_siblings

# ---- chains

def until_rejected(passed):
    """Return 1 + a_0 + a_0 a_1 + ...: a guess is tested only if all before it were accepted."""
    return 1 + sum(accumulate(passed, mul))


def ratio_tokens(guesses, p_draft, p_target, lenience=1):
    """Return the expected tokens of a round with the ratio test, the token after the guesses too.

    A lenience below 1 is that of variants/lenient.py, which is not lossless. The mean over one
    drawn guess is 1 + (1 - TV), the most any lossless test reaches:

    >>> p_draft, p_target = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> float(sum(p_draft[0][g] * ratio_tokens([g], p_draft, p_target) for g in (0, 1)))
    1.75
    >>> float(1 + np.minimum(p_draft[0], p_target[0]).sum())
    1.75
    """
    return until_rejected(min(1, p_target[t][g] / (lenience * p_draft[t][g]))
                          for t, g in enumerate(guesses))


def match_tokens(guesses, p_draft, p_target):
    """Return the same for `match` and "q = 1": both accept guess g with probability p_target."""
    return until_rejected(p_target[t][g] for t, g in enumerate(guesses))


def chain_bound(guesses, p_draft, p_target):
    """Return a bound: its mean over drawn guesses is not exceeded by any lossless test of a chain.

    A guess drawn with probability d can be text with probability p at most min(p, d), p and d being
    products over the first n rows: 1 - TV of the distributions of n tokens, summed over n.
    """
    ratios = (p_target[t][g] / p_draft[t][g] for t, g in enumerate(guesses))
    return 1 + sum(min(1, share) for share in accumulate(ratios, mul))


# ---- trees

def walk(guesses, left):
    """Return the expected tokens from one node on: `left` is the target's row there.

    `guesses` are (token, row, expected tokens from this child on) in the order drawn.
    """
    none, total = 1, 1
    for token, row, below in guesses:
        passed = min(left[token] / row[token], 1)
        total += none * passed * below
        none, left = none * (1 - passed), residual(left, row)
    return total


def tree_tokens(tree, p_target, node=-1):
    """Return the same for multi-step sampling; with siblings "top" it is "q = 1" on a tree."""
    return walk([(tree.tokens[child], row, tree_tokens(tree, p_target, child))
                 for child, row in tree.guesses_at(node)], p_target[1 + node])


def traversal_tokens(tree, p_target):
    """Return the same for traversal verification, which tests whole paths from their leaves."""
    def visit(node, share):
        """Return the probability that a path through the node passes, and its expected tokens."""
        left, none, total = p_target[1 + node], 1, 0
        for child, row in tree.guesses_at(node):
            token = tree.tokens[child]
            passed, tokens = visit(child, min(share * left[token] / row[token], 1))
            none, total = none * (1 - passed), total + none * (passed + tokens)
            S = np.maximum(share * left - row, 0).sum()
            left = residual(share * left, row)
            share = S / (S + (1 - share)) if S + (1 - share) > 0 else 1
        last = none * (1 if node == -1 else share)  # the path ends here, and one token is drawn
        return 1 - none + last, total + last

    return visit(-1, 1)[1]


def block_tokens(guesses, p_draft, p_target):
    """Return the same for block verification, which is traversal verification of a chain."""
    tree, node = Tree(), -1
    for token, row in zip(guesses, p_draft):
        node = tree.add(node, token, row)
    return traversal_tokens(tree, p_target)


# ---- the ladder

def chain_mean(make_guesses, tokens, toy, K):
    """Return the mean of a chain's formula over all its guesses after X."""
    draft, target = TOYS[toy]

    def guesses_and_rows(rng):
        guesses, p_draft = make_guesses(list(X), K, rng, draft)
        return guesses, p_draft, target([*X, *guesses], K + 1)

    return expectation(guesses_and_rows, lambda found: tokens(*found))


def tree_mean(widths, toy, x=X):
    """Return the same for multi-step sampling, distinct siblings: level by level.

    Subtrees are drawn independently, so the mean of each child's subtree stands in its place.
    """
    if not widths:
        return 1
    p_draft, p_target = (model(x)[-1] for model in TOYS[toy])
    below = [tree_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]
    return expectation(lambda rng: draw_siblings(p_draft, widths[0], "distinct", rng),
                       lambda drawn: walk([(g, row, below[g]) for g, row in drawn], p_target))


def best_mean(widths, toy, x=X):
    """Return the same if every node had the best test of its siblings (exact/optimum.py).

    Tokens of the largest worth are served first: the most that tokens of different worth can bring.
    """
    if not widths:
        return 1
    p_draft, p_target = (model(x)[-1] for model in TOYS[toy])
    guesses = guesses_law(p_draft, widths[0])
    worth = {token: best_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))}
    total, accepted, served = 1, 0, p_target * 0
    for token in sorted(worth, key=worth.get, reverse=True):
        served[token], before = p_target[token], accepted
        accepted = best_accepted(guesses, served)
        total += worth[token] * (accepted - before)
    return total


LADDER = [  # (rung, what it adds, (toy, K) -> expected tokens per round)
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
    ("tree", "ratio test, two guesses for every position", lambda toy, K: tree_mean((2,) * K, toy)),
    ("optimum", "the same tree, the best test at every node",
     lambda toy, K: best_mean((2,) * K, toy)),
]


def climb(toy, K):
    """Return [(rung, what it adds, expected tokens per round)]."""
    return [(rung, adds, float(tokens(toy, K))) for rung, adds, tokens in LADDER]


def ladder_table(toy="A", K=3):
    """Return the ladder as Markdown, and the bound of a chain under it."""
    rows, before = [], 1
    for rung, adds, tokens in climb(toy, K):
        rows.append([rung, adds, f"{tokens:.3f}", f"{tokens - before:+.3f}"])
        before = tokens
    bound = float(chain_mean(guess, chain_bound, toy, K))
    return "\n".join([
        table(["test", "what it adds", "tokens per round", "more"], rows), "",
        f"Toy {toy}, K = {K}, at most {K + 1} tokens per round. No lossless test of one chain of "
        f"drawn guesses exceeds {bound:.3f}."])


def main(argv=None):
    parser = Parser("python -m exact.expected", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print(ladder_table())


if __name__ == "__main__":
    main()
