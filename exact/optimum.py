"""Compute the best acceptance of any lossless test, and the acceptance of those in variants/.

    p_draft, p_target   rows of one position, [n_vocab]
    n                   siblings: guesses for this position, all made from p_draft
    guesses             {tuple of n tokens: probability} of all that can be guessed
    accepted            the probability that the token that is written is one of the guesses
    A, p(A)             a set of tokens, and its probability under the row p

A lossless test moves probability from the tuples of guesses to the tokens of p_target. A tuple
is accepted if it is moved to one of its own tokens. The best test follows from sets of tokens:

 1. Let A be any set of tokens, and let E be the event that all guesses are in A.
 2. If E happens and a guess is accepted, the written token is in A. A lossless test writes a
    token of A with probability p_target(A). So P(E and accepted) <= p_target(A).
 3. In the rest of E no guess is accepted. So P(not accepted) >= P(E) - p_target(A).
 4. This holds for every set A, and the set with the largest difference gives the best bound.
    A test reaches this bound, because a maximal flow equals a minimal cut:

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
        all_in_A = sum(p for tokens, p in guesses.items() if set(tokens) <= set(A))
        return all_in_A - sum(p_target[token] for token in A)

    # all sets of tokens, by their size
    n_vocab = len(p_target)
    largest: Any = 0  # the excess of the empty set
    for size in range(1, n_vocab + 1):
        for A in combinations(range(n_vocab), size):
            largest = max(largest, excess(A))
    return 1 - largest


# ---- for any vocabulary, n independent guesses

def best_independent(p_draft: np.ndarray, p_target: np.ndarray, n: int) -> float:
    """Return the optimum for n independent guesses, whose P(all in A) is p_draft(A) ** n.

    Only n_vocab + 1 sets are tried: the first i tokens in the order of p_target / p_draft, for
    each i. No other set has a larger difference p_draft(A) ** n - p_target(A), as these steps
    show:

     1. Let A be any set, a = p_draft(A), and s the slope of the curve x ** n at x = a. The
        curve is convex, so it is nowhere below its tangent: x ** n >= a ** n + s (x - a).
     2. A token adds s p_draft - p_target of this token to the sum s p_draft(S) - p_target(S) of
        a set S. The sum is largest for the set B of all tokens that add more than 0.
     3. So the difference of B is at least the difference of A. With b = p_draft(B):

          b ** n - p_target(B) >= a ** n + s (b - a) - p_target(B)      by 1, for x = b
                                = a ** n - s a + (s b - p_target(B))
                               >= a ** n - s a + (s a - p_target(A))    by 2
                                = a ** n - p_target(A)

     4. The tokens of B are those with p_target / p_draft < s, so B is one of the sets tried.

    >>> p_draft, p_target = np.array([0.1, 0.5, 0.4]), np.array([0.2, 0.6, 0.2])
    >>> round(float(best_independent(p_draft, p_target, 2)), 4)
    0.99
    """
    infinite = np.full(len(p_draft), np.inf)  # the ratio of tokens that are never guessed
    ratios = np.divide(p_target, p_draft, out=infinite, where=p_draft > 0)
    order = np.argsort(ratios)
    # entry i: the set of the first i + 1 tokens; the empty set has the difference 0
    differences = np.cumsum(p_draft[order]) ** n - np.cumsum(p_target[order])
    return 1 - max(0, differences.max())


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


Form = Callable[[np.ndarray, np.ndarray, int], float]  # (p_draft, p_target, n) -> accepted
FORMS: dict[str, Form] = {
    "optimum": best_independent,
    "multi-step": multi_step,
    "K-SEQ": kseq,
    "match": match_accepted}


def optimum_table() -> str:
    """Return the optimum and the tests, for one, two and three guesses on every toy."""
    rows = []
    for toy, (draft, target) in TOYS.items():
        # FORMS compute with floats, and the rows of a toy are Fractions
        p_draft = np.asarray(draft(X, 1)[-1], dtype=float)
        p_target = np.asarray(target(X, 1)[-1], dtype=float)
        for n in (1, 2, 3):
            cells = [f"{form(p_draft, p_target, n):.4f}" for form in FORMS.values()]
            rows.append([toy, n, *cells])
    return markdown_table(["toy", "guesses", *FORMS], rows)


# ---- for one chain of drawn guesses

class Move(NamedTuple):
    """Hold one thing that a test can do with a chain: what it writes, and how many tokens."""

    chain: tuple[int, ...]  # the text before the round, then the guesses
    texts: dict  # {text: probability}; a text is the text before the round and K + 1 tokens
    n_tokens: int  # tokens that the round itself writes


def moves_of_rounds(chains: dict, target: Model, K: int) -> list[Move]:
    """Return all moves of a test that chooses only the tokens of its round.

    The round writes the first guesses, as many as are accepted, and then any token. Draws from
    the target's rows follow, as in every decoder here.
    """
    n_vocab = len(target(list(X), 1)[-1])
    moves = []
    for chain, n_accepted, token in product(chains, range(K + 1), range(n_vocab)):
        guesses = chain[len(X) :]  # a chain begins with the text before the round
        ids = (*guesses[:n_accepted], token)
        # the move writes these ids with probability 1, and the target completes them
        texts = completed({ids: 1}, X, target, K + 1)
        moves.append(Move(chain, texts, len(ids)))
    return moves


def moves_to_texts(chains: dict, texts: dict) -> list[Move]:
    """Return all moves of a test that also chooses the tokens after its round.

    Such a test can write any text after any chain. Its round ends with the first token that
    differs from the chain; if none differs, with the token after the chain.
    """
    moves = []
    for chain, text in product(chains, texts):
        # both begin with X; the position after the tokens that are equal in both
        position = len(X)
        while position < len(chain) and text[position] == chain[position]:
            position += 1
        n_accepted = position - len(X)
        moves.append(Move(chain, {text: 1}, n_accepted + 1))
    return moves


def best_chain(draft: Model, target: Model, K: int,
               chooses_later_tokens: bool = False) -> float:
    """Return the most tokens per round of any lossless test of one chain of K drawn guesses.

    The unknowns of the linear programme are the probabilities of all moves. Every chain must
    occur as often as the draft draws it, and every text of K + 1 tokens as often as the target
    writes it.

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
    # one equation for each chain, then one for each text; row_of has their row numbers. A chain
    # and a text are never equal, because a chain has K tokens after X and a text has K + 1
    needed = [float(p) for p in (*chains.values(), *texts.values())]
    row_of = {ids: row for row, ids in enumerate([*chains, *texts])}
    sums = np.zeros((len(needed), len(moves)))  # sums @ (the moves' probabilities) == needed
    for column, move in enumerate(moves):
        sums[row_of[move.chain], column] = 1
        for text, probability in move.texts.items():
            sums[row_of[text], column] = probability
    # linprog minimises, so the numbers of tokens are negative
    costs = [-move.n_tokens for move in moves]
    return -linprog(costs, A_eq=sums, b_eq=needed).fun


def chain_table() -> str:
    """Return the optimum of one chain on every toy, without and with chosen later tokens."""
    rows = []
    for toy, (draft, target) in TOYS.items():
        for K in (1, 2, 3):
            best = best_chain(draft, target, K)
            best_of_both = best_chain(draft, target, K, chooses_later_tokens=True)
            rows.append([toy, K, f"{best:.3f}", f"{best_of_both:.3f}"])
    return markdown_table(["toy", "K", "optimum of one chain", "later tokens chosen too"], rows)


@command("exact.optimum", "requirements/optimum.txt")
def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = Parser("python -m exact.optimum", description=__doc__.split("\n")[0])
    parser.add_argument("--chain", action="store_true",
                        help="show the most tokens per round of any lossless test of one chain")
    args = parser.parse_args(argv)
    print_safely(chain_table() if args.chain else optimum_table(), sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
