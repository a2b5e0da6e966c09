"""Compute the best acceptance of any lossless test, and the acceptance of those in variants/.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under p

A lossless test moves the guesses' distribution to p_target: each tuple of guesses ends in one
token, which is accepted if it is one of these guesses. If all guesses lie in a set A, the token
must be in A to be accepted. It is in A with probability p_target(A). Each set A thus gives a
bound, and the smallest bound is reached (max-flow, min-cut):

    accepted = 1 - max over A of (P(all guesses in A) - p_target(A))

For one guess this is 1 - TV, which the ratio test reaches (docs/proof.md).

For a chain of K drawn guesses a linear programme finds the lossless test with the most tokens
per round (`best_chain`). Block verification reaches it on every toy.

    python -m exact.optimum            the optimum and the tests on the toys of docs/wild.md
    python -m exact.optimum --chain    the optimum of one chain, which needs SciPy
"""

import sys
from collections.abc import Callable
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from exact.law import completed, law, text_law
from exact.toys import TOYS, X
from lib.markdown import markdown_table
from lib.terminal import Parser, command, print_safely
from sampling import residual
from speculative import Model
from variants.kseq import find_rho, shared
from variants.tree import draw_siblings

ProbabilityOf = dict[tuple[int, ...], Any]  # {tuple of n tokens: probability}


def guesses_law(p_draft: np.ndarray, n: int, siblings: str = "distinct") -> ProbabilityOf:
    """Return {tuple of n tokens: probability} of the siblings that variants/tree.py draws."""
    return law(lambda rng: [token for token, _ in draw_siblings(p_draft, n, siblings, rng)])


def best_accepted(guesses: ProbabilityOf, p_target: np.ndarray) -> Any:
    """Return the largest probability with which a lossless test can accept one of its guesses.

    Every set of tokens is tried, which is possible for toys only, and exact on Fractions. The
    optimum for one guess is 1 - TV:

    >>> p_draft, p_target = np.array([0.25, 0.75, 0.0]), np.array([0.5, 0.25, 0.25])
    >>> float(best_accepted({(0,): 0.25, (1,): 0.75}, p_target))
    0.5
    >>> float(np.minimum(p_draft, p_target).sum())
    0.5
    """
    def excess(A):
        """Return P(all guesses in A) - p_target(A)."""
        inside = sum(p for tokens, p in guesses.items() if {*tokens} <= {*A})  # all are in A
        return inside - sum(p_target[token] for token in A)

    n_vocab = len(p_target)
    sets = (A for size in range(n_vocab + 1) for A in combinations(range(n_vocab), size))
    return 1 - max(excess(A) for A in sets)


# ---- for any vocabulary, n independent guesses

def best_independent(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the optimum for n independent guesses: P(all in A) is p_draft(A) ** n.

    P is a convex function of p_draft(A), so it is the maximum of its tangents. For a tangent of
    slope s the worst set has all tokens with s p_draft > p_target. So only these sets are tried:
    the tokens sorted by p_target / p_draft, up to some token.

    >>> p_draft, p_target = np.array([0.1, 0.5, 0.4]), np.array([0.2, 0.6, 0.2])
    >>> round(float(best_independent(p_draft, p_target, 2)), 4)
    0.99
    """
    infinite = np.full(len(p_draft), np.inf)  # the ratio of tokens that are never guessed
    ratios = np.divide(p_target, p_draft, out=infinite, where=p_draft > 0)
    order = np.argsort(ratios)
    excess = np.cumsum(p_draft[order]) ** n - np.cumsum(p_target[order])  # of each start
    return 1 - max(0, excess.max())


def multi_step(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of multi-step sampling. Miao et al. (2023)."""
    all_rejected = 1.0
    remaining = p_target  # the row that the next guess is tested with
    for _ in range(n):
        all_rejected *= 1 - np.minimum(remaining, p_draft).sum()
        remaining = residual(remaining, p_draft)
    return 1 - all_rejected


def kseq(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of K-SEQ: 1 - (1 - beta)^n. Sun et al. (2023)."""
    beta = shared(p_draft, p_target, find_rho(p_draft, p_target, n)).sum()
    return 1 - (1 - beta) ** n


def match_accepted(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the acceptance of match: the target's own draw is one of the guesses."""
    is_guessed = 1 - (1 - p_draft) ** n  # the probability of each token
    return (p_target * is_guessed).sum()


Form = Callable[[np.ndarray, np.ndarray, int], float]
FORMS: dict[str, Form] = {
    "optimum": best_independent, "multi-step": multi_step, "K-SEQ": kseq, "match": match_accepted}


def optimum_table() -> str:
    """Return the optimum and the tests, for one, two and three guesses on every toy."""
    rows = []
    for toy, pair in TOYS.items():
        p_draft, p_target = (np.asarray(model(X, 1)[-1], dtype=float) for model in pair)
        for n in (1, 2, 3):
            accepted = [form(p_draft, p_target, n) for form in FORMS.values()]
            rows.append([toy, n, *(f"{probability:.4f}" for probability in accepted)])
    return markdown_table(["toy", "guesses", *FORMS], rows)


# ---- for one chain of drawn guesses

class Move(NamedTuple):
    """Hold one thing that a test can do with a chain: what it writes, and how many tokens."""

    chain: tuple[int, ...]  # the text before the round, then the guesses
    texts: dict  # {text: probability} of the text before the round and K + 1 tokens
    n_tokens: int  # of the round itself


def moves_of_rounds(chains: dict, target: Model, K: int) -> list[Move]:
    """Return all moves of a test whose round the target completes, as in every decoder here.

    The round writes the first n guesses and any token. Draws from the target's rows follow.
    """
    n_vocab = len(target(list(X), 1)[-1])
    moves = []
    for chain, n, token in product(chains, range(K + 1), range(n_vocab)):
        guesses = chain[len(X) :]
        ids = (*guesses[:n], token)
        moves.append(Move(chain, completed({ids: 1}, X, target, K + 1), n + 1))
    return moves


def moves_to_texts(chains: dict, texts: dict) -> list[Move]:
    """Return all moves of a test that also chooses the tokens after its round.

    The chain and the text are any two. The round writes what both begin with, and one token.
    """
    moves = []
    for chain, text in product(chains, texts):
        end = len(X)  # of what both begin with
        while end < len(chain) and chain[end] == text[end]:
            end += 1
        moves.append(Move(chain, {text: 1}, end - len(X) + 1))
    return moves


def best_chain(draft: Model, target: Model, K: int, chooses_later_tokens: bool = False) -> float:
    """Return the most tokens per round of any lossless test of one chain of K drawn guesses.

    The programme chooses how often each chain makes each move. Every chain must occur as often
    as the draft draws it, and every text of K + 1 tokens as often as the target writes it.

    In a decoder here the tokens after a round are the target's, whatever was rejected. With
    `chooses_later_tokens` they may depend on the rejected guesses. Then the optimum is
    `chain_bound` of exact/expected.py.
    """
    from scipy.optimize import linprog  # imported here because it is optional

    chains = text_law(X, draft, K)
    texts = text_law(X, target, K + 1)
    if chooses_later_tokens:
        moves = moves_to_texts(chains, texts)
    else:
        moves = moves_of_rounds(chains, target, K)
    # a lossless test never writes a text that the target cannot write
    moves = [move for move in moves if move.texts.keys() <= texts.keys()]
    # one equation for each chain, and one for each text
    row_of = {ids: row for row, ids in enumerate([*chains, *texts])}
    sums = np.zeros((len(row_of), len(moves)))
    for column, move in enumerate(moves):
        sums[row_of[move.chain], column] = 1
        for text, probability in move.texts.items():
            sums[row_of[text], column] = probability
    needed = [float(p) for p in (*chains.values(), *texts.values())]
    # linprog minimises, so the numbers of tokens are negative
    return -linprog([-move.n_tokens for move in moves], A_eq=sums, b_eq=needed).fun


def chain_table() -> str:
    """Return the optimum of one chain on every toy, with and without a choice of later tokens."""
    rows = []
    for toy, pair in TOYS.items():
        for K in (1, 2, 3):
            rows.append([toy, K, f"{best_chain(*pair, K):.3f}",
                         f"{best_chain(*pair, K, chooses_later_tokens=True):.3f}"])
    return markdown_table(["toy", "K", "optimum of one chain", "later tokens chosen too"], rows)


@command("exact.optimum", "requirements/optimum.txt")
def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = Parser("python -m exact.optimum", description=__doc__.split("\n")[0])
    parser.add_argument("--chain", action="store_true",
                        help="show the most tokens per round of a lossless test of one chain")
    args = parser.parse_args(argv)
    print_safely(chain_table() if args.chain else optimum_table(), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
