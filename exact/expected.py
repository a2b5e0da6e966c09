"""Compute the expected tokens per round of every test from the guesses and the rows.

    test       (guesses, p_draft, p_target, rng) -> tokens, as speculative.verify
    guesses    k tokens, drawn from p_draft unless a function says otherwise; or a Tree
    p_draft    [k, n_vocab], row t: the distribution that guess t was drawn from
    p_target   [k + 1, n_vocab], row t: the target's distribution at that position; for a tree
               row 0 is for the token after the text, and row 1 + node for the token after node

If two decoders are compared by their texts, part of the difference comes from the random seeds.
These functions draw no random numbers. Each function returns the mean over all random numbers
of a test, for given guesses. So tests that guess in the same way are compared on the same
guesses. tests/test_expected.py compares `mean_tokens` with whole enumerations.

    python -m exact.expected    the ladder: what each idea adds on one toy
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from exact.law import expectation, runs
from exact.optimum import best_accepted, guesses_law
from exact.toys import TOYS, X, best
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from speculative import Guesses, Model, Rows, guess, make_step, verify
from variants.block import block_verify
from variants.shared.best_tree import uniform_shape
from variants.shared.branches import texts_of_rows
from variants.tree import guess_shape, verify_tree

# ---- one round

class FirstToken:
    """Stand for the uniforms of an enumerating rng; `sample` always draws the first token.

    `accept` compares a uniform with a number, which is enumerated. `sample` compares it with a
    row of cumulative sums: it draws the first token whose sum is above 0.
    """

    __array_ufunc__ = None  # NumPy leaves `array > number` to this class

    def __init__(self, rng):
        self.rng = rng

    def random(self):
        return self

    def __lt__(self, bounds):
        return bounds > 0 if np.ndim(bounds) else self.rng.random() < bounds


def mean_tokens(test: Callable, guesses: Guesses, p_draft: Any, p_target: Rows) -> Any:
    """Return the expected tokens of a round, the last token included.

    The test's acceptances are enumerated. It draws a token only when its round ends, so one
    token stands for all of them, and a row of 50,000 tokens is no obstacle. (`match_tokens` is
    for tests that draw a token at every position.) With one drawn guess the mean is 1 + (1 -
    TV), the most that any exact rule reaches:

    >>> p_draft, p_target = np.array([[0.25, 0.75]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> tokens = [mean_tokens(verify, [g], p_draft, p_target) for g in (0, 1)]
    >>> float(p_draft[0] @ tokens), float(1 + np.minimum(p_draft[0], p_target[0]).sum())
    (1.75, 1.75)
    """
    def one_round(rng):
        return test(guesses, p_draft, p_target, FirstToken(rng))

    return sum(len(ids) * probability for ids, probability, _ in runs(one_round))


def match_tokens(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return the expected tokens of a round with `match`, or with the one-hot rule.

    Both accept guess g with probability p_target[t][g], whatever its draft row. The product of
    the first n probabilities is that of n accepted guesses or more, and one more token follows.
    """
    passed = (p_target[t][g] for t, g in enumerate(guesses))
    return 1 + sum(accumulate(passed, mul))


def chain_bound(guesses: list[int], p_draft: Rows, p_target: Rows) -> Any:
    """Return a number whose mean over drawn guesses no exact rule for a chain can exceed.

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


# ---- means over the guesses

def chain_mean(make_guesses: Callable, tokens: Callable, toy: str, K: int) -> Any:
    """Return the mean of tokens(guesses, p_draft, p_target) over all guesses after X."""
    draft, target = TOYS[toy]

    def guesses_and_rows(rng):
        guesses, p_draft = make_guesses(list(X), K, rng, draft)
        return guesses, p_draft, target([*X, *guesses], K + 1)

    return expectation(guesses_and_rows, lambda chain: tokens(*chain))


def tree_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with multi-step sampling of distinct siblings.

    widths    siblings at each position: (2, 1) is two guesses, and one guess after each of them

    The mean is computed level by level: a round of one level is enumerated, and an accepted
    child counts with the mean of the tree below it.
    """
    if not widths:
        return 1  # no guess is left to test, and one token is drawn from the target
    draft, target = map(along_paths, TOYS[toy])
    n_vocab = target(x, 1).shape[-1]
    # every child has the same subtree: the tree without its first position
    below = [tree_mean(widths[1:], toy, (*x, token)) for token in range(n_vocab)]
    siblings = partial(guess_shape, draft=draft, shape=uniform_shape(widths[:1]))
    step = make_step(target, 1, siblings, verify_tree)

    def tokens(ids):
        is_accepted = len(ids) == 2  # a child and the token after it
        return 1 + below[ids[0]] if is_accepted else 1

    return expectation(lambda rng: step([*x], 2, rng).ids, tokens)


def best_mean(widths: tuple[int, ...], toy: str, x: tuple[int, ...] = X) -> Any:
    """Return the mean tokens of a round with the best test of siblings at each node of a tree.

     1. If a test accepts token t with probability accepted[t], the mean is 1 + the sum of
        accepted[t] * below[t]. Here below[t] is the mean tokens after token t is accepted.
     2. Let f(S) be the largest probability that an exact rule accepts some token of a set S.
        It is `best_accepted` (exact/optimum.py) of the target's row with 0 for all tokens
        outside S.
     3. Serve the tokens in falling order of below[t]. The first gets as much acceptance as any
        test can give it alone, f({t1}). The second gets what both together allow, minus that:
        f({t1, t2}) - f({t1}). And so on.
     4. No other choice of accepted[t] has a larger mean, because f is a maximal flow.
    """
    if not widths:
        return 1  # no guess is left to test, and one token is drawn from the target
    p_draft, p_target = (model(x, 1)[-1] for model in TOYS[toy])
    below = [best_mean(widths[1:], toy, (*x, token)) for token in range(len(p_target))]
    guesses = guesses_law(p_draft, widths[0])
    total: Any = 1
    f_before: Any = 0  # f of the empty set
    row = p_target * 0  # zeros of the row's own number type: Fractions stay exact
    for token in sorted(range(len(below)), key=lambda token: -below[token]):
        row[token] = p_target[token]  # the token joins S
        f = best_accepted(guesses, row)
        total += below[token] * (f - f_before)
        f_before = f
    return total


def along_paths(model: Model) -> Model:
    """Return the model that reads texts with a tree, too: the text of each path alone."""
    def rows(ids, n_last):
        return np.array([model(text, 1)[-1] for text in texts_of_rows(ids, n_last)])

    return rows


# ---- the ladder

# (rung, how it guesses and tests, a function (toy, K) -> expected tokens per round)
LADDER: list[tuple[str, str, Callable[[str, int], Any]]] = [
    ("plain decoding", "one token per pass", lambda toy, K: 1),
    ("match", "drawn guesses, compared with the target's own draws",
     partial(chain_mean, guess, match_tokens)),
    ("one-hot-argmax", "the draft's most probable tokens as guesses",
     partial(chain_mean, best, match_tokens)),
    ("ratio rule", "drawn guesses again; the rule uses p_draft",
     partial(chain_mean, guess, partial(mean_tokens, verify))),
    ("block", "all guesses are judged together",
     partial(chain_mean, guess, partial(mean_tokens, block_verify))),
    ("siblings", "ratio rule, two guesses for the first position",
     lambda toy, K: tree_mean((2,) + (1,) * (K - 1), toy)),
    ("tree", "ratio rule, two guesses for every position",
     lambda toy, K: tree_mean((2,) * K, toy)),
    ("optimum", "the same tree, the best rule at every node",
     lambda toy, K: best_mean((2,) * K, toy)),
]


def ladder_table(toy: str = "A", K: int = 3) -> str:
    """Return the ladder as Markdown, and the bound of a chain under it."""
    rows = []
    before = 1.0  # tokens of the rung below; the first rung, plain decoding, is compared with 1
    for rung, adds, mean in LADDER:
        tokens = float(mean(toy, K))
        rows.append([rung, adds, f"{tokens:.3f}", f"{tokens - before:+.3f}"])
        before = tokens
    table = markdown_table(["rule", "how it works", "tokens per round", "more"], rows)
    bound = float(chain_mean(guess, chain_bound, toy, K))
    return "\n".join([
        table, "",
        f"Toy {toy}, K = {K}, at most {K + 1} tokens per round. For one chain of drawn "
        "guesses, block is the best exact rule that treats each round alone. No exact rule "
        f"for a chain exceeds {bound:.3f}, even if later rounds depend on rejected guesses."])


@command("exact.expected")
def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = Parser("python -m exact.expected", description=__doc__.split("\n")[0])
    parser.parse_args(argv)
    print_safely(ladder_table(), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
